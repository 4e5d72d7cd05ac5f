"""Vector lanes that write one cell: a reduction across them, or one lane after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tensorir.codegen import arithmetic
from tensorir.codegen.address import flat_of, locate
from tensorir.codegen.atomics import combine
from tensorir.codegen.convert import constant
from tensorir.codegen.expressions import value
from tensorir.codegen.loads import Instance, load
from tensorir.codegen.stores import flush, store
from tensorir.codegen.types import VALUE, literal, vector
from tensorir.codegen.values import Emitter, Lane, Val, iota
from tensorir.ir.dtype import BOOL, DType
from tensorir.ir.expr import Expr, Op
from tensorir.ir.numerics import limits
from tensorir.ir.updates import combined


def into_one(em: Emitter, inst: Instance) -> None:
    """An instance in lanes whose cell is the same in all of them."""
    stmt = inst.stmt
    exact = all(a.exact for a in stmt.writes)
    found = combined(stmt.bodies[0]) if _regroups(em, inst) else None
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
        neutral = constant(literal(neutral_of(name, d), d), ty, w)
        v = vector(ty, w)
        form = f"select <{w} x i1> {{0}}, {v} {{1}}, {v} {{2}}"
        text = em.op(form, inst.alive, text, neutral)
    op = Op(name, (other, other), d)
    if em.folds is not None and inst.alive is None and em.guarded is None:
        em.folds.append(Fold(inst, op, text))
        return
    _fold(em, inst, op, [text])


class Fold(NamedTuple):
    """A vector whose lanes an instance combines into its cell with `op`."""

    inst: Instance
    op: Op
    text: str


def settle(em: Emitter) -> None:
    """Combine the vectors of a loop with each other first, then the lanes of one."""
    waiting, em.folds = em.folds, None
    if not waiting:
        return
    inst, op, _ = waiting[-1]
    _fold(em, inst, op, [x.text for x in waiting])


def _fold(em: Emitter, inst: Instance, op: Op, texts: list[str]) -> None:
    """Combine vectors with each other, the halves of what that gives, and that with the cell."""
    d, w = op.dtype, em.width
    ty = VALUE[d.name]
    plain = op.name in ("min", "max") and d.is_float and d.bits > 16
    nan = _any_nan(em, texts, vector(ty, w)) if plain else None

    def both(a: str, b: str) -> str:
        if plain:
            return arithmetic.extreme_of_numbers(em, op.name == "max", [a, b], ty, w)
        return arithmetic.compute(em, inst, op, [a, b], [d, d], w)

    while len(texts) > 1:
        made = [both(a, b) for a, b in zip(texts[::2], texts[1::2], strict=False)]
        texts = [*made, *texts[2 * len(made) :]]
    text = texts[0]
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
        text = both(low, high)
    total = em.op(f"extractelement {vector(ty, 1)} {{0}}, i64 0", text)
    if nan is not None:
        total = em.op(f"select i1 {{0}}, {ty} {literal(math.nan, d)}, {ty} {{1}}", nan, total)
    if inst.stmt.atomic:
        at = flat_of(em, inst.stmt.writes[0], inst.run)
        combine(em, op.name, at, locate(em, at), total)
        return
    old, _ = load(em, inst, 0)
    new = arithmetic.compute(em, inst, op, [old, total], [d, d], 0)
    flat = flat_of(em, inst.stmt.writes[0], inst.run)
    store(em, flat, locate(em, flat), (new, False), None)


def _any_nan(em: Emitter, texts: list[str], v: str) -> str:
    """Whether a lane is NaN: found apart, so that the chain of choices need not ask."""
    found: str | None = None
    for k in range(0, len(texts), 2):
        pair = texts[k], texts[min(k + 1, len(texts) - 1)]
        bad = em.op(f"fcmp uno {v} {{0}}, {{1}}", *pair)
        lanes = f"<{em.width} x i1>"
        found = bad if found is None else em.op(f"or {lanes} {{0}}, {{1}}", found, bad)
    assert found is not None
    # not `any_lane`, after which a module with AVX-512 is looked through (codegen.llvm)
    lanes, name = f"<{em.width} x i1>", f"llvm.vector.reduce.or.v{em.width}i1"
    em.module.declare(name, "i1", lanes)
    return em.op(f"call i1 @{name}({lanes} {{0}})", found)


def neutral_of(name: str, d: DType) -> bool | int | float:
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
