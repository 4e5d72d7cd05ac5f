"""What values a loop takes: constant hulls, ranges that depend on others, partial blocks, bounds.

For requests that need a constant extent or a rectangle, and for the picture of a loop nest. What
becomes code is decided in lowering.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from tensorir.ir.affine import Conj, Lin, Region
from tensorir.ir.expr import Axis
from tensorir.ir.stmt import Bound
from tensorir.poly import isl, tree
from tensorir.poly.isl import Set, Sizes, dt
from tensorir.poly.model import Placement, Program
from tensorir.poly.relation import allowed, context_set, placed
from tensorir.poly.tree import At, Loop, Seq, Tree

# What decides a range: the placements of the statements under a loop, sizes, facts about those.
_Places: TypeAlias = tuple[tuple[Placement, ...], Sizes, Conj]


def points(program: Program, name: str, axes: Sequence[Axis]) -> Set:
    """The values of `axes` for which statement `name` has an instance."""
    return _points(program.placements[name], tuple(axes), program.sizes, program.context)


@lru_cache(maxsize=4096)
def _points(placement: Placement, axes: tuple[Axis, ...], sizes: Sizes, context: Conj) -> Set:
    return placed(placement, axes, sizes).range().intersect_params(allowed(sizes, context))


def _union(program: Program, names: Sequence[str], axes: Sequence[Axis]) -> Set:
    return _union_of(_places(program, names), tuple(axes))


def _union_of(places: _Places, axes: tuple[Axis, ...]) -> Set:
    (first, *others), sizes, context = places
    out = _points(first, axes, sizes, context)
    for n in others:
        p = _points(n, axes, sizes, context)
        if not p.is_equal(out):
            out = out.union(p)
    return out.coalesce()


def _places(program: Program, names: Sequence[str]) -> _Places:
    return tuple(program.placements[n] for n in names), program.sizes, program.context


def constant_range(program: Program, axis: Axis) -> tuple[int, int] | None:
    """First and last value of a loop over all outer loops and sizes; None where not constants.

    A loop that never runs gives (0, -1).
    """
    loop = tree.find(program.tree, axis)
    assert loop is not None, axis.name
    return _constant_range(_places(program, tree.stmts(loop)), axis)


@lru_cache(maxsize=2048)
def _constant_range(places: _Places, axis: Axis) -> tuple[int, int] | None:
    placements, sizes, context = places
    low: int | None = None
    high: int | None = None
    with isl.budget():
        for placement in placements:
            p = _points(placement, (axis,), sizes, context)
            p = p.project_out(dt.param, 0, p.dim(dt.param))
            if p.is_empty():
                continue
            first, last = p.dim_min_val(0), p.dim_max_val(0)
            if not (first.is_int() and last.is_int()):
                return None
            a, b = isl.number(first), isl.number(last)
            low = a if low is None else min(low, a)
            high = b if high is None else max(high, b)
    return (0, -1) if low is None or high is None else (low, high)


def constant_extent(program: Program, axis: Axis) -> int | None:
    """The most iterations that the loop ever spans, first to last, for fixed outer loops and sizes.

    None where no constant bounds it. A loop that starts where an outer one stands, as after
    `compute_at`, has a constant extent though its range has none.
    """
    loop = tree.find(program.tree, axis)
    assert loop is not None, axis.name
    names = tree.stmts(loop)
    return _constant_extent(_places(program, names), _down_to(program, names[0], axis))


@lru_cache(maxsize=2048)
def _constant_extent(places: _Places, axes: tuple[Axis, ...]) -> int | None:
    n = len(axes)
    with isl.budget():
        p = _union_of(places, axes)
        if p.is_empty():
            return 0
        # pairs of values of the loop under one point of the outer ones, then their distances
        last = isl.select_set(p, (*range(n - 1), n - 1), n + 1)
        first = isl.select_set(p, (*range(n - 1), n), n + 1)
        distance = isl.difference(last.intersect(first), n - 1, n)
        distance = distance.project_out(dt.param, 0, distance.dim(dt.param))
        value = distance.dim_max_val(0)
        return isl.number(value) + 1 if value.is_int() else None


def _down_to(program: Program, name: str, axis: Axis) -> tuple[Axis, ...]:
    """The loops around a statement, down to the one over `axis`."""
    axes = tree.axes_of(program.tree, name)
    return axes[: next(k for k, a in enumerate(axes) if a is axis) + 1]


def depends(program: Program, axis: Axis, others: Sequence[Axis]) -> Axis | None:
    """One of `others`, loops outside `axis`, on which its range depends; None: on none of them."""
    loop = tree.find(program.tree, axis)
    assert loop is not None, axis.name
    names = tree.stmts(loop)
    outer = _down_to(program, names[0], axis)[:-1]
    with isl.budget():
        apart = set(others)
        if _rectangular(program, names, [a for a in outer if a not in apart], others, axis):
            return None
        for x in others:
            rest = [a for a in outer if a is not x]
            if not _rectangular(program, names, rest, [x], axis):
                return x
    return others[0]


def _rectangular(
    program: Program, names: list[str], rest: list[Axis], others: Sequence[Axis], axis: Axis
) -> bool:
    """Whether, for given `rest`, the points of `others` and `axis` are a product."""
    p = _union(program, names, (*rest, *others, axis))
    n, m = len(rest), len(others)
    without_axis = p.project_out(dt.set, n + m, 1).add_dims(dt.set, 1)
    without_others = p.project_out(dt.set, n, m).insert_dims(dt.set, n, m)
    return bool(without_axis.intersect(without_others).is_subset(p))


@dataclass(frozen=True, slots=True)
class Partial:
    """A block of a loop that is not full: at which sizes, which block, how many points it has."""

    sizes: dict[str, int]
    block: int
    points: int


def incomplete_block(program: Program, axis: Axis, factor: int, base: Lin) -> Partial | None:
    """The first block of `factor` points that is not full; None where all are, always."""
    loop = tree.find(program.tree, axis)
    assert loop is not None, axis.name
    with isl.budget():
        for n in tree.stmts(loop):
            found = _incomplete(program, n, axis, factor, base)
            if found is not None:
                return found
    return None


def _incomplete(program: Program, name: str, axis: Axis, factor: int, base: Lin) -> Partial | None:
    axes = _down_to(program, name, axis)
    d = len(axes) - 1
    block, point = Axis("block"), Axis("point")
    copies = tuple(Axis(a.name) for a in axes)
    facts: Conj = tuple(("eq", Lin({a: 1, b: -1})) for a, b in zip(copies[:d], axes, strict=False))
    value = Lin({block: factor, point: 1}) + base
    facts += (("eq", Lin({copies[d]: 1}) - value), *within(point, factor))
    blocks = isl.to_map(copies, (*axes[:d], block, point), program.sizes, (facts,))
    held = points(program, name, axes).apply(blocks)
    full = held.project_out(dt.set, d + 1, 1).add_dims(dt.set, 1)
    inside = isl.to_set((*axes[:d], block, point), program.sizes, (within(point, factor),))
    missing = full.intersect(inside).subtract(held)
    found = isl.first_point(missing, program.sizes, program.context)
    if found is None:
        return None
    sizes, at = found
    there = isl.at_sizes(held, program.sizes, sizes)
    for k in range(d + 1):
        there = there.fix_val(dt.set, k, isl.val(at[k]))
    return Partial(sizes, at[d], isl.number(there.count_val()))


def within(point: Axis, factor: int) -> Conj:
    return (("ge", Lin({point: 1})), ("ge", Lin({point: -1}, factor - 1)))


# -- the picture of a nest
@dataclass(frozen=True, slots=True)
class Span:
    """A loop's bounds, inclusive: the greatest of `lower` to the least of `upper`.

    `hull`: the least of `lower` to the greatest of `upper`.
    """

    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]
    hull: bool = False


@dataclass(frozen=True, slots=True)
class NestBounds:
    """Bounds of each loop; guards of each statement, where the loops alone do not say it.

    A loop or statement that never runs is in neither.
    """

    loops: dict[Axis, Span]
    guards: dict[str, Region]


def nest_bounds(program: Program) -> NestBounds:
    """The bounds of all loops of a program, given the loops around each."""
    out = NestBounds({}, {})
    with isl.budget():
        everywhere = isl.universe(program.sizes, 0).intersect_params(context_set(program))
        _walk(program, program.tree, (), everywhere, out)
    return out


def _walk(
    program: Program, t: Tree, axes: tuple[Axis, ...], enforced: Set, out: NestBounds
) -> None:
    if isinstance(t, Seq):
        for x in t.items:
            _walk(program, x, axes, enforced, out)
    elif isinstance(t, At):
        wanted = points(program, t.stmt, axes).intersect(enforced)
        if not wanted.is_empty():
            rest = wanted.gist(enforced)
            out.guards[t.stmt] = isl.from_set(rest, axes, program.sizes, disjoint=True)
    else:
        _walk_loop(program, t, axes, enforced, out)


def _walk_loop(
    program: Program, t: Loop, axes: tuple[Axis, ...], enforced: Set, out: NestBounds
) -> None:
    outer = enforced.add_dims(dt.set, 1)
    inner = (*axes, t.axis)
    whole = _union(program, tree.stmts(t), inner).intersect(outer)
    if whole.is_empty():
        return
    whole = whole.coalesce()
    # to give its existentials a value may cut one set into several
    parts = whole.compute_divs()
    pieces = [b.to_set() for b in parts.get_basic_sets()]
    if len(pieces) > 1:
        apart = whole if whole.n_basic_set() > 1 else parts
        pieces.insert(0, apart.simple_hull().to_set())
    for piece in (pieces[0], pieces[0].remove_divs()):
        span = _span(program, piece, inner, outer)
        if span is not None:
            out.loops[t.axis] = span
            # Only what the bounds say is enforced, so that guards below stay exact.
            said = isl.to_set(inner, program.sizes, (_facts_of(span, t.axis),))
            _walk(program, t.body, inner, outer.intersect(said), out)
            return
    spans = [_span(program, p.remove_divs(), inner, outer) for p in pieces[1:] or pieces]
    known = [x for x in spans if x is not None]
    lowers = dict.fromkeys(_telling(x.lower) for x in known)
    uppers = dict.fromkeys(_telling(x.upper) for x in known)
    if known:
        several = len(lowers) > 1 or len(uppers) > 1
        out.loops[t.axis] = Span(tuple(lowers), tuple(uppers), several)
    _walk(program, t.body, inner, outer, out)


def _span(program: Program, piece: Set, inner: tuple[Axis, ...], outer: Set) -> Span | None:
    """The bounds of the innermost axis; None where they cannot be read off."""
    axis = inner[-1]
    known = outer.simple_hull() if outer.n_basic_set() > 1 else outer.get_basic_sets()[0]
    found = isl.facts(piece.get_basic_sets()[0].gist(known), inner, program.sizes)
    if found is None or any(
        isinstance(a, tuple) and a[1].involves(axis) for _, e in found for a in e.terms
    ):
        return None
    lower: list[Bound] = []
    upper: list[Bound] = []
    for kind, e in found:
        c = e.coef(axis)
        if c > 0 or (c and kind == "eq"):
            lower.append((abs(c), e.without(axis) * (-1 if c > 0 else 1)))
        if c < 0 or (c and kind == "eq"):
            upper.append((abs(c), e.without(axis) * (-1 if c > 0 else 1)))
    return Span(tuple(lower), tuple(upper)) if lower and upper else None


def _facts_of(span: Span, axis: Axis) -> Conj:
    lower: Conj = tuple(("ge", Lin({axis: c}) - e) for c, e in span.lower)
    return (*lower, *(("ge", e - Lin({axis: c})) for c, e in span.upper))


def _telling(bounds: tuple[Bound, ...]) -> Bound:
    return next((b for b in bounds if not b[1].is_const), bounds[0])
