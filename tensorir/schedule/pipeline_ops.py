"""Copies that run ahead of the work on them: `pipeline`, `double_buffer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from tensorir.ir.affine import Fact, Lin, lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array
from tensorir.poly import sharing, tree
from tensorir.poly.model import Buffer, Engine, LayoutDim, Placement, Program
from tensorir.poly.relation import access_map, context_set, ordered
from tensorir.poly.tree import Loop, Seq, Tree
from tensorir.schedule import resolve, rewrite, storing
from tensorir.schedule.explain import Fix, accepted, fix, require_marks, require_order
from tensorir.schedule.loop_ops import follow, recut
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import ArgumentError, IllegalSchedule, UnsupportedError
from tensorir.support.names import hint

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["double_buffer", "pipeline"]

ENGINES = ("cp_async", "copy")
MOST_STAGES = 16


@primitive
def pipeline(s: Schedule, axis: str | Axis, stages: int, *, engine: str | None = None) -> Draft:
    """Copies into shared memory made some iterations ahead of the work on them.

    Needs a serial loop in whose body shared buffers are filled, by nests of their own, and then
    read; of each buffer one dimension moves with the loop, by whole tiles. The buffer keeps
    `stages` tiles, found by the tile's number modulo `stages`, and the loop becomes longer by
    `stages - 1`: an iteration copies a tile, and works on the one that was copied `stages - 1`
    iterations before. One barrier of the block for each iteration is left. On a GPU with
    asynchronous copies (sm_80 and later) plain copies are made by them. Others call it
    `software_pipeline_stage` (TVM), `num_stages` (Triton), `async` and `ring_buffer` (Halide),
    multi-buffering.

    Parameters
    ----------
    axis : str or Axis
        The loop.
    stages : int
        How many tiles there are at once.
    engine : {"cp_async", "copy"}
        How the copies are made: `copy` is by loads and stores of the threads. By default
        `cp_async`, which is a plain copy on targets without it.

    Raises
    ------
    IllegalSchedule
        A copy would come before what it reads is written; carries two instances that show it.
    ScheduleError
        Nothing in the loop fills a shared buffer, the loop is marked, or work and copies share a
        loop.
    UnsupportedError
        The tiles of a buffer overlap, or move along several of its dimensions.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((32, 64), name="A")
    >>> k = tir.reduce_axis(64, name="k")
    >>> B = tir.compute((32,), lambda i: tir.sum(A[i, k], axis=k), name="B")
    >>> s = tir.schedule(B).split("k", 16).reorder("ko", "i", "ki")
    >>> s = s.cache_read("A", "shared", at="ko", name="As")
    >>> print(s.loops())
    for B.init.i in 0..32
      B[B.init.i] = 0.0
    for ko in 0..4
      alloc As: float32 in shared
      for As.i in 0..32
        for As.k in 0..16
          As[As.i, 16*ko + As.k] = A[As.i, 16*ko + As.k]
      for i in 0..32
        for ki in 0..16
          B[i] = B[i] + As[i, 16*ko + ki]
    >>> print(s.pipeline("ko", 3).loops())
    alloc As: float32 in shared, 3 tiles in turn
    for B.init.i in 0..32
      B[B.init.i] = 0.0
    for ko in 0..6
      for As.i in 0..32
        for As.k in 0..16
          if ko <= 3
            As[(ko + As.k//16)%3, As.i, As.k%16] = A[As.i, 16*ko + As.k]
      for i in 0..32
        for ki in 0..16
          if ko >= 2
            B[i] = B[i] + As[(ko + ki//16 + 1)%3, i, ki%16]
    """
    what = "pipeline"
    loop = resolve.axis(s, axis, primitive=what)
    count = resolve.positive(stages, "stages", primitive=what)
    how = _engine(engine)
    if count > MOST_STAGES:
        resolve.fail(f"{what}: {count} stages; there are at most {MOST_STAGES}")
    if loop.kind != "serial":
        resolve.fail(f"{what}: {loop.axis.name!r} is marked already: {loop.kind}")
    if count == 1:
        return Draft(s.program, idle="one stage runs no copy ahead")
    parts = _parts(s, loop)
    program = s.program
    with rewrite.proving(s, what, "that each tile has a place until the work on it is done"):
        tiles = [_tile(s, loop, a, parts) for a in parts.arrays]
        kept = program.change(buffers=_lasting(program, parts.arrays, loop.axis))
        moved, time = _retimed(s, kept, loop, parts, count - 1)
        names = tree.stmts(loop)
        asked = [(loop, f"asked to copy {count - 1} ahead")]
        require_order(s, moved, names, what, asked=asked)
        new = moved
        for array, tile in zip(parts.arrays, tiles, strict=True):
            new = _folded(s, new, array, tile, count, time, how)
    require_marks(s, new, names, what)
    kwargs = {} if engine is None else {"engine": engine}
    told = ", ".join(a.name for a in parts.arrays)
    note = f"{told}: {count} tiles, copied {count - 1} iterations ahead"
    ref = resolve.reference(program, loop.axis)
    return Draft(new, notes=(note,), record=((ref, count), kwargs))


@primitive
def double_buffer(s: Schedule, axis: str | Axis, *, engine: str | None = None) -> Schedule:
    """Copies one iteration ahead of the work on them: `pipeline` with two stages.

    Needs what `pipeline` needs. Others call it `double_buffer` (TVM, Halide).

    Parameters
    ----------
    axis : str or Axis
        The loop.
    engine : {"cp_async", "copy"}
        As in `pipeline`.

    Raises
    ------
    IllegalSchedule, ScheduleError, UnsupportedError
        As `pipeline`.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((64,), name="A")
    >>> B = tir.compute((64,), lambda i: A[i] * 2.0, name="B")
    >>> s = tir.schedule(B).split("i", 16).cache_read("A", "shared", at="io", name="As")
    >>> print(s.loops())
    for io in 0..4
      alloc As: float32 in shared
      for As.i in 0..16
        As[16*io + As.i] = A[16*io + As.i]
      for ii in 0..16
        B[16*io + ii] = As[16*io + ii] * 2.0
    >>> s = s.double_buffer("io")
    >>> print(s.loops())
    alloc As: float32 in shared, 2 tiles in turn
    for io in 0..5
      for As.i in 0..16
        if io <= 3
          As[(io + As.i//16)%2, As.i%16] = A[16*io + As.i]
      for ii in 0..16
        if io >= 1
          B[16*io + ii - 16] = As[(io + ii//16 + 1)%2, ii%16] * 2.0
    """
    kwargs = {} if engine is None else {"engine": engine}
    return pipeline(s, axis, 2, **kwargs)


def _engine(engine: str | None) -> Engine:
    if engine is None:
        return "cp_async"
    if engine not in ENGINES:
        near = hint(engine, ENGINES) if isinstance(engine, str) else ""
        resolve.fail(
            f"pipeline: engine is one of {', '.join(ENGINES)}, not {engine!r:.40}{near}",
            cls=ArgumentError,
        )
    return "copy" if engine == "copy" else "cp_async"


# -- what runs ahead
@dataclass(frozen=True, slots=True)
class _Parts:
    """Shared buffers that the body fills, the statements that fill them, and the others."""

    arrays: tuple[Array, ...]
    copies: tuple[str, ...]
    work: tuple[str, ...]


def _parts(s: Schedule, loop: Loop) -> _Parts:
    program, name = s.program, resolve.reference(s.program, loop.axis)
    names = tree.stmts(loop)
    arrays = tuple(
        a for a, b in program.buffers.items()
        if b.scope == "shared" and b.outside and b.outside[-1] is loop.axis
        and rewrite.writers(program, a, names) and rewrite.readers(program, a, names)
    )  # fmt: skip
    if not arrays:
        resolve.fail(
            f"pipeline: no buffer in shared memory is filled in each iteration of {name!r}",
            why="copies are what runs ahead of the work.",
            tries=[(f.code, f.effect) for f in accepted(s, _cached(s, loop))],
        )
    copies = tuple(n for n in names if any(rewrite.writers(program, a, [n]) for a in arrays))
    work = tuple(n for n in names if n not in copies)
    items = loop.body.items if isinstance(loop.body, Seq) else (loop.body,)
    for item in items:
        inside = tree.stmts(item)
        own = [n for n in inside if n in copies]
        if own and len(own) < len(inside):
            other = next(n for n in inside if n not in copies)
            resolve.fail(
                f"pipeline: {own[0]} and {other} share a loop inside {name!r}",
                why="copies run in other iterations than the work; fission parts them.",
            )
    for a in arrays:
        reader = next(iter(rewrite.readers(program, a, copies)), None)
        if reader is not None:
            resolve.fail(
                f"pipeline: {reader}, which fills a buffer, reads {a.name} in the same iteration",
                why="what is copied ahead comes from outside the loop.",
                cls=UnsupportedError,
            )
    _require_apart(program, loop, arrays, copies, work, name)
    return _Parts(arrays, copies, work)


def _require_apart(
    program: Program,
    loop: Loop,
    arrays: Sequence[Array],
    copies: Sequence[str],
    work: Sequence[str],
    name: str,
) -> None:
    """Other buffers of one iteration belong to copies or to work, not to both."""
    for a, b in program.buffers.items():
        if a in arrays or not rewrite.has(b.outside, loop.axis):
            continue
        sides = [next((n for n in side if rewrite.touches(program.stmt(n), a)), None)
                 for side in (copies, work)]  # fmt: skip
        if all(sides):
            resolve.fail(
                f"pipeline: {sides[0]} and {sides[1]} use {a.name}, which exists in one iteration "
                f"of {name!r}",
                why=f"set_scope puts {a.name} into shared memory, where it is kept for longer.",
            )


def _cached(s: Schedule, loop: Loop) -> list[Fix]:
    name = resolve.reference(s.program, loop.axis)
    read = dict.fromkeys(
        r.array for n in tree.stmts(loop) for r in s.program.stmt(n).reads
        if r.array.role == "input"
    )  # fmt: skip
    calls = [("cache_read", (a.name, "shared"), {"at": name}) for a in read]
    return [fix("copies into shared memory", *calls, ("pipeline", (name, 2), {}))]


# -- tiles
@dataclass(frozen=True, slots=True)
class _Tile:
    """The dimension of a buffer that moves with the loop, and by how much."""

    dim: int
    size: int


def _tile(s: Schedule, loop: Loop, array: Array, parts: _Parts) -> _Tile:
    program = s.program
    uses = [
        (program.placements[n], x)
        for n in (*parts.copies, *parts.work)
        for x in (*program.stmt(n).writes, *program.stmt(n).reads)
        if x.array is array
    ]
    if any(not x.exact for _, x in uses):
        resolve.fail(
            f"pipeline: {array.name} is accessed through an index that is loaded",
            cls=UnsupportedError,
        )
    moves: dict[int, dict[int, None]] = {}
    for p, x in uses:
        env: dict[Axis | Var, Lin] = dict(p.index.items())
        for d, e in enumerate(x.affine):
            at = e.subst(env)
            if at.involves(loop.axis):
                moves.setdefault(d, {})[at.coef(loop.axis)] = None
    name = resolve.reference(program, loop.axis)
    if len(moves) != 1:
        along = "no dimension" if not moves else f"{len(moves)} dimensions"
        resolve.fail(
            f"pipeline: {along} of {array.name} moves with {name!r}",
            why="the number of a tile is told by one dimension."
            if moves
            else "it is the same in all iterations: make the copy outside the loop.",
            cls=UnsupportedError,
        )
    ((d, steps),) = moves.items()
    size = next(iter(steps))
    if len(steps) != 1 or size < 1:
        _overlap(array, d, name)
    for p, x in uses:
        number = _number(p, x.affine[d], size)
        if number is None or not _told(program, p, x, d, size, loop.axis):
            _overlap(array, d, name)
    return _Tile(d, size)


def _number(p: Placement, e: Lin, size: int) -> Lin | None:
    return None if any(isinstance(a, tuple) for a in e.terms) else e // size


def _told(program: Program, p: Placement, x: Access, d: int, size: int, axis: Axis) -> bool:
    """Whether the loops down to `axis` tell the number of the tile."""
    around = rewrite.path_axes(program, axis)
    tile = Access(replace(x.array, shape=(x.array.shape[d],)), (x.affine[d] // size,), x.guard)
    numbers = access_map(p.stmt, tile, program.sizes)
    m = ordered(program, p.stmt.name, around).reverse().apply_range(numbers)
    return bool(m.intersect_params(context_set(program)).is_single_valued())


def _overlap(array: Array, d: int, name: str) -> NoReturn:
    resolve.fail(
        f"pipeline: dimension {d} of {array.name} does not move by whole tiles along {name!r}",
        why="tiles that overlap have no places of their own.",
        cls=UnsupportedError,
    )


# -- the program
def _lasting(program: Program, arrays: Sequence[Array], axis: Axis) -> dict[Array, Buffer]:
    """The buffers, some of them kept over the iterations of the loop."""
    out = dict(program.buffers)
    for a in arrays:
        b = out[a]
        out[a] = replace(b, outside=tuple(x for x in b.outside if x is not axis), shared=True)
    return out


def _retimed(
    s: Schedule, program: Program, loop: Loop, parts: _Parts, ahead: int
) -> tuple[Program, Axis]:
    """The loop over time: copies where they were, the work later."""
    old = loop.axis
    lower = old.lower
    upper = None if old.upper is None else old.upper + ahead
    new = Axis(old.name, lower, upper, reduce=old.reduce)
    placements = dict(program.placements)
    for names, late in ((parts.copies, 0), (parts.work, ahead)):
        value = Lin({new: 1}) - late
        facts: tuple[Fact, ...] = (("eq", Lin({old: 1}) - value),)
        for n in names:
            placements[n] = placements[n].replace_axis(old, (new,), value, facts)
    order: Tree = tree.rewrite(
        program.tree, old, lambda x: replace(x, axis=new, step=s.next_number)
    )
    buffers = follow(program.buffers, old, (new,))
    made = program.change(tree=recut(order, old, new), placements=placements, buffers=buffers)
    return made, new


def _folded(
    s: Schedule, program: Program, array: Array, tile: _Tile, stages: int, time: Axis, how: Engine
) -> Program:
    """The buffer as so many tiles, found by the number of the tile."""
    d, size = tile.dim, tile.size

    def fold(index: tuple[Lin, ...]) -> tuple[Lin, ...]:
        e = index[d]
        return ((e // size) % stages, *index[:d], e % size, *index[d + 1 :])

    shape = (lin(stages), *array.shape[:d], lin(size), *array.shape[d + 1 :])
    small = Array(array.name, array.dtype, shape, "temp")
    new = storing.moved(program, array, small, fold)
    assert new is not None
    before = program.buffers[array]
    layout: tuple[LayoutDim, ...] | None = None
    if before.layout is not None:
        layout = ((0, None, 1), *((k + 1, op, n) for k, op, n in before.layout))
    buffer = replace(new.buffers[small], layout=layout, turns=(time,), engine=how)
    new = new.change(buffers={**new.buffers, small: buffer})
    found = sharing.lost(program, new, small, before.outside)
    if found is not None:
        sizes = "".join(f", {k} = {v}" for k, v in found.sizes.items())
        raise Message(
            f"pipeline: {found.writer.stmt} would overwrite a tile of {array.name} that "
            f"{found.reader.stmt if found.reader else 'a later loop'} still reads{sizes}",
            caller(),
            why=f"{stages} tiles are not enough for what is read of it.",
        ).error(IllegalSchedule, primitive="pipeline", witness=found)
    return new
