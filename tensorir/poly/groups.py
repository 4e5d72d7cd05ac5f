"""Groups of asynchronous copies: where one ends, and how many may be in flight at a wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorir.ir.expr import Axis, Const, Expr, Op, Ref
from tensorir.ir.index import to_lin
from tensorir.ir.statement import Array, Statement
from tensorir.poly import isl, tree
from tensorir.poly.conflict import between
from tensorir.poly.isl import Map, Set, dt
from tensorir.poly.model import Program
from tensorir.poly.relation import context_set, ordered
from tensorir.poly.tree import Tree


def copies(program: Program) -> frozenset[str]:
    """The statements that may be made by copies that run on their own."""
    found = []
    for n in tree.stmts(program.tree):
        s = program.stmt(n)
        buffer = program.buffers.get(s.writes[0].array) if len(s.writes) == 1 else None
        if buffer is not None and buffer.engine == "cp_async" and plain(program, s):
            found.append(n)
    return frozenset(found)


def plain(program: Program, s: Statement) -> bool:
    """Whether a statement moves cells of global memory to shared memory as they are.

    Or zeros, where the guard of the one read does not hold.
    """
    if len(s.reads) != 1 or not (isinstance(s.bodies[0], Ref) or _padded(s.bodies[0])):
        return False
    source, target = s.reads[0].array, s.writes[0].array
    kept = program.buffers.get(source)
    return source.dtype == target.dtype and (kept is None or kept.scope == "global")


def _padded(e: Expr) -> bool:
    """Whether a body is what it reads, or zero, by comparisons of affine forms."""
    if not isinstance(e, Op) or e.name != "if_then_else":
        return False
    condition, value, other = e.args
    zero = isinstance(other, Const) and other.value == 0
    return isinstance(value, Ref) and zero and _affine(condition)


def _affine(e: Expr) -> bool:
    if not isinstance(e, Op):
        return False
    if e.name == "and":
        return all(map(_affine, e.args))
    return e.name in ("lt", "le", "gt", "ge") and all(to_lin(x) is not None for x in e.args)


def turns(program: Program, names: Iterable[str]) -> frozenset[Axis]:
    """The loops in whose iterations statements fill a tile each."""
    buffers = (program.buffers[program.stmt(n).writes[0].array] for n in names)
    return frozenset(a for b in buffers for a in b.turns)


def runs(program: Program, names: Iterable[str], axes: Sequence[Axis]) -> Set:
    """The iterations of `axes` in which one of the statements runs, and some between them."""
    out: Set | None = None
    for n in dict.fromkeys(names):
        where = ordered(program, n, axes).range().intersect_params(context_set(program))
        out = where if out is None else out.union(where)
    assert out is not None
    out = out.coalesce()
    return out if out.n_basic_set() <= 1 else out.simple_hull().to_set()


def in_flight(
    program: Program,
    items: Sequence[Tree],
    axes: tuple[Axis, ...],
    gap: int,
    ends: int,
    pairs: Iterable[tuple[str, str]],
) -> int:
    """How many of the youngest groups need not be there after item `gap` of each iteration.

    Every iteration of the innermost of `axes` makes one group, after item `ends`. `pairs` are the
    copies and what uses what they bring.
    """
    place = {n: k for k, item in enumerate(items) for n in tree.stmts(item)}
    least: int | None = None
    for copy, user in dict.fromkeys(pairs):
        apart = _distance(program, copy, user, axes, place[copy] < place[user])
        if apart is None:
            return 0
        later = 0 if place[user] > gap else 1
        left = apart - later - (0 if gap >= ends else 1)
        least = left if least is None else min(least, left)
    return max(least or 0, 0)


def _distance(
    program: Program, copy: str, user: str, axes: tuple[Axis, ...], before: bool
) -> int | None:
    """The least number of iterations from a copy to a use of what it brings."""
    n, found = len(axes), []
    for c in between(program.stmt(copy), program.stmt(user), program.sizes):
        found.append(_over(program, copy, user, c.relation, axes))
    for c in between(program.stmt(user), program.stmt(copy), program.sizes):
        found.append(_over(program, copy, user, c.relation.reverse(), axes))
    best: int | None = None
    for m in found:
        rows = isl.Rows({}, 1 + 2 * n)
        rows.eq += [{1 + k: 1, 1 + n + k: -1} for k in range(n - 1)]
        rows.ge.append({0: 0 if before else -1, n: -1, 2 * n: 1})
        times = m.intersect(rows.to_map(isl.map_space((), n, n)))
        if times.is_empty():
            continue
        apart = times.deltas().project_out(dt.set, 0, n - 1)
        apart = apart.project_out(dt.param, 0, apart.dim(dt.param))
        low = apart.dim_min_val(0)
        if not low.is_int():
            return None
        best = isl.number(low) if best is None else min(best, isl.number(low))
    return best


def _over(program: Program, x: str, y: str, m: Map, axes: tuple[Axis, ...]) -> Map:
    times = m.apply_domain(ordered(program, x, axes)).apply_range(ordered(program, y, axes))
    return times.intersect_params(context_set(program))


def brings(program: Program, name: str, array: Array) -> bool:
    """Whether a statement fills the array."""
    return any(w.array is array for w in program.stmt(name).writes)
