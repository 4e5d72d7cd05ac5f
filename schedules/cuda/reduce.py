"""Reductions: along rows across the threads of a warp or a block, or down columns."""

from __future__ import annotations

from schedules.cpu import structure
from schedules.cpu.reduce import update_of
from schedules.cuda import steps
from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import cuda
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.ir.updates import combined
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

SHORT = 2048  # rows of at most so many elements are a warp's
HIGH = 8  # rows of a block in which warps have one each; of partial sums down columns
LEAST = 32  # shorter rows are better off with a thread each
PIECES, THREADS = 128, 128  # blocks of one result, at most, and their threads


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The one parameter of :func:`reduce`: how many threads of a block share a long row."""
    del target, itemsize
    return (Param("threads", (64, 128, 256, 512), 256),)


def reduce(s: Schedule, target: Target | None = None, **given: int) -> Schedule:
    """Schedule one reduction of whatever is computed of elements.

    A short row is a warp's, a long one a block's; one result of very many elements is computed in
    two launches, by blocks and of what those have. Down columns threads have a column each.

    Parameters
    ----------
    s
        The schedule of the reduction, as declared: its elements are neighbours in memory along
        the last axis that is reduced, or along the last that is kept.
    target
        The GPU; the schedule is the same for all of them.
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
    >>> s = reduce(tir.schedule(tir.ops.sum(x, axis=1, name="y")))
    >>> [step.text for step in s.trace.steps][-1]
    'cross_thread("y.rt")'
    """
    x = _update(s)
    if x is None:
        raise ArgumentError(
            "reduce: expected one reduction of elements that are neighbours along its last axis"
        )
    where = cuda.target("cuda") if target is None else target
    count = resolve_params(params(where), given)["threads"]
    kept = [structure.axis_name(s, x, k) for k, a in enumerate(x.iters) if not a.reduce]
    if not x.iters[-1].reduce or not structure.along_rows(x, 0):
        return _columns(s, x)
    s, first = structure.flat(s, x, len(kept))
    n = structure.points(x, first)
    each = steps.vector(n if kept else 0, x)
    if not kept:
        return _one(s, x, n, each)
    return _rows(s, x, kept, n, each, count)


def _rows(
    s: Schedule, x: Statement, kept: list[str], n: int | None, each: int, count: int
) -> Schedule:
    loop = structure.loops_of(s, x)[-1]
    most = steps.WARP if n is not None and n <= SHORT else count
    count, each = steps.fitting(n, each, most)
    row = kept[-1]
    if count == steps.WARP:
        outer, row = free_names(s, "rows", "row")
        s = s.split(kept[-1], HIGH, into=(outer, row))
        kept = [*kept[:-1], outer]
    s = steps.blocks(s, kept)
    if count == steps.WARP:
        s = s.bind(row, "threadIdx.y")
    return steps.across(s, x, loop, row, count, each)


def _one(s: Schedule, x: Statement, n: int | None, each: int) -> Schedule:
    """One result: partial ones by threads of many blocks, of those by one block, and the last."""
    count = PIECES * THREADS
    while n is not None and count > THREADS and count * each * 2 > n:
        count //= 2
    if count == THREADS:
        count, each = steps.fitting(n, each, count)
    loop = structure.loops_of(s, x)[-1]
    s, last = _partial(s, x, loop, count, each)
    if count <= THREADS:
        return s.cross_thread(last)
    y = next(y for y in s.program.statements if y.stage == x.stage and y.role == "update")
    s, last = _partial(s, y, last, THREADS, 1)
    return s.cross_thread(last)


def _partial(s: Schedule, x: Statement, loop: str, count: int, each: int) -> tuple[Schedule, str]:
    """A launch of so many threads with a partial result each, and the loop over those."""
    bare = loop.rpartition(".")[2]
    ro, rest, thread, own, block, t, part = free_names(
        s, f"{bare}o", f"{bare}r", f"{bare}t", f"{bare}v", "block", "thread", f"{x.stage}_part"
    )
    s = s.split(loop, count * each, into=(ro, rest)).split(rest, each, into=(thread, own))
    s = s.rfactor(thread, into=part).reorder(thread, ro, own)
    s = structure.attempt(s, "merge", f"{part}.init.{thread}", thread)
    s = structure.attempt(s, "unroll", own)
    s = s.split(thread, THREADS, into=(block, t)).bind(block, "blockIdx.x").bind(t, "threadIdx.x")
    return s, f"{x.stage}.{thread}"


def _columns(s: Schedule, x: Statement) -> Schedule:
    """A warp of columns, several partial results of each."""
    kept = [structure.axis_name(s, x, k) for k, a in enumerate(x.iters) if not a.reduce]
    reduced = [structure.axis_name(s, x, k) for k, a in enumerate(x.iters) if a.reduce]
    block, thread, ro, rt, part = free_names(s, "columns", "column", "ro", "rt", f"{x.stage}_part")
    n = structure.extent(x.iters[[a.reduce for a in x.iters].index(True)])
    s = s.split(kept[-1], steps.WARP, into=(block, thread))
    lead = kept[:-1]
    s = steps.blocks(s.reorder(block, *lead, thread, *reduced), [block, *lead])
    if n is not None and n < 2 * HIGH:
        return s.bind(thread, "threadIdx.x")
    s = s.split(reduced[0], HIGH, into=(ro, rt)).reorder(rt, thread, ro)
    s = s.rfactor(rt, into=part, at=lead[-1] if lead else block).set_scope(part, "shared")
    s = s.bind(rt, "threadIdx.y").bind(thread, "threadIdx.x")
    for y in s.program.statements:
        if y.stage not in (x.stage, part):
            continue
        for name in structure.loops_of(s, y):
            last = name.rpartition(".")[2]
            if last == thread and name != thread:
                s = structure.attempt(s, "bind", name, "threadIdx.x")
            if last == rt and name != rt and y.stage == part:
                s = structure.attempt(s, "bind", name, "threadIdx.y")
    return s


def _update(s: Schedule) -> Statement | None:
    x = update_of(s)
    if x is None or len(x.writes) != 1 or combined(x.bodies[0]) is None:
        return None
    if x.combiner is None or not x.combiner.commutative or x.combiner.identity is None:
        return None
    kept = [a for a in x.iters if not a.reduce]
    if len(kept) > len(steps.BLOCKS) or x.iters[: len(kept)] != tuple(kept):
        return None
    if any((structure.extent(a) or steps.MOST_BLOCKS + 1) > steps.MOST_BLOCKS for a in kept[1:]):
        return None
    if any(b is None or any(isinstance(i, Axis) for i in b.atoms()) for b in _bounds(x)):
        return None
    rows = x.iters[-1].reduce and structure.along_rows(x, 0)
    n = structure.points(x, len(kept))
    return None if rows and n is not None and n < LEAST else x


def _bounds(x: Statement) -> list[Lin | None]:
    """Of every iterator of a statement."""
    return [b for a in x.iters for b in (a.lower, a.upper)]


@register("reduce", lambda s: _update(s) is not None, kind="cuda")
def _reduce_for(s: Schedule, target: Target) -> Schedule:
    return reduce(s, target)
