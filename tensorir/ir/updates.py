"""How an update combines its accumulator with something else, and what does so in one step."""

from __future__ import annotations

from tensorir.ir.expr import Expr, Op, Ref
from tensorir.ir.statement import Statement

_COMBINING = ("add", "mul", "min", "max", "and", "or", "xor")
_ATOMIC = ("add", "min", "max", "and", "or", "xor")


def combined(body: Expr) -> tuple[str, tuple[Expr, ...]] | None:
    """How a body combines the accumulator, `Ref(0)`, with something else; None if otherwise.

    Returns
    -------
    tuple or None
        The operation, and what it takes: one expression, or two whose product it is.
    """
    if not isinstance(body, Op):
        return None
    if body.name == "fma" and _is_state(body.args[2]):
        return None if any(map(_uses_state, body.args[:2])) else ("add", body.args[:2])
    if body.name in _COMBINING:
        a, b = body.args
        if _is_state(a) and not _uses_state(b):
            return body.name, (b,)
        if _is_state(b) and not _uses_state(a):
            return body.name, (a,)
    return None


def _is_state(e: Expr) -> bool:
    return isinstance(e, Ref) and e.slot == 0


def _uses_state(e: Expr) -> bool:
    return _is_state(e) or (isinstance(e, Op) and any(map(_uses_state, e.args)))


def not_atomic(stmt: Statement) -> str:
    """Why an update cannot be made in one step; empty if it can."""
    if len(stmt.writes) > 1:
        return f"its state is {len(stmt.writes)} numbers"
    name = stmt.combiner.name if stmt.combiner is not None else "the combination"
    found = combined(stmt.bodies[0])
    if found is None:
        return f"{name} does more than combine the cell with a value"
    if found[0] not in _ATOMIC:
        return f"no instruction combines a cell by {name}"
    d = stmt.writes[0].array.dtype
    if d.is_float and d.bits < 32:
        return f"{d} is too narrow"
    return ""
