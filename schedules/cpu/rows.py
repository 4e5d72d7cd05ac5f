"""Row programs: several stages over each row of a tensor, done for one row after the other.

Softmax, the norms, log-sum-exp: statistics of a row (reductions over its end), rows computed from
them, and a result. A row stays in the first cache between its passes, what is computed of it in a
scratch row; the next row is fetched while this one is computed with; and a result that exceeds the
last cache is streamed past it.
"""

from __future__ import annotations

from schedules.cpu import structure
from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

_LEAST_WORK = 1 << 18  # elements below which a second thread costs more than it does


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The parameters of :func:`rows` for a target.

    A reduction has `accumulators` vectors, which hide the latency of one; other passes do `unroll`
    vectors at a time. `ahead` is how many rows ahead inputs are fetched.
    """
    del target, itemsize
    return (
        Param("accumulators", (1, 2, 4, 8), 8),
        Param("unroll", (1, 2, 4), 2),
        Param("ahead", (0, 1, 2), 1),
    )


@by_hand
def rows(
    s: Schedule, target: str | Target | None = None, *, parallel: bool = True, **given: int
) -> Schedule:
    """Schedule stages that all work on one row of their result.

    Parameters
    ----------
    s
        The schedule of such stages, as declared: each reads what others make of the same row, and
        reduces over the end of what it reads.
    target
        The processor; this one by default.
    parallel
        Whether rows are shared out among threads.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is no such program.

    Examples
    --------
    >>> import tensorir as tir
    >>> x = tir.placeholder((64, 1000), name="x")
    >>> s = rows(tir.schedule(tir.ops.rms_norm(x, name="y")), parallel=False)
    >>> [step.text for step in s.trace.steps][:2]
    ['compute_at("y_mean", "y.i")', 'set_scope("y_mean", "local")']
    """
    found = row_program(s)
    if found is None:
        raise ArgumentError("rows: expected several stages, all on one row of the last of them")
    result, depth = found
    where = cpu.target("native" if target is None else target)
    p = resolve_params(params(where), given)
    declared = s.program.statements
    stages = s.stages
    # what a row needs is computed where the row is, and one number of it in a register
    row = structure.axis_name(s, result, depth - 1)
    for stage in [x for x in reversed(stages) if x != result.stage]:
        s = s.compute_at(stage, row)
    for array, buffer in s.program.buffers.items():
        if buffer.outside and structure.one_cell(array, depth):
            s = s.set_scope(array.name, "local")
    for stage in stages:
        main = structure.main(s.program, stage)
        lanes = structure.lanes(where, main)
        if main.role == "update":
            s = structure.reduce_in_lanes(s, main, lanes, p["accumulators"])
        elif len(main.iters) > depth:
            s = structure.in_vectors(s, main, depth, lanes, p["unroll"])
    if len(result.iters) > depth:
        s = structure.stream(s, result.writes[0].array, where)
    if p["ahead"]:
        s = _fetch(s, result, row, p["ahead"])
    if parallel and structure.worth(declared, _LEAST_WORK):
        s = s.parallel(structure.axis_name(s, result, 0))
    return s


def _fetch(s: Schedule, result: Statement, row: str, ahead: int) -> Schedule:
    """Fetch inputs some rows ahead, in the pass with most to compute before the result."""
    now = s.program.statements
    arrays = dict.fromkeys(r.array for x in now for r in x.reads if r.array.role == "input")
    for array in arrays:
        readers = [x for x in now if any(r.array is array for r in x.reads)]
        passes = [x for x in readers if x.name != result.name] or readers
        best = max(passes, key=structure.weight)
        s = structure.attempt(s, "prefetch", array.name, row, ahead, reader=best.stage)
    return s


def row_program(s: Schedule) -> tuple[Statement, int] | None:
    """The statement of the result, and how many leading axes tell its row; None if there is none.

    Everything between stages is of one row: leading indices are those of the reader.
    """
    statements = s.program.statements
    outputs = [x for x in statements if any(w.array.role == "output" for w in x.writes)]
    if s.step is not None or len(outputs) != 1 or len(s.stages) < 2:
        return None
    result = outputs[0]
    if result.role not in ("compute", "finish"):
        return None
    depth = len(result.writes[0].index)
    for x in statements:
        if not structure.plain(x):
            return None
        for r in x.reads:
            if r.array.role == "temp" and not any(w.array is r.array for w in x.writes):
                depth = min(depth, structure.shared_rows(x, r))
    wide = [x for x in statements if len(x.iters) > depth]
    if depth < 1 or not wide:
        return None
    for x in wide:
        if x.role in ("update", "compute") and not structure.along_rows(x, depth):
            return None
    reads = [r for x in statements for r in x.reads if r.array.role == "input"]
    whole = [r for r in reads if len(r.index) > depth]
    if not whole or not any(x.role == "update" for x in statements):
        return None
    return result, depth


@register("rows", lambda s: row_program(s) is not None)
def _rows_for(s: Schedule, target: Target) -> Schedule:
    return rows(s, target)
