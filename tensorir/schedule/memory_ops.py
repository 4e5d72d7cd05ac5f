"""Where values are kept: copies through faster memory, layouts, scopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array
from tensorir.poly import access, regions, tree
from tensorir.poly.model import Buffer, Program, ScopeName
from tensorir.poly.tree import Loop
from tensorir.schedule import copies, layouts, resolve, rewrite, write_back
from tensorir.schedule.copies import Window
from tensorir.schedule.explain import accepted, fix, require_marks
from tensorir.schedule.primitive import Draft, primitive
from tensorir.schedule.write_back import Kept
from tensorir.support.errors import UnsupportedError
from tensorir.support.names import hint

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["cache_read", "cache_write", "set_scope", "transform_layout"]

SCOPES = ("global", "shared", "local")


def _scope(scope: object, what: str) -> ScopeName:
    if scope == "warp":
        resolve.fail(f"{what}: scope 'warp' is not there yet; use 'shared'", cls=UnsupportedError)
    if not isinstance(scope, str) or scope not in SCOPES:
        near = hint(scope, SCOPES) if isinstance(scope, str) else ""
        words = ", ".join(map(repr, SCOPES))
        resolve.fail(f"{what}: scope is one of {words}, not {scope!r:.60}{near}")
    return scope  # type: ignore[return-value]


def _at(s: Schedule, at: object, what: str) -> Loop | None:
    return None if at is None else resolve.axis(s, at, primitive=what)


def _name(s: Schedule, name: object, default: str, what: str) -> str:
    """The name of a new buffer, after which statements are called too: `C_local.load`."""
    owners = {n.rpartition(".")[0] for n in s.program.placements}
    if name is None:
        return resolve.free_name(s, default, owners)
    given = resolve.new_name(s, name, primitive=what, what="name")
    if given in owners:
        resolve.fail(f"{what}: the name {given!r} is in use: statements are called after it")
    return given


# -- reading through a copy
@primitive
def cache_read(
    s: Schedule,
    tensor: object,
    scope: str = "global",
    *,
    at: str | Axis | None = None,
    name: str | None = None,
    readers: Sequence[object] | None = None,
) -> Draft:
    """What one iteration reads of a tensor copied into a buffer first, and read from there.

    Needs a tensor that is whole when the copy runs. The copy's loops run from 0, from where the
    region begins; they are called after the reader's axes: `B_cache.k`. Others call it
    `cache_read` (TVM), `in` (Halide), `stage_mem` (Exo), packing where a layout follows.

    Parameters
    ----------
    tensor : str or Tensor
        What is read.
    scope : {"global", "local"}
        Where the buffer lives.
    at : str or Axis
        The loop in whose body the copy is made; None copies all of it before its first reader.
    name : str
        What the buffer is called; by default `B_cache` for `B`.
    readers : sequence of str or Tensor
        The stages that read the copy; by default all inside the loop.

    Raises
    ------
    ScheduleError
        Nothing inside the loop reads it, it is written there, or the name is in use.
    UnsupportedError
        A scope that the target does not have.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 16), name="A")
    >>> B = tir.compute((4, 16), lambda i, j: A[i, j] * 2.0, name="B")
    >>> s = tir.schedule(B).split("j", 8)
    >>> print(s.loops())
    for i in 0..4
      for jo in 0..2
        for ji in 0..8
          B[i, 8*jo + ji] = A[i, 8*jo + ji] * 2.0
    >>> print(s.cache_read("A", at="jo").loops())
    for i in 0..4
      for jo in 0..2
        alloc A_cache: float32 in global
        for A_cache.j in 0..8
          A_cache[i, 8*jo + A_cache.j] = A[i, 8*jo + A_cache.j]
        for ji in 0..8
          B[i, 8*jo + ji] = A_cache[i, 8*jo + ji] * 2.0
    """
    what = "cache_read"
    array = resolve.array(s, tensor, primitive=what)
    kept = _scope(scope, what)
    loop = _at(s, at, what)
    program = s.program
    under = write_back.under(program, loop)
    inner = rewrite.writers(program, array, under)
    if loop is not None and inner:
        resolve.fail(
            f"{what}: {inner[0]} writes {array.name}{write_back.where(s, loop)}",
            why="a copy made before would miss what is written; cache_write keeps what is "
            "accumulated.",
            tries=_cache_write_try(s, array, loop),
        )
    if array.role != "input":
        rewrite.require_unshared(s, rewrite.writers(program, array), what)
    users = _readers(s, array, loop, under, readers)
    made = _name(s, name, f"{array.name}_cache", what)
    outer = rewrite.path_axes(program, loop.axis if loop else None)
    with rewrite.proving(s, what, f"what is read of {array.name}"):
        cells = access.footprint(program, array, loop.axis if loop else None, users, "reads")[0]
        if array.role == "input":
            whole = regions.box(array, program)
            cells, _ = regions.simplest(cells, whole, program.sizes)
        at_ = copies.window(program, cells, outer, array, users)
        domain = at_.domain(cells, program, array)
    cache = copies.buffer_like(array, made)
    copy = copies.statement(f"{made}.copy", made, at_, domain, [cache], [array])
    placements = dict(program.placements)
    for n in users:
        turned = rewrite.redirect(program.stmt(n), {array: cache})
        placements[n] = placements[n].with_stmt(turned)
    placements[copy.name], item = copies.place(s, copy, at_)
    order = rewrite.before(program.tree, loop.axis if loop else None, users, item)
    buffers = {**program.buffers, cache: Buffer(kept, outer)}
    new = rewrite.assemble(program, order, placements, buffers, [cache])
    rewrite.require_reach(s, new, [copy.name], what)
    rewrite.require_complete(s, new, [copy.name], what)
    require_marks(s, new, [copy.name, *users], what)
    return Draft(new, notes=_window_notes(at_, made))


def _window_notes(at: Window, name: str) -> tuple[str, ...]:
    if not at.absolute:
        return ()
    return (f"loops of {name} run over cells: the region has no affine beginning",)


def _cache_write_try(s: Schedule, array: Array, loop: Loop) -> list[tuple[str, str]]:
    ref = resolve.reference(s.program, loop.axis)
    wanted = fix("keeps what is written there", ("cache_write", (array.name,), {"at": ref}))
    return [(f.code, f.effect) for f in accepted(s, [wanted])]


def _readers(
    s: Schedule, array: Array, loop: Loop | None, under: list[str], wanted: object
) -> list[str]:
    what = "cache_read"
    found = _other_readers(s.program, array, under)
    if wanted is not None:
        if isinstance(wanted, str) or not isinstance(wanted, Sequence):
            resolve.fail(f"{what}: readers is a sequence of stages, not {wanted!r:.60}")
        stages = [resolve.stage(s, w, primitive=what) for w in wanted]
        for stage in stages:
            if not any(s.program.stmt(n).stage == stage for n in found):
                resolve.fail(
                    f"{what}: {stage} does not read {array.name}{write_back.where(s, loop)}"
                )
        found = [n for n in found if s.program.stmt(n).stage in stages]
    if not found:
        every = _other_readers(s.program, array, tree.stmts(s.program.tree))
        verb = "reads" if len(every) == 1 else "read"
        why = f"{' and '.join(every)} {verb} it, in other loops." if every else ""
        if not every and rewrite.readers(s.program, array):
            why = "only its own updates do."
        resolve.fail(f"{what}: nothing{write_back.where(s, loop)} reads {array.name}", why=why)
    return found


def _other_readers(program: Program, array: Array, names: list[str]) -> list[str]:
    """Statements that read an array which they do not write: accumulators are not read."""
    own = rewrite.writers(program, array, names)
    return [n for n in rewrite.readers(program, array, names) if n not in own]


# -- writing through a buffer
@primitive
def cache_write(
    s: Schedule,
    tensor: object,
    scope: str = "local",
    *,
    at: str | Axis | None = None,
    init: str | None = None,
    name: str | None = None,
) -> Draft:
    """What one iteration writes of a tensor kept in a buffer, written back at its end.

    Needs a tensor that a statement inside the loop writes. An accumulation that enters from outside
    is loaded first, which keeps every rounding, or starts from the identity and is combined at the
    end, which regroups it. After `init_at` only later iterations load. Others call it `cache_write`
    (TVM), `store_in` (Halide), `stage_mem` (Exo), register promotion.

    Parameters
    ----------
    tensor : str or Tensor
        What is written. Of a reduction with a wider accumulator, that is kept.
    scope : {"global", "local"}
        Where the buffer lives.
    at : str or Axis
        The loop of which one iteration is kept.
    init : {"load", "identity"}
        How an accumulation from outside enters; by default it is loaded. Refused where nothing
        enters: initial value and all updates are inside.
    name : str
        What the buffer is called; by default `C_local`, or `C_cache` in global memory.

    Raises
    ------
    ScheduleError
        Nothing inside the loop writes it, `init=` where nothing enters, or `"identity"` for a
        reducer without one.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 6), name="A")
    >>> k = tir.reduce_axis(6, name="k")
    >>> C = tir.compute((4,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    >>> s = tir.schedule(C)
    >>> print(s.loops())
    for i in 0..4
      C[i] = 0.0
      for k in 0..6
        C[i] = C[i] + A[i, k]
    >>> print(s.cache_write("C", at="i").loops())
    for i in 0..4
      alloc C_local: float32 in local
      C_local[i] = 0.0
      for k in 0..6
        C_local[i] = C_local[i] + A[i, k]
      C[i] = C_local[i]
    """
    what = "cache_write"
    array = resolve.array(s, tensor, primitive=what)
    kept_in = _scope(scope, what)
    if init not in (None, "load", "identity"):
        resolve.fail(f"{what}: init is 'load' or 'identity', not {init!r:.60}")
    loop = _at(s, at, what)
    program = s.program
    kept = write_back.kept_of(s, array, loop)
    outer = rewrite.path_axes(program, loop.axis if loop else None)
    with rewrite.proving(s, what, f"what is written of {array.name}"):
        written, entering = write_back.regions_of(s, kept, loop)
        write_back.require_init(s, kept, written, entering, init, loop)
        if entering is None and write_back.only_there(program, kept, loop):
            return _shrunk(s, kept, kept_in, outer, name)
        at_ = copies.window(program, written, outer, kept.arrays[0], kept.writers)
        stored = at_.domain(written, program)
        loaded = at_.domain(entering, program) if entering is not None else None
    default = f"{array.name}_{'local' if kept_in == 'local' else 'cache'}"
    made = _name(s, name, default, what)
    caches = write_back.caches_of(s, kept.arrays, array, made)
    into = dict(zip(kept.arrays, caches, strict=True))
    placements = dict(program.placements)
    for n in kept.users:
        turned = rewrite.redirect(program.stmt(n), into, writes=True)
        placements[n] = placements[n].with_stmt(turned)
    first, last = write_back.around(
        kept, made, at_, stored, loaded, caches, identity=init == "identity"
    )
    order = program.tree
    axis = loop.axis if loop else None
    for stmt in (*first, last):
        placements[stmt.name], item = copies.place(s, stmt, at_)
        order = tree.insert(order, axis, item, first=stmt is not last)
    buffers = {**program.buffers, **{c: Buffer(kept_in, outer) for c in caches}}
    new = rewrite.assemble(program, order, placements, buffers, caches)
    added = [x.name for x in (*first, last)]
    rewrite.require_reach(s, new, added, what)
    require_marks(s, new, [*added, *kept.users], what)
    exact = kept.reducer is None or kept.reducer.exact
    reassociates = init == "identity" and not exact
    return Draft(new, reassociates, _window_notes(at_, made))


def _shrunk(
    s: Schedule, kept: Kept, scope: ScopeName, outer: tuple[Axis, ...], name: object
) -> Draft:
    """The arrays themselves kept inside the loop: nothing outside uses them."""
    what = "cache_write"
    array = kept.arrays[0]
    if name is not None:
        resolve.fail(
            f"{what}: {array.name} is used only there and becomes the buffer itself; it keeps "
            f"its name",
            why="leave name= out.",
        )
    now = rewrite.outside_of(s.program, array)
    if len(now) > len(outer) or any(a is not b for a, b in zip(now, outer, strict=False)):
        resolve.fail(f"{what}: {array.name} is kept inside {now[-1].name!r} already")
    buffers = dict(s.program.buffers)
    for a in kept.arrays:
        buffers[a] = replace(buffers[a], scope=scope, outside=outer)
    new = s.program.change(buffers=buffers)
    require_marks(s, new, kept.users, what)
    return Draft(new, notes=(f"{array.name} is used only there: it is the buffer",))


# -- layout and scope
@primitive
def transform_layout(s: Schedule, buffer: object, map: Callable[..., Any]) -> Draft:
    """How a buffer is laid out: a map from its index, counted from where it begins, to storage.

    Needs a map that sends no two cells to one place, on a buffer of the schedule's own. Each
    storage dimension is an index, `index // c` or `index % c`. Others call it
    `transform_layout` (TVM), `reorder_storage` and `fold_storage` (Halide), packing.

    Parameters
    ----------
    buffer : str or Tensor
        A cached tensor or an intermediate stage.
    map : callable
        Takes the indices, returns the storage indices: ``lambda k, j: (j // 16, k, j % 16)``.

    Raises
    ------
    ScheduleError
        An input or an output, a map of the wrong number of indices, or two cells in one place.
    UnsupportedError
        A map of another form.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 32), name="A")
    >>> B = tir.compute((4, 32), lambda i, j: A[i, j] * 2.0, name="B")
    >>> s = tir.schedule(B).cache_read("A")
    >>> print(s.loops())
    for A_cache.i in 0..4
      for A_cache.j in 0..32
        A_cache[A_cache.i, A_cache.j] = A[A_cache.i, A_cache.j]
    for i in 0..4
      for j in 0..32
        B[i, j] = A_cache[i, j] * 2.0
    >>> print(s.transform_layout("A_cache", lambda i, j: (j // 16, i, j % 16)).loops())
    alloc A_cache: float32 in global as (i1 // 16, i0, i1 % 16)
    for A_cache.i in 0..4
      for A_cache.j in 0..32
        A_cache[A_cache.i, A_cache.j] = A[A_cache.i, A_cache.j]
    for i in 0..4
      for j in 0..32
        B[i, j] = A_cache[i, j] * 2.0
    """
    what = "transform_layout"
    array = resolve.array(s, buffer, primitive=what)
    if array.role != "temp":
        kind = "an input" if array.role == "input" else "an output"
        resolve.fail(
            f"{what}: {array.name} is {kind}, whose layout is the caller's",
            why="repack by an explicit stage: copy it into an array that is laid out as you wish.",
        )
    layout = layouts.parse(map, array, what)
    with rewrite.proving(s, what, f"that no two cells of {array.name} share a place"):
        layouts.require_injective(s, array, layout, what)
    changed = replace(s.program.buffers[array], layout=layout)
    new = s.program.change(buffers={**s.program.buffers, array: changed})
    return Draft(new, record=((array.name, layouts.text(layout, len(array.shape))), {}))


@primitive
def set_scope(s: Schedule, tensor: object, scope: str) -> Draft:
    """In which memory a buffer lives.

    Needs a buffer of the schedule's own, and for `"local"` one that no two threads share. Others
    call it `set_scope` (TVM), `store_in` (Halide), `set_memory` (Exo).

    Parameters
    ----------
    tensor : str or Tensor
        A cached tensor or an intermediate stage.
    scope : {"global", "local"}
        `local` is private to a thread: registers where every index is constant once loops are
        unrolled, else its stack or arena.

    Raises
    ------
    ScheduleError
        An input, an output, or a buffer that threads share.
    UnsupportedError
        A scope that the target does not have.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 16), name="A")
    >>> B = tir.compute((4, 16), lambda x, y: A[x, y] + 1.0, name="B")
    >>> C = tir.compute((4, 16), lambda i, j: B[i, j] * 2.0, name="C")
    >>> s = tir.schedule(C).compute_at("B", "i")
    >>> print(s.loops())
    for i in 0..4
      alloc B: float32 in global
      for y in 0..16
        B[i, y] = A[i, y] + 1.0
      for j in 0..16
        C[i, j] = B[i, j] * 2.0
    >>> print(s.set_scope("B", "local").loops())
    for i in 0..4
      alloc B: float32 in local
      for y in 0..16
        B[i, y] = A[i, y] + 1.0
      for j in 0..16
        C[i, j] = B[i, j] * 2.0
    """
    what = "set_scope"
    array = resolve.array(s, tensor, primitive=what)
    kept = _scope(scope, what)
    if array.role != "temp":
        kind = "an input" if array.role == "input" else "an output"
        resolve.fail(f"{what}: {array.name} is {kind}; it lives in the caller's memory")
    now = s.program.buffers[array]
    if kept == "local":
        _require_private(s, array)
    idle = f"{array.name} is in {kept} memory already" if now.scope == kept else ""
    buffers = {**s.program.buffers, array: replace(now, scope=kept)}
    return Draft(s.program.change(buffers=buffers), idle=idle)


def _require_private(s: Schedule, array: Array) -> None:
    outside = rewrite.outside_of(s.program, array)
    for x in tree.loops(s.program.tree):
        if x.kind != "parallel" or rewrite.has(outside, x.axis):
            continue
        if any(rewrite.touches(s.program.stmt(n), array) for n in tree.stmts(x)):
            resolve.fail(
                f"set_scope: the threads of {resolve.reference(s.program, x.axis)!r} share "
                f"{array.name}",
                why="a local buffer belongs to one thread; compute or cache it inside that loop.",
            )
