"""Boxes around sets, reads outside an array, and whether a layout gives each cell its own place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from tensorir.ir.affine import Atom, Conj, Lin, Region, floordiv, lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Statement
from tensorir.poly import isl
from tensorir.poly.isl import Map, Set, Sizes, dt
from tensorir.poly.relation import access_map


@dataclass(frozen=True, slots=True)
class Range:
    """The least and greatest value, each an expression of sizes.

    Where no single expression is the value at all sizes, one that is never on the wrong side of
    it; None where there is none.
    """

    lower: Lin | None
    upper: Lin | None

    @property
    def constant(self) -> tuple[int, int] | None:
        """Both ends, where they are numbers."""
        if self.lower is None or self.upper is None:
            return None
        if not (self.lower.is_const and self.upper.is_const):
            return None
        return self.lower.const, self.upper.const


def box(s: Set, sizes: Sizes, context: Conj = ()) -> tuple[Range, ...]:
    """The range of each dimension of a set, tight where it is one expression of the sizes.

    Parameters
    ----------
    context
        What holds of the sizes; ranges need only be right there.
    """
    with isl.budget():
        allowed = isl.params(sizes, context)
        s = s.intersect_params(allowed).coalesce()
        out = []
        for k in range(s.dim(dt.set)):
            n = s.dim(dt.set)
            one = s.project_out(dt.set, k + 1, n - k - 1).project_out(dt.set, 0, k)
            lower = _end(one, sizes, allowed, least=True)
            out.append(Range(lower, _end(one, sizes, allowed, least=False)))
        return tuple(out)


def _end(one: Set, sizes: Sizes, allowed: Set, *, least: bool) -> Lin | None:
    """The least or greatest value of a set of one dimension, as one expression of sizes."""
    bounded = one.dim_has_lower_bound if least else one.dim_has_upper_bound
    if one.is_empty() or not bounded(dt.set, 0):
        return None
    pw = one.dim_min(0) if least else one.dim_max(0)
    return _single(pw, one.params(), sizes, allowed, least=least)


def _single(
    pw: Any, domain: Set, sizes: Sizes, allowed: Set, *, least: bool, dims: Sequence[Axis] = ()
) -> Lin | None:
    """One expression that is every piece's, or bounds all of them from the right side."""
    pieces = pw.gist_params(allowed).coalesce().get_pieces()
    if len(pieces) == 1:
        return linear(pieces[0][1], sizes, dims)
    found: list[Lin] = []
    for _, aff in pieces:
        candidate = aff.to_pw_aff()
        worse = pw.lt_set(candidate) if least else pw.gt_set(candidate)
        if worse.intersect_params(domain.params()).is_empty():
            found.append(linear(aff, sizes, dims))
    return min(found, key=lambda e: len(e.terms)) if found else None


def linear(aff: Any, sizes: Sizes, dims: Sequence[Axis] = ()) -> Lin:
    """An isl affine expression over sizes and `dims`, its divs as floors."""
    named = {s.name: s for s in sizes}
    atoms: list[tuple[Any, int, Atom]] = [
        (dt.param, k, named[aff.get_dim_name(dt.param, k)]) for k in range(aff.dim(dt.param))
    ]
    atoms += [(dt.in_, k, d) for k, d in enumerate(dims)]
    divs: list[Lin] = []
    for k in range(aff.dim(dt.div)):
        divs.append(_scaled(aff.get_div(k), atoms, divs))
    return _scaled(aff, atoms, divs)


def _scaled(aff: Any, atoms: list[tuple[Any, int, Atom]], divs: list[Lin]) -> Lin:
    """`floor` of an affine expression; its denominator divides the whole."""
    den = aff.get_denominator_val()
    terms: dict[Atom, int] = {}
    for kind, k, atom in atoms:
        v = aff.get_coefficient_val(kind, k).mul(den).to_python()
        if v:
            terms[atom] = v
    e = Lin(terms, aff.get_constant_val().mul(den).to_python())
    for k, div in enumerate(divs):
        v = aff.get_coefficient_val(dt.div, k).mul(den).to_python()
        if v:
            e = e + div * v
    return floordiv(e, den.to_python())


def maximum(s: Set, e: Lin, dims: Sequence[Axis], sizes: Sizes, context: Conj = ()) -> int | None:
    """The greatest value of `e` over a set and all allowed sizes; None: unbounded, or no point."""
    with isl.budget():
        value = _values(s, e, dims, sizes, context).dim_max_val(0)
        found = value.is_int()
        return int(value.to_python()) if found else None


