"""Where a stage is computed: at a loop of its consumers, in their bodies, in loops of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Statement
from tensorir.poly import regions, tree
from tensorir.poly.isl import Map
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import Loop
from tensorir.schedule import keeping, placed, resolve, rewrite
from tensorir.schedule.explain import accepted, fix, require_marks
from tensorir.schedule.inline import inlined
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import IllegalSchedule

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["compute_at", "compute_inline", "compute_root"]


@primitive
def compute_at(
    s: Schedule,
    stage: object,
    axis: str | Axis,
    *,
    recompute: bool = True,
    storage: str = "iteration",
    store_at: str | Axis | None = None,
) -> Draft:
    """A stage computed inside a loop of its consumers, just what each iteration needs.

    Needs every consumer inside that loop, a stage that is no output, and none whose cells depend
    on other cells of its own. What several iterations need is computed again by each, and the
    step says so, unless storage is kept over them. Init, updates and finish of a reduction go
    together; the stage's array shrinks to what is needed; its loops start afresh and count from
    where that begins. Others call it `compute_at` (Halide, TVM), with `store_at` and `fold_storage`
    (Halide) sliding windows, line buffers.

    Parameters
    ----------
    stage : str or Tensor
        The stage to move.
    axis : str or Axis
        A loop around all consumers.
    recompute : bool
        False refuses to compute anything twice.
    storage : {"iteration", "sliding", "folded"}
        How long what is computed is kept. `"sliding"`: over all iterations of the loop, each of
        which computes only what none before it needed; the first one's other cells are `B.warm`.
        `"folded"`: so, in as few cells as are alive at once, indexed modulo a power of two.
    store_at : str or Axis
        A loop further out, inside which sliding storage is kept; by default the loop around `axis`.

    Raises
    ------
    ScheduleError
        An output, a loop that is not around every consumer, or inputs that are not there yet.
    IllegalSchedule
        `recompute=False`, and iterations share instances; tells one. Or iterations that run at once
        would share sliding storage.

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
    >>> print(tir.schedule(C).compute_at("B", "i", storage="folded").loops())
    for i in 0..14
      for B.warm.x in 0..2
        if i == 0
          B[B.warm.x%4] = A[B.warm.x] + 1.0
      B[(i + 2)%4] = A[i + 2] + 1.0
      C[i] = B[i%4] * B[(i + 2)%4]
    """
    what = "compute_at"
    name = resolve.stage(s, stage, primitive=what)
    loop = resolve.axis(s, axis, primitive=what)
    names = _movable(s, name, what)
    consumers = _consumers(s.program, name, names)
    _require_around(s, name, loop, names, consumers)
    stmts = placed.base_statements(s, names, what)
    arrays = rewrite.written(s.program, names)
    outer = rewrite.path_axes(s.program, loop.axis)
    kept_at = keeping.kept_axes(s, storage, store_at, outer)
    kept = rewrite.without(s.program.tree, names)
    assert kept is not None
    gone = placed.names_gone(s, kept)
    fresh = lambda its: rewrite.fresh_axes(s, its, name, gone)  # noqa: E731
    with rewrite.proving(s, what, f"what {name} is needed for"):
        need, more = placed.need_of(s, name, stmts, arrays, consumers, loop.axis)
        held = keeping.held(need, len(kept_at)) if storage != "iteration" else None
        new = held.new if held is not None else need
        again = {n: m for n, m in new.items() if not m.is_injective()}
        if again and not recompute:
            _refuse_recompute(s, stmts, again, outer)
        parts = keeping.parts(s, name, stmts, held, need, arrays, consumers, outer, fresh)
    order = kept
    placements = dict(s.program.placements)
    for x in parts:
        order = rewrite.before(order, loop.axis, consumers, x.item)
        placements |= x.placements
    buffers = dict(s.program.buffers)
    for a in arrays:
        buffers[a] = replace(buffers[a], outside=kept_at)
    made = rewrite.assemble(s.program, order, placements, buffers)
    moved = [x.name for p in parts for x in p.statements]
    notes = _notes(name, (kept_at or outer)[-1], again, more)
    if held is not None:
        notes = (*notes, *keeping.notes(name, loop, held, need))
    if storage == "folded":
        with rewrite.proving(s, what, f"what of {name} is alive at once"):
            made, told = keeping.folded(s, made, name, arrays, outer, moved, consumers)
        notes = (*notes, *told)
    rewrite.require_reach(s, made, moved, what)
    rewrite.require_complete(s, made, moved, what)
    require_marks(s, made, [*moved, *consumers], what)
    return Draft(made, notes=notes)


def _notes(name: str, axis: Axis, again: dict[str, Map], more: bool) -> tuple[str, ...]:
    notes = []
    if again:
        notes.append(f"what several iterations of {axis.name!r} need of {name} is recomputed")
    if more:
        notes.append(f"{name} is computed on the hull of what is needed, a few cells more")
    return tuple(notes)


def _movable(s: Schedule, name: str, what: str) -> list[str]:
    """The statements of a stage that may be moved."""
    program = s.program
    keeping.require_not_kept(s, name, what)
    rewrite.require_unshared(s, resolve.statements(program, name), what)
    names = resolve.statements(program, name)
    rewrite.require_one_piece(s, name, names, what)
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
    keeping.require_not_kept(s, name, what)
    names = resolve.statements(s.program, name)
    arrays = rewrite.written(s.program, names)
    if not any(rewrite.outside_of(s.program, a) for a in arrays):
        resolve.fail(
            f"{what}: {name} is computed in loops of its own already",
            why="compute_root undoes a compute_at.",
        )
    names = _movable(s, name, what)
    stmts = placed.base_statements(s, names, what)
    kept = rewrite.without(s.program.tree, names)
    assert kept is not None
    axes = rewrite.fresh_axes(
        s, [i for x in stmts for i in x.iters], name, placed.names_gone(s, kept)
    )
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
