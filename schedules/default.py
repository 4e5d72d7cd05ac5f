"""A correct, decent schedule for anything.

Cheap elementwise stages are fused into their readers, products get the tiles of the hand schedules
with what follows them done on each tile, other stages are computed where they are read. A reduction
gets a register tile of vectors, or, along contiguous memory, vector lanes of partial results; the
innermost axis runs in vectors; the outermost on all threads where there is enough to do.
"""

from __future__ import annotations

from schedules.cpu.contraction import contraction
from schedules.cpu.matmul import product_with
from schedules.fusion import fuse, inline_elementwise, moved, weight
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.poly import tree
from tensorir.schedule.resolve import free_names, reference
from tensorir.schedule.schedule import Schedule

# Below this many operations a second thread costs more than it does (microseconds of start-up).
PARALLEL_WORK = 200_000
ROWS = 4  # rows of a register tile
VECTORS = 2  # vectors of a register tile
PRODUCT = 4096  # multiplications that are worth the tiles of a product


def default_schedule(s: Schedule, target: Target) -> Schedule:
    """The default schedule of a fresh schedule `s`, each step kept only where it is legal."""
    s = inline_elementwise(s)
    declared = s.stages
    s, done = _products(s, target)
    rest = [x for x in declared if x not in done]
    s = fuse(s, rest)
    for stage in rest:
        main = s.program.stmt(stage)
        if any(x.kind == "vectorize" for x in tree.loops_of(s.program.tree, main.name)):
            continue
        if main.role == "update":
            s = _reduction(s, main, target)
        else:
            s = _elementwise(s, main, target)
    return s


def _products(s: Schedule, target: Target) -> tuple[Schedule, tuple[str, ...]]:
    """Sums of products in the tiles of the hand schedules, each with the stage that reads it."""
    done: list[str] = []
    for stage in s.stages if len(s.stages) > 1 else ():
        c = contraction(s, stage)
        work = None if c is None else c.size(*c.sizes)
        if c is None or not c.rows or (work is not None and work < PRODUCT):
            continue
        mine = {w.array for x in s.program.statements if x.stage == stage for w in x.writes}
        after = {
            x.stage: None for x in s.program.statements for r in x.reads if r.array in mine
        }  # fmt: skip
        after.pop(stage, None)
        s, fused = product_with(s, c, target, next(iter(after)) if len(after) == 1 else None)
        done += [stage, *fused]
    return s, tuple(done)


def _elementwise(s: Schedule, main: Statement, target: Target) -> Schedule:
    axes = [x.axis for x in tree.loops_of(s.program.tree, main.name)]
    if not axes:
        return s
    inner = _contiguous(s, main, axes)
    if inner is not None and not _scattered(s, main, inner):
        s = _vectorize(s, inner, _lanes(main, target))
    return _parallel(s, main)


def _reduction(s: Schedule, main: Statement, target: Target) -> Schedule:
    loops = [x.axis for x in tree.loops_of(s.program.tree, main.name)]
    spatial = [a for a in loops if not a.reduce]
    reduce = [a for a in loops if a.reduce]
    lanes = _lanes(main, target)
    inner = _contiguous(s, main, spatial)
    along = reduce[-1] if reduce and _stride_one(s, main, reduce[-1]) else None
    wide = inner is not None and _stride_one(s, main, inner)
    if along is not None and not wide:
        name = reference(s.program, along)
        if s.check("vector_reduce", name, lanes):
            s = s.vector_reduce(name, lanes)
    elif inner is not None and _extent(inner) not in (0, 1):
        s = _register_tile(s, main, spatial, reduce, lanes)
    return _parallel(s, main)


