"""Reductions: along rows in lanes, or down columns with whole rows streamed through."""

from __future__ import annotations

from schedules.cpu import structure
from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import cpu
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

_LEAST_WORK = 1 << 19  # elements below which a second thread costs more than it does


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The parameters of :func:`reduce` for a target.

    Along rows a result has `accumulators` vectors. Down columns `rows` rows are added to the
    results at a time, `unroll` vectors of columns after each other.
    """
    del target, itemsize
    return (
        Param("accumulators", (1, 2, 4, 8), 8),
        Param("rows", (1, 2, 4, 8, 16), 8),
        Param("unroll", (1, 2, 4), 2),
    )


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
    >>> s = reduce(tir.schedule(tir.ops.sum(x, axis=0)), "x86-64-v4", parallel=False)
    >>> print(s.loops())
    """
    update = _update(s)
    if update is None:
        raise ArgumentError(
            "reduce: expected one reduction of elements that are neighbours along its last axis"
        )
    where = cpu.target("native" if target is None else target)
    p = resolve_params(params(where), given)
    declared = s.program.statements
    if update.iters[-1].reduce and structure.along_rows(update, 0):
        tuples = len(update.writes) > 1  # whose lanes are combined one by one
        s = structure.reduce_in_lanes(
            s, update, structure.lanes(where, update), 1 if tuples else p["accumulators"]
        )
    else:
        s = _down_columns(s, update, where, p["rows"], p["unroll"])
    if parallel and structure.worth(declared, _LEAST_WORK):
        s = _in_threads(s, update)
    return s


def _down_columns(
    s: Schedule, update: Statement, target: Target, rows: int, unroll: int
) -> Schedule:
    """Some rows at a time are added to results that are loaded and stored once for all of them."""
    kept = [k for k, a in enumerate(update.iters) if not a.reduce]
    reduced = [k for k, a in enumerate(update.iters) if a.reduce]
    width = structure.lanes(target, update)
    n, depth = structure.extent(update.iters[kept[-1]]), structure.extent(update.iters[reduced[-1]])
    if n is not None and n < width:
        return s
    while depth is not None and rows > depth:
        rows //= 2
    name = [structure.axis_name(s, update, k) for k in range(len(update.iters))]
    column, row = name[kept[-1]], name[reduced[-1]]
    ro, ri, co = free_names(s, "ro", "ri", "co")
    ci = free_names(s, "ci")[0]
    s = s.split(row, max(1, rows), into=(ro, ri)).split(column, unroll * width, into=(co, ci))
    outer = [name[k] for k in (*kept[:-1], *reduced[:-1])]
    s = s.reorder(*outer, ro, co, ri, ci)
    made = structure.attempt(s, "cache_write", update.stage, "local", at=co)
    if made is not s:
        for copy in made.axes:
            if copy not in s.axes and not copy.reduce:
                made = structure.attempt(made, "vectorize", copy, width=width)
    return made.vectorize(ci, width=width).unroll(ri)


def _in_threads(s: Schedule, update: Statement) -> Schedule:
    return structure.attempt(s, "parallel", structure.loops_of(s, update)[0])


def _update(s: Schedule) -> Statement | None:
    """The update of a lone reduction, or None."""
    statements = s.program.statements
    updates = [x for x in statements if x.role == "update"]
    if s.step is not None or len(s.stages) != 1 or len(updates) != 1:
        return None
    if not all(structure.plain(x) and x.role != "compute" for x in statements):
        return None
    (update,) = updates
    inputs = [r for r in update.reads if r.array.role == "input"]
    if not inputs or not _last(update).reduce and len(update.writes) > 1:
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


@register("reduce", lambda s: _update(s) is not None)
def _reduce_for(s: Schedule, target: Target) -> Schedule:
    return reduce(s, target)
