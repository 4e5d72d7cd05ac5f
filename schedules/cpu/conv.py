"""Convolution: a tile of places by filters in registers, the sum around it.

Lanes run along filters: each place is loaded once and multiplied with vectors of weights, which
are packed in the order in which the innermost loop reads them; the tile is turned in registers
when it is stored, where neighbours in memory are places. Where windows are one element, or filters
are few, lanes may run along places instead, as in a product of matrices, and nothing is packed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from schedules.cpu.conv_shape import Convolution, convolution_of, extent
from schedules.cpu.conv_tiles import Tile, filter_tile, row_tile
from schedules.cpu.steps import inside, joined, kept, under
from schedules.cpu.structure import attempt
from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.target import Target
from tensorir.poly import tree
from tensorir.schedule.resolve import free_names, reference
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

# Iterations of a parallel loop for each thread, at least, so that shares come out even.
ENOUGH = 8
# Loops that are joined to one for that, beside the first.
JOINED = 2
# Vectors of a padded row that are written out.
WRITTEN = 8
# Registers left for places that several taps share.
ROOM = 4
BY_SHAPE = 0  # the value of a parameter that the shape decides


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The parameters of :func:`conv` for a target; 0 lets the shape decide.

    `lanes` is 1 for lanes along filters, 2 for lanes along places. `pixels` and `vectors` are the
    tile: places by vectors of filters, or vectors of places by filters. `blockwise` is 1 where
    weights are packed whole, before everything else, 2 where each block of filters is, when its
    turn comes.
    """
    del target, itemsize
    return (
        Param("lanes", (BY_SHAPE, 1, 2), BY_SHAPE),
        Param("pixels", (BY_SHAPE, 1, 2, 4, 6, 7, 10, 14), BY_SHAPE),
        Param("vectors", (BY_SHAPE, 1, 2, 3, 4), BY_SHAPE),
        Param("blockwise", (BY_SHAPE, 1, 2), BY_SHAPE),
    )


@by_hand
def conv(
    s: Schedule, target: str | Target | None = None, *, parallel: bool = True, **given: int
) -> Schedule:
    """Schedule a convolution in 1 to 3 dimensions, with its padding and what follows it.

    Parameters
    ----------
    s
        The schedule as declared: padding, convolution, and elementwise stages after it.
    target
        The processor; this one by default.
    parallel
        Whether blocks of filters and rows run on all threads.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is not such a convolution.

    Examples
    --------
    >>> import tensorir as tir
    >>> from tensorir import ops
    >>> x, w = tir.placeholder((1, 8, 14, 14), name="x"), tir.placeholder((32, 8, 3, 3), name="w")
    >>> s = conv(tir.schedule(ops.conv2d(x, w, padding=1)), "x86-64-v4", parallel=False)
    >>> print(s.loops().partition("for n in")[2])  # doctest: +ELLIPSIS
     0..1
      for fo in 0..1
        for y in 0..14
          for xo in 0..1
            alloc conv2d_tile: float32 in local as (i0, i2, i3, i1)
    ...
    """
    found = convolution_of(s)
    if found is None:
        raise ArgumentError("conv: expected a convolution, its padding and elementwise stages")
    where = cpu.target("native" if target is None else target)
    written = found.update.writes[0].array.dtype
    lanes = where.lanes(written)
    p = resolve_params(params(where, written.bytes), given)
    lanes, tile = _tile(found, where, lanes, p)
    if found.padding is not None:
        s = _padding(s, found, where.lanes(written), parallel=parallel)
    for stage in found.inlined:
        s = s.compute_inline(stage)
    n = _Nest(found, tile, lanes, parallel)
    s = n.build(s)
    if not tile.rows:
        s = _weights(s, n, where, p["blockwise"], parallel=parallel)
    s = n.marked(s)
    if found.spread > 1:
        s = attempt(s, "unroll", n.last_tap(s))
    s = n.threaded(s, where) if parallel else s
    # rows begin and end with windows that reach out of the image
    return attempt(s, "peel", n.inner, first=1, last=1) if found.spread > 1 else s


