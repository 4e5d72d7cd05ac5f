"""Tails, triangles, ranges that do not start at 0, reads outside, large strides."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

import tensorir as tir
from tensorir.support.errors import (
    ArgumentError,
    BoundsError,
    IllegalSchedule,
    ScheduleError,
    TensorIRError,
)
from tests.conformance.everyway import agree, call, everyway, same

# -- H07: a reduction's own axis


def test_a_reduction_axis_is_not_parallel_until_it_is_factored() -> None:
    # T2 as well
    V = tir.placeholder((128,), name="V")
    k = tir.reduce_axis(128, name="k")
    S = tir.compute((), lambda: tir.sum(V[k], axis=k), name="S")
    s = tir.schedule(S)
    for step in ("parallel", "vectorize"):
        with pytest.raises(IllegalSchedule) as caught:
            getattr(s, step)("k")
        assert caught.value.primitive == step
        assert "k" in str(caught.value)
        assert "S" in str(caught.value)
        assert caught.value.witness is not None
    ones = np.ones(128, "f4")
    f = s.split("k", 16).rfactor("ko")
    assert call(tir.build(f.parallel("ko")), {"V": ones}, [()])[0] == 128
    assert call(tir.build(s.vector_reduce("k", 8)), {"V": ones}, [()])[0] == 128


@pytest.mark.parametrize("shape", [(2, 2, 4), (5, 7, 9)])
def test_the_reduction_axis_of_a_matmul(shape: tuple[int, int, int]) -> None:
    m, n, p = shape
    A, B = tir.placeholder((m, p), name="A"), tir.placeholder((p, n), name="B")
    k = tir.reduce_axis(p, name="k")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = tir.schedule(C)
    for step in ("parallel", "vectorize"):
        with pytest.raises(IllegalSchedule, match="k"):
            getattr(s, step)("k")
    a, b = np.ones((m, p), "f4"), np.ones((p, n), "f4")
    got = call(tir.build(s.rfactor("k").parallel("k")), {"A": a, "B": b}, [(m, n)])[0]
    agree(got, np.full((m, n), p), 0, "rfactor")
    shared = tir.build(s.reorder("k", "i", "j").atomic("C").parallel("k"), validate=True)
    agree(call(shared, {"A": a, "B": b}, [(m, n)])[0], np.full((m, n), p), 0, "atomic")


# -- H08: triangles


def triangle(n: int, p: int) -> tuple[tir.Tensor, np.ndarray, np.ndarray]:
    A = tir.placeholder((n, p), name="A")
    k = tir.reduce_axis(p, name="k")
    C = tir.compute(
        (n, n), lambda i, j: tir.sum(A[i, k] * A[j, k], axis=k), name="C", where=lambda i, j: j <= i
    )
    a = np.random.default_rng(8).integers(-4, 5, (n, p)).astype("f4")
    return C, a, np.tril(a @ a.T)


def test_a_triangular_nest_under_every_schedule() -> None:
    C, a, expect = triangle(10, 4)
    same(C, {"A": a}, expect, where=np.tri(10, dtype=bool))


@pytest.mark.parametrize("case", range(5))
def test_a_triangular_nest_interchanged_and_tiled(case: int) -> None:
    C, a, expect = triangle(10, 4)
    s = tir.schedule(C)
    s = [
        lambda: s.reorder("j", "i"),
        lambda: s.tile("i", "j", 4, 4),
        lambda: s.tile("i", "j", 4, 4).reorder("io", "ii", "jo", "ji"),
        lambda: s.split("i", 4).split("j", 4).reorder("io", "jo", "ii"),
        lambda: (
            s.split("i", 4, tail="cut").split("j", 4, tail="guard").reorder("jo", "io", "ji", "ii")
        ),
    ][case]()
    (got,) = call(tir.build(s, validate=True), {"A": a}, [(10, 10)])
    low = np.tri(10, dtype=bool)
    agree(got[low], expect[low], 0, str(s))
    assert (got[~low].view(np.uint8) == 0xCD).all()


def test_a_triangle_is_not_fused_as_if_it_were_a_rectangle() -> None:
    # T20: refused
    C, _, _ = triangle(10, 4)
    with pytest.raises(TensorIRError, match="fuse"):
        tir.schedule(C).fuse("i", "j")


# -- H09: tails of tails


def copy(n: int) -> tir.Tensor:
    A = tir.placeholder((n,), "int32", name="A")
    return tir.compute((n,), lambda i: A[i], name="C")


@pytest.mark.parametrize("n", [1, 2, 3, 7, 15, 16, 17])
@pytest.mark.parametrize("tail", ["auto", "guard", "cut"])
def test_splits_inside_splits(n: int, tail: str) -> None:
    a = np.arange(n, dtype=np.int32)
    s = tir.schedule(copy(n)).split("i", 2, tail=tail).split("ii", 4, tail=tail)
    for t in (s, s.reorder("iio", "iii", "io"), s.reorder("iii", "io", "iio"), s.unroll("iii")):
        (got,) = call(tir.build(t, validate=True), {"A": a}, [(n,)])
        agree(got, a, 0, str(t))


@pytest.mark.parametrize("n", [1, 3, 7, 8, 9])
@pytest.mark.parametrize("width", [4, 8, 16])
def test_vectors_longer_than_the_array(n: int, width: int) -> None:
    a = np.arange(n, dtype=np.int32)
    (got,) = call(tir.build(tir.schedule(copy(n)).vectorize("i", width=width)), {"A": a}, [(n,)])
    agree(got, a, 0, "vectorize")


def test_a_stage_on_part_of_a_range() -> None:
    A = tir.placeholder((16,), "int32", name="A")
    C = tir.compute((16,), lambda i: A[i] + 1, name="C", where=lambda i: (3 <= i) & (i < 11))
    a = np.arange(16, dtype=np.int32)
    inside = (np.arange(16) >= 3) & (np.arange(16) < 11)
    same(C, {"A": a}, a + 1, where=inside)
    (got,) = call(tir.build(tir.schedule(C).vectorize("i", width=4)), {"A": a}, [(16,)])
    agree(got[inside], (a + 1)[inside], 0, "vectorize")
    assert (got[~inside].view(np.uint8) == 0xCD).all()
    fresh = tir.build(tir.schedule(C))(a)
    assert (fresh[~inside] == 0).all()


def test_one_iteration_split_by_many() -> None:
    a = np.arange(1, dtype=np.int32)
    (got,) = call(tir.build(tir.schedule(copy(1)).split("i", 64)), {"A": a}, [(1,)])
    assert got[0] == 0


@pytest.mark.parametrize("factor", [0, -1, -64])
def test_splits_by_nothing_are_refused(factor: int) -> None:
    with pytest.raises(ScheduleError, match="factor"):
        tir.schedule(copy(8)).split("i", factor)


def test_splits_of_an_unrolled_tail_of_a_relu() -> None:
    # T16
    n = 130
    A = tir.placeholder((n,), name="A")
    C = tir.compute((n,), lambda i: tir.maximum(A[i], 0), name="C")
    a = np.random.default_rng(1).standard_normal(n).astype("f4")
    s = tir.schedule(C).split("i", 8).split("io", 16).unroll("ii")
    (got,) = call(tir.build(s, validate=True), {"A": a}, [(n,)])
    agree(got, np.maximum(a, 0), 0, str(s))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
def test_guarded_reads_in_a_partial_tile_that_is_unrolled(n: int) -> None:
    # the first row of the tile reads nothing of A: it is no safe place to read from instead
    size = tir.var("n")
    A = tir.placeholder((size,), name="A")
    C = tir.compute((size,), lambda i: tir.if_then_else(i >= 2, A[i - 2], 7.0), name="C")
    a = np.arange(n, dtype="f4")
    expect = np.concatenate([[7, 7], a])[:n]
    s = tir.schedule(C).split("i", 5, tail="cut").unroll("ii").cache_write("C", "local", at="ii")
    for t in (s, s.parallel("io"), tir.schedule(C).vectorize("i", width=8)):
        (got,) = call(tir.build(t, validate=True), {"A": a}, [(n,)])
        agree(got, expect, 0, str(t))


# -- H11: reads outside


def test_a_read_past_the_end_of_a_constant_size() -> None:
    # T8
    A = tir.placeholder((256,), name="A")
    C = tir.compute((256,), lambda i: A[i + 1], name="C")
    with pytest.raises(
        BoundsError, match=r"reads A\[i \+ 1\] outside A.*is 256 at i = 255.*0..255"
    ):
        tir.schedule(C)


def test_a_read_past_the_end_of_a_symbolic_size() -> None:
    n = tir.var("n")
    A = tir.placeholder((n,), name="A")
    C = tir.compute((n,), lambda i: A[i + 1], name="C")
    with pytest.raises(TensorIRError, match=r"A\[i \+ 1\]"):
        tir.build(tir.schedule(C))(np.zeros(4, "f4"))


def test_a_reduction_longer_than_its_tensor() -> None:
    A = tir.placeholder((3,), name="A")
    k = tir.reduce_axis(64, name="k")
    with pytest.raises(BoundsError, match=r"A\[k\].*is 3 at k = 3"):
        tir.schedule(tir.compute((), lambda: tir.sum(A[k], axis=k), name="C"))


def test_an_axis_that_runs_backwards() -> None:
    with pytest.raises(ArgumentError, match="runs from 7 to 0"):
        tir.reduce_axis((7, 0), name="k")


def test_too_few_indices() -> None:
    A = tir.placeholder((3, 4, 5), name="A")
    with pytest.raises(
        ArgumentError, match=r"A has 3 dimensions \(3, 4, 5\), but is indexed with 2"
    ):
        tir.compute((3, 4), lambda i, j: A[i, j], name="C")


@pytest.mark.parametrize("index", [-1, 3, 2**62])
def test_a_constant_index_outside(index: int) -> None:
    A = tir.placeholder((3,), name="A")
    with pytest.raises(BoundsError, match=rf"index 0 of A is {index}"):
        tir.compute((2,), lambda i: A[index], name="C")


def test_a_loaded_index_is_checked_when_it_runs() -> None:
    A = tir.placeholder((5,), name="A")
    I = tir.placeholder((4,), "int32", name="I")
    C = tir.compute((4,), lambda i: A[I[i]], name="C")
    a = np.arange(5, dtype="f4")
    same(C, {"A": a, "I": np.array([4, 0, 3, 3], "i4")}, np.array([4, 0, 3, 3], "f4"))
    for name, s in everyway(C):
        kernel = tir.build(s)
        order = [x.name for x in kernel.arguments]
        for wrong in (5, -1, 2**31 - 1, -(2**31)):
            given = {"A": a, "I": np.array([1, 2, wrong, 0], "i4")}
            with pytest.raises(TensorIRError, match="A"):
                kernel(*(given[x] for x in order if x in given))
            soft = tir.build(s, index_check="clamp")
            got = soft(*(given[x] for x in order if x in given))
            assert got[2] == min(max(wrong, 0), 4), name


# -- H12: more than 2**31 elements, the cheap form


def test_offsets_beyond_32_bits() -> None:
    rows, stride, cols = 4096, 1 << 20, 8
    region = mmap.mmap(-1, rows * stride * 4)  # 16 GiB that are never touched but in four rows
    whole = np.frombuffer(region, np.float32).reshape(rows, stride)
    touched = [0, 2047, 2048, 4095]
    for r in touched:
        whole[r, :cols] = np.arange(cols) + r
    A = tir.placeholder((rows, stride), name="A")
    R = tir.placeholder((4,), "int32", name="R")
    C = tir.compute((4, cols), lambda i, j: A[R[i], j] * 2, name="C")
    D = tir.compute((4, cols), lambda i, j: A[(i % 2) * 2048 + (i // 2) * 2047, j], name="D")
    expect = whole[touched][:, :cols].copy()
    for s in (
        tir.schedule(C),
        tir.schedule(C).vectorize("j", width=8),
        tir.schedule(C).vectorize("i", width=4),
    ):
        kernel = tir.build(s)
        given = {"A": whole, "R": np.array(touched, "i4")}
        got = kernel(*(given[x.name] for x in kernel.arguments if x.role == "input"))
        agree(got, expect * 2, 0, str(s))
    for s in (tir.schedule(D), tir.schedule(D).vectorize("i", width=4)):
        agree(tir.build(s)(whole), whole[[0, 2048, 2047, 4095]][:, :cols], 0, str(s))


def test_a_buffer_that_is_too_large_is_refused_when_it_is_asked_for() -> None:
    n = tir.var("n")
    A = tir.placeholder((n,), "int8", name="A")
    B = tir.compute((n, 1 << 48), lambda i, j: A[i] + 1, name="B")
    C = tir.compute((n,), lambda i: B[i, (1 << 48) - 1] * 2, name="C")
    kernel = tir.build(tir.schedule(C))
    with pytest.raises(TensorIRError, match="memory"):
        kernel(np.zeros(1 << 20, "i1"))
    small = tir.build(tir.schedule(C).compute_at("B", "C.i"))
    assert small(np.zeros(3, "i1")).tolist() == [2, 2, 2]


def test_a_large_linear_index() -> None:
    # part 3, 22: the constants of o[i] = a[i//5794 + 64*(i%5794)] do not overflow while folded
    n = 3 * 5794
    A = tir.placeholder((64 * 5794,), "int32", name="A")
    C = tir.compute((n,), lambda i: A[i // 5794 + 64 * (i % 5794)], name="C")
    a = np.arange(64 * 5794, dtype=np.int32)
    i = np.arange(n)
    same(C, {"A": a}, a[i // 5794 + 64 * (i % 5794)])
    B = tir.placeholder((64 * 5794 - 1,), "int32", name="B")
    with pytest.raises(BoundsError, match=r"is 370815 at i = 370815; allowed is 0\.\.370814"):
        tir.schedule(tir.compute((64 * 5794,), lambda i: B[i // 5794 + 64 * (i % 5794)], name="D"))
