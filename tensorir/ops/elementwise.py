"""Elementwise operators: numpy's ufuncs by one table, casts, where and clip.

Operands broadcast as numpy's do. Python's scalars are weakly typed. Types follow numpy, with one
exception: arithmetic on bools is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tensorir.ir import build, maths
from tensorir.ir.dtype import DType
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import Expr
from tensorir.ir.language import compute
from tensorir.ir.tensor import Tensor
from tensorir.ops.shapes import Number, at, broadcast, dims, names, tensor
from tensorir.support.errors import ArgumentTypeError
from tensorir.support.tracebacks import user_api

Operand = Tensor | Number


class Unary(Protocol):
    """An operator of one tensor."""

    def __call__(self, x: Tensor, *, name: str = ...) -> Tensor:
        """Apply it to each element."""


class Binary(Protocol):
    """An operator of two tensors, or of a tensor and a number, that broadcast."""

    def __call__(self, x: Operand, y: Operand, *, name: str = ...) -> Tensor:
        """Apply it to each pair of elements."""


def operand(x: object, what: str) -> Operand:
    """`x`, if it is a tensor or a number."""
    if isinstance(x, Tensor) or build.is_scalar(x):
        return x  # type: ignore[return-value]
    raise ArgumentTypeError(
        f"{what} must be a tensor or a number, not {type(x).__name__} {x!r:.60}"
    )


def elementwise(name: str, fn: Callable[..., Any], *operands: Operand, what: str) -> Any:
    """A tensor of `fn` of the elements of broadcast operands; a tuple where `fn` gives one."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors:
        raise ArgumentTypeError(f"{what} needs a tensor among its operands; all are numbers")
    extents = broadcast([t.extents for t in tensors], what)

    def element(*index: Any) -> Any:
        return fn(*(at(x, index) if isinstance(x, Tensor) else x for x in operands))

    return compute(dims(extents), element, name=name, axes=names(len(extents)))


_EXAMPLE = """{text}

    Parameters
    ----------
    {parameters}
    name
        What the result is called.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        For shapes that do not broadcast, or a type that it does not take.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> a = placeholder((4, 3), "{dtype}", name="a")
    >>> {call}
    {name}: {result}[4, 3]
    """


def _document(fn: Any, name: str, text: str, dtype: str, result: str, two: bool) -> None:
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = _EXAMPLE.format(
        text=text,
        parameters="x, y\n        Tensors that broadcast, or one of them a number." if two
        else "x\n        A tensor.",
        name=name, dtype=dtype, result=result, call=f"{name}(a, a)" if two else f"{name}(a)",
    )  # fmt: skip


def _unary(
    name: str, fn: Callable[[Expr], Expr], text: str, dtype: str = "float32", result: str = ""
) -> Unary:
    def apply(x: Tensor, *, name: str = name) -> Tensor:
        made: Tensor = elementwise(name, fn, tensor(x, f"x of {title}"), what=title)
        return made

    title = name
    _document(apply, name, text, dtype, result or dtype, False)
    return user_api(apply)


def _binary(
    name: str, fn: Callable[[Any, Any], Any], text: str, dtype: str = "float32", result: str = ""
) -> Binary:
    def apply(x: Operand, y: Operand, *, name: str = name) -> Tensor:
        a, b = operand(x, f"x of {title}"), operand(y, f"y of {title}")
        made: Tensor = elementwise(name, fn, a, b, what=title)
        return made

    title = name
    _document(apply, name, text, dtype, result or dtype, True)
    return user_api(apply)


# -- what the table is made of


def _scaled(by: float) -> Callable[[Expr], Expr]:
    return lambda x: build.binary("mul", x, by) if x.dtype.is_float else _as_float(x) * by


def _as_float(x: Expr) -> Expr:
    return build.cast(x, build.float_for(x.dtype))


def _reciprocal(x: Expr) -> Expr:
    if x.dtype.is_float:
        return 1.0 / x
    return build.binary("truncdiv", build.const(1, x.dtype), x)


