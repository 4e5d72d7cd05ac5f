"""Statements that copy a region of an array to a buffer and back, counted from where it begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import ZERO, Conj, Fact, Lin, Region, subst_facts
from tensorir.ir.expr import Axis, Expr, Ref, Var
from tensorir.ir.reducer import Reducer
from tensorir.ir.statement import Access, Array, Statement, StatementRole
from tensorir.poly import regions, tree
from tensorir.poly.isl import Map
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import Tree
from tensorir.schedule import resolve

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Where copies of one region run: `outer` loops, and loops from 0 over what is inside.

    `iters` are the iterators of the outer loops, `origin` is affine in them, and `own` are the
    iterators of the cells less the origin: None where the region is one cell wide. `names` are
    what their loops are called.
    """

    outer: tuple[Axis, ...]
    iters: tuple[Axis, ...]
    own: tuple[Axis | None, ...]
    origin: tuple[Lin, ...]
    names: tuple[str, ...]
    absolute: bool

    @property
    def index(self) -> tuple[Lin, ...]:
        """The cell of an instance."""
        return tuple(
            o if a is None else o + Lin({a: 1}) for o, a in zip(self.origin, self.own, strict=True)
        )

    @property
    def inner(self) -> tuple[Axis, ...]:
        """The iterators that have loops."""
        return tuple(a for a in self.own if a is not None)

    def domain(self, cells: Map, program: Program, source: Array | None = None) -> Region:
        """The instances that copy `cells` (outer loops to cells).

        Of a `source` that is there whatever the sizes, they do not depend on whether anything
        reads the copy.
        """
        axes = tuple(Axis("c") for _ in self.own)
        found = regions.region(cells, self.iters, axes, program.sizes)
        if source is not None and source.role == "input":
            wider = tuple(tuple(f for f in c if any(isinstance(a, Axis) for a in f[1].atoms()))
                          for c in found)  # fmt: skip
            if regions.in_bounds(wider, (*self.iters, *axes), axes, source, program):
                found = wider
        env: dict[Axis | Var, Lin] = dict(zip(axes, self.index, strict=True))
        # the origin was proved to be below every cell; with strides the facts do not show it
        start: Conj = () if self.absolute else tuple(("ge", Lin({a: 1})) for a in self.inner)
        out = []
        for c in found:
            facts = tuple(_telling(subst_facts(c, env)))
            strided = any(isinstance(a, tuple) for _, e in facts for a in e.terms)
            out.append((*facts, *start) if strided else facts)
        return tuple(out)


def _telling(conj: Conj) -> Iterator[Fact]:
    """Facts less those that always hold."""
    for kind, e in conj:
        if not (e.is_const and (e.const >= 0 if kind == "ge" else e.const == 0)):
            yield kind, e


def window(
    program: Program, cells: Map, outer: tuple[Axis, ...], array: Array, users: Sequence[str]
) -> Window:
    """The window on `cells` of `array`, which `users` access inside the loops over `outer`.

    The origin is proposed from the users' indices, with the axes inside at 0, and proved to be
    below every cell; where none is, the loops run over the cells themselves.
    """
    n = len(array.shape)
    iters = tuple(Axis(a.name) for a in outer)
    env: dict[Axis | Var, Lin] = {a: Lin({i: 1}) for a, i in zip(outer, iters, strict=True)}
    alike = [fixed(program, outer, array, users, d) for d in range(n)]
    # An index that is the same in all accesses is the origin itself, however isl writes it.
    bounds = [
        next(_indices(program, array, users, d))
        if alike[d]
        else _origin(program, cells, outer, array, users, d)
        for d in range(n)
    ]
    origin = [ZERO if found is None else found.subst(env) for found in bounds]
    absolute = any(found is None for found in bounds)
    names = dimension_names(program, array, users)
    own = tuple(None if alike[d] else Axis(names[d]) for d in range(n))
    return Window(outer, iters, own, tuple(origin), names, absolute)


def _origin(
    program: Program,
    cells: Map,
    outer: tuple[Axis, ...],
    array: Array,
    users: Sequence[str],
    dim: int,
) -> Lin | None:
    return beginning(program, cells, dim, outer, candidates(program, outer, array, users, dim))


def beginning(
    program: Program,
    region: Map,
    dim: int,
    outer: tuple[Axis, ...],
    proposed: Sequence[Lin],
) -> Lin | None:
    """Where dimension `dim` of a region begins, affine in `outer` and proved; None: unknown."""
    for bound in proposed:
        if regions.is_lower(region, dim, bound, outer, program):
            return bound
    for bound in regions.lower_bounds(region, dim, outer, program.sizes):
        if regions.is_lower(region, dim, bound, outer, program):
            return bound
    return None


