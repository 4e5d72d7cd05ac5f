"""What statements look like, and steps that several schedules share."""

from __future__ import annotations

from math import prod
from typing import Any

from tensorir.codegen.maths import COSTLY
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Expr, Op
from tensorir.ir.statement import Access, Array, Statement
from tensorir.ir.target import Target
from tensorir.poly import tree
from tensorir.poly.model import Program
from tensorir.schedule.resolve import reference
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError, IllegalSchedule, UnsupportedError

# -- questions


def plain(x: Statement) -> bool:
    """Whether a statement runs on a whole box, with indices known ahead of time."""
    return len(x.domain) == 1 and all(a.exact for a in (*x.reads, *x.writes))


def shared_rows(x: Statement, r: Access) -> int:
    """How many leading indices of a read are the first iterators of its statement."""
    for d, e in enumerate(r.affine):
        if d >= len(x.iters) or e != Lin({x.iters[d]: 1}):
            return d
    return len(r.index)


def neighbours(x: Statement, axis: Axis) -> bool:
    """Whether every access that moves with an axis walks through neighbours in memory."""
    for a in (*x.reads, *x.writes):
        *outer, last = a.affine or (Lin(),)
        if any(e.involves(axis) for e in outer) or (last.involves(axis) and last.coef(axis) != 1):
            return False
    return True


def along_rows(x: Statement, depth: int) -> bool:
    """Whether the last iterator of a statement, within its row, is one for lanes."""
    axis = x.iters[-1]
    if axis.reduce != (x.role == "update") or not neighbours(x, axis):
        return False
    return len(x.iters) > depth and any(a.affine and a.affine[-1].involves(axis) for a in x.reads)


def one_cell(array: Array, depth: int) -> bool:
    """Whether a temporary array has one cell for each row."""
    return all(e.is_const and e.const == 1 for e in array.shape[depth:])


def extent(a: Axis) -> int | None:
    """The extent of a declared axis where it is constant."""
    if a.lower is None or a.upper is None:
        return None
    n = a.upper - a.lower
    return max(n.const, 0) if n.is_const else None


def points(x: Statement, first: int = 0) -> int | None:
    """Points of the iterators of a statement from the `first` on, where that is constant."""
    total = 1
    for a in x.iters[first:]:
        n = extent(a)
        if n is None:
            return None
        total *= n
    return total


def worth(statements: tuple[Statement, ...], least: int) -> bool:
    """Whether there is enough to do for threads, or that is not known."""
    counts = [points(x) for x in statements]
    return any(n is None for n in counts) or sum(n or 0 for n in counts) >= least


def weight(x: Statement) -> int:
    """About how many instructions an instance takes."""
    return sum(_weight(b) for b in x.bodies)


def _weight(e: Expr) -> int:
    if not isinstance(e, Op):
        return 0
    return (20 if e.name in COSTLY else 1) + sum(map(_weight, e.args))


def lanes(target: Target, x: Statement) -> int:
    """Lanes of the widest element that a statement touches."""
    return min(target.lanes(a.array.dtype) for a in (*x.writes, *x.reads))


def main(program: Program, stage: str) -> Statement:
    """The statement that computes most of a stage: its update, or the plain one."""
    mine = [x for x in program.statements if x.stage == stage]
    return next((x for x in mine if x.role in ("update", "compute")), mine[-1])


# -- steps


def attempt(s: Schedule, primitive: str, *args: Any, **kwargs: Any) -> Schedule:
    """The schedule after a step, or as it is where the step is refused."""
    try:
        after: Schedule = getattr(s, primitive)(*args, **kwargs)
    except (ArgumentError, IllegalSchedule, UnsupportedError):
        return s
    return after


def axis_name(s: Schedule, x: Statement, k: int) -> str:
    """How to call the loop around a statement that runs over its iterator `k`."""
    place = s.program.placements[x.name]
    (axis,) = place.index[x.iters[k]].atoms()
    assert isinstance(axis, Axis)
    return reference(s.program, axis)


def flat(s: Schedule, x: Statement, first: int) -> tuple[Schedule, int]:
    """The last loops of a statement in one: as many, from its iterator `first` on, as every array
    is walked through in order or not at all. Also gives the first iterator of that loop."""
    last = len(x.iters) - 1
    if len(loops_of(s, x)) <= last:
        return s, last  # dimensions of one element have no loop
    found = next((k for k in range(first, last) if _in_order(x, k)), last)
    made = s
    for _ in range(found, last):
        *_, outer, inner = loops_of(made, x)
        after = attempt(made, "fuse", outer, inner)
        if after is made:
            return s, last
        made = after
    return made, found


def _in_order(x: Statement, first: int) -> bool:
    """Whether each access uses the iterators from the `first` on as its last indices, all of them
    over whole dimensions, or none."""
    group = x.iters[first:]
    if any(i.lower != Lin() for i in group):
        return False
    last, shape = tuple(Lin({i: 1}) for i in group), tuple(i.upper for i in group)
    for a in (*x.reads, *x.writes):
        used = [any(e.involves(i) for i in group) for e in a.affine]
        n = len(group)
        whole = a.affine[-n:] == last and a.array.shape[-n:] == shape and not any(used[:-n])
        if any(used) and not whole:
            return False
    return True


def reduce_in_lanes(s: Schedule, x: Statement, width: int, accumulators: int) -> Schedule:
    """The last reduction of a statement in vectors, as many as its extent can fill."""
    n = extent(x.iters[-1])
    if n is not None and n < width:
        return s
    while n is not None and accumulators > 1 and accumulators * width > n:
        accumulators //= 2
    *_, name = loops_of(s, x)
    return attempt(s, "vector_reduce", name, width, accumulators)


def in_vectors(s: Schedule, x: Statement, depth: int, width: int, unroll: int) -> Schedule:
    """The last loops of a statement, inside its row, in vectors, `unroll` of them at a time."""
    if len(loops_of(s, x)) <= depth:
        return s  # one element
    s, first = flat(s, x, depth)
    *_, name = loops_of(s, x)
    return vectors_of(s, name, points(x, first), width, unroll)


def vectors_of(s: Schedule, name: str, n: int | None, width: int, unroll: int) -> Schedule:
    """A loop of `n` points, if that is known, in vectors, `unroll` of them at a time."""
    if n is not None and n < width:
        return s
    made = attempt(s, "vectorize", name, width=width)
    if made is not s and unroll > 1 and (n is None or n >= 2 * unroll * width):
        made = made.unroll(name, unroll)
    return made


def stream(s: Schedule, array: Array, target: Target) -> Schedule:
    """A result past the caches where it exceeds half of the last one."""
    above = target.l3 // 2
    known = [e.const for e in array.shape if e.is_const]
    if len(known) < len(array.shape):
        return attempt(s, "non_temporal", array.name, above=above)
    size = array.dtype.bytes * prod(known)
    return s if size <= above else attempt(s, "non_temporal", array.name)


def loops_of(s: Schedule, x: Statement) -> list[str]:
    """How to call the loops around a statement, outer to inner."""
    return [reference(s.program, a) for a in tree.axes_of(s.program.tree, x.name)]
