"""Refusals and verdicts: whether a step keeps the result, and if not, which instances show it.

`require_order` and `require_marks` are what primitives call with the program they made; `refuse`
tells why a step is not made, in the user's terms, with a witness, and with suggestions that were
applied and accepted before they are offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tensorir.poly import legality
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop
from tensorir.schedule import picture
from tensorir.schedule.primitive import PRIMITIVES, as_request, call_text, current
from tensorir.support.diagnostics import MOST_TRIES, Message, caller
from tensorir.support.errors import IllegalSchedule, TensorIRError
from tensorir.support.knobs import knobs

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["Fix", "Legality", "fix", "refuse", "require_marks", "require_order", "unproved"]

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Legality:
    """A verdict: true where the step is allowed.

    Attributes
    ----------
    allowed : bool
        Whether the step is allowed; the truth of this object.
    reason : str
        One sentence: why not, or "" where it is allowed.
    witness : object
        The two instances that show it, with sizes and cell; None where there are none.
    suggestions : tuple of str
        What to do instead, each tried.
    reassociates : bool
        Whether the step would change rounding.
    text : str
        The whole of it, as the exception would tell.
    """

    allowed: bool
    reason: str = ""
    witness: Any = None
    suggestions: tuple[str, ...] = ()
    reassociates: bool = False
    text: str = ""

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        if not self.allowed:
            return f"Legality(refused: {self.reason})"
        rounding = ", changes rounding" if self.reassociates else ""
        return f"Legality(allowed{rounding})"


@dataclass(frozen=True, slots=True, eq=False)
class Fix:
    """Calls to make instead, one after the other, and what they do."""

    calls: tuple[Call, ...]
    effect: str

    @property
    def code(self) -> str:
        return "s" + "".join("." + call_text(*c) for c in self.calls)


def fix(effect: str, *calls: Call) -> Fix:
    """A suggestion: `fix("carries nothing", ("parallel", ("i",), {}))`."""
    return Fix(calls, effect)


_trying: ContextVar[bool] = ContextVar("trying", default=False)


def require_order(
    s: Schedule,
    new: Program,
    names: Iterable[str],
    primitive: str,
    *,
    fixes: Iterable[Fix] = (),
    asked: Sequence[tuple[Loop, str]] = (),
) -> bool:
    """Refuse where `new` turns a conflict of the statements `names` around.

    Returns
    -------
    bool
        Whether an exempt pair was turned: the step reassociates.
    """
    among = tuple(names)
    violation = legality.turned(s.program, new, among)
    if violation is not None:
        refuse(s, primitive, None, violation, new=new, fixes=fixes, asked=asked)
    return legality.reassociates(s.program, new, among)


def require_marks(
    s: Schedule,
    new: Program,
    names: Iterable[str],
    primitive: str,
    *,
    fixes: Iterable[Fix] = (),
    asked: Sequence[tuple[Loop, str]] = (),
) -> None:
    """Refuse where a parallel, vector or bound loop around `names` carries a conflict in `new`."""
    found = legality.check_marks(new, tuple(names))
    if found is None:
        return
    loop, violation = found
    refuse(s, primitive, None, violation, new=new, marked=loop, fixes=fixes, asked=asked)


def refuse(
    s: Schedule,
    primitive: str,
    request: str | None,
    violation: Any,
    *,
    new: Program | None = None,
    marked: Loop | None = None,
    headline: str | None = None,
    why: str = "",
    fixes: Iterable[Fix] = (),
    asked: Sequence[tuple[Loop, str]] = (),
) -> NoReturn:
    """Raise `IllegalSchedule` with the whole picture.

    Parameters
    ----------
    s : Schedule
        Before the step.
    primitive : str
        Its name.
    request : str or None
        The call as text; None takes what the user asked for.
    violation : Violation
        What `poly.legality` found.
    new : Program or None
        The program that was refused, where the violation is about it.
    marked : Loop or None
        The parallel, vector or bound loop that carries the violation.
    headline, why : str
        In place of the usual sentences.
    fixes : iterable of Fix
        Tried in order; the first three that are accepted are offered.
    asked : sequence of (Loop, str)
        Remarks on loops of `s`.
    """
    now = current()
    text = request or (now.text if now is not None else f"{primitive}(...)")
    program = new if new is not None else s.program
    witness = legality.witness(program, violation)
    tries = accepted(s, fixes)
    line = headline or picture.headline(text, witness, violation, marked)
    message = Message(
        line,
        caller(),
        *picture.nest(s.program, witness, violation, asked),
        why=why or picture.why(program, witness, violation, marked),
        tries=[(f.code, f.effect) for f in tries],
        more='tir.help("illegal-schedule")',
    )
    raise message.error(
        IllegalSchedule,
        primitive=primitive,
        witness=witness,
        suggestions=tuple(f.code for f in tries),
        distance=getattr(witness, "distance", None),
    )


def unproved(s: Schedule, primitive: str, what: str) -> NoReturn:
    """Raise `IllegalSchedule` because a proof ran out of its budget; `what` says on what."""
    now = current()
    text = now.text if now is not None and now.schedule is s else f"{primitive}(...)"
    raise Message(
        f"{text} could not be proved to keep the result: {what}",
        caller(),
        why="what is not proved is not done.",
        tries=[
            (
                f"tir.knobs.isl_operations = {10 * knobs.isl_operations:_}",
                "allows ten times as many",
            )
        ],
        more='tir.help("could-not-prove")',
    ).error(IllegalSchedule, primitive=primitive)


def accepted(s: Schedule, fixes: Iterable[Fix]) -> list[Fix]:
    """The first three fixes that can be applied to `s`."""
    if _trying.get():
        return []
    token = _trying.set(True)
    try:
        found: list[Fix] = []
        for f in fixes:
            if len(found) < MOST_TRIES and _applies(s, f):
                found.append(f)
        return found
    finally:
        _trying.reset(token)


def _applies(s: Schedule, f: Fix) -> bool:
    try:
        with as_request(None):
            for name, args, kwargs in f.calls:
                s = PRIMITIVES[name](s, *args, **kwargs)
    except TensorIRError:
        return False
    return True
