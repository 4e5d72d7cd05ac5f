"""Convolutions: strides, paddings, dilations, groups, layouts, transposed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir import ops
from tensorir.ops.reference.windows import convolve, convolve_transposed
from tests.ops.harness import agree, check


@pytest.mark.parametrize(
    "options",
    [
        {"padding": 0}, {"stride": 2, "padding": 1}, {"padding": "valid", "dilation": (2, 1)},
        {"stride": (1, 2), "padding": ((0, 1), (2, 0)), "dilation": 2},
        {"padding": "same", "stride": 3}, {"padding": "same_lower", "stride": 2, "dilation": 2},
        {"padding": (2, 1)},
    ],
)  # fmt: skip
def test_two_dimensions(options: dict[str, Any]) -> None:
    check("conv2d", (2, 3, 7, 9, 4, 3), None, options)
    check("conv2d_nhwc", (2, 3, 7, 9, 4, 3), None, {"layout": "NHWC", **options})
    check("conv2d", (1, 2, 8, 5, 2, 2), "float64", options)


@pytest.mark.parametrize("sizes", [(0, 3, 5, 5, 4, 3), (1, 3, 5, 5, 0, 3), (1, 0, 5, 5, 2, 3)])
def test_nothing(sizes: tuple[int, ...]) -> None:
    check("conv2d", sizes, None, {"padding": 1})


def test_one_dimension_and_three() -> None:
    check("conv1d", (2, 3, 9, 4, 5), None, {"stride": 2, "padding": ((3, 1),)})
    check("conv3d", (1, 2, 5, 3, 3), None, {"stride": 2, "padding": 1})
    check("conv3d", (1, 2, 5, 3, 2), None, {"dilation": (1, 2, 3), "padding": "valid"})


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups_and_bias(groups: int, layout: str) -> None:
    shape, kernel = ((2, 4, 5, 6), (8, 4 // groups, 3, 3))
    if layout == "NHWC":
        shape, kernel = ((2, 5, 6, 4), (3, 3, 4 // groups, 8))
    rng = np.random.default_rng(groups)
    arrays = [rng.standard_normal(s, np.float32) for s in (shape, kernel, (8,))]
    inputs = [tir.placeholder(a.shape, name=n) for a, n in zip(arrays, "xwb", strict=True)]
    options = {"padding": 1, "groups": groups, "layout": layout}
    agree(ops.conv2d(*inputs, **options), inputs, arrays, convolve(*arrays, **options))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_depthwise_with_a_multiplier(layout: str) -> None:
    shape, kernel = ((2, 3, 5, 6), (6, 1, 3, 3))
    if layout == "NHWC":
        shape, kernel = ((2, 5, 6, 3), (3, 3, 1, 6))
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s, np.float32) for s in (shape, kernel)]
    inputs = [tir.placeholder(a.shape, name=n) for a, n in zip(arrays, "xw", strict=True)]
    result = ops.depthwise_conv2d(*inputs, padding="same", stride=2, layout=layout)
    want = convolve(*arrays, padding="same", stride=2, groups=3, layout=layout)
    agree(result, inputs, arrays, want)


def test_a_named_type() -> None:
    check("conv2d", (1, 2, 5, 5, 3, 3), "int8", {"dtype": "int32"})


@pytest.mark.parametrize(
    "options",
    [
        {"stride": 1}, {"stride": 3, "padding": 1},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": 2, "dilation": 2, "padding": ((1, 0), (0, 2))}, {"stride": (1, 2), "padding": 2},
    ],
)  # fmt: skip
def test_transposed(options: dict[str, Any]) -> None:
    check("conv2d_transpose", (2, 3, 4, 2, 3), None, options)


def test_transposed_of_little() -> None:
    check("conv1d_transpose", (1, 2, 1, 1, 1), None, {"stride": 2})
    check("conv1d_transpose", (1, 2, 0, 1, 2), None, {"stride": 2})


def test_transposed_groups_and_bias() -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(s, np.float32) for s in ((1, 4, 3, 4), (4, 3, 3, 2), (6,))]
    inputs = [tir.placeholder(a.shape, name=n) for a, n in zip(arrays, "xwb", strict=True)]
    options = {"stride": 2, "padding": 1, "groups": 2}
    want = convolve_transposed(*arrays, **options)
    agree(ops.conv2d_transpose(*inputs, **options), inputs, arrays, want)
    last = [np.moveaxis(arrays[0], 1, -1), np.moveaxis(arrays[1], (0, 1), (-1, -2)), arrays[2]]
    inputs = [tir.placeholder(a.shape, name=n) for a, n in zip(last, "xwb", strict=True)]
    result = ops.conv2d_transpose(*inputs, layout="NHWC", **options)
    agree(result, inputs, last, np.moveaxis(want, 1, -1))


def test_transposed_undoes_the_shape() -> None:
    x, w = tir.placeholder((1, 3, 9, 9), name="x"), tir.placeholder((4, 3, 3, 3), name="w")
    down = ops.conv2d(x, w, stride=2, padding=1)
    assert ops.conv2d_transpose(down, w, stride=2, padding=1).shape == x.shape


def test_dilated_padded_and_inlined() -> None:
    """A zero-padded, strided input is inlined into the convolution that reads it."""
    x, w = tir.placeholder((1, 1, 9, 9), name="x"), tir.placeholder((1, 1, 4, 4), name="w")
    s = tir.schedule(ops.conv2d(x, w, stride=2, padding=2, name="c")).compute_inline("c_pad")
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s, np.float32) for s in ((1, 1, 9, 9), (1, 1, 4, 4)))
    np.testing.assert_allclose(
        tir.build(s)(a, b), convolve(a, b, stride=2, padding=2), rtol=1e-5, atol=1e-6
    )


def test_a_symbolic_batch() -> None:
    n = tir.var("n")
    x, w = tir.placeholder((n, 2, 5, 5), name="x"), tir.placeholder((3, 2, 3, 3), name="w")
    kernel = tir.build(tir.schedule(ops.conv2d(x, w, padding=1)))
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s, np.float32) for s in ((3, 2, 5, 5), (3, 2, 3, 3)))
    np.testing.assert_allclose(kernel(a, b), convolve(a, b, padding=1), rtol=1e-4, atol=1e-5)