def _signbit(x: Expr) -> Expr:
    if not x.dtype.is_float:
        return x < 0
    return build.reinterpret(x, f"int{x.dtype.bits}") < 0


def _truth(x: Any) -> Expr:
    e = build.as_expr(x)
    return e if e.dtype.kind == "bool" else build.compare("ne", e, build.const(0, e.dtype))


def _logaddexp(x: Any, y: Any) -> Expr:
    high, low = maths.maximum(x, y), maths.minimum(x, y)
    wide = _as_float(high)
    return build.select(build.compare("eq", high, low), wide + float(np.log(2)),
                        wide + maths.log1p(maths.exp(_as_float(low) - wide)))  # fmt: skip


def _logaddexp2(x: Any, y: Any) -> Expr:
    high, low = maths.maximum(x, y), maths.minimum(x, y)
    wide = _as_float(high)
    more = maths.log1p(maths.exp2(_as_float(low) - wide)) * float(1 / np.log(2))
    return build.select(build.compare("eq", high, low), wide + 1.0, wide + more)


def _heaviside(x: Any, y: Any) -> Expr:
    return build.select(maths.isnan(x), x, build.select(build.compare("lt", x, 0), 0.0,
                        build.select(build.compare("eq", x, 0), y, 1.0)))  # fmt: skip


def _op(name: str) -> Callable[[Any, Any], Expr]:
    return lambda x, y: build.binary(name, x, y)


def _comparison(name: str) -> Callable[[Any, Any], Expr]:
    return lambda x, y: build.compare(name, x, y)


def _logical(name: str) -> Callable[[Any, Any], Expr]:
    return lambda x, y: build.binary(name, _truth(x), _truth(y))


abs = _unary("abs", maths.abs, "The absolute value; that of the least integer is itself.")
negative = _unary("negative", lambda x: build.unary("neg", x), "The value with its sign turned.")
positive = _unary("positive", lambda x: x, "A copy.")
sign = _unary("sign", maths.sign, "-1, 0 or 1; NaN for NaN.")
square = _unary("square", lambda x: x * x, "The square.")
reciprocal = _unary("reciprocal", _reciprocal, "1 over the value; in integers rounded toward 0.")
exp = _unary("exp", maths.exp, "e to the power of the value.")
exp2 = _unary("exp2", maths.exp2, "2 to the power of the value.")
expm1 = _unary("expm1", maths.expm1, "`exp(x) - 1`, accurate near 0.")
log = _unary("log", maths.log, "The natural logarithm; NaN below 0.")
log2 = _unary("log2", maths.log2, "The logarithm to base 2.")
log10 = _unary("log10", maths.log10, "The logarithm to base 10.")
log1p = _unary("log1p", maths.log1p, "`log(1 + x)`, accurate near 0.")
sqrt = _unary("sqrt", maths.sqrt, "The square root; NaN below 0.")
rsqrt = _unary("rsqrt", maths.rsqrt, "`1 / sqrt(x)`.")
cbrt = _unary("cbrt", maths.cbrt, "The cube root.")
sin = _unary("sin", maths.sin, "The sine of radians.")
cos = _unary("cos", maths.cos, "The cosine of radians.")
tan = _unary("tan", maths.tan, "The tangent of radians.")
asin = _unary("asin", maths.asin, "The arc sine, in radians.")
acos = _unary("acos", maths.acos, "The arc cosine, in radians.")
atan = _unary("atan", maths.atan, "The arc tangent, in radians.")
sinh = _unary("sinh", maths.sinh, "The hyperbolic sine.")
cosh = _unary("cosh", maths.cosh, "The hyperbolic cosine.")
tanh = _unary("tanh", maths.tanh, "The hyperbolic tangent.")
asinh = _unary("asinh", maths.asinh, "The inverse hyperbolic sine.")
acosh = _unary("acosh", maths.acosh, "The inverse hyperbolic cosine; NaN below 1.")
atanh = _unary("atanh", maths.atanh, "The inverse hyperbolic tangent.")
deg2rad = _unary("deg2rad", _scaled(np.pi / 180), "Degrees to radians.")
rad2deg = _unary("rad2deg", _scaled(180 / np.pi), "Radians to degrees.")
erf = _unary("erf", maths.erf, "The error function.")
floor = _unary("floor", maths.floor, "The greatest whole number not above the value.")
ceil = _unary("ceil", maths.ceil, "The least whole number not below the value.")
round = _unary("round", maths.round, "The nearest whole number, ties to even.")
trunc = _unary("trunc", maths.trunc, "The value without its fraction.")
isnan = _unary("isnan", maths.isnan, "Whether it is NaN.", result="bool")
isinf = _unary("isinf", maths.isinf, "Whether it is infinite.", result="bool")
isfinite = _unary("isfinite", maths.isfinite, "Whether it is a finite number.", result="bool")
signbit = _unary("signbit", _signbit, "Whether its sign is negative, -0.0 too.", result="bool")
logical_not = _unary("logical_not", lambda x: ~_truth(x), "Whether it is 0.", result="bool")
bitwise_not = _unary("bitwise_not", lambda x: ~x, "Each bit turned.", "int32")
bitwise_count = _unary(
    "bitwise_count", lambda x: build.cast(maths.popcount(maths.abs(x)), "uint8"),
    "How many bits of the absolute value are 1.", "int32", "uint8",
)  # fmt: skip

