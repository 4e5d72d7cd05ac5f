"""A program with bound loops as the launches of a GPU: one for each outermost nest.

All loops bound to one index get one axis, for they run on the same threads; every statement stands
under all thread indices of its launch, under those that it was not bound to with their value 0. A
buffer of scope `local` then exists once for each thread, which is proved: no cell of it is touched
by two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array
from tensorir.poly import isl, tree
from tensorir.poly.barriers import crosses, meets, with_barriers
from tensorir.poly.conflict import between
from tensorir.poly.isl import Map, dt
from tensorir.poly.legality import carried
from tensorir.poly.model import Placement, Program
from tensorir.poly.ranges import constant_range
from tensorir.poly.relation import access_map, context_set, ordered
from tensorir.poly.tree import Loop, Seq, Tree
from tensorir.support.errors import UnsupportedError

BLOCK_INDICES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_INDICES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One kernel: its program over the axes of the hardware, barriers placed.

    Parameters
    ----------
    program
        A program of its own; what other launches share with it are arguments.
    threads
        Extent of each thread index, x first; 1 where nothing is bound.
    indices
        The axis of each index that is bound.
    reasons
        What each barrier is for, by the name of its statement.
    """

    program: Program
    threads: tuple[int, int, int]
    indices: Mapping[str, Axis]
    reasons: Mapping[str, str]


def launches(
    program: Program, *, asynchronous: bool = False
) -> tuple[tuple[Launch, ...], tuple[Array, ...]]:
    """The launches in order, and the temporary arrays that they share in global memory.

    `asynchronous` says that the target has copies that run on their own.

    Raises
    ------
    UnsupportedError
        A statement outside all bound loops, a buffer that no thread can keep alone, and the like.
    """
    items = program.tree.items if isinstance(program.tree, Seq) else (program.tree,)
    for t in items:
        _require_bound(program, t)
    shared = _between_launches(program, items)
    with isl.budget():
        return tuple(_launch(program, t, shared, asynchronous) for t in items), shared


def _require_bound(program: Program, t: Tree) -> None:
    if any(x.kind == "bind" for x in tree.loops(t)):
        return
    alone = (x.axis for x in tree.loops(t) if carried(program, x.axis) is None)
    free = next(alone, None)
    if free is None:
        return  # nothing that could be bound: one thread does it
    raise UnsupportedError(
        f"{tree.stmts(t)[0]} is in no loop that is bound to a GPU",
        details=f'  try  s.bind("{free.name}", "blockIdx.x")      one block for each point\n'
        f"  try  schedules.schedule_for(tensor, target=...)     a schedule for the target",
    )


def _between_launches(program: Program, items: tuple[Tree, ...]) -> tuple[Array, ...]:
    """Temporary arrays that live in global memory, in the order of the program."""
    found: dict[Array, None] = {}
    for array, buffer in program.buffers.items():
        if buffer.scope != "global":
            continue
        if buffer.outside:
            raise UnsupportedError(
                f"{array.name} exists once for each {buffer.outside[-1].name}, in global memory",
                details=f'  try  s.set_scope("{array.name}", "shared"), or "local"',
            )
        if buffer.layout is not None:
            raise UnsupportedError(f"{array.name}: a layout in global memory is not there yet")
        found[array] = None
    users: dict[Array, set[int]] = {}
    for k, t in enumerate(items):
        for n in tree.stmts(t):
            s = program.stmt(n)
            for a in (*s.reads, *s.writes):
                users.setdefault(a.array, set()).add(k)
    for array, buffer in program.buffers.items():
        if buffer.scope != "global" and len(users.get(array, ())) > 1:
            raise UnsupportedError(
                f"{array.name} is {buffer.scope}, and two launches use it: what a block or thread "
                "keeps ends with its launch",
                details=f'  try  s.set_scope("{array.name}", "global")',
            )
    return tuple(found)


def _launch(program: Program, t: Tree, shared: tuple[Array, ...], asynchronous: bool) -> Launch:
    names = tree.stmts(t)
    own = {n: program.placements[n] for n in names}
    used = {a.array for p in own.values() for a in (*p.stmt.reads, *p.stmt.writes)}
    part = program.change(
        tree=t,
        placements=own,
        buffers={a: b for a, b in program.buffers.items() if a in used and a not in shared},
        arrays=tuple(a for a in program.arrays if a in used),
    )
    threads = _threads(part)
    indices = {
        i: Axis(i)
        for i in (*BLOCK_INDICES, *THREAD_INDICES)
        if any(x.bind == i for x in tree.loops(t))
    }
    part = _on_hardware(part, indices)
    part = _with_all_indices(part, indices)
    _require_blocks_apart(part, indices)
    part = _private(part, indices)
    part, reasons = with_barriers(part, indices, asynchronous=asynchronous)
    return Launch(part, threads, indices, reasons)


def _threads(part: Program) -> tuple[int, int, int]:
    """The extent of each thread index: that of its largest loop."""
    found = dict.fromkeys(THREAD_INDICES, 1)
    for x in tree.loops(part.tree):
        if x.bind not in found:
            continue
        span = constant_range(part, x.axis)
        if span is None or span[0] < 0:
            raise UnsupportedError(
                f"loop {x.axis.name} is bound to {x.bind}, and its extent is not a constant",
                details=f'  try  s.split("{x.axis.name}", 128) before, and bind the inner loop',
            )
        found[x.bind] = max(found[x.bind], span[1] + 1)
    nx, ny, nz = found.values()
    if nx * ny * nz > 1024 or nz > 64:
        raise UnsupportedError(f"a block of {nx} by {ny} by {nz} threads; at most 1024 fit, z 64")
    return nx, ny, nz


