"""Reductions: where the initial value is set, and partial results that are combined at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import ZERO, Lin, floordiv
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Statement
from tensorir.poly import legality, tree
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import At, Loop, Tree
from tensorir.schedule import nest_ops, parallel_ops, partial, resolve, rewrite
from tensorir.schedule.explain import accepted, fix, require_marks, require_order
from tensorir.schedule.loop_ops import split
from tensorir.schedule.primitive import Draft, primitive

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["decompose_reduction", "init_at", "rfactor", "vector_reduce"]


# -- where the initial value is set
@dataclass(frozen=True, slots=True, eq=False)
class _Reduction:
    """A stage that reduces: its init, its update, and the reduction loops around the update.

    `direct` is false where the update goes to a buffer that the init does not write.
    """

    name: str
    init: str
    update: str
    loops: tuple[Loop, ...]
    direct: bool


def _reduction(s: Schedule, stage: object, axis: str | Axis, what: str) -> tuple[_Reduction, Loop]:
    """The reduction of a stage, and the loop; of one in parts that which the loop is around."""
    name = resolve.stage(s, stage, primitive=what)
    program = s.program
    names = resolve.statements(program, name)
    inits = [n for n in names if n == f"{name}.init" or n.startswith(f"{name}.init.")]
    updates = [n for n in names if program.stmt(n).role == "update"]
    if not inits or not updates:
        resolve.fail(f"{what}: {name} is not a reduction")
    rewrite.require_unshared(s, names, what)
    loop = resolve.axis(s, axis, primitive=what)
    started = rewrite.written(program, inits)
    same = [n for n in updates if set(rewrite.written(program, [n])) <= set(started)]
    among = same or updates
    inside = set(tree.stmts(loop))
    update = next((n for n in among if n in inside), among[0])
    part = f"{name}.init{update.removeprefix(name)}"
    init = part if part in inits else inits[0]
    loops = partial.reduction_loops(program, update)
    return _Reduction(name, init, update, loops, bool(same)), loop


@primitive
def decompose_reduction(s: Schedule, stage: object, axis: str | Axis) -> Draft:
    """The initial value of a reduction set in loops of its own, before a loop around its updates.

    Needs a loop with no reduction loop around it. The loops are copies, called `C.init.i`; so are
    those of a finish, after it. Others call it `decompose_reduction` (TVM), loop distribution.

    Parameters
    ----------
    stage : str or Tensor
        A reduction.
    axis : str or Axis
        The loop before which it is done.

    Raises
    ------
    ScheduleError
        Not a reduction, a loop inside a reduction loop, or an init that is outside already.
    IllegalSchedule
        Something between would then see another value.

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
    >>> print(s.decompose_reduction("C", "i").loops())
    for C.init.i in 0..4
      C[C.init.i] = 0.0
    for i in 0..4
      for k in 0..6
        C[i] = C[i] + A[i, k]
    """
    what = "decompose_reduction"
    r, loop = _reduction(s, stage, axis, what)
    program = s.program
    around = tree.loops_of(program.tree, r.init)
    if r.update not in tree.stmts(loop):
        resolve.fail(f"{what}: {loop.axis.name!r} is not a loop around {r.update}")
    _require_no_reduction_around(s, r, loop, what)
    if not any(x.axis is loop.axis for x in around):
        resolve.fail(
            f"{what}: the initial value of {r.name} is set before {loop.axis.name!r} already"
        )
    if any(x.axis in {y.axis for y in r.loops} for x in around):
        new, made = _out_of_reduction(s, r, loop, what)
    else:
        new, made = _apart(s, r, loop, what)
    rewrite.require_reach(s, new, [r.init], what)
    names = _concerned(new, r)
    require_order(s, new, names, what)
    require_marks(s, new, names, what)
    return Draft(new, notes=(f"loops of its own: {', '.join(made)}",) if made else ())


def _concerned(program: Program, r: _Reduction) -> list[str]:
    arrays = rewrite.written(program, [r.init, r.update])
    return [n for n in tree.stmts(program.tree) if any(
        rewrite.touches(program.stmt(n), a) for a in arrays
    )]  # fmt: skip


def _require_no_reduction_around(s: Schedule, r: _Reduction, loop: Loop, what: str) -> None:
    for x in r.loops:
        if x.axis is loop.axis:
            return
        if tree.find(x, loop.axis) is not None:
            resolve.fail(
                f"{what}: {loop.axis.name!r} is inside the reduction loop {x.axis.name!r}",
                why="the initial value would be set again in each of its iterations.",
            )


def _apart(s: Schedule, r: _Reduction, loop: Loop, what: str) -> tuple[Program, list[str]]:
    """Init and finish out of the loops from `loop` on that they share with the update."""
    program = s.program
    shared = {x.axis for x in tree.loops_of(program.tree, r.init)}
    inner = next((x for x in tree.loops_of(program.tree, r.update) if x.axis not in shared), None)
    if inner is None:
        resolve.fail(f"{what}: {r.init} and {r.update} run in the same loops")
    chain = nest_ops.chain_of(loop, inner.axis)
    return nest_ops.separate(program, chain, number=s.next_number, primitive=what)


def _out_of_reduction(
    s: Schedule, r: _Reduction, loop: Loop, what: str
) -> tuple[Program, list[str]]:
    """An init that `init_at` put into a reduction loop, back in loops of its own."""
    program = s.program
    reducing = {x.axis for x in r.loops}
    around = tree.loops_of(program.tree, r.init)
    first = next(k for k, x in enumerate(around) if x.axis is loop.axis)
    own = [x for x in around[first:] if x.axis not in reducing]
    p = program.placements[r.init]
    over = {a for a in p.axes if a in reducing}
    partial.require_apart(over, {a for e in p.index.values() for a in e.atoms()}, what)
    p = partial.less(p, over)
    p, item, made = _copies(s, p, own, At(r.init), r.init)
    kept = rewrite.without(program.tree, [r.init])
    assert kept is not None
    outer = around[first - 1].axis if first else None
    order = rewrite.before(kept, outer, tree.stmts(loop), item)
    placements = {**program.placements, r.init: p}
    return rewrite.assemble(program, order, placements, program.buffers), made


def _copies(
    s: Schedule,
    p: Placement,
    loops: Sequence[Loop],
    item: Tree,
    owner: str,
    gone: Iterable[str] = (),
) -> tuple[Placement, Tree, list[str]]:
    """`item` in copies of loops, of the same kinds, named after `owner`; `gone` names are free."""
    taken = set(resolve.taken(s.program)) - set(gone)
    new: dict[Axis, Axis] = {}
    for x in loops:
        short = x.axis.name.removeprefix(f"{owner}.")
        name = f"{owner}.{short}"
        while name in taken:
            name += "_"
        taken.add(name)
        a = x.axis
        new[a] = Axis(name, a.lower, a.upper, reduce=a.reduce)
        p = p.rename(a, new[a])
    for x in reversed(loops):
        cut = (new[x.cut[0]], x.cut[1]) if x.cut is not None and x.cut[0] in new else None
        item = replace(x, axis=new[x.axis], body=item, cut=cut, intrinsic=None, step=s.next_number)
    return p, item, [a.name for a in new.values()]


@primitive
def init_at(s: Schedule, stage: object, axis: str | Axis) -> Draft:
    """The initial value of a reduction set in the first iteration of its outermost loop.

    Needs the outermost reduction loop. The init runs beside the updates, before the next
    reduction loop inside; a `cache_write` there then loads only in later iterations. The inverse
    of `decompose_reduction`. Others have no name for it, and write a test in the loop.

    Parameters
    ----------
    stage : str or Tensor
        A reduction.
    axis : str or Axis
        Its outermost reduction loop.

    Raises
    ------
    ScheduleError
        Not a reduction, or not its outermost reduction loop.
    IllegalSchedule
        An update would come before.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 6), name="A")
    >>> k = tir.reduce_axis(6, name="k")
    >>> C = tir.compute((4,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    >>> s = tir.schedule(C).reorder("k", "i")
    >>> print(s.loops())
    for C.init.i in 0..4
      C[C.init.i] = 0.0
    for k in 0..6
      for i in 0..4
        C[i] = C[i] + A[i, k]
    >>> print(s.init_at("C", "k").loops())
    for k in 0..6
      for i in 0..4
        if k == 0
          C[i] = 0.0
        C[i] = C[i] + A[i, k]
    """
    what = "init_at"
    r, loop = _reduction(s, stage, axis, what)
    if not r.direct:
        kept = rewrite.written(s.program, [r.update])[0].name
        resolve.fail(
            f"{what}: {r.update} accumulates into {kept}, and {r.init} does not write that",
            why="init_at comes before cache_write.",
        )
    _require_outermost(s, r, loop, what)
    if any(x.axis is loop.axis for x in tree.loops_of(s.program.tree, r.init)):
        resolve.fail(f"{what}: the initial value of {r.name} is set in {loop.axis.name!r} already")
    violation = None
    new: Program | None = None
    for first in _first_values(s, r, loop):
        new = _initialised(s, r, loop, first, what)
        with rewrite.proving(s, what, f"that no update of {r.name} comes before"):
            violation = legality.turned(s.program, new, _concerned(new, r))
        if violation is None:
            break
    assert new is not None
    names = _concerned(new, r)
    require_order(s, new, names, what)
    rewrite.require_reach(s, new, [r.init], what)
    require_marks(s, new, names, what)
    return Draft(new)


def _require_outermost(s: Schedule, r: _Reduction, loop: Loop, what: str) -> None:
    if not r.loops:
        resolve.fail(f"{what}: no reduction loop is left around {r.update}")
    outermost = r.loops[0]
    if loop.axis is outermost.axis:
        return
    name, wanted = loop.axis.name, resolve.reference(s.program, outermost.axis)
    tries = [fix("is the outermost", (what, (r.name, wanted), {}))]
    if any(x.axis is loop.axis for x in r.loops):
        line = f"{what}: {name!r} is not the outermost reduction loop of {r.name}; {wanted!r} is"
    else:
        line = f"{what}: {name!r} is not a reduction loop of {r.name}"
    resolve.fail(line, tries=[(f.code, f.effect) for f in accepted(s, tries)])


def _first_values(s: Schedule, r: _Reduction, loop: Loop) -> list[Lin]:
    """What the first value of the loop may be, affine in the loops around: to be proved."""
    p = s.program.placements[r.update]
    out: list[Lin] = []
    for it in partial.reduction_iters(p.stmt):
        index = p.index[it]
        factor = index.coef(loop.axis)
        if factor <= 0 or it.lower is None:
            continue
        low = it.lower.subst(dict(p.index.items())) - index.const
        kept = floordiv(low, factor)
        if not any(a is loop.axis for a in kept.atoms()):
            out.append(kept)
    return list(dict.fromkeys([*out, ZERO]))


def _initialised(s: Schedule, r: _Reduction, loop: Loop, first: Lin, what: str) -> Program:
    """The program whose init runs beside the update, where `loop` is at `first`."""
    program = s.program
    around = tree.loops_of(program.tree, r.update)
    depth = len(around)
    if len(r.loops) > 1:
        depth = next(k for k, x in enumerate(around) if x.axis is r.loops[1].axis)
    shared, own = around[:depth], around[depth:]
    reducing = {x.axis for x in r.loops}
    p = partial.spatial_placement(program.placements[r.update], program.stmt(r.init), what)
    p = replace(p, axes=(*p.axes, loop.axis), facts=(*p.facts, ("eq", Lin({loop.axis: 1}) - first)))
    kept = rewrite.without(program.tree, [r.init])
    assert kept is not None
    left = {x.axis.name for x in tree.loops(kept)}
    gone = [x.axis.name for x in tree.loops(program.tree) if x.axis.name not in left]
    copied = [x for x in own if x.axis not in reducing]
    p, item, _ = _copies(s, p, copied, At(r.init), r.init, gone)
    order = rewrite.before(kept, shared[-1].axis, [r.update], item)
    placements = {**program.placements, r.init: p}
    return rewrite.assemble(program, order, placements, program.buffers)


# -- partial results
@primitive
def rfactor(
    s: Schedule,
    axis: str | Axis,
    *,
    into: str | None = None,
    at: str | Axis | None = None,
    lanes: int | None = None,
) -> Draft:
    """A partial result for each point of a reduction loop, and one reduction over those at the end.

    Needs an associative reducer with an identity, commutative unless the loop is the outermost
    reduction loop. It regroups the reduction: floating results may differ in rounding. The loop
    then carries nothing and can be vectorised or shared out. Others call it `rfactor` (Halide,
    TVM), privatisation of a reduction.

    Parameters
    ----------
    axis : str or Axis
        A reduction loop.
    into : str
        The name of the partial results, and of their stage; by default `C_rf` for `C`.
    at : str or Axis
        A loop outside all reduction loops in whose body partials are started and combined; by
        default the innermost that the reduction shares with its finish or in which its result is
        kept, else everything is partial at once.
    lanes : int
        The final reduction goes in vectors of that many lanes, with a horizontal end.

    Raises
    ------
    ScheduleError
        Not a reduction loop, or a loop `at` inside one.
    IllegalSchedule
        A reducer that may not be regrouped.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 64), name="A")
    >>> k = tir.reduce_axis(64, name="k")
    >>> C = tir.compute((4,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    >>> s = tir.schedule(C).split("k", 8)
    >>> print(s.loops())
    for i in 0..4
      C[i] = 0.0
      for ko in 0..8
        for ki in 0..8
          C[i] = C[i] + A[i, 8*ko + ki]
    >>> print(s.rfactor("ki", into="P", at="i").loops())
    for i in 0..4
      alloc P: float32 in global
      C[i] = 0.0
      for P.init.ki in 0..8
        P[P.init.ki, i] = 0.0
      for ko in 0..8
        for ki in 0..8
          P[ki%8, i] = P[ki%8, i] + A[i, 8*ko + ki]
      for C.ki in 0..8
        C[i] = C[i] + P[C.ki, i]
    """
    what = "rfactor"
    loop = resolve.axis(s, axis, primitive=what)
    update = _update_of(s, loop, what)
    rewrite.require_unshared(s, [update], what)
    partial.require_algebra(s, update, loop, what)
    inside = None if at is None else resolve.axis(s, at, primitive=what)
    place = partial.place_of(s, update, inside, what)
    name = f"{s.program.stmt(update).stage}_rf"
    if into is None:
        made = resolve.free_name(s, name)
    else:
        made = resolve.new_name(s, into, primitive=what, what="name")
    width = None if lanes is None else resolve.positive(lanes, "lanes", primitive=what)
    with rewrite.proving(s, what, f"which partial results {update} has"):
        new, added = partial.factored(s, update, loop, place, made, width, what)
    rewrite.require_reach(s, new, added, what)
    partial.require_between(s, new, update, made, what)
    require_marks(s, new, added, what)
    reducer = s.program.stmt(update).combiner
    assert reducer is not None
    return Draft(new, reassociates=not reducer.exact)


def _update_of(s: Schedule, loop: Loop, what: str) -> str:
    """The update that reduces over a loop."""
    program = s.program
    found = [
        n
        for n in tree.stmts(loop)
        if program.stmt(n).role == "update"
        and any(x.axis is loop.axis for x in partial.reduction_loops(program, n))
    ]
    if not found:
        updates = [n for n in tree.stmts(loop) if program.stmt(n).role == "update"]
        others = [
            resolve.reference(program, x.axis)
            for n in updates
            for x in partial.reduction_loops(program, n)
        ]
        why = f"the reduction loops inside it are {' and '.join(others)}." if others else ""
        resolve.fail(f"{what}: {loop.axis.name!r} is not a loop over a reduction", why=why)
    if len(found) > 1:
        resolve.fail(f"{what}: {loop.axis.name!r} is a loop of {' and of '.join(found)}")
    return found[0]


@primitive
def vector_reduce(
    s: Schedule, axis: str | Axis, width: int | None = None, accumulators: int = 4
) -> Schedule:
    """A reduction in vector lanes: several vectors of partial results, and a horizontal end.

    Needs what `rfactor` needs. Recorded as the `split`, `rfactor` and `vectorize` that it is.
    Others write those by hand (Halide, TVM), or ask the compiler for `-ffast-math`.

    Parameters
    ----------
    axis : str or Axis
        A reduction loop.
    width : int
        The lanes of a vector; by default 64 bytes of the accumulator's type.
    accumulators : int
        Vectors that accumulate side by side, which hides the latency of one.

    Raises
    ------
    ScheduleError, IllegalSchedule
        As `rfactor`.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 64), name="A")
    >>> k = tir.reduce_axis(64, name="k")
    >>> C = tir.compute((4,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    >>> s = tir.schedule(C)
    >>> print(s.loops())
    for i in 0..4
      C[i] = 0.0
      for k in 0..64
        C[i] = C[i] + A[i, k]
    >>> s = s.vector_reduce("k", 8, accumulators=2)
    >>> print(s.loops())
    for i in 0..4
      alloc C_rf: float32 in local
      C[i] = 0.0
      for C_rf.init.ki in 0..16  # vectorize 16
        C_rf[C_rf.init.ki, i] = 0.0
      for ko in 0..4
        for ki in 0..16  # vectorize 16
          C_rf[ki%16, i] = C_rf[ki%16, i] + A[i, 16*ko + ki]
      for C.ki in 0..16  # vectorize 8
        C[i] = C[i] + C_rf[C.ki, i]
    >>> for step in s.trace:
    ...     print(step.text)
    split("k", 16, into=("ko", "ki"))
    rfactor("ki", at="i", lanes=8)
    set_scope("C_rf", "local")
    vectorize("ki", 16)
    """
    what = "vector_reduce"
    loop = resolve.axis(s, axis, primitive=what)
    update = _update_of(s, loop, what)
    rewrite.require_unshared(s, [update], what)
    partial.require_algebra(s, update, loop, what, regroups=True)
    stmt: Statement = s.program.stmt(update)
    lanes = max(1, 64 // max(w.array.dtype.bytes for w in stmt.writes))
    if width is not None:
        lanes = resolve.positive(width, "width", primitive=what)
    vectors = resolve.positive(accumulators, "accumulators", primitive=what)
    block = lanes * vectors
    short = loop.axis.name.rpartition(".")[2]
    outer, inner = resolve.new_names(s, None, (f"{short}o", f"{short}i"), primitive=what)
    ref = resolve.reference(s.program, loop.axis)
    at = partial.innermost_shared(s, update)
    s = split(s, ref, block, into=(outer, inner))
    name = resolve.free_name(s, f"{stmt.stage}_rf")
    where = None if at is None else resolve.reference(s.program, at)
    keywords = {"at": where} if where is not None else {}
    s = rfactor(s, inner, **keywords, lanes=lanes)
    from tensorir.schedule.memory_ops import set_scope

    for a in [a.name for a in s.program.arrays if a.name == name or a.name.startswith(f"{name}.")]:
        s = set_scope(s, a, "local")
    return parallel_ops.vectorize(s, inner, block)