def _register_tile(
    s: Schedule, main: Statement, spatial: list[Axis], reduce: list[Axis], lanes: int
) -> Schedule:
    """Tile the last two spatial axes, run the reduction outside the tile, keep it in registers."""
    few = _extent(spatial[-1])
    columns = lanes * (VECTORS if few is None or few >= VECTORS * lanes else 1)
    if few is not None and few < lanes:
        return s
    ro, ri = _halves(s, spatial[-1])
    tiled = s.split(reference(s.program, spatial[-1]), columns, into=(ro, ri))
    tile, rows = [ri], None
    if len(spatial) > 1 and (_extent(spatial[-2]) or ROWS) >= ROWS:
        outer, rows = _halves(tiled, spatial[-2])
        tiled = tiled.split(reference(s.program, spatial[-2]), ROWS, into=(outer, rows))
        tile = [rows, ri]
        # first the tile alone, so that the initial value stays inside it
        if not tiled.check("reorder", outer, ro, *tile):
            return _vectorize(s, spatial[-1], lanes)
        tiled = tiled.reorder(outer, ro, *tile)
    order = [*(reference(tiled.program, r) for r in reduce), *tile]
    if not tiled.check("reorder", *order):
        return _vectorize(s, spatial[-1], lanes)
    tiled = tiled.reorder(*order)
    if tiled.check("cache_write", main.stage, "local", at=ro):
        before = set(tiled.axes)
        tiled = tiled.cache_write(main.stage, "local", at=ro)
        # copies between the tile and memory run along the same axis
        for copy in tiled.axes:
            if copy not in before and copy.name.endswith(f".{spatial[-1].name}"):
                tiled = tiled.vectorize(copy, width=lanes)
    if rows is not None and tiled.check("unroll", rows):
        tiled = tiled.unroll(rows)
    if not tiled.check("vectorize", ri, width=lanes):
        return s
    return tiled.vectorize(ri, width=lanes)


def _halves(s: Schedule, axis: Axis) -> tuple[str, ...]:
    bare = axis.name.rpartition(".")[2]
    return free_names(s, f"{bare}_o", f"{bare}_i")


def _vectorize(s: Schedule, axis: Axis, lanes: int) -> Schedule:
    extent = _extent(axis)
    if extent is not None and extent < lanes:
        return s
    name = reference(s.program, axis)
    return s.vectorize(name, width=lanes) if s.check("vectorize", name, width=lanes) else s


def _parallel(s: Schedule, main: Statement) -> Schedule:
    """The outermost loop of a stage on all threads, where the work is worth it or not known."""
    loops = tree.loops_of(s.program.tree, main.name)
    if not loops or loops[0].kind != "serial" or loops[0].axis.reduce:
        return s
    work = _work(main)
    if work is not None and work < PARALLEL_WORK:
        return s
    name = reference(s.program, loops[0].axis)
    return s.parallel(name) if s.check("parallel", name) else s


def _work(main: Statement) -> int | None:
    """Operations of all instances, about; None with symbolic sizes."""
    total = 1
    for a in main.iters:
        extent = _extent(a)
        if extent is None:
            return None
        total *= extent
    return total * (1 + weight(main))


def _extent(a: Axis) -> int | None:
    """The extent of a declared axis where it is constant."""
    if a.lower is None or a.upper is None:
        return None
    n = a.upper - a.lower
    return max(n.const, 0) if n.is_const else None


def _contiguous(s: Schedule, main: Statement, axes: list[Axis]) -> Axis | None:
    """The last of `axes`, if it is the last index of what is written."""
    if not axes or not main.writes[0].index:
        return None
    last = moved(s, main, main.writes[0].affine[-1])
    return axes[-1] if last.coef(axes[-1]) == 1 else None


def _scattered(s: Schedule, main: Statement, axis: Axis) -> bool:
    """Whether all that a statement does is to gather along an axis: lanes gain nothing."""
    last = [moved(s, main, e) for r in main.reads if r.index and isinstance(e := r.index[-1], Lin)]
    return weight(main) <= 1 and any(e.involves(axis) and not e.coef(axis) for e in last)


def _stride_one(s: Schedule, main: Statement, axis: Axis) -> bool:
    """Whether some read runs along contiguous memory with `axis`."""
    last = [r.index[-1] for r in main.reads[len(main.writes) :] if r.index]
    return any(isinstance(e, Lin) and moved(s, main, e).coef(axis) == 1 for e in last)


def _lanes(main: Statement, target: Target) -> int:
    """Lanes of the widest element that the statement touches."""
    touched = (*main.writes, *main.reads)
    return min(target.lanes(a.array.dtype) for a in touched)
