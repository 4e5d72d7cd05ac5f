"""Maths functions of scalar expressions. Integers become floats as in numpy.

In float32, and on a GPU in float64, they are expanded in the library's own code with a stated error
bound; float64 on a processor calls the C library lane by lane (see the numeric contract in the
documentation).
"""

from __future__ import annotations

from typing import Any

from tensorir.ir.build import binary, unary
from tensorir.ir.expr import Expr
from tensorir.support.tracebacks import user_api


@user_api
def exp(x: Any) -> Expr:
    """e to the power `x`."""
    return unary("exp", x)


@user_api
def exp2(x: Any) -> Expr:
    """2 to the power `x`."""
    return unary("exp2", x)


@user_api
def expm1(x: Any) -> Expr:
    """`exp(x) - 1`, accurate near 0."""
    return unary("expm1", x)


@user_api
def log(x: Any) -> Expr:
    """The natural logarithm; NaN below 0."""
    return unary("log", x)


@user_api
def log2(x: Any) -> Expr:
    """The logarithm to base 2."""
    return unary("log2", x)


@user_api
def log10(x: Any) -> Expr:
    """The logarithm to base 10."""
    return unary("log10", x)


@user_api
def log1p(x: Any) -> Expr:
    """`log(1 + x)`, accurate near 0."""
    return unary("log1p", x)


@user_api
def sqrt(x: Any) -> Expr:
    """The square root, correctly rounded; NaN below 0.

    Examples
    --------
    >>> sqrt(4)
    2.0
    """
    return unary("sqrt", x)


@user_api
def rsqrt(x: Any) -> Expr:
    """`1 / sqrt(x)`."""
    return unary("rsqrt", x)


@user_api
def cbrt(x: Any) -> Expr:
    """The cube root."""
    return unary("cbrt", x)


@user_api
def sin(x: Any) -> Expr:
    """The sine of `x` radians."""
    return unary("sin", x)


@user_api
def cos(x: Any) -> Expr:
    """The cosine of `x` radians."""
    return unary("cos", x)


@user_api
def tan(x: Any) -> Expr:
    """The tangent of `x` radians."""
    return unary("tan", x)


@user_api
def asin(x: Any) -> Expr:
    """The arc sine, in radians; NaN outside -1..1."""
    return unary("asin", x)


@user_api
def acos(x: Any) -> Expr:
    """The arc cosine, in radians; NaN outside -1..1."""
    return unary("acos", x)


@user_api
def atan(x: Any) -> Expr:
    """The arc tangent, in radians."""
    return unary("atan", x)


@user_api
def sinh(x: Any) -> Expr:
    """The hyperbolic sine."""
    return unary("sinh", x)


@user_api
def cosh(x: Any) -> Expr:
    """The hyperbolic cosine."""
    return unary("cosh", x)


@user_api
def tanh(x: Any) -> Expr:
    """The hyperbolic tangent."""
    return unary("tanh", x)


@user_api
def asinh(x: Any) -> Expr:
    """The inverse hyperbolic sine."""
    return unary("asinh", x)


@user_api
def acosh(x: Any) -> Expr:
    """The inverse hyperbolic cosine; NaN below 1."""
    return unary("acosh", x)


@user_api
def atanh(x: Any) -> Expr:
    """The inverse hyperbolic tangent; NaN outside -1..1."""
    return unary("atanh", x)


@user_api
def sigmoid(x: Any) -> Expr:
    """`1 / (1 + exp(-x))`."""
    return unary("sigmoid", x)


@user_api
def erf(x: Any) -> Expr:
    """The error function."""
    return unary("erf", x)


@user_api
def floor(x: Any) -> Expr:
    """The greatest whole number not above `x`; integers stay as they are.

    Examples
    --------
    >>> floor(-1.5)
    -2.0
    """
    return unary("floor", x)


@user_api
def ceil(x: Any) -> Expr:
    """The least whole number not below `x`.

    Examples
    --------
    >>> ceil(-1.5)
    -1.0
    """
    return unary("ceil", x)


@user_api
def round(x: Any) -> Expr:
    """The nearest whole number, ties to even.

    Examples
    --------
    >>> round(2.5)
    2.0
    """
    return unary("round", x)


@user_api
def trunc(x: Any) -> Expr:
    """`x` without its fraction.

    Examples
    --------
    >>> trunc(-1.5)
    -1.0
    """
    return unary("trunc", x)


@user_api
def abs(x: Any) -> Expr:
    """The absolute value; that of the least integer is itself.

    Examples
    --------
    >>> abs(-3)
    3
    """
    return unary("abs", x)