def _tile(c: Convolution, target: Target, lanes: int, p: dict[str, int]) -> tuple[int, Tile]:
    """Lanes of a vector, and the tile."""
    filters = c.per_group or extent(c.filters)
    row = max(extent(c.pixels[-1]), 1)
    total = math.prod(extent(a) for a in c.pixels)
    own = math.gcd(lanes, c.per_group) if c.per_group else lanes  # lanes of one group
    # taps that are written out share places, which then stay in registers
    room = ROOM if c.spread > 1 else 0
    turned = not c.channels_last
    cycles, tile = filter_tile(target, own, row, filters, c.taps, total, turned=turned, room=room)
    near = 1 <= c.stride <= 4 and not c.guarded  # rows of places come out of whole vectors
    rows = not c.channels_last and (own < lanes or (near and p["lanes"] != 1))
    if rows:
        other = row_tile(target, lanes, row, filters, c.taps, total, c.stride)
        if p["lanes"] == 2 or own < lanes or other[0] < cycles:
            tile = other[1]
            return lanes, Tile(True, p["pixels"] or tile.pixels, p["vectors"] or tile.vectors)
    vectors = p["vectors"] or tile.vectors
    if c.per_group:
        vectors = math.gcd(vectors, c.per_group // own)
    pixels = p["pixels"] or tile.pixels
    if c.spread > 1:  # whole periods, so that which taps count is known where they are written out
        pixels = max(pixels // c.spread, 1) * c.spread
    return own, Tile(False, pixels, vectors)


def _padding(s: Schedule, c: Convolution, lanes: int, *, parallel: bool) -> Schedule:
    """The padded input, whole: rows in vectors, images and channels on all threads.

    Rows that are all padding are loops of their own, and a row is written out: then only the
    vectors at its ends have masks, which are constant.
    """
    assert c.padding is not None
    stmt = s.program.stmt(c.padding)
    names = [reference(s.program, s.program.placements[c.padding].roots[a]) for a in stmt.iters]
    read = stmt.reads[0]
    s = attempt(s, "vectorize", names[-1], width=lanes)
    if -(-extent(stmt.iters[-1]) // lanes) <= WRITTEN:
        s = attempt(s, "unroll", names[-1])
        for a, name, e, size in zip(
            stmt.iters[:-1], names[:-1], read.affine[:-1], read.array.shape[:-1], strict=True
        ):
            low, high = -e.const, extent(a) + e.const - size.const
            if size.is_const and low > 0 and high > 0 and low + high < extent(a):
                s = attempt(s, "peel", name, first=low, last=high)
    if not parallel:
        return s
    s, first = joined(s, names[:2] if len(names) > 2 else names[:1])
    return attempt(s, "parallel", first)


@dataclass(slots=True)
class _Nest:
    """The loops around the tile: names as they are after `build`."""

    c: Convolution
    tile: Tile
    lanes: int
    parallel: bool
    single: list[str] = field(default_factory=list)
    shared: list[tuple[str, int]] = field(default_factory=list)
    ragged: list[str] = field(default_factory=list)
    block: str = ""
    inner: str = ""

    @property
    def width(self) -> int:
        """Filters of a tile."""
        return self.tile.vectors * (1 if self.tile.rows else self.lanes)

    @property
    def length(self) -> int:
        """Places of a tile."""
        return self.tile.pixels * (self.lanes if self.tile.rows else 1)

    def build(self, s: Schedule) -> Schedule:
        """Blocks of filters, rows and tiles outside, the tile itself inside, kept in registers."""
        c = self.c
        head = c.tail or c.stage
        stmt = s.program.stmt(head if c.tail else c.update.name)
        f, places = self._axes(s, stmt.iters)
        if c.tail and len(places) > len(c.pixels):
            while len(places) > 1:
                (joined,) = free_names(s, "pixels")
                s = s.fuse(places[0], places[1], into=joined)
                places = [joined, *places[2:]]
        batch = [self._name(s, stmt.iters[k]) for k in range(len(c.batch))]
        groups = []
        if c.per_group and c.per_group < extent(c.filters):
            group, own = free_names(s, "group", "own")
            s = s.split(f, c.per_group, into=(group, own))
            groups, f = [group], own
        fo, fi = free_names(s, "fo", "fi")
        xo, xi = free_names(s, "xo", "xi")
        s = s.split(f, self.width, into=(fo, fi)).split(places[-1], self.length, into=(xo, xi))
        rows = places[:-1]
        filters = -(-(c.per_group or extent(c.filters)) // self.width)
        tiles = -(-extent(c.pixels[-1]) // self.length)
        many = [extent(a) for a in c.pixels[:-1]]
        if self.tile.rows:
            order, count = [*rows, xo, fo], [*many, tiles, filters]
        else:
            order, count = [fo, *rows, xo], [filters, *many, tiles]
        images = [extent(a) for a in c.batch]
        parts = [extent(c.filters) // c.per_group] if groups else []
        self.block, self.inner = fo, order[-1]
        every = [*zip([*batch, *groups, *order], [*images, *parts, *count], strict=True)]
        # loops that run once stand outside the ones that threads share out
        self.single = [x for x, n in every[:-1] if n == 1]
        self.shared = [(x, max(n, 1)) for x, n in every if x not in self.single]
        own_filters = c.per_group or extent(c.filters)
        cut = ((fo, own_filters % self.width), (xo, extent(c.pixels[-1]) % self.length))
        self.ragged = [x for x, rest in cut if rest]
        outer = [*self.single, *(x for x, _ in self.shared)]
        s = s.reorder(*outer, *((fi, xi) if self.tile.rows else (xi, fi)))
        if c.tail:
            s = kept(s, c.stage, c.update.writes[0].array.name, self.inner, tail=True)
        return self._sum(s)

    def _sum(self, s: Schedule) -> Schedule:
        c = self.c
        accumulator = c.update.writes[0].array.name
        found = inside(s, c.update.name, self.inner)
        lane, rest = self._tile_axes(s, c.update.name)
        order = [*(a for a in found if a.reduce), *(a for a in (rest, lane) if a is not None)]
        s = s.reorder(*(reference(s.program, a) for a in order))
        before = set(s.program.buffers)
        if not c.tail:
            s = kept(s, c.stage, accumulator, self.inner, tail=False)
        if not self.tile.rows and not c.channels_last:
            last = self._dimension()
            count = len(c.update.writes[0].index)
            turned = [*(d for d in range(count) if d != last), last]
            new = [a.name for a in s.program.buffers if a not in before]
            mine = (accumulator, c.stage) if c.tail else (*new, accumulator)
            local = {a.name for a, b in s.program.buffers.items() if b.scope == "local"}
            for name in dict.fromkeys(mine):
                if name in local:
                    s = s.transform_layout(name, lambda *i: tuple(i[d] for d in turned))
        return s

    def _dimension(self) -> int:
        """Which index of the result is the filter."""
        for d, e in enumerate(self.c.update.writes[0].affine):
            if e == Lin({self.c.filters: 1}):
                return d
        raise AssertionError("the result has no index along filters")

    def marked(self, s: Schedule) -> Schedule:
        """Vectors along the lanes, everything else of the tile written out."""
        for name in under(s, self.inner):
            lane, rest = self._tile_axes(s, name)
            stores = any(a.array.role == "output" for a in s.program.stmt(name).writes)
            if lane is not None and rest is not None and stores:
                s = attempt(s, "reorder", *(reference(s.program, a) for a in (rest, lane)))
            if rest is not None:
                s = attempt(s, "unroll", reference(s.program, rest))
            if lane is not None:
                s = attempt(s, "vectorize", reference(s.program, lane), width=self.lanes)
        return s

    def last_tap(self, s: Schedule) -> str:
        """The innermost loop of the sum."""
        found = [a for a in inside(s, self.c.update.name, self.inner) if a.reduce]
        return reference(s.program, found[-1])

    def threaded(self, s: Schedule, target: Target) -> Schedule:
        """Enough of the outer loops as one on all threads."""
        packed = any(
            any(a.name == self.block for a in b.outside)
            for b in s.program.buffers.values()
            if b.scope == "global"
        )
        first, count = self.shared[0]
        outer = [x for x, _ in self.shared[: 1 + JOINED]]
        # the last of a ragged loop, found again in a loop made of three, takes isl too long
        joined = 1 if any(x in outer for x in self.ragged) else JOINED
        for name, more in self.shared[1 : 1 + joined]:
            if count >= ENOUGH * target.threads or (packed and first == self.block):
                break
            (both,) = free_names(s, "part")
            after = attempt(s, "fuse", first, name, into=both)
            if after is s:
                break
            s, first, count = after, both, count * more
            if packed and name == self.block:
                break
        return attempt(s, "parallel", first)

    def _tile_axes(self, s: Schedule, name: str) -> tuple[Axis | None, Axis | None]:
        """The loop of lanes and the other one of the tile, of a statement in it."""
        stmt, place = s.program.stmt(name), s.program.placements[name]
        found = [a for a in inside(s, name, self.inner) if not a.reduce]
        d = self._dimension()
        env: dict[Axis | Var, Lin] = dict(place.index.items())
        along = stmt.writes[0].affine[d].subst(env)
        filters = [a for a in found if any(a is b for b in along.atoms())]
        places = [a for a in found if not any(a is b for b in filters)]
        lanes, rest = (places, filters) if self.tile.rows else (filters, places)
        return (lanes[-1] if lanes else None), (rest[-1] if rest else None)

    def _axes(self, s: Schedule, iters: tuple[Axis, ...]) -> tuple[str, list[str]]:
        """The loops of filters and of places, of the stage that is stored."""
        c = self.c
        d = self._dimension()
        count = len(iters) if c.tail else len(c.batch) + 1 + len(c.pixels)
        kept = iters[:count]
        if not c.tail:
            f = next(a for a in kept if a is c.filters)
            places = list(c.pixels)
        else:
            d = len(kept) - 1 if c.channels_last else d
            f = kept[d]
            places = [a for k, a in enumerate(kept) if k != d and k >= len(c.batch)]
        return self._name(s, f), [self._name(s, a) for a in places]

    def _name(self, s: Schedule, iterator: Axis) -> str:
        """The loop of an iterator of the stage that is stored."""
        stage = self.c.tail or self.c.update.name
        return reference(s.program, s.program.placements[stage].roots[iterator])


def _weights(s: Schedule, n: _Nest, target: Target, blockwise: int, *, parallel: bool) -> Schedule:
    """Weights in the order of the sum, a vector after the other; turned in registers."""
    c, width, lanes = n.c, n.width, n.lanes
    array = c.weight.array
    d = next(k for k, e in enumerate(c.weight.affine) if e == Lin({c.filters: 1}))
    count = len(c.weight.affine)
    straight = d == count - 1
    if straight and lanes == 1:
        return s
    size = extent(c.filters) * c.taps * array.dtype.bytes
    if straight and extent(c.filters) <= width:
        return s  # they lie so already
    at = n.block if blockwise == 2 or (blockwise == BY_SHAPE and size > 2 * target.l2) else None
    (pack,) = free_names(s, f"{array.name}_packed")
    s = s.cache_read(array.name, at=at, name=pack)
    rest = [k for k in range(count) if k != d]
    s = s.transform_layout(pack, lambda *i: (i[d] // width, *(i[k] for k in rest), i[d] % width))
    copy = f"{pack}.copy"
    place = s.program.placements[copy]
    own = [a for a in tree.axes_of(s.program.tree, copy) if a.name.startswith(f"{pack}.")]
    env: dict[Axis | Var, Lin] = dict(place.index.items())
    along = s.program.stmt(copy).writes[0].affine[d].subst(env)
    filters = next((a for a in own if any(a is b for b in along.atoms())), None)
    if filters is None:
        return s
    if straight:
        s = s.vectorize(reference(s.program, filters), width=lanes)
        outer = reference(s.program, own[0])
        return attempt(s, "parallel", outer) if parallel and at is None else s
    po, pi = free_names(s, "po", "pi")
    s = s.split(reference(s.program, filters), lanes, into=(po, pi))
    # neighbours in memory: what comes after the filters
    at_filters = next(k for k, a in enumerate(own) if a is filters)
    before = [reference(s.program, a) for a in own[:at_filters]]
    behind = [reference(s.program, a) for a in own[at_filters + 1 :]]
    if not behind:
        return s.vectorize(pi, width=lanes)
    terms = behind[0]
    for name in behind[1:]:
        (both,) = free_names(s, "terms")
        s = s.fuse(terms, name, into=both)
        terms = both
    s = s.reorder(po, *before, terms, pi).vectorize(terms, width=lanes).unroll(pi)
    return attempt(s, "parallel", po) if parallel and at is None else s


@register("conv", lambda s: convolution_of(s) is not None)
def _conv_for(s: Schedule, target: Target) -> Schedule:
    return conv(s, target)
