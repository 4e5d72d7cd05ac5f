"""The hand schedule of convolutions: sizes that do not divide, layouts, groups, what follows."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from schedules.cpu import conv
from schedules.cpu.conv import params
from schedules.registry import entry_for
from tensorir import ops
from tensorir.codegen import cpu
from tensorir.ops.reference.windows import convolve, convolve_transposed

TARGETS = ("native", "x86-64-v3")
OPS = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}


def whole(shape: tuple[int, ...], seed: int, dtype: str = "float32") -> np.ndarray:
    """Small integers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def declare(
    x: tuple[int, ...], w: tuple[int, ...], dtype: str = "float32", **options: Any
) -> tir.Tensor:
    a, b = tir.placeholder(x, dtype, name="x"), tir.placeholder(w, dtype, name="w")
    return OPS[len(x) - 2](a, b, **options)


def check(
    x: tuple[int, ...],
    w: tuple[int, ...],
    target: str = "native",
    given: dict[str, int] | None = None,
    dtype: str = "float32",
    parallel: bool = False,
    what: str = "",
    **options: Any,
) -> tir.Kernel:
    s = tir.schedule(declare(x, w, dtype, **options))
    kernel = tir.build(conv(s, target, parallel=parallel, **(given or {})), target=target)
    a, b = whole(x, 1, dtype), whole(w, 2, dtype)
    np.testing.assert_array_equal(kernel(a, b), convolve(a, b, **options), what)
    return kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((1, 5, 17, 19), (33, 5, 3, 3), {"padding": 1}),
        ((2, 3, 15, 30), (9, 3, 7, 7), {"stride": 2, "padding": 3}),
        ((1, 6, 7, 7), (40, 6, 3, 3), {"padding": 1}),
        ((1, 18, 13, 13), (7, 18, 1, 1), {}),
        ((1, 4, 9, 8), (48, 4, 1, 1), {"stride": 2}),
        ((1, 2, 9, 31), (1, 2, 3, 5), {"dilation": 2, "padding": (2, 4)}),
        ((2, 3, 50), (20, 3, 5), {"padding": 2}),
        ((1, 2, 4, 5, 6), (17, 2, 3, 3, 3), {"padding": 1}),
        ((1, 2, 3, 4, 5), (17, 2, 1, 1, 1), {}),
    ],
)
def test_channels_first(
    x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any], target: str
) -> None:
    check(x, w, target, **options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((1, 11, 13, 5), (3, 3, 5, 37), {"padding": "same", "stride": 2}),
        ((2, 9, 9, 6), (1, 1, 6, 64), {}),
        ((1, 9, 9, 6), (3, 3, 3, 32), {"groups": 2}),
        ((1, 9, 9, 6), (3, 3, 2, 15), {"groups": 3}),
    ],
)
def test_channels_last(
    x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any], target: str
) -> None:
    check(x, w, target, layout="NHWC", **options)


@pytest.mark.parametrize("each", [3, 16, 33])
def test_groups(each: int) -> None:
    check((1, 6, 12, 21), (2 * each, 3, 3, 3), padding=1, groups=2)


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_types(dtype: str) -> None:
    check((1, 3, 9, 20), (10, 3, 3, 3), dtype=dtype, padding=1)


@pytest.mark.parametrize("seed", range(10))
def test_any_parameters(seed: int) -> None:
    rng = Random(seed)
    target = rng.choice(TARGETS)
    given = {p.name: rng.choice(p.values) for p in params(cpu.target(target))}
    k = rng.choice([1, 1, 2, 3])
    x = (rng.randint(1, 2), rng.randint(2, 6), rng.randint(k, 14), rng.randint(k, 40))
    w = (rng.randint(1, 70), x[1], k, k)
    options: dict[str, Any] = {"padding": rng.choice([0, 1]), "stride": rng.choice([1, 1, 2])}
    what = f"seed {seed}: {x} {w} {options} {target} {given}"
    check(x, w, target, given, parallel=rng.random() < 0.5, what=what, **options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("size", "kernel", "options"),
    [
        ((9, 11), (4, 4), {"stride": 2, "padding": 1}),
        ((7, 20), (3, 3), {"padding": 1}),
        ((5, 9), (3, 2), {"stride": 3, "padding": 1, "output_padding": 1}),
        ((6, 7), (3, 3), {"stride": 2, "dilation": 2}),
    ],
)
def test_transposed(
    size: tuple[int, int], kernel: tuple[int, int], options: dict[str, Any], target: str
) -> None:
    x, w = tir.placeholder((1, 4, *size), name="x"), tir.placeholder((4, 18, *kernel), name="w")
    s = conv(tir.schedule(ops.conv2d_transpose(x, w, **options)), target, parallel=False)
    a, b = whole((1, 4, *size), 1), whole((4, 18, *kernel), 2)
    got = tir.build(s, target=target)(a, b)
    np.testing.assert_array_equal(got, convolve_transposed(a, b, **options))


def test_no_images_and_a_symbolic_number_of_them() -> None:
    x = tir.placeholder((tir.var("n"), 3, 8, 9), name="x")
    w = tir.placeholder((5, 3, 3, 3), name="w")
    kernel = tir.build(conv(tir.schedule(ops.conv2d(x, w, padding=1))))
    b = whole((5, 3, 3, 3), 2)
    for n in (0, 1, 3):
        a = whole((n, 3, 8, 9), 1)
        np.testing.assert_array_equal(kernel(a, b), convolve(a, b, padding=1))


@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (6, 4, 1, 1)])
def test_what_follows_is_done_in_the_tile(shape: tuple[int, ...]) -> None:
    pad = shape[-1] // 2
    x, w = tir.placeholder((1, 4, 10, 18), name="x"), tir.placeholder(shape, name="w")
    b, r = tir.placeholder((6,), name="b"), tir.placeholder((1, 6, 10, 18), name="r")
    y = ops.relu(ops.add(ops.conv2d(x, w, b, padding=pad), r))
    s = conv(tir.schedule(y))
    assert "compute_at" in [step.primitive for step in s.trace.steps]
    kernel = tir.build(s, args=[x, w, b, r, y])
    arrays = [whole(t, k) for k, t in enumerate([(1, 4, 10, 18), shape, (6,), (1, 6, 10, 18)])]
    want = np.maximum(convolve(*arrays[:3], padding=pad) + arrays[3], 0)
    out = np.empty_like(want)
    kernel(*arrays, out)
    np.testing.assert_array_equal(out, want)


def test_everything_stays_in_registers() -> None:
    cases = [((1, 8, 28, 28), (64, 8, 3, 3), 1), ((1, 8, 28, 28), (48, 8, 1, 1), 0)]
    cases += [((1, 64, 7, 7), (64, 64, 1, 1), 0), ((1, 8, 14, 14), (64, 8, 3, 3), 1)]
    for x, w, pad in cases:
        for target in TARGETS:
            assert not check(x, w, target, padding=pad).notes, (x, w, target)


def test_the_library_takes_it_and_each_step_replays() -> None:
    fresh = tir.schedule(declare((1, 8, 14, 14), (16, 8, 3, 3), padding=1))
    entry = entry_for(fresh)
    assert entry is not None and entry.name == "conv"
    s = conv(fresh)
    again = tir.replay(fresh, tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()


def test_another_computation_is_refused() -> None:
    a = tir.placeholder((4, 4), name="a")
    with pytest.raises(tir.ArgumentError) as caught:
        conv(tir.schedule(ops.relu(a)))
    assert str(caught.value) == "conv: expected a convolution, its padding and elementwise stages"