add = _binary("add", _op("add"), "The sum.")
subtract = _binary("subtract", _op("sub"), "The difference.")
multiply = _binary("multiply", _op("mul"), "The product.")
divide = _binary("divide", _op("div"), "The quotient; of integers in float64.")
floor_divide = _binary("floor_divide", _op("floordiv"), "The quotient of integers, rounded down.",
                       "int32")  # fmt: skip
remainder = _binary(
    "remainder", _op("floormod"), "The remainder of integers, with the sign of the divisor.",
    "int32",
)  # fmt: skip
fmod = _binary("fmod", maths.truncmod,
               "The remainder of integers, with the sign of the dividend.", "int32")  # fmt: skip
power = _binary(
    "power", maths.pow, "x to the power y; integers take a constant power of at least 0."
)
float_power = _binary(
    "float_power", lambda x, y: maths.pow(build.cast(x, "float64"), build.cast(y, "float64")),
    "x to the power y, in float64.", result="float64",
)  # fmt: skip
ldexp = _binary("ldexp", maths.ldexp, "`x * 2**y`, y integers; of integers as numpy's floats.",
                "int8", "float16")  # fmt: skip
maximum = _binary("maximum", maths.maximum, "The greater value; NaN if either is NaN.")
minimum = _binary("minimum", maths.minimum, "The lesser value; NaN if either is NaN.")
fmax = _binary("fmax", maths.fmax, "The greater value; a NaN is ignored.")
fmin = _binary("fmin", maths.fmin, "The lesser value; a NaN is ignored.")
atan2 = _binary("atan2", maths.atan2, "The angle of the point (x, y), in radians: arctan of x / y.")
hypot = _binary("hypot", maths.hypot, "`sqrt(x*x + y*y)` without overflow on the way.")
copysign = _binary("copysign", maths.copysign, "The size of x with the sign of y.")
logaddexp = _binary("logaddexp", _logaddexp, "`log(exp(x) + exp(y))` without overflow.")
logaddexp2 = _binary("logaddexp2", _logaddexp2, "`log2(2**x + 2**y)` without overflow.")
heaviside = _binary("heaviside", _heaviside, "0 below 0, y at 0, 1 above.")
bitwise_and = _binary("bitwise_and", _op("and"), "The bits that both have.", "int32")
bitwise_or = _binary("bitwise_or", _op("or"), "The bits that either has.", "int32")
bitwise_xor = _binary("bitwise_xor", _op("xor"), "The bits that one of both has.", "int32")
left_shift = _binary("left_shift", _op("shl"), "x shifted left by y bits.", "int32")
right_shift = _binary("right_shift", _op("shr"), "x shifted right by y bits.", "int32")
equal = _binary("equal", _comparison("eq"), "Whether x is y.", result="bool")
not_equal = _binary("not_equal", _comparison("ne"), "Whether x is not y.", result="bool")
less = _binary("less", _comparison("lt"), "Whether x is below y.", result="bool")
less_equal = _binary("less_equal", _comparison("le"), "Whether x is at most y.", result="bool")
greater = _binary("greater", _comparison("gt"), "Whether x is above y.", result="bool")
greater_equal = _binary("greater_equal", _comparison("ge"), "Whether x is at least y.",
                        result="bool")  # fmt: skip
