"""Reductions: along rows in lanes, or down columns with whole rows streamed through."""

from __future__ import annotations

from schedules.cpu import structure
from schedules.cpu.pool import pooling_of
from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

_LEAST_WORK = 1 << 19  # elements below which a second thread costs more than it does
_BLOCK = 1024  # columns of one thread


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The parameters of :func:`reduce` for a target.

    Along rows a result has `accumulators` vectors, and what is read `ahead` blocks of them later
    is fetched. Down columns `rows` rows are added to the results at a time, in `unroll` vectors,
    and half as many blocks of those ahead are fetched of each row.
    """
    del target, itemsize
    return (
        Param("accumulators", (1, 2, 4, 8), 8),
        Param("ahead", (0, 4, 8, 16), 8),
        Param("rows", (1, 2, 4, 8, 16), 8),
        Param("unroll", (1, 2, 4), 4),
    )


@by_hand
def reduce(
    s: Schedule, target: str | Target | None = None, *, parallel: bool = True, **given: int
) -> Schedule:
    """Schedule one reduction of whatever is computed of elements.

    Parameters
    ----------
    s
        The schedule of the reduction, as declared: its elements are neighbours in memory along
        the last axis that is reduced, or along the last that is kept.
    target
        The processor; this one by default.
    parallel
        Whether results are shared out among threads.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is no such reduction.

    Examples
    --------
    >>> import tensorir as tir
    >>> x = tir.placeholder((256, 1000), name="x")
    >>> s = reduce(tir.schedule(tir.ops.sum(x, axis=0)), parallel=False)
    >>> [step.primitive for step in s.trace.steps][:4]
    ['split', 'split', 'reorder', 'cache_write']
    """
    update = update_of(s)
    if update is None:
        raise ArgumentError(
            "reduce: expected one reduction of elements that are neighbours along its last axis"
        )
    where = cpu.target("native" if target is None else target)
    p = resolve_params(params(where), given)
    declared = s.program.statements
    threads = parallel and structure.worth(declared, _LEAST_WORK)
    if update.iters[-1].reduce and structure.along_rows(update, 0):
        s = _along_rows(s, update, where, p["accumulators"], p["ahead"])
    else:
        block = _BLOCK if threads and all(a.reduce for a in update.iters[:-2]) else 0
        made = _down_columns(s, update, where, p["rows"], p["unroll"], block)
        s = _fetch(made, update, -4, p["ahead"] // 2) if made is not s else s
    return structure.attempt(s, "parallel", _outermost(s, update)) if threads else s


def _along_rows(
    s: Schedule, update: Statement, target: Target, accumulators: int, ahead: int
) -> Schedule:
    """Lanes of partial results; a tuple has one vector, whose lanes are combined one by one."""
    width = structure.lanes(target, update)
    many = accumulators if len(update.writes) == 1 else 1
    made = structure.reduce_in_lanes(s, update, width, many)
    if made is s:
        return s
    return _fetch(made, update, -2, ahead)


def _fetch(s: Schedule, update: Statement, loop: int, ahead: int) -> Schedule:
    """Fetch what a loop around the reader of the elements reads some iterations later."""
    if not ahead:
        return s
    array = next(r.array for r in update.reads if r.array.role == "input")
    reader = next(x for x in s.program.statements if any(r.array is array for r in x.reads))
    blocks = structure.loops_of(s, reader)[loop]
    return structure.attempt(s, "prefetch", array.name, blocks, ahead)


def _down_columns(
    s: Schedule, update: Statement, target: Target, rows: int, unroll: int, block: int
) -> Schedule:
    """Some rows at a time are added to results that are loaded and stored once for all of them.

    Threads get blocks of columns, where there is nothing else to share out.
    """
    kept = [k for k, a in enumerate(update.iters) if not a.reduce]
    reduced = [k for k, a in enumerate(update.iters) if a.reduce]
    width = structure.lanes(target, update)
    n, depth = structure.extent(update.iters[kept[-1]]), structure.extent(update.iters[reduced[-1]])
    if n is not None and n < width:
        return s
    while depth is not None and rows > max(1, depth):
        rows //= 2
    name = [structure.axis_name(s, update, k) for k in range(len(update.iters))]
    outer = [name[k] for k in (*kept[:-1], *reduced[:-1])]
    column, row = name[kept[-1]], name[reduced[-1]]
    cb, cc, co, ci, ro, ri = free_names(s, "cb", "cc", "co", "ci", "ro", "ri")
    if block and (n is None or n > block):
        s = s.split(column, block, into=(cb, cc))
        outer, column = [cb, *outer], cc
    s = s.split(row, rows, into=(ro, ri)).split(column, unroll * width, into=(co, ci))
    s = s.reorder(*outer, ro, co, ri, ci)
    made = structure.attempt(s, "cache_write", update.stage, "local", at=co)
    before = set(s.axes)
    for copy in [a for a in made.axes if a not in before]:
        made = structure.attempt(made, "vectorize", copy, width=width)
    return made.vectorize(ci, width=width).unroll(ri)


def _outermost(s: Schedule, update: Statement) -> str:
    return structure.loops_of(s, update)[0]


def update_of(s: Schedule) -> Statement | None:
    """The update of a lone reduction, or None."""
    statements = s.program.statements
    updates = [x for x in statements if x.role == "update"]
    if s.step is not None or len(s.stages) != 1 or len(updates) != 1:
        return None
    if not all(structure.plain(x) and x.role != "compute" for x in statements):
        return None
    if pooling_of(s) is not None:
        return None  # windows overlap, or a channel's rows are one
    (update,) = updates
    inputs = [r for r in update.reads if r.array.role == "input"]
    if not inputs or (not _last(update).reduce and len(update.writes) > 1):
        return None
    # of several inputs each must be walked through alike: a product of two is another family
    whole = {r.affine for r in inputs}
    axis = _last(update)
    one = len(whole) == 1 and structure.neighbours(update, axis)
    return update if one and inputs[0].affine and inputs[0].affine[-1].coef(axis) == 1 else None


def _last(update: Statement) -> Axis:
    """The iterator that is the last index of what is read."""
    for r in update.reads:
        if r.array.role == "input" and r.affine:
            for a in update.iters:
                if r.affine[-1].coef(a) == 1:
                    return a
    return update.iters[-1]


@register("reduce", lambda s: update_of(s) is not None)
def _reduce_for(s: Schedule, target: Target) -> Schedule:
    return reduce(s, target)
