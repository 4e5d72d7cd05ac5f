"""Depthwise convolution: each channel by itself, a few rows at once, the border in masks.

Nothing is copied: the padding is part of the loads, masked where a window reaches out of the
image. Rows in the middle need no masks, so the first and the last few are loops of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from schedules.cpu.conv_shape import around_of, extent, in_place, is_box, product_of
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

# Vectors of a row that are written out; longer rows are a loop.
WRITTEN = 4
# Places that are computed at once where lanes are channels.
PLACES = 4
# Products that are written out for one tile; larger windows keep loops over their elements.
MOST = 160


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """`rows` rows of the result are computed at once, from registers: their windows overlap.

    0 lets the shape decide: fewer where windows overlap less, and where a row is long.
    """
    del target, itemsize
    return (Param("rows", (0, 1, 2, 4, 6), 0),)


@dataclass(frozen=True, slots=True)
class Depthwise:
    """`out[n, c, y, x] = sum over r of data[n, c, s*y + r] * weight[c, r]`."""

    update: Statement
    padding: str | None
    tail: str | None
    inlined: tuple[str, ...]
    data: Access
    weight: Access
    places: tuple[Axis, ...]
    channels: Axis
    reduce: tuple[Axis, ...]
    channels_last: bool

    def loops(self, s: Schedule) -> list[str]:
        """The loops over the cells of the stage that is stored, as declared."""
        place = s.program.placements[self.tail or self.update.name]
        iters = s.program.stmt(self.tail or self.update.name).iters
        count = len(self.update.iters) - len(self.reduce)
        return [reference(s.program, place.roots[a]) for a in iters[:count]]

    @property
    def stride(self) -> int:
        """How far neighbours of the result are apart in the input."""
        x = self.places[-1]
        return max((abs(e.coef(x)) for e in self.data.affine), default=1)


@by_hand
def depthwise(
    s: Schedule, target: str | Target | None = None, *, parallel: bool = True, **given: int
) -> Schedule:
    """Schedule a depthwise convolution, with its padding and what follows it.

    Raises
    ------
    ArgumentError
        If `s` is not such a convolution.

    Examples
    --------
    >>> import tensorir as tir
    >>> from tensorir import ops
    >>> x, w = tir.placeholder((1, 8, 14, 14), name="x"), tir.placeholder((8, 1, 3, 3), name="w")
    >>> s = depthwise(tir.schedule(ops.depthwise_conv2d(x, w, padding=1)), "x86-64-v3")
    >>> "compute_inline" in [step.primitive for step in s.trace.steps]
    True
    """
    found = depthwise_of(s)
    if found is None:
        raise ArgumentError("depthwise: expected a depthwise convolution and its padding")
    where = cpu.target("native" if target is None else target)
    written = found.update.writes[0].array.dtype
    lanes = where.lanes(written)
    p = resolve_params(params(where, written.bytes), given)
    if found.padding is not None:
        s = s.compute_inline(found.padding)
    for stage in found.inlined:
        s = s.compute_inline(stage)
    if found.channels_last:
        return _along_channels(s, found, lanes, parallel=parallel)
    return _along_rows(s, found, lanes, p["rows"], parallel=parallel)


def _along_rows(s: Schedule, d: Depthwise, lanes: int, rows: int, *, parallel: bool) -> Schedule:
    row = extent(d.places[-1])
    high = extent(d.places[-2]) if len(d.places) > 1 else 1
    vectors = -(-row // lanes)
    if not rows:
        rows = 4 if vectors <= WRITTEN and d.stride == 1 else 2
    rows = min(rows, max(high, 1))
    outer = d.loops(s)
    xo, xi = free_names(s, "xo", "xi")
    s = s.split(outer[-1], lanes, into=(xo, xi))
    tile, around, yo = [xi], [*outer[:-1], xo], ""
    if high > 1:
        yo, yi = free_names(s, "yo", "yi")
        s = s.split(outer[-2], rows, into=(yo, yi))
        tile, around = [yi, xi], [*outer[:-2], yo, xo]
    s = _in_registers(s.reorder(*around, *tile), d, xo, lanes)
    count = math.prod(extent(a) for a in d.reduce)
    written = count * rows <= MOST
    for name in under(s, xo):
        for a in inside(s, name, xo)[:-1]:
            if written or not a.reduce:
                s = attempt(s, "unroll", reference(s.program, a))
    if count * rows * vectors <= MOST:
        s = attempt(s, "unroll", xo) if vectors > 1 else s
        s = _border(s, yo, -(-high // rows)) if yo and d.padding is not None else s
    elif d.padding is not None and written:
        s = _border(s, xo, vectors)
    if not parallel:
        return s
    s, first = joined(s, outer[: len(outer) - len(d.places)])
    return attempt(s, "parallel", first)


def _along_channels(s: Schedule, d: Depthwise, lanes: int, *, parallel: bool) -> Schedule:
    """Neighbours in memory are channels: vectors of them, a few places at once."""
    outer = d.loops(s)
    row, high = extent(d.places[-1]), extent(d.places[-2]) if len(d.places) > 1 else 1
    co, ci, xo, xi = free_names(s, "co", "ci", "xo", "xi")
    s = s.split(outer[-1], lanes, into=(co, ci)).split(outer[-2], PLACES, into=(xo, xi))
    s = _in_registers(s.reorder(*outer[:-2], co, xo, xi, ci), d, xo, lanes)
    written = math.prod(extent(a) for a in d.reduce) * PLACES <= MOST
    for name in under(s, xo):
        for a in inside(s, name, xo)[:-1]:
            if written or not a.reduce:
                s = attempt(s, "unroll", reference(s.program, a))
    if written and d.padding is not None:
        s = _border(s, xo, -(-row // PLACES))
        s = _border(s, outer[-3], high) if len(d.places) > 1 else s
    if not parallel:
        return s
    s, first = joined(s, outer[: len(outer) - 1 - len(d.places)])
    return attempt(s, "parallel", first)


def _border(s: Schedule, loop: str, count: int) -> Schedule:
    """The first and the last iteration, where windows reach out, as loops of their own."""
    if count < 2:
        return s
    ends = {"first": 1, "last": 1} if count > 2 else {"first": 1}
    return attempt(s, "peel", loop, **ends)


def _in_registers(s: Schedule, d: Depthwise, at: str, lanes: int) -> Schedule:
    """The tile in registers, the sum around it, vectors along its last loop."""
    u = d.update
    s = kept(s, u.stage, u.writes[0].array.name, at, tail=True) if d.tail else s
    found = inside(s, u.name, at)
    order = [*(a for a in found if a.reduce), *(a for a in found if not a.reduce)]
    s = s.reorder(*(reference(s.program, a) for a in order))
    s = s if d.tail else kept(s, u.stage, u.writes[0].array.name, at, tail=False)
    return lanes_last(s, at, lanes)


def depthwise_of(s: Schedule) -> Depthwise | None:
    """The depthwise convolution that a fresh schedule holds, or None."""
    if s.step is not None:
        return None
    updates = [x for x in s.program.statements if x.role == "update"]
    if len(updates) != 1:
        return None
    u = updates[0]
    around, product = around_of(s, u), product_of(u)
    if around is None or product is None or not is_box(u) or len(u.writes) != 1:
        return None
    padding, _, tail, inlined = around
    data, weight = product
    out = u.writes[0]
    cells = [a for a in u.iters if any(e == Lin({a: 1}) for e in out.affine)]
    reduce = tuple(a for a in u.iters if not any(a is b for b in cells))
    known = [a for e in weight.affine for a in e.atoms() if isinstance(a, Axis)]
    channels = [a for a in cells if any(a is b for b in known)]
    if tail is not None and not _follows(s.program.stmt(tail)):
        return None
    if len(cells) != len(out.index) or len(channels) != 1 or not reduce:
        return None
    c = channels[0]
    if not any(e == Lin({c: 1}) for e in data.affine) or u.iters[: len(cells)] != tuple(cells):
        return None
    k = next(i for i, a in enumerate(cells) if a is c)
    last = k == len(cells) - 1
    places = tuple(cells[1:k] if last else cells[k + 1 :])
    if not places or any(not extent(a) for a in (*places, *reduce, c)):
        return None
    return Depthwise(u, padding, tail, inlined, data, weight, places, c, reduce, last)


def _follows(tail: Statement) -> bool:
    """Whether a stage after the sum reads it where it writes."""
    reads = [r for r in tail.reads if r.array.role == "temp"]
    return all(in_place(r, tail.iters) for r in (*reads, *tail.writes))


@register("depthwise", lambda s: depthwise_of(s) is not None)
def _depthwise_for(s: Schedule, target: Target) -> Schedule:
    return depthwise(s, target)
