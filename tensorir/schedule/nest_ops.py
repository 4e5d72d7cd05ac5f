"""Primitives on the loops of a nest: reorder, tile; and how a reduction's init leaves its loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array
from tensorir.poly import tree
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.tree import Loop, Seq, Tree
from tensorir.schedule import resolve
from tensorir.schedule.explain import Fix, fix, require_marks, require_order
from tensorir.schedule.loop_ops import require_exact, require_tail, split_loop
from tensorir.schedule.primitive import Draft, primitive

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["Chain", "chain_of", "permute", "reorder", "separate", "tile"]


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Loops one inside the other, and what stands beside the next loop in the body of each."""

    loops: tuple[Loop, ...]
    before: tuple[tuple[Tree, ...], ...]
    after: tuple[tuple[Tree, ...], ...]


def chain_of(first: Loop, last: Axis) -> Chain:
    """The loops from `first` down to the one over `last`, which is inside it."""
    loops, before, after = [first], [], []
    while loops[-1].axis is not last:
        body = loops[-1].body
        items = body.items if isinstance(body, Seq) else (body,)
        k = next(k for k, x in enumerate(items) if tree.find(x, last) is not None)
        inside = items[k]
        assert isinstance(inside, Loop)
        before.append(items[:k])
        after.append(items[k + 1 :])
        loops.append(inside)
    return Chain(tuple(loops), tuple(before), tuple(after))


class _Copies:
    """Copies of loops for statements that leave them."""

    def __init__(self, program: Program, number: int) -> None:
        self.placements: dict[str, Placement] = dict(program.placements)
        self.buffers: dict[Array, Buffer] = dict(program.buffers)
        self.program = program
        self.number = number
        self.taken = set(resolve.taken(program))
        self.made: list[str] = []

    def around(self, loops: Sequence[Loop], item: Tree, primitive: str) -> Tree:
        """`item` in copies of `loops` of its own; outer to inner."""
        names = tree.stmts(item)
        new = {x.axis: self._axis(names[0], x.axis) for x in loops}
        for n in names:
            for a, b in new.items():
                self.placements[n] = self.placements[n].rename(a, b)
        self._keep_buffers(new, names, primitive)
        for x in reversed(loops):
            cut = x.cut
            if cut is not None:
                cut = (new[cut[0]], cut[1]) if cut[0] in new else None
            item = replace(
                x, axis=new[x.axis], body=item, cut=cut, like=x.axis, intrinsic=None,
                step=self.number,
            )  # fmt: skip
        return item

    def _axis(self, stmt: str, a: Axis) -> Axis:
        name = f"{stmt}.{a.name}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        self.made.append(name)
        return Axis(name, a.lower, a.upper, reduce=a.reduce)

    def _keep_buffers(self, new: dict[Axis, Axis], names: list[str], primitive: str) -> None:
        for array, b in list(self.buffers.items()):
            shared = next((a for a in b.outside if a in new), None)
            if shared is None:
                continue
            users = [n for n in self.program.placements if touches(self.program, n, array)]
            here = [n for n in users if n in names]
            if here and len(here) < len(users):
                resolve.fail(
                    f"{primitive}: {array.name} is kept inside {shared.name!r}, and both "
                    f"{here[0]} and {next(n for n in users if n not in here)} use it",
                    why="loops that share a buffer cannot be taken apart.",
                )
            if here:
                outside = tuple(new.get(a, a) for a in b.outside)
                self.buffers[array] = replace(b, outside=outside)


def touches(program: Program, name: str, array: Array) -> bool:
    """Whether a statement reads or writes an array."""
    stmt = program.stmt(name)
    return any(x.array is array for x in (*stmt.writes, *stmt.reads))


def permute(
    program: Program, chain: Chain, order: Sequence[Axis], *, number: int, primitive: str
) -> tuple[Program, list[str]]:
    """The loops of `chain` in another order; `order` names all of them.

    What stands beside a loop that another one crosses must be the init or the finish of a
    reduction; it gets copies of the loops it shared. Returns the program, not yet proved, and
    the names of the copies.
    """
    old = [x.axis for x in chain.loops]
    by_axis = {x.axis: x for x in chain.loops}
    copies = _Copies(program, number)
    first: dict[int, list[Tree]] = {}
    last: dict[int, list[Tree]] = {}
    for k, (before, after) in enumerate(zip(chain.before, chain.after, strict=True)):
        if not before and not after:
            continue
        level = max(m for m in range(k + 2) if set(order[:m]) == set(old[:m]))
        shared = chain.loops[level : k + 1]
        if shared:
            _require_init(program, chain, k, primitive)
        for x in before:
            item = copies.around(shared, x, primitive) if shared else x
            first.setdefault(level, []).append(item)
        wrapped = [copies.around(shared, x, primitive) if shared else x for x in after]
        last[level] = wrapped + last.get(level, [])
    t = chain.loops[-1].body
    for k in range(len(order) - 1, -1, -1):
        t = replace(by_axis[order[k]], body=t)
        if k in first or k in last:
            t = tree.seq([*first.get(k, ()), t, *last.get(k, ())])
    done = t
    changed = tree.rewrite(program.tree, old[0], lambda _: done)
    new = program.change(tree=flat(changed), placements=copies.placements, buffers=copies.buffers)
    return new, copies.made


