"""Kernels for CUDA from tensor expressions, run and checked in the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import schedules
import tensorir as tir
from tensorir.emulator.ptx import EmulationError, run
from tensorir.ops import operator
from tests.cuda.programs import doubled, staged, tiled
from tests.errors.saying import matmul


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("n", [1, 127, 128, 1000])
def test_a_thread_for_each_element(n: int) -> None:
    kernel = tir.build(doubled(tir.var("n")), target="emulator")
    a = _random(n)
    np.testing.assert_array_equal(kernel(a), a * np.float32(2) + np.float32(1))
    (report,) = kernel.reports
    assert report.extra_sectors == 0
    assert [c.bytes for c in report.of("ld.global")] == [4 * n]


def test_of_nothing() -> None:
    kernel = tir.build(doubled(tir.var("n")), target="emulator")
    assert kernel(np.zeros(0, "float32")).shape == (0,)
    assert kernel.reports == ()


@pytest.mark.parametrize("make", [staged, tiled])
@pytest.mark.parametrize("sizes", [(64, 64, 32), (33, 65, 17), (5, 7, 3), (1, 1, 1)])
def test_matmul(make: object, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    kernel = tir.build(make(m, n, k), target="emulator")  # type: ignore[operator]
    a, b = _random(m, k), _random(k, n)
    for seed in range(2):
        kernel.seed = seed
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [staged, tiled])
def test_matmul_of_symbolic_sizes(make: object) -> None:
    names = [tir.var(x) for x in "mnk"]
    kernel = tir.build(make(*names), target="emulator")  # type: ignore[operator]
    for m, n, k in ((20, 40, 24), (37, 9, 11)):
        a, b = _random(m, k), _random(k, n)
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_barriers_say_what_they_are_for() -> None:
    kernel = tir.build(staged(64, 64, 64), target="emulator")
    (launch,) = kernel.launches
    assert kernel.ptx.count("bar.sync") == len(launch.barriers) == 2
    first, second = launch.barriers
    assert "As from As.copy to C" in first
    assert "Bs of C is used again by Bs.copy of the next ko" in second


def test_no_barrier_where_threads_keep_to_themselves() -> None:
    kernel = tir.build(doubled(1000), target="emulator")
    assert kernel.launches[0].barriers == ()
    assert "bar.sync" not in kernel.ptx


@pytest.mark.parametrize("which", [0, 1])
def test_each_barrier_is_needed(which: int) -> None:
    kernel = tir.build(staged(32, 32, 32), target="emulator")
    (launch,) = kernel.launches
    parts = kernel.ptx.split("bar.sync \t0;")
    text = "bar.sync \t0;".join(("".join(parts[which : which + 2]),))
    joined = [*parts[:which], text, *parts[which + 2 :]]
    broken = "bar.sync \t0;".join(joined)
    assert broken.count("bar.sync") == kernel.ptx.count("bar.sync") - 1
    a, b, c = _random(32, 32), _random(32, 32), np.zeros((32, 32), "float32")
    with pytest.raises(EmulationError) as found:
        run(broken, launch.name, (2, 2), launch.threads, [a, b, c], shared=launch.shared_bytes)
    assert found.value.finding is not None and found.value.finding.kind == "race"


def test_registers_hold_what_a_thread_keeps() -> None:
    kernel = tir.build(tiled(64, 64, 64), target="emulator")
    assert ".local" not in kernel.ptx
    assert kernel.ptx.count("fma.rn.f32") == 8 * 16


def test_two_launches_share_memory() -> None:
    kernel = schedules.build("softmax", (5, 30), target="emulator")
    assert [x.name for x in kernel.launches] == [f"tir_softmax_{k}" for k in range(4)]
    x = 4 * _random(5, 30)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(kernel(x), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


OPERATORS = (
    "add", "relu", "gelu", "exp", "sum", "mean", "argmax", "logsumexp", "matmul", "einsum", "dot",
    "batch_matmul", "conv2d", "conv2d_nhwc", "depthwise_conv2d", "max_pool", "avg_pool", "softmax",
    "layer_norm", "group_norm", "transpose", "concatenate", "gather", "embedding", "one_hot",
    "attention", "rotary", "resize_linear", "quantized_matmul", "jacobi", "cumsum", "scatter_add",
)  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_the_default_is_right(name: str) -> None:
    op = operator(name)
    sizes = [{0: 5, 1: 4, 2: 6, 3: 7, 4: 7}.get(k, 3) for k in range(len(op.sizes))]
    made, inputs = op.declare(*sizes)
    outputs = made if isinstance(made, tuple) else (made,)
    s = schedules.schedule_for(*outputs, target="emulator")
    names = [*(t.name for t in inputs), *(t.name for t in outputs)]
    kernel = tir.build(s, target="emulator", args=names)
    arrays = op.arrays(*sizes)
    got, want = kernel(*arrays), op.expected(*arrays)
    pairs = zip(got, want, strict=True) if isinstance(got, tuple) else ((got, want),)
    for g, w in pairs:
        if g.dtype.kind == "f":
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(g, w)


def test_a_loaded_index_is_checked() -> None:
    kernel = schedules.build("take", (10, 3), np.zeros(4, "int64"), target="emulator")
    x = _random(10, 3)
    np.testing.assert_array_equal(kernel(x, np.array([0, 9, 3, 1])), x[[0, 9, 3, 1]])
    with pytest.raises(tir.KernelError, match="99"):
        kernel(x, np.array([0, 99, 3, 1]))


def test_a_processor_has_no_blocks() -> None:
    with pytest.raises(tir.UnsupportedError, match="bound to blockIdx.x, which a CPU does not"):
        tir.build(doubled(64))
    s = matmul().cache_read("A", "shared", at="i")
    with pytest.raises(tir.UnsupportedError, match="shared memory, which this target does not"):
        tir.build(s)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"])
def test_every_architecture(arch: str) -> None:
    kernel = tir.build(staged(64, 64, 64), target=f"cuda:{arch}")
    assert f".target {arch}" in kernel.ptx
    pytest.importorskip("cuda.bindings.driver")
    from tests.cuda.fake_driver import use

    refused = pytest.raises(tir.UnsupportedError, match="can be built and read here, but not run")
    with use(None, "its library was not found"), refused:
        kernel(_random(64, 64), _random(64, 64))


def test_no_such_architecture() -> None:
    with pytest.raises(tir.ArgumentError, match="no architecture 'sm_8'; did you mean 'sm_8"):
        tir.build(doubled(64), target="cuda:sm_8")
