"""Tiles that are transposed in registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, May
from tensorir.poly import ranges, tree
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop
from tensorir.schedule import resolve
from tensorir.schedule.parallel_ops import unroll, vectorize
from tensorir.schedule.primitive import primitive

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["transpose_lanes"]

VECTOR_BYTES = 64


@primitive
def transpose_lanes(
    s: Schedule, i: str | Axis, j: str | Axis, width: int | None = None
) -> Schedule:
    """A tile of two loops read in vectors along one, written in vectors along the other.

    Needs constant extents, reads that are neighbours along one of the loops, and writes that are
    along the other. Vectors are transposed by shuffles in between; no gather or scatter is left,
    in partial tiles neither. Recorded as the `vectorize` and `unroll` that it is. Others
    write the shuffles by hand.

    Parameters
    ----------
    i, j : str or Axis
        Two loops, one directly inside the other.
    width : int
        The lanes of a vector, a power of two; by default 64 bytes of the widest element, or fewer
        where the tile is smaller.

    Raises
    ------
    ScheduleError
        An extent is not constant, or some access would gather or scatter.
    IllegalSchedule
        Lanes would race, as `vectorize`.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((32, 64), name="A")
    >>> B = tir.compute((64, 32), lambda i, j: A[j, i], name="B")
    >>> s = tir.schedule(B).tile("i", "j", 16, 16)
    >>> print(s.loops())
    for io in 0..4
      for jo in 0..2
        for ii in 0..16
          for ji in 0..16
            B[16*io + ii, 16*jo + ji] = A[16*jo + ji, 16*io + ii]
    >>> print(s.transpose_lanes("ii", "ji").loops())
    for io in 0..4
      for jo in 0..2
        for ii in 0..16  # vectorize 16
          for ji in 0..16  # unroll
            B[16*io + ii, 16*jo + ji] = A[16*jo + ji, 16*io + ii]
    """
    what = "transpose_lanes"
    loops = (resolve.axis(s, i, primitive=what), resolve.axis(s, j, primitive=what))
    outer = _nested(s, *loops)
    extents = {x.axis: _extent(s, x) for x in loops}
    lanes, rows = loops
    wrong = _wrong(s.program, outer, lanes, rows)
    if wrong is not None:
        lanes, rows = rows, lanes
        other = _wrong(s.program, outer, lanes, rows)
        if other is not None:
            # that whose writes would do tells more
            worst = other if other.reads else wrong
            resolve.fail(f"{what}: {worst.what}", why=worst.why)
    size = _width(s, width, outer, extents[lanes.axis], extents[rows.axis])
    names = [resolve.reference(s.program, x.axis) for x in (lanes, rows)]
    s = vectorize(s, names[0], size)
    block = tree.find(s.program.tree, lanes.axis) or resolve.axis(s, names[0], primitive=what)
    if block.kind == "serial":
        s = unroll(s, names[0])
    return unroll(s, names[1])


def _nested(s: Schedule, a: Loop, b: Loop) -> Loop:
    """The outer of two loops, one directly inside the other."""
    for out, inn in ((a, b), (b, a)):
        if out.body is inn:
            return out
    names = [resolve.reference(s.program, x.axis) for x in (a, b)]
    if a is b:
        resolve.fail(f"transpose_lanes: {names[0]!r} is given twice")
    resolve.fail(
        f"transpose_lanes: {names[0]!r} and {names[1]!r} are not directly nested",
        why="the tile is one loop inside the other, with nothing between or beside.",
    )


def _extent(s: Schedule, x: Loop) -> int:
    found = ranges.constant_extent(s.program, x.axis)
    name = resolve.reference(s.program, x.axis)
    if found is None:
        resolve.fail(
            f"transpose_lanes: the extent of {name!r} is not a constant",
            why="a tile in registers has one size; split the loop first.",
        )
    if found < 2:
        resolve.fail(
            f"transpose_lanes: {name!r} has {found} point{'' if found == 1 else 's'}",
            why="a tile of one row needs no transpose; vectorize alone serves it.",
        )
    return found


class _Wrong(NamedTuple):
    """Why lanes along one loop do not do; `reads` where the write would."""

    what: str
    why: str
    reads: bool


def _wrong(program: Program, outer: Loop, lanes: Loop, rows: Loop) -> _Wrong | None:
    """What keeps `lanes` from being the lanes of reads, and `rows` those of writes."""
    a, b = lanes.axis.name, rows.axis.name
    for n in tree.stmts(outer):
        p = program.placements[n]
        env: dict[Axis | Var, Lin] = dict(p.index.items())
        for w in p.stmt.writes:
            last = _last(program, w, env)
            if last is None or not _neighbours(last, rows.axis) or last.involves(lanes.axis):
                why = f"neighbours along {b!r} must be neighbours in {w.array.name}."
                return _Wrong(f"{n} would be scattered to {w.array.name}", why, False)
        for r in p.stmt.reads:
            if not _uses(r, env, lanes.axis):
                continue
            last = _last(program, r, env)
            if not _neighbours(last, lanes.axis) or not _only_last(r, env, lanes.axis):
                why = f"{n} writes along {b!r}, so what it reads must be neighbours along {a!r}."
                return _Wrong(f"{n} would gather from {r.array.name}", why, True)
    return None


def _uses(access: Access, env: Mapping[Axis | Var, Lin], axis: Axis) -> bool:
    return any(isinstance(x, May) or x.subst(env).involves(axis) for x in access.index)


def _only_last(access: Access, env: Mapping[Axis | Var, Lin], axis: Axis) -> bool:
    """Whether one index alone moves along an axis."""
    return sum(isinstance(x, May) or x.subst(env).involves(axis) for x in access.index) == 1


def _last(program: Program, access: Access, env: Mapping[Axis | Var, Lin]) -> Lin | None:
    """The index of the innermost dimension of storage; None where it is no affine form."""
    if not access.index:
        return None
    buffer = program.buffers.get(access.array)
    dim = len(access.index) - 1
    if buffer is not None and buffer.layout is not None:
        dim = buffer.layout[-1][0]
        if buffer.layout[-1][1] == "//":
            return None
    index = access.index[dim]
    if isinstance(index, May):
        return None
    return index.subst(env)


def _neighbours(last: Lin | None, axis: Axis) -> bool:
    """Whether a step of an axis is a step to the next element."""
    if last is None or last.coef(axis) != 1:
        return False
    return not last.without(axis).involves(axis)


def _width(s: Schedule, asked: int | None, outer: Loop, lanes: int, rows: int) -> int:
    """The lanes of a vector: at most what the tile has, and never one row left over."""
    what = "transpose_lanes"
    if asked is None:
        arrays = [
            x.array
            for n in tree.stmts(outer)
            for x in (*s.program.stmt(n).writes, *s.program.stmt(n).reads)
        ]
        size = VECTOR_BYTES // max(a.dtype.bytes for a in arrays)
        while size > 2 and (size >= 2 * lanes or size >= 2 * rows):
            size //= 2
    else:
        size = resolve.positive(asked, "width", primitive=what)
    if size < 2 or size & (size - 1):
        resolve.fail(f"{what}: width is a power of two of at least 2, not {size}")
    if rows % size == 1:
        resolve.fail(
            f"{what}: {rows} rows are whole squares of {size} and one row",
            why="a row alone would be scattered; choose another width, or another tile.",
        )
    return size