def flat(t: Tree) -> Tree:
    """A Seq that came to stand in a Seq joined with it."""
    return tree.seq(t.items) if isinstance(t, Seq) else t


def separate(
    program: Program, chain: Chain, *, number: int, primitive: str
) -> tuple[Program, list[str]]:
    """What stands beside the innermost loop of `chain` taken out of the loops above that.

    It gets copies of them, before or after; the order of `chain` stays. This is a fission: the
    caller has it proved. Returns the program and the names of the copies.
    """
    shared = chain.loops[:-1]
    copies = _Copies(program, number)
    _require_init(program, chain, len(shared) - 1, primitive)
    before = [copies.around(shared, x, primitive) for x in chain.before[-1]]
    after = [copies.around(shared, x, primitive) for x in chain.after[-1]]
    t: Tree = chain.loops[-1]
    for k in range(len(shared) - 1, -1, -1):
        beside = k < len(shared) - 1
        items = (*chain.before[k], t, *chain.after[k]) if beside else (t,)
        t = replace(shared[k], body=tree.seq(items))
    done = tree.seq([*before, t, *after])
    changed = tree.rewrite(program.tree, shared[0].axis, lambda _: done)
    new = program.change(tree=flat(changed), placements=copies.placements, buffers=copies.buffers)
    return new, copies.made


def _require_init(program: Program, chain: Chain, k: int, primitive: str) -> None:
    """What stands beside loop k + 1 in loop k is the init or finish of a reduction inside."""
    inside = {
        program.stmt(n).stage
        for n in tree.stmts(chain.loops[k + 1])
        if program.stmt(n).role == "update"
    }
    for item in (*chain.before[k], *chain.after[k]):
        for n in tree.stmts(item):
            stmt = program.stmt(n)
            if stmt.role not in ("init", "finish") or stmt.stage not in inside:
                a, b = chain.loops[k].axis.name, chain.loops[k + 1].axis.name
                resolve.fail(
                    f"{primitive}: {n} runs in {a!r} beside {b!r}, so that loops cannot cross",
                    why="only the init and the finish of a reduction get loops of their own.",
                )


# -- primitives


@primitive
def reorder(s: Schedule, *axes: str | Axis) -> Draft:
    """The loops of one nest in another order.

    Needs every pair of instances that touch one cell, one of them writing, to keep its order. A
    reduction loop that moves outside loops which it shares with its init first gives the init
    loops of its own, named `C.init.i`. Others call it `reorder` (Halide, TVM), interchange,
    `transpose` of loops.

    Parameters
    ----------
    *axes : str or Axis
        The loops in their new order, outer to inner. Loops between them that are not named stay
        where they are.

    Raises
    ------
    ScheduleError
        The loops are not in one nest, or other work stands between them.
    IllegalSchedule
        The new order would change the result; carries two instances that show it.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8, 6), name="A")
    >>> B = tir.placeholder((6, 4), name="B")
    >>> k = tir.reduce_axis(6, name="k")
    >>> C = tir.compute((8, 4), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    >>> s = tir.schedule(C)
    >>> print(s.loops())
    for i in 0..8
      for j in 0..4
        C[i, j] = 0.0
        for k in 0..6
          C[i, j] = fma(A[i, k], B[k, j], C[i, j])
    >>> print(s.reorder("i", "k", "j").loops())
    for i in 0..8
      for C.init.j in 0..4
        C[i, C.init.j] = 0.0
      for k in 0..6
        for j in 0..4
          C[i, j] = fma(A[i, k], B[k, j], C[i, j])
    """
    if len(axes) < 2:
        resolve.fail(f"reorder: at least two axes are needed, not {len(axes)}")
    loops = [resolve.axis(s, a, primitive="reorder") for a in axes]
    chain = _nest_of(s, loops, "reorder")
    order = _new_order(chain, [x.axis for x in loops])
    new, made = permute(s.program, chain, order, number=s.next_number, primitive="reorder")
    names = tree.stmts(chain.loops[0])
    asked = _crossings(chain, order)
    fixes = _other_orders(s, loops)
    reassociates = require_order(s, new, names, "reorder", asked=asked, fixes=fixes)
    require_marks(s, new, names, "reorder", asked=asked)
    idle = "" if asked or made else "the loops are in that order already"
    return Draft(new, reassociates, _copy_notes(made), idle=idle)


def _other_orders(s: Schedule, loops: Sequence[Loop]) -> Iterator[Fix]:
    """Other orders of the same loops, those that begin as was asked first.

    They are named only as a refusal asks for them.
    """
    if not 2 < len(loops) <= 4:
        return
    now = [x for x in tree.loops(s.program.tree) if x in loops]
    for order in list(permutations(loops))[1:]:
        if list(order) != now:
            names = tuple(resolve.reference(s.program, x.axis) for x in order)
            yield fix("keeps every dependence", ("reorder", names, {}))


