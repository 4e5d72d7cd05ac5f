"""Values that show what was computed from what: integers exactly, everything else as a hash.

Two programs that give the same hash have made the same operations on the same inputs in the same
order. `regroup=True` computes sums and products of floats in a field instead, where their order
does not matter. None is memory that nobody wrote; it spreads through every operation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from zlib import crc32

from tensorir.ir.dtype import DType
from tensorir.ir.expr import Axis, Const, Expr, Op, Ref, Var

Value = int | None
Env = Mapping[Axis | Var, int]
Evaluator = Callable[[Env, Sequence[Value]], Value]

PRIME = (1 << 61) - 1
_INFINITE = 1 << 62


def mix(*parts: int) -> int:
    """A number below 2**61 that depends on all of `parts` and their order."""
    h = 0x9E3779B97F4A7C15
    for p in parts:
        h = (h ^ (p & 0xFFFFFFFFFFFFFFFF)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        h ^= h >> 29
    return h % PRIME


def fit(x: int, d: DType) -> int:
    """`x` as a value of a type: integers wrap, a bool is 0 or 1, a float is any number."""
    if d.kind == "bool":
        return x & 1
    if d.is_float:
        return x
    x &= (1 << d.bits) - 1
    return x - (1 << d.bits) if d.kind == "int" and x >> (d.bits - 1) else x


def start(e: Const) -> int:
    """The value of a constant."""
    if not isinstance(e.value, float):
        return int(e.value)
    if e.value == e.value and abs(e.value) == float("inf"):
        return _INFINITE if e.value > 0 else -_INFINITE
    if e.value == int(e.value) if e.value == e.value else False:
        return int(e.value)
    return mix(struct.unpack("q", struct.pack("d", e.value))[0])


def evaluator(e: Expr, *, regroup: bool) -> Evaluator:
    """A function of (iterators and sizes, values read) that gives the value of `e`."""
    if isinstance(e, Ref):
        slot = e.slot
        return lambda env, refs: refs[slot]
    if isinstance(e, Const):
        constant = start(e)
        return lambda env, refs: constant
    if isinstance(e, (Axis, Var)):
        atom = e
        return lambda env, refs: env[atom]
    assert isinstance(e, Op), e
    parts = [evaluator(a, regroup=regroup) for a in e.args]
    if e.name in ("select", "if_then_else"):
        cond, yes, no = parts

        def choose(env: Env, refs: Sequence[Value]) -> Value:
            c = cond(env, refs)
            return None if c is None else (yes if c else no)(env, refs)

        return choose
    act: Callable[[list[int]], int]
    power = _power(e) if regroup else None
    if power is not None:
        base, difference, times = power
        parts = [evaluator(a, regroup=True) for a in difference.args]
        act = partial(_raised, base, times)
    else:
        act = _operation(e, regroup=regroup)

    def apply(env: Env, refs: Sequence[Value]) -> Value:
        xs = []
        for p in parts:
            x = p(env, refs)
            if x is None:
                return None
            xs.append(x)
        return act(xs)

    return apply


def _power(e: Op) -> tuple[int, Op, int] | None:
    """`exp((a - b) * c)` as a base, `a - b` and c: a power of a difference divides, as it should.

    So that a sum of powers may be made with another b, and multiplied by a power of the change.
    """
    if e.name not in _BASES:
        return None
    inner, times = e.args[0], 1
    if isinstance(inner, Op) and inner.name == "mul":
        first, second = inner.args
        if isinstance(second, Const):
            inner, times = first, start(second)
    if not (isinstance(inner, Op) and inner.name == "sub"):
        return None
    return _BASES[e.name], inner, times


_BASES = {"exp": 3, "exp2": 5}


def _raised(base: int, times: int, x: list[int]) -> int:
    if x[0] == -_INFINITE or x[1] == _INFINITE:
        return 0
    return pow(base, (x[0] - x[1]) * times % (PRIME - 1), PRIME)


def regroupable(e: Expr, state: int) -> bool:
    """Whether the value does not depend on grouping where `regroup` holds, by its operations.

    `state` is how many of the first reads are the accumulator; only what they go through counts.
    """
    return not _uses(e, state) or (
        not isinstance(e, Op)
        or (e.name in _GROUPING and all(regroupable(a, state) for a in e.args))
    )


_GROUPING = (
    "add", "sub", "mul", "fma", "neg", "min", "max", "and", "or", "xor", "not", "select",
    "if_then_else", "cast", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite",
)  # fmt: skip


def _uses(e: Expr, state: int) -> bool:
    if isinstance(e, Ref):
        return e.slot < state
    return isinstance(e, Op) and any(_uses(a, state) for a in e.args)


def _operation(e: Op, *, regroup: bool) -> Callable[[list[int]], int]:
    of = e.args[0].dtype
    d = e.dtype
    if e.name in _TESTS and len(e.args) == 2:
        test = _TESTS[e.name]
        return lambda x: int(test(x[0], x[1]))
    if e.name in ("isnan", "isinf"):
        return lambda x: 0
    if e.name == "isfinite":
        return lambda x: 1
    if e.name in ("min", "max", "fmin", "fmax"):
        pick = min if e.name.endswith("min") else max
        return lambda x: pick(x)
    if e.name == "cast" and (not of.is_float or d.is_float):
        return lambda x: fit(x[0], d)
    exact = _EXACT.get(e.name)
    if exact is not None and not d.is_float:
        return lambda x: fit(exact(x, d), d)
    if exact is not None and regroup and e.name in ("add", "sub", "mul", "fma", "neg"):
        return lambda x: exact(x, d) % PRIME
    salt = crc32(f"{e.name} {of.name} {d.name}".encode())
    return lambda x: fit(mix(salt, *x), d)


_TESTS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _shift(x: list[int], d: DType, left: bool) -> int:
    if not 0 <= x[1] < d.bits:
        return -1 if not left and x[0] < 0 else 0
    return x[0] << x[1] if left else x[0] >> x[1]


def _truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_EXACT: dict[str, Callable[[list[int], DType], int]] = {
    "add": lambda x, d: x[0] + x[1],
    "sub": lambda x, d: x[0] - x[1],
    "mul": lambda x, d: x[0] * x[1],
    "fma": lambda x, d: x[0] * x[1] + x[2],
    "neg": lambda x, d: -x[0],
    "abs": lambda x, d: abs(x[0]),
    "sign": lambda x, d: (x[0] > 0) - (x[0] < 0),
    "floordiv": lambda x, d: x[0] // x[1] if x[1] else 0,
    "floormod": lambda x, d: x[0] % x[1] if x[1] else 0,
    "truncdiv": lambda x, d: _truncated(x[0], x[1]),
    "truncmod": lambda x, d: x[0] - x[1] * _truncated(x[0], x[1]) if x[1] else 0,
    "shl": lambda x, d: _shift(x, d, True),
    "shr": lambda x, d: _shift(x, d, False),
    "and": lambda x, d: x[0] & x[1],
    "or": lambda x, d: x[0] | x[1],
    "xor": lambda x, d: x[0] ^ x[1],
    "not": lambda x, d: 1 - x[0] if d.kind == "bool" else ~x[0],
    "floor": lambda x, d: x[0],
    "ceil": lambda x, d: x[0],
    "round": lambda x, d: x[0],
    "trunc": lambda x, d: x[0],
}
