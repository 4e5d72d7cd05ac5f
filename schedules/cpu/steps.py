"""Steps that several schedules take."""

from __future__ import annotations

from schedules.cpu.structure import attempt
from tensorir.ir.expr import Axis
from tensorir.poly import tree
from tensorir.schedule.resolve import axis, free_names, reference
from tensorir.schedule.schedule import Schedule


def inside(s: Schedule, statement: str, loop: str) -> list[Axis]:
    """The axes of a statement inside a loop, outer to inner."""
    around = axis(s, loop, primitive="inside").axis
    axes = list(tree.axes_of(s.program.tree, statement))
    return axes[next(k for k, a in enumerate(axes) if a is around) + 1 :]


def under(s: Schedule, loop: str) -> list[str]:
    """The statements in a loop, in order; not those that begin a sum, which follow its marks."""
    body = axis(s, loop, primitive="under").body
    return [n for n in tree.stmts(body) if s.program.stmt(n).role != "init"]


def joined(s: Schedule, loops: list[str]) -> tuple[Schedule, str]:
    """Loops around each other as one, as far as they can be, and its name."""
    first, *rest = loops
    for name in rest:
        (both,) = free_names(s, "part")
        after = attempt(s, "fuse", first, name, into=both)
        if after is s:
            break
        s, first = after, both
    return s, first


def kept(s: Schedule, stage: str, accumulator: str, at: str, *, tail: bool) -> Schedule:
    """What a reduction computes in one iteration of a loop, in registers.

    With a `tail`, a stage that reads it there, the reduction is computed in that loop; else what
    it writes is kept.
    """
    if tail:
        s = s.compute_at(stage, at).set_scope(stage, "local")
        return s if accumulator == stage else s.set_scope(accumulator, "local")
    if accumulator != stage:
        return s.cache_write(stage, "local", at=at)
    (name,) = free_names(s, f"{stage}_tile")
    return s.cache_write(stage, "local", at=at, name=name)


def lanes_last(s: Schedule, loop: str, lanes: int) -> Schedule:
    """The innermost loop of each statement in a loop in vectors."""
    for name in under(s, loop):
        around = [a for a in inside(s, name, loop) if not a.reduce]
        if around:
            s = attempt(s, "vectorize", reference(s.program, around[-1]), width=lanes)
    return s
