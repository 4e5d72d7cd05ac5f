"""From an expression of a statement to the instructions that compute it.

Each node is computed once for an instance. `if_then_else` guards its loads: without lanes by a
branch, with lanes by masks.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorir.codegen import arithmetic, maths
from tensorir.codegen.address import flat_of
from tensorir.codegen.convert import constant, convert, reinterpret
from tensorir.codegen.loads import Instance, load
from tensorir.codegen.stores import flush
from tensorir.codegen.types import VALUE, literal, vector
from tensorir.codegen.values import Emitter, Val
from tensorir.ir.affine import Lin
from tensorir.ir.build import to_lin
from tensorir.ir.dtype import BOOL, INT64, DType
from tensorir.ir.expr import Axis, Const, Expr, Op, Ref, Var

# above this, an affine form might not mean what wrapping arithmetic means
_LARGE = 1 << 31
# what `checked` looks at the operands of
_FAILING = ("floordiv", "floormod", "truncdiv", "truncmod", "shl", "shr")


def value(em: Emitter, inst: Instance, e: Expr) -> Val:
    """The value of `e` in this instance, and whether it differs from lane to lane."""
    found = inst.values.get(id(e))
    if found is not None:
        return found
    if isinstance(e, Op):
        found = _SPECIAL.get(e.name, _plain)(em, inst, e)
    elif isinstance(e, Ref):
        found = load(em, inst, e.slot)
    elif isinstance(e, Const):
        found = literal(e.value, e.dtype), False
    elif isinstance(e, Axis | Var):
        found = _affine(em, inst, Lin({e: 1}))
    else:
        raise em.impossible(f"a {type(e).__name__} in the body of {inst.stmt.name}")
    inst.values[id(e)] = found
    return found


def _affine(em: Emitter, inst: Instance, e: Lin) -> Val:
    """An affine expression of iterators and sizes, as an i64."""
    here = e.subst(inst.env())
    if em.along_lanes(here) == 0:
        return str(em.lin(here)), False
    return em.lanes_of(here), True


def operands(em: Emitter, vals: list[Val], types: list[DType]) -> tuple[list[str], int]:
    """Values side by side, scalars in every lane where one differs by lane; and the lanes."""
    if not any(v for _, v in vals):
        return [t for t, _ in vals], 0
    out = [t if v else em.spread(t, VALUE[d.name]) for (t, v), d in zip(vals, types, strict=True)]
    return out, em.width


def _plain(em: Emitter, inst: Instance, e: Op) -> Val:
    if e.dtype == INT64 and e.name in ("add", "sub", "mul", "floordiv", "floormod"):
        affine = _small(to_lin(e))
        if affine is not None and affine.terms:
            return _affine(em, inst, affine)
    # arguments first: then an expansion adds no depth to what it is applied to
    vals: list[Val] = []
    for a in e.args:
        vals.append(value(em, inst, a))
    known = em.module.expansions.get(id(e))
    if known is None:
        known = em.module.expansions[id(e)] = e, maths.expand(e, em.target)
    if known[1] is not None:
        return value(em, inst, known[1])
    types = [a.dtype for a in e.args]
    texts, w = operands(em, vals, types)
    return arithmetic.compute(em, inst, e, texts, types, w), bool(w)


def _small(e: Lin | None) -> Lin | None:
    if e is None or abs(e.const) > _LARGE or any(abs(v) > _LARGE for v in e.terms.values()):
        return None
    return e


# -- conditions


_FACTS: dict[str, tuple[int, int]] = {
    # a <op> b as sign * (a - b) + constant >= 0
    "ge": (1, 0),
    "gt": (1, -1),
    "le": (-1, 0),
    "lt": (-1, -1),
}


def _compare(em: Emitter, inst: Instance, e: Op) -> Val:
    """Affine conditions become a count of lanes; others compare values."""
    if e.args[0].dtype == INT64:
        # the same for all unrolled copies
        key = (id(e), id(inst.run.args))
        known = em.module.facts.get(key)
        if known is None:
            known = em.module.facts[key] = (e, inst.run.args), _fact(inst, e)
        if known[1] is not None:
            shared, mask = em.conditions((known[1],))
            return (mask, True) if mask is not None else (shared or "true", False)
    return _plain(em, inst, e)


def _fact(inst: Instance, e: Op) -> Lin | None:
    """What is at least 0 where an affine comparison holds."""
    a, b = _small(to_lin(e.args[0])), _small(to_lin(e.args[1]))
    if a is None or b is None:
        return None
    sign, shift = _FACTS[e.name]
    return ((a - b) * sign + shift).subst(inst.env())


def _logical(em: Emitter, inst: Instance, e: Op) -> Val:
    """Conditions that are decided already leave no trace."""
    if e.dtype != BOOL:
        return _plain(em, inst, e)
    vals = [value(em, inst, a) for a in e.args]
    decides = "false" if e.name == "and" else "true"
    if any(text == decides for text, _ in vals):
        return decides, False
    left = [v for v in vals if v[0] not in ("true", "false")]
    return _plain(em, inst, e) if len(left) == len(vals) else (left or vals)[0]


def _select(em: Emitter, inst: Instance, e: Op) -> Val:
    return _choose(em, e, [value(em, inst, a) for a in e.args])


def _choose(em: Emitter, e: Op, vals: list[Val]) -> Val:
    if vals[0][0] in ("true", "false"):
        return vals[1 if vals[0][0] == "true" else 2]
    texts, w = operands(em, vals, [a.dtype for a in e.args[:3]])
    ty = vector(VALUE[e.dtype.name], w)
    form = f"select {vector('i1', w)} {{0}}, {ty} {{1}}, {ty} {{2}}"
    return em.op(form, *texts), bool(w)


def _if_then_else(em: Emitter, inst: Instance, e: Op) -> Val:
    cond = value(em, inst, e.args[0])
    if cond[0] in ("true", "false"):
        return value(em, inst, e.args[1 if cond[0] == "true" else 2])
    if not (_guarded(em, e.args[1]) or _guarded(em, e.args[2])):
        return _choose(em, e, [cond, value(em, inst, e.args[1]), value(em, inst, e.args[2])])
    if em.lane is None:
        return _branch(em, inst, e, cond[0])
    yes = _arm(em, inst, e.args[1], cond[0], cond[1])
    if _zero_elsewhere(em, inst, e, yes):
        return yes
    no = _arm(em, inst, e.args[2], em.invert(cond[0], em.width if cond[1] else 0), cond[1])
    return _choose(em, e, [cond, yes, no])


def _zero_elsewhere(em: Emitter, inst: Instance, e: Op, yes: Val) -> bool:
    """Whether the other arm is 0, as a masked load is in the lanes that it leaves out."""
    load_, other = e.args[1], e.args[2]
    if not (yes[1] and isinstance(load_, Ref) and isinstance(other, Const)):
        return False
    flat = flat_of(em, inst.stmt.reads[load_.slot], inst.run)
    zero = literal(0, other.dtype)
    return flat.home.register is None and literal(other.value, other.dtype) == zero


def _rarely(em: Emitter, inst: Instance, e: Op) -> Val:
    """`rarely(cond, rare, common, ...)`: the rare value where `cond` holds, computed only if it
    does in some lane. Further arguments are other rare values to compute in the same block."""
    key = -id(e.args[1])
    cond, common = value(em, inst, e.args[0]), value(em, inst, e.args[2])
    if key not in inst.values:
        _rare_block(em, inst, cond, (e.args[1], *e.args[3:]))
    return _choose(em, e, [cond, inst.values[key], common])


def _rare_block(em: Emitter, inst: Instance, cond: Val, wanted: tuple[Expr, ...]) -> None:
    """Compute `wanted` in a block of its own, skipped where no lane needs it."""
    flush(em)
    em.serial += 1
    k, before = em.serial, em.label
    values, block, known = inst.values, dict(em.block), {a: dict(v) for a, v in em.known.items()}
    some = em.any_lane(cond[0]) if cond[1] else cond[0]
    em.emit(f"br i1 {some}, label %rare{k}, label %after{k}, !prof !92")
    em.start(f"rare{k}")
    inst.values = dict(values)
    results = [value(em, inst, e) for e in wanted]
    inside = em.label
    em.emit(f"br label %after{k}")
    inst.values = values
    em.start(f"after{k}")
    em.block.update(block)
    em.known.update(known)
    for e, (text, by_lane) in zip(wanted, results, strict=True):
        ty = vector(VALUE[e.dtype.name], em.width if by_lane else 0)
        joined = em.now(f"phi {ty} [ {text}, %{inside} ], [ poison, %{before} ]")
        values[-id(e)] = joined, by_lane


def _arm(em: Emitter, inst: Instance, e: Expr, cond: str, by_lane: bool) -> Val:
    """An arm in lanes: its loads happen where `cond` holds."""
    guard, mask, values = inst.guard, inst.mask, inst.values
    inst.values = dict(values)
    if by_lane:
        inst.mask = em.both(mask, cond, em.width)
    else:
        inst.guard = em.both(guard, cond)
    result = value(em, inst, e)
    inst.guard, inst.mask, inst.values = guard, mask, values
    return result


def _branch(em: Emitter, inst: Instance, e: Op, cond: str) -> Val:
    """Without lanes: only the arm that is taken runs."""
    flush(em)
    em.serial += 1
    k = em.serial
    values = inst.values
    em.emit(f"br i1 {cond}, label %yes{k}, label %no{k}")
    results: list[tuple[str, str]] = []
    for label, arm in (("yes", e.args[1]), ("no", e.args[2])):
        em.start(f"{label}{k}")
        inst.values = dict(values)
        text, _ = value(em, inst, arm)
        results.append((text, em.label))
        em.emit(f"br label %both{k}")
    inst.values = values
    em.start(f"both{k}")
    ways = ", ".join(f"[ {text}, %{label} ]" for text, label in results)
    return em.now(f"phi {VALUE[e.dtype.name]} {ways}"), False


def _guarded(em: Emitter, e: Expr) -> bool:
    """Whether `e` loads, calls or may fail a check, so that it must not be computed where it is
    not chosen."""
    if not isinstance(e, Op):
        return isinstance(e, Ref)
    found = em.module.guarded.get(id(e))
    if found is None:
        alone = e.name in maths.COSTLY or (em.module.checked and e.name in _FAILING)
        result = alone or any(_guarded(em, a) for a in e.args)
        found = em.module.guarded[id(e)] = e, result
    return found[1]


# -- conversions


def _cast(em: Emitter, inst: Instance, e: Op) -> Val:
    return _one(em, inst, e, convert)


def _reinterpret(em: Emitter, inst: Instance, e: Op) -> Val:
    return _one(em, inst, e, reinterpret)


def _one(
    em: Emitter, inst: Instance, e: Op, how: Callable[[Emitter, str, DType, DType, int], str]
) -> Val:
    text, by_lane = value(em, inst, e.args[0])
    return how(em, text, e.args[0].dtype, e.dtype, em.width if by_lane else 0), by_lane


_SPECIAL: dict[str, Callable[[Emitter, Instance, Op], Val]] = {
    "select": _select,
    "rarely": _rarely,
    "if_then_else": _if_then_else,
    "cast": _cast,
    "reinterpret": _reinterpret,
    **dict.fromkeys(("and", "or"), _logical),
    **dict.fromkeys(_FACTS, _compare),
}

__all__ = ["constant", "operands", "value"]
