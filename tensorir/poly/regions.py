"""Regions that placement and memory primitives ask for: what is touched, needed, copied, loaded.

A region is a map from the axes outside (the loops down to the place that is asked about) to cells
or instances. Facts that come from one are over iterators that the caller gives for those axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorir.ir.affine import Conj, Fact, Lin, Region
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array, Statement
from tensorir.poly import isl
from tensorir.poly.isl import Map, Set, Sizes, dt
from tensorir.poly.model import Program
from tensorir.poly.relation import access_map, context_set

# Sizes at which a hull is compared with what it surrounds, and how many points may be counted.
_PROBE_SIZE = 17
_PROBE_POINTS = 20_000


def needed(stmt: Statement, cells: dict[Array, Map], sizes: Sizes) -> Map | None:
    """Instances of `stmt` that write the wanted `cells`, at each outer point."""
    found: Map | None = None
    for w in stmt.writes:
        wanted = cells.get(w.array)
        if wanted is None:
            continue
        m = wanted.apply_range(access_map(stmt, w, sizes).reverse())
        found = m if found is None else found.union(m)
    return None if found is None else found.coalesce()


def union(a: Map | None, b: Map) -> Map:
    """Both; `a` may be missing."""
    return b if a is None else a.union(b).coalesce()


def flat(m: Map) -> Set:
    """The points (outer..., own...) of a region."""
    return m.wrap().flatten()


def region(m: Map, outer: Sequence[Axis], own: Sequence[Axis], sizes: Sizes) -> Region:
    """A region as facts over `outer` and `own`."""
    return isl.from_set(flat(m), (*outer, *own), sizes)


def empty(m: Map, program: Program) -> bool:
    """Whether nothing is in a region at any size that the program allows."""
    return bool(m.intersect_params(context_set(program)).is_empty())


def inside(a: Map, b: Map, program: Program) -> bool:
    """Whether region `a` is part of `b` at every size that the program allows."""
    return bool(a.intersect_params(context_set(program)).is_subset(b))


def is_upper(m: Map, dim: int, bound: Lin, outer: tuple[Axis, ...], program: Program) -> bool:
    """Whether `bound`, affine in `outer`, is above or at dimension `dim` of every cell."""
    return _beyond(m, dim, bound, outer, program, -1)


def is_lower(m: Map, dim: int, bound: Lin, outer: tuple[Axis, ...], program: Program) -> bool:
    """Whether `bound`, affine in `outer`, is below or at dimension `dim` of every cell."""
    return _beyond(m, dim, bound, outer, program, 1)


def _beyond(
    m: Map, dim: int, bound: Lin, outer: tuple[Axis, ...], program: Program, sign: int
) -> bool:
    cells = tuple(Axis("c") for _ in range(m.dim(dt.out)))
    past: Region = ((("ge", (bound - Lin({cells[dim]: 1})) * sign - 1),),)
    wrong = flat(m).intersect(isl.to_set((*outer, *cells), program.sizes, past))
    return bool(wrong.intersect_params(context_set(program)).is_empty())


def box(array: Array, program: Program) -> Set:
    """All cells of an array."""
    cells = tuple(Axis("c") for _ in array.shape)
    inside: list[Fact] = []
    for c, extent in zip(cells, array.shape, strict=True):
        inside += [("ge", Lin({c: 1})), ("ge", extent - Lin({c: 1}, 1))]
    return isl.to_set(cells, program.sizes, (tuple(inside),))


def lower_bounds(m: Map, dim: int, outer: tuple[Axis, ...], sizes: Sizes) -> list[Lin]:
    """What the constraints of a region say dimension `dim` is at least, affine in `outer`.

    Those that follow the most outer axes come first. Each may hold in a part only: to be proved.
    """
    cell = Axis("c")
    only = isl.select(m, [dim]).coalesce()
    out: list[Lin] = []
    for conj in isl.from_set(flat(only), (*outer, cell), sizes):
        for kind, e in conj:
            k = e.coef(cell)
            plain = not any(isinstance(a, tuple) for a in e.terms)
            if plain and (k == 1 or (kind == "eq" and k == -1)):
                out.append(e.without(cell) * -k)
    distinct = list(dict.fromkeys(out))
    return sorted(distinct, key=lambda e: -sum(isinstance(a, Axis) for a in e.terms))


def in_bounds(
    region: Region, dims: Sequence[Axis], cells: Sequence[Axis], array: Array, program: Program
) -> bool:
    """Whether `cells` lie in `array` wherever `region`, over `dims`, holds."""
    points = isl.to_set(dims, program.sizes, region).intersect_params(context_set(program))
    for c, extent in zip(cells, array.shape, strict=True):
        past: Region = ((("ge", Lin({c: -1}, -1)),), (("ge", Lin({c: 1}) - extent),))
        if not points.intersect(isl.to_set(dims, program.sizes, past)).is_empty():
            return False
    return True


def simplest(m: Map, within: Set, sizes: Sizes) -> tuple[Map, bool]:
    """A region without disjunctions and strides where that is exact or adds only a few points.

    Returns
    -------
    tuple of Map and bool
        The region, and whether it holds more than was asked for.
    """
    m = m.coalesce()
    pieces = m.get_basic_maps()
    if len(pieces) == 1 and not pieces[0].dim(dt.div):
        return m, False
    if not pieces:
        return m, False
    hull = m.simple_hull().to_map().remove_divs().intersect_range(within)
    hull = hull.intersect_domain(m.domain())
    if hull.n_basic_map() > len(pieces):
        return m, False
    if hull.is_subset(m):
        return hull, False
    return (hull, True) if _few_more(m, hull, sizes) else (m, False)


def _few_more(m: Map, hull: Map, sizes: Sizes) -> bool:
    """Whether `hull` adds at most two points or a third, at one point of the outer axes."""
    n = m.dim(dt.in_)
    s, h = flat(m), flat(hull)
    large = isl.params(sizes, tuple(("ge", Lin({v: 1}, -_PROBE_SIZE)) for v in sizes))
    probe = s.intersect_params(large)
    if probe.is_empty():
        probe = s
    found = isl.first_point(probe, sizes)
    if found is None:
        return False
    values, point = found
    counts = []
    for x in (s, h):
        x = isl.at_sizes(x, sizes, values)
        for k in range(n):
            x = x.fix_val(dt.set, k, isl.val(point[k]))
        count = _count(x)
        if count is None:
            return False
        counts.append(count)
    return counts[1] - counts[0] <= max(2, counts[0] // 3)


def _count(s: Set) -> int | None:
    """The points of a set without sizes; None where they are too many to count."""
    box = 1
    for k in range(s.dim(dt.set)):
        low, high = s.dim_min_val(k), s.dim_max_val(k)
        if not (low.is_int() and high.is_int()):
            return None
        box *= isl.number(high) - isl.number(low) + 1
    return isl.number(s.count_val()) if box <= _PROBE_POINTS else None


def repeated(m: Map, program: Program) -> tuple[dict[str, int], list[int]] | None:
    """An instance that two outer points need: sizes, then instance, first and second point."""
    m = m.intersect_params(context_set(program))
    if m.is_injective():
        return None
    n, k = m.dim(dt.in_), m.dim(dt.out)
    back = m.reverse()
    both = flat(back.flat_range_product(back))
    found = None
    for d in range(n):
        axes = tuple(Axis("x") for _ in range(k + 2 * n))
        first, second = axes[k : k + n], axes[k + n :]
        same: Conj = tuple(("eq", Lin({first[e]: 1, second[e]: -1})) for e in range(d))
        later: Conj = (*same, ("ge", Lin({second[d]: 1, first[d]: -1}, -1)))
        s = both.intersect(isl.to_set(axes, program.sizes, (later,)))
        found = isl.first_point(s, program.sizes, program.context)
        if found is not None:
            break
    return found


def clash(
    m: Map, dim: int, apart: int, program: Program
) -> tuple[dict[str, int], list[int]] | None:
    """Two cells of one outer point that differ by `apart` in dimension `dim` alone: the first."""
    n, k = m.dim(dt.in_), m.dim(dt.out)
    axes = tuple(Axis("x") for _ in range(n + 2 * k))
    first, second = axes[n : n + k], axes[n + k :]
    facts: Conj = tuple(
        ("eq", Lin({second[d]: 1, first[d]: -1}, -apart if d == dim else 0)) for d in range(k)
    )
    both = flat(m.flat_range_product(m))
    s = both.intersect(isl.to_set(axes, program.sizes, (facts,)))
    return isl.first_point(s, program.sizes, program.context)


def hull_extent(m: Map, dim: int, program: Program) -> int | None:
    """The constant number of values that dimension `dim` spans at any outer point, if known."""
    n = m.dim(dt.in_)
    only = isl.select(m, [dim]).intersect_params(context_set(program))
    spread = only.flat_range_product(only)
    s = flat(spread)
    axes = tuple(Axis("x") for _ in range(n + 3))
    gap: Region = ((("eq", Lin({axes[n + 2]: 1, axes[n + 1]: -1, axes[n]: 1})),),)
    s = s.add_dims(dt.set, 1).intersect(isl.to_set(axes, program.sizes, gap))
    s = s.project_out(dt.set, 0, n + 2)
    s = s.project_out(dt.param, 0, s.dim(dt.param))
    if s.is_empty():
        return 0
    high = s.dim_max_val(0)
    return isl.number(high) + 1 if high.is_int() else None
