"""Reductions over any dimensions, over nothing, and at the extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir import ops
from tests.ops.harness import agree, check

ALL = ("sum", "prod", "max", "min", "any", "all", "mean", "variance", "std", "logsumexp", "norm")


@pytest.mark.parametrize("name", ALL)
def test_over_any_dimensions(name: str) -> None:
    for axis in (0, None, (0, -1), (), 1):
        check(name, (3, 4, 5), None, {"axis": axis, "keepdims": axis == 1})


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all", "mean", "variance", "logsumexp"])
def test_over_nothing(name: str) -> None:
    check(name, (3, 0), None, {"axis": 1})
    check(name, (0, 3), None, {"axis": 1})


@pytest.mark.parametrize("name", ["sum", "mean", "max", "any", "argmin"])
def test_small_integers(name: str) -> None:
    check(name, (3, 33), "uint8", {"axis": 1})
    check(name, (3, 33), "int8", {"axis": 0})


def test_sums_of_small_integers_widen_unless_a_type_is_named() -> None:
    x = tir.placeholder((5000,), "uint8", name="x")
    a = np.ones(5000, np.uint8)
    agree(ops.sum(x), [x], [a], np.uint64(5000))
    agree(ops.sum(x, dtype="uint8"), [x], [a], np.uint8(136))


def test_means_of_integers_do_not_overflow() -> None:
    x = tir.placeholder((2,), "int32", name="x")
    a = np.full(2, 2**31 - 1, np.int32)
    agree(ops.mean(x), [x], [a], np.float64(2147483647))


@pytest.mark.parametrize("length", [1, 2, 7, 16, 33])
def test_one_nan_anywhere(length: int) -> None:
    x = tir.placeholder((length, length), name="x")
    a = np.zeros((length, length), np.float32)
    np.fill_diagonal(a, np.nan)
    for name in ("max", "min", "argmax", "argmin"):
        agree(getattr(ops, name)(x, axis=1), [x], [a], getattr(np, name)(a, axis=1))


@pytest.mark.parametrize("order", [1, 2, 3, 0.5, float("inf"), -float("inf")])
def test_norms(order: float) -> None:
    check("norm", (3, 5), "float64", {"order": order, "axis": 1})
    check("norm", (3, 5), "float32", {"order": order, "axis": None})


@pytest.mark.parametrize("ddof", [0, 1, 3, 4])
def test_degrees_of_freedom(ddof: int) -> None:
    check("variance", (2, 3), "float64", {"ddof": ddof})


def test_variance_far_from_zero() -> None:
    x = tir.placeholder((64,), name="x")
    a = (np.arange(64) + 1e4).astype(np.float32)
    agree(ops.variance(x), [x], [a], a.astype(np.float64).var().astype(np.float32))


@pytest.mark.parametrize(
    "values", [[1000.0, 1000.0], [-np.inf, -np.inf], [np.inf, 1.0], [np.nan, 1.0], [-1e30, 5.0]]
)
def test_logsumexp_at_the_extremes(values: list[float]) -> None:
    x = tir.placeholder((2,), "float64", name="x")
    a = np.array(values)
    with np.errstate(all="ignore"):
        want = np.logaddexp(a[0], a[1])
    agree(ops.logsumexp(x), [x], [a], want)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name: str) -> None:
    check(name, (3, 4), None, {"axis": None})
    check(name, (3, 4), None, {"axis": 0, "keepdims": True})
    check(name, (3, 0, 2), None, {"axis": 0})


@pytest.mark.parametrize(
    "options",
    [{}, {"axis": 0}, {"reverse": True}, {"exclusive": True}, {"exclusive": True, "reverse": True}],
)
@pytest.mark.parametrize("sizes", [(4, 5), (1, 1), (0, 3), (3, 0)])
def test_cumulative_sums(options: dict[str, Any], sizes: tuple[int, ...]) -> None:
    if sizes == (3, 0) and "exclusive" in options:
        return  # the reference has nothing to shift
    check("cumsum", sizes, None, options)


def test_cumulative_types() -> None:
    check("cumsum", (7,), "int8")
    check("cumsum", (7,), "int8", {"dtype": "int32"})
    check("cumprod", (7,), "float64", {"exclusive": True})


def test_symbolic_extents() -> None:
    n = tir.var("n")
    x = tir.placeholder((n, 4), name="x")
    kernels = [tir.build(tir.schedule(f)) for f in (ops.mean(x, 0), ops.cumsum(x, 0), ops.std(x))]
    a = np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32)
    for kernel, want in zip(kernels, (a.mean(0), a.cumsum(0), a.std()), strict=True):
        np.testing.assert_allclose(kernel(a), want, rtol=2e-5, atol=2e-6)
