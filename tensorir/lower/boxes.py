"""What an affine expression can be when some axes range over constant boxes from 0."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping

from tensorir.ir.affine import ZERO, Conj, Lin, floordiv, rejoin
from tensorir.ir.expr import Axis
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run

# The inclusive maximum of axes that start at 0.
Box = Mapping[Axis, int]


def extreme(e: Lin, box: Box, sign: int) -> Lin:
    """An expression free of the axes in `box` that bounds `e` over it.

    Parameters
    ----------
    sign
        -1 for a lower bound, +1 for an upper one. Exact where each axis appears once.

    Examples
    --------
    >>> i, j = Axis("i"), Axis("j")
    >>> extreme(Lin({i: 2, j: -1}, 5), {j: 3}, -1).text()
    '2*i + 2'
    """
    if not any(touches(a, box) for a in e.terms):
        return e
    out = Lin({}, e.const)
    for a, v in e.terms.items():
        if not touches(a, box):
            out = out + Lin({a: v})
            continue
        up = sign * v > 0
        if not isinstance(a, tuple):
            out = out + (v * box[a] if up else 0)  # type: ignore[index]
        elif a[0] == "//":
            out = out + floordiv(extreme(a[1], box, 1 if up else -1), a[2]) * v
        else:
            out = out + (v * (a[2] - 1) if up else 0)
    return out


def touches(atom: object, axes: Container[Axis]) -> bool:
    """Whether an atom is, or holds inside floors, one of `axes`."""
    if isinstance(atom, tuple):
        return any(touches(a, axes) for a in atom[1].terms)
    return atom in axes


def uses(e: Lin, axes: Container[Axis]) -> bool:
    """Whether `e` mentions one of `axes`."""
    return any(touches(a, axes) for a in e.terms)


def span(e: Lin, box: Box) -> tuple[int, int] | None:
    """Constant inclusive range of `e`, or None if an atom is not in `box`."""
    low = high = e.const
    for a, v in e.terms.items():
        if isinstance(a, tuple):
            inner = span(a[1], box)
            if a[0] == "//" and inner is not None:
                x, y = inner[0] // a[2], inner[1] // a[2]
            elif a[0] == "%":
                x, y = 0, a[2] - 1
            else:
                return None
        else:
            top = box.get(a) if isinstance(a, Axis) else None
            if top is None:
                return None
            x, y = 0, top
        low += min(v * x, v * y)
        high += max(v * x, v * y)
    return low, high


def simplify(e: Lin, box: Box) -> Lin:
    """`e` with the floors removed that the ranges in `box` decide.

    `(f*X + y) // t` is `X // (t/f)` for 0 <= y < f: it brings lanes out of fused indices.

    Examples
    --------
    >>> i, f = Axis("i"), Axis("f")
    >>> from tensorir.ir.affine import floormod
    >>> simplify(floormod(Lin({f: 8, i: 1}), 16), {i: 7}).text()
    '8*(f%2) + i'
    """
    if not any(isinstance(a, tuple) for a in e.terms):
        return e
    out = Lin({}, e.const)
    for a, v in e.terms.items():
        part = _floor(a[0], simplify(a[1], box), a[2], box) if isinstance(a, tuple) else Lin({a: 1})
        out = out + part * v
    return rejoin(out)


def _floor(op: str, x: Lin, t: int, box: Box) -> Lin:
    q = Lin({a: c // t for a, c in x.terms.items() if c % t == 0}, x.const // t)
    rest = Lin({a: c for a, c in x.terms.items() if c % t}, x.const % t)
    s = span(rest, box)
    if s is not None and s[0] // t == s[1] // t:
        return q + s[0] // t if op == "//" else rest - (s[0] // t) * t
    if op == "%":
        rest = Lin({a: c % t for a, c in rest.terms.items()}, rest.const)
        s = span(rest, box)
        if s is not None and s[0] // t == s[1] // t:
            return rest - (s[0] // t) * t
    for f in sorted({math.gcd(t, c) for c in rest.terms.values()} - {1}, reverse=True):
        y = Lin({a: c for a, c in rest.terms.items() if c % f}, rest.const % f)
        s = span(y, box)
        if s is None or s[0] < 0 or s[1] >= f:
            continue
        big = Lin({a: c // f for a, c in rest.terms.items() if c % f == 0}, rest.const // f)
        if t == f:
            return q + big if op == "//" else y
        if op == "//":
            return q + _quotient(big, t // f, box)
        return (big % (t // f)) * f + y
    return q + _quotient(rest, t, box) if op == "//" else rest % t


def _quotient(e: Lin, t: int, box: Box) -> Lin:
    """e // t in a form in which no coefficient reaches the divisor."""
    whole = Lin({a: c // t if c > 0 else -(-c // t) for a, c in e.terms.items()})
    return whole + _floor("//", e - whole * t, t, box) if whole.terms else floordiv(e, t)


def ranges(node: Node) -> dict[Axis, int]:
    """The inclusive maximum of each loop axis that starts at 0 or above and has one.

    Loops may mention outer ones, whose ranges then bound theirs.
    """
    found: dict[Axis, int | None] = {}
    for loop in loops(node):
        top = _top(loop, {a: x for a, x in found.items() if x is not None})
        if loop.axis in found:
            before = found[loop.axis]
            top = None if top is None or before is None else max(top, before)
        found[loop.axis] = top
    return {a: x for a, x in found.items() if x is not None}


def _top(loop: For, box: Box) -> int | None:
    if loop.extent is not None:
        return loop.extent - 1
    from_zero = [not e.terms and e.const >= 0 for _, e in loop.lower]
    if not (all(from_zero) if loop.hull else any(from_zero)):
        return None
    tops: list[int] = []
    for c, e in loop.upper:
        high = extreme(e, box, 1)
        if high.is_const:
            tops.append(high.const // c)
        elif loop.hull:
            return None
    if not tops:
        return None
    return max(max(tops) if loop.hull else min(tops), 0)


def loops(node: Node | None) -> Iterator[For]:
    """Every loop, outer before inner, in textual order."""
    if isinstance(node, For):
        yield node
    for child in below(node):
        yield from loops(child)


def runs(node: Node | None) -> Iterator[Run]:
    """Every instance, in textual order."""
    if isinstance(node, Run):
        yield node
    for child in below(node):
        yield from runs(child)


def below(node: Node | None) -> tuple[Node, ...]:
    """The nodes directly inside."""
    if isinstance(node, Block):
        return node.items
    if isinstance(node, If):
        return (node.body,) if node.other is None else (node.body, node.other)
    if isinstance(node, (For, Alloc)):
        return (node.body,)
    return ()


def block(items: Iterable[Node]) -> Node:
    """Items in order, nested blocks flattened; a single item stands alone."""
    out: list[Node] = []
    for i in items:
        out.extend(i.items if isinstance(i, Block) else (i,))
    return out[0] if len(out) == 1 else Block(tuple(out))


def at_least(found: Conj) -> tuple[Lin, ...]:
    """Facts as expressions that must be at least 0; an equality gives two."""
    return tuple(x for kind, e in found for x in ((e,) if kind == "ge" else (e, ZERO - e)))


__all__ = [
    "Box", "at_least", "below", "block", "extreme", "loops", "ranges", "runs", "simplify", "span",
    "touches", "uses",
]  # fmt: skip
