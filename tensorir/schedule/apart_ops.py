"""Loops taken apart and put together: fission, merge, unroll_and_jam."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array
from tensorir.poly import tree
from tensorir.poly.model import Buffer
from tensorir.poly.tree import Loop, Seq, Tree
from tensorir.schedule import resolve, rewrite
from tensorir.schedule.explain import fix, require_marks, require_order
from tensorir.schedule.loop_ops import follow, recut, split_loop, start_of
from tensorir.schedule.nest_ops import chain_of, flat, permute
from tensorir.schedule.parallel_ops import mark
from tensorir.schedule.primitive import Draft, primitive

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["fission", "merge", "unroll_and_jam"]


@primitive
def fission(
    s: Schedule, axis: str | Axis, after: object, *, into: tuple[str, str] | None = None
) -> Draft:
    """One loop around several statements to two loops, one after the other.

    Needs nothing of the later statements to be used by the earlier ones in a later iteration, and
    no buffer that is kept inside the loop and used by both. Others call it `fission` (Exo), loop
    distribution, `decompose_reduction` (TVM) where it is an init.

    Parameters
    ----------
    axis : str or Axis
        The loop.
    after : str or Tensor
        A stage, or a statement such as `C.init`: the first loop runs it and what is before it.
    into : tuple of str
        Names of the two loops; by default the first is named after its first statement,
        `X.i`, and the second keeps its name.

    Raises
    ------
    ScheduleError
        It does not run in the loop, or nothing comes after it there; a buffer is shared.
    IllegalSchedule
        An earlier statement uses what a later one leaves; carries two instances that show it.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8, 4), name="A")
    >>> k = tir.reduce_axis(4, name="k")
    >>> C = tir.compute((8,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    >>> s = tir.schedule(C)
    >>> print(s.loops())
    for i in 0..8
      C[i] = 0.0
      for k in 0..4
        C[i] = C[i] + A[i, k]
    >>> print(s.fission("i", after="C.init").loops())
    for C.init.i in 0..8
      C[C.init.i] = 0.0
    for i in 0..8
      for k in 0..4
        C[i] = C[i] + A[i, k]
    """
    what = "fission"
    loop = resolve.axis(s, axis, primitive=what)
    first, second = _parts(s, loop, after)
    owner = tree.stmts(first)[0]
    name = loop.axis.name
    default = (f"{owner}.{name}", name)
    names = resolve.new_names(s, into, default, primitive=what, gone=(name,))
    if into is None:
        names = (names[0], name)
    axes = [Axis(n, loop.axis.lower, loop.axis.upper, reduce=loop.axis.reduce) for n in names]
    if into is None:
        axes[1] = loop.axis
    program = s.program
    placements = dict(program.placements)
    loops: list[Tree] = []
    for a, part in zip(axes, (first, second), strict=True):
        cut = loop.cut if loop.cut is None or tree.find(part, loop.cut[0]) is not None else None
        like = loop.like if a is loop.axis else loop.axis
        made = replace(loop, axis=a, body=part, cut=cut)
        loops.append(made if a is loop.axis else replace(made, like=like, step=s.next_number))
        if a is not loop.axis:
            for n in tree.stmts(part):
                placements[n] = placements[n].rename(loop.axis, a)
    buffers = _apart(s, loop, tree.stmts(first), axes)
    order = flat(tree.rewrite(program.tree, loop.axis, lambda _: tree.seq(loops)))
    new = program.change(tree=order, placements=placements, buffers=buffers)
    under = tree.stmts(loop)
    reassociates = require_order(s, new, under, what)
    require_marks(s, new, under, what)
    return Draft(new, reassociates)


def _parts(s: Schedule, loop: Loop, after: object) -> tuple[Tree, Tree]:
    """The body of a loop up to the item that runs `after`, and the rest."""
    what = "fission"
    inside = tree.stmts(loop)
    ref = resolve.reference(s.program, loop.axis)
    if isinstance(after, str) and after in s.program.placements:
        wanted = {after}
    else:
        wanted = set(resolve.statements(s.program, resolve.stage(s, after, primitive=what)))
    shown = after if isinstance(after, str) else getattr(after, "name", str(after))
    if wanted.isdisjoint(inside):
        resolve.fail(f"{what}: {shown} does not run inside {ref!r}")
    items = loop.body.items if isinstance(loop.body, Seq) else (loop.body,)
    last = max(k for k, x in enumerate(items) if not wanted.isdisjoint(tree.stmts(x)))
    if last == len(items) - 1:
        resolve.fail(
            f"{what}: nothing runs after {shown} in {ref!r}",
            why="the loop is cut between two items of its body.",
        )
    return tree.seq(items[: last + 1]), tree.seq(items[last + 1 :])


def _apart(s: Schedule, loop: Loop, first: list[str], axes: list[Axis]) -> dict[Array, Buffer]:
    """Buffers kept inside a loop that is taken apart, each inside that of its users."""
    program, inside = s.program, set(tree.stmts(loop))
    out: dict[Array, Buffer] = dict(program.buffers)
    for array, b in program.buffers.items():
        if not rewrite.has(b.outside, loop.axis):
            continue
        users = [n for n in inside if rewrite.touches(program.stmt(n), array)]
        early = [n for n in tree.stmts(loop) if n in users and n in first]
        late = [n for n in tree.stmts(loop) if n in users and n not in first]
        if early and late:
            resolve.fail(
                f"fission: {array.name} is kept inside {loop.axis.name!r}, and both {early[0]} "
                f"and {late[0]} use it",
                why="loops that share a buffer cannot be taken apart.",
            )
        new = axes[0] if early else axes[1]
        out[array] = replace(b, outside=tuple(new if a is loop.axis else a for a in b.outside))
    return out


@primitive
def merge(s: Schedule, first: str | Axis, second: str | Axis) -> Draft:
    """Two loops that follow each other to one that runs both bodies in each iteration.

    Needs nothing of the first loop that the second uses to come in a later iteration. Ranges that
    differ get guards. The loop keeps the second one's name. Others call it loop fusion,
    `compute_with` (Halide), `merge` (TVM), `fuse` (Exo).

    Parameters
    ----------
    first, second : str or Axis
        Two loops, directly one after the other.

    Raises
    ------
    ScheduleError
        They do not follow each other, or are marked differently.
    IllegalSchedule
        The second would use what the first has not made yet; carries two instances that show it.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8,), name="A")
    >>> X = tir.compute((8,), lambda x: A[x] + 1.0, name="X")
    >>> Y = tir.compute((8,), lambda i: X[i] * 2.0, name="Y")
    >>> s = tir.schedule(Y)
    >>> print(s.loops())
    for x in 0..8
      X[x] = A[x] + 1.0
    for i in 0..8
      Y[i] = X[i] * 2.0
    >>> print(s.merge("x", "i").loops())
    for i in 0..8
      X[i] = A[i] + 1.0
      Y[i] = X[i] * 2.0
    """
    what = "merge"
    one = resolve.axis(s, first, primitive=what)
    two = resolve.axis(s, second, primitive=what)
    _require_adjacent(s, one, two)
    if one.kind != two.kind or one.width != two.width or one.bind != two.bind:
        marked = one if one.kind != "serial" else two
        resolve.fail(
            f"{what}: {marked.axis.name!r} is marked {marked.kind}; merge first, then mark"
        )
    program = s.program
    under = [*tree.stmts(one), *tree.stmts(two)]
    # a new axis: a statement of the first loop may have had the second's before
    axis = Axis(two.axis.name, reduce=one.axis.reduce or two.axis.reduce)
    placements = dict(program.placements)
    for x in (one, two):
        for n in tree.stmts(x):
            placements[n] = placements[n].rename(x.axis, axis)
    body = tree.seq([one.body, two.body])
    joined = replace(two, axis=axis, body=body, tail="auto", cut=None, step=s.next_number)

    def without(t: Tree) -> Tree:
        if isinstance(t, Seq) and any(x is one for x in t.items):
            kept = [joined if x is two else x for x in t.items if x is not one]
            return tree.seq(kept)
        if isinstance(t, Seq):
            return Seq(tuple(map(without, t.items)))
        return replace(t, body=without(t.body)) if isinstance(t, Loop) else t

    order = without(program.tree)
    buffers = program.buffers
    for x in (one, two):
        order = recut(order, x.axis, axis)
        buffers = follow(buffers, x.axis, (axis,))
    new = program.change(tree=order, placements=placements, buffers=buffers)
    refs = [resolve.reference(program, x.axis) for x in (one, two)]
    asked = [(two, f"asked to run with {one.axis.name}")]
    aligned = [
        fix("lets the second lag behind", ("shift", (refs[1], n), {}), ("merge", tuple(refs), {}))
        for n in (1, 2, 3)
    ]
    reassociates = require_order(s, new, under, what, asked=asked, fixes=aligned)
    require_marks(s, new, under, what, asked=asked)
    return Draft(new, reassociates)


def _require_adjacent(s: Schedule, one: Loop, two: Loop) -> None:
    names = [resolve.reference(s.program, x.axis) for x in (one, two)]
    if one.axis is two.axis:
        resolve.fail(f"merge: {names[0]!r} is given twice")
    place = _Place.of(s.program.tree, one, two)
    if place is None:
        resolve.fail(
            f"merge: {names[0]!r} and {names[1]!r} do not follow each other in one body",
            why="only loops of one body, directly one after the other, become one.",
        )
    if place.after < 0:
        resolve.fail(f"merge: {names[1]!r} comes before {names[0]!r}; name the earlier loop first")
    if place.between:
        resolve.fail(f"merge: {place.between[0]} runs between {names[0]!r} and {names[1]!r}")


class _Place(NamedTuple):
    """How far one item of a body is after another, and the statements between them."""

    after: int
    between: list[str]

    @staticmethod
    def of(t: Tree, one: Loop, two: Loop) -> _Place | None:
        if isinstance(t, Seq):
            at = [k for x in (one, two) for k, y in enumerate(t.items) if y is x]
            if len(at) == 2:
                between = [n for x in t.items[at[0] + 1 : at[1]] for n in tree.stmts(x)]
                return _Place(at[1] - at[0], between)
        below = t.items if isinstance(t, Seq) else (t.body,) if isinstance(t, Loop) else ()
        return next((p for p in (_Place.of(x, one, two) for x in below) if p is not None), None)


@primitive
def unroll_and_jam(s: Schedule, axis: str | Axis, factor: int) -> Draft:
    """A loop in blocks whose points run side by side, innermost.

    Needs what a `reorder` of the points inside the loops below needs, which must be one nest. The
    loop over blocks keeps the name, the points are `i.u`, unrolled inside everything else. Others
    call it register tiling, `unroll_and_jam` (LLVM, ICC).

    Parameters
    ----------
    axis : str or Axis
        The loop.
    factor : int
        How many iterations run side by side.

    Raises
    ------
    ScheduleError
        Nothing is inside it to jam, other work stands between, or it is marked already.
    IllegalSchedule
        Running side by side would change the result; carries two instances that show it.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8, 4), name="A")
    >>> B = tir.compute((8, 4), lambda i, j: A[i, j] * 2.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..8
      for j in 0..4
        B[i, j] = A[i, j] * 2.0
    >>> print(s.unroll_and_jam("i", 2).loops())
    for i in 0..4
      for j in 0..4
        for i.u in 0..2  # unroll
          B[2*i + i.u, j] = A[2*i + i.u, j] * 2.0
    """
    what = "unroll_and_jam"
    loop = resolve.axis(s, axis, primitive=what)
    size = resolve.positive(factor, "factor", primitive=what)
    name = loop.axis.name
    ref = resolve.reference(s.program, loop.axis)
    if loop.kind != "serial":
        resolve.fail(f"{what}: {ref!r} is marked {loop.kind} already")
    inner = _innermost(loop)
    if inner is loop:
        resolve.fail(
            f"{what}: there is no loop inside {ref!r} to jam its copies in",
            why="unroll alone serves it.",
        )
    number = s.next_number
    names = (name, resolve.free_name(s, f"{name}.u"))
    program, outer, point = split_loop(
        s.program, loop.axis, size, names, number=number, base=start_of(loop.axis)
    )
    block = tree.find(program.tree, outer)
    assert block is not None
    chain = chain_of(block, inner.axis)
    order = [x.axis for x in chain.loops if x.axis is not point] + [point]
    new, made = permute(program, chain, order, number=number, primitive=what)
    new = mark(new, point, "unroll")
    under = tree.stmts(loop)
    asked = [(loop, f"{size} of its iterations asked to run side by side")]
    reassociates = require_order(s, new, under, what, asked=asked)
    require_marks(s, new, under, what, asked=asked)
    notes = (f"loops of its own: {', '.join(made)}",) if made else ()
    idle = "one iteration has nothing beside it" if size == 1 else ""
    return Draft(new, reassociates, notes, idle=idle)


def _innermost(loop: Loop) -> Loop:
    """The innermost loop of the nest that a loop is around, whatever stands beside."""
    now = loop
    while True:
        items = now.body.items if isinstance(now.body, Seq) else (now.body,)
        below = [x for x in items if isinstance(x, Loop)]
        if not below:
            return now
        now = below[-1]
