"""Tangent, the inverse and hyperbolic functions, roots and powers, of either precision.

They are made of a few functions of that precision, a `Kit`, and of polynomials fitted to a relative
error below half a unit in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tensorir.codegen.maths_parts import (
    add,
    bits,
    both,
    cast,
    div,
    either,
    fma,
    greatest,
    i,
    least,
    like,
    mul,
    neg,
    poly,
    real,
    root,
    select,
    shift,
    signed,
    size,
    sub,
    test,
)
from tensorir.ir.dtype import FLOAT32, UINTS, DType
from tensorir.ir.expr import Expr, Op

_U64 = UINTS[64]
_LN2 = math.log(2.0)


class Kit(NamedTuple):
    """What the functions of a precision are made of.

    `half_exp` is half of the exponential of an argument of at least 0; `quadrant` takes x apart as
    q * pi/2 + r. The tuples are coefficients in the square of the argument, of
    `(f(x) - x) / x**3`, the highest power first: `tan` up to pi/4, `atan` and `sinh` up to 1,
    `asin` up to 1/2. Pi is `pi` and what that lost.
    """

    half_exp: Callable[[Expr], Expr]
    log1p: Callable[[Expr], Expr]
    quadrant: Callable[[Expr], tuple[Expr, Expr]]
    tan: tuple[float, ...]
    atan: tuple[float, ...]
    asin: tuple[float, ...]
    sinh: tuple[float, ...]
    pi: tuple[float, float]
    large: float  # from here on the logarithms of a number and the next one are the same


def _odd(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """x + x**3 * p(x**2)."""
    z = mul(x, x)
    return fma(mul(x, z), poly(z, *coefficients), x)


def tan(k: Kit, x: Expr) -> Expr:
    r, q = k.quadrant(x)
    z = mul(r, r)
    t = fma(mul(r, z), poly(z, *k.tan), r)
    one = i(1, q.dtype)
    return select(test("ne", both(q, one), i(0, q.dtype)), div(like(-1.0, x), t), t)


def _minus(k: Kit, times: float, a: Expr) -> Expr:
    """`times` pi minus a, for `times` 1 or 1/2."""
    return sub(like(times * k.pi[0], a), sub(a, like(times * k.pi[1], a)))


def atan(k: Kit, x: Expr) -> Expr:
    a = size(x)
    far = test("gt", a, like(1.0, x))
    t = _odd(select(far, div(like(1.0, x), a), a), k.atan)
    return signed(select(far, _minus(k, 0.5, t), t), x)


def atan2(k: Kit, y: Expr, x: Expr) -> Expr:
    ay, ax = size(y), size(x)
    one, zero, infinite = like(1.0, x), like(0.0, x), like(math.inf, x)
    high, low = greatest(ay, ax), least(ay, ax)
    ratio = select(test("eq", high, zero), zero, div(low, high))
    ratio = select(test("eq", low, infinite), one, ratio)
    t = _odd(ratio, k.atan)
    sign = bits(x)
    steep, left = test("gt", ay, ax), test("lt", sign, i(0, sign.dtype))
    high, low = (
        select(steep, like(0.5 * p, x), select(left, like(p, x), zero)) for p in k.pi
    )  # fmt: skip
    t = select(either(both(steep, left), _neither(steep, left)), neg(t), t)
    return signed(sub(high, sub(t, low)), y)


def _neither(a: Expr, b: Expr) -> Expr:
    return Op("not", (either(a, b),), a.dtype)


def _asin(k: Kit, a: Expr) -> tuple[Expr, Expr]:
    """Whether a, of at least 0, exceeds 1/2, and the arc sine of it, or of sqrt((1 - a) / 2)."""
    far = test("gt", a, like(0.5, a))
    z = select(far, mul(like(0.5, a), sub(like(1.0, a), a)), mul(a, a))
    r = select(far, root(z), a)
    return far, fma(mul(r, z), poly(z, *k.asin), r)


def asin(k: Kit, x: Expr) -> Expr:
    far, t = _asin(k, size(x))
    return signed(select(far, _minus(k, 0.5, add(t, t)), t), x)


def acos(k: Kit, x: Expr) -> Expr:
    far, t = _asin(k, size(x))
    twice = add(t, t)
    beyond = select(test("lt", x, like(0.0, x)), _minus(k, 1.0, twice), twice)
    return select(far, beyond, _minus(k, 0.5, signed(t, x)))


def sinh(k: Kit, x: Expr) -> Expr:
    a = size(x)
    h = k.half_exp(a)
    far = sub(h, div(like(0.25, x), h))
    return signed(select(test("lt", a, like(1.0, x)), _odd(a, k.sinh), far), x)


def cosh(k: Kit, x: Expr) -> Expr:
    h = k.half_exp(size(x))
    return add(h, div(like(0.25, x), h))


def asinh(k: Kit, x: Expr) -> Expr:
    a, one = size(x), like(1.0, x)
    big = test("gt", a, like(k.large, x))
    z = mul(a, a)
    near = add(a, div(z, add(one, root(add(z, one)))))
    return signed(_log1p_or_log(k, big, near, a), x)


def acosh(k: Kit, x: Expr) -> Expr:
    one = like(1.0, x)
    t = sub(x, one)
    near = add(t, root(mul(t, add(t, like(2.0, x)))))
    y = _log1p_or_log(k, test("gt", x, like(k.large, x)), near, x)
    return select(test("lt", x, one), like(math.nan, x), y)


def _log1p_or_log(k: Kit, big: Expr, near: Expr, x: Expr) -> Expr:
    """log(1 + near), or where x is big log(2 * x)."""
    y = k.log1p(select(big, x, near))
    return add(y, select(big, like(_LN2, x), like(0.0, x)))


def atanh(k: Kit, x: Expr) -> Expr:
    a = size(x)
    y = k.log1p(div(add(a, a), sub(like(1.0, x), a)))
    return signed(mul(like(0.5, x), y), x)


# -- roots

_THIRD = 0x55555556  # of 2**32
_CBRT = {32: 709958130, 64: 715094163}


def cbrt(k: Kit, x: Expr) -> Expr:
    """A third of the exponent, then steps of Halley and one of Newton."""
    del k
    a = size(x)
    single = x.dtype == FLOAT32
    tiny, high, by = (2.0**-126, 2.0**120, 2.0**24) if single else (2.0**-1022, 2.0**1000, 2.0**54)
    one, up, down = like(1.0, x), like(by, x), like(1.0 / by, x)
    small, big = test("lt", a, like(tiny, x)), test("gt", a, like(high, x))
    y = mul(a, select(small, up, select(big, down, one)))
    t = _third(y, x.dtype)
    for _ in range(1 if single else 2):
        cube = mul(mul(t, t), t)
        t = mul(t, div(add(add(y, y), cube), add(add(cube, cube), y)))
    t = fma(sub(div(y, mul(t, t)), t), like(1.0 / 3.0, x), t)
    third = float(round(by ** (1.0 / 3.0)))
    t = mul(t, select(small, like(1.0 / third, x), select(big, like(third, x), one)))
    plain = both(test("gt", a, like(0.0, x)), test("lt", a, like(math.inf, x)))
    return select(plain, signed(t, x), x)


def _third(y: Expr, d: DType) -> Expr:
    """About the cube root of a positive normal number."""
    pattern = bits(y)
    high = pattern if d == FLOAT32 else shift("shr", pattern, 32)
    wide = shift("shr", mul(cast(high, _U64), i(_THIRD, _U64)), 32)
    near = add(cast(wide, pattern.dtype), i(_CBRT[d.bits], pattern.dtype))
    return real(near if d == FLOAT32 else shift("shl", near, 32))


def hypot(k: Kit, x: Expr, y: Expr) -> Expr:
    del k
    ax, ay = size(x), size(y)
    high, low = greatest(ax, ay), least(ax, ay)
    edge, far = (2.0**60, 2.0**80) if x.dtype == FLOAT32 else (2.0**500, 2.0**600)
    one = like(1.0, x)
    big, tiny = test("gt", high, like(edge, x)), test("lt", high, like(1.0 / edge, x))
    down = select(big, like(1.0 / far, x), select(tiny, like(far, x), one))
    up = select(big, like(far, x), select(tiny, like(1.0 / far, x), one))
    a, b = mul(high, down), mul(low, down)
    h = mul(root(fma(b, b, mul(a, a))), up)
    infinite = like(math.inf, x)
    some = either(test("eq", ax, infinite), test("eq", ay, infinite))
    return select(some, infinite, h)


# -- powers


def with_cases(x: Expr, y: Expr, power: Expr) -> Expr:
    """x to the power y from that of the size of x, which is right but for ones and zero powers."""
    one, zero, infinite = like(1.0, x), like(0.0, x), like(math.inf, x)
    nan = like(math.nan, x)
    half = mul(y, like(0.5, x))
    whole = test("eq", _floor(y), y)
    odd = both(whole, test("ne", _floor(half), half))
    pattern = bits(x)
    negative = test("lt", pattern, i(0, pattern.dtype))
    # of the sizes that the powers of do not change
    unit = both(test("eq", size(x), one), test("eq", y, y))
    power = select(unit, one, power)
    flipped = select(both(negative, odd), neg(power), power)
    inside = both(test("lt", x, zero), test("lt", size(x), infinite))
    none = both(inside, test("ne", _floor(y), y))
    result = select(none, nan, flipped)
    always = either(test("eq", y, zero), test("eq", x, one))
    return select(always, one, result)


def _floor(x: Expr) -> Expr:
    return Op("floor", (x,), x.dtype)


UNARY: dict[str, Callable[[Kit, Expr], Expr]] = {
    "tan": tan, "atan": atan, "asin": asin, "acos": acos, "sinh": sinh, "cosh": cosh,
    "asinh": asinh, "acosh": acosh, "atanh": atanh, "cbrt": cbrt,
}  # fmt: skip
BINARY: dict[str, Callable[[Kit, Expr, Expr], Expr]] = {"atan2": atan2, "hypot": hypot}
