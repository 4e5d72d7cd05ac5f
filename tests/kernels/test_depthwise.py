"""The hand schedule of depthwise convolutions, with masks at the border and without."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from schedules.cpu import depthwise
from schedules.cpu.depthwise import params
from schedules.registry import entry_for
from tensorir import ops
from tensorir.codegen import cpu
from tensorir.ops.reference.windows import convolve
from tests.kernels.test_conv import TARGETS, whole


def check(
    channels: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    target: str = "native",
    given: dict[str, int] | None = None,
    parallel: bool = False,
    layout: str = "NCHW",
    what: str = "",
    images: int = 1,
    **options: Any,
) -> tir.Kernel:
    last = layout == "NHWC"
    xs = (images, *size, channels) if last else (images, channels, *size)
    ws = (*kernel, 1, channels) if last else (channels, 1, *kernel)
    x, w = tir.placeholder(xs, name="x"), tir.placeholder(ws, name="w")
    s = tir.schedule(ops.depthwise_conv2d(x, w, layout=layout, **options))
    made = depthwise(s, target, parallel=parallel, **(given or {}))
    built = tir.build(made, target=target)
    a, b = whole(xs, 1), whole(ws, 2)
    want = convolve(a, b, groups=channels, layout=layout, **options)
    np.testing.assert_array_equal(built(a, b), want, what)
    return built


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("size", "kernel", "options"),
    [
        ((28, 28), (3, 3), {"padding": 1}),
        ((13, 70), (3, 3), {"padding": 1}),
        ((7, 7), (3, 3), {"padding": 1}),
        ((15, 37), (3, 3), {"padding": 1, "stride": 2}),
        ((9, 100), (3, 3), {"padding": 1, "stride": 2}),
        ((12, 20), (5, 5), {"padding": 2, "stride": 3}),
        ((1, 1), (3, 3), {"padding": 1}),
        ((9, 21), (2, 2), {}),
        ((11, 40), (3, 3), {"padding": 2, "dilation": 2}),
        ((9, 33), (7, 7), {"padding": 3}),
    ],
)
def test_channels_first(
    size: tuple[int, int], kernel: tuple[int, int], options: dict[str, Any], target: str
) -> None:
    check(3, size, kernel, target, **options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("channels", "stride"), [(37, 1), (16, 2)])
def test_channels_last(channels: int, stride: int, target: str) -> None:
    check(channels, (9, 11), (3, 3), target, layout="NHWC", padding=1, stride=stride)


@pytest.mark.parametrize("seed", range(6))
def test_any_parameters(seed: int) -> None:
    rng = Random(seed)
    target = rng.choice(TARGETS)
    given = {p.name: rng.choice(p.values) for p in params(cpu.target(target))}
    size = rng.randint(3, 20), rng.randint(3, 50)
    options: dict[str, Any] = {"padding": rng.choice([0, 1]), "stride": rng.choice([1, 2, 3])}
    what = f"seed {seed}: {size} {options} {target} {given}"
    check(2, size, (3, 3), target, given, rng.random() < 0.5, what=what, images=2, **options)


def test_no_gathers_and_no_copies() -> None:
    for stride in (1, 2):
        for target in TARGETS:
            kernel = check(4, (28, 28), (3, 3), target, padding=1, stride=stride)
            assert not kernel.notes
            assert "_pad" not in kernel.loops


def test_bias_and_what_follows() -> None:
    x, w = tir.placeholder((1, 4, 9, 30), name="x"), tir.placeholder((4, 1, 3, 3), name="w")
    b = tir.placeholder((4,), name="b")
    y = ops.relu(ops.depthwise_conv2d(x, w, b, padding=1))
    fresh = tir.schedule(y)
    entry = entry_for(fresh)
    assert entry is not None and entry.name == "depthwise"
    kernel = tir.build(depthwise(fresh), args=[x, w, b, y])
    arrays = [whole((1, 4, 9, 30), 1), whole((4, 1, 3, 3), 2), whole((4,), 3)]
    want = np.maximum(convolve(*arrays, groups=4, padding=1), 0)
    out = np.empty_like(want)
    kernel(*arrays, out)
    np.testing.assert_array_equal(out, want)


def test_another_computation_is_refused() -> None:
    a = tir.placeholder((4, 4), name="a")
    with pytest.raises(tir.ArgumentError) as caught:
        depthwise(tir.schedule(ops.relu(a)))
    assert str(caught.value) == "depthwise: expected a depthwise convolution and its padding"
