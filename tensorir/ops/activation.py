"""Activation functions. Halves are computed in float32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tensorir.ir import maths
from tensorir.ir.build import binary, cast, const, is_scalar, select
from tensorir.ir.expr import Expr
from tensorir.ir.tensor import Tensor
from tensorir.ops.elementwise import elementwise
from tensorir.ops.shapes import floating, one_of, tensor, wide
from tensorir.support.errors import ArgumentTypeError
from tensorir.support.tracebacks import user_api


def _apply(x: object, fn: Callable[[Expr], Expr], name: str, what: str) -> Tensor:
    t = floating(x, f"x of {what}")
    inner = wide(t.dtype)
    made: Tensor = elementwise(name, lambda e: cast(fn(cast(e, inner)), t.dtype), t, what=what)
    return made


def _number(x: object, what: str) -> float:
    if not is_scalar(x) or isinstance(x, bool):
        raise ArgumentTypeError(f"{what} must be a number, not {type(x).__name__} {x!r:.60}")
    return float(x)  # type: ignore[arg-type]


@user_api
def relu(x: Tensor, *, name: str = "relu") -> Tensor:
    """`max(x, 0)`, of any numbers; NaN stays NaN.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> relu(placeholder((4,), name="x"))
    relu: float32[4]
    """
    t = tensor(x, "x of relu")
    made: Tensor = elementwise(name, lambda e: maths.maximum(e, const(0, t.dtype)), t, what="relu")
    return made


@user_api
def leaky_relu(x: Tensor, slope: float = 0.01, *, name: str = "leaky_relu") -> Tensor:
    """x where it is above 0, else `slope * x`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> leaky_relu(placeholder((4,), name="x"), 0.1)
    leaky_relu: float32[4]
    """
    by = _number(slope, "slope of leaky_relu")
    return _apply(x, lambda e: select(e > 0, e, e * by), name, "leaky_relu")


@user_api
def prelu(x: Tensor, slope: Tensor, *, name: str = "prelu") -> Tensor:
    """x where it is above 0, else `slope * x`, with a slope that broadcasts: `(c, 1, 1)` in NCHW.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> prelu(placeholder((2, 3, 4, 4), name="x"), placeholder((3, 1, 1), name="a"))
    prelu: float32[2, 3, 4, 4]
    """
    t, a = floating(x, "x of prelu"), floating(slope, "slope of prelu")
    made: Tensor = elementwise(
        name, lambda e, s: select(e > 0, e, cast(binary("mul", s, e), t.dtype)), t, a, what="prelu"
    )
    return made


@user_api
def elu(x: Tensor, alpha: float = 1.0, *, name: str = "elu") -> Tensor:
    """x where it is above 0, else `alpha * (exp(x) - 1)`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> elu(placeholder((4,), name="x"))
    elu: float32[4]
    """
    by = _number(alpha, "alpha of elu")
    return _apply(
        x, lambda e: select(e > 0, e, maths.expm1(maths.minimum(e, 0.0)) * by), name, "elu"
    )


@user_api
def sigmoid(x: Tensor, *, name: str = "sigmoid") -> Tensor:
    """`1 / (1 + exp(-x))`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> sigmoid(placeholder((4,), name="x"))
    sigmoid: float32[4]
    """
    return _apply(x, maths.sigmoid, name, "sigmoid")


@user_api
def silu(x: Tensor, *, name: str = "silu") -> Tensor:
    """`x * sigmoid(x)`, also called swish.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> silu(placeholder((4,), name="x"))
    silu: float32[4]
    """
    return _apply(x, lambda e: e * maths.sigmoid(e), name, "silu")


@user_api
def gelu(x: Tensor, *, approximate: str = "none", name: str = "gelu") -> Tensor:
    """x times the normal distribution's share below x (Hendrycks and Gimpel, 2016).

    Parameters
    ----------
    x
        A tensor of floats.
    approximate
        `none`: by the error function; `tanh`: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))`.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> gelu(placeholder((4,), name="x"), approximate="tanh")
    gelu: float32[4]
    """
    one_of(approximate, ("none", "tanh"), "approximate of gelu")

    def exact(e: Expr) -> Expr:
        return e * 0.5 * (maths.erf(e * math.sqrt(0.5)) + 1.0)

    def rough(e: Expr) -> Expr:
        inside = (e + e * e * e * 0.044715) * math.sqrt(2 / math.pi)
        return e * 0.5 * (maths.tanh(inside) + 1.0)

    return _apply(x, exact if approximate == "none" else rough, name, "gelu")


@user_api
def softplus(x: Tensor, *, name: str = "softplus") -> Tensor:
    """`log(1 + exp(x))` without overflow.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> softplus(placeholder((4,), name="x"))
    softplus: float32[4]
    """

    def fn(e: Expr) -> Expr:
        return maths.maximum(e, 0.0) + maths.log1p(maths.exp(-maths.abs(e)))

    return _apply(x, fn, name, "softplus")


def _hard(e: Any) -> Expr:
    return maths.minimum(maths.maximum(e + 3.0, 0.0), 6.0) / 6.0


@user_api
def hardsigmoid(x: Tensor, *, name: str = "hardsigmoid") -> Tensor:
    """`clip(x + 3, 0, 6) / 6`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> hardsigmoid(placeholder((4,), name="x"))
    hardsigmoid: float32[4]
    """
    return _apply(x, _hard, name, "hardsigmoid")


@user_api
def hardswish(x: Tensor, *, name: str = "hardswish") -> Tensor:
    """`x * clip(x + 3, 0, 6) / 6`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> hardswish(placeholder((4,), name="x"))
    hardswish: float32[4]
    """
    return _apply(x, lambda e: e * _hard(e), name, "hardswish")
