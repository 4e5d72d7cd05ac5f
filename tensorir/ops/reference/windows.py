"""Numpy references of convolutions, pooling and resizing, by their definitions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import Any

import numpy as np

from tensorir.ops import conv, pool, resize, transposed
from tensorir.ops.reference.linalg import typed
from tensorir.ops.registry import FLOATS, NUMBERS, Input, register


def _each(value: Any, rank: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * rank


def _pads(padding: Any, extents: Any, kernel: Any, stride: Any, dilation: Any) -> Any:
    if not isinstance(padding, str):
        return [_each(p, 2) for p in _each(padding, len(extents))]
    pads = []
    for e, k, s, d in zip(extents, kernel, stride, dilation, strict=True):
        total = max((ceil(e / s) - 1) * s + (k - 1) * d + 1 - e, 0) if padding != "valid" else 0
        pair = (total // 2, total - total // 2)
        pads.append(pair if padding == "same" else pair[::-1])
    return pads


def convolve(
    x: Any, weight: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, layout: str = "NCHW", dtype: Any = None,
) -> Any:  # fmt: skip
    """The convolution of any rank, tap by tap."""
    rank = x.ndim - 2
    if layout.endswith("C"):
        first = convolve(
            np.moveaxis(x, -1, 1), np.moveaxis(weight, (-1, -2), (0, 1)), bias, stride=stride,
            padding=padding, dilation=dilation, groups=groups, dtype=dtype,
        )  # fmt: skip
        return np.moveaxis(first, 1, -1)
    (a, w), to = typed(dtype, x, weight)
    kernel = w.shape[2:]
    steps, gaps = _each(stride, rank), _each(dilation, rank)
    pads = _pads(padding, x.shape[2:], kernel, steps, gaps)
    a = np.pad(a, [(0, 0), (0, 0), *pads])
    outputs = [
        (e - (k - 1) * d - 1) // s + 1
        for e, k, s, d in zip(a.shape[2:], kernel, steps, gaps, strict=True)
    ]
    own = w.shape[1]
    each = w.shape[0] // groups
    out = np.zeros((x.shape[0], w.shape[0], *outputs), a.dtype)
    for tap in product(*map(range, kernel)):
        cut = tuple(
            slice(t * d, t * d + (n - 1) * s + 1 if n else 0, s)
            for t, d, s, n in zip(tap, gaps, steps, outputs, strict=True)
        )
        for g in range(groups):
            part = a[(slice(None), slice(g * own, (g + 1) * own), *cut)]
            f = slice(g * each, (g + 1) * each)
            out[:, f] += np.einsum("nc...,fc->nf...", part, w[(f, slice(None), *tap)])
    if bias is not None:
        out = out + bias.reshape(-1, *(1,) * rank)
    return out.astype(to)


def convolve_transposed(
    x: Any, weight: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, dilation: Any = 1, groups: int = 1, layout: str = "NCHW",
    dtype: Any = None,
) -> Any:  # fmt: skip
    """The transpose of a convolution: each input adds its multiple of the kernel."""
    rank = x.ndim - 2
    if layout.endswith("C"):
        first = convolve_transposed(
            np.moveaxis(x, -1, 1), np.moveaxis(weight, (-1, -2), (0, 1)), bias, stride=stride,
            padding=padding, output_padding=output_padding, dilation=dilation, groups=groups,
            dtype=dtype,
        )  # fmt: skip
        return np.moveaxis(first, 1, -1)
    (a, w), to = typed(dtype, x, weight)
    kernel = w.shape[2:]
    steps, gaps, more = _each(stride, rank), _each(dilation, rank), _each(output_padding, rank)
    pads = [_each(p, 2) for p in _each(padding, rank)]
    full = [
        (e - 1) * s + (k - 1) * d + 1 + m if e else 0
        for e, k, s, d, m in zip(a.shape[2:], kernel, steps, gaps, more, strict=True)
    ]
    each, own = w.shape[1], a.shape[1] // groups
    out = np.zeros((x.shape[0], each * groups, *full), a.dtype)
    for tap in product(*map(range, kernel)):
        cut = tuple(
            slice(t * d, t * d + (e - 1) * s + 1, s)
            for t, d, s, e in zip(tap, gaps, steps, a.shape[2:], strict=True)
        )
        for g in range(groups):
            c = slice(g * own, (g + 1) * own)
            out[(slice(None), slice(g * each, (g + 1) * each), *cut)] += np.einsum(
                "nc...,cf->nf...", a[:, c], w[(c, slice(None), *tap)]
            )
    crop = tuple(slice(low, n - high) for (low, high), n in zip(pads, full, strict=True))
    out = out[(slice(None), slice(None), *crop)]
    if bias is not None:
        out = out + bias.reshape(-1, *(1,) * rank)
    return out.astype(to)


def _pool(
    x: Any, kernel: Any, *, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, layout: str | None = None, count: str = "max",
) -> Any:  # fmt: skip
    """`count`: max, or what divides a sum: all, or inside."""
    rank = x.ndim - 2
    if layout is not None and layout.endswith("C"):
        first = _pool(
            np.moveaxis(x, -1, 1), kernel, stride=stride, padding=padding, dilation=dilation,
            ceil_mode=ceil_mode, count=count,
        )  # fmt: skip
        return np.moveaxis(first, 1, -1)
    sizes, gaps = _each(kernel, rank), _each(dilation, rank)
    steps = _each(kernel if stride is None else stride, rank)
    pads = _pads(padding, x.shape[2:], sizes, steps, gaps)
    outputs = []
    for e, k, s, d, (low, high) in zip(x.shape[2:], sizes, steps, gaps, pads, strict=True):
        span = Fraction(e + low + high - (k - 1) * d - 1, s)
        n = (ceil(span) if ceil_mode else floor(span)) + 1
        outputs.append(n - 1 if ceil_mode and (n - 1) * s >= e + low else n)
    out = np.zeros((*x.shape[:2], *outputs), x.dtype)
    for at in product(*map(range, outputs)):
        places: list[Any] = []
        counted = 1
        for i, e, k, s, d, (low, high) in zip(
            at, x.shape[2:], sizes, steps, gaps, pads, strict=True
        ):
            here = [i * s - low + r * d for r in range(k)]
            places.append([p for p in here if 0 <= p < e])
            counted *= sum(p < e + high for p in here) if count == "all" else len(places[-1])
        window = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *places)]
        cell: Any = (..., *at)
        axes = tuple(range(2, x.ndim))
        if count == "max":
            out[cell] = window.max(axis=axes)
        else:
            out[cell] = window.astype(np.float64).sum(axis=axes) / counted
    return out


def _avg_pool(x: Any, kernel: Any, count_padding: bool = True, **options: Any) -> Any:
    return _pool(x, kernel, count="all" if count_padding else "inside", **options)


def _adaptive(kind: str) -> Any:
    def run(x: Any, outputs: Any = 1, layout: str | None = None) -> Any:
        if layout is not None and layout.endswith("C"):
            return np.moveaxis(run(np.moveaxis(x, -1, 1), outputs), 1, -1)
        sizes = _each(outputs, x.ndim - 2)
        out = np.zeros((*x.shape[:2], *sizes), x.dtype)
        for at in product(*map(range, sizes)):
            cut = tuple(
                slice(floor(Fraction(i * e, n)), ceil(Fraction((i + 1) * e, n)))
                for i, e, n in zip(at, x.shape[2:], sizes, strict=True)
            )
            window = x[(slice(None), slice(None), *cut)].astype(np.float64)
            axes = tuple(range(2, x.ndim))
            cell: Any = (..., *at)
            out[cell] = getattr(window, kind)(axis=axes)
        return out

    return run


def _coordinate(i: int, n: int, o: int, coordinates: str) -> Fraction:
    if coordinates == "half_pixel":
        return (i + Fraction(1, 2)) * n / o - Fraction(1, 2)
    if coordinates == "align_corners":
        return Fraction(i * (n - 1), o - 1) if o > 1 else Fraction(0)
    return Fraction(i * n, o)


def _nearest(
    x: Any, size: Any, coordinates: str = "half_pixel", rounding: str = "round_prefer_floor",
    layout: str | None = None,
) -> Any:  # fmt: skip
    half = Fraction(1, 2)
    rounded = {
        "floor": floor, "ceil": ceil, "round_prefer_floor": lambda v: ceil(v - half),
        "round_prefer_ceil": lambda v: floor(v + half),
    }[rounding]  # fmt: skip
    start = 1 if layout is not None and layout.endswith("C") else 2
    for d, o in enumerate(_each(size, x.ndim - 2), start):
        n = x.shape[d]
        at = [min(max(rounded(_coordinate(i, n, o, coordinates)), 0), n - 1) for i in range(o)]
        x = x.take(np.array(at, int), axis=d)
    return x


def _cubic_weight(a: float, t: float) -> float:
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def _interpolated(
    x: Any, size: Any, coordinates: str = "half_pixel", coefficient: float | None = None,
    layout: str | None = None,
) -> Any:  # fmt: skip
    """Linear, or cubic with a coefficient."""
    start = 1 if layout is not None and layout.endswith("C") else 2
    out = x.astype(np.float64)
    for d, o in enumerate(_each(size, x.ndim - 2), start):
        n = out.shape[d]
        matrix = np.zeros((o, n))
        for i in range(o):
            c = _coordinate(i, n, o, coordinates)
            for j in range(floor(c) - 1, floor(c) + 3):
                far = float(c - j)
                weight = max(0.0, 1 - abs(far)) if coefficient is None else (
                    _cubic_weight(coefficient, far)
                )  # fmt: skip
                matrix[i, min(max(j, 0), n - 1)] += weight
        out = np.moveaxis(np.tensordot(matrix, out, axes=(1, d)), 0, d)
    return out.astype(x.dtype)


def _cubic(x: Any, size: Any, coefficient: float = -0.75, **options: Any) -> Any:
    return _interpolated(x, size, coefficient=coefficient, **options)


def register_all() -> None:
    """Add them to the registry."""
    register(
        "conv1d", conv.conv1d, convolve, ("n", "c", "w", "f", "k"),
        lambda n, c, w, f, k: (Input((n, c, w)), Input((f, c, k))), NUMBERS, padding="same",
    )  # fmt: skip
    register(
        "conv2d", conv.conv2d, convolve, ("n", "c", "h", "w", "f", "k"),
        lambda n, c, h, w, f, k: (Input((n, c, h, w)), Input((f, c, k, k))), NUMBERS,
        padding="same",
    )  # fmt: skip
    register(
        "conv2d_nhwc", conv.conv2d, convolve, ("n", "c", "h", "w", "f", "k"),
        lambda n, c, h, w, f, k: (Input((n, h, w, c)), Input((k, k, c, f))), NUMBERS,
        padding="same", layout="NHWC",
    )  # fmt: skip
    register(
        "conv3d", conv.conv3d, convolve, ("n", "c", "d", "f", "k"),
        lambda n, c, d, f, k: (Input((n, c, d, d, d)), Input((f, c, k, k, k))), padding="same",
    )  # fmt: skip
    register(
        "depthwise_conv2d", conv.depthwise_conv2d,
        lambda x, weight, **options: convolve(x, weight, groups=x.shape[1], **options),
        ("n", "c", "h", "w", "k"),
        lambda n, c, h, w, k: (Input((n, c, h, w)), Input((c, 1, k, k))), NUMBERS, padding="same",
    )  # fmt: skip
    for rank in (1, 2, 3):
        register(
            f"conv{rank}d_transpose", vars(transposed)[f"conv{rank}d_transpose"],
            convolve_transposed, ("n", "c", "w", "f", "k"),
            lambda n, c, w, f, k, rank=rank: (
                Input((n, c, *(w,) * rank)), Input((c, f, *(k,) * rank))
            ), stride=2,
        )  # fmt: skip
    images = ("n", "c", "h", "w")
    register(
        "max_pool", pool.max_pool, _pool, images, lambda *s: (Input(s),), NUMBERS,
        kernel=3, stride=2, padding=1,
    )  # fmt: skip
    register(
        "avg_pool", pool.avg_pool, _avg_pool, images, lambda *s: (Input(s),), FLOATS,
        kernel=3, stride=2, padding=1,
    )  # fmt: skip
    for kind in ("max", "avg"):
        by = "max" if kind == "max" else "mean"
        register(
            f"adaptive_{kind}_pool", vars(pool)[f"adaptive_{kind}_pool"], _adaptive(by), images,
            lambda *s: (Input(s),), FLOATS, outputs=2,
        )  # fmt: skip
        register(
            f"global_{kind}_pool", vars(pool)[f"global_{kind}_pool"], _adaptive(by), images,
            lambda *s: (Input(s),), FLOATS,
        )  # fmt: skip
    for name, function, reference in (
        ("resize_nearest", resize.resize_nearest, _nearest),
        ("resize_linear", resize.resize_linear, _interpolated),
        ("resize_cubic", resize.resize_cubic, _cubic),
    ):
        types = NUMBERS if name == "resize_nearest" else FLOATS
        register(name, function, reference, images, lambda *s: (Input(s),), types, size=(5, 8))
