"""The hand schedule of pooling: windows over borders, strides, layouts, whole channels."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from schedules.cpu import pool
from schedules.cpu.pool import params
from schedules.registry import entry_for
from tensorir import ops
from tensorir.codegen import cpu
from tensorir.ops import operator
from tests.kernels.test_conv import TARGETS, whole


def check(
    op: Any,
    shape: tuple[int, ...],
    *args: Any,
    target: str = "native",
    given: dict[str, int] | None = None,
    parallel: bool = False,
    what: str = "",
    **options: Any,
) -> tir.Kernel:
    x = tir.placeholder(shape, name="x")
    fresh = tir.schedule(op(x, *args, **options))
    kernel = tir.build(pool(fresh, target, parallel=parallel, **(given or {})), target=target)
    a = whole(shape, 1)
    want = operator(op.__name__).reference(a, *args, **options)
    np.testing.assert_allclose(kernel(a), want, rtol=1e-6, atol=1e-6, err_msg=what)
    return kernel


CASES: list[tuple[tuple[int, ...], Any, dict[str, Any]]] = [
    ((1, 3, 28, 28), 3, {"stride": 2, "padding": 1}),
    ((2, 2, 13, 70), 2, {}),
    ((1, 2, 9, 33), 3, {"stride": 1, "padding": 1}),
    ((1, 2, 15, 21), 3, {"stride": 2, "ceil_mode": True}),
    ((1, 2, 40, 7), (5, 1), {"stride": 3, "padding": (2, 0)}),
    ((2, 3, 50), 4, {"stride": 2, "padding": 1}),
    ((1, 2, 5, 6, 20), 2, {}),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "kernel", "options"), CASES)
def test_windows(shape: tuple[int, ...], kernel: Any, options: dict[str, Any], target: str) -> None:
    check(ops.max_pool, shape, kernel, target=target, **options)
    check(ops.avg_pool, shape, kernel, target=target, **options)


@pytest.mark.parametrize("channels", [1, 19, 32])
def test_channels_last(channels: int) -> None:
    options: dict[str, Any] = {"stride": 2, "padding": 1, "layout": "NHWC"}
    check(ops.max_pool, (1, 9, 11, channels), 3, **options)
    check(ops.avg_pool, (1, 9, 11, channels), 3, **options)


@pytest.mark.parametrize("target", TARGETS)
def test_whole_channels(target: str) -> None:
    for op in (ops.global_avg_pool, ops.global_max_pool):
        check(op, (2, 5, 7, 7), target=target)
        check(op, (2, 7, 7, 70), target=target, layout="NHWC")


@pytest.mark.parametrize("seed", range(4))
def test_any_parameters(seed: int) -> None:
    rng = Random(seed)
    target = rng.choice(TARGETS)
    given = {p.name: rng.choice(p.values) for p in params(cpu.target(target))}
    shape = (2, 3, rng.randint(3, 20), rng.randint(3, 60))
    options = {"stride": rng.choice([1, 2, 3]), "padding": rng.choice([0, 1])}
    check(
        ops.max_pool, shape, 3, target=target, given=given, parallel=rng.random() < 0.5,
        what=f"seed {seed}: {shape} {options} {target} {given}", **options,
    )  # fmt: skip


def test_nan_is_the_greatest() -> None:
    a = whole((1, 2, 12, 36), 1)
    a[0, 1, 5, 7] = np.nan
    x = tir.placeholder(a.shape, name="x")
    got = tir.build(pool(tir.schedule(ops.max_pool(x, 3, stride=2, padding=1))))(a)
    where = np.argwhere(np.isnan(got)).tolist()
    assert where == [[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 3, 3], [0, 1, 3, 4]]


def test_no_gathers_and_all_in_registers() -> None:
    for target in TARGETS:
        kernel = check(ops.max_pool, (1, 4, 28, 28), 3, stride=2, padding=1, target=target)
        assert not kernel.notes


def test_the_library_takes_it() -> None:
    x = tir.placeholder((1, 8, 14, 14), name="x")
    for t in (ops.max_pool(x, 2), ops.avg_pool(x, 3, stride=2), ops.global_avg_pool(x)):
        entry = entry_for(tir.schedule(t))
        assert entry is not None and entry.name == "pool"


def test_another_computation_is_refused() -> None:
    a = tir.placeholder((4, 4), name="a")
    with pytest.raises(tir.ArgumentError) as caught:
        pool(tir.schedule(ops.relu(a)))
    assert str(caught.value) == "pool: expected a reduction over windows"
