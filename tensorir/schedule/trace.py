"""The steps that led to a schedule: as text, as Python that rebuilds it, as JSON, replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorir.schedule.primitive import PRIMITIVES, Step, call_text
from tensorir.support import display
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import ArgumentError, ArgumentTypeError, ScheduleError
from tensorir.support.names import hint
from tensorir.support.tracebacks import user_api

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["Trace", "of", "replay"]

FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace:
    """Numbered steps. Printing gives each with the line that asked for it.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8,), name="A")
    >>> B = tir.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> trace = tir.schedule(B).split("i", 4).unroll("ii").trace
    >>> print(trace.to_python())
    def rebuild(s):
        s = s.split("i", 4)
        s = s.unroll("ii")
        return s
    >>> print(tir.replay(tir.schedule(B), Trace.from_json(trace.to_json())))
    for io in 0..2
      for ii in 0..4  # unroll
        B[4*io + ii] = A[4*io + ii] + 1.0
    """

    steps: tuple[Step, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __eq__(self, other: object) -> bool:
        """Two traces are equal if they make the same calls."""
        if not isinstance(other, Trace):
            return NotImplemented
        return [s.text for s in self] == [s.text for s in other]

    def __hash__(self) -> int:
        return hash(tuple(s.text for s in self))

    def __str__(self) -> str:
        texts = [f"{s.number}: {s.text}" for s in self.steps]
        width = max((len(t) for t in texts), default=0)
        out = []
        for s, t in zip(self.steps, texts, strict=True):
            site = f"  # {s.site.place}" if s.site is not None else ""
            rounding = "  (changes rounding)" if s.reassociates else ""
            out.append(f"{t:<{width}}{site}{rounding}".rstrip())
            out += [f"   {n}" for n in s.notes]
        return "\n".join(out) or "no steps"

    __repr__ = __str__

    @user_api
    def to_python(self, name: str = "rebuild") -> str:
        """The source of a function that makes the same steps on a schedule.

        Parameters
        ----------
        name : str
            The name of the function.
        """
        body = [f"    s = s.{step.text}" for step in self.steps]
        return display.Text("\n".join([f"def {name}(s):", *body, "    return s"]))

    @user_api
    def to_json(self) -> str:
        """The steps as JSON: names and numbers only, no source lines."""
        steps = [
            {"primitive": s.primitive, "args": list(s.args), "kwargs": dict(s.kwargs)}
            for s in self.steps
        ]
        return json.dumps({"format": FORMAT, "steps": steps})

    @staticmethod
    @user_api
    def from_json(text: str) -> Trace:
        """The trace that `to_json` wrote.

        Raises
        ------
        ArgumentError
            It is not the JSON of a trace, or of another version, or names no known primitive.
        """
        try:
            data = json.loads(text)
        except (TypeError, ValueError) as error:
            raise _bad(f"not JSON: {error}") from None
        if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
            raise _bad("expected an object with 'format' and 'steps'")
        if data.get("format") != FORMAT:
            raise _bad(f"format {data.get('format')!r:.40}, but this version reads {FORMAT}")
        return Trace(tuple(_step(k, x) for k, x in enumerate(data["steps"], 1)))


def _step(number: int, x: Any) -> Step:
    if not isinstance(x, dict) or set(x) != {"primitive", "args", "kwargs"}:
        raise _bad(f"step {number} must have 'primitive', 'args' and 'kwargs'")
    name, args, kwargs = x["primitive"], x["args"], x["kwargs"]
    if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise _bad(f"step {number} is not a call")
    if name not in PRIMITIVES:
        raise _bad(f"step {number}: there is no primitive {name!r:.60}{hint(name, PRIMITIVES)}")
    return Step(number, name, _tuples(args), {str(k): _tuples(v) for k, v in kwargs.items()})


def _tuples(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(_tuples(v) for v in x)
    if isinstance(x, dict):
        return {k: _tuples(v) for k, v in x.items()}
    return x


def _bad(reason: str) -> ArgumentError:
    return Message(f"this is no trace: {reason}", caller()).error(ArgumentError)


def of(s: Schedule) -> Trace:
    """The trace of a schedule."""
    steps = []
    now: Schedule | None = s
    while now is not None:
        if now.step is not None:
            steps.append(now.step)
        now = now.parent
    return Trace(tuple(reversed(steps)))


@user_api
def replay(s: Schedule, trace: Trace | Sequence[Step]) -> Schedule:
    """The steps of a trace made on a schedule, each checked as if it were called.

    Parameters
    ----------
    s : Schedule
        Where to begin, usually `tir.schedule(...)` of the same or another computation.
    trace : Trace
        What to do.

    Raises
    ------
    ScheduleError, IllegalSchedule
        As the primitive that refuses; the message begins with it, and a note names the step.
    """
    if not hasattr(trace, "steps") and not isinstance(trace, list | tuple):
        raise Message(
            f"replay: a trace is needed, as s.trace gives it, not {trace!r:.60}", caller()
        ).error(ArgumentTypeError)
    for step in trace:
        if not isinstance(step, Step) or step.primitive not in PRIMITIVES:
            name = getattr(step, "primitive", step)
            raise Message(f"replay: there is no primitive {name!r:.60}", caller()).error(
                ScheduleError
            )
        try:
            s = PRIMITIVES[step.primitive](s, *step.args, **dict(step.kwargs))
        except Exception as error:
            call = call_text(step.primitive, step.args, step.kwargs)
            error.add_note(f"  while replaying step {step.number}: {call}")
            raise
    return s