def _on_hardware(part: Program, indices: Mapping[str, Axis]) -> Program:
    """Every bound loop over the axis of its index."""
    named = {x.axis: indices[x.bind] for x in tree.loops(part.tree) if x.bind in indices and x.bind}
    placements: dict[str, Placement] = {}
    for n, p in part.placements.items():
        for a in p.axes:
            if a in named:
                p = p.rename(a, named[a])
        placements[n] = p
    order = part.tree
    for a, index in named.items():
        order = tree.rewrite(order, a, lambda x, index=index: replace(x, axis=index))  # type: ignore[misc]
    buffers = {
        array: replace(b, outside=tuple(named.get(a, a) for a in b.outside))
        for array, b in part.buffers.items()
    }
    return part.change(tree=order, placements=placements, buffers=buffers)


def _with_all_indices(part: Program, indices: Mapping[str, Axis]) -> Program:
    """Each statement under all indices of the launch, those that it lacked at 0."""
    placements = dict(part.placements)

    def go(t: Tree, have: frozenset[str]) -> Tree:
        if isinstance(t, Seq):
            return tree.seq([go(i, have) for i in t.items])
        if isinstance(t, Loop):
            return replace(t, body=go(t.body, have | {t.bind} if t.bind else have))
        out: Tree = t
        for i, a in reversed([*indices.items()]):
            if i not in have:
                p = placements[t.stmt]
                facts = (*p.facts, ("eq", Lin({a: 1})))
                placements[t.stmt] = Placement(
                    p.stmt, (*p.axes, a), p.index, facts, p.retired, p.roots
                )
                out = Loop(a, out, kind="bind", bind=i)
        return out

    order = go(part.tree, frozenset())
    for n, p in placements.items():
        axes = tree.axes_of(order, n)
        if any(a is not b for a, b in zip(axes, p.axes, strict=True)):
            placements[n] = Placement(p.stmt, axes, p.index, p.facts, p.retired, p.roots)
    return part.change(tree=order, placements=placements)


def _require_blocks_apart(part: Program, indices: Mapping[str, Axis]) -> None:
    """Refuse statements side by side that hand something from one block to another."""
    blocks = tuple(a for i, a in indices.items() if i in BLOCK_INDICES)
    names = tree.stmts(part.tree)
    for k, x in enumerate(names):
        for y in names[k + 1 :]:
            common = set(tree.common(part.tree, x, y)[0])
            apart = tuple(a for a in blocks if a not in common)
            if not apart:
                continue
            for c in between(part.stmt(x), part.stmt(y), part.sizes):
                if meets(part, x, y, c) and crosses(part, x, y, c, (), blocks):
                    raise UnsupportedError(
                        f"{y} uses {c.array.name} of {x} in another block of the same launch, and "
                        "blocks do not wait for each other",
                        details=f"  try  binding both in one loop over {apart[0].name}, or giving "
                        "each a nest of its own: decompose_reduction, compute_root",
                    )


def _private(part: Program, indices: Mapping[str, Axis]) -> Program:
    """Buffers of scope `local` once for each thread; of scope `shared` once for each block."""
    threads = {a: None for i, a in indices.items() if i in THREAD_INDICES}
    buffers = dict(part.buffers)
    for array, b in part.buffers.items():
        if b.scope == "shared":
            inner = next((a for a in b.outside if a in threads), None)
            if inner is not None:
                raise UnsupportedError(
                    f"{array.name} is shared by the threads of a block, and made inside a loop "
                    f"over {inner.name}, once for each of them",
                    details="  try  making the copy at a loop outside the loops of the threads",
                )
            continue
        have = set(b.outside)
        missing = tuple(a for a in threads if a not in have)
        if not missing:
            continue
        outside = (*b.outside, *missing)
        if not _one_thread(part, array, b.outside, missing):
            raise UnsupportedError(
                f"{array.name} is kept by each thread for itself, and one thread reads what "
                "another wrote",
                details=f'  try  s.set_scope("{array.name}", "shared"), or the same split and '
                "binding of all loops that touch it",
            )
        buffers[array] = replace(b, outside=outside, told=missing)
    return part.change(buffers=buffers)


def _one_thread(
    part: Program, array: Array, outside: tuple[Axis, ...], threads: tuple[Axis, ...]
) -> bool:
    """Whether each cell, under one point of `outside`, is touched by a single thread."""
    whole: Map | None = None
    for n in tree.stmts(part.tree):
        s = part.stmt(n)
        for access in (*s.writes, *s.reads):
            if access.array is not array:
                continue
            cells = access_map(s, access, part.sizes)
            m = ordered(part, n, (*outside, *threads)).reverse().apply_range(cells)
            m = m.intersect_params(context_set(part))
            whole = m if whole is None else whole.union(m)
    if whole is None:
        return True
    dims = whole.dim(dt.out)
    return _function(whole.wrap().flatten(), len(outside), len(threads), dims)


def _function(points: isl.Set, k: int, n: int, cells: int) -> bool:
    """Whether the `n` dimensions after the first `k` are a function of all others."""
    m = isl.Map.from_range(points)
    m = m.move_dims(dt.in_, 0, dt.out, 0, k)
    m = m.move_dims(dt.in_, k, dt.out, n, cells)
    return bool(m.is_single_valued())


__all__ = ["BLOCK_INDICES", "THREAD_INDICES", "Launch", "launches"]
