"""The isl objects of a program, remembered on its immutable statements and placements.

Sets and maps carry no tuple names; their dimensions are a statement's iterators, an array's
cells, or loop axes, in the order that each function states. Parameters are the sizes, by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

from tensorir.ir.affine import Conj, Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, May, Statement
from tensorir.poly import isl, tree
from tensorir.poly.isl import Map, Set, Sizes
from tensorir.poly.model import Placement, Program

_domains: WeakKeyDictionary[Statement, dict[Sizes, Set]] = WeakKeyDictionary()
_accesses: WeakKeyDictionary[Statement, dict[tuple[Access, Sizes], Map]] = WeakKeyDictionary()
_placements: WeakKeyDictionary[Placement, dict[Sizes, Map]] = WeakKeyDictionary()
_ordered: WeakKeyDictionary[Placement, dict[tuple[Sizes, tuple[Axis, ...]], Map]]
_ordered = WeakKeyDictionary()


def domain_set(stmt: Statement, sizes: Sizes) -> Set:
    """The instances of a statement: a set over its iterators."""
    known = _domains.setdefault(stmt, {})
    if sizes not in known:
        known[sizes] = isl.to_set(stmt.iters, sizes, stmt.domain)
    return known[sizes]


def access_map(stmt: Statement, access: Access, sizes: Sizes) -> Map:
    """Instances to the cells that they touch through `access`: iterators -> array dimensions.

    An index that is not affine covers the range proved for it, else its whole dimension. Pairs
    are restricted to the statement's domain and to the guard of the access.
    """
    known = _accesses.setdefault(stmt, {})
    key = (access, sizes)
    if key not in known:
        known[key] = _access_map(stmt, access, sizes)
    return known[key]


def _access_map(stmt: Statement, access: Access, sizes: Sizes) -> Map:
    n_in, n_out = len(stmt.iters), len(access.index)
    first = 1 + len(sizes) + n_in
    rows = isl.Rows(isl.columns(sizes, stmt.iters), first + n_out)
    for k, index in enumerate(access.index):
        if isinstance(index, May):
            _cover(rows, first + k, index, access.array.shape[k])
        else:
            rows.equal(first + k, index)
    m = rows.to_map(isl.map_space(sizes, n_in, n_out))
    m = m.intersect_domain(domain_set(stmt, sizes))
    if access.guard != ((),):
        m = m.intersect_domain(isl.to_set(stmt.iters, sizes, access.guard))
    return m


def _cover(rows: isl.Rows, column: int, index: May, extent: Lin) -> None:
    """The dimension in `column` lies in the range of `index`, and inside the array."""
    for bound, sign in ((Lin(), 1), (extent - 1, -1), (index.lower, 1), (index.upper, -1)):
        if bound is not None:
            row = {c: -sign * v for c, v in rows.row(bound).items()}
            row[column] = sign
            rows.ge.append(row)


def placement_map(placement: Placement, sizes: Sizes) -> Map:
    """Instances to the points of the loops that run them: iterators -> `placement.axes`."""
    known = _placements.setdefault(placement, {})
    if sizes not in known:
        known[sizes] = _placement_map(placement, sizes)
    return known[sizes]


def _placement_map(placement: Placement, sizes: Sizes) -> Map:
    stmt, axes, retired = placement.stmt, placement.axes, placement.retired
    n_in, n_out = len(stmt.iters), len(axes)
    # Axes come after the iterators, so that an object that is both means the loop axis in facts;
    # retired axes are existentials.
    rows = isl.Rows(isl.columns(sizes, (*stmt.iters, *axes, *retired)), 0)
    rows.width = 1 + len(sizes) + n_in + n_out + len(retired)
    for k, it in enumerate(stmt.iters):
        root = placement.roots.get(it)
        value = Lin({root: 1}) if root is not None else placement.index[it]
        rows.equal(1 + len(sizes) + k, value)
    for kind, e in placement.facts:
        rows.fact(kind, e)
    m = rows.to_map(isl.map_space(sizes, n_in, n_out))
    return m.intersect_domain(domain_set(stmt, sizes))


def ordered(program: Program, name: str, axes: Sequence[Axis]) -> Map:
    """Instances of statement `name` to the values of `axes`, in that order; others left out."""
    return placed(program.placements[name], axes, program.sizes)


def placed(placement: Placement, axes: Sequence[Axis], sizes: Sizes) -> Map:
    """Instances of a statement to the values of `axes`, in that order; others left out."""
    axes = tuple(axes)
    known = _ordered.setdefault(placement, {})
    key = (sizes, axes)
    if key not in known:
        place = {a: k for k, a in enumerate(placement.axes)}
        known[key] = isl.select(placement_map(placement, sizes), [place[a] for a in axes])
    return known[key]


def full(program: Program, name: str) -> Map:
    """Instances of statement `name` to all loops around it, outer to inner."""
    return ordered(program, name, tree.axes_of(program.tree, name))


def context_set(program: Program) -> Set:
    """The sizes that the program allows, as a parameter set."""
    return allowed(program.sizes, program.context)


@lru_cache(maxsize=256)
def allowed(sizes: Sizes, context: Conj) -> Set:
    """The sizes for which `context` holds, as a parameter set."""
    return isl.params(sizes, context)


def point_map(
    placement: Placement, values: Mapping[Axis | Var, int], sizes: Sizes
) -> dict[Axis, int]:
    """The loop point that runs one instance: `values` gives its iterators and all sizes."""
    m = placement_map(placement, sizes)
    for k, it in enumerate(placement.stmt.iters):
        m = m.fix_val(isl.dt.in_, k, isl.val(values[it]))
    point = isl.least(isl.at_sizes(m.range(), sizes, {s.name: values[s] for s in sizes}))
    assert point is not None
    return dict(zip(placement.axes, point, strict=True))
