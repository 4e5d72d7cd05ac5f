"""Products of a matrix and a vector, and of two vectors.

Where the sum runs along contiguous memory, a few rows at a time share what they read of the vector,
each with partial sums in vector lanes. Where the result does, a few steps of the sum at a time are
added to a vector of it, so that it is loaded and stored once for all of them.
"""

from __future__ import annotations

from schedules.cpu.contraction import Contraction, contraction
from schedules.cpu.tiling import in_vectors, unrolled
from schedules.params import Param, resolve_params
from schedules.registry import by_hand
from tensorir.codegen import cpu
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

BLOCK = 4096  # elements of the result that stay in the first cache
PARALLEL_WORK = 1 << 18  # multiplications that are worth a second thread


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The parameters of :func:`gemv`.

    `rows` go together, each in `accumulators` vectors; or `steps` of the sum do.
    """
    return (
        Param("rows", (1, 2, 4, 8), 4),
        Param("accumulators", (1, 2, 4), 2),
        Param("steps", (2, 4, 8, 16), 8),
    )


def is_gemv(c: Contraction) -> bool:
    """Whether one operand has no index of the result that the other lacks."""
    return not c.rows and len(c.sums) == 1


@by_hand
def gemv(
    s: Schedule,
    target: str | Target | None = None,
    *,
    parallel: bool = True,
    **given: int,
) -> Schedule:
    """Schedule `y[..., i] = sum over k of A * x`, the matrix stored either way.

    Parameters
    ----------
    s
        The schedule of the one product, as declared.
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
    >>> A, x = tir.placeholder((100, 500), name="A"), tir.placeholder((500,), name="x")
    >>> s = gemv(tir.schedule(ops.gemv(A, x)), "znver4")
    >>> [step.primitive for step in s.trace.steps]  # doctest: +NORMALIZE_WHITESPACE
    ['split', 'split', 'reorder', 'rfactor', 'set_scope', 'transform_layout', 'vectorize',
     'unroll', 'unroll', 'unroll', 'unroll', 'unroll', 'unroll']
    """
    c = contraction(s)
    if c is None or not is_gemv(c):
        raise ArgumentError(
            "gemv: expected one stage, y[..., i] = sum over k of A * x, with A indexed by all of it"
        )
    where = cpu.target("native" if target is None else target)
    p = resolve_params(params(where, c.dtype.bytes), given)
    lanes = c.lanes(where)
    i = c.columns[-1]
    before = c.others(i)
    if c.right.last == i:
        s, first = _by_steps(s, c, p["steps"], lanes)
    else:
        s, first = _by_rows(s, c, p["rows"], p["accumulators"], lanes)
    work = c.size(*c.sizes)
    worth = work is None or work >= PARALLEL_WORK
    for loop in (*before[:1], first):
        if parallel and worth and s.check("parallel", loop):
            return s.parallel(loop)
    return s


def _by_rows(
    s: Schedule, c: Contraction, rows: int, accumulators: int, lanes: int
) -> tuple[Schedule, str]:
    """A few rows at a time, each in partial sums; with the loop over those groups."""
    i, k = c.columns[-1], c.sums[0]
    io, ii, ko, ki, part = free_names(s, "io", "ii", "ko", "ki", "part")
    s = s.split(i, rows, into=(io, ii)).split(k, lanes * accumulators, into=(ko, ki))
    s = s.reorder(ko, ii, ki).rfactor(ki, into=part, at=io, lanes=lanes)
    s = s.set_scope(part, "local")
    # the partial sums of a row lie side by side
    s = s.transform_layout(part, lambda lane, *row: (*row, lane))
    s = s.vectorize(ki, width=lanes)
    outer = {io, ko}
    for loop in [a.name for a in s.axes if a.name.split(".")[-1] in (ii, ki, i)]:
        s = unrolled(s, loop) if loop not in outer else s
    return s, io


def _by_steps(s: Schedule, c: Contraction, steps: int, lanes: int) -> tuple[Schedule, str]:
    """Rows of the matrix, a few at a time, added to the result; with the loop to share out."""
    i, k = c.columns[-1], c.sums[0]
    ko, ki, jo, ji, jc, jb = free_names(s, "ko", "ki", "jo", "ji", "jc", "jb")
    s = s.split(k, steps, into=(ko, ki)).split(i, BLOCK, into=(jc, jb))
    s = s.split(jb, 2 * lanes, into=(jo, ji)).reorder(jc, ko, jo, ki, ji)
    s = s.init_at(c.stage, ko)
    known = {a.name for a in s.axes}
    s = s.cache_write(c.stage, "local", at=jo).vectorize(ji, width=lanes)
    s = unrolled(unrolled(s, ji), ki)
    return in_vectors(s, [a.name for a in s.axes if a.name not in known], lanes), jc
