"""Broadcasting, weak scalars, and values at the edges."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tensorir import ops
from tests.ops.harness import agree, run

EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 3e38, 1e-42], np.float32)


@pytest.mark.parametrize("shapes", [((3, 1), (4,)), ((5, 1, 3), (2, 1)), ((), (3,)), ((1,), (0,))])
def test_operands_broadcast(shapes: tuple[tuple[int, ...], ...]) -> None:
    x, y = (tir.placeholder(s, name=n) for s, n in zip(shapes, "xy", strict=True))
    a, b = (np.random.default_rng(0).uniform(-1, 1, s).astype(np.float32) for s in shapes)
    agree(ops.add(x, y), [x, y], [a, b], a + b)
    agree(ops.less(y, x), [x, y], [a, b], b < a)


def test_symbolic_extents_broadcast() -> None:
    n = tir.var("n")
    x, y = tir.placeholder((n, 3), name="x"), tir.placeholder((3,), name="y")
    kernel = tir.build(tir.schedule(ops.multiply(x, y)))
    a, b = np.ones((4, 3), np.float32), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(kernel(a, b), a * b)


def test_python_scalars_are_weak() -> None:
    x = tir.placeholder((4,), "float16", name="x")
    a = np.linspace(-1, 1, 4).astype(np.float16)
    agree(ops.multiply(x, 3), [x], [a], a * 3)
    agree(ops.subtract(2.5, x), [x], [a], 2.5 - a)
    assert ops.add(x, np.float32(1)).dtype.name == "float32"


@pytest.mark.parametrize(
    "name", ["sign", "floor", "round", "trunc", "isnan", "isinf", "isfinite", "signbit", "abs"]
)
def test_values_at_the_edges(name: str) -> None:
    x = tir.placeholder((9,), name="x")
    with np.errstate(all="ignore"):
        want = {"round": np.rint}.get(name, getattr(np, name))(EDGES)
    agree(getattr(ops, name)(x), [x], [EDGES], want)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_nan_of_two(name: str) -> None:
    x, y = tir.placeholder((9, 1), name="x"), tir.placeholder((9,), name="y")
    column = EDGES[:, None].copy()
    want = getattr(np, name)(column, EDGES)
    agree(getattr(ops, name)(x, y), [x, y], [column, EDGES], want)


def test_logaddexp_of_infinities() -> None:
    x, y = tir.placeholder((4,), name="x"), tir.placeholder((4,), name="y")
    a = np.array([np.inf, -np.inf, 1000, np.nan], np.float32)
    b = np.array([np.inf, -np.inf, 999, 0], np.float32)
    with np.errstate(all="ignore"):
        want = np.logaddexp(a, b)
    agree(ops.logaddexp(x, y), [x, y], [a, b], want)


def test_small_integers_wrap() -> None:
    x = tir.placeholder((2,), "uint8", name="x")
    a = np.array([200, 100], np.uint8)
    agree(ops.add(x, x), [x], [a], np.array([144, 200], np.uint8))
    y = tir.placeholder((1,), "int8", name="y")
    agree(ops.abs(y), [y], [np.array([-128], np.int8)], np.array([-128], np.int8))


def test_modf_of_infinity() -> None:
    x = tir.placeholder((4,), name="x")
    a = np.array([np.inf, -np.inf, -1.25, -0.0], np.float32)
    agree(ops.modf(x), [x], [a], np.modf(a))


def test_cast_saturates() -> None:
    x = tir.placeholder((5,), name="x")
    a = np.array([300, -300, np.nan, 2.7, -2.7], np.float32)
    agree(ops.cast(x, "int8"), [x], [a], np.array([127, -128, 0, 2, -2], np.int8))


def test_clip_by_tensors_and_one_bound() -> None:
    x, low = tir.placeholder((3, 4), name="x"), tir.placeholder((4,), name="low")
    a = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    b = np.array([-1, 0, 0.5, 2], np.float32)
    agree(ops.clip(x, low), [x, low], [a, b], np.maximum(a, b))
    agree(ops.clip(x, high=0.25), [x], [a], np.minimum(a, np.float32(0.25)))


def test_inputs_that_are_not_contiguous() -> None:
    x = tir.placeholder((4, 3), name="x")
    a = np.arange(24, dtype=np.float32).reshape(6, 4).T[:, ::2]
    (got,) = run(ops.square(x), [x], [a])
    np.testing.assert_array_equal(got, a * a)


def test_where_of_numbers_and_integers() -> None:
    c, x = tir.placeholder((4,), "int32", name="c"), tir.placeholder((4,), name="x")
    cond, a = np.array([0, 1, -1, 0], np.int32), np.arange(4, dtype=np.float32)
    agree(ops.where(c, x, -1.0), [c, x], [cond, a], np.where(cond != 0, a, np.float32(-1)))


def test_bfloat16() -> None:
    import ml_dtypes

    x = tir.placeholder((8,), "bfloat16", name="x")
    a = np.linspace(-2, 2, 8).astype(ml_dtypes.bfloat16)
    want = np.exp(a.astype(np.float32)).astype(ml_dtypes.bfloat16)
    agree(ops.exp(x), [x], [a], want)
