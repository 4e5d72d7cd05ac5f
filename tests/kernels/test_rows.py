"""Row programs by hand: softmax, the norms and their like, at odd sizes, over the parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import tensorir as tir
from schedules.cpu import rows
from schedules.cpu.rows import params
from schedules.registry import schedule_for
from tensorir import ops
from tensorir.codegen import cpu
from tensorir.ops.registry import operator

TARGETS = ("native", "x86-64-v3")
SHAPES = ((1, 1), (3, 7), (5, 16), (4, 33), (2, 100), (3, 257), (0, 5), (6, 1024))

Make = Callable[..., tir.Tensor]
ONE: dict[str, Make] = {
    "softmax": ops.softmax,
    "log_softmax": ops.log_softmax,
    "layer_norm": ops.layer_norm,
    "rms_norm": ops.rms_norm,
    "l2_normalize": ops.l2_normalize,
    "logsumexp": lambda x: ops.logsumexp(x, axis=-1),
    "variance": lambda x: ops.variance(x, axis=-1),
}


def exact(name: str, x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    attributes = {"axis": -1} if name in ("logsumexp", "variance") else {}
    return operator(name).reference(wide, **attributes)


def check(kernel: tir.Kernel, name: str, x: np.ndarray) -> None:
    got = kernel(x)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, exact(name, x), rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ONE)
def test_symbolic_sizes(name: str, target: str) -> None:
    x = tir.placeholder((tir.var("n"), tir.var("m")), name="x")
    kernel = tir.build(rows(tir.schedule(ONE[name](x)), target), target=target)
    for seed, shape in enumerate(SHAPES):
        check(kernel, name, np.random.default_rng(seed).standard_normal(shape, np.float32))


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("seed", range(2))
def test_any_parameters(name: str, seed: int) -> None:
    rng = Random(f"{name}{seed}")
    target = rng.choice(TARGETS)
    chosen = {p.name: rng.choice(p.values) for p in params(cpu.target(target))}
    shape = rng.randint(1, 9), rng.choice([rng.randint(1, 40), rng.randint(40, 700)])
    x = tir.placeholder(shape, name="x")
    s = rows(tir.schedule(ONE[name](x)), target, parallel=rng.random() < 0.5, **chosen)
    data = np.random.default_rng(seed).standard_normal(shape, np.float32)
    check(tir.build(s, target=target), name, data)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_of_extremes_is_as_the_reference_says(target: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.random.default_rng(0).standard_normal((9, 70)).astype(np.float32)
    x[1, 3], x[2, 69], x[3, :], x[4, 0], x[5, 66], x[6, :] = inf, -inf, -inf, nan, nan, 3e38
    x[7, 5:9], x[8, :] = (inf, -inf, nan, 0.0), nan
    made = ops.softmax(tir.placeholder(x.shape, name="x"))
    got = tir.build(rows(tir.schedule(made), target), target=target)(x)
    with np.errstate(all="ignore"):
        want = operator("softmax").reference(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types(dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 90)).astype(dtype)
    made = ops.softmax(tir.placeholder(x.shape, dtype, name="x"))
    got = tir.build(rows(tir.schedule(made)))(x)
    assert got.dtype == x.dtype
    rough = 1e-14 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(got, exact("softmax", x), rtol=rough, atol=rough)


def test_norms_of_images() -> None:
    x = np.random.default_rng(0).standard_normal((2, 6, 5, 40)).astype(np.float32)
    t = tir.placeholder(x.shape, name="x")
    for made, groups in ((ops.instance_norm(t), 6), (ops.group_norm(t, 3), 3)):
        flat = x.reshape(2, groups, -1).astype(np.float64)
        mean, var = flat.mean(-1, keepdims=True), flat.var(-1, keepdims=True)
        want = ((flat - mean) / np.sqrt(var + 1e-5)).reshape(x.shape)
        got = tir.build(rows(tir.schedule(made)))(x)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_rows_of_batches_with_weights() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 50)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    t, p = tir.placeholder(x.shape, name="x"), tir.placeholder((50,), name="w")
    s = rows(tir.schedule(ops.layer_norm(t, p, p)), parallel=False)
    y = operator("layer_norm").reference(x.astype(np.float64))
    np.testing.assert_allclose(tir.build(s)(x, w), y * w + w, rtol=1e-4, atol=1e-5)


def test_a_program_of_ones_own_is_recognised() -> None:
    x = tir.placeholder((300, 500), name="x")
    r, q = tir.reduce_axis(500, name="r"), tir.reduce_axis(500, name="q")
    low = tir.compute((300,), lambda i: tir.min(x[i, r], axis=r), name="low")
    span = tir.compute((300,), lambda i: tir.max(x[i, q] - low[i], axis=q), name="span")
    y = tir.compute((300, 500), lambda i, j: (x[i, j] - low[i]) / span[i], name="y")
    s = schedule_for(y)
    steps = [(step.primitive, step.args[0]) for step in s.trace.steps]
    assert ("compute_at", "span") in steps and ("prefetch", "x") in steps
    data = np.random.default_rng(0).random((300, 500), np.float32)
    least = data.min(1, keepdims=True)
    want = (data - least) / (data - least).max(1, keepdims=True)
    assert tir.build(s)(data).tobytes() == want.tobytes()


def test_results_larger_than_half_of_the_last_cache_stream() -> None:
    target = replace(cpu.target("native"), l3=1 << 16)
    for n, streams in ((8, False), (9, True)):
        made = ops.softmax(tir.placeholder((n, 1024), name="x"))
        s = rows(tir.schedule(made), target)
        assert ("non_temporal" in [step.primitive for step in s.trace.steps]) == streams
        kernel = tir.build(s)
        check(kernel, "softmax", np.random.default_rng(0).standard_normal((n, 1024), np.float32))
        assert ("vmovntps" in kernel.asm) == streams


def test_what_is_no_row_program_is_refused() -> None:
    x = tir.placeholder((8, 8), name="x")
    for made in (ops.softmax(x, axis=0), ops.sum(x, axis=1), ops.exp(x)):
        with pytest.raises(tir.ArgumentError, match="rows: expected several stages"):
            rows(tir.schedule(made))