def _crossings(chain: Chain, order: Sequence[Axis]) -> list[tuple[Loop, str]]:
    """For each loop that moves outside others: which."""
    place = {a: k for k, a in enumerate(order)}
    asked = []
    for k, x in enumerate(chain.loops):
        crossed = [y.axis.name for y in chain.loops[:k] if place[y.axis] > place[x.axis]]
        if crossed:
            asked.append((x, f"asked to go outside {' and '.join(crossed)}"))
    return asked


def _copy_notes(made: list[str]) -> tuple[str, ...]:
    return (f"loops of its own: {', '.join(made)}",) if made else ()


def _new_order(chain: Chain, named: Sequence[Axis]) -> list[Axis]:
    """All loops of the chain, the named ones in the order given at the places they hold."""
    given = iter(named)
    wanted = set(named)
    return [next(given) if x.axis in wanted else x.axis for x in chain.loops]


def _nest_of(s: Schedule, loops: Sequence[Loop], primitive: str) -> Chain:
    """The chain from the outermost to the innermost of `loops`."""
    for k, x in enumerate(loops):
        if any(y is x for y in loops[:k]):
            resolve.fail(f"{primitive}: {x.axis.name!r} is given twice")
    depth = {x.axis: sum(tree.find(y, x.axis) is not None for y in loops) for x in loops}
    inward = sorted(loops, key=lambda x: depth[x.axis])
    for out, inn in pairwise(inward):
        if tree.find(out, inn.axis) is None:
            names = (resolve.reference(s.program, x.axis) for x in loops if x in (out, inn))
            a, b = names
            resolve.fail(
                f"{primitive}: {a!r} and {b!r} are not in one nest",
                why="neither of the two loops is inside the other.",
            )
    return chain_of(inward[0], inward[-1].axis)


@primitive
def tile(
    s: Schedule,
    i: str | Axis,
    j: str | Axis,
    fi: int,
    fj: int,
    *,
    into: tuple[str, str, str, str] | None = None,
    tail: str = "auto",
) -> Draft:
    """Two loops to rectangles: both split, then the blocks outside and the points inside.

    Needs what `split` and `reorder` need. Others call it `tile` (Halide, TVM), blocking,
    strip-mine and interchange.

    Parameters
    ----------
    i, j : str or Axis
        The outer and the inner loop of a nest.
    fi, fj : int
        Extents of a tile.
    into : tuple of str
        Names of outer i, outer j, inner i, inner j; by default `io`, `jo`, `ii`, `ji`.
    tail : {"auto", "cut", "guard", "exact"}
        As in `split`, for both.

    Raises
    ------
    ScheduleError
        As `split` and `reorder`.
    IllegalSchedule
        Tiles would change the result; carries two instances that show it.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8, 32), name="A")
    >>> B = tir.compute((32, 8), lambda i, j: A[j, i], name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..32
      for j in 0..8
        B[i, j] = A[j, i]
    >>> print(s.tile("i", "j", 8, 4).loops())
    for io in 0..4
      for jo in 0..2
        for ii in 0..8
          for ji in 0..4
            B[8*io + ii, 4*jo + ji] = A[4*jo + ji, 8*io + ii]
    """
    loops = [resolve.axis(s, a, primitive="tile") for a in (i, j)]
    sizes = [resolve.positive(f, what, primitive="tile") for f, what in ((fi, "fi"), (fj, "fj"))]
    require_tail(tail, "tile")
    a, b = (x.axis.name for x in loops)
    default = (f"{a}o", f"{b}o", f"{a}i", f"{b}i")
    names = resolve.new_names(s, into, default, primitive="tile", gone=(a, b))
    before = _nest_of(s, loops, "tile")
    if before.loops[0] is not loops[0]:
        resolve.fail(f"tile: {a!r} is inside {b!r}; name the outer loop first")
    if tail == "exact":
        for x, size in zip(loops, sizes, strict=True):
            require_exact(s, x, size, "tile")
    number = s.next_number
    program, io, ii = split_loop(
        s.program, loops[0].axis, sizes[0], (names[0], names[2]), tail=tail, number=number
    )
    program, jo, ji = split_loop(
        program, loops[1].axis, sizes[1], (names[1], names[3]), tail=tail, number=number
    )
    outermost = tree.find(program.tree, io)
    assert outermost is not None
    chain = chain_of(outermost, ji)
    new, made = permute(
        program, chain, _new_order(chain, (io, jo, ii, ji)), number=number, primitive="tile"
    )
    under = tree.stmts(loops[0])
    reassociates = require_order(
        s, new, under, "tile", asked=[(loops[1], f"its blocks would go outside the points of {a}")]
    )
    require_marks(s, new, under, "tile")
    return Draft(new, reassociates, _copy_notes(made))
