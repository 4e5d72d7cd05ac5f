"""Where a stage is computed: at a loop of its consumers, in their bodies, in loops of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array, Statement
from tensorir.poly import access, regions, tree
from tensorir.poly.isl import Map
from tensorir.poly.model import Placement, Program
from tensorir.poly.relation import access_map, domain_set
from tensorir.poly.tree import Loop
from tensorir.schedule import copies, resolve, rewrite
from tensorir.schedule.explain import accepted, fix, require_marks
from tensorir.schedule.inline import inlined
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import IllegalSchedule

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["compute_at", "compute_inline", "compute_root"]


@primitive
def compute_at(s: Schedule, stage: object, axis: str | Axis, *, recompute: bool = True) -> Draft:
    """A stage computed inside a loop of its consumers, just what each iteration needs.

    Needs every consumer inside that loop, a stage that is no output, and none whose cells depend
    on other cells of its own. What several iterations need is computed again by each, and the
    step says so. Init, updates and finish of a reduction go together; the stage's array shrinks
    to what one iteration needs; its loops start afresh and count from where that begins. Others
    call it `compute_at` (Halide, TVM).

    Parameters
    ----------
    stage : str or Tensor
        The stage to move.
    axis : str or Axis
        A loop around all consumers.
    recompute : bool
        False refuses to compute anything twice.

    Raises
    ------
    ScheduleError
        An output, a loop that is not around every consumer, or inputs that are not there yet.
    IllegalSchedule
        `recompute=False`, and iterations share instances; tells one.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((16,), name="A")
    >>> B = tir.compute((16,), lambda x: A[x] + 1.0, name="B")
    >>> C = tir.compute((14,), lambda i: B[i] * B[i + 2], name="C")
    >>> s = tir.schedule(C).split("i", 7)
    >>> print(s.loops())
    for x in 0..16
      B[x] = A[x] + 1.0
    for io in 0..2
      for ii in 0..7
        C[7*io + ii] = B[7*io + ii] * B[7*io + ii + 2]
    >>> print(s.compute_at("B", "io").loops())
    for io in 0..2
      alloc B: float32 in global
      for x in 0..9
        B[7*io + x] = A[7*io + x] + 1.0
      for ii in 0..7
        C[7*io + ii] = B[7*io + ii] * B[7*io + ii + 2]
    """
    what = "compute_at"
    name = resolve.stage(s, stage, primitive=what)
    loop = resolve.axis(s, axis, primitive=what)
    names = _movable(s, name, what)
    consumers = _consumers(s.program, name, names)
    _require_around(s, name, loop, names, consumers)
    stmts = base_statements(s, names, what)
    arrays = rewrite.written(s.program, names)
    outer = rewrite.path_axes(s.program, loop.axis)
    with rewrite.proving(s, what, f"what {name} is needed for"):
        need, more = _need(s, name, stmts, arrays, consumers, loop.axis)
        again = {n: m for n, m in need.items() if not m.is_injective()}
        if again and not recompute:
            _refuse_recompute(s, stmts, again, outer)
        moved = _lifted(s.program, stmts, need, outer)
        begins = _beginnings(s.program, stmts, need, arrays, consumers, outer)
    kept = rewrite.without(s.program.tree, names)
    assert kept is not None
    axes = rewrite.fresh_axes(s, _own(moved, outer), name, _names_gone(s, kept))
    loops: dict[Axis, Axis | None] = {i: _counted(a, begins.get(i)) for i, a in axes.items()}
    item = rewrite.nest_of(moved, loops, len(outer), s.next_number)
    order = rewrite.before(kept, loop.axis, consumers, item)
    placements = dict(s.program.placements)
    for x in moved:
        placements[x.name] = _placed(x, outer, axes, loops, begins)
    buffers = dict(s.program.buffers)
    for a in arrays:
        buffers[a] = replace(buffers[a], outside=outer)
    new = rewrite.assemble(s.program, order, placements, buffers)
    rewrite.require_reach(s, new, names, what)
    rewrite.require_complete(s, new, names, what)
    require_marks(s, new, [*names, *consumers], what)
    return Draft(new, notes=_notes(name, loop, again, more))


@dataclass(frozen=True, slots=True)
class _Beginning:
    """Where the loop over an iterator begins, and whether it has one value only."""

    at: Lin
    point: bool


def _beginnings(
    program: Program,
    stmts: Sequence[Statement],
    need: dict[str, Map],
    arrays: Sequence[Array],
    consumers: Sequence[str],
    outer: tuple[Axis, ...],
) -> dict[Axis, _Beginning]:
    """Where what is needed begins, for the iterators that choose the cell.

    So that a moved loop counts from 0, as a loop over the points of a tile does.
    """
    out: dict[Axis, _Beginning] = {}
    for x in stmts:
        for d, index in enumerate(x.writes[0].index):
            it = next(iter(index.terms), None) if isinstance(index, Lin) else None
            if not isinstance(it, Axis) or it in out or index != Lin({it: 1}):
                continue
            proposed = [
                b for a in arrays for b in copies.candidates(program, outer, a, consumers, d)
            ]
            found = [(need[y.name], k) for y in stmts for k, i in enumerate(y.iters) if i is it]
            begin = copies.beginning(program, found[0][0], found[0][1], outer, proposed)
            if begin is None or not all(
                regions.is_lower(m, k, begin, outer, program) for m, k in found[1:]
            ):
                continue
            read = [a for a in arrays if rewrite.readers(program, a, consumers)]
            point = all(copies.fixed(program, outer, a, consumers, d) for a in read) and all(
                regions.is_upper(m, k, begin, outer, program) for m, k in found
            )
            out[it] = _Beginning(begin, point)
    return out


def _counted(axis: Axis, begin: _Beginning | None) -> Axis | None:
    """The loop that runs an iterator: from 0 where it is known where it begins."""
    if begin is None or begin.at == Lin():
        return axis
    return None if begin.point else Axis(axis.name, reduce=axis.reduce)


def _placed(
    stmt: Statement,
    outer: tuple[Axis, ...],
    axes: dict[Axis, Axis],
    loops: dict[Axis, Axis | None],
    begins: dict[Axis, _Beginning],
) -> Placement:
    own = stmt.iters[len(outer) :]
    p = Placement.fresh(stmt, (*outer, *(axes[i] for i in own)))
    for i in own:
        a, x = axes[i], loops[i]
        if x is a:
            continue
        value = begins[i].at if x is None else begins[i].at + Lin({x: 1})
        p = p.replace_axis(a, () if x is None else (x,), value, (("eq", Lin({a: 1}) - value),))
    return p


def _notes(name: str, loop: Loop, again: dict[str, Map], more: bool) -> tuple[str, ...]:
    notes = []
    if again:
        notes.append(f"what several iterations of {loop.axis.name!r} need of {name} is recomputed")
    if more:
        notes.append(f"{name} is computed on the hull of what is needed, a few cells more")
    return tuple(notes)


def _movable(s: Schedule, name: str, what: str) -> list[str]:
    """The statements of a stage that may be moved."""
    program = s.program
    names = resolve.statements(program, name)
    for array in rewrite.written(program, names):
        if array.role == "output":
            resolve.fail(
                f"{what}: {array.name} is an output",
                why="only intermediate stages are computed for their consumers; an output is "
                "wanted whole.",
            )
    copy = next((n for n in names if program.stmt(n).role == "copy"), None)
    if copy is not None:
        if len(names) == 1:
            resolve.fail(
                f"{what}: {name} is a copy that cache_read made; it stays where it was made",
                why="undo it, and cache at the other loop.",
            )
        kept = next(x.array for x in program.stmt(copy).writes)
        resolve.fail(
            f"{what}: {name} is kept in a buffer of its own ({copy} writes {kept.name})",
            why="place the stage first, then cache what it writes.",
        )
    return names


def _consumers(program: Program, name: str, names: Sequence[str]) -> list[str]:
    arrays = rewrite.written(program, names)
    found = (n for a in arrays for n in rewrite.readers(program, a) if n not in names)
    among = set(found)
    return [n for n in tree.stmts(program.tree) if n in among]


def _require_around(
    s: Schedule, name: str, loop: Loop, names: Sequence[str], consumers: Sequence[str]
) -> None:
    at = resolve.reference(s.program, loop.axis)
    under = set(tree.stmts(loop))
    missing = [n for n in consumers if n not in under]
    if not missing:
        return
    if under <= set(names):
        resolve.fail(
            f"compute_at: {at!r} is a loop of {name} itself",
            why=f"give a loop of a consumer: {' or '.join(dict.fromkeys(consumers))}.",
        )
    around = [a for a in _common_axes(s.program, consumers) if a is not loop.axis]
    wanted = [
        fix(
            "is around every consumer",
            ("compute_at", (name, resolve.reference(s.program, a)), {}),
        )
        for a in reversed(around)
    ]
    if len(missing) == len(consumers):
        line = f"compute_at: nothing inside {at!r} reads {name}; {missing[0]} does, outside of it"
    else:
        line = f"compute_at: {missing[0]} reads {name}, and is not inside {at!r}"
    resolve.fail(
        line,
        why="every consumer must be inside the loop at which a stage is computed.",
        tries=[(f.code, f.effect) for f in accepted(s, wanted)],
    )


def _common_axes(program: Program, names: Sequence[str]) -> tuple[Axis, ...]:
    axes = tree.axes_of(program.tree, names[0])
    for n in names[1:]:
        other = tree.axes_of(program.tree, n)
        axes = tuple(a for a in axes if rewrite.has(other, a))
    return axes


def _need(
    s: Schedule,
    name: str,
    stmts: Sequence[Statement],
    arrays: Sequence[Array],
    consumers: Sequence[str],
    at: Axis,
) -> tuple[dict[str, Map], bool]:
    """The instances of each statement that one iteration needs, and whether a few more come in."""
    program, sizes = s.program, s.program.sizes
    cells: dict[Array, Map] = {}
    for a in arrays:
        if rewrite.readers(program, a, consumers):
            cells[a] = access.footprint(program, a, at, consumers, "reads")[0]
    need: dict[str, Map] = {}
    more = False
    for x in reversed(stmts):
        wanted = regions.needed(x, cells, sizes)
        if wanted is None:
            continue
        wanted, wider = regions.simplest(wanted, domain_set(x, sizes), sizes)
        more = more or wider
        need[x.name] = wanted
        if wider:
            for w in x.writes:
                cells[w.array] = regions.union(
                    cells.get(w.array), wanted.apply_range(access_map(x, w, sizes))
                )
        own = {w.array for w in x.writes}
        for r in x.reads:
            if r.array not in arrays:
                continue
            used = wanted.apply_range(access_map(x, r, sizes))
            if r.array not in own:
                cells[r.array] = regions.union(cells.get(r.array), used)
            elif not regions.inside(used, cells[r.array], program):
                resolve.fail(
                    f"compute_at: {x.name} reads other cells of {r.array.name} than it writes",
                    why="a recurrence needs all that came before; it cannot be computed in parts.",
                )
    return need, more


def _lifted(
    program: Program, stmts: Sequence[Statement], need: dict[str, Map], outer: tuple[Axis, ...]
) -> list[Statement]:
    """Statements with the outer loops as first iterators, restricted to what is needed there."""
    iters = tuple(Axis(a.name) for a in outer)
    out = []
    for x in stmts:
        domain = regions.region(need[x.name], iters, x.iters, program.sizes)
        out.append(replace(x, iters=(*iters, *x.iters), domain=domain))
    return out


def _own(moved: Sequence[Statement], outer: tuple[Axis, ...]) -> list[Axis]:
    return [i for x in moved for i in x.iters[len(outer) :]]


def _names_gone(s: Schedule, kept: tree.Tree) -> list[str]:
    """Names of loops that moving a stage leaves free."""
    left = {x.axis.name for x in tree.loops(kept)}
    return [n for n in resolve.axis_names(s.program) if n not in left]


def _refuse_recompute(
    s: Schedule, stmts: Sequence[Statement], again: dict[str, Map], outer: tuple[Axis, ...]
) -> None:
    stmt = next(x for x in stmts if x.name in again)
    found = regions.repeated(again[stmt.name], s.program)
    if found is None:
        return
    sizes, point = found
    k, n = len(stmt.iters), len(outer)
    instance = ", ".join(map(str, point[:k]))
    first, second = point[k : k + n], point[k + n :]
    differ = next(d for d in range(n) if first[d] != second[d])
    at = "".join(f", {v} = {x}" for v, x in sizes.items())
    axis = outer[differ].name
    raise Message(
        f"compute_at would compute {stmt.name}[{instance}] more than once: for {axis} = "
        f"{first[differ]} and for {axis} = {second[differ]}{at}",
        caller(),
        why="iterations need overlapping parts of it, and recompute=False allows no repetition.",
    ).error(
        IllegalSchedule,
        primitive="compute_at",
        witness={"sizes": sizes, "instance": tuple(point[:k]), "at": (first, second)},
    )


# -- back to its own loops
def base_statements(s: Schedule, names: Sequence[str], what: str) -> list[Statement]:
    """The statements of a stage as they were before it was placed: its own iterators, all of it."""
    program = s.program
    arrays = rewrite.written(program, names)
    if not any(rewrite.outside_of(program, a) for a in arrays):
        return [program.stmt(n) for n in names]
    then = _before_placing(s, names)
    out = []
    for n in names:
        now, old = program.stmt(n), then.stmt(n) if then is not None else None
        if old is None or not _ends_with(now.iters, old.iters):
            resolve.fail(
                f"{what}: {n} was changed after it was placed",
                why="a later step rewrote the stage; undo() to before that, place, then rewrite.",
            )
        out.append(replace(now, iters=old.iters, domain=old.domain))
    return out


def _ends_with(iters: tuple[Axis, ...], last: tuple[Axis, ...]) -> bool:
    n = len(iters) - len(last)
    return n >= 0 and all(a is b for a, b in zip(iters[n:], last, strict=True))


def _before_placing(s: Schedule, names: Sequence[str]) -> Program | None:
    """The latest program before this one in which the stage had loops of its own."""
    now: Schedule | None = s.parent
    while now is not None:
        p = now.program
        placed = not all(n in p.placements for n in names) or any(
            rewrite.outside_of(p, a) for a in rewrite.written(p, names)
        )
        if not placed:
            return p
        now = now.parent
    return None


@primitive
def compute_root(s: Schedule, stage: object) -> Draft:
    """A stage back in loops of its own, computed whole before its consumers.

    Needs a stage that `compute_at` placed. Others call it `compute_root` (Halide, TVM).

    Parameters
    ----------
    stage : str or Tensor
        The stage.

    Raises
    ------
    ScheduleError
        It is not placed, or reads what exists only where it is.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((16,), name="A")
    >>> B = tir.compute((16,), lambda x: A[x] + 1.0, name="B")
    >>> C = tir.compute((16,), lambda i: B[i] * 2.0, name="C")
    >>> s = tir.schedule(C).compute_at("B", "i")
    >>> print(s.loops())
    for i in 0..16
      alloc B: float32 in global
      B[i] = A[i] + 1.0
      C[i] = B[i] * 2.0
    >>> print(s.compute_root("B").loops())
    for x in 0..16
      B[x] = A[x] + 1.0
    for i in 0..16
      C[i] = B[i] * 2.0
    """
    what = "compute_root"
    name = resolve.stage(s, stage, primitive=what)
    names = resolve.statements(s.program, name)
    arrays = rewrite.written(s.program, names)
    if not any(rewrite.outside_of(s.program, a) for a in arrays):
        resolve.fail(
            f"{what}: {name} is computed in loops of its own already",
            why="compute_root undoes a compute_at.",
        )
    names = _movable(s, name, what)
    stmts = base_statements(s, names, what)
    kept = rewrite.without(s.program.tree, names)
    assert kept is not None
    axes = rewrite.fresh_axes(s, [i for x in stmts for i in x.iters], name, _names_gone(s, kept))
    own: dict[Axis, Axis | None] = dict(axes.items())
    item = rewrite.nest_of(stmts, own, 0, s.next_number)
    order = rewrite.before(kept, None, _consumers(s.program, name, names), item)
    placements = dict(s.program.placements)
    for x in stmts:
        placements[x.name] = Placement.fresh(x, tuple(axes[i] for i in x.iters))
    buffers = dict(s.program.buffers)
    for a in arrays:
        buffers[a] = replace(buffers[a], outside=())
    new = rewrite.assemble(s.program, order, placements, buffers)
    rewrite.require_reach(s, new, names, what)
    rewrite.require_complete(s, new, names, what)
    return Draft(new)


# -- into the bodies of its consumers
@primitive
def compute_inline(s: Schedule, stage: object) -> Draft:
    """A stage computed in the bodies that read it, never stored.

    Needs a stage without a reduction that is no output. A cell that is read several times is
    computed as often. Others call it `compute_inline` (Halide, TVM), forward substitution.

    Parameters
    ----------
    stage : str or Tensor
        The stage.

    Raises
    ------
    ScheduleError
        A reduction, an output, or a stage that is kept in a cache.
    UnsupportedError
        A consumer reads it through an index that is not affine.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((16,), name="A")
    >>> B = tir.compute((16,), lambda x: A[x] + 1.0, name="B")
    >>> C = tir.compute((14,), lambda i: B[i] * B[i + 2], name="C")
    >>> s = tir.schedule(C)
    >>> print(s.loops())
    for x in 0..16
      B[x] = A[x] + 1.0
    for i in 0..14
      C[i] = B[i] * B[i + 2]
    >>> print(s.compute_inline("B").loops())
    for i in 0..14
      C[i] = (A[i] + 1.0) * (A[i + 2] + 1.0)
    """
    what = "compute_inline"
    name = resolve.stage(s, stage, primitive=what)
    program = s.program
    names = resolve.statements(program, name)
    reduction = next((n for n in names if program.stmt(n).role in ("update", "init")), None)
    if reduction is not None and rewrite.written(program, names)[0].role != "output":
        resolve.fail(
            f"{what}: {name} is a reduction; only a stage that computes each cell from one "
            "expression can be inlined",
            why="its value takes a loop. compute_at keeps it near its consumers.",
        )
    names = _movable(s, name, what)
    producer = program.stmt(names[0])
    _require_plain(name, producer, what)
    consumers = _consumers(program, name, names)
    placements = dict(program.placements)
    for n in consumers:
        placements[n] = placements[n].with_stmt(inlined(placements[n].stmt, producer, what))
    order = rewrite.without(program.tree, names)
    assert order is not None
    new = rewrite.assemble(program, order, placements, program.buffers)
    rewrite.require_reach(s, new, consumers, what)
    rewrite.require_complete(s, new, consumers, what)
    require_marks(s, new, consumers, what)
    return Draft(new)


def _require_plain(name: str, producer: Statement, what: str) -> None:
    index = producer.writes[0].index
    cells = [i for i in index if isinstance(i, Lin) and len(i.terms) == 1 and not i.const]
    plain = [next(iter(i.terms.items())) for i in cells]
    axes = [a for a, k in plain if k == 1 and isinstance(a, Axis)]
    if len(axes) != len(index) or len(set(axes)) != len(axes):
        resolve.fail(f"{what}: {name} does not write each cell from an instance of its own")
