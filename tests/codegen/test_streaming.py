"""Streaming stores and prefetches in code: where they are allowed; nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir

TARGETS = ("native", "x86-64-v3")


def doubled(shape: tuple[object, ...], dtype: str, width: int) -> tir.Schedule:
    A = tir.placeholder(shape, dtype, name="A")
    B = tir.compute(shape, lambda i, j: A[i, j] + A[i, j], name="B")
    return tir.schedule(B).vectorize("j", width).non_temporal("B")


def streams(kernel: tir.Kernel) -> int:
    return kernel.asm.count("vmovnt")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize(("dtype", "width"), [("float32", 16), ("float64", 4), ("int8", 32)])
def test_any_alignment(dtype: str, width: int, threads: bool, target: str) -> None:
    s = doubled((tir.var("n"), tir.var("m")), dtype, width)
    kernel = tir.build(s.parallel("i") if threads else s, target=target)
    assert streams(kernel) and "sfence" in kernel.asm
    for shape in ((5, 64), (3, 33), (1, 1), (0, 4), (4, 100)):
        a = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
        for offset in (0, 1, 16 // a.itemsize):
            room = np.full(a.size + 128 // a.itemsize, 7, dtype)
            start = -room.ctypes.data % 64 // a.itemsize + offset
            out = room[start : start + a.size].reshape(shape)
            kernel(a, out=out)
            assert out.tobytes() == (a + a).tobytes()
            assert (room[:start] == 7).all() and (room[start + a.size :] == 7).all()


def test_rows_that_do_not_all_begin_at_a_multiple_are_stored_plainly() -> None:
    kernel = tir.build(doubled((9, 1027), "float32", 16))
    assert not streams(kernel) and "sfence" not in kernel.asm
    assert kernel.notes == ("B: plain stores: none of whole vectors at multiples of 16 bytes",)


def test_one_test_in_front_of_the_nest() -> None:
    kernel = tir.build(doubled((9, 1024), "float32", 16))
    assert kernel.llvm.count("label %stream") == 1
    assert kernel.llvm.count("!nontemporal") == 1
    assert kernel.llvm.count("x86.sse.sfence()") == 2  # declared, called


def test_a_stage_in_the_arena_needs_no_test() -> None:
    A = tir.placeholder((64, 1024), name="A")
    X = tir.compute((64, 1024), lambda i, j: A[i, j] + 1.0, name="X")
    Y = tir.compute((64, 1024), lambda i, j: X[63 - i, j], name="Y")
    kernel = tir.build(tir.schedule(Y).vectorize("X.j", 16).non_temporal("X"))
    assert kernel.llvm.count("label %stream") == 0 and streams(kernel)
    a = np.random.default_rng(0).standard_normal((64, 1024), np.float32)
    assert kernel(a).tobytes() == (a + 1)[::-1].tobytes()


def test_a_threshold_is_tested_where_sizes_are_not_known() -> None:
    A = tir.placeholder((tir.var("n"),), name="A")
    B = tir.compute(A.shape, lambda i: A[i] * 2.0, name="B")
    kernel = tir.build(tir.schedule(B).vectorize("i", 16).non_temporal("B", above=4096))
    assert kernel.llvm.count(", 4096") == 1
    for n in (1024, 1025, 5000):
        a = np.arange(n, dtype=np.float32)
        assert kernel(a).tobytes() == (2 * a).tobytes()


def test_without_the_hints_no_trace_of_them() -> None:
    A = tir.placeholder((64,), name="A")
    kernel = tir.build(tir.schedule(tir.compute((64,), lambda i: A[i] * 2.0, name="B")))
    assert "!93" not in kernel.llvm and "llvm.prefetch" not in kernel.llvm


@pytest.mark.parametrize(("target", "width", "lines"), [("native", 16, 4), ("x86-64-v3", 8, 2)])
def test_each_line_is_asked_for_once(target: str, width: int, lines: int) -> None:
    A = tir.placeholder((8, 4096), name="A")
    B = tir.compute((8, 4096), lambda i, j: A[i, j] * 2.0, name="B")
    s = tir.schedule(B).vectorize("j", width).unroll("j", 4).prefetch("A", "i")
    kernel = tir.build(s, target=target)
    assert kernel.llvm.count("call void @llvm.prefetch.p0") == lines
    a = np.random.default_rng(0).standard_normal((8, 4096), np.float32)
    assert kernel(a).tobytes() == (2 * a).tobytes()
