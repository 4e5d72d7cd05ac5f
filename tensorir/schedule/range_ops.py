"""The range of a loop cut in pieces with one body: partition, peel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import Fact, Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Array, Statement
from tensorir.poly import ranges, tree
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.relation import context_set, domain_set
from tensorir.poly.tree import At, Loop, Seq, Tree
from tensorir.schedule import bounds_text, partial, resolve, rewrite
from tensorir.schedule.explain import require_marks
from tensorir.schedule.loop_ops import follow, recut
from tensorir.schedule.narrowed import narrowed
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["partition", "peel"]


@primitive
def partition(
    s: Schedule, axis: str | Axis, at: object, *, into: tuple[str, str] | None = None
) -> Draft:
    """One loop to two over parts of its range, one after the other, with the same body.

    Needs nothing: the order stays. The first loop runs while the axis is less than `at`; it, the
    loops in it and its statements are copies, called `i.first`, `j.first`, `C.first`, to be
    scheduled on their own. What a body chooses between by its axes is settled where a part leaves
    no choice. Others call it `loop_partition` (TVM, Halide),
    `cut_loop` (Exo), index-set splitting.

    Parameters
    ----------
    axis : str or Axis
        The loop.
    at : int or expression or str
        Where the second part begins: a value of the axis, affine in sizes and loops around.
    into : tuple of str
        Names of the two loops; by default `i.first` and `i`.

    Raises
    ------
    ScheduleError
        `at` depends on a loop that is not around, or a name is in use.
    UnsupportedError
        `at` is not affine, or the axis is no affine function of the declared ones.

    Examples
    --------
    >>> import tensorir as tir
    >>> n = tir.var("n")
    >>> A = tir.placeholder((n, 8), name="A")
    >>> B = tir.compute((n, 8), lambda i, j: A[i, j] * 2.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..n
      for j in 0..8
        B[i, j] = A[i, j] * 2.0
    >>> print(s.partition("i", n // 2).loops())
    for i.first in 0..n//2
      for j.first in 0..8
        B[i.first, j.first] = A[i.first, j.first] * 2.0
    for i in n//2..n
      for j in 0..8
        B[i, j] = A[i, j] * 2.0
    """
    what = "partition"
    loop = resolve.axis(s, axis, primitive=what)
    value = bounds_text.parse(s, at, loop, what, "at")
    names = None
    if into is not None:
        names = resolve.new_names(s, into, ("", ""), primitive=what, gone=(loop.axis.name,))
    with rewrite.proving(s, what, "which choices the parts settle"):
        cut = _cut(s, s.program, loop, value, "first", what, names)
    ref = resolve.reference(s.program, loop.axis)
    kwargs = {} if into is None else {"into": names}
    record = ((ref, bounds_text.text(s, value)), kwargs)
    if cut is None:
        return Draft(s.program, record=record, idle="one of the parts has no points")
    require_marks(s, cut, tree.stmts(cut.tree), what)
    return Draft(cut, record=record)


@primitive
def peel(
    s: Schedule, axis: str | Axis, *, first: int | None = None, last: int | None = None
) -> Draft:
    """The first or the last iterations of a loop as loops of their own, with the same body.

    Needs one lower (upper) bound, which may depend on sizes and loops around. Copies are called
    `i.first`, `j.first` and `i.last`, `j.last`, as in `partition`; what is left keeps the names,
    and the order stays. Others call it peeling, `peel` (loopy's `peel_first`), `prologue` and
    `epilogue`.

    Parameters
    ----------
    axis : str or Axis
        The loop.
    first, last : int
        How many iterations; none by default, but one of them must be given.

    Raises
    ------
    ScheduleError
        Neither is given, or the loop has several bounds there.
    UnsupportedError
        The axis is no affine function of the declared ones.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8,), name="A")
    >>> B = tir.compute((8,), lambda i: A[tir.maximum(i - 1, 0)] + A[i], name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..8
      B[i] = if_then_else(i - 1 >= 0, A[i - 1], A[0]) + A[i]
    >>> print(s.peel("i", first=1).loops())
    for i.first in 0..1
      B[i.first] = A[0] + A[i.first]
    for i in 1..8
      B[i] = A[i - 1] + A[i]
    """
    what = "peel"
    loop = resolve.axis(s, axis, primitive=what)
    counts = {"first": first, "last": last}
    asked = {k: resolve.positive(n, k, primitive=what) for k, n in counts.items() if n is not None}
    if not asked:
        resolve.fail(f"{what}: give first= or last=, how many iterations")
    program = s.program
    cuts = {k: _end(s, loop, k == "first") for k in asked}
    for k, n in asked.items():
        value = cuts[k] + n if k == "first" else cuts[k] - n
        with rewrite.proving(s, what, "which choices the parts settle"):
            made = _cut(s, program, loop, value, k, what, None)
        if made is not None:
            program = made
            loop = _now(program, loop)
    require_marks(s, program, tree.stmts(program.tree), what)
    idle = "there is nothing on one side" if program is s.program else ""
    return Draft(program, idle=idle)


def _now(program: Program, loop: Loop) -> Loop:
    """The loop of that name: the first iterations taken off, its axis is another."""
    return next(x for x in tree.loops(program.tree) if x.axis.name == loop.axis.name)


def _end(s: Schedule, loop: Loop, first: bool) -> Lin:
    """The first value of a loop, or one past its last, over sizes and the loops around."""
    span = ranges.nest_bounds(s.program).loops.get(loop.axis)
    found = () if span is None else span.lower if first else span.upper
    name = resolve.reference(s.program, loop.axis)
    side = "lower" if first else "upper"
    if span is None or len(found) != 1:
        several = "no single" if span is not None else "no"
        resolve.fail(
            f"peel: {name!r} has {several} {side} bound",
            why="which iterations are the first or the last is then no affine question; partition "
            "the loop where you wish.",
        )
    c, e = found[0]
    return (e + (c - 1)) // c if first else e // c + 1


# -- the cut
@dataclass(slots=True)
class _Copy:
    """What a piece is called and made of."""

    program: Program
    suffix: str
    step: int
    axes: dict[Axis, Axis]
    arrays: dict[Array, Array]
    stmts: dict[str, str]


def _cut(
    s: Schedule,
    program: Program,
    loop: Loop,
    at: Lin,
    side: str,
    what: str,
    names: tuple[str, ...] | None,
) -> Program | None:
    """The loop in two at `at`, the one on that side a copy; None where a side never runs."""
    below: dict[str, Placement] = {}
    above: dict[str, Placement] = {}
    for n in tree.stmts(loop):
        p = program.placements[n]
        for out, fact in _sides(p, loop.axis, at, what).items():
            kept = _restricted(program, p, fact)
            if kept is not None:
                (below if out == "below" else above)[n] = kept
    if not below or not above:
        return None
    taken, rest = (below, above) if side == "first" else (above, below)
    label = side if names is None else names[0]
    copy = _naming(s, program, loop, label, list(taken), names)
    copied, order = _copied(copy, loop, taken)
    base = program.change(placements={**program.placements, **rest})
    kept_loop: Tree = _only(loop, set(rest))
    if side == "first" and (at.is_const or names is not None):
        base, kept_loop = _begin_at(base, kept_loop, loop.axis, at, names, s.next_number)
    pair = (order, kept_loop) if side == "first" else (kept_loop, order)
    changed = tree.rewrite(program.tree, loop.axis, lambda _: tree.seq(pair))
    if isinstance(changed, Seq):
        changed = tree.seq(changed.items)
    if kept_loop.axis is not loop.axis:  # type: ignore[union-attr]
        changed = recut(changed, loop.axis, kept_loop.axis)  # type: ignore[union-attr]
    buffers: dict[Array, Buffer] = dict(base.buffers)
    for old, new in copy.arrays.items():
        b = program.buffers[old]
        buffers[new] = replace(b, outside=tuple(copy.axes.get(a, a) for a in b.outside))
    for array, b in base.buffers.items():
        if rewrite.has(b.turns, loop.axis) or rewrite.has(b.turns, kept_loop.axis):  # type: ignore[union-attr]
            buffers[array] = replace(b, turns=(copy.axes[loop.axis], *b.turns))
    placements = {**base.placements, **copied}
    base = _hinted(base, copy)
    return rewrite.assemble(base, changed, placements, buffers, tuple(copy.arrays.values()))


def _hinted(program: Program, copy: _Copy) -> Program:
    """What was said of memory, said of the copies too."""
    own, arrays = copy.stmts, copy.arrays
    streaming = ((arrays[a], n) for a, n in program.streaming if a in arrays)
    ahead = (
        replace(x, stmt=own[x.stmt], array=arrays.get(x.array, x.array))
        for x in program.prefetches
        if x.stmt in own
    )
    return program.change(
        streaming=(*program.streaming, *streaming), prefetches=(*program.prefetches, *ahead)
    )


def _sides(p: Placement, axis: Axis, at: Lin, what: str) -> dict[str, Fact]:
    """The facts of the instances below and from `at` on, over iterators."""
    value = partial.axis_value(p, axis)
    env: dict[Axis | Var, Lin] = {}
    for a in at.atoms():
        if isinstance(a, Axis):
            known = partial.axis_value(p, a)
            if known is None:
                value = None
            else:
                env[a] = known
    if value is None:
        resolve.fail(
            f"{what}: {axis.name!r} is not an affine function of the declared axes",
            cls=UnsupportedError,
        )
    e = _without_floor(value - at.subst(env))
    return {"below": ("ge", -e - 1), "above": ("ge", e)}


def _without_floor(e: Lin) -> Lin:
    """Something that is at least 0 where `e` is: of one floor plus whole numbers the same."""
    floors = [a for a in e.terms if isinstance(a, tuple)]
    if len(floors) == 1 and isinstance(floors[0], tuple):
        kind, inner, n = floors[0]
        if kind == "//" and e.coef(floors[0]) == 1:
            return inner + e.without(floors[0]) * n
    return e


def _restricted(program: Program, p: Placement, fact: Fact) -> Placement | None:
    """The instances where a fact holds; None where it never does."""
    if fact[1].is_const:
        return p if fact[1].const >= 0 else None
    stmt = replace(p.stmt, domain=tuple((fact, *c) for c in p.stmt.domain))
    if domain_set(stmt, program.sizes).intersect_params(context_set(program)).is_empty():
        return None
    return p.with_stmt(narrowed(stmt, program))


def _naming(
    s: Schedule,
    program: Program,
    loop: Loop,
    label: str,
    stmts: list[str],
    names: tuple[str, ...] | None,
) -> _Copy:
    """Names for a copy of the loop, each with the label, numbered where one of them is in use."""
    under = [x.axis for x in tree.loops(loop) if set(tree.stmts(x)) & set(stmts)]
    arrays = [
        a for a, b in program.buffers.items()
        if rewrite.has(b.outside, loop.axis)
        and any(rewrite.touches(program.stmt(n), a) for n in stmts)
    ]  # fmt: skip
    taken = set(resolve.taken(program))
    everything = [*(a.name for a in under), *(a.name for a in arrays), *stmts]
    suffix, k = label, 1
    while any(f"{x}.{suffix}" in taken for x in everything):
        k += 1
        suffix = f"{label}{k}"
    axes = {a: Axis(f"{a.name}.{suffix}", a.lower, a.upper, reduce=a.reduce) for a in under}
    if names is not None:
        a = loop.axis
        axes[a] = Axis(names[0], a.lower, a.upper, reduce=a.reduce)
    return _Copy(
        program, suffix, s.next_number, axes,
        {a: replace(a, name=f"{a.name}.{suffix}") for a in arrays},
        {n: f"{n}.{suffix}" for n in stmts},
    )  # fmt: skip


def _copied(
    copy: _Copy, loop: Loop, taken: Mapping[str, Placement]
) -> tuple[dict[str, Placement], Tree]:
    """The placements and the tree of a copy of a loop."""
    made: dict[str, Placement] = {}
    for n, p in taken.items():
        stmt: Statement = rewrite.redirect(p.stmt, copy.arrays, writes=True)
        p = p.with_stmt(replace(stmt, name=copy.stmts[n]))
        for a in p.axes:
            if a in copy.axes:
                p = p.rename(a, copy.axes[a])
        made[copy.stmts[n]] = p
    return made, _renamed(copy, _only(loop, set(taken)))


def _only(t: Tree, names: set[str]) -> Loop:
    """A loop with the statements of `names` alone."""
    left = rewrite.without(t, [n for n in tree.stmts(t) if n not in names])
    assert isinstance(left, Loop)
    return left


def _renamed(copy: _Copy, t: Tree) -> Tree:
    if isinstance(t, At):
        return At(copy.stmts[t.stmt])
    if isinstance(t, Seq):
        return Seq(tuple(_renamed(copy, x) for x in t.items))
    axes = copy.axes
    cut = None if t.cut is None else (axes.get(t.cut[0], t.cut[0]), t.cut[1])
    like = None if t.like is None else axes.get(t.like, t.like)
    body = _renamed(copy, t.body)
    return replace(t, axis=axes[t.axis], body=body, cut=cut, like=like, step=copy.step)


def _begin_at(
    program: Program, loop: Tree, axis: Axis, at: Lin, names: tuple[str, ...] | None, step: int
) -> tuple[Program, Tree]:
    """The loop over an axis that begins at `at`, so that its blocks begin there."""
    assert isinstance(loop, Loop)
    name = axis.name if names is None else names[1]
    lower = at if at.is_const else axis.lower
    new = Axis(name, lower, axis.upper, reduce=axis.reduce)
    placements = dict(program.placements)
    for n in tree.stmts(loop):
        placements[n] = placements[n].rename(axis, new)
    buffers = follow(program.buffers, axis, (new,))
    changed = replace(loop, axis=new, step=step if names is not None else loop.step)
    return program.change(placements=placements, buffers=buffers), changed