def minimum(s: Set, e: Lin, dims: Sequence[Axis], sizes: Sizes, context: Conj = ()) -> int | None:
    """The least value of `e` over a set and all allowed sizes; None: unbounded, or no point."""
    greatest = maximum(s, -e, dims, sizes, context)
    return None if greatest is None else -greatest


def value_range(s: Set, e: Lin, dims: Sequence[Axis], sizes: Sizes, context: Conj = ()) -> Range:
    """The range of `e` over a set, in terms of the sizes."""
    with isl.budget():
        return box(_values(s, e, dims, sizes, context), sizes, context)[0]


def _values(s: Set, e: Lin, dims: Sequence[Axis], sizes: Sizes, context: Conj) -> Set:
    if context:
        s = s.intersect_params(isl.params(sizes, context))
    return s.apply(_function(dims, sizes, (e,)))


def _function(dims: Sequence[Axis], sizes: Sizes, values: Sequence[Lin]) -> Map:
    """`dims` -> the values of expressions of them."""
    first = 1 + len(sizes) + len(dims)
    rows = isl.Rows(isl.columns(sizes, dims), first + len(values))
    for k, e in enumerate(values):
        rows.equal(first + k, e)
    return rows.to_map(isl.map_space(sizes, len(dims), len(values)))


# -- the smallest box that moves with the loops outside
@dataclass(frozen=True, slots=True)
class TileDim:
    """One dimension of what an iteration touches: cells `origin .. origin + extent - 1`.

    `origin` is over the outer axes and sizes, `extent` over sizes. `tight` says that some
    iteration touches both ends.
    """

    origin: Lin
    extent: Lin
    tight: bool


def tile(
    fp: Map, outer: Sequence[Axis], sizes: Sizes, context: Conj = (),
    shape: Sequence[Lin] | None = None,
) -> tuple[TileDim, ...]:  # fmt: skip
    """A box around the cells of each outer iteration, of one size for all of them.

    Parameters
    ----------
    fp
        Outer axes -> cells: a footprint.
    outer
        Its outer axes.
    shape
        The extents of the array, where no better box is found.

    Returns
    -------
    tuple of TileDim
        For each dimension the origin that gives the smallest extent: a number where there is
        one, else an expression of sizes, else the whole dimension.
    """
    with isl.budget():
        allowed = isl.params(sizes, context)
        fp = fp.intersect_params(allowed)
        n = fp.dim(dt.out)
        out = []
        for k in range(n):
            one = fp.project_out(dt.out, k + 1, n - k - 1).project_out(dt.out, 0, k).coalesce()
            whole = shape[k] if shape is not None else None
            out.append(_tile_dim(one, tuple(outer), sizes, allowed, whole))
        return tuple(out)


def _tile_dim(
    one: Map, outer: tuple[Axis, ...], sizes: Sizes, allowed: Set, whole: Lin | None
) -> TileDim:
    if one.is_empty():
        return TileDim(Lin(), Lin(), True)
    cell = Axis("cell")
    points = one.wrap().flatten()
    dims = (*outer, cell)
    best: TileDim | None = None
    for origin in _origins(one, points, outer, cell, sizes, allowed):
        offset = points.apply(_function(dims, sizes, (lin(cell) - origin,)))
        if offset.dim_min_val(0).is_neg() or not offset.dim_min_val(0).is_int():
            continue
        tight = offset.dim_min_val(0).is_zero()
        extent = _end(offset, sizes, allowed, least=False)
        most = offset.dim_max_val(0)
        if most.is_int():
            extent = lin(most.to_python())
        if extent is None:
            continue
        found = TileDim(origin, extent + 1, tight)
        if best is None or _cost(found) < _cost(best):
            best = found
    if best is not None:
        return best
    return TileDim(Lin(), whole if whole is not None else Lin(), False)


def _cost(d: TileDim) -> tuple[bool, int, int]:
    return (not d.extent.is_const, d.extent.const if d.extent.is_const else 0, len(d.origin.terms))


def _origins(
    one: Map, points: Set, outer: tuple[Axis, ...], cell: Axis, sizes: Sizes, allowed: Set
) -> list[Lin]:
    """Expressions that may bound the cells from below: read off the constraints, and zero."""
    found: dict[Lin, None] = {}
    for conj in isl.from_set(points, (*outer, cell), sizes):
        for kind, e in conj:
            c = e.coef(cell)
            rest = e.without(cell)
            if rest.involves(cell) or not c:
                continue
            if c > 0:
                found[-floordiv(rest, c)] = None
            elif kind == "eq":
                found[-floordiv(-rest, -c)] = None
    if one.n_basic_map() > 1:
        least = _single(one.dim_min(0), one.params(), sizes, allowed, least=True, dims=outer)
        if least is not None:
            found[least] = None
    found[Lin()] = None
    return list(found)


