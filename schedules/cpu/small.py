"""Products of small matrices of constant sizes, and of few rows: register tiles, no copies.

The right operand stays in near caches, or serves few rows, so that packing it would cost more than
it gains. The tile is the one that computes least beyond the edges.
"""

from __future__ import annotations

from schedules.cpu.contraction import Contraction, contraction
from schedules.cpu.tiling import register_tile, tile_of
from schedules.params import Param, resolve_params
from schedules.registry import by_hand
from tensorir.codegen import cpu
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

UNROLLED = 64  # sums no longer than this go four steps at a time
FEW = 24  # rows for which nothing is worth copying
SOME = 64  # and those for which it is only where rows of B fall into few sets of a cache:
CLASH = 2048  # they lie a multiple of so many bytes apart
STRIPS = 4  # for each thread: fewer are shared out unevenly
PARALLEL_WORK = 1 << 21  # multiplications that are worth a second thread


def params(
    target: Target,
    itemsize: int = 4,
    rows: int | None = None,
    columns: int | None = None,
    depth: int | None = None,
) -> tuple[Param, ...]:
    """The parameters of :func:`small_matmul`: a tile of `mr` rows by `nv` vectors.

    `ku` steps of the sum are unrolled. With `ask` the rows of A that the next tile reads are asked
    for, which pays where A lies beyond the second cache.
    """
    mr, nv = tile_of(target, target.vector_bytes // itemsize, rows, columns, depth)
    tall = tuple(range(1, 17)) if target.vector_registers >= 32 else tuple(range(1, 7))
    far = (rows or 0) * (depth or 0) * itemsize > target.l2
    return (
        Param("mr", tall, mr),
        Param("nv", (1, 2, 3, 4), nv),
        Param("ku", (1, 2, 4), 2 if far else 1),
        Param("ask", (0, 1), int(far)),
    )


@by_hand
def small_matmul(
    s: Schedule,
    target: str | Target | None = None,
    *,
    parallel: bool = True,
    **given: int,
) -> Schedule:
    """Schedule a sum of products of two operands whose sizes are small constants.

    Parameters
    ----------
    s
        The schedule of one matmul, batched or not, as declared. Columns of the right operand are
        contiguous.
    target
        The processor; this one by default.
    parallel
        Whether the outermost loop runs on all threads, where that is worth it.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is not such a product.

    Examples
    --------
    >>> import tensorir as tir
    >>> from tensorir import ops
    >>> a, b = tir.placeholder((32, 32), name="a"), tir.placeholder((32, 32), name="b")
    >>> s = small_matmul(tir.schedule(ops.matmul(a, b)), "znver4", ku=1)
    >>> [step.primitive for step in s.trace.steps]  # doctest: +NORMALIZE_WHITESPACE
    ['split', 'split', 'reorder', 'reorder', 'cache_write', 'vectorize', 'unroll', 'unroll',
     'vectorize']
    """
    c = contraction(s)
    if c is None or not c.rows or not c.columns or c.right.last != c.columns[-1]:
        raise ArgumentError(
            "small_matmul: expected one stage, C[..., i, j] = sum over k of A * B, with B "
            "contiguous along j"
        )
    where = cpu.target("native" if target is None else target)
    lanes = c.lanes(where)
    i, j = c.rows[-1], c.columns[-1]
    declared = params(where, c.dtype.bytes, c.sizes[i], c.sizes[j], c.size(*c.sums))
    p = resolve_params(declared, given)
    jr, ji, ir, ii = free_names(s, "jr", "ji", "ir", "ii")
    s = s.split(j, p["nv"] * lanes, into=(jr, ji)).split(i, p["mr"], into=(ir, ii))
    outer, sums = c.others(i, j), c.sums
    # the tile alone first, so that it starts at zero inside
    s = s.reorder(*outer, jr, ir, ii, ji).reorder(*sums, ii, ji)
    s = register_tile(s, c.stage, ir, ii, ji, lanes)
    if p["ku"] > 1 and s.check("unroll", sums[-1], p["ku"]):
        s = s.unroll(sums[-1], p["ku"])
    if p["ask"] and c.left.last in sums and s.check("prefetch", c.left.name, ir):
        s = s.prefetch(c.left.name, ir)
    work = c.size(*c.sizes) or 0
    strips = (c.sizes[j] or 0) // (p["nv"] * lanes)
    first = outer[0] if outer else jr if strips >= STRIPS * where.threads else ir
    if parallel and work >= PARALLEL_WORK and s.check("parallel", first):
        s = s.parallel(first)
    return s


def is_small(c: Contraction, target: Target) -> bool:
    """Whether all sizes are constant, and copies of the right operand would not pay.

    They do not where it stays in the second cache, or serves a few rows only.
    """
    if not c.rows or not c.columns or c.right.last != c.columns[-1]:
        return False
    depth = c.size(*c.sums)
    if c.size(*c.sizes) is None or depth is None:
        return False
    across = (c.sizes[c.columns[-1]] or 0) * c.right.dtype.bytes
    right = depth * across
    left = depth * (c.sizes[c.rows[-1]] or 0) * c.left.dtype.bytes
    in_order = c.left.last in c.sums or left <= target.l2 // 4
    rows = c.size(*c.rows) or 0
    few = rows <= FEW or (rows <= SOME and across % CLASH != 0)
    return in_order and (few or right <= target.l2 // 4)


def small_for(s: Schedule, c: Contraction, target: Target, *, parallel: bool) -> Schedule:
    """:func:`small_matmul` with what suits the depth."""
    given = {"ku": 4} if (c.size(*c.sums) or 0) <= UNROLLED else {}
    return small_matmul(s, target, parallel=parallel, **given)
