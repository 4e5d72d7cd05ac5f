"""Expressions that the expansions of maths functions are made of."""

from __future__ import annotations

from tensorir.ir.dtype import BOOL, FLOAT32, FLOAT64, INT32, INT64, DType
from tensorir.ir.expr import Const, Expr, Op

_MAGIC = {FLOAT32: 12582912.0, FLOAT64: 6755399441055744.0}
"""1.5 times the power of two from which on floats are whole: adding it rounds to an integer, held
in the low bits."""
_MAGIC_BITS = {FLOAT32: 0x4B400000, FLOAT64: 0x4338000000000000}


def c(x: float, d: DType = FLOAT32) -> Const:
    return Const(float(x), d)


def like(x: float, e: Expr) -> Const:
    """A constant of the type of `e`."""
    return Const(float(x), e.dtype)


def i(x: int, d: DType = INT32) -> Const:
    return Const(x, d)


def add(a: Expr, b: Expr) -> Expr:
    return Op("add", (a, b), a.dtype)


def sub(a: Expr, b: Expr) -> Expr:
    return Op("sub", (a, b), a.dtype)


def mul(a: Expr, b: Expr) -> Expr:
    return Op("mul", (a, b), a.dtype)


def div(a: Expr, b: Expr) -> Expr:
    return Op("div", (a, b), a.dtype)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    return Op("fma", (a, b, c), a.dtype)


def size(a: Expr) -> Expr:
    return Op("abs", (a,), a.dtype)


def neg(a: Expr) -> Expr:
    return Op("neg", (a,), a.dtype)


def root(a: Expr) -> Expr:
    return Op("sqrt", (a,), a.dtype)


def least(a: Expr, b: Expr) -> Expr:
    return Op("min", (a, b), a.dtype)


def greatest(a: Expr, b: Expr) -> Expr:
    return Op("max", (a, b), a.dtype)


def test(name: str, a: Expr, b: Expr) -> Expr:
    return Op(name, (a, b), BOOL)


def both(a: Expr, b: Expr) -> Expr:
    return Op("and", (a, b), a.dtype)


def either(a: Expr, b: Expr) -> Expr:
    return Op("or", (a, b), a.dtype)


def select(c: Expr, a: Expr, b: Expr) -> Expr:
    return Op("select", (c, a, b), a.dtype)


def bits(a: Expr) -> Expr:
    return Op("reinterpret", (a,), INT32 if a.dtype == FLOAT32 else INT64)


def real(a: Expr) -> Expr:
    return Op("reinterpret", (a,), FLOAT32 if a.dtype == INT32 else FLOAT64)


def cast(a: Expr, d: DType) -> Expr:
    return Op("cast", (a,), d)


def shift(name: str, a: Expr, by: int) -> Expr:
    return Op(name, (a, i(by, a.dtype)), a.dtype)


def signed(size: Expr, sign: Expr) -> Expr:
    return Op("copysign", (size, sign), size.dtype)


def poly(x: Expr, *coefficients: float) -> Expr:
    """By Horner, the highest power first."""
    p: Expr = like(coefficients[0], x)
    for k in coefficients[1:]:
        p = fma(p, x, like(k, x))
    return p


def nearest(x: Expr, factor: float) -> tuple[Expr, Expr]:
    """The integer nearest to `x * factor`, as a float and as an integer of its size."""
    magic = like(_MAGIC[x.dtype], x)
    t = fma(x, like(factor, x), magic)
    whole = bits(t)
    return sub(t, magic), sub(whole, i(_MAGIC_BITS[x.dtype], whole.dtype))


def scaled(p: Expr, power_: tuple[Expr, Expr], scale: bool) -> Expr:
    """`p * 2**n` rounded once, for p near 1, as a float and as an integer.

    Of float32 n is from -151 to 129, of float64 from -1080 to 1025.
    """
    number, n = power_
    if scale:
        return Op("scalef", (p, number), p.dtype)
    # the first product is exact
    half = shift("shr", n, 1)
    return mul(mul(p, power(half)), power(sub(n, half)))


def power(n: Expr) -> Expr:
    """2**n for n that make normal numbers."""
    bias, place = (127, 23) if n.dtype == INT32 else (1023, 52)
    return real(shift("shl", add(n, i(bias, n.dtype)), place))
