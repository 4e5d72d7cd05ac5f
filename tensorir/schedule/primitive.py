"""What makes a function a primitive of a schedule: it is recorded, numbered, and can be replayed.

A primitive is a module function whose first argument is the schedule. It returns a `Draft`, the
changed program, and the decorator turns that into the next schedule with its `Step`. One made of
others calls them and returns the schedule they gave; the trace then holds those. A step that
changes nothing is recorded like any other, and warns where the user called it.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from tensorir.ir.dtype import DType
from tensorir.ir.expr import Axis
from tensorir.poly.isl import BudgetExceeded
from tensorir.poly.model import Program
from tensorir.support.calls import not_taken
from tensorir.support.diagnostics import CallSite, caller, is_own
from tensorir.support.errors import ArgumentTypeError, warn
from tensorir.support.tracebacks import user_api

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["PRIMITIVES", "Draft", "Request", "Step", "call_text", "current", "primitive"]

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """What a primitive made.

    Attributes
    ----------
    program : Program
        The changed program.
    reassociates : bool
        Whether results may differ in rounding.
    notes : tuple of str
        What is worth knowing of it, one line each: `recomputes 2 of 10 rows`.
    record : tuple of (args, kwargs) or None
        What the trace records in place of the arguments as given, where those are not plain.
    idle : str
        Why the step changes nothing, where it has no effect: `'i' has one point`.
    """

    program: Program
    reassociates: bool = False
    notes: tuple[str, ...] = ()
    record: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    idle: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of a trace: which primitive, with which arguments, asked for where."""

    number: int
    primitive: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    site: CallSite | None = None
    reassociates: bool = False
    notes: tuple[str, ...] = ()
    idle: str = ""

    @property
    def text(self) -> str:
        """The call: ``split("i", 32, into=("io", "ii"))``."""
        return call_text(self.primitive, self.args, self.kwargs)

    def __repr__(self) -> str:
        return f"{self.number}: {self.text}"


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What is being asked for now; errors tell it."""

    schedule: Schedule
    primitive: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return call_text(self.primitive, self.args, self.kwargs)


_current: ContextVar[Request | None] = ContextVar("request", default=None)

#: Every primitive by name.
PRIMITIVES: dict[str, Callable[..., Schedule]] = {}


def current() -> Request | None:
    """The request that is being worked on, the outermost primitive that the user called."""
    return _current.get()


@contextmanager
def as_request(request: Request | None) -> Iterator[None]:
    """Make `request` the current one for a block (None: what is called next sets it)."""
    token = _current.set(request)
    try:
        yield
    finally:
        _current.reset(token)


def primitive(
    function: Callable[Concatenate[Schedule, P], Draft | Schedule],
) -> Callable[Concatenate[Schedule, P], Schedule]:
    """Make `function` a primitive under its own name."""
    name = function.__name__
    signature = inspect.signature(function)

    @functools.wraps(function)
    def apply(s: Schedule, /, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        if _current.get() is not None:
            return _next(s, function, signature, args, kwargs)
        token = _current.set(Request(s, name, args, kwargs))
        try:
            made = _next(s, function, signature, args, kwargs)
        finally:
            _current.reset(token)
        step = made.step
        asked = step is not None and step.primitive == name and not is_own(sys._getframe(2))
        if step is not None and asked and step.idle:
            warn("no-effect", f"{step.text} has no effect: {step.idle}")
        return made

    public: Callable[Concatenate[Schedule, P], Schedule] = user_api(apply)
    PRIMITIVES[name] = public
    return public


def _next(
    s: Schedule,
    function: Callable[..., Draft | Schedule],
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Schedule:
    name = function.__name__
    wrong = not_taken(name, signature, (s, *args), kwargs)
    if wrong is not None:
        raise wrong
    for value in (*args, *kwargs.values()):
        if hasattr(value, "__array__") and getattr(value, "ndim", None) != 0:
            # even compared with a word it has no truth value
            what = f"a step takes names and numbers, not {type(value).__name__} {value!r:.60}"
            raise ArgumentTypeError(f"{name}: {what}", details=_site())
    try:
        draft = function(s, *args, **kwargs)
    except BudgetExceeded as spent:
        from tensorir.schedule.explain import unproved

        unproved(s, name, str(spent))
    if not isinstance(draft, Draft):
        return draft
    if draft.record is not None:
        args, kwargs = draft.record
    plain_args = tuple(plain(s, a) for a in args)
    plain_kwargs = {k: plain(s, v) for k, v in kwargs.items()}
    notes = (*draft.notes, f"no effect: {draft.idle}") if draft.idle else draft.notes
    step = Step(
        s.next_number,
        name,
        plain_args,
        plain_kwargs,
        caller(),
        draft.reassociates,
        notes,
        draft.idle,
    )
    return s.then(draft.program, step)


def _site() -> str:
    site = caller()
    return f"\n  {site}" if site is not None else ""


def plain(s: Schedule, value: Any) -> Any:
    """`value` as a trace records it: names, numbers, strings, and tuples of them."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(plain(s, v) for v in value)
    if isinstance(value, dict):
        return {str(k): plain(s, v) for k, v in value.items()}
    if isinstance(value, Axis):
        from tensorir.schedule import resolve

        return resolve.reference(s.program, value)
    if isinstance(value, DType):
        return value.name
    if isinstance(getattr(value, "name", None), str):
        return value.name
    try:
        return operator.index(value)
    except TypeError:
        pass
    raise ArgumentTypeError(
        f"a schedule takes names, numbers, tensors and axes, not {value!r:.60}", details=_site()
    )


def call_text(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """A call as source: ``reorder("j", "i")``."""
    parts = [value_text(a) for a in args]
    parts += [f"{k}={value_text(v)}" for k, v in kwargs.items()]
    return f"{name}({', '.join(parts)})"


def value_text(value: Any) -> str:
    """A plain value as source, strings in double quotes."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, tuple | list):
        inner = ", ".join(value_text(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{value_text(k)}: {value_text(v)}" for k, v in value.items()) + "}"
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return value_text(name)
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    try:
        return str(operator.index(value))
    except TypeError:
        return f"{value!r:.60}"
