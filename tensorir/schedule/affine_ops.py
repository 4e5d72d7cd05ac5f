"""One loop counted otherwise: backwards, from elsewhere, or aslant to a loop around it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import Fact, Lin
from tensorir.ir.expr import Axis
from tensorir.poly import ranges, tree
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop
from tensorir.schedule import bounds_text, resolve
from tensorir.schedule.explain import require_marks, require_order
from tensorir.schedule.loop_ops import follow, recut, substitute
from tensorir.schedule.primitive import Draft, primitive

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["reverse", "shift", "skew"]


@primitive
def reverse(s: Schedule, axis: str | Axis) -> Draft:
    """One loop from its last value to its first.

    Needs every pair of instances that touch one cell, one of them writing, to keep its order; a
    reduction may run backwards, which changes its rounding. The loop counts upwards all the same:
    the value is its last less the axis. Others call it `reverse` (PLUTO, URUK), loop reversal.

    Parameters
    ----------
    axis : str or Axis
        The loop.

    Raises
    ------
    IllegalSchedule
        Going backwards would change the result; carries two instances that show it.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8,), name="A")
    >>> B = tir.compute((8,), lambda i: A[i] * 2.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..8
      B[i] = A[i] * 2.0
    >>> print(s.reverse("i").loops())
    for i in 0..8
      B[-i + 7] = A[-i + 7] * 2.0
    """
    what = "reverse"
    loop = resolve.axis(s, axis, primitive=what)
    new, _ = _counted(s, loop, Lin({loop.axis: -1}) + _ends(s.program, loop), -1)
    names = tree.stmts(loop)
    asked = [(loop, "asked to run backwards")]
    reassociates = require_order(s, new, names, what, asked=asked)
    require_marks(s, new, names, what, asked=asked)
    idle = ""
    if ranges.constant_extent(s.program, loop.axis) == 1:
        idle = f"{loop.axis.name!r} has one point"
    return Draft(new, reassociates, idle=idle)


def _ends(program: Program, loop: Loop) -> Lin:
    """The sum of the first and the last value, where each is one affine form; else 0."""
    span = ranges.nest_bounds(program).loops.get(loop.axis)
    if span is None or len(span.lower) != 1 or len(span.upper) != 1:
        return Lin()
    (c, low), (d, high) = span.lower[0], span.upper[0]
    return low + high if c == d == 1 else Lin()


@primitive
def shift(s: Schedule, axis: str | Axis, by: object) -> Draft:
    """One loop counted from elsewhere: its values grow by a number.

    Needs nothing: the order stays. Two loops that meet when shifted can be merged. Others call it
    `shift` (URUK), loop alignment, retiming.

    Parameters
    ----------
    axis : str or Axis
        The loop.
    by : int or expression or str
        What is added, affine in sizes and loops around; may be negative.

    Raises
    ------
    ScheduleError
        `by` depends on a loop that is not around.
    UnsupportedError
        `by` is not affine.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8,), name="A")
    >>> B = tir.compute((8,), lambda i: A[i] * 2.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..8
      B[i] = A[i] * 2.0
    >>> print(s.shift("i", 2).loops())
    for i in 2..10
      B[i - 2] = A[i - 2] * 2.0
    """
    what = "shift"
    loop = resolve.axis(s, axis, primitive=what)
    amount = bounds_text.parse(s, by, loop, what, "by")
    new, _ = _counted(s, loop, Lin({loop.axis: 1}) + amount, 1)
    require_marks(s, new, tree.stmts(loop), what)
    args = (resolve.reference(s.program, loop.axis), bounds_text.text(s, amount))
    return Draft(new, record=(args, {}), idle="by nothing" if amount == Lin() else "")


@primitive
def skew(s: Schedule, axis: str | Axis, by: str | Axis, factor: int = 1) -> Draft:
    """One loop counted from where a loop around it stands, times a factor.

    Needs nothing: the order stays. What runs at one value of the loop then lies aslant, so that a
    `reorder` or `tile` that was refused may be allowed: a wavefront. Others call it `skew` (PLUTO,
    TIRAMISU), loop skewing.

    Parameters
    ----------
    axis : str or Axis
        The loop.
    by : str or Axis
        A loop around it.
    factor : int
        How often the outer axis is added; may be negative.

    Raises
    ------
    ScheduleError
        `by` is not a loop around `axis`, or the factor is 0.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 8), name="A")
    >>> B = tir.compute((4, 8), lambda i, j: A[i, j] * 2.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..4
      for j in 0..8
        B[i, j] = A[i, j] * 2.0
    >>> print(s.skew("j", by="i").loops())
    for i in 0..4
      for j in i..(i + 8)
        B[i, j - i] = A[i, j - i] * 2.0
    """
    what = "skew"
    loop = resolve.axis(s, axis, primitive=what)
    other = resolve.axis(s, by, primitive=what)
    times = bounds_text.whole(factor, what, "factor")
    if not times:
        resolve.fail(f"{what}: a factor of 0 adds nothing")
    names = [resolve.reference(s.program, x.axis) for x in (loop, other)]
    if other.axis is loop.axis or tree.find(other, loop.axis) is None:
        swapped = tree.find(loop, other.axis) is not None and other.axis is not loop.axis
        resolve.fail(
            f"{what}: {names[1]!r} is not a loop around {names[0]!r}",
            why=f"it is inside; say skew({names[1]!r}, by={names[0]!r})." if swapped else "",
        )
    new, _ = _counted(s, loop, Lin({loop.axis: 1, other.axis: times}), 1)
    require_marks(s, new, tree.stmts(loop), what)
    return Draft(new)


# -- the change
def _counted(s: Schedule, loop: Loop, value: Lin, sign: int) -> tuple[Program, Axis]:
    """The loop over another axis of the same name, which has `value`: the old one times `sign`
    plus what is known outside."""
    old, program = loop.axis, s.program
    rest = value.without(old)
    begins = old.lower
    if begins is None or not begins.is_const or not rest.is_const or sign < 0:
        lower = None
    else:
        lower = begins + rest
    new = Axis(old.name, lower, None, reduce=old.reduce)
    back = (Lin({new: 1}) - rest) * sign
    facts: tuple[Fact, ...] = (("eq", Lin({old: 1}) - back),)
    placements = substitute(program, old, (new,), back, facts, tree.stmts(loop))
    changed = tree.rewrite(program.tree, old, lambda x: replace(x, axis=new, step=s.next_number))
    buffers = follow(program.buffers, old, (new,))
    made = program.change(tree=recut(changed, old, new), placements=placements, buffers=buffers)
    return made, new