# -- reads outside an array
class OutOfBounds(TypedDict):
    """The first access outside: where, at which sizes, which index, and what would be allowed.

    `index` has None for an index that is known only when it runs. `allowed` has the least and
    greatest index of each dimension at these sizes; `dim` is the first dimension that is outside.
    """

    instance: dict[str, int]
    sizes: dict[str, int]
    index: tuple[int | None, ...]
    allowed: tuple[tuple[int, int], ...]
    dim: int


def out_of_bounds(
    stmt: Statement, access: Access, sizes: Sizes, context: Conj
) -> OutOfBounds | None:
    """The first instance, at the smallest sizes, whose access is outside the array.

    Domain and guard of the access take part. An index that is not affine is checked when it runs
    and is not judged here.

    Examples
    --------
    `B[i] = A[i + 1]` over `0 <= i < N` with both of shape `N` gives instance `{"i": 0}` at
    `{"N": 1}` with index `(1,)` and allowed `((0, 0),)`.
    """
    with isl.budget():
        bad = _outside(stmt, access, sizes)
        found = isl.first_point(bad, sizes, context)
    if found is None:
        return None
    size, point = found
    env: dict[Axis | Var, int] = {s: size[s.name] for s in sizes}
    shape = [e.evaluate(env) for e in access.array.shape]
    env.update(zip(stmt.iters, point, strict=True))
    index = tuple(i.evaluate(env) if isinstance(i, Lin) else None for i in access.index)
    wrong = next(
        k for k, (i, n) in enumerate(zip(index, shape, strict=True))
        if i is not None and not 0 <= i < n
    )  # fmt: skip
    return {
        "instance": {a.name: v for a, v in zip(stmt.iters, point, strict=True)},
        "sizes": size,
        "index": index,
        "allowed": tuple((0, n - 1) for n in shape),
        "dim": wrong,
    }


def _outside(stmt: Statement, access: Access, sizes: Sizes) -> Set:
    """Instances whose access is outside the array in an affine dimension."""
    instances = access_map(stmt, access, sizes).domain()
    bad = isl.empty(sizes, len(stmt.iters))
    region: Region = ()
    for index, extent in zip(access.index, access.array.shape, strict=True):
        if isinstance(index, Lin):
            region = (*region, (("ge", -index - 1),), (("ge", index - extent),))
    if region:
        bad = instances.intersect(isl.to_set(stmt.iters, sizes, region))
    return bad


def safe_sizes(stmt: Statement, access: Access, sizes: Sizes, context: Conj) -> Region:
    """The sizes for which no instance's access is outside; `((),)`: all that `context` allows."""
    with isl.budget():
        allowed = isl.params(sizes, context)
        bad = _outside(stmt, access, sizes).params().intersect(allowed)
        if bad.is_empty():
            return ((),)
        good = allowed.subtract(bad).gist(allowed).coalesce()
        return isl.from_set(isl.Set.from_params(good), (), sizes)


# -- layouts
@dataclass(frozen=True, slots=True)
class Collision:
    """Two points of a set that an index sends to one place, at the smallest sizes."""

    sizes: dict[str, int]
    first: dict[str, int]
    second: dict[str, int]
    place: tuple[int, ...]


def collision(
    s: Set, index: Sequence[Lin], dims: Sequence[Axis], sizes: Sizes, context: Conj = ()
) -> Collision | None:
    """Two points of `s` with one value of `index`; None: each point has a place of its own.

    Parameters
    ----------
    s
        A set over `dims`.
    index
        Expressions of `dims` and sizes.
    """
    n = len(dims)
    with isl.budget():
        place = _function(dims, sizes, index).intersect_domain(s)
        if place.is_injective():
            return None
        same = place.apply_range(place.reverse())
        pairs = same.intersect(isl.Map.lex_lt(isl.set_space(sizes, n)))
        found = isl.first_point(pairs.wrap().flatten(), sizes, context)
    if found is None:
        return None
    size, point = found
    env: dict[Axis | Var, int] = {v: size[v.name] for v in sizes}
    env.update(zip(dims, point[:n], strict=True))
    first = {d.name: v for d, v in zip(dims, point[:n], strict=True)}
    second = {d.name: v for d, v in zip(dims, point[n:], strict=True)}
    return Collision(size, first, second, tuple(e.evaluate(env) for e in index))
