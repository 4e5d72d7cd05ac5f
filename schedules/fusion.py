"""Stages computed where they are read, for computations that no hand schedule knows.

Cheap elementwise stages become part of what reads them. A stage of which each outer iteration of
its readers reads its own part is computed there, so that the part stays in a near cache. A stage
that is read at several neighbouring places is computed in blocks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Expr, Op, Var
from tensorir.ir.statement import Access, Array, Statement
from tensorir.poly import tree
from tensorir.poly.tree import Loop
from tensorir.schedule.resolve import free_names, reference
from tensorir.schedule.schedule import Schedule

AGAIN = 6  # operations that may be done again rather than stored and loaded
HEAVY = 10  # what a call of a function of mathematics counts as
ROWS = 32  # of a block of a stencil's producer
LARGE = 1 << 16  # cells that do not stay in a near cache
_LIGHT = (
    "add", "sub", "mul", "fma", "neg", "abs", "min", "max", "cast", "select", "if", "and", "or",
    "not", "eq", "ne", "lt", "le", "gt", "ge", "reinterpret", "fmin", "fmax",
)  # fmt: skip


def inline_elementwise(s: Schedule) -> Schedule:
    """Every stage inlined that is neither an output nor a reduction, and cheap where it is read.

    Read at one place it is computed as often as before; read at several it must be light. What a
    reduction reads again for each of its other axes is not computed there, unless it is a move.
    """
    for stage in s.stages:
        mine = [x for x in s.program.statements if x.stage == stage]
        if len(mine) != 1 or mine[0].role != "compute" or len(mine[0].writes) != 1:
            continue
        array = mine[0].writes[0].array
        readers = [(x, r) for x in s.program.statements for r in x.reads if r.array is array]
        if array.role != "temp" or not readers:
            continue
        work = weight(mine[0])
        if work and any(_repeats(*x) for x in readers):
            continue
        if (len(readers) - 1) * work <= AGAIN and s.check("compute_inline", stage):
            s = s.compute_inline(stage)
    return s


def weight(x: Statement) -> int:
    """Operations of one instance, those that take long more than once."""
    return sum(_weight(b) for b in x.bodies)


def _weight(e: Expr) -> int:
    if not isinstance(e, Op):
        return 0
    own = 0 if e.name == "cast" else 1 if e.name in _LIGHT else HEAVY
    return own + sum(map(_weight, e.args))


def _repeats(x: Statement, r: Access) -> bool:
    """Whether a reduction reads one cell in several of its iterations."""
    if x.role != "update":
        return False
    used = {a for e in r.index if isinstance(e, Lin) for a in e.atoms()}
    return any(a not in used and not _single(a) for a in x.iters)


def _single(a: Axis) -> bool:
    if a.lower is None or a.upper is None:
        return False
    n = a.upper - a.lower
    return n.is_const and n.const <= 1


def fuse(s: Schedule, stages: Sequence[str]) -> Schedule:
    """Those of `stages` that only others of them read, computed in their loops; last ones first."""
    for stage in reversed(stages):
        arrays = _private(s, stage)
        if arrays is None:
            continue
        readers = [
            (x, r) for x in s.program.statements for r in x.reads
            if r.array in arrays and x.stage != stage
        ]  # fmt: skip
        if not readers or any(x.stage not in stages for x, _ in readers):
            continue
        s = _in_rows(s, stage, readers)
    return s


def _private(s: Schedule, stage: str) -> tuple[Array, ...] | None:
    """The arrays that a stage makes, if none is an output and it is in a nest of its own."""
    mine = [x for x in s.program.statements if x.stage == stage]
    made = tuple(dict.fromkeys(w.array for x in mine for w in x.writes))
    others = {
        loop.axis
        for x in s.program.statements
        if x.stage != stage
        for loop in tree.loops_of(s.program.tree, x.name)
    }
    own = [loop.axis for x in mine for loop in tree.loops_of(s.program.tree, x.name)]
    if any(a.role != "temp" for a in made) or any(a in others for a in own):
        return None
    return made


def _in_rows(s: Schedule, stage: str, readers: list[tuple[Statement, Access]]) -> Schedule:
    """A stage in the innermost loop of its readers that alone reads what it makes there."""
    nests = [tree.loops_of(s.program.tree, x.name) for x, _ in readers]
    shared = _common(nests)
    # the innermost loop of each reader is left to lanes, and so are those of a reduction
    shared = shared[: min(len(n) for n in nests) - 1]
    depth = 0
    for loop in shared:
        if loop.axis.reduce or loop.kind != "serial":
            break
        places = {_place(s, x, r, loop.axis) for x, r in readers}
        place = places.pop()
        if places or place is None or _in_lanes(s, stage, readers, loop.axis, place[0]):
            break
        depth += 1
    if depth:
        at = reference(s.program, shared[depth - 1].axis)
        return s.compute_at(stage, at) if s.check("compute_at", stage, at) else s
    return _in_blocks(s, stage, readers, shared)


def _common(nests: list[list[Loop]]) -> list[Loop]:
    """The loops that all nests share."""
    out = []
    for level in zip(*nests, strict=False):
        if any(x.axis is not level[0].axis for x in level):
            break
        out.append(level[0])
    return out


def _place(s: Schedule, x: Statement, r: Access, axis: Axis) -> tuple[int, Lin] | None:
    """The one dimension of a read that a loop moves, and by what, where it moves it alone."""
    found = None
    for d, e in enumerate(r.index):
        if not isinstance(e, Lin):
            return None
        at = moved(s, x, e)
        if not at.involves(axis):
            continue
        if found is not None or at.coef(axis) != 1 or not (at - Lin({axis: 1})).is_const:
            return None
        found = (d, at)
    return found


def moved(s: Schedule, x: Statement, e: Lin) -> Lin:
    """An expression of a statement's iterators over its loops as they are now."""
    values: dict[Axis | Var, Lin] = dict(s.program.placements[x.name].index.items())
    return e.subst(values)


