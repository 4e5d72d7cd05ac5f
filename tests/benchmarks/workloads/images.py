"""Convolutions, those of two networks, depthwise ones, and the blur."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tensorir import ops
from tests.benchmarks.shapes import MOBILENETV2, RESNET18, Conv
from tests.benchmarks.work import Array, Reach, Traffic, Work, normal


def _exact(shape: Conv, x: Array, w: Array) -> Array:
    """Products of windows with filters, in float64."""
    p, s, g = shape.padding, shape.stride, shape.groups
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (p, p), (p, p)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (shape.kernel,) * 2, (2, 3))
    windows = windows[:, :, ::s, ::s]
    n, _, rows, columns = windows.shape[:4]
    parts = [
        np.tensordot(xs, ws.astype(np.float64), axes=((1, 4, 5), (1, 2, 3)))
        for xs, ws in zip(np.split(windows, g, 1), np.split(w, g, 0), strict=True)
    ]
    made = np.concatenate(parts, axis=-1).transpose(0, 3, 1, 2)
    return made.reshape(n, shape.filters, rows, columns)


def convolution(shape: Conv, name: str, *reach: Reach) -> Work:
    depthwise = shape.groups > 1
    options: dict[str, Any] = {
        "stride": shape.stride,
        "padding": shape.padding,
        "groups": shape.groups,
    }
    written = 4 * shape.filters * shape.outputs**2

    return Work(
        name=name,
        kind="depthwise" if depthwise else "conv",
        op=partial(ops.conv2d, **options),
        arrays=normal(shape.x, shape.weight),
        expected=lambda x, w: _exact(shape, x, w),
        operations=float(shape.operations),
        traffic=Traffic(written, 1, 1) if depthwise else None,
        options=options,
        reach=reach,
    )


def conv() -> Iterator[Work]:
    yield convolution(Conv(64, 64, 56, 3, 1, 1), "conv 3x3 64->64 56x56", Reach(1.0))


def nets() -> Iterator[Work]:
    """Of all of them the geometric mean counts too: see `table.summary`."""
    for net, shapes in (("ResNet-18", RESNET18), ("MobileNetV2", MOBILENETV2)):
        for shape in shapes:
            yield convolution(shape, f"{net} {shape}", Reach(0.9, ("torch",)))


def depthwise() -> Iterator[Work]:
    shape = Conv(128, 128, 56, 3, 1, 1, 128)
    yield convolution(shape, "depthwise 3x3 128 56x56", Reach(1.2))


def _blurred(x: Array) -> Array:
    x = x.astype(np.float64)
    along = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3
    return (along[:-2] + along[1:-1] + along[2:]) / 3


def blur(n: int = 2048) -> Iterator[Work]:
    yield Work(
        name=f"blur {n}",
        kind="blur",
        op=ops.blur,
        arrays=normal((n + 2, n + 2)),
        expected=_blurred,
        operations=6.0 * n * n,
        traffic=Traffic(4 * n * n, 1, 1),
        reach=(Reach(1.0),),
    )
