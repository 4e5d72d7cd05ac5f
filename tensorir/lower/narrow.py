"""Narrower copies of a relaxed nest, for a last panel with fewer live vectors.

Relaxing lets the full tile serve the edge, which computes whole vectors that nothing reads. Where
a dropped guard says how many vectors are live, a copy with fewer of them costs less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorir.ir.affine import ZERO, Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.stmt import For, If, Node, Run
from tensorir.lower.boxes import extreme, uses

# Vectors that all narrower copies of one nest may add to the code.
BUDGET = 48


@dataclass(frozen=True, slots=True)
class _Cut:
    """The loop to shorten, the elements of one step of it, and the guard that counts them."""

    axis: Axis
    steps: int
    width: int
    guard: Lin


def narrow(n: For, dropped: Mapping[Run, tuple[Lin, ...]], nest: Node, other: Node) -> Node | None:
    """`other` behind tests for fewer live vectors; None where that gains nothing here.

    `n` must be a serial loop around a nest of one instance without guards of its own. `nest` is
    what stands for it where few are live, to be shortened.
    """
    if n.kind != "serial":
        return None
    chain = _chain(n)
    if chain is None:
        return None
    path, run = chain
    if run.conds:
        return None
    fixed = {x.axis: x.extent - 1 for x in path if x.kind in ("unroll", "vectorize") and x.extent}
    inside = {x.axis: None for x in path}
    for c in dropped.get(run, ()):
        cut = _cut(path, run, c)
        if cut is None or uses(extreme(c, fixed, 1), inside):
            continue
        out = other
        widths = _widths(cut, fixed, _copies(path) // cut.steps)
        for w in sorted(widths, reverse=True):
            # Where even the first point cut off is dead, so are all others.
            box = {a: x for a, x in fixed.items() if a is not cut.axis}
            first = extreme(c.subst({cut.axis: Lin({}, w * cut.width)}), box, 1)
            out = If((("ge", ZERO - first - 1),), _shortened(nest, cut.axis, w * cut.width), out)
        return out if out is not other else None
    return None


def _chain(n: Node) -> tuple[list[For], Run] | None:
    """The loops down to the only instance of a nest."""
    path: list[For] = []
    while isinstance(n, For):
        path.append(n)
        n = n.body
    return (path, n) if isinstance(n, Run) else None


def _cut(path: list[For], run: Run, c: Lin) -> _Cut | None:
    """The loop whose steps are whole vectors along `c`."""
    vector = next((x for x in path if x.kind == "vectorize"), None)
    if vector is None or vector.extent is None or vector.width is None:
        return None
    each = -c.coef(vector.axis)
    if each <= 0:
        return None if c.involves(vector.axis) else _vectors(path, run, c, vector)
    if vector.extent > vector.width:
        return _Cut(vector.axis, vector.extent // vector.width, vector.width, c)
    for x in path:
        if x.kind == "unroll" and x.extent and -c.coef(x.axis) == each * vector.extent:
            return _Cut(x.axis, x.extent, 1, c)
    return None


def _vectors(path: list[For], run: Run, c: Lin, vector: For) -> _Cut | None:
    """The unrolled loop over whole vectors, where `c` counts those."""
    for x in path:
        beside = [e for e in run.args if e.coef(vector.axis) == 1]
        if x.kind != "unroll" or not x.extent or c.coef(x.axis) != -1:
            continue
        if any(e.coef(x.axis) == vector.extent for e in beside):
            return _Cut(x.axis, x.extent, 1, c)
    return None


def _widths(cut: _Cut, fixed: Mapping[Axis, int], per_step: int) -> list[int]:
    """How many steps the narrower copies have: those that occur, or two fair guesses."""
    m, c = cut.steps, cut.guard
    if m < 2:
        return []
    if not any(isinstance(a, (Var, tuple)) for a in c.terms):
        # All is constant but the loops around: the panel that is left has one width.
        each = -c.coef(cut.axis) * cut.width
        outer = [v for a, v in c.terms.items() if a not in fixed]
        if all(v % (each * m) == 0 for v in outer):
            live = (c.const + 1) % (each * m)
            w = -(-live // each)
            return [w] if 0 < w < m else []
    found: list[int] = []
    spent = 0
    for w in dict.fromkeys((m - 1, m // 2)):
        if 0 < w < m and spent + w * per_step <= BUDGET:
            found.append(w)
            spent += w * per_step
    return found


def _copies(path: list[For]) -> int:
    n = 1
    for x in path:
        if x.kind in ("unroll", "vectorize"):
            n *= (x.extent or 1) // (x.width or 1)
    return n


def _shortened(n: Node, axis: Axis, extent: int) -> Node:
    if not isinstance(n, For):
        return n
    if n.axis is axis:
        return replace(n, extent=extent, upper=((1, Lin({}, extent - 1)),))
    return replace(n, body=_shortened(n.body, axis, extent))


__all__ = ["BUDGET", "narrow"]
