"""Sums over what has this index: histograms, scatter_add, as declared and scattered."""

from __future__ import annotations

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.cpu import scatter
from tensorir.ops import scatter_add

SIZES = [(5, 4, 3), (1, 0, 2), (100, 1000, 7), (3, 50, 16), (0, 5, 4), (4, 9, 1)]


def added() -> tir.Tensor:
    n, m, d = (tir.var(x) for x in "nmd")
    x, u = tir.placeholder((n, d), name="x"), tir.placeholder((m, d), name="u")
    return scatter_add(x, tir.placeholder((m,), "int32", name="index"), u)


def operands(n: int, m: int, d: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(n + m + d)
    index = rng.integers(-2, n + 2, m).astype("int32")
    return (
        rng.standard_normal((n, d)).astype("float32"),
        index,
        rng.standard_normal((m, d)).astype("float32"),
    )


@pytest.fixture(scope="module")
def declared() -> tir.Kernel:
    return tir.build(added())


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("parallel", [False, True])
def test_scatter_add_bit_for_bit(declared: tir.Kernel, target: str, parallel: bool) -> None:
    s = scatter(tir.schedule(added()), target, parallel=parallel)
    kernel = tir.build(s, target=target)
    for size in SIZES:
        data = operands(*size)
        assert kernel(*data).tobytes() == declared(*data).tobytes()


def test_the_library_takes_it() -> None:
    steps = [x.primitive for x in schedules.schedule_for(added()).trace]
    assert steps[:2] == ["scatter", "vectorize"]


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_histogram(dtype: str) -> None:
    n = tir.var("n")
    A = tir.placeholder((n,), dtype, name="A")
    k = tir.reduce_axis(n, name="k")
    H = tir.compute((9,), lambda b: tir.sum(tir.select(A[k] == b, 1, 0), axis=k), name="H")
    s = tir.schedule(H).scatter("H")
    kernels = [tir.build(s, validate=True), tir.build(s.atomic("H").parallel("k"))]
    before, tir.knobs.parallel_threshold = tir.knobs.parallel_threshold, 0
    kernels.append(tir.build(s.atomic("H").split("k", 8).parallel("ko")))
    tir.knobs.parallel_threshold = before
    for size in (0, 1, 1000):
        a = np.random.default_rng(size).integers(0, 12, size).astype(dtype)
        wanted = np.bincount(a, minlength=12)[:9]
        for kernel in kernels:
            assert np.array_equal(kernel(a), wanted)


def test_greatest_of_each_group() -> None:
    A = tir.placeholder((50,), name="A")
    group = tir.placeholder((50,), "int64", name="group")
    k = tir.reduce_axis(50, name="k")
    low = -np.inf
    M = tir.compute((6,), lambda g: tir.max(tir.select(group[k] == g, A[k], low), axis=k), name="M")
    s = tir.schedule(M).scatter("M")
    a, at = np.random.default_rng(0).standard_normal(50).astype("float32"), np.arange(50) % 7
    wanted = [a[at == g].max() for g in range(6)]
    assert tir.build(s)(at, a).tolist() == wanted


def test_it_runs_only_where_the_index_lies() -> None:
    """Guard bytes: indices far outside write nothing, whatever index_check says."""
    A = tir.placeholder((4,), "int64", name="A")
    k = tir.reduce_axis(4, name="k")
    H = tir.compute((3,), lambda b: tir.sum(tir.select(A[k] == b, 1, 0), axis=k), name="H")
    a = np.array([-(2**62), 2, 3, 2**62])
    for check in ("raise", "clamp", "off"):
        kernel = tir.build(tir.schedule(H).scatter("H"), index_check=check)
        assert kernel(a).tolist() == [0, 0, 1]


def test_replay() -> None:
    tensor = added()
    s = scatter(tir.schedule(tensor))
    assert tir.replay(tir.schedule(tensor), s.trace).loops() == s.loops()