@user_api
def sign(x: Any) -> Expr:
    """-1, 0 or 1 in the type of `x`; NaN for NaN.

    Examples
    --------
    >>> sign(-3)
    -1
    """
    return unary("sign", x)


@user_api
def isnan(x: Any) -> Expr:
    """Whether `x` is NaN, a bool.

    Examples
    --------
    >>> isnan(1.0)
    False
    """
    return unary("isnan", x)


@user_api
def isinf(x: Any) -> Expr:
    """Whether `x` is inf or -inf.

    Examples
    --------
    >>> isinf(float("inf"))
    True
    """
    return unary("isinf", x)


@user_api
def isfinite(x: Any) -> Expr:
    """Whether `x` is neither NaN nor infinite.

    Examples
    --------
    >>> isfinite(1.0)
    True
    """
    return unary("isfinite", x)


@user_api
def popcount(x: Any) -> Expr:
    """How many bits of an integer are 1.

    Examples
    --------
    >>> popcount(7)
    3
    """
    return unary("popcount", x)


@user_api
def clz(x: Any) -> Expr:
    """How many bits of an integer are 0 above its highest 1; its width for 0.

    Examples
    --------
    >>> clz(1)
    63
    """
    return unary("clz", x)


@user_api
def pow(x: Any, y: Any) -> Expr:
    """`x` to the power `y`; integers take a constant power of at least 0.

    Examples
    --------
    >>> pow(2, 10)
    1024
    """
    return binary("pow", x, y)


@user_api
def atan2(y: Any, x: Any) -> Expr:
    """The angle of the point (y, x), in radians."""
    return binary("atan2", y, x)


@user_api
def hypot(x: Any, y: Any) -> Expr:
    """`sqrt(x*x + y*y)` without overflow on the way."""
    return binary("hypot", x, y)


@user_api
def copysign(x: Any, y: Any) -> Expr:
    """The size of `x` with the sign of `y`.

    Examples
    --------
    >>> copysign(2.0, -0.0)
    -2.0
    """
    return binary("copysign", x, y)


@user_api
def ldexp(x: Any, n: Any) -> Expr:
    """`x * 2**n`, `n` an integer.

    Examples
    --------
    >>> ldexp(1.5, 3)
    12.0
    """
    return binary("ldexp", x, n)


@user_api
def minimum(a: Any, b: Any) -> Expr:
    """The lesser of two values; NaN if either is NaN.

    Examples
    --------
    >>> minimum(3, 4)
    3
    """
    return binary("min", a, b)


@user_api
def maximum(a: Any, b: Any) -> Expr:
    """The greater of two values; NaN if either is NaN.

    Examples
    --------
    >>> maximum(3, 4)
    4
    """
    return binary("max", a, b)


@user_api
def fmin(a: Any, b: Any) -> Expr:
    """The lesser of two values; a NaN is ignored.

    Examples
    --------
    >>> fmin(float("nan"), 4.0)
    4.0
    """
    return binary("fmin", a, b)


@user_api
def fmax(a: Any, b: Any) -> Expr:
    """The greater of two values; a NaN is ignored.

    Examples
    --------
    >>> fmax(float("nan"), 4.0)
    4.0
    """
    return binary("fmax", a, b)


@user_api
def truncdiv(a: Any, b: Any) -> Expr:
    """The quotient of integers, rounded toward 0 as in C.

    Examples
    --------
    >>> truncdiv(-7, 2)
    -3
    """
    return binary("truncdiv", a, b)


@user_api
def truncmod(a: Any, b: Any) -> Expr:
    """The remainder of integers with the sign of the dividend, as in C.

    Examples
    --------
    >>> truncmod(-7, 2)
    -1
    """
    return binary("truncmod", a, b)


@user_api
def floordiv(a: Any, b: Any) -> Expr:
    """The quotient of integers, rounded down: `a // b`.

    Examples
    --------
    >>> floordiv(-7, 2)
    -4
    """
    return binary("floordiv", a, b)


@user_api
def floormod(a: Any, b: Any) -> Expr:
    """The remainder of integers with the sign of the divisor: `a % b`.

    Examples
    --------
    >>> floormod(-7, 2)
    1
    """
    return binary("floormod", a, b)


__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "clz",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floordiv",
    "floormod",
    "fmax",
    "fmin",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "log",
    "log1p",
    "log2",
    "log10",
    "maximum",
    "minimum",
    "popcount",
    "pow",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
]
