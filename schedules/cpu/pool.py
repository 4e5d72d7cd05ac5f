"""Pooling: a few rows of windows at once, in vectors along what is contiguous.

Windows that reach over the border leave out what lies there; the first and the last rows, where
that happens, are loops of their own, so that those between need no masks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from schedules.cpu.conv_shape import extent
from schedules.cpu.steps import inside, joined, kept, lanes_last, under
from schedules.cpu.structure import attempt
from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Access, Statement
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names, reference
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

# Windows' elements that are written out for one tile; larger windows keep loops over them.
MOST = 120


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """`rows` rows of windows, or with channels last `rows` windows, are computed at once."""
    del target, itemsize
    return (Param("rows", (1, 2, 4), 2),)


@dataclass(frozen=True, slots=True)
class Pooling:
    """`out[n, c, y, x] = reduction over r of data[n, c, s*y + r, s*x + r]`.

    `cells` are the iterators of the result as it is stored, `places` those that windows move
    along, `whole` says that there is one window for each channel.
    """

    update: Statement
    data: Access
    cells: tuple[Axis, ...]
    places: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    channels_last: bool

    @property
    def whole(self) -> bool:
        return all(extent(a) == 1 for a in self.places)


@by_hand
def pool(
    s: Schedule, target: str | Target | None = None, *, parallel: bool = True, **given: int
) -> Schedule:
    """Schedule a reduction over windows, or over all places of each channel.

    Raises
    ------
    ArgumentError
        If `s` is not one.

    Examples
    --------
    >>> import tensorir as tir
    >>> from tensorir import ops
    >>> x = tir.placeholder((1, 8, 14, 14), name="x")
    >>> s = pool(tir.schedule(ops.max_pool(x, 2)), "x86-64-v3")
    >>> [step.primitive for step in s.trace.steps][-1]
    'parallel'
    """
    found = pooling_of(s)
    if found is None:
        raise ArgumentError("pool: expected a reduction over windows")
    where = cpu.target("native" if target is None else target)
    written = found.update.writes[0].array.dtype
    lanes = min(where.lanes(written), where.lanes(found.data.array.dtype))
    p = resolve_params(params(where, written.bytes), given)
    loops = [
        reference(s.program, s.program.placements[found.update.name].roots[a]) for a in found.cells
    ]
    if found.channels_last:
        s, outer = _along_channels(s, found, loops, lanes, p["rows"])
    elif found.whole:
        s, outer = _whole(s, found, loops, lanes)
    else:
        s, outer = _along_rows(s, found, loops, lanes, p["rows"])
    if not parallel:
        return s
    s, first = joined(s, outer)
    return attempt(s, "parallel", first)


def _along_rows(
    s: Schedule, d: Pooling, loops: list[str], lanes: int, rows: int
) -> tuple[Schedule, list[str]]:
    """Vectors along a row of windows, and the loops that are left to be shared out."""
    row = extent(d.places[-1])
    high = extent(d.places[-2]) if len(d.places) > 1 else 1
    rows, vectors = min(rows, high), -(-row // lanes)
    xo, xi = free_names(s, "xo", "xi")
    s = s.split(loops[-1], lanes, into=(xo, xi))
    tile, around, yo = [xi], [*loops[:-1], xo], ""
    if high > 1:
        yo, yi = free_names(s, "yo", "yi")
        s = s.split(loops[-2], rows, into=(yo, yi))
        tile, around = [yi, xi], [*loops[:-2], yo, xo]
    s = _in_registers(s.reorder(*around, *tile), d, xo, lanes)
    elements = math.prod(extent(a) for a in d.reduce)
    for name in under(s, xo):
        for a in inside(s, name, xo)[:-1]:
            if elements * rows <= MOST or not a.reduce:
                s = attempt(s, "unroll", reference(s.program, a))
    if elements and elements * rows * vectors <= MOST:
        s = attempt(s, "unroll", xo) if vectors > 1 else s
        guarded = len(d.update.domain[0]) > 2 * len(d.update.iters)
        if yo and guarded and -(-high // rows) > 2:
            s = attempt(s, "peel", yo, first=1, last=1)
    return s, loops[: len(loops) - len(d.places)]


def _along_channels(
    s: Schedule, d: Pooling, loops: list[str], lanes: int, rows: int
) -> tuple[Schedule, list[str]]:
    """Vectors of channels, for a few windows beside each other."""
    co, ci = free_names(s, "co", "ci")
    width = lanes if not d.whole else min(4, max(extent(d.cells[-1]) // lanes, 1)) * lanes
    s = s.split(loops[-1], width, into=(co, ci))
    tile, around = [ci], [*loops[:-1], co]
    if not d.whole:
        xo, xi = free_names(s, "xo", "xi")
        s = s.split(loops[-2], rows, into=(xo, xi))
        tile, around = [xi, ci], [*loops[:-2], xo, co]
    s = _in_registers(s.reorder(*around, *tile), d, co, lanes)
    for name in under(s, co):
        for a in [a for a in inside(s, name, co)[:-1] if not a.reduce]:
            s = attempt(s, "unroll", reference(s.program, a))
    return s, loops[:-2] if not d.whole else [*loops[:-1], co]


def _whole(s: Schedule, d: Pooling, loops: list[str], lanes: int) -> tuple[Schedule, list[str]]:
    """A channel's places, which lie side by side, in lanes of partial results."""
    place = s.program.placements[d.update.name]
    s, along = joined(s, [reference(s.program, place.roots[a]) for a in d.reduce])
    return attempt(s, "vector_reduce", along, lanes), loops[: len(loops) - len(d.places)]


