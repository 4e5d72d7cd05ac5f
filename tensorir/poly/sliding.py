"""What iterations of a loop need that none before them did: windows that slide."""

from __future__ import annotations

from tensorir.poly import isl
from tensorir.poly.isl import Map


def _before(n: int, kept: int) -> Map:
    """Points of `n` axes to those that come before them at the same point of the first `kept`."""
    out = isl.empty_map((), n, n)
    for d in range(kept, n):
        rows = isl.Rows({}, 1 + 2 * n)
        rows.eq += [{1 + x: 1, 1 + n + x: -1} for x in range(d)]
        rows.ge.append({0: -1, 1 + d: 1, 1 + n + d: -1})
        out = out.union(rows.to_map(isl.map_space((), n, n)))
    return out


def fresh_part(need: Map, kept: int) -> Map:
    """What a point of the outer axes needs first: none before it needs it.

    Parameters
    ----------
    need
        Outer axes to instances.
    kept
        Points count as before each other where the first `kept` axes are equal.
    """
    before = _before(need.dim(isl.dt.in_), kept)
    return need.subtract(before.apply_range(need)).coalesce()


def halves(need: Map, new: Map, kept: int) -> tuple[Map, Map | None]:
    """`new` as what every iteration adds, and what the first one needs besides (None: nothing)."""
    some = need.domain()
    before = _before(need.dim(isl.dt.in_), kept)
    later = before.intersect_range(some).domain().intersect(some).coalesce()
    steady = new.intersect_domain(later).coalesce()
    if steady.is_empty():
        return new, None
    # what later iterations add, by the same rule in the first one too
    wider = steady.gist_domain(later).intersect(need).coalesce()
    if wider.is_subset(new):
        steady = wider
    warm = new.subtract(steady).coalesce()
    return steady, None if warm.is_empty() else warm
