"""Vector lanes that write one cell: a reduction across them, or one lane after the other."""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorir.codegen import arithmetic
from tensorir.codegen.address import flat_of, locate
from tensorir.codegen.convert import constant
from tensorir.codegen.expressions import value
from tensorir.codegen.loads import Instance, load
from tensorir.codegen.stores import flush, store
from tensorir.codegen.types import VALUE, literal, vector
from tensorir.codegen.values import Emitter, Lane, Val, iota
from tensorir.ir.dtype import BOOL, DType
from tensorir.ir.expr import Expr, Op, Ref
from tensorir.ir.numerics import limits

_REDUCING = ("add", "mul", "min", "max", "and", "or", "xor")


def into_one(em: Emitter, inst: Instance) -> None:
    """An instance in lanes whose cell is the same in all of them."""
    stmt = inst.stmt
    exact = all(a.exact for a in stmt.writes)
    found = _update(stmt.bodies[0]) if _regroups(em, inst) else None
    if exact and found is not None and em.width & (em.width - 1) == 0:
        _guarded(em, inst, lambda: _reduce(em, inst, *found))
        return
    if exact and stmt.role != "update":
        values = [value(em, inst, body) for body in stmt.bodies]
        if not any(by_lane for _, by_lane in values):
            _guarded(em, inst, lambda: _store_all(em, inst, values))
            return
    one_by_one(em, inst)


def _regroups(em: Emitter, inst: Instance) -> bool:
    """Whether lanes may be combined before the cell is: the schedule says so, or no bit changes."""
    stmt = inst.stmt
    if stmt.role != "update" or len(stmt.bodies) != 1 or em.lane is None:
        return False
    mark = em.module.lowered.marks.get(em.lane)
    asked = mark is not None and mark.bind == "reduce"
    return asked or (stmt.combiner is not None and stmt.combiner.exact)


def _guarded(em: Emitter, inst: Instance, body: Callable[[], None]) -> None:
    """Only if some lane is alive."""
    if inst.alive is None:
        body()
        return
    some = em.any_lane(inst.alive)
    flush(em)
    em.serial += 1
    k = em.serial
    em.emit(f"br i1 {some}, label %then{k}, label %end{k}")
    em.start(f"then{k}")
    body()
    flush(em)
    em.emit(f"br label %end{k}")
    em.start(f"end{k}")


def _store_all(em: Emitter, inst: Instance, values: list[Val]) -> None:
    for access, v in zip(inst.stmt.writes, values, strict=True):
        flat = flat_of(em, access, inst.run)
        store(em, flat, locate(em, flat), v, None)


def _update(body: Expr) -> tuple[str, tuple[Expr, ...]] | None:
    """How a body combines the accumulator, `Ref(0)`, with something else; None if otherwise."""
    if not isinstance(body, Op):
        return None
    if body.name == "fma" and _is_state(body.args[2]):
        return None if any(map(_uses_state, body.args[:2])) else ("add", body.args[:2])
    if body.name in _REDUCING:
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


def _reduce(em: Emitter, inst: Instance, name: str, parts: tuple[Expr, ...]) -> None:
    """Fold the lanes in halves, then combine with the cell once."""
    body = inst.stmt.bodies[0]
    d = body.dtype
    other = parts[0] if len(parts) == 1 else Op("mul", parts, d)
    text, by_lane = value(em, inst, other)
    if not by_lane:
        text = em.spread(text, VALUE[d.name])
    ty, w = VALUE[d.name], em.width
    if inst.alive is not None:
        neutral = constant(literal(_neutral(name, d), d), ty, w)
        v = vector(ty, w)
        form = f"select <{w} x i1> {{0}}, {v} {{1}}, {v} {{2}}"
        text = em.op(form, inst.alive, text, neutral)
    op = Op(name, (other, other), d)
    while w > 1:
        half, v = w // 2, vector(ty, w)
        low, high = (
            em.op(
                f"shufflevector {v} {{0}}, {v} poison, <{half} x i32> {iota('i32', half, start)}",
                text,
            )
            for start in (0, half)
        )
        w = half
        text = arithmetic.compute(em, inst, op, [low, high], [d, d], w)
    total = em.op(f"extractelement {vector(ty, 1)} {{0}}, i64 0", text)
    old, _ = load(em, inst, 0)
    new = arithmetic.compute(em, inst, op, [old, total], [d, d], 0)
    flat = flat_of(em, inst.stmt.writes[0], inst.run)
    store(em, flat, locate(em, flat), (new, False), None)


def _neutral(name: str, d: DType) -> bool | int | float:
    """What changes nothing."""
    if name in ("add", "or", "xor"):
        return False if d == BOOL else -0.0 if d.is_float else 0
    if name == "mul":
        return 1.0 if d.is_float else 1
    if name == "and":
        return True if d == BOOL else -1
    if d.is_float:
        return math.inf if name == "min" else -math.inf
    if d == BOOL:
        return name == "min"
    return limits(d)[1 if name == "min" else 0]


def one_by_one(em: Emitter, inst: Instance) -> None:
    """Lane after lane, as if the loop were unrolled: always right, for any body."""
    from tensorir.codegen.emit import run

    axis, width = em.lane, em.width
    assert axis is not None
    base = em.env[axis]
    assert isinstance(base, Lane)
    flush(em)
    em.module.note(f"{inst.stmt.name}: lanes of {axis.name} write one cell, one after the other")
    em.lane, em.width = None, 0
    for k in range(width):
        em.env[axis] = base.base + k
        run(em, inst.run)
    em.lane, em.width = axis, width
    em.env[axis] = base
