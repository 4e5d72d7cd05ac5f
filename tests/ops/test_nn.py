"""Softmax at the extremes, norms, activations, quantised numbers, stencils."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tensorir import ops
from tests.ops.harness import agree, check, run

# -- softmax


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([1000, 1000, -1000], [0.5, 0.5, 0]),
        ([-245000, -245001, -245003], [0.7053845, 0.2594965, 0.0351190]),
        ([-np.inf] * 3, [np.nan] * 3),
        ([-np.inf, 0, -np.inf], [0, 1, 0]),
        ([np.nan, 0, 0], [np.nan] * 3),
    ],
)
def test_softmax_at_the_extremes(values: list[float], want: list[float]) -> None:
    x = tir.placeholder((2, 3), name="x")
    a = np.array([values, [0, 0, 0]], np.float32)
    both = np.array([want, [1 / 3] * 3], np.float32)
    agree(ops.softmax(x), [x], [a], both)
    (got,) = run(ops.log_softmax(x), [x], [a])
    np.testing.assert_allclose(np.exp(got), both, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extent", [0, 1, 5, 33])
def test_softmax_along(axis: int, extent: int) -> None:
    sizes = (extent, 3) if axis == 0 else (3, extent)
    for name in ("softmax", "log_softmax"):
        check(name, sizes, None, {"axis": axis})
        check(name, sizes, "float16", {"axis": axis})


def test_rows_sum_to_one() -> None:
    x = tir.placeholder((4, 1000), name="x")
    a = np.random.default_rng(0).standard_normal((4, 1000)).astype(np.float32) * 20
    (got,) = run(ops.softmax(x), [x], [a])
    np.testing.assert_allclose(got.sum(axis=1), 1, atol=1e-6)


def test_softmax_is_in_stages() -> None:
    s = tir.schedule(ops.softmax(tir.placeholder((4, 10), name="x"), name="p"))
    assert list(s.stages) == ["p_max", "p_exp", "p_sum", "p"]


# -- norms


def test_norms_over_several_dimensions() -> None:
    x, w = tir.placeholder((2, 3, 4), "float64", name="x"), tir.placeholder((3, 4), name="w")
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4), np.float32)
    mean, var = a.mean(axis=(1, 2), keepdims=True), a.var(axis=(1, 2), keepdims=True)
    want = (a - mean) / np.sqrt(var + 1e-3) * b
    agree(ops.layer_norm(x, w, axis=1, eps=1e-3), [x, w], [a, b], want)
    want = a / np.sqrt((a * a).mean(axis=(1, 2), keepdims=True) + 1e-5) * b
    agree(ops.rms_norm(x, w, axis=1), [x, w], [a, b], want)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_groups(groups: int) -> None:
    check("group_norm", (2, 6, 3, 5), None, {"groups": groups})
    check("group_norm", (0, 6, 3, 5), None, {"groups": groups})


def test_norms_of_far_and_of_equal_values() -> None:
    x = tir.placeholder((1, 64), name="x")
    a = (np.arange(64) + 1e4).astype(np.float32)[None]
    d = a.astype(np.float64)
    want = ((d - d.mean()) / np.sqrt(d.var() + 1e-5)).astype(np.float32)
    (got,) = run(ops.layer_norm(x), [x], [a])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    same = np.full((1, 64), 3, np.float32)
    agree(ops.layer_norm(x), [x], [same], np.zeros((1, 64), np.float32))


def test_halves_do_not_overflow_inside() -> None:
    x = tir.placeholder((1, 512), "float16", name="x")
    a = np.full((1, 512), 300, np.float16)  # its square is no float16
    agree(ops.rms_norm(x), [x], [a], np.ones((1, 512), np.float16))


def test_batch_norm_of_the_last_dimension() -> None:
    xs = [tir.placeholder(s, name=n) for s, n in (((2, 3, 4), "x"), ((4,), "m"), ((4,), "v"))]
    rng = np.random.default_rng(2)
    a, m, v = (rng.uniform(0.5, 1, s).astype(np.float32) for s in ((2, 3, 4), (4,), (4,)))
    agree(ops.batch_norm(*xs, axis=-1), xs, [a, m, v], (a - m) / np.sqrt(v + np.float32(1e-5)))


# -- activations


@pytest.mark.parametrize(
    "name", ["relu", "elu", "sigmoid", "softplus", "hardswish", "leaky_relu", "silu", "gelu"]
)
def test_activations_far_from_zero(name: str) -> None:
    x = tir.placeholder((4,), name="x")
    a = np.array([-1e4, 1e4, np.nan, 0], np.float32)
    (got,) = run(getattr(ops, name)(x), [x], [a])
    want = {"sigmoid": [0, 1, np.nan, 0.5], "softplus": [0, 1e4, np.nan, np.log(2)],
            "elu": [-1, 1e4, np.nan, 0], "leaky_relu": [-100, 1e4, np.nan, 0]}  # fmt: skip
    np.testing.assert_allclose(got, want.get(name, [0, 1e4, np.nan, 0]), rtol=1e-6, atol=1e-6)


def test_activations_with_parameters() -> None:
    check("gelu", (33,), None, {"approximate": "tanh"})
    check("elu", (33,), None, {"alpha": 0.5})
    check("leaky_relu", (33,), None, {"slope": -0.5})
    x, a = tir.placeholder((2, 3, 2), name="x"), tir.placeholder((3, 1), name="a")
    v = np.linspace(-2, 2, 12, dtype=np.float32).reshape(2, 3, 2)
    s = np.array([[0.1], [0.2], [-1]], np.float32)
    agree(ops.prelu(x, a), [x, a], [v, s], np.where(v > 0, v, s * v))


# -- quantised


def test_quantize_rounds_and_saturates() -> None:
    x = tir.placeholder((7,), name="x")
    a = np.array([0.25, 0.75, -0.25, 1e9, -1e9, np.nan, np.inf], np.float32)
    want = np.array([0, 2, 0, 127, -128, 0, 127], np.int8)
    agree(ops.quantize(x, 0.5), [x], [a], want)
    want = np.array([3, 5, 3, 255, 0, 0, 255], np.uint8)
    agree(ops.quantize(x, 0.5, 3, dtype="uint8"), [x], [a], want)


def test_scales_of_each_channel() -> None:
    x, s = tir.placeholder((4, 3), name="x"), tir.placeholder((3,), name="s")
    z = tir.placeholder((3,), "int32", name="z")
    a = np.random.default_rng(3).uniform(-3, 3, (4, 3)).astype(np.float32)
    scale, zero = np.array([0.5, 0.25, 0.125], np.float32), np.array([0, 5, -7], np.int32)
    q = np.clip(np.rint(a / scale) + zero, -128, 127).astype(np.int8)
    agree(ops.quantize(x, s, z, axis=1), [x, s, z], [a, scale, zero], q)
    y = tir.placeholder((4, 3), "int8", name="y")
    want = ((q.astype(np.float32) - zero) * scale).astype(np.float32)
    agree(ops.dequantize(y, s, z, axis=-1), [y, s, z], [q, scale, zero], want)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_of_bytes(dtype: str) -> None:
    check("quantized_matmul", (3, 5, 300), dtype, {"zero_a": 0, "zero_b": -128})
    check("quantized_matmul", (3, 3, 3), dtype, {"transpose_b": True})
    check("quantized_conv2d", (1, 2, 5, 6, 3, 3), dtype, {"stride": 2, "zero_weight": 3})
    check("quantized_conv2d", (1, 4, 5, 6, 4, 3), dtype, {"padding": ((1, 0), (0, 2))})


# -- stencils


def test_steps() -> None:
    check("jacobi", (6, 5), None, {"steps": 3})
    check("heat", (6, 5), "float64", {"steps": 4, "alpha": 0.2})
    check("jacobi", (2, 9))
    check("blur", (2, 5))


def test_steps_are_stages() -> None:
    s = tir.schedule(ops.heat(tir.placeholder((8, 8), name="u"), steps=3))
    assert list(s.stages) == ["heat_1", "heat_2", "heat"]


def test_images_of_symbolic_size() -> None:
    h, w = tir.var("h"), tir.var("w")
    x = tir.placeholder((h, w), name="x")
    a = np.random.default_rng(4).standard_normal((7, 9), np.float32)
    got = tir.build(tir.schedule(ops.blur(x)))(a)
    rows = (a[:, :-2] + a[:, 1:-1] + a[:, 2:]) / 3
    np.testing.assert_allclose(got, (rows[:-2] + rows[1:-1] + rows[2:]) / 3, rtol=1e-5, atol=1e-6)
