"""Two expressions compared up to the order of what commutes: which read is which operand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorir.ir.expr import Const, Expr, Op, Ref

__all__ = ["unify"]

_COMMUTE = ("add", "mul", "min", "max", "fmin", "fmax", "and", "or", "xor", "eq", "ne")

Slots = Mapping[int, int]


def unify(pattern: Expr, e: Expr, known: Slots | None = None) -> Iterator[dict[int, int]]:
    """Every way in which reads of `e` may stand for those of `pattern`, slot by slot.

    Types agree everywhere; a read of the pattern stands for one read of `e`, and no two for one.
    Axes and sizes by themselves are no operands: an expression that uses them matches nothing.
    """
    for found in _walk(pattern, e, dict(known or {})):
        if len(set(found.values())) == len(found):
            yield found


def _walk(p: Expr, e: Expr, known: dict[int, int]) -> Iterator[dict[int, int]]:
    if p.dtype != e.dtype:
        return
    if isinstance(p, Ref):
        if isinstance(e, Ref) and known.get(p.slot, e.slot) == e.slot:
            yield {**known, p.slot: e.slot}
        return
    if isinstance(p, Const):
        if isinstance(e, Const) and p.value == e.value:
            yield known
        return
    if not (isinstance(p, Op) and isinstance(e, Op)) or p.name != e.name:
        return
    orders = [e.args]
    if p.name in _COMMUTE:
        orders.append(e.args[::-1])
    elif p.name == "fma":
        orders.append((e.args[1], e.args[0], e.args[2]))
    for args in orders:
        yield from _all(p.args, args, known)


def _all(
    ps: tuple[Expr, ...], es: tuple[Expr, ...], known: dict[int, int]
) -> Iterator[dict[int, int]]:
    if not ps:
        yield known
        return
    for found in _walk(ps[0], es[0], known):
        yield from _all(ps[1:], es[1:], found)
