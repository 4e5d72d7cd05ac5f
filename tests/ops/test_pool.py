"""Pooling, with every way to count padding, and resizing at exact ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import schedules
import tensorir as tir
from tensorir import ops
from tests.ops.harness import agree, check

WINDOWS: list[dict[str, Any]] = [
    {"kernel": 3, "stride": 2, "padding": 1},
    {"kernel": 2, "stride": None, "padding": 0},
    {"kernel": (2, 3), "stride": (1, 2), "padding": ((0, 1), (1, 1))},
    {"kernel": 7, "stride": 3, "padding": 3},
    {"kernel": 3, "stride": 2, "padding": "same"},
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("ceil", [False, True])
def test_windows(window: dict[str, Any], ceil: bool) -> None:
    options = {**window, "ceil_mode": ceil}
    check("max_pool", (2, 2, 9, 8), None, options)
    for counted in (False, True):
        check("avg_pool", (1, 2, 9, 8), None, {**options, "count_padding": counted})


def test_other_ranks_and_layouts() -> None:
    check("max_pool", (2, 5, 6, 3), None, {"kernel": 2, "layout": "NHWC", "padding": 1})
    check("avg_pool", (2, 5, 6, 3), None, {"kernel": 2, "layout": "NHWC", "padding": 1})
    check("max_pool", (1, 1, 8, 8), "int8", {"kernel": 2, "stride": 1, "dilation": 3, "padding": 0})
    x = tir.placeholder((1, 2, 3, 4, 5), name="x")
    a = np.random.default_rng(0).standard_normal((1, 2, 3, 4, 5), np.float32)
    want = a[:, :, :2, :4, :4].reshape(1, 2, 1, 2, 2, 2, 2, 2).max(axis=(3, 5, 7))
    agree(ops.max_pool(x, 2), [x], [a], want)


def test_no_images() -> None:
    check("max_pool", (0, 2, 5, 5))
    check("avg_pool", (2, 0, 5, 5))


def average(values: Any, kernel: int, **options: Any) -> tuple[tir.Tensor, tir.Tensor, np.ndarray]:
    a = np.array(values, np.float32)
    a = a[None, None]
    x = tir.placeholder(a.shape, name="x")
    return ops.avg_pool(x, kernel, **options), x, a


def test_average_with_padding_at_the_end_only() -> None:
    y, x, a = average(np.ones((2, 2)), 2, stride=1, padding=((0, 1), (0, 1)))
    agree(y, [x], [a], np.array([[[[1, 0.5], [0.5, 0.25]]]], np.float32))


def test_average_in_ceil_mode() -> None:
    square = np.arange(1, 17).reshape(4, 4)
    y, x, a = average(square, 3, stride=2, ceil_mode=True, count_padding=False)
    agree(y, [x], [a], np.array([[[[6, 7.5], [12, 13.5]]]], np.float32))
    y, x, a = average(square, 3, stride=2, padding=1, ceil_mode=True)
    want = [[14 / 9, 10 / 3, 2], [19 / 3, 11, 6], [4.5, 7.5, 4]]
    agree(y, [x], [a], np.array([[want]], np.float32))


def test_average_of_a_signal_in_ceil_mode() -> None:
    signal = [2.0903, 4.6493, 1.6320, -3.2051, 4.6975, 4.7296, 3.3653, -1.5815, -2.3832]
    y, x, a = average(signal, 7, stride=3, padding=3, ceil_mode=True)
    want = np.array([[[0.73807, 2.56556, 0.80323, -0.09990]]], np.float32)
    for s in (tir.schedule(y), schedules.schedule_for(y)):
        np.testing.assert_allclose(tir.build(s)(a), want, atol=2e-5)


def test_a_maximum_is_never_the_padding() -> None:
    x = tir.placeholder((1, 1, 3), name="x")
    a = np.full((1, 1, 3), -5, np.float32)
    agree(ops.max_pool(x, 3, stride=1, padding=1), [x], [a], a)
    a[0, 0, 1] = np.nan
    agree(ops.max_pool(x, 3, stride=1, padding=1), [x], [a], np.full((1, 1, 3), np.nan, np.float32))


@pytest.mark.parametrize("outputs", [1, 2, 3, 7, 9, (4, 5)])
def test_adaptive(outputs: Any) -> None:
    check("adaptive_avg_pool", (1, 2, 7, 9), None, {"outputs": outputs})
    check("adaptive_max_pool", (1, 2, 7, 9), None, {"outputs": outputs})


def test_global_pools_of_either_layout() -> None:
    check("global_avg_pool", (2, 3, 4, 5), "float16", {"layout": "NHWC"})
    check("global_max_pool", (2, 3, 4, 5), "float64", {"layout": "NCHW"})


@pytest.mark.parametrize("how", ["inline", "at"])
def test_padding_inlined_or_computed_at_the_pooling_loops(how: str) -> None:
    x = tir.placeholder((1, 1, 32, 32), name="x")
    padded = ops.pad(x, (0, 0, 1, 1), value=-1.0, name="p")
    s = tir.schedule(ops.max_pool(padded, 3, stride=1, name="m"))
    s = s.compute_inline("p") if how == "inline" else s.compute_at("p", "m.y")
    a = np.random.default_rng(7).uniform(0, 1, (1, 1, 32, 32)).astype(np.float32)
    want = np.lib.stride_tricks.sliding_window_view(
        np.pad(a[0, 0], 1, constant_values=-1), (3, 3)
    ).max(axis=(2, 3))
    np.testing.assert_array_equal(tir.build(s)(a)[0, 0], want)


# -- resizing


def nearest(n: int, o: int, **options: Any) -> list[int]:
    x = tir.placeholder((1, 1, n), name="x")
    a = np.arange(n, dtype=np.float32)[None, None]
    y = ops.resize_nearest(x, o, **options)
    made, ours = (tir.build(s)(a) for s in (tir.schedule(y), schedules.schedule_for(y)))
    assert made.tolist() == ours.tolist()
    return [int(v) for v in made.ravel()]


def test_nearest_at_exact_ties() -> None:
    for rounding in ("round_prefer_floor", "floor"):
        assert nearest(8, 4, rounding=rounding) == [0, 2, 4, 6]
    for rounding in ("round_prefer_ceil", "ceil"):
        assert nearest(8, 4, rounding=rounding) == [1, 3, 5, 7]
    down = {"rounding": "round_prefer_floor"}
    assert nearest(8, 4, coordinates="align_corners", **down) == [0, 2, 5, 7]
    assert nearest(8, 4, coordinates="asymmetric", **down) == [0, 2, 4, 6]
    assert nearest(4, 8) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("size", [(4, 8), (8, 5), (1, 1), (13, 3), (2, 0)])
def test_resizing(coordinates: str, size: tuple[int, int]) -> None:
    options = {"coordinates": coordinates, "size": size}
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        check("resize_nearest", (1, 2, 8, 5), None, {**options, "rounding": rounding})
    check("resize_linear", (1, 2, 8, 5), None, options)
    check("resize_cubic", (1, 2, 8, 5), None, options)


def test_resizing_other_layouts_and_types() -> None:
    check("resize_linear", (1, 8, 5, 2), None, {"layout": "NHWC", "size": 7})
    check("resize_cubic", (1, 2, 8, 5), "float16", {"size": (8, 5)})
    check("resize_cubic", (1, 2, 8, 5), "float64", {"size": (9, 5), "coefficient": -0.5})
    check("resize_nearest", (1, 8, 5, 2), "uint8", {"layout": "NHWC", "size": (3, 9)})
    x = tir.placeholder((1, 1, 2), name="x")
    a = np.array([[[0, 1]]], np.float32)
    want = np.array([[[0, 0.25, 0.75, 1]]], np.float32)
    agree(ops.resize_linear(x, 4), [x], [a], want)
