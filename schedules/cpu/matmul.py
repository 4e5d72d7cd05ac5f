"""Products of matrices of any size: one packed strip of the right operand, tiles in registers.

A strip is as wide as a tile. It is copied into the second cache in the order in which the innermost
loop reads it, and serves all rows; rows of the left operand are read in place, for each of their
elements serves a whole tile. What is stored the other way round is turned by shuffles as it is
copied. The levels are those of Goto and van de Geijn (Anatomy of High-Performance Matrix
Multiplication, 2008), but for the block of the left operand, which their larger tiles needed.
"""

from __future__ import annotations

from math import prod

from schedules.cpu.contraction import Contraction, contraction, extent
from schedules.cpu.gemv import gemv, is_gemv
from schedules.cpu.small import is_small, small_for
from schedules.cpu.tiling import register_tile, tile_of, unrolled
from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import cpu
from tensorir.ir.expr import Axis
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

DEPTHS = (128, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
STRIPS = 4  # for each thread: fewer are shared out unevenly


def params(
    target: Target, itemsize: int = 4, rows: int | None = None, columns: int | None = None
) -> tuple[Param, ...]:
    """The parameters of :func:`matmul` for a target, a size of elements, and a result.

    `mr` rows by `nv` vectors of C live in registers; `kc` is the depth of a strip, half the second
    cache at most; `mc` rows are multiplied by all strips before the next ones are. With `pack_a`
    rows of A are packed too: read in place they are as fast, unless they are stored as columns.
    """
    mr, nv = tile_of(target, target.vector_bytes // itemsize, rows, columns)
    wide = nv * target.vector_bytes
    fit = [d for d in DEPTHS if d * wide <= target.l2 // 2]
    tall = tuple(range(1, 17)) if target.vector_registers >= 32 else tuple(range(1, 7))
    return (
        Param("mr", tall, mr),
        Param("nv", (1, 2, 3, 4), nv),
        Param("kc", DEPTHS, fit[-1] if fit else DEPTHS[0]),
        Param("mc", (96, 192, 480, 960, 1920, 3840), 1920),
        Param("pack_a", (0, 1), 0),
    )


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
    ['split', 'split', 'reorder', 'reorder', 'cache_write', 'vectorize']
    """
    c = contraction(s)
    if c is None or not c.rows or not c.columns:
        raise ArgumentError(
            "matmul: expected one stage, C[..., i, j] = sum over k of A * B, each operand indexed "
            "by i or j, by k, and by what else the result is"
        )
    where = cpu.target("native" if target is None else target)
    p = resolve_params(params(where, c.dtype.bytes, extent(c.rows[-1]), _columns(c)), given)
    plan = _Plan(s, c, where, p)
    return plan.schedule(parallel=parallel)


class _Plan:
    """The names of all loops, and the steps in order."""

    def __init__(self, s: Schedule, c: Contraction, target: Target, p: dict[str, int]) -> None:
        self.s, self.c, self.p = s, c, p
        self.lanes = c.lanes(target)
        self.i, self.j = c.rows[-1], c.columns[-1]
        self.wide = p["nv"] * self.lanes
        self.blocked = len(c.rows) == 1 and _more(extent(self.i), p["mc"])
        self.deep = len(c.sums) == 1 and _more(extent(c.sums[0]), p["kc"])
        self.threads = target.threads
        self.ic, self.ib, self.ir, self.ii, self.jr, self.ji, self.pc, self.kk = free_names(
            s, "ic", "ib", "ir", "ii", "jr", "ji", "pc", "kk"
        )
        self.tile, self.strip, self.panel = free_names(s, "tile", "strip", "panel")

    def schedule(self, *, parallel: bool) -> Schedule:
        c, p = self.c, self.p
        s = self.s.split(self.j.name, self.wide, into=(self.jr, self.ji))
        if self.blocked:
            s = s.split(self.i.name, p["mc"], into=(self.ic, self.ib))
            s = s.split(self.ib, p["mr"], into=(self.ir, self.ii))
        else:
            s = s.split(self.i.name, p["mr"], into=(self.ir, self.ii))
        s = self._ordered(s)
        s = register_tile(s, c.stage, self.ir, self.ii, self.ji, self.lanes, self.tile)
        if p["pack_a"] or c.left.last not in c.sums:
            s = self._packed_rows(s)
        s = self._packed_strip(s)
        return self._parallel(s) if parallel else s

    def _ordered(self, s: Schedule) -> Schedule:
        c = self.c
        near = (*c.rows[:-1], self.i, self.j)  # other rows go inside: they share the strip
        outer = [a.name for a in c.order if a not in c.sums and a not in near]
        rows = [a.name for a in c.rows[:-1]]
        blocks = [self.ic] if self.blocked else []
        sums = [a.name for a in c.sums]
        if not self.deep:
            # the tile alone first, so that it starts at zero inside
            s = s.reorder(*outer, *blocks, self.jr, *rows, self.ir, self.ii, self.ji)
            return s.reorder(*sums, self.ii, self.ji)
        s = s.split(sums[0], self.p["kc"], into=(self.pc, self.kk))
        s = s.reorder(
            *outer, *blocks, self.pc, self.jr, *rows, self.ir, self.kk, self.ii, self.ji
        )
        # it starts at zero in the first panel, and is loaded in the later ones
        return s.init_at(c.stage, self.pc)

    def _packed_strip(self, s: Schedule) -> Schedule:
        right = self.c.right
        s = s.cache_read(right.name, at=self.jr, name=self.strip)
        j = f"{self.strip}.{self.j.name}"
        if right.last is self.j:
            return unrolled(s.vectorize(j, width=self.lanes), j)
        assert right.last is not None
        return self._turned(s, self.strip, right.last, self.j)

    def _packed_rows(self, s: Schedule) -> Schedule:
        """Rows of the left operand copied at the outermost place where they are needed."""
        left, k = self.c.left, self.c.sums[-1]
        at = self.pc if self.deep else self.jr
        outside = [a.name for a in s.axes]
        before = outside[outside.index(at) - 1] if not self.deep and outside[0] != at else None
        at = self.pc if self.deep else before or at
        s = s.cache_read(left.name, at=at, name=self.panel)
        if left.last is k:
            return s.vectorize(f"{self.panel}.{k.name}", width=self.lanes)
        assert left.last is not None
        return self._turned(s, self.panel, left.last, k)

    def _turned(self, s: Schedule, copy: str, source: Axis, target: Axis) -> Schedule:
        """A copy whose vectors are read along `source` and stored along `target`, in squares."""
        names = free_names(s, "to", "ti", "fo", "fi")
        to, ti, fo, fi = names
        s = s.split(f"{copy}.{target.name}", self.lanes, into=(to, ti))
        s = s.split(f"{copy}.{source.name}", self.lanes, into=(fo, fi))
        s = s.reorder(to, fo, fi, ti)
        return s.vectorize(fi, width=self.lanes).unroll(ti)

    def _parallel(self, s: Schedule) -> Schedule:
        """The outermost loop that has enough iterations for all threads."""
        c = self.c
        outer = [a for a in c.order if a not in c.sums and a not in (*c.rows, self.j)]
        for a in outer:
            n = extent(a)
            if (n is None or n >= self.threads) and s.check("parallel", a.name):
                return s.parallel(a.name)
        columns = extent(self.j)
        few = columns is not None and columns < STRIPS * self.threads * self.wide
        for loop in (self.ir, self.jr) if few else (self.jr, self.ir):
            if s.check("parallel", loop):
                return s.parallel(loop)
        return s


def _more(n: int | None, block: int) -> bool:
    return n is None or n > block


def _columns(c: Contraction) -> int | None:
    return extent(c.columns[-1])


@register("matmul", lambda s: contraction(s) is not None)
def _matmul_for(s: Schedule, target: Target) -> Schedule:
    c = contraction(s)
    assert c is not None
    if is_gemv(c):
        return gemv(s, target)
    if is_small(c, target):
        return small_for(s, c, target, parallel=True)
    return matmul(s, target)
