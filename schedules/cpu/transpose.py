"""Copies whose last axis changes: read along one, transposed in registers, written along another.

Tiles are squares of as many vectors as lanes. A block is several tiles high, so that what is read
of one row is more than a cache line; lines of the result are written whole, past the caches where
it is larger than they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

LINE = 64  # bytes
CLASH = 1024  # bytes: rows that are multiples of it apart share sets of the first cache
FEW = 4  # up to this stride, vectors are loaded and thinned out instead
WORK = 200_000  # below so many elements a second thread costs more than it does


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The parameters of :func:`transpose` for a target.

    Vectors have `lanes` elements, a tile writes `rows` of each row of the result, which is a cache
    line if the registers hold that much, and a block is `block` tiles high.
    """
    lanes = max(2, min(target.vector_bytes // itemsize, 16))
    rows = max(lanes, min(LINE // itemsize, target.vector_registers // lanes * lanes))
    tall = {1: 4, 2: 8}.get(itemsize, 6) if target.vector_bytes >= LINE else 16
    return (
        Param("lanes", tuple(n for n in (2, 4, 8, 16) if n <= lanes), lanes),
        Param("rows", tuple(n for n in (2, 4, 8, 16, 32, 64) if n <= rows), rows),
        Param("block", (1, 2, 4, 6, 8, 16), tall),
        Param("stream", (0, 1), 1),
    )


@by_hand
def transpose(
    s: Schedule, target: str | Target | None = None, *, parallel: bool = True, **given: int
) -> Schedule:
    """Schedule `B[i, j] = A[j, i]`, with any other axes, in any order.

    What is computed from the elements on the way may be any expression.

    Parameters
    ----------
    s
        The schedule of the one stage, as declared.
    target
        The processor; this one by default.
    parallel
        Whether the outermost loop runs on all threads.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is no such copy.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((64, 32), name="A")
    >>> B = tir.compute((32, 64), lambda i, j: A[j, i], name="B")
    >>> s = transpose(tir.schedule(B), "x86-64-v3")
    >>> print(s.loops())
    for io in 0..1
      for jo in 0..4
        for ib in 0..4
          for il in 0..8  # vectorize 8
            for jr in 0..16  # unroll
              B[128*io + 8*ib + il, 16*jo + jr] = A[16*jo + jr, 128*io + 8*ib + il]
    """
    turn = turn_of(s)
    if turn is None:
        raise ArgumentError("transpose: expected one stage that is read along another axis")
    where = cpu.target("native" if target is None else target)
    stmt, size = turn.stmt, turn.stmt.writes[0].array.dtype.bytes
    p = resolve_params(params(where, size), given)
    extents = {a: _extent(stmt, a) for a in stmt.iters}
    plane = _product([extents[turn.along], extents[turn.across]])
    stream = bool(p["stream"]) and plane is not None and plane * size > where.l2
    stream = stream and (_product(list(extents.values())) or 0) * size > where.l3 // 2
    whole = all(n is not None and n % (2 * LINE // size) == 0 for n in (
        extents[turn.along], extents[turn.across]))  # fmt: skip
    if stream and whole and p["lanes"] * size == LINE and not {"rows", "block"} & set(given):
        p["rows"], p["block"] = 2 * p["rows"], 12  # two lines of each row: more of a page at once
    # the nest is written once more for each way in which rows may begin
    stream = stream and (whole or size >= 4)
    if not stream and "block" not in given and _clashes(turn, extents, size):
        p["block"] = max(1, LINE // (p["lanes"] * size))
    lanes, rows = _tile(p["lanes"], p["rows"], extents[turn.along], extents[turn.across])
    a, b = turn.along.name, turn.across.name
    # blocks outside, tiles in them, and the vectors and rows of a tile
    ao, ab, al, bo, br = free_names(s, f"{a}o", f"{a}b", f"{a}l", f"{b}o", f"{b}r")
    s = s.split(a, lanes * p["block"], into=(ao, ab)).split(ab, lanes, into=(ab, al))
    s = s.split(b, rows, into=(bo, br))
    rest = [x.name for x in stmt.iters if x is not turn.along and x is not turn.across]
    s = s.reorder(*rest, ao, bo, ab, al, br)
    s = s.transpose_lanes(al, br, width=lanes)
    if stream:
        s = s.non_temporal(stmt.stage)
    cells = _product(list(extents.values()))
    if parallel and (cells is None or cells >= WORK):
        outer = [x.name for x in stmt.iters if x.name in rest and extents[x] != 1]
        s = s.parallel(outer[0] if outer else ao)
    return s


@dataclass(frozen=True, slots=True)
class Turn:
    """A copy that is read `along` one axis and written along another, `across` it."""

    stmt: Statement
    along: Axis
    across: Axis


def turn_of(s: Schedule) -> Turn | None:
    """What the one stage of a fresh schedule turns, or None."""
    stmts = s.program.statements
    if len(stmts) != 1 or s.step is not None or len(stmts[0].writes) != 1:
        return None
    stmt = stmts[0]
    if stmt.role != "compute" or len(stmt.iters) < 2 or len(stmt.domain) != 1:
        return None
    if stmt.writes[0].index != tuple(Lin({a: 1}) for a in stmt.iters):
        return None
    across = stmt.iters[-1]
    read_along = (_last(stmt, k) for k in range(len(stmt.reads)))
    along = next((a for a in read_along if a is not None), None)
    if along is None or along is across or not all(_neighbours(stmt, along)):
        return None
    few, one = _extent(stmt, along), _extent(stmt, across)
    return None if one in (0, 1) or (few is not None and few <= FEW) else Turn(stmt, along, across)


def _last(stmt: Statement, slot: int) -> Axis | None:
    """The axis along which a read moves to the next element, where it is not the last one."""
    read = stmt.reads[slot]
    index = read.index[-1] if read.index and read.exact else None
    if not isinstance(index, Lin):
        return None
    return next((a for a in stmt.iters[:-1] if index.coef(a) == 1), None)


def _neighbours(stmt: Statement, along: Axis) -> list[bool]:
    """For each read: whether lanes along an axis are neighbours in it, or the same element."""
    out = []
    for r in stmt.reads:
        used = [i for i in r.index if not isinstance(i, Lin) or i.involves(along)]
        last = r.index[-1] if r.index else None
        plain = isinstance(last, Lin) and last.coef(along) == 1
        alone = plain and not last.without(along).involves(along)  # type: ignore[union-attr]
        out.append(r.exact and (not used or (len(used) == 1 and used[0] is last and alone)))
    return out


def _extent(stmt: Statement, a: Axis) -> int | None:
    return a.upper.const if a.upper is not None and a.upper.is_const else None


def _clashes(turn: Turn, extents: dict[Axis, int | None], size: int) -> bool:
    """Whether the rows of a block of the result fall into a few sets of the first cache."""
    inside = turn.stmt.iters[[x is turn.along for x in turn.stmt.iters].index(True) + 1 :]
    pitch = _product([extents[x] for x in inside])
    return pitch is not None and pitch * size % CLASH == 0


def _tile(lanes: int, rows: int, along: int | None, across: int | None) -> tuple[int, int]:
    """Lanes and rows of a tile: no more than there are, and rows in whole squares."""
    while along is not None and lanes > 2 and lanes >= 2 * along:
        lanes //= 2
    if across is not None:
        rows = min(rows, across)
        if across == lanes + 1:  # one row would be left over
            lanes, rows = 2 * lanes, across
    return lanes, rows if rows <= lanes else rows // lanes * lanes


def _product(extents: list[int | None]) -> int | None:
    total = 1
    for n in extents:
        if n is None:
            return None
        total *= n
    return total


@register("transpose", lambda s: turn_of(s) is not None)
def _transpose_for(s: Schedule, target: Target) -> Schedule:
    return transpose(s, target)
