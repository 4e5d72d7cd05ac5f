"""Windows over borders: what is decided before the code runs, masks, strides, fused indices."""

from __future__ import annotations

import numpy as np

import tensorir as tir
from tensorir.schedule.schedule import Schedule


def padded(n: int, stride: int = 1) -> tir.Tensor:
    """A row with a zero on either side, every `stride`-th element of it."""
    A = tir.placeholder((n,), name="A")
    m = (n + 1) // stride + 1
    made: tir.Tensor = tir.compute(
        (m,),
        lambda i: tir.if_then_else(
            (stride * i - 1 >= 0) & (stride * i - 1 < n), A[stride * i - 1], 0.0
        ),
        name="B",
    )
    return made


def run(s: Schedule, a: np.ndarray, want: np.ndarray, target: str = "native") -> tir.Kernel:
    kernel = tir.build(s, target=target)
    np.testing.assert_array_equal(kernel(a), want)
    return kernel


def test_a_condition_that_a_loop_between_constants_decides_leaves_no_trace() -> None:
    A = tir.placeholder((8, 64), name="A")
    B = tir.compute(
        (8, 64), lambda i, j: tir.if_then_else((i - 1 >= 0) & (i < 99), A[i - 1, j], 0.0), name="B"
    )
    s = tir.schedule(B).vectorize("j", width=16).peel("i", first=1)
    a = np.random.default_rng(0).standard_normal((8, 64), np.float32)
    want = np.concatenate([np.zeros((1, 64), np.float32), a[:-1]])
    kernel = run(s, a, want)
    assert "masked" not in kernel.llvm and "select" not in kernel.llvm


def test_a_masked_load_is_the_choice_of_zero() -> None:
    a = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    want = np.concatenate([[0], a, [0]]).astype(np.float32)
    for target in ("native", "x86-64-v3"):
        kernel = run(tir.schedule(padded(40)).vectorize("i", width=8), a, want, target)
        assert "masked.load" in kernel.llvm and "select" not in kernel.llvm


def test_another_value_than_zero_is_chosen() -> None:
    A = tir.placeholder((40,), name="A")
    B = tir.compute((48,), lambda i: tir.if_then_else(i < 40, A[i], -0.0), name="B")
    a = np.ones(40, np.float32)
    got = tir.build(tir.schedule(B).vectorize("i", width=16))(a)
    assert np.signbit(got).tolist() == [False] * 40 + [True] * 8


def test_every_second_or_third_element_under_a_mask_is_no_gather() -> None:
    a = np.random.default_rng(0).standard_normal(101).astype(np.float32)
    row = np.concatenate([[0], a, np.zeros(3)]).astype(np.float32)
    for stride in (2, 3, 4):
        for target in ("native", "x86-64-v3"):
            B = padded(101, stride)
            s = tir.schedule(B).vectorize("i", width=8)
            kernel = run(s, a, row[::stride][: int(B.shape[0])], target)
            assert not kernel.notes and "gather" not in kernel.llvm


def test_fused_dimensions_that_are_neighbours_walk_through_memory() -> None:
    A = tir.placeholder((6, 5, 7), name="A")
    B = tir.compute((6, 5, 7), lambda i, j, k: A[i, j, k] + 1.0, name="B")
    s = tir.schedule(B).fuse("j", "k", into="jk").fuse("i", "jk", into="p").vectorize("p", width=16)
    a = np.random.default_rng(0).standard_normal((6, 5, 7), np.float32)
    kernel = run(s, a, a + np.float32(1))
    assert not kernel.notes and "sdiv" not in kernel.llvm


def test_a_tile_of_fused_rows_is_in_registers() -> None:
    A = tir.placeholder((9, 13), name="A")
    C = tir.compute((117,), lambda p: A[p // 13, p % 13] * 2.0, name="C")
    B = tir.compute((9, 13), lambda i, j: C[13 * i + j] + 1.0, name="B")
    s = tir.schedule(B).fuse("B.i", "j", into="q").split("q", 32, into=("qo", "qi"))
    s = s.compute_at("C", "qo").set_scope("C", "local").vectorize("p", width=8)
    s = s.vectorize("qi", width=8)
    a = np.random.default_rng(0).standard_normal((9, 13), np.float32)
    assert not run(s, a, a * np.float32(2) + np.float32(1)).notes


def test_windows_that_begin_later_for_some_taps_are_written_out() -> None:
    A = tir.placeholder((9, 32), name="A")
    r = tir.reduce_axis(3, name="r")
    B = tir.compute(
        (5, 32),
        lambda i, j: tir.max(
            A[2 * i + r - 1, j], axis=r, where=(2 * i + r - 1 >= 0) & (2 * i + r < 10)
        ),
        name="B",
    )
    s = tir.schedule(B).split("i", 2, into=("io", "ii")).reorder("io", "ii", "j")
    s = s.reorder("r", "ii", "j").cache_write("B", "local", at="io").vectorize("j", width=16)
    s = s.unroll("ii").unroll("r").peel("io", first=1, last=1)
    a = np.random.default_rng(0).standard_normal((9, 32), np.float32)
    want = np.stack([a[max(2 * i - 1, 0) : 2 * i + 2].max(axis=0) for i in range(5)])
    assert not [n for n in run(s, a, want).notes if "no constant extent" in n]
