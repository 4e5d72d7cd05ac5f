"""Which schedule the library has for a computation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tensorir.codegen import targets
from tensorir.ir.target import Target
from tensorir.ir.tensor import Tensor
from tensorir.schedule.schedule import Schedule, schedule
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import ArgumentTypeError
from tensorir.support.tracebacks import user_api

Recognise = Callable[[Schedule], bool]
Apply = Callable[[Schedule, Target], Schedule]
F = TypeVar("F", bound=Callable[..., Schedule])


@dataclass(frozen=True, slots=True)
class Entry:
    """A hand schedule: what it is called, what it recognises, and how it applies."""

    name: str
    recognise: Recognise
    apply: Apply
    kind: str = "cpu"


_ENTRIES: list[Entry] = []


def by_hand(function: F) -> F:
    """Make a hand schedule fit for users: what it is given must be a schedule."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Schedule:
        for s in args[:1] or [kwargs[k] for k in ("s",) if k in kwargs]:
            if not isinstance(s, Schedule):
                what = f"expected a schedule, not {type(s).__name__} {s!r:.60}"
                tries = [("tir.schedule(tensor)", "makes one")]
                message = Message(f"{function.__name__}: {what}", caller(), tries=tries)
                raise message.error(ArgumentTypeError)
        return function(*args, **kwargs)

    return cast(F, user_api(checked))


def register(name: str, recognise: Recognise, *, kind: str = "cpu") -> Callable[[Apply], Apply]:
    """Make a function the library's schedule for what `recognise` accepts on a kind of target.

    Later ones go first.
    """

    def add(apply: Apply) -> Apply:
        _ENTRIES.insert(0, Entry(name, recognise, apply, kind))
        return apply

    return add


def entries(kind: str = "cpu") -> tuple[Entry, ...]:
    """The hand schedules for a kind of target, in the order in which they are asked."""
    return tuple(e for e in _ENTRIES if e.kind == kind)


def entry_for(s: Schedule, kind: str = "cpu") -> Entry | None:
    """The hand schedule for a computation on a kind of target, or None."""
    return next((e for e in entries(kind) if e.recognise(s)), None)


@user_api
def schedule_for(*tensors: Tensor, target: str | Target | None = None) -> Schedule:
    """The library's schedule for a computation.

    A hand schedule where the registry knows the computation (matmul, the two-stage blur), else the
    default: elementwise stages fused, reductions in register tiles, the innermost axis in vectors,
    the outermost on all threads.

    Parameters
    ----------
    *tensors
        The outputs.
    target
        The processor, or a GPU ("cuda", "emulator"); this processor by default.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((1024, 1024), name="A")
    >>> s = schedule_for(tir.compute((1024, 1024), lambda i, j: A[i, j] + 1.0, name="B"))
    >>> [step.primitive for step in s.trace.steps][-1]
    'parallel'
    """
    where = targets.resolve(target)
    s = schedule(*tensors)
    entry = entry_for(s, where.kind)
    if entry is not None:
        return entry.apply(s, where)
    if where.kind == "cuda":
        from schedules.cuda.default import default_schedule as default
    else:
        from schedules.default import default_schedule as default
    return default(s, where)
