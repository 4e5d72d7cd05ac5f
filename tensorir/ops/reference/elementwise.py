"""Numpy references of the elementwise operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorir.ops import elementwise
from tensorir.ops.registry import FLOATS, INTEGERS, NUMBERS, Input, Rule, register


def _erf(x: Any) -> Any:
    out = np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64))
    return out.astype(x.dtype) if x.dtype.kind == "f" else out


def _rsqrt(x: Any) -> Any:
    return (1 / np.sqrt(x)).astype(x.dtype)


def _clip(x: Any, low: Any, high: Any) -> Any:
    return np.clip(x, low, high)


_OF_FLOATS = ("floor", "ceil", "round", "trunc", "signbit", "isnan", "isinf", "isfinite")


def one(low: float, high: float) -> Rule:
    """The rule of an operator of one tensor of any shape, with values in that range."""
    return lambda *s: (Input(s, None, low, high),)


def two(low: float = -1.0, high: float = 1.0) -> Rule:
    """The rule of an operator of two tensors of one shape."""
    return lambda *s: (Input(s, None, low, high),) * 2


def _chosen(*s: int) -> tuple[Input, ...]:
    return Input(s, "bool"), Input(s), Input(s)


def _divided(*s: int) -> tuple[Input, ...]:
    return Input(s, None, -9, 10), Input(s, None, 1, 10)


def register_all() -> None:
    """Add them to the registry."""
    f: Any = np
    shape = ("*shape",)
    here = vars(elementwise)
    for n, reference in (("abs", f.abs), ("negative", f.negative), ("positive", f.positive),
                         ("sign", f.sign), ("square", f.square), ("floor", f.floor),
                         ("ceil", f.ceil), ("round", f.rint), ("trunc", f.trunc),
                         ("isnan", f.isnan), ("isinf", f.isinf), ("isfinite", f.isfinite),
                         ("signbit", f.signbit), ("logical_not", f.logical_not)):  # fmt: skip
        types = FLOATS if n in _OF_FLOATS else NUMBERS
        register(n, here[n], reference, shape, one(-5, 5), types)
    register("reciprocal", elementwise.reciprocal, f.reciprocal, shape, one(1, 4), NUMBERS)
    for n, reference in (("exp", f.exp), ("exp2", f.exp2), ("expm1", f.expm1), ("sin", f.sin),
                         ("cos", f.cos), ("tan", f.tan), ("sinh", f.sinh), ("cosh", f.cosh),
                         ("tanh", f.tanh), ("asinh", f.arcsinh), ("atan", f.arctan),
                         ("cbrt", f.cbrt), ("deg2rad", f.deg2rad),
                         ("rad2deg", f.rad2deg)):  # fmt: skip
        register(n, here[n], reference, shape, one(-2, 2))
    register("erf", elementwise.erf, _erf, shape, one(-2, 2))
    for n, reference, low, high in (("log", f.log, 0.1, 5), ("log2", f.log2, 0.1, 5),
                                    ("log10", f.log10, 0.1, 5), ("log1p", f.log1p, -0.5, 5),
                                    ("sqrt", f.sqrt, 0, 5), ("acosh", f.arccosh, 1.1, 5),
                                    ("asin", f.arcsin, -0.9, 0.9), ("acos", f.arccos, -0.9, 0.9),
                                    ("atanh", f.arctanh, -0.9, 0.9)):  # fmt: skip
        register(n, here[n], reference, shape, one(low, high))
    register(
        "rsqrt", elementwise.rsqrt, lambda x: (1 / f.sqrt(x)).astype(x.dtype), shape, one(0.5, 5)
    )
    register("bitwise_not", elementwise.bitwise_not, f.bitwise_not, shape, one(-9, 9), INTEGERS)
    register(
        "bitwise_count", elementwise.bitwise_count, f.bitwise_count, shape, one(-9, 9), INTEGERS
    )
    for n in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin",
              "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
              "logical_and", "logical_or", "logical_xor"):  # fmt: skip
        register(n, here[n], getattr(f, n), shape, two(), NUMBERS)
    for n in ("hypot", "copysign", "logaddexp", "logaddexp2", "heaviside"):
        register(n, here[n], getattr(f, n), shape, two())
    register("atan2", elementwise.atan2, f.arctan2, shape, two())
    register("power", elementwise.power, f.power, shape, two(0.5, 3))
    register("float_power", elementwise.float_power, f.float_power, shape, two(0.5, 3), NUMBERS)
    register("ldexp", elementwise.ldexp, f.ldexp, shape,
             lambda *s: (Input(s), Input(s, "int32", -5, 5)))  # fmt: skip
    for n in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        register(n, here[n], getattr(f, n), shape, two(), INTEGERS)
    for n in ("floor_divide", "remainder", "fmod"):
        register(n, here[n], getattr(f, n), shape, _divided, INTEGERS)
    for n in ("left_shift", "right_shift"):
        register(n, here[n], getattr(f, n), shape, two(0, 7), INTEGERS)
    register("where", elementwise.where, f.where, shape, _chosen, NUMBERS)
    register("clip", elementwise.clip, _clip, shape, one(-5, 5), NUMBERS, low=0, high=3)
    register("cast", elementwise.cast, lambda x, dtype: x.astype(dtype), shape, one(-5, 5), NUMBERS,
             dtype="int16")  # fmt: skip
    register("modf", elementwise.modf, f.modf, shape, one(-5, 5))
    register("divmod", elementwise.divmod, f.divmod, shape, _divided, INTEGERS)
