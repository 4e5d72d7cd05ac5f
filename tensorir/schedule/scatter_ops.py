"""A reduction that picks its cell by data, made to write just that cell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from tensorir.ir.affine import Conj, Lin
from tensorir.ir.build import cast
from tensorir.ir.dtype import INT64, DType
from tensorir.ir.expr import Axis, Const, Expr, Op, Ref, children
from tensorir.ir.numerics import limits
from tensorir.ir.statement import Access, May, Statement
from tensorir.ir.updates import combined
from tensorir.poly import isl, tree
from tensorir.poly.extract import value_range
from tensorir.poly.isl import dt
from tensorir.poly.model import Placement, Program
from tensorir.poly.relation import context_set, domain_set
from tensorir.schedule import placed, resolve, rewrite
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["scatter"]


@primitive
def scatter(s: Schedule, stage: object) -> Draft:
    """A sum over what has this index, made to add each thing to the cell of its index.

    Needs a reduction as declared, whose update is `acc + select(index[k] == i, value, 0)` with a
    dimension `i` of the result: instead of asking for each cell which of all `k` belong to it, each
    `k` finds its one cell. Also for products, minima, maxima, and, or. An index outside the result
    adds nothing, as declared; every cell is combined in the same order. The loops start afresh.
    Others call it scatter, histogram, `segment_sum`.

    Parameters
    ----------
    stage : str or Tensor
        The reduction.

    Raises
    ------
    ScheduleError
        No reduction, or steps were made on it already.
    UnsupportedError
        An update of another form, or a domain that depends on the dimension.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((64,), "int64", name="A")
    >>> k = tir.reduce_axis(64, name="k")
    >>> H = tir.compute((8,), lambda b: tir.sum(tir.select(A[k] == b, 1, 0), axis=k), name="H")
    >>> s = tir.schedule(H)
    >>> print(s.loops())
    for b in 0..8
      H[b] = 0
      for k in 0..64
        H[b] = H[b] + select(A[k] == b, 1, 0)
    >>> print(s.scatter("H").loops())
    for H.init.b in 0..8
      H[H.init.b] = 0
    for k in 0..64
      H[A[k]] = H[A[k]] + 1
    """
    what = "scatter"
    name = resolve.stage(s, stage, primitive=what)
    program = s.program
    names = resolve.statements(program, name)
    updates = [n for n in names if program.stmt(n).role == "update"]
    if not updates:
        resolve.fail(f"{what}: {name} is not a reduction")
    _require_as_declared(s, name, names)
    update = program.stmt(updates[0])
    chosen = _chosen(program, update)
    with rewrite.proving(s, what, f"which cells {name} updates"):
        if not _whole(program, update, chosen.axis, chosen.dim):
            _unlike(update, "not every cell along the dimension is looked at")
    made = _scattered(program, update, chosen)
    gone = [x.axis.name for x in tree.loops(program.tree) if set(tree.stmts(x)) <= set(names)]
    placements = dict(program.placements)
    items = []
    for n in names:
        stmt = made if n == update.name else program.stmt(n)
        if n == update.name:
            axes = rewrite.fresh_axes(s, stmt.iters, name, gone)
        else:
            axes = placed.named_axes(s, n, stmt.iters)
        own: dict[Axis, Axis | None] = dict(axes.items())
        items.append(rewrite.nest_of([stmt], own, 0, s.next_number))
        placements[n] = Placement.fresh(stmt, tuple(axes[i] for i in stmt.iters))
    new = program.change(tree=_instead(program.tree, names, items), placements=placements)
    return Draft(new, notes=(f"each instance of {update.name} updates one cell",))


def _require_as_declared(s: Schedule, name: str, names: list[str]) -> None:
    what = "scatter"
    program = s.program
    top = program.tree.items if isinstance(program.tree, tree.Seq) else (program.tree,)
    mine = [t for t in top if not set(names).isdisjoint(tree.stmts(t))]
    changed = [n for n in names if program.placements[n].retired]
    marked = [x for t in mine for x in tree.loops(t) if x.kind != "serial"]
    others = [n for t in mine for n in tree.stmts(t) if n not in names]
    copies = [n for n in names if program.stmt(n).role == "copy"]
    if changed or marked or others or copies:
        resolve.fail(
            f"{what}: {name} was scheduled already",
            why="its loops start afresh: scatter first, then split, place and cache.",
        )
    rewrite.require_unshared(s, names, what)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """An update that happens where `index` equals `axis`, the index of dimension `dim`."""

    axis: Axis
    dim: int
    index: Expr
    name: str
    value: Expr


def _chosen(program: Program, stmt: Statement) -> _Chosen:
    found = combined(stmt.bodies[0]) if len(stmt.bodies) == 1 else None
    if found is None or len(found[1]) != 1:
        _unlike(stmt, "it does more than combine the cell with a value")
    op, (other,) = found
    d = stmt.bodies[0].dtype
    to: list[DType] = []
    while isinstance(other, Op) and other.name == "cast":
        to.append(other.dtype)
        other = other.args[0]
    if not (isinstance(other, Op) and other.name in ("select", "if_then_else")):
        _unlike(stmt, "no condition chooses what is combined")
    cond, yes, no = other.args
    for dtype in reversed(to):
        yes, no = cast(yes, dtype), cast(no, dtype)
    if not _neutral(program, stmt, op, no, d):
        _unlike(stmt, "where the condition fails the cell is not left as it is")
    if not (isinstance(cond, Op) and cond.name == "eq"):
        _unlike(stmt, "the condition is no equality")
    for axis, index in (cond.args, cond.args[::-1]):
        while isinstance(axis, Op) and axis.name == "cast" and axis.dtype.bits == 64:
            axis = axis.args[0]
        if not isinstance(axis, Axis) or not index.dtype.is_integer:
            continue
        at = [k for k, i in enumerate(stmt.writes[0].index) if i == Lin({axis: 1})]
        if len(at) == 1 and not _uses(stmt, axis, (index, yes), at[0]):
            return _Chosen(axis, at[0], cast(index, INT64), op, yes)
    _unlike(stmt, "no dimension is compared with an index that is free of it")


def _neutral(program: Program, stmt: Statement, op: str, no: Expr, d: DType) -> bool:
    """Whether combining the cell with `no` leaves it as it is, whatever it holds by then."""
    if not isinstance(no, Const):
        return False
    x = no.value
    if op == "add":
        if x != 0 or not d.is_float or math.copysign(1.0, x) < 0:
            return bool(x == 0)
        # a sum that starts at 0.0 is never -0.0, which adding 0.0 would change
        starts = [
            b
            for p in program.placements.values()
            if p.stmt.role == "init" and p.stmt.writes[0].array is stmt.writes[0].array
            for b in p.stmt.bodies
        ]
        return all(isinstance(b, Const) and math.copysign(1.0, b.value) > 0 for b in starts)
    if op == "mul":
        return bool(x == 1)
    if op in ("or", "xor"):
        return bool(x == 0)
    if op == "and":
        return bool(x == (True if d.kind == "bool" else -1))
    if d.is_float:
        return bool(x == (math.inf if op == "min" else -math.inf))
    if d.kind == "bool":
        return bool(x) == (op == "min")
    return bool(x == limits(d)[1 if op == "min" else 0])


def _uses(stmt: Statement, axis: Axis, parts: tuple[Expr, ...], dim: int) -> bool:
    """Whether an expression, or a read that it makes, or another index names the axis."""
    slots: set[int] = set()
    for e in _nodes(parts):
        if e is axis:
            return True
        if isinstance(e, Ref):
            slots.add(e.slot)
    indices = [i for k in slots for i in stmt.reads[k].index]
    indices += [i for k, i in enumerate(stmt.writes[0].index) if k != dim]
    for i in indices:
        if any(a is axis for a in (i.atoms() if isinstance(i, Lin) else _nodes((i.value,)))):
            return True
    return any(
        a is axis for k in slots for conj in stmt.reads[k].guard for _, e in conj for a in e.atoms()
    )


def _nodes(parts: tuple[Expr, ...]) -> Iterator[Expr]:
    for e in parts:
        yield e
        yield from _nodes(tuple(children(e)))


def _whole(program: Program, stmt: Statement, axis: Axis, dim: int) -> bool:
    """Whether the domain is all cells of the dimension times something free of it."""
    sizes = program.sizes
    domain = domain_set(stmt, sizes).intersect_params(context_set(program))
    k = next(n for n, i in enumerate(stmt.iters) if i is axis)
    rest = domain.project_out(dt.set, k, 1).insert_dims(dt.set, k, 1)
    extent = stmt.writes[0].array.shape[dim]
    here = Lin({axis: 1})
    box = isl.to_set(stmt.iters, sizes, ((("ge", here), ("ge", extent - here - 1)),))
    # where the result has no cell, nothing is lost
    return bool(rest.intersect(box).is_equal(domain))


def _scattered(program: Program, stmt: Statement, chosen: _Chosen) -> Statement:
    low, high = value_range(chosen.index)
    may = May(chosen.index, low, high, skip=True)
    index = stmt.writes[0].index
    cell = Access(stmt.writes[0].array, (*index[: chosen.dim], may, *index[chosen.dim + 1 :]))
    spatial = {a for i in index if isinstance(i, Lin) for a in i.atoms()}
    left = [i for i in stmt.iters if i is not chosen.axis]
    iters = (*(i for i in left if i not in spatial), *(i for i in left if i in spatial))
    k = next(n for n, i in enumerate(stmt.iters) if i is chosen.axis)
    domain = domain_set(stmt, program.sizes).project_out(dt.set, k, 1)
    # a result without cells needs no test: no index lies inside
    some: Conj = (("ge", stmt.writes[0].array.shape[chosen.dim] - 1),)
    domain = domain.gist_params(isl.params(program.sizes, some))
    region = isl.from_set(domain, left, program.sizes)
    d = stmt.bodies[0].dtype
    return replace(
        stmt,
        iters=iters,
        domain=region,
        writes=(cell,),
        reads=(cell, *stmt.reads[1:]),
        bodies=(Op(chosen.name, (Ref(0, d), chosen.value), d),),
    )


def _instead(t: tree.Tree, names: list[str], items: list[tree.Tree]) -> tree.Tree:
    """The tree with the nests of a stage replaced."""
    out: list[tree.Tree] = []
    for x in t.items if isinstance(t, tree.Seq) else (t,):
        if set(names).isdisjoint(tree.stmts(x)):
            out.append(x)
        elif items:
            out += items
            items = []
    return tree.seq(out)


def _unlike(stmt: Statement, why: str) -> NoReturn:
    resolve.fail(
        f"scatter: the update of {stmt.name} does not pick its cell by an index: {why}",
        why="it must be of the form acc + select(index[k] == i, value, 0).",
        cls=UnsupportedError,
    )
