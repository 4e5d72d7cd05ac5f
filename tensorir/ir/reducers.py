"""The standard reducers and their algebra, and what init and update of a reduction compute."""

from __future__ import annotations

import math

from tensorir.ir import numerics
from tensorir.ir.build import binary, cast, compare, const, if_then_else, make, select, unary
from tensorir.ir.dtype import FLOAT32, INT64, UINTS, DType
from tensorir.ir.expr import FALSE, TRUE, Const, Expr, Op, Reduce
from tensorir.ir.reducer import Reducer
from tensorir.support.errors import ArgumentError

State = tuple[Expr, ...]
# What an empty argmax or argmin holds as its index: later than every element.
NO_INDEX = (1 << 63) - 1


def least(d: DType) -> Const:
    """What `max` starts from: -inf, the least integer, or False."""
    if d.kind == "bool":
        return FALSE
    return Const(-math.inf, d) if d.is_float else Const(numerics.limits(d)[0], d)


def greatest(d: DType) -> Const:
    """What `min` starts from: inf, the greatest integer, or True."""
    if d.kind == "bool":
        return TRUE
    return Const(math.inf, d) if d.is_float else Const(numerics.limits(d)[1], d)


def _better(op: str, a: State, b: State) -> Expr:
    """Whether the (value, index) `b` replaces `a`: NaN first, then the value, then the index."""
    (va, ia), (vb, ib) = a, b
    first = compare("lt", ib, ia)
    wins = compare(op, vb, va) | (compare("eq", vb, va) & first)
    if not va.dtype.is_float:
        return wins
    na, nb = unary("isnan", va), unary("isnan", vb)
    # comparisons with NaN are false, so `wins` is false where either is NaN
    return wins | (nb & (~na | first))


def _extreme(op: str, a: State, b: State) -> State:
    take = _better(op, a, b)
    return select(take, b[0], a[0]), select(take, b[1], a[1])


SUM = Reducer(
    "sum", 1, lambda a, b: (binary("add", a[0], b[0]),), lambda d: (const(0, d[0]),),
    associative=True, commutative=True, exact=True,
)  # fmt: skip
FLOAT_SUM = Reducer("sum", 1, SUM.combine, SUM.identity, True, True, exact=False)
PROD = Reducer(
    "prod", 1, lambda a, b: (binary("mul", a[0], b[0]),), lambda d: (const(1, d[0]),),
    associative=True, commutative=True, exact=True,
)  # fmt: skip
FLOAT_PROD = Reducer("prod", 1, PROD.combine, PROD.identity, True, True, exact=False)
MAX = Reducer(
    "max", 1, lambda a, b: (binary("max", a[0], b[0]),), lambda d: (least(d[0]),),
    associative=True, commutative=True, exact=True, empty="error",
)  # fmt: skip
MIN = Reducer(
    "min", 1, lambda a, b: (binary("min", a[0], b[0]),), lambda d: (greatest(d[0]),),
    associative=True, commutative=True, exact=True, empty="error",
)  # fmt: skip
ANY = Reducer(
    "any", 1, lambda a, b: (binary("or", a[0], b[0]),), lambda d: (FALSE,),
    associative=True, commutative=True, exact=True,
)  # fmt: skip
ALL = Reducer(
    "all", 1, lambda a, b: (binary("and", a[0], b[0]),), lambda d: (TRUE,),
    associative=True, commutative=True, exact=True,
)  # fmt: skip
ARGMAX = Reducer(
    "argmax", 2, lambda a, b: _extreme("gt", a, b), lambda d: (least(d[0]), const(NO_INDEX, d[1])),
    associative=True, commutative=True, exact=True, empty="error",
)  # fmt: skip
ARGMIN = Reducer(
    "argmin", 2, lambda a, b: _extreme("lt", a, b),
    lambda d: (greatest(d[0]), const(NO_INDEX, d[1])),
    associative=True, commutative=True, exact=True, empty="error",
)  # fmt: skip


def standard(name: str, state: DType) -> Reducer:
    """The reducer `sum`, `prod`, `max`, `min`, `any`, `all`, `argmax` or `argmin` for a state type.

    Sums and products are exact only where they do not round.

    Examples
    --------
    >>> from tensorir.ir.dtype import FLOAT32
    >>> standard("sum", INT64).exact, standard("sum", FLOAT32).exact, standard("max", FLOAT32).exact
    (True, False, True)
    """
    if state.is_float and name in ("sum", "prod"):
        return FLOAT_SUM if name == "sum" else FLOAT_PROD
    table = {r.name: r for r in (SUM, PROD, MAX, MIN, ANY, ALL, ARGMAX, ARGMIN)}
    return table[name]


def accumulator(name: str, source: DType) -> tuple[DType, DType]:
    """(type of the accumulator, type of the result) of a sum or product, as numpy widens them.

    Halves accumulate in float32 and come back as they were.

    Examples
    --------
    >>> from tensorir.ir.dtype import dtype
    >>> accumulator("sum", dtype("uint8")), accumulator("sum", dtype("float16"))
    ((uint64, uint64), (float32, float16))
    """
    if source.is_float:
        return (FLOAT32 if source.bits == 16 else source), source
    wide = UINTS[64] if source.kind == "uint" else INT64
    return wide, wide


def init_values(reduce: Reduce) -> State:
    """What the accumulator starts from: `init`, or the identity.

    Raises
    ------
    ArgumentError
        Where there is neither.
    """
    if reduce.init is not None:
        return reduce.init
    if reduce.reducer.identity is None:
        raise ArgumentError(
            f"reducer {reduce.reducer.name} has no identity: give it one, or give the reduction "
            "init="
        )
    return tuple(
        cast(v, d) for v, d in zip(reduce.reducer.identity(reduce.state), reduce.state, strict=True)
    )


def update_bodies(reduce: Reduce, accumulators: State, *, masked: bool = True) -> State:
    """The state after one more element, given the state so far.

    A floating sum of products is one fma. With `masked` the reduction's condition guards the
    update (and its loads); without, the caller has made the condition part of the domain.
    """
    new = _combined(reduce, accumulators)
    if not masked or reduce.where is None:
        return new
    return tuple(
        if_then_else(reduce.where, n, old) for n, old in zip(new, accumulators, strict=True)
    )


def _combined(reduce: Reduce, accumulators: State) -> State:
    if reduce.reducer is FLOAT_SUM:
        (source,), (acc,) = reduce.sources, accumulators
        if isinstance(source, Op) and source.name == "mul" and source.dtype == acc.dtype:
            return (make("fma", (*source.args, acc), acc.dtype),)
    return reduce.reducer.combine(accumulators, reduce.sources)


__all__ = [
    "ALL", "ANY", "ARGMAX", "ARGMIN", "FLOAT_PROD", "FLOAT_SUM", "MAX", "MIN", "NO_INDEX",
    "PROD", "SUM", "accumulator", "init_values", "standard", "update_bodies",
]  # fmt: skip
