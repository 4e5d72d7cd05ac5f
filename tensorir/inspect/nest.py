"""The rows of a loop nest, ready to be drawn: what each line is, its kind, the step behind it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from tensorir.ir.affine import Region
from tensorir.ir.expr import Axis
from tensorir.poly import ranges, tree
from tensorir.poly.isl import BudgetExceeded
from tensorir.poly.model import Program
from tensorir.schedule import text
from tensorir.schedule.primitive import Step
from tensorir.schedule.schedule import Schedule

__all__ = ["Row", "rows", "rows_of_text"]

What: TypeAlias = Literal["loop", "guard", "buffer", "statement"]
KINDS = ("serial", "reduce", "parallel", "vectorize", "unroll", "bind")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a nest.

    Attributes
    ----------
    what
        "loop", "guard", "buffer" or "statement".
    depth
        How many levels it is indented.
    text
        Without indentation and comment: ``for io in 0..8``.
    comment
        How a loop runs: ``vectorize 16``; "" where there is nothing to say.
    kind
        Of a loop: one of `KINDS`; "reduce" is a serial loop over a reduction. Else "".
    step
        The step that made the loop or caused the guard; None where the declaration did.
    """

    what: What
    depth: int
    text: str
    comment: str = ""
    kind: str = ""
    step: Step | None = None

    @property
    def line(self) -> str:
        """The row as plain text."""
        comment = f"  # {self.comment}" if self.comment else ""
        return f"{'  ' * self.depth}{self.text}{comment}"


def rows(s: Schedule) -> list[Row]:
    """The nest of a schedule, outer before inner."""
    lines = text.lines(s.program)
    kinds = {x.axis: _kind(x) for x in tree.loops(s.program.tree)}
    made = {x.axis: x.step for x in tree.loops(s.program.tree)}
    steps = {step.number: step for step in s.trace.steps}
    out: list[Row] = []
    for at, line in enumerate(lines):
        row = _row(line.text)
        if line.axis is not None:
            number = made[line.axis]
            row = _with(row, kinds[line.axis], steps.get(number))
        elif line.version:
            row = _with(row, "", _last(s, "specialize"))
        elif row.what == "guard":
            below = next((x.stmt for x in lines[at:] if x.stmt is not None), None)
            row = _with(row, "", None if below is None else _cause(s, below))
        out.append(row)
    return out


def rows_of_text(nest: str) -> list[Row]:
    """The rows of a nest that is text, as kernels keep it; steps are not known."""
    return [_row(line) for line in nest.splitlines()]


def _row(line: str) -> Row:
    bare = line.lstrip(" ")
    depth = (len(line) - len(bare)) // 2
    body, _, comment = bare.partition("  # ")
    word = body.partition(" ")[0].rstrip(":")
    if word == "for":
        first = comment.partition(" ")[0]
        return Row("loop", depth, body, comment, first if first in KINDS else "serial")
    if word in ("if", "else"):
        return Row("guard", depth, body, comment)
    if word == "alloc":
        return Row("buffer", depth, body, comment)
    return Row("statement", depth, body, comment)


def _with(row: Row, kind: str, step: Step | None) -> Row:
    return Row(row.what, row.depth, row.text, row.comment, kind, step)


def _kind(x: tree.Loop) -> str:
    return "reduce" if x.kind == "serial" and x.axis.reduce else x.kind


def _last(s: Schedule, primitive: str) -> Step | None:
    return next((x for x in reversed(s.trace.steps) if x.primitive == primitive), None)


# -- which step a guard comes from

_guards: WeakKeyDictionary[Program, dict[str, Region]] = WeakKeyDictionary()


def _cause(s: Schedule, stmt: str) -> Step | None:
    """The step since which a statement is guarded; None where its declaration is.

    A guard cannot be older than the loops it speaks of; among the steps since then the first one
    with a guard is found by bisection, as each look costs a walk over the nest.
    """
    history = list(_history(s))
    guard = _guards_of(s.program).get(stmt, ((),))
    axes = {a for conj in guard for _, e in conj for a in e.atoms() if isinstance(a, Axis)}
    oldest = max((x.step for x in tree.loops(s.program.tree) if x.axis in axes), default=0)
    numbers = range(oldest, len(history))
    found = bisect_left(numbers, True, key=lambda k: _is_guarded(history[k].program, stmt))
    return history[min(oldest + found, len(history) - 1)].step


def _is_guarded(program: Program, stmt: str) -> bool:
    return _guards_of(program).get(stmt, ((),)) != ((),)


def _guards_of(program: Program) -> dict[str, Region]:
    found = _guards.get(program)
    if found is None:
        try:
            found = ranges.nest_bounds(program).guards
        except BudgetExceeded:
            found = {}
        _guards[program] = found
    return found


def _history(s: Schedule) -> Iterator[Schedule]:
    """Every schedule from the declaration to this one; the index of each is its step's number."""
    out = []
    now: Schedule | None = s
    while now is not None:
        out.append(now)
        now = now.parent
    yield from reversed(out)
