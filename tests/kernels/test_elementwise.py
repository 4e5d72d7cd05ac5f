"""The hand schedule of elementwise chains: at odd sizes, broadcast, streamed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

import tensorir as tir
from schedules.cpu import elementwise
from schedules.cpu.elementwise import params
from schedules.registry import entry_for
from tensorir import ops
from tensorir.codegen import cpu

TARGETS = ("native", "x86-64-v3")


def chain(shape: tuple[object, ...], dtype: str = "float32") -> tir.Tensor:
    """max(1.5 x + z, 0) / 2 + 1/4, in three stages."""
    x, z = tir.placeholder(shape, dtype, name="x"), tir.placeholder(shape, dtype, name="z")
    t = tir.compute(shape, lambda *i: 1.5 * x[i] + z[i], name="t")
    u = tir.compute(shape, lambda *i: tir.maximum(t[i], 0.0), name="u")
    return tir.compute(shape, lambda *i: u[i] * 0.5 + 0.25, name="y")


def check(kernel: tir.Kernel, shape: tuple[int, ...], dtype: str = "float32") -> None:
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape).astype(dtype)
    want = np.maximum(1.5 * x.astype(np.float64) + z, 0) * 0.5 + 0.25
    np.testing.assert_allclose(kernel(x, z), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_symbolic_sizes(target: str) -> None:
    for sizes, shapes in (
        (("n",), [(0,), (1,), (15,), (64,), (65,), (1000,)]),
        (("n", "m"), [(3, 0), (1, 1), (3, 5), (7, 64), (9, 131)]),
    ):
        made = chain(tuple(map(tir.var, sizes)))
        kernel = tir.build(elementwise(tir.schedule(made), target), target=target)
        for shape in shapes:
            check(kernel, shape)


@pytest.mark.parametrize("seed", range(6))
def test_any_parameters(seed: int) -> None:
    rng = Random(seed)
    target, dtype = rng.choice(TARGETS), rng.choice(["float32", "float64"])
    chosen = {p.name: rng.choice(p.values) for p in params(cpu.target(target))}
    shape = tuple(rng.randint(1, 30) for _ in range(rng.randint(1, 3)))
    s = elementwise(tir.schedule(chain(shape, dtype)), target, parallel=seed % 2 == 0, **chosen)
    check(tir.build(s, target=target), shape, dtype)


def test_equal_shapes_are_one_axis() -> None:
    s = elementwise(tir.schedule(chain((33, 65, 3))), "x86-64-v4", parallel=False)
    assert s.stages == ("y",)
    assert [a.name for a in s.axes] == ["i0i1i2", "i0i1i2.u", "i0i1i2.v"]
    kernel = tir.build(s)
    assert not kernel.notes  # no gathers
    check(kernel, (33, 65, 3))


def test_broadcast() -> None:
    x, b, c = (tir.placeholder(n, name=m) for n, m in (((9, 70), "x"), ((70,), "b"), ((9,), "c")))
    made = tir.compute((9, 70), lambda i, j: tir.exp(x[i, j] * b[j]) + c[i], name="y")
    s = tir.schedule(made)
    assert entry_for(s) is not None and entry_for(s).name == "elementwise"
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(n).astype(np.float32) for n in ((9, 70), (70,), (9,))]
    want = np.exp(values[0] * values[1]) + values[2][:, None]
    np.testing.assert_allclose(tir.build(elementwise(s))(*values), want, rtol=1e-5, atol=1e-6)


def test_last_axes_of_equal_shape_are_one() -> None:
    x, m = tir.placeholder((2, 3, 7, 9), name="x"), tir.placeholder((3,), name="m")
    v = tir.placeholder((3,), name="v")
    s = elementwise(tir.schedule(ops.batch_norm(x, m, v)), "x86-64-v4", parallel=False)
    assert len([a for a in s.axes if "." not in a.name]) == 3
    rng = np.random.default_rng(0)
    a, mean, var = rng.standard_normal((2, 3, 7, 9)), rng.random(3), rng.random(3)
    kernel = tir.build(s)
    got = kernel(*(t.astype(np.float32) for t in (a, mean, var)))
    assert not kernel.notes
    at = (slice(None), None, None)
    np.testing.assert_allclose(got, (a - mean[at]) / np.sqrt(var[at] + 1e-5), rtol=1e-4, atol=1e-5)


def test_several_results() -> None:
    x = tir.placeholder((500,), name="x")
    y = tir.compute((500,), lambda i: x[i] + 1.0, name="y")
    z = tir.compute((500,), lambda i: y[i] * 2.0, name="z")
    kernel = tir.build(elementwise(tir.schedule(y, z)))
    a = np.arange(500, dtype=np.float32)
    for got, want in zip(kernel(a), (a + 1, (a + 1) * 2), strict=True):
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("offset", [0, 1, 4, 7])
def test_results_larger_than_half_of_the_last_cache_stream(offset: int) -> None:
    target = replace(cpu.target("native"), l3=1 << 15)
    n = 4100
    kernel = tir.build(elementwise(tir.schedule(chain((n,))), target, parallel=False))
    assert "vmovntps" in kernel.asm
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)
    whole = np.full(n + 64, 7, np.float32)
    start = -whole.ctypes.data % 64 // 4 + offset
    out = whole[start : start + n]
    kernel(x, z, out=out)
    np.testing.assert_allclose(out, np.maximum(1.5 * x + z, 0) * 0.5 + 0.25, rtol=1e-5, atol=1e-6)
    assert (whole[:start] == 7).all() and (whole[start + n :] == 7).all()


def test_what_is_no_chain_is_refused() -> None:
    x = tir.placeholder((8, 8), name="x")
    turned = tir.compute((8, 8), lambda i, j: x[j, i], name="t")
    for made in (ops.softmax(x), ops.sum(x, axis=0), turned):
        with pytest.raises(tir.ArgumentError, match="elementwise: expected stages"):
            elementwise(tir.schedule(made))