def _in_registers(s: Schedule, d: Pooling, at: str, lanes: int) -> Schedule:
    """The tile in registers, the windows' elements around it, vectors along its last loop."""
    found = inside(s, d.update.name, at)
    order = [*(a for a in found if a.reduce), *(a for a in found if not a.reduce)]
    s = s.reorder(*(reference(s.program, a) for a in order))
    s = kept(s, d.update.stage, d.update.writes[0].array.name, at, tail=False)
    return lanes_last(s, at, lanes)


def pooling_of(s: Schedule) -> Pooling | None:
    """The pooling that a fresh schedule holds, or None."""
    if s.step is not None or len({x.stage for x in s.program.statements}) != 1:
        return None
    updates = [x for x in s.program.statements if x.role == "update"]
    if len(updates) != 1 or len(updates[0].domain) != 1 or len(updates[0].writes) != 1:
        return None
    u = updates[0]
    reads = [r for r in u.reads if r.array is not u.writes[0].array]
    if len(reads) != 1 or not reads[0].exact or reads[0].guard != ((),):
        return None
    data, out = reads[0], u.writes[0]
    cells = tuple(u.iters[: len(out.index)])
    reduce = tuple(u.iters[len(cells) :])
    if not cells or not reduce or out.index != tuple(Lin({a: 1}) for a in cells):
        return None
    if len(data.index) != len(cells) or any(_floors(e) for e in data.affine):
        return None
    moved = [e != Lin({a: 1}) for a, e in zip(cells, data.affine, strict=True)]
    places = tuple(a for a, m in zip(cells, moved, strict=True) if m)
    last = len(cells) > 1 and not moved[-1] and moved[-2]
    if not places or not extent(cells[-1]) or any(not extent(a) for a in (*places, *reduce)):
        return None
    first = moved.index(True)
    if first == 0 or cells[first : first + len(places)] != places:
        return None
    if not last and places[-1] is not cells[-1]:
        return None
    if not last and all(extent(a) == 1 for a in places) and not _side_by_side(data, reduce):
        return None
    return Pooling(u, data, cells, places, reduce, last)


def _floors(e: Lin) -> bool:
    return any(isinstance(a, tuple) for a in e.terms)


def _side_by_side(data: Access, reduce: tuple[Axis, ...]) -> bool:
    """Whether the sum runs over whole rows, so that its elements are neighbours."""
    inner = data.affine[len(data.index) - len(reduce) :]
    shape = data.array.shape[len(data.index) - len(reduce) :]
    return all(
        e == Lin({a: 1}) and n == Lin({}, extent(a))
        for e, a, n in zip(inner, reduce, shape, strict=True)
    )


@register("pool", lambda s: pooling_of(s) is not None)
def _pool_for(s: Schedule, target: Target) -> Schedule:
    return pool(s, target)
