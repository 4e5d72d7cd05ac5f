"""Copies into shared memory that run ahead of the work on them."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tensorir.support.errors import ArgumentError, ScheduleError, UnsupportedError
from tests.cuda.programs import staged
from tests.errors.saying import matmul


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _unbound(m: object, n: object, k: object, stages: int, **how: str) -> tir.Schedule:
    s = matmul(m, n, k).tile("i", "j", 16, 16, into=("by", "bx", "ty", "tx"))
    s = s.split("k", 16, into=("ko", "ki")).reorder("by", "bx", "ko", "ty", "tx", "ki")
    s = s.cache_read("A", "shared", at="ko", name="As")
    s = s.cache_read("B", "shared", at="ko", name="Bs")
    return s.pipeline("ko", stages, **how)


@pytest.mark.parametrize("engine", ["cp_async", "copy"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_one_barrier_an_iteration(stages: int, engine: str) -> None:
    kernel = tir.build(staged(33, 20, 90).pipeline("ko", stages, engine=engine), target="emulator")
    a, b = _random(33, 90), _random(90, 20)
    for seed in range(3):
        kernel.seed = seed
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert kernel.ptx.count("bar.sync") == len(kernel.launches[0].barriers) == 1
    assert kernel.launches[0].shared_bytes == 2 * stages * 16 * 16 * 4
    waits = [f"cp.async.wait_group \t{stages - 2};"] if engine == "cp_async" else []
    found = [x.strip() for x in kernel.ptx.splitlines() if "wait_group" in x]
    assert found == waits
    assert ("cp.async.ca.shared.global" in kernel.ptx) is (engine == "cp_async")


def test_sizes_that_come_with_the_call() -> None:
    names = [tir.var(x) for x in "mnk"]
    kernel = tir.build(staged(*names).pipeline("ko", 3), target="emulator")
    for m, n, k in ((20, 40, 24), (17, 9, 1), (5, 16, 100)):
        a, b = _random(m, k), _random(k, n)
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_without_asynchronous_copies() -> None:
    kernel = tir.build(staged(16, 16, 64).pipeline("ko", 3), target="emulator:sm_75")
    assert "cp.async" not in kernel.ptx
    a, b = _random(16, 64), _random(64, 16)
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_the_first_iterations_apart() -> None:
    kernel = tir.build(staged(16, 16, 100).pipeline("ko", 3).peel("ko", first=2), target="emulator")
    a, b = _random(16, 100), _random(100, 16)
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)
    waits = [x.split()[-1] for x in kernel.ptx.splitlines() if "wait_group" in x]
    assert waits == ["0;", "1;"]


def test_a_dropped_wait_is_found() -> None:
    from tensorir.emulator.ptx import EmulationError, run

    kernel = tir.build(staged(16, 16, 64).pipeline("ko", 3), target="emulator")
    a, b, c = _random(16, 64), _random(64, 16), np.zeros((16, 16), "float32")
    (launch,) = kernel.launches
    text = "\n".join(x for x in kernel.ptx.splitlines() if "wait_group" not in x)
    with pytest.raises(EmulationError, match="has not been waited for"):
        run(text, launch.name, (1, 1), launch.threads, (a, b, c), shared=launch.shared_bytes)


@pytest.mark.parametrize("target", ["x86-64-v3"])
def test_on_a_processor(target: str) -> None:
    s = _unbound(20, 33, 50, 3)
    with pytest.raises(UnsupportedError, match="As is in shared memory"):
        tir.build(s, target=target)
    near = s.set_scope("As", "local").set_scope("Bs", "local")
    a, b = _random(20, 50), _random(50, 33)
    np.testing.assert_allclose(tir.build(near, target=target)(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_replayed() -> None:
    s = staged(16, 16, 64).pipeline("ko", 2, engine="copy").pad("As", 4).swizzle("Bs", 2, 2, 2)
    again = tir.replay(matmul(16, 16, 64), s.trace)
    assert again.loops() == s.loops()
    steps = [x.text for x in s.trace.steps[-3:]]
    assert steps == ['pipeline("ko", 2, engine="copy")', 'pad("As", 4)', 'swizzle("Bs", 2, 2, 2)']


def test_refused() -> None:
    plain = matmul(32, 32, 32).split("k", 16, into=("ko", "ki")).reorder("ko", "i", "j", "ki")
    with pytest.raises(ScheduleError, match="no buffer in shared memory is filled in each iter"):
        plain.pipeline("ko", 2)
    s = staged(32, 32, 32)
    with pytest.raises(ScheduleError, match="'ty' is marked already: bind"):
        s.pipeline("ty", 2)
    with pytest.raises(ArgumentError, match="engine is one of cp_async, copy"):
        s.pipeline("ko", 2, engine="tma")
    with pytest.raises(ScheduleError, match="no buffer in shared memory"):
        s.pipeline("ko", 2).pipeline("ko", 2)
    A = tir.placeholder((66,), name="A")
    B = tir.compute((64,), lambda i: A[i] + A[i + 2], name="B")
    wide = tir.schedule(B).split("i", 16).cache_read("A", "shared", at="io", name="As")
    with pytest.raises(UnsupportedError, match="does not move by whole tiles along 'io'"):
        wide.pipeline("io", 2)


# -- banks
@pytest.mark.parametrize("n", [64, 61])
def test_no_bank_is_met_twice(n: int) -> None:
    A = tir.placeholder((n, n), name="A")
    B = tir.compute((n, n), lambda i, j: A[j, i] * 2.0, name="B")
    s = tir.schedule(B).tile("i", "j", 32, 32, into=("bi", "bj", "ii", "ij"))
    s = s.cache_read("A", "shared", at="bj", name="As")
    s = s.bind("bi", "blockIdx.y").bind("bj", "blockIdx.x")
    s = s.split("ii", 8, into=("io", "ty")).bind("ty", "threadIdx.y").bind("ij", "threadIdx.x")
    s = s.split("As.j", 8, into=("jo", "jt")).bind("jt", "threadIdx.y").bind("As.i", "threadIdx.x")
    a = _random(n, n)
    counts = {}
    for name, made in {
        "plain": s,
        "pad": s.pad("As", 1),
        "align": s.storage_align("As", 32, 1),
        "swizzle": s.swizzle("As", 5, 0, 5),
        "pieces": s.swizzle("As"),
    }.items():
        kernel = tir.build(made, target="emulator")
        np.testing.assert_array_equal(kernel(a), a.T * np.float32(2))
        counts[name] = kernel.reports[0].bank_conflicts
    assert counts["pad"] == counts["align"] == counts["swizzle"] == 0
    assert 0 < counts["pieces"] < counts["plain"]


def test_banks_refused() -> None:
    s = staged(16, 16, 64)
    with pytest.raises(ScheduleError, match="acc is in local memory"):
        s.pad("acc", 1)
    with pytest.raises(ScheduleError, match="As is swizzled already"):
        s.swizzle("As").pad("As", 1)
    with pytest.raises(ScheduleError, match="As is padded already"):
        s.storage_align("As", 8, 4).swizzle("As")
    with pytest.raises(ScheduleError, match="3 bits overlap with those 2 higher"):
        s.swizzle("As", 3, 2, 2)
