"""The hand schedule of reductions: along rows, down columns, everything; at odd sizes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

import tensorir as tir
from schedules.cpu import reduce
from schedules.cpu.reduce import params
from schedules.registry import schedule_for
from tensorir import ops
from tensorir.codegen import cpu

TARGETS = ("native", "x86-64-v3")
SHAPES = ((1, 1), (3, 7), (9, 33), (100, 70), (7, 300), (17, 1), (260, 35))

Reduction = tuple[Callable[..., tir.Tensor], Callable[..., np.ndarray]]
KINDS: dict[str, Reduction] = {
    "sum": (ops.sum, np.sum),
    "mean": (ops.mean, np.mean),
    "max": (ops.max, np.max),
    "min": (ops.min, np.min),
    "prod": (ops.prod, np.prod),
}


def data(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.9, 1.1, shape).astype(np.float32)


def check(kernel: tir.Kernel, kind: str, x: np.ndarray, axis: object) -> None:
    want = KINDS[kind][1](x.astype(np.float64), axis=axis)
    np.testing.assert_allclose(kernel(x), want, rtol=2e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_symbolic_sizes(kind: str, axis: object, target: str) -> None:
    x = tir.placeholder((tir.var("n"), tir.var("m")), name="x")
    made = KINDS[kind][0](x, axis=axis)
    kernel = tir.build(reduce(tir.schedule(made), target), target=target)
    for shape in SHAPES:
        check(kernel, kind, data(shape), axis)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_any_parameters(kind: str, seed: int) -> None:
    rng = Random(f"{kind}{seed}")
    target = rng.choice(TARGETS)
    chosen = {p.name: rng.choice(p.values) for p in params(cpu.target(target))}
    shape = (rng.randint(1, 40), rng.randint(1, 30), rng.randint(1, 90))
    axis = rng.choice([0, 1, 2, (0, 1), (1, 2), (0, 1, 2)])
    made = KINDS[kind][0](tir.placeholder(shape, name="x"), axis=axis)
    s = reduce(tir.schedule(made), target, parallel=rng.random() < 0.5, **chosen)
    check(tir.build(s, target=target), kind, data(shape, seed), axis)


def test_where_a_maximum_is() -> None:
    x = np.random.default_rng(0).integers(0, 50, (9, 101)).astype(np.float32)
    x[3, 77] = x[3, 80] = np.nan
    kernel = tir.build(reduce(tir.schedule(ops.argmax(tir.placeholder(x.shape, name="x"), axis=1))))
    np.testing.assert_array_equal(kernel(x), np.argmax(x, axis=1))


@pytest.mark.parametrize("accumulators", [1, 2, 8])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_a_nan_anywhere_is_found(kind: str, accumulators: int) -> None:
    x = data((7, 300))
    x[0, 299], x[1, 0], x[2, :], x[3, 150], x[4, 7], x[5, :] = (
        np.nan, np.nan, np.nan, np.inf, -np.inf, -np.inf,
    )  # fmt: skip
    made = KINDS[kind][0](tir.placeholder(x.shape, name="x"), axis=1)
    kernel = tir.build(reduce(tir.schedule(made), accumulators=accumulators))
    np.testing.assert_array_equal(kernel(x), KINDS[kind][1](x, axis=1))


def test_what_is_reduced_may_be_computed() -> None:
    x = tir.placeholder((600, 1500), name="x")
    k = tir.reduce_axis(600, name="k")
    made = tir.compute((1500,), lambda j: tir.sum(tir.abs(x[k, j]) * 2.0, axis=k), name="y")
    s = schedule_for(made)
    assert [step.primitive for step in s.trace.steps][:2] == ["split", "split"]
    a = data((600, 1500))
    np.testing.assert_allclose(tir.build(s)(a), 2 * a.sum(0), rtol=1e-5)


def test_columns_are_added_in_order() -> None:
    x = np.random.default_rng(0).standard_normal((100, 130)).astype(np.float32)
    s = reduce(tir.schedule(ops.sum(tir.placeholder(x.shape, name="x"), axis=0)))
    want = x[0].copy()
    for row in x[1:]:
        want += row
    assert tir.build(s)(x).tobytes() == want.tobytes()


def test_what_is_no_lone_reduction_is_refused() -> None:
    x = tir.placeholder((8, 8), name="x")
    for made in (ops.softmax(x), ops.matmul(x, x), ops.exp(x)):
        with pytest.raises(tir.ArgumentError, match="reduce: expected one reduction"):
            reduce(tir.schedule(made))
