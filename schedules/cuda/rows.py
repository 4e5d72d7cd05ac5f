"""Row programs: one block a row, statistics combined across its threads, the row in registers.

Softmax, the norms, log-sum-exp. Every stage of a row deals its elements out to the same threads,
so that what one computes for the next stays in its registers; only the statistics, one number each,
go through shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu import structure
from schedules.cpu.rows import row_program
from schedules.cuda import steps
from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import cuda
from tensorir.ir.statement import Array, Statement
from tensorir.ir.target import Target
from tensorir.ir.updates import combined
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

KEPT = 16  # elements of a row that a thread keeps in registers
LEAST = 32  # shorter rows are better off with a thread each
ROOM = 40 * 1024  # bytes of longer rows that a block keeps in shared memory


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The one parameter of :func:`rows`: how many threads a block has at most."""
    del target, itemsize
    return (Param("threads", (32, 64, 128, 256, 512), 256),)


def rows(s: Schedule, target: Target | None = None, **given: int) -> Schedule:
    """Schedule stages that all work on one row of their result, a block for each row.

    Parameters
    ----------
    s
        The schedule of such stages, as declared: each reads what others make of the same row, and
        reduces over the end of what it reads.
    target
        The GPU; the schedule is the same for all of them.
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
    >>> s = rows(tir.schedule(tir.ops.rms_norm(x, name="y")))
    >>> [step.text for step in s.trace.steps][:2]
    ['compute_at("y_mean", "y.i")', 'cache_read("x", at="y.i", name="x_row")']
    >>> next(step.text for step in s.trace.steps if step.primitive == "cross_thread")
    'cross_thread("y_mean.rt_1")'
    """
    found = _rows_of(s)
    if found is None:
        raise ArgumentError("rows: expected several stages, all on one row of the last of them")
    where = cuda.target("cuda") if target is None else target
    result, depth = found
    most = resolve_params(params(where), given)["threads"]
    for x in _too_long(s, depth):
        s = s.compute_inline(x.stage)
    stages = s.stages
    wide = [x for x in s.program.statements if _wide(x, depth)]
    n = _length(wide, depth)
    each = min(steps.vector(structure.extent(x.iters[-1]), x) for x in wide)
    count, each = steps.fitting(n, each, most)
    deal = _Deal(depth, count, each, n is not None and n <= KEPT * count)
    row = structure.axis_name(s, result, depth - 1)
    leading = [structure.axis_name(s, result, k) for k in range(depth)]
    for stage in [x for x in reversed(stages) if x != result.stage]:
        s = s.compute_at(stage, row)
    if deal.keep:
        s = _inputs(s, wide, row, deal)
    for array, buffer in s.program.buffers.items():
        if buffer.outside and buffer.scope != "local":
            private = deal.keep and not structure.one_cell(array, depth)
            s = s.set_scope(array.name, "local" if private else "shared")
    s = steps.blocks(s, leading)
    for stage in stages:
        main = structure.main(s.program, stage)
        if main.role == "update":
            s, _ = structure.flat(s, main, depth)
            loop = structure.loops_of(s, main)[-1]
            s = steps.across(s, main, loop, row, count, each, unroll=deal.keep)
        elif _wide(main, depth):
            s, _ = structure.flat(s, main, depth)
            s = _elements(s, structure.loops_of(s, main)[-1], deal)
    return s


@dataclass(frozen=True, slots=True)
class _Deal:
    """How rows after `depth` axes are dealt out: to `count` threads, `each` elements at a time.

    `keep` says that what a thread has of a row fits into its registers.
    """

    depth: int
    count: int
    each: int
    keep: bool


def _elements(s: Schedule, loop: str, deal: _Deal) -> Schedule:
    """The elements of a row, dealt out like those that a reduction reads."""
    s, outer, thread, own = steps.dealt(s, loop, deal.count, deal.each)
    s = s.bind(thread, "threadIdx.x")
    s = structure.attempt(s, "vectorize", own) if deal.each > 1 else s
    return structure.attempt(s, "unroll", outer) if deal.keep else s


def _inputs(s: Schedule, wide: list[Statement], row: str, deal: _Deal) -> Schedule:
    """Rows of inputs that several stages read are loaded once."""
    readers: dict[Array, set[str]] = {}
    for x in wide:
        for r in x.reads:
            if r.array.role == "input" and len(r.index) == deal.depth + 1:
                readers.setdefault(r.array, set()).add(x.stage)
    for array, stages in readers.items():
        if len(stages) < 2:
            continue
        (name,) = free_names(s, f"{array.name}_row")
        made = structure.attempt(s, "cache_read", array.name, at=row, name=name)
        if made is s:
            continue
        copy = next(x for x in made.program.statements if x.stage == name)
        made = _elements(made, structure.loops_of(made, copy)[-1], deal)
        s = made.set_scope(name, "local")
    return s


def _wide(x: Statement, depth: int) -> bool:
    """Whether a statement does something for each element of a row."""
    return x.role in ("compute", "update", "finish") and structure.points(x, depth) != 1


def _length(wide: list[Statement], depth: int) -> int | None:
    """The elements of a row, where all statements go along rows of as many."""
    found = {structure.points(x, depth) for x in wide}
    return found.pop() if len(found) == 1 else None


def _one_loop(s: Schedule, x: Statement, depth: int) -> bool:
    """Whether the elements of a row are one loop, or can be made one."""
    inner = x.iters[depth:]
    if sum(structure.extent(a) != 1 for a in inner) <= 1:
        return structure.extent(inner[-1]) != 1
    _, first = structure.flat(s, x, depth)
    return all(structure.extent(a) == 1 for a in x.iters[depth:first])


def _rows_of(s: Schedule) -> tuple[Statement, int] | None:
    """The result and how many leading axes tell its row, of what this can do."""
    found = row_program(s)
    if found is None or found[1] > len(steps.BLOCKS):
        return None
    result, depth = found
    wide = [x for x in s.program.statements if _wide(x, depth)]
    if not all(_one_loop(s, x, depth) for x in wide):
        return None
    if not wide or any((structure.points(x, depth) or LEAST) < LEAST for x in wide):
        return None
    for x in s.program.statements:
        if x.role != "update":
            continue
        whole = len(x.writes) == 1 and combined(x.bodies[0]) is not None
        if not whole or x.combiner is None or not x.combiner.commutative:
            return None
    for k in range(1, depth):
        n = structure.extent(result.iters[k])
        if n is None or n > steps.MOST_BLOCKS:
            return None
    again = _too_long(s, depth)
    return found if all(s.check("compute_inline", x.stage) for x in again) else None


def _too_long(s: Schedule, depth: int) -> list[Statement]:
    """The statements whose rows are more than a block keeps together: what they compute is computed
    again where it is read."""
    found, left = [], ROOM
    for x in s.program.statements:
        array = x.writes[0].array
        if array.role == "temp" and x.role == "compute" and not structure.one_cell(array, depth):
            left -= _bytes(array, depth)
            if left < 0:
                found.append(x)
    return found


def _bytes(array: Array, depth: int) -> int:
    """What a row of an array takes; too much where that is not known."""
    cells = array.dtype.bytes
    for e in array.shape[depth:]:
        cells *= e.const if e.is_const else ROOM + 1
    return cells


@register("rows", lambda s: _rows_of(s) is not None, kind="cuda")
def _rows_for(s: Schedule, target: Target) -> Schedule:
    return rows(s, target)
