"""Numpy references of activations, normalisations, attention, quantisation and stencils."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorir.ops import activation, normalisation, quantized, stencil, transformer
from tensorir.ops.reference.elementwise import one
from tensorir.ops.reference.windows import convolve
from tensorir.ops.registry import FLOATS, NUMBERS, Input, register


def _wide(fn: Any) -> Any:
    """`fn` in float64, its result in the type of the first array."""

    def run(x: Any, *rest: Any, **options: Any) -> Any:
        more = [r.astype(np.float64) if r is not None else None for r in rest]
        return fn(x.astype(np.float64), *more, **options).astype(x.dtype)

    return run


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x / 2 * (1 + _erf(x / np.sqrt(2)))


def _softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=axis, keepdims=True)


def _log_softmax(x: Any, axis: int = -1) -> Any:
    d = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return d - np.log(np.exp(d).sum(axis=axis, keepdims=True))


def _normal(x: Any, axes: Any, eps: float) -> Any:
    mean = x.mean(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=axes, keepdims=True) + eps)


def _layer_norm(
    x: Any, weight: Any = None, bias: Any = None, axis: int = -1, eps: float = 1e-5
) -> Any:
    out = _normal(x, tuple(range(axis % x.ndim, x.ndim)), eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _rms_norm(x: Any, weight: Any = None, axis: int = -1, eps: float = 1e-5) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    out = x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + eps)
    return out if weight is None else out * weight


def _channels(p: Any, x: Any, axis: int = 1) -> Any:
    return p.reshape(*(-1 if d == axis % x.ndim else 1 for d in range(x.ndim)))


def _batch_norm(
    x: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, axis: int = 1,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    out = (x - _channels(mean, x, axis)) / np.sqrt(_channels(variance, x, axis) + eps)
    out = out if weight is None else out * _channels(weight, x, axis)
    return out if bias is None else out + _channels(bias, x, axis)


def _group_norm(
    x: Any, weight: Any = None, bias: Any = None, groups: int = 1, eps: float = 1e-5
) -> Any:
    parted = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    out = _normal(parted, tuple(range(2, parted.ndim)), eps).reshape(x.shape)
    out = out if weight is None else out * _channels(weight, x)
    return out if bias is None else out + _channels(bias, x)


def _declared_group_norm(x: Any, w: Any = None, b: Any = None, *, groups: int, **more: Any) -> Any:
    return normalisation.group_norm(x, groups, w, b, **more)


def _instance_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    out = _normal(x, tuple(range(2, x.ndim)), eps)
    out = out if weight is None else out * _channels(weight, x)
    return out if bias is None else out + _channels(bias, x)


def _l2_normalize(x: Any, axis: Any = -1, eps: float = 1e-12) -> Any:
    return x / np.maximum(np.sqrt((x * x).sum(axis=axis, keepdims=True)), eps)


def _attention(
    query: Any, key: Any, value: Any, mask: Any = None, causal: bool = False, offset: int = 0,
    scale: float | None = None,
) -> Any:  # fmt: skip
    q, k, v = (a.astype(np.float64) for a in (query, key, value))
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        share = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, share, axis=-3), np.repeat(v, share, axis=-3)
    scores = (
        q @ k.swapaxes(-1, -2) * (1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale)
    )
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        rows, columns = scores.shape[-2:]
        seen = np.arange(columns) <= np.arange(rows)[:, None] + offset
        scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return ((e @ v) / np.where(total == 0, 1, total)).astype(query.dtype)


def _rotary(x: Any, cosines: Any, sines: Any, style: str = "halves") -> Any:
    half = x.shape[-1] // 2
    low, high = (slice(0, half), slice(half, None)) if style == "halves" else (
        slice(0, None, 2), slice(1, None, 2)
    )  # fmt: skip
    out = np.empty_like(x)
    out[..., low] = x[..., low] * cosines - x[..., high] * sines
    out[..., high] = x[..., high] * cosines + x[..., low] * sines
    return out


def _along(p: Any, x: Any, axis: int | None) -> Any:
    return p if axis is None or np.ndim(p) == 0 else _channels(np.asarray(p), x, axis)


def _quantize(
    x: Any, scale: Any, zero_point: Any = 0, dtype: Any = "int8", axis: int | None = None
) -> Any:
    info = np.iinfo(dtype)
    # the quotient is rounded to float32 first, as everywhere in the field
    inner = np.float64 if x.dtype == np.float64 else np.float32
    ratio = x.astype(inner) / np.asarray(_along(scale, x, axis), inner)
    q = np.rint(ratio) + np.asarray(_along(zero_point, x, axis), np.float64)
    return np.clip(np.nan_to_num(q), info.min, info.max).astype(dtype)


def _dequantize(
    x: Any, scale: Any, zero_point: Any = 0, dtype: Any = "float32", axis: int | None = None
) -> Any:
    zero = np.asarray(_along(zero_point, x, axis), np.float64)
    return ((x.astype(np.float64) - zero) * _along(scale, x, axis)).astype(dtype)


def _quantized_matmul(
    a: Any, b: Any, zero_a: int = 0, zero_b: int = 0, transpose_b: bool = False
) -> Any:
    y = b.T if transpose_b else b
    return (a.astype(np.int32) - zero_a) @ (y.astype(np.int32) - zero_b)


def _quantized_conv2d(
    x: Any, weight: Any, bias: Any = None, zero_x: int = 0, zero_weight: int = 0, **options: Any
) -> Any:
    return convolve(
        x.astype(np.int32) - zero_x, weight.astype(np.int32) - zero_weight, bias, **options
    )


def _blur(x: Any) -> Any:
    along = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3
    return (along[:-2] + along[1:-1] + along[2:]) / 3


def _around(u: Any) -> Any:
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]


def _jacobi(x: Any, steps: int = 1) -> Any:
    for _ in range(steps):
        x = x.copy()
        x[1:-1, 1:-1] = _around(x) / 4
    return x


def _heat(x: Any, alpha: float = 0.1, steps: int = 1) -> Any:
    for _ in range(steps):
        x = x.copy()
        x[1:-1, 1:-1] += alpha * (_around(x) - 4 * x[1:-1, 1:-1])
    return x


def _sobel(x: Any) -> Any:
    def across(u: Any) -> Any:
        return (u[:-2] + 2 * u[1:-1] + u[2:])[:, 2:] - (u[:-2] + 2 * u[1:-1] + u[2:])[:, :-2]

    return np.hypot(across(x), across(x.T).T)


def register_all() -> None:
    """Add them to the registry."""
    shape = ("*shape",)
    register("relu", activation.relu, lambda x: np.maximum(x, x.dtype.type(0)), shape, one(-3, 3),
             NUMBERS)  # fmt: skip
    functions: dict[str, Any] = {
        "leaky_relu": lambda x, slope=0.01: np.where(x > 0, x, slope * x),
        "elu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
        "sigmoid": _sigmoid,
        "silu": lambda x: x * _sigmoid(x),
        "gelu": _gelu,
        "softplus": lambda x: np.logaddexp(0, x),
        "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
        "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    }
    for n, fn in functions.items():
        register(n, vars(activation)[n], _wide(fn), shape, one(-4, 4))
    register(
        "prelu", activation.prelu, _wide(lambda x, slope: np.where(x > 0, x, slope * x)),
        ("n", "c"), lambda n, c: (Input((n, c)), Input((c,))),
    )  # fmt: skip
    rows, matrix = ("rows", "columns"), one(-3, 3)
    register("softmax", normalisation.softmax, _wide(_softmax), rows, matrix)
    register("log_softmax", normalisation.log_softmax, _wide(_log_softmax), rows, matrix)
    register("l2_normalize", normalisation.l2_normalize, _wide(_l2_normalize), rows, matrix)
    register(
        "layer_norm", normalisation.layer_norm, _wide(_layer_norm), rows,
        lambda m, n: (Input((m, n)), Input((n,)), Input((n,))),
    )  # fmt: skip
    register(
        "rms_norm", normalisation.rms_norm, _wide(_rms_norm), rows,
        lambda m, n: (Input((m, n)), Input((n,))),
    )  # fmt: skip
    images = ("n", "c", "h", "w")
    register(
        "batch_norm", normalisation.batch_norm, _wide(_batch_norm), images,
        lambda n, c, h, w: (
            Input((n, c, h, w)), Input((c,)), Input((c,), None, 0.5, 1.5), Input((c,)), Input((c,)),
        ),
    )  # fmt: skip
    register(
        "group_norm", _declared_group_norm, _wide(_group_norm), images,
        lambda n, c, h, w: (Input((n, c, h, w)), Input((c,)), Input((c,))), groups=1,
    )  # fmt: skip
    register(
        "instance_norm", normalisation.instance_norm, _wide(_instance_norm), images,
        lambda n, c, h, w: (Input((n, c, h, w)), Input((c,)), Input((c,))),
    )  # fmt: skip
    register(
        "attention", transformer.attention, _attention, ("b", "h", "s", "d"),
        lambda b, h, s, d: (Input((b, h, s, d)),) * 3,
    )  # fmt: skip
    register(
        "causal_attention", transformer.attention, _attention, ("b", "h", "s", "d"),
        lambda b, h, s, d: (Input((b, h, s, d)),) * 3, causal=True,
    )  # fmt: skip
    register(
        "rotary", transformer.rotary, _wide(_rotary), ("h", "s", "pairs"),
        lambda h, s, p: (Input((h, s, 2 * p)), Input((s, p)), Input((s, p))),
    )  # fmt: skip
    register(
        "quantize", quantized.quantize, _quantize, shape, one(-3, 3), FLOATS,
        scale=0.03125, zero_point=5,
    )  # fmt: skip
    register(
        "dequantize", quantized.dequantize, _dequantize, shape, one(-9, 9), ("int8", "uint8"),
        scale=0.03125, zero_point=5,
    )  # fmt: skip
    register(
        "quantized_matmul", quantized.quantized_matmul, _quantized_matmul, ("m", "n", "k"),
        lambda m, n, k: (
            Input((m, k), None, 0, 128), Input((k, n), "int8", -128, 128)
        ), ("uint8", "int8"), zero_a=7,
    )  # fmt: skip
    register(
        "quantized_conv2d", quantized.quantized_conv2d, _quantized_conv2d,
        ("n", "c", "h", "w", "f", "k"),
        lambda n, c, h, w, f, k: (
            Input((n, c, h, w), None, 0, 128), Input((f, c, k, k), "int8", -128, 128)
        ), ("uint8", "int8"), zero_x=7, padding="same",
    )  # fmt: skip
    for n, fn in (("blur", _blur), ("jacobi", _jacobi), ("heat", _heat), ("sobel", _sobel)):
        register(n, vars(stencil)[n], _wide(fn), ("h", "w"), matrix)
