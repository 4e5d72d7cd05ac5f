"""Depthwise convolution: each channel by itself, a few rows at once, the border in masks.

Nothing is copied: the padding is part of the loads, masked where a window reaches out of the
image. Rows in the middle need no masks, so the first and the last few are loops of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.conv_shape import extent, is_padding, product_of
from schedules.cpu.steps import attempt
from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import cpu
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Access, Statement
from tensorir.ir.target import Target
from tensorir.poly import tree
from tensorir.schedule.resolve import free_names, reference
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

# Vectors of a row that are written out; longer rows are a loop.
WRITTEN = 4
# Products that are written out for one tile; larger windows keep loops over their elements.
MOST = 160


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """`rows` rows of the result are computed at once, from registers: their windows overlap."""
    del itemsize
    most = 4 if target.vector_registers >= 32 else 2
    return (Param("rows", (1, 2, 4, 6), most),)


@dataclass(frozen=True, slots=True)
class Depthwise:
    """`out[n, c, y, x] = sum over r of data[n, c, s*y + r] * weight[c, r]`."""

    update: Statement
    padding: str | None
    data: Access
    weight: Access
    places: tuple[Axis, ...]
    channels: Axis
    reduce: tuple[Axis, ...]
    channels_last: bool


def depthwise(
    s: Schedule, target: str | Target | None = None, *, parallel: bool = True, **given: int
) -> Schedule:
    """Schedule a depthwise convolution, with its padding.

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
    if found.channels_last:
        return _along_channels(s, found, lanes, parallel=parallel)
    return _along_rows(s, found, lanes, p["rows"], parallel=parallel)


def _along_rows(
    s: Schedule, d: Depthwise, lanes: int, rows: int, *, parallel: bool
) -> Schedule:
    stage = d.update.stage
    place = s.program.placements[d.update.name]
    names = [reference(s.program, place.roots[a]) for a in d.update.iters]
    outer = names[: len(names) - len(d.reduce)]
    taps = names[len(outer) :]
    row = extent(d.places[-1])
    vectors = -(-row // lanes)
    xo, xi = free_names(s, "xo", "xi")
    s = s.split(outer[-1], lanes, into=(xo, xi))
    tile, around = [xi], [*outer[:-1], xo]
    high = extent(d.places[-2]) if len(d.places) > 1 else 1
    yo = ""
    if high > 1:
        yo, yi = free_names(s, "yo", "yi")
        s = s.split(outer[-2], min(rows, high), into=(yo, yi))
        tile, around = [yi, xi], [*outer[:-2], yo, xo]
    s = s.reorder(*around, *tile).reorder(*taps, *tile)
    count = 1
    for a in d.reduce:
        count *= extent(a)
    (acc,) = free_names(s, f"{stage}_tile")
    private = d.update.writes[0].array.role == "temp"
    s = s.cache_write(stage, "local", at=xo, **({} if private else {"name": acc}))
    for name in (n for n in tree.stmts(s.program.tree) if s.program.stmt(n).role != "init"):
        last = tree.axes_of(s.program.tree, name)
        lane = [a for a in last if not a.reduce][-1]
        s = attempt(s, "vectorize", reference(s.program, lane), width=lanes)
    for name in (*taps, *tile[:-1]):
        if name not in taps or count * min(rows, high) <= MOST:
            s = attempt(s, "unroll", name)
    if count * min(rows, high) * vectors <= MOST:
        s = attempt(s, "unroll", xo) if vectors > 1 else s
        if yo and d.padding is not None and -(-high // min(rows, high)) > 2:
            s = attempt(s, "peel", yo, first=1, last=1)
    elif d.padding is not None and vectors > 2:
        s = attempt(s, "peel", xo, first=1, last=1)
    return _threads(s, outer[: len(outer) - len(d.places)]) if parallel else s


def _along_channels(s: Schedule, d: Depthwise, lanes: int, *, parallel: bool) -> Schedule:
    """Neighbours in memory are channels: vectors of them, a few places at once."""
    stage = d.update.stage
    place = s.program.placements[d.update.name]
    names = [reference(s.program, place.roots[a]) for a in d.update.iters]
    outer = names[: len(names) - len(d.reduce)]
    taps = names[len(outer) :]
    channel, x = outer[-1], outer[-2]
    co, ci = free_names(s, "co", "ci")
    xo, xi = free_names(s, "xo", "xi")
    s = s.split(channel, lanes, into=(co, ci)).split(x, 4, into=(xo, xi))
    around = [*outer[:-2], xo, co]
    s = s.reorder(*around, xi, ci).reorder(*taps, xi, ci)
    (acc,) = free_names(s, f"{stage}_tile")
    private = d.update.writes[0].array.role == "temp"
    s = s.cache_write(stage, "local", at=co, **({} if private else {"name": acc}))
    for name in (n for n in tree.stmts(s.program.tree) if s.program.stmt(n).role != "init"):
        lane = [a for a in tree.axes_of(s.program.tree, name) if not a.reduce][-1]
        s = attempt(s, "vectorize", reference(s.program, lane), width=lanes)
    s = attempt(s, "unroll", xi)
    return _threads(s, outer[: len(outer) - 2]) if parallel else s


def _threads(s: Schedule, outer: list[str]) -> Schedule:
    """All of `outer` as one loop on all threads."""
    first, *rest = outer
    for name in rest:
        (both,) = free_names(s, "part")
        s = s.fuse(first, name, into=both)
        first = both
    return attempt(s, "parallel", first)


def depthwise_of(s: Schedule) -> Depthwise | None:
    """The depthwise convolution that a fresh schedule holds, or None."""
    if s.step is not None:
        return None
    updates = [x for x in s.program.statements if x.role == "update"]
    if len(updates) != 1:
        return None
    u = updates[0]
    padding = None
    for x in s.program.statements:
        if x.stage != u.stage:
            if padding is not None or not is_padding(x):
                return None
            padding = x.stage
    product = product_of(u)
    if product is None or len(u.domain) != 1 or len(u.writes) != 1:
        return None
    data, weight = product
    out = u.writes[0]
    kept = [a for a in u.iters if any(e == Lin({a: 1}) for e in out.affine)]
    reduce = tuple(a for a in u.iters if not any(a is b for b in kept))
    known = [a for e in weight.affine for a in e.atoms() if isinstance(a, Axis)]
    channels = [a for a in kept if any(a is b for b in known)]
    if len(kept) != len(out.index) or len(channels) != 1 or not reduce:
        return None
    c = channels[0]
    if not any(e == Lin({c: 1}) for e in data.affine) or u.iters[: len(kept)] != tuple(kept):
        return None
    k = next(i for i, a in enumerate(kept) if a is c)
    last = k == len(kept) - 1
    places = tuple(kept[1:k] if last else kept[k + 1 :])
    if not places or any(not extent(a) for a in (*places, *reduce, c)):
        return None
    return Depthwise(u, padding, data, weight, places, c, reduce, last)


@register("depthwise", lambda s: depthwise_of(s) is not None)
def _depthwise_for(s: Schedule, target: Target) -> Schedule:
    return depthwise(s, target)
