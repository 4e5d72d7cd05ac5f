"""Products of matrices of any size: one packed strip of the right operand, tiles in registers.

A strip is as wide as a tile. It is copied into the second cache in the order in which the innermost
loop reads it, and serves all rows; rows of the left operand are read in place, for each of their
elements serves a whole tile. What is stored the other way round is turned by shuffles as it is
copied. The levels are those of Goto and van de Geijn (Anatomy of High-Performance Matrix
Multiplication, 2008), but for the block of the left operand, which their larger tiles needed.
"""

from __future__ import annotations

from collections.abc import Mapping

from schedules.cpu.contraction import Contraction, Operand, contraction
from schedules.cpu.gemv import gemv, is_gemv
from schedules.cpu.small import is_small, small_for
from schedules.cpu.tiling import register_tile, tile_of, unrolled
from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.expr import Expr
from tensorir.ir.target import Target
from tensorir.poly import tree
from tensorir.schedule.resolve import free_names, reference
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

DEPTHS = (128, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
AHEAD = 16  # rows of the right operand
FAR_ROWS = 8  # of a left operand stored as columns that are copied together
STRIPS = 4  # for each thread: fewer are shared out unevenly


def params(
    target: Target,
    itemsize: int = 4,
    rows: int | None = None,
    columns: int | None = None,
    depth: int | None = None,
) -> tuple[Param, ...]:
    """The parameters of :func:`matmul` for a target, a size of elements, and a result.

    `mr` rows by `nv` vectors of C live in registers; `kc` is the depth of a strip of `panels` tiles
    beside each other, half the second cache at most; `mc` rows are multiplied by all strips before
    the next ones are. With `pack_a` rows of A are packed too: read in place they are as fast,
    unless they are stored as columns. `ku` steps of the sum are unrolled; with `ask` what is
    read next of A is asked for, which pays where A lies beyond the second cache.
    """
    mr, nv = tile_of(target, target.vector_bytes // itemsize, rows, columns, depth)
    wide = nv * target.vector_bytes
    fit = [d for d in DEPTHS if d * wide <= target.l2 // 2]
    sized = rows is not None and depth is not None
    far = not sized or (rows or 0) * (depth or 0) * itemsize > target.l2
    panels = _panels(target, wide, columns and -(-columns * itemsize // wide), depth)
    tall = tuple(range(1, 17)) if target.vector_registers >= 32 else tuple(range(1, 7))
    return (
        Param("mr", tall, mr),
        Param("nv", (1, 2, 3, 4), nv),
        Param("kc", DEPTHS, fit[-1] if fit else DEPTHS[0]),
        Param("mc", (96, 192, 480, 960, 1920, 4096), 4096),
        Param("pack_a", (0, 1), 0),
        Param("panels", (1, 2, 4), panels),
        Param("ku", (1, 2, 4), 2 if far else 1),
        Param("ask", (0, 1), int(far and sized)),
    )


def _panels(target: Target, wide: int, tiles: int | None, depth: int | None) -> int:
    """Two tiles beside each other in a strip: longer pieces of rows are copied faster.

    They must fit half the second cache, and be shared out as evenly as single ones.
    """
    if tiles is None or depth is None or 2 * depth * wide > target.l2 // 2:
        return 1
    single = -(-tiles // target.threads)
    return 2 if tiles > 1 and 2 * -(-tiles // (2 * target.threads)) <= single else 1


@by_hand
def matmul(
    s: Schedule,
    target: str | Target | None = None,
    *,
    parallel: bool = True,
    **given: int,
) -> Schedule:
    """Schedule a sum of products, `C[..., i, j] = sum over k of A * B`.

    Either operand may be transposed, and may have dimensions that the other lacks.

    Parameters
    ----------
    s
        The schedule of the one product, as declared.
    target
        The processor; this one by default.
    parallel
        Whether batches, strips or blocks of rows run on all threads.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is not such a product.

    Examples
    --------
    >>> import tensorir as tir
    >>> n = 1024
    >>> A, B = tir.placeholder((n, n), name="A"), tir.placeholder((n, n), name="B")
    >>> k = tir.reduce_axis(n, name="k")
    >>> C = tir.compute((n, n), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    >>> s = matmul(tir.schedule(C), "znver4")
    >>> [step.primitive for step in s.trace.steps][:6]
    ['split', 'split', 'split', 'reorder', 'reorder', 'cache_write']
    """
    c = contraction(s)
    if c is None or not c.rows or not c.columns:
        raise ArgumentError(
            "matmul: expected one stage, C[..., i, j] = sum over k of A * B, each operand indexed "
            "by i or j, by k, and by what else the result is"
        )
    where = cpu.target("native" if target is None else target)
    plan = _plan(s, c, where, given)
    s = plan.tiled()
    return plan.shared(s) if parallel else s


def product_with(
    s: Schedule, c: Contraction, target: Target, after: str | None
) -> tuple[Schedule, tuple[str, ...]]:
    """One product among other stages, and the stage `after` it done on each tile where it may be.

    Returns the schedule, and what became of `after`: its name if it is part of the product now.
    """
    plan = _plan(s, c, target, {})
    s = plan.tiled()
    fused: tuple[str, ...] = ()
    tile = plan.beside[0] if plan.beside else plan.ir
    if after is not None and s.check("reverse_compute_at", after, tile):
        s = s.reverse_compute_at(after, tile)
        last = tree.loops_of(s.program.tree, after)[-1].axis
        loop = reference(s.program, last)
        if s.check("vectorize", loop, width=plan.lanes):
            s = s.vectorize(loop, width=plan.lanes)
        fused = (after,)
    return plan.shared(s), fused


def _plan(s: Schedule, c: Contraction, target: Target, given: Mapping[str, int]) -> _Plan:
    rows, columns, depth = c.sizes[c.rows[-1]], c.sizes[c.columns[-1]], c.size(*c.sums)
    declared = params(target, c.dtype.bytes, rows, columns, depth)
    if c.left.last == c.rows[-1]:
        given = {**_columnwise(target, c, depth, columns), **given}
    return _Plan(s, c, target, resolve_params(declared, given))


def _columnwise(
    target: Target, c: Contraction, depth: int | None, columns: int | None
) -> dict[str, int]:
    """Parameters for a left operand whose rows are stored as columns: pieces of them are packed."""
    mr, nv = (8, 3) if target.vector_registers >= 32 else (4, 3)
    found = {"mr": mr, "nv": nv, "pack_a": 1, "panels": 1, "ku": 1}
    if depth and columns is not None and columns <= STRIPS * nv * c.lanes(target):
        # few strips use them: they stay in the second cache meanwhile
        found["mc"] = max(mr, target.l2 // 2 // (depth * c.dtype.bytes) // mr * mr)
    return found


class _Plan:
    """The names of all loops, and the steps in order."""

    def __init__(self, s: Schedule, c: Contraction, target: Target, p: dict[str, int]) -> None:
        self.s, self.c, self.p = s, c, p
        self.lanes = c.lanes(target)
        self.i, self.j = c.rows[-1], c.columns[-1]
        self.wide = p["nv"] * self.lanes
        # where the number of rows is not known they are taken for few enough to stay near
        rows = c.sizes[self.i]
        self.blocked = len(c.rows) == 1 and rows is not None and rows > p["mc"]
        depth = c.sizes[c.sums[0]]
        # a sum that is finished stays in registers if its depth may be small
        shallow = c.finished and depth is None
        deep = depth is None or depth > p["kc"]
        self.deep = len(c.sums) == 1 and deep and not shallow
        self.threads = target.threads
        self.ic, self.ib, self.ir, self.ii, self.jr, self.ji, self.pc, self.kk = free_names(
            s, "ic", "ib", "ir", "ii", "jr", "ji", "pc", "kk"
        )
        self.strip, self.panel, self.jp = free_names(s, "strip", "panel", "jp")
        # the loops over the tiles of a strip, where it has several
        self.beside = [self.jp] if p["panels"] > 1 else []

    def tiled(self) -> Schedule:
        """All on one thread."""
        c, p = self.c, self.p
        s = self.s.split(self.j, self.wide, into=(self.jr, self.ji))
        if self.beside:
            s = s.split(self.jr, p["panels"], into=(self.jr, self.jp))
        if self.blocked:
            s = s.split(self.i, p["mc"], into=(self.ic, self.ib))
            s = s.split(self.ib, p["mr"], into=(self.ir, self.ii))
        else:
            s = s.split(self.i, p["mr"], into=(self.ir, self.ii))
        s = self._ordered(s)
        at = self.beside[0] if self.beside else self.ir
        s = register_tile(s, c.stage, at, self.ii, self.ji, self.lanes)
        step = self.kk if self.deep else c.sums[-1]
        if p["ku"] > 1 and s.check("unroll", step, p["ku"]):
            s = s.unroll(step, p["ku"])
        if p["pack_a"]:
            s = self._packed_rows(s)
        elif p["ask"] and s.check("prefetch", c.left.name, self.ir):
            s = s.prefetch(c.left.name, self.ir)
        return self._packed_strip(s)

    def _ordered(self, s: Schedule) -> Schedule:
        c = self.c
        rows = c.rows[:-1]  # they go inside, for they share the strip
        outer = c.others(*c.rows, self.j)
        blocks = [self.ic] if self.blocked else []
        if not self.deep:
            # the tile alone first, so that it starts at zero inside
            tile = (*self.beside, self.ii, self.ji)
            s = s.reorder(*outer, *blocks, self.jr, *rows, self.ir, *tile)
            return s.reorder(*c.sums, self.ii, self.ji)
        s = s.split(c.sums[0], self.p["kc"], into=(self.pc, self.kk))
        inner = (self.jr, *rows, self.ir, *self.beside, self.kk, self.ii, self.ji)
        s = s.reorder(*outer, *blocks, self.pc, *inner)
        # it starts at zero in the first panel, and is loaded in the later ones
        return s.init_at(c.stage, self.pc)

    def _packed_strip(self, s: Schedule) -> Schedule:
        right = self.c.right
        s = s.cache_read(right.name, at=self.jr, name=self.strip)
        if right.last in self.c.sums:
            return self._turned(s, self.strip, right, self.j)
        if right.last == self.j:
            # what the copy reads lies far apart: it is asked for a few rows ahead
            s = s.prefetch(right.name, self.c.copy(self.strip, self.c.sums[-1]), AHEAD)
        j = self.c.copy(self.strip, self.j)
        if self.beside:
            s, j = self._panelled(s, right, j)
        return unrolled(s.vectorize(j, width=self.lanes), j)

    def _panelled(self, s: Schedule, right: Operand, along: str) -> tuple[Schedule, str]:
        """The tiles of a strip one after the other in memory; the loop inside one of them."""
        at, wide = right.index.index(self.j), self.wide
        if right.last != self.j:
            return s, along

        def tiles(*d: Expr) -> tuple[Expr, ...]:
            return (d[at] // wide, *d[:at], d[at] % wide)

        tp, tj = free_names(s, "tp", "tj")
        return s.transform_layout(self.strip, tiles).split(along, wide, into=(tp, tj)), tj

    def _packed_rows(self, s: Schedule) -> Schedule:
        """The left operand copied in the order in which tiles read it, around all strips."""
        left, k, mr, panel = self.c.left, self.c.sums[-1], self.p["mr"], self.panel
        around = self.c.others(*self.c.rows, self.j) + [self.ic] * self.blocked
        around += [self.pc] * self.deep
        s = s.cache_read(left.name, at=around[-1] if around else None, name=panel)
        if mr == 1:
            return s  # it is in that order already
        a, b = left.index.index(self.i), left.index.index(k)

        def tiles(*d: Expr) -> tuple[Expr, ...]:
            rest = (x for n, x in enumerate(d) if n not in (a, b))
            return (*rest, d[a] // mr, d[b], d[a] % mr)

        s = s.transform_layout(panel, tiles)
        to, ti, fo, fi = free_names(s, "to", "ti", "fo", "fi")
        s = s.split(self.c.copy(panel, self.i), mr, into=(to, ti))
        columns, ask = left.last == self.i, self.p["ask"]
        # few rows of a far array at a time: they may fall into one set of the first cache
        s = s.split(self.c.copy(panel, k), FAR_ROWS if columns and ask else self.lanes,
                    into=(fo, fi))  # fmt: skip
        if not columns:
            return s.reorder(to, fo, fi, ti).vectorize(fi, width=self.lanes).unroll(ti)
        s = s.reorder(fo, to, fi, ti)
        if ask:
            s = s.prefetch(left.name, fo, 2)
        whole = mr <= self.lanes and mr & (mr - 1) == 0
        return s.vectorize(ti, width=mr) if whole else unrolled(s, ti)

    def _turned(self, s: Schedule, copy: str, of: Operand, along: str) -> Schedule:
        """A copy stored along another dimension than its operand: squares turned in registers."""
        at = of.index.index(along)
        s = s.transform_layout(copy, lambda *d: (*d[:at], *d[at + 1 :], d[at]))
        to, ti, fo, fi = free_names(s, "to", "ti", "fo", "fi")
        s = s.split(self.c.copy(copy, along), self.lanes, into=(to, ti))
        s = s.split(self.c.copy(copy, of.last or ""), self.lanes, into=(fo, fi))
        s = s.reorder(to, fo, fi, ti)
        return s.vectorize(fi, width=self.lanes).unroll(ti)

    def shared(self, s: Schedule) -> Schedule:
        """The outermost loop that has enough iterations for all threads."""
        c = self.c
        for loop in c.others(*c.rows, self.j):
            n = c.sizes[loop]
            if (n is None or n >= self.threads) and s.check("parallel", loop):
                return s.parallel(loop)
        columns = c.sizes[self.j]
        few = columns is not None and columns < STRIPS * self.threads * self.wide
        for loop in (self.ir, self.jr) if few else (self.jr, self.ir):
            if s.check("parallel", loop):
                return s.parallel(loop)
        return s


def _product(s: Schedule) -> Contraction | None:
    c = contraction(s)
    return c if c is not None and (c.rows or is_gemv(c)) else None


@register("matmul", lambda s: _product(s) is not None)
def _matmul_for(s: Schedule, target: Target) -> Schedule:
    c = _product(s)
    assert c is not None
    if is_gemv(c):
        return gemv(s, target)
    if is_small(c, target):
        return small_for(s, c, target, parallel=True)
    return matmul(s, target)