logical_and = _binary("logical_and", _logical("and"), "Whether neither is 0.", result="bool")
logical_or = _binary("logical_or", _logical("or"), "Whether one is not 0.", result="bool")
logical_xor = _binary("logical_xor", _logical("xor"), "Whether just one is not 0.", result="bool")


@user_api
def cast(x: Tensor, dtype: object, *, name: str = "cast") -> Tensor:
    """Each element in another type: to nearest even; float to integer saturates, NaN gives 0.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> cast(placeholder((4,), name="a"), "int8")
    cast: int8[4]
    """
    to: DType = as_dtype(dtype)
    made: Tensor = elementwise(
        name, lambda e: build.cast(e, to), tensor(x, "x of cast"), what="cast"
    )
    return made


@user_api
def where(condition: Tensor, x: Operand, y: Operand, *, name: str = "where") -> Tensor:
    """x where the condition holds (or is not 0), else y; all broadcast.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> a = placeholder((4, 3), name="a"); b = placeholder((3,), "bool", name="b")
    >>> where(b, a, 0.0)
    where: float32[4, 3]
    """
    c = tensor(condition, "condition of where")
    a, b = operand(x, "x of where"), operand(y, "y of where")
    made: Tensor = elementwise(
        name, lambda p, q, r: build.select(_truth(p), q, r), c, a, b, what="where"
    )
    return made


@user_api
def clip(
    x: Tensor, low: Operand | None = None, high: Operand | None = None, *, name: str = "clip"
) -> Tensor:
    """Each element, but no less than `low` and no more than `high`; NaN stays NaN.

    Raises
    ------
    ArgumentTypeError
        If neither bound is given.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> clip(placeholder((4,), name="a"), 0.0, 6.0)
    clip: float32[4]
    """
    if low is None and high is None:
        raise ArgumentTypeError("clip needs low=, high= or both")
    bounds = [operand(b, "bound of clip") for b in (low, high) if b is not None]

    def limit(e: Expr, *given: Any) -> Expr:
        left = list(given)
        if low is not None:
            e = maths.maximum(e, left.pop(0))
        return maths.minimum(e, left.pop(0)) if high is not None else e

    made: Tensor = elementwise(name, limit, tensor(x, "x of clip"), *bounds, what="clip")
    return made


@user_api
def modf(x: Tensor, *, name: str = "modf") -> tuple[Tensor, Tensor]:
    """The fraction and the whole part of each element, both with its sign.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> modf(placeholder((4,), name="a"))
    (modf_0: float32[4], modf_1: float32[4])
    """

    def parts(e: Expr) -> tuple[Expr, Expr]:
        whole = maths.trunc(_as_float(e))
        rest = build.select(maths.isinf(whole), 0.0, _as_float(e) - whole)
        return maths.copysign(rest, _as_float(e)), whole

    made: tuple[Tensor, Tensor] = elementwise(name, parts, tensor(x, "x of modf"), what="modf")
    return made


@user_api
def divmod(x: Operand, y: Operand, *, name: str = "divmod") -> tuple[Tensor, Tensor]:
    """The floor quotient and the remainder of integers.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> divmod(placeholder((4,), "int32", name="a"), 3)
    (divmod_0: int32[4], divmod_1: int32[4])
    """
    made: tuple[Tensor, Tensor] = elementwise(
        name, lambda a, b: (build.binary("floordiv", a, b), build.binary("floormod", a, b)),
        operand(x, "x of divmod"), operand(y, "y of divmod"), what="divmod",
    )  # fmt: skip
    return made