def _in_lanes(
    s: Schedule, stage: str, readers: list[tuple[Statement, Access]], axis: Axis, d: int
) -> bool:
    """Whether a loop, dimension `d` of what a stage makes, goes along contiguous memory."""
    made = [r.array for _, r in readers]
    for x in s.program.statements:
        if x.stage == stage and x.writes[0].exact:
            own = x.writes[0].affine[d]
            for r in x.reads:
                last = r.index[-1] if r.index and r.array not in made else None
                if isinstance(last, Lin) and any(last.involves(a) for a in own.atoms()):
                    return True
    for x, _ in readers:
        for r in x.reads:
            last = r.index[-1] if r.index and r.array not in made else None
            if isinstance(last, Lin) and moved(s, x, last).involves(axis):
                return True
    return False


def _in_blocks(
    s: Schedule, stage: str, readers: list[tuple[Statement, Access]], shared: list[Loop]
) -> Schedule:
    """A large stage whose readers go along its rows at a few distances: a block of rows each."""
    main = readers[0][0]
    if not shared or shared[0].axis.reduce or shared[0].kind != "serial":
        return s
    axis = shared[0].axis
    places = [_place(s, x, r, axis) for x, r in readers]
    made = readers[0][1].array
    if any(p is None for p in places) or len({p[0] for p in places if p}) != 1:
        return s
    cells = 1
    for e in made.shape:
        cells *= e.const if e.is_const else LARGE
    spread = [p[1].const for p in places if p]
    if cells < LARGE or max(spread) - min(spread) > ROWS // 4 or main.role != "compute":
        return s
    name = reference(s.program, axis)
    bare = axis.name.rpartition(".")[2]
    outer, inner = free_names(s, f"{bare}o", f"{bare}i")
    split = s.split(name, ROWS, into=(outer, inner))
    return split.compute_at(stage, outer) if split.check("compute_at", stage, outer) else s