def candidates(
    program: Program, outer: tuple[Axis, ...], array: Array, users: Sequence[str], dim: int
) -> list[Lin]:
    """Indices of the users with every axis inside at its first value.

    Those that follow the most outer axes come first, then the greatest.
    """
    kept = set(outer)
    found: list[Lin] = []
    for index in _indices(program, array, users, dim):
        if index is None:
            continue
        first: dict[Axis | Var, Lin] = {
            x: _first(x) for x in index.atoms() if isinstance(x, Axis) and x not in kept
        }
        index = index.subst(first)
        if all(not isinstance(x, Axis) or x in kept for x in index.atoms()):
            found.append(index)
    distinct = list(dict.fromkeys(found))
    return sorted(distinct, key=lambda e: (-sum(isinstance(a, Axis) for a in e.atoms()), -e.const))


def fixed(
    program: Program, outer: tuple[Axis, ...], array: Array, users: Sequence[str], dim: int
) -> bool:
    """Whether all users index a dimension alike, by the outer loops alone: it needs no loop.

    A property of the schedule and not of sizes, so that the same steps fit every size.
    """
    found = list(dict.fromkeys(_indices(program, array, users, dim)))
    if len(found) != 1 or found[0] is None:
        return False
    kept = set(outer)
    return all(not isinstance(x, Axis) or x in kept for x in found[0].atoms())


def _indices(
    program: Program, array: Array, users: Sequence[str], dim: int
) -> Iterator[Lin | None]:
    """A dimension's index in each access of the users, over loop axes; None if not affine."""
    for n in users:
        p = program.placements[n]
        env: dict[Axis | Var, Lin] = dict(p.index.items())
        for a in (*p.stmt.reads, *p.stmt.writes):
            if a.array is array:
                index = a.index[dim]
                yield index.subst(env) if isinstance(index, Lin) else None


def _first(a: Axis) -> Lin:
    low = a.lower
    if low is None or any(isinstance(x, Axis) for x in low.atoms()):
        return ZERO
    return low


def dimension_names(program: Program, array: Array, users: Sequence[str]) -> tuple[str, ...]:
    """A name for each dimension: that of the iterator by which a user indexes it."""
    names: list[str] = []
    for d in range(len(array.shape)):
        name = _iterator(program, array, users, d) or f"d{d}"
        while name in names:
            name = f"{name}_{d}"
        names.append(name)
    return tuple(names)


def _iterator(program: Program, array: Array, users: Sequence[str], dim: int) -> str | None:
    for n in users:
        stmt = program.stmt(n)
        for a in (*stmt.reads, *stmt.writes):
            index = a.index[dim] if a.array is array else None
            if isinstance(index, Lin) and index.terms:
                first = next(iter(index.atoms()))
                if isinstance(first, Axis):
                    return first.name
    return None


def statement(
    name: str,
    stage: str,
    at: Window,
    domain: Region,
    to: Sequence[Array],
    source: Sequence[Array],
    *,
    combiner: Reducer | None = None,
    role: StatementRole = "copy",
    bodies: tuple[Expr, ...] | None = None,
) -> Statement:
    """A statement that sets the cells of `to` from those of `source`, by default a copy."""
    reads = tuple(Access(a, at.index) for a in source)
    if bodies is None:
        bodies = tuple(Ref(k, a.dtype) for k, a in enumerate(source))
    writes = tuple(Access(a, at.index) for a in to)
    iters = (*at.iters, *at.inner)
    return Statement(name, stage, iters, domain, writes, reads, bodies, role, combiner)


def place(s: Schedule, stmt: Statement, at: Window) -> tuple[Placement, Tree]:
    """The statement in loops of its own, called after it, inside the outer ones."""
    owner = stmt.name.removesuffix(".copy")
    taken = set(resolve.taken(s.program))
    axes = []
    for name in (n for n, a in zip(at.names, at.own, strict=True) if a is not None):
        full = f"{owner}.{name}"
        while full in taken:
            full += "_"
        taken.add(full)
        axes.append(Axis(full))
    placement = Placement.fresh(stmt, (*at.outer, *axes))
    return placement, tree.nest(axes, tree.At(stmt.name), step=s.next_number)


def buffer_like(array: Array, name: str) -> Array:
    """A temporary array that holds cells of another, under the same indices."""
    return replace(array, name=name, role="temp")
