"""Box filters, blurs, histograms and reductions with awkward bounds, under many schedules."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tensorir.support.errors import IllegalSchedule
from tests.conformance.everyway import agree, attempt, call, same


def run(
    s: tir.Schedule, inputs: dict[str, np.ndarray], expect: np.ndarray, close: float = 0
) -> None:
    (got,) = call(tir.build(s, validate=True), inputs, [expect.shape])
    agree(got, expect, close, f"{s.trace.to_python()}\n{s}")


N = 24


def box() -> tir.Tensor:
    """out = floor(sum of 5x5 of (2x + 5y) / 25), which is 2x + 5y again."""
    in_ = tir.compute((N + 4, N + 4), lambda y, x: 2 * (x - 2) + 5 * (y - 2), name="src")
    dy, dx = tir.reduce_axis(5, name="dy"), tir.reduce_axis(5, name="dx")
    s = tir.compute((N, N), lambda y, x: tir.sum(in_[y + dy, x + dx], axis=(dy, dx)), name="s")
    return tir.compute((N, N), lambda y, x: s[y, x] // 25, name="out")


Y, X = np.indices((N, N))
BOX = 2 * X + 5 * Y


def test_a_box_filter_under_every_schedule() -> None:
    same(box(), {}, BOX)


@pytest.mark.parametrize("case", range(6))
def test_a_box_filter_whose_stages_are_placed_in_each_other(case: int) -> None:
    s = tir.schedule(box())
    s = [
        lambda: s.split("out.x", 2).compute_at("s", "out.xi").compute_at("src", "out.y"),
        lambda: s.split("out.y", 1).compute_at("s", "out.yo").compute_at("src", "s.x"),
        lambda: s.split("out.x", 2, tail="guard").compute_at("s", "out.xo").compute_inline("src"),
        lambda: (
            s.tile("out.y", "out.x", 5, 7).compute_at("s", "out.xo").compute_at("src", "out.xo")
        ),
        lambda: s.compute_at("s", "out.y").compute_at("src", "s.y").parallel("out.y"),
        lambda: s.compute_at("s", "out.y").vectorize("s.x", width=8).compute_at("src", "dy"),
    ][case]()
    run(s, {}, BOX)


def blur() -> tir.Tensor:
    in_ = tir.compute((35, 35), lambda y, x: tir.cast(x + y - 2, "float32"), name="src")
    third = np.float32(3)
    bx = tir.compute(
        (35, 33), lambda y, x: (in_[y, x] + in_[y, x + 1] + in_[y, x + 2]) / third, name="bx"
    )
    return tir.compute(
        (33, 33), lambda y, x: (bx[y, x] + bx[y + 1, x] + bx[y + 2, x]) / third, name="by"
    )


def test_a_blur_whose_inner_loop_is_split_three_times() -> None:
    # part 3, 6
    y, x = np.indices((33, 33))
    s = tir.schedule(blur())
    s = s.split("by.x", 4).split("by.xi", 2).vectorize("by.xii", width=2)
    s = s.split("by.xio", 1).split("by.xioo", 8)
    run(s, {}, (x + y).astype("f4"))
    for place in ("by.y", "by.xo", "by.xii"):
        run(attempt(s, lambda s, p=place: s.compute_at("bx", p)), {}, (x + y).astype("f4"))
    same(blur(), {}, (x + y).astype("f4"))


def test_a_factor_with_a_negative_literal_is_still_a_sum() -> None:
    # part 3, 10
    A = tir.placeholder((7, 20), "int32", name="A")
    c = tir.reduce_axis(20, name="c")
    F = tir.compute((7,), lambda r: tir.sum(A[r, c] * (-5), axis=c), name="F")
    a = np.arange(140, dtype=np.int32).reshape(7, 20)
    expect = -5 * a.sum(axis=1)
    same(F, {"A": a}, expect)
    run(tir.schedule(F).split("c", 6).rfactor("ci"), {"A": a}, expect)
    run(tir.schedule(F).split("c", 6).rfactor("co").parallel("co"), {"A": a}, expect)
    run(tir.schedule(F).vector_reduce("c", 4), {"A": a}, expect)


def test_vector_lanes_around_a_factored_reduction() -> None:
    # part 3, 12
    A = tir.placeholder((20,), "int32", name="A")
    r = tir.reduce_axis(20, name="r")
    F = tir.compute((13,), lambda x: tir.sum(A[r] + x, axis=r), name="F")
    a = np.arange(20, dtype=np.int32)
    expect = a.sum() + 20 * np.arange(13)
    s = tir.schedule(F).vectorize("x", width=8)
    run(s, {"A": a}, expect)
    with pytest.raises(IllegalSchedule, match="r"):
        s.parallel("r")
    run(s.rfactor("r"), {"A": a}, expect)
    run(tir.schedule(F).rfactor("r").parallel("r"), {"A": a}, expect)
    same(F, {"A": a}, expect)


def test_a_histogram_over_a_fused_and_split_reduction() -> None:
    # part 3, 14
    I = tir.placeholder((7, 5), "uint8", name="I")
    y, x = tir.reduce_axis(7, name="y"), tir.reduce_axis(5, name="x")
    H = tir.compute((12,), lambda b: tir.sum(tir.select(I[y, x] == b, 1, 0), axis=(y, x)), name="H")
    i = np.random.default_rng(14).integers(0, 12, (7, 5)).astype(np.uint8)
    expect = np.bincount(i.ravel(), minlength=12)
    s = tir.schedule(H).fuse("y", "x", into="r").split("r", 16, tail="guard")
    run(s, {"I": i}, expect)
    run(s.reorder("ri", "ro").vectorize("b", width=4), {"I": i}, expect)
    run(s.rfactor("ri"), {"I": i}, expect)
    same(H, {"I": i}, expect)


def test_a_window_masked_at_the_border() -> None:
    # part 3, 16: the mask of the reduction bounds what is read
    A = tir.placeholder((6, 5), "int32", name="A")
    p, q = tir.reduce_axis(3, name="p"), tir.reduce_axis(3, name="q")
    C = tir.compute(
        (6, 5),
        lambda y, x: tir.sum(A[y + p, x + q], axis=(p, q), where=(y + p < 6) & (x + q < 5)),
        name="C",
    )
    a = np.arange(30, dtype=np.int32).reshape(6, 5)
    padded = np.pad(a, ((0, 2), (0, 2)))
    expect = sum(padded[i : i + 6, j : j + 5] for i in range(3) for j in range(3))
    same(C, {"A": a}, expect)
    run(tir.schedule(C).tile("y", "x", 4, 4).cache_read("A", "global", at="xo"), {"A": a}, expect)
    run(tir.schedule(C).vectorize("x", width=4).unroll("q"), {"A": a}, expect)


def test_one_channel_of_a_vector_is_different() -> None:
    # part 3, 18
    A = tir.placeholder((2, 2, 2), "int32", name="A")
    k = tir.reduce_axis(2, name="k")
    S = tir.compute((2, 2, 4), lambda y, x, c: tir.sum(A[y, x, k], axis=k), name="S")
    C = tir.compute((2, 2, 4), lambda y, x, c: tir.select(c < 3, S[y, x, c], 255), name="C")
    a = np.tile(np.array([1, 2], np.int32), (2, 2, 1))
    expect = np.tile(np.array([3, 3, 3, 255]), (2, 2, 1))
    same(C, {"A": a}, expect)
    s = tir.schedule(C).compute_at("S", "C.x")
    run(s.vectorize("C.c", width=4), {"A": a}, expect)
    run(s.vectorize("C.c", width=4).vectorize("S.c", width=4), {"A": a}, expect)


def test_sums_over_two_shifted_vectors() -> None:
    # part 3, 34
    B = tir.placeholder((5,), name="B")
    A = tir.compute((5, 2), lambda i, j: B[i] + B[j + 3], name="A")
    same(A, {"B": np.arange(5, dtype="f4")}, np.add.outer(np.arange(5), [3, 4]).astype("f4"))


def test_reductions_start_from_their_identity() -> None:
    # part 3, 34: no garbage, and the maximum of negative numbers is negative
    A = tir.placeholder((10, 1, 14, 18), name="A")
    p, q = tir.reduce_axis(2, name="p"), tir.reduce_axis(2, name="q")
    C = tir.compute(
        (10, 1, 7, 9),
        lambda n, c, y, x: tir.sum(A[n, c, 2 * y + p, 2 * x + q], axis=(p, q)),
        name="C",
    )
    a = -np.random.default_rng(34).integers(1, 9, (10, 1, 14, 18)).astype("f4")
    parts = a.reshape(10, 1, 7, 2, 9, 2)
    same(C, {"A": a}, parts.sum(axis=(3, 5)))
    r, t = tir.reduce_axis(2, name="r"), tir.reduce_axis(2, name="t")
    M = tir.compute(
        (10, 1, 7, 9),
        lambda n, c, y, x: tir.max(A[n, c, 2 * y + r, 2 * x + t], axis=(r, t)),
        name="M",
    )
    same(M, {"A": a}, parts.max(axis=(3, 5)))


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1000, 1024])
def test_a_chain_placed_at_a_split_loop_of_symbolic_extent(n: int) -> None:
    # H10, from the consumer's side
    size = tir.var("n")
    A, B = tir.placeholder((size,), name="A"), tir.placeholder((size,), name="B")
    C = tir.compute((size,), lambda i: A[i] + B[i], name="C")
    D = tir.compute((size,), lambda i: C[i] + C[i], name="D")
    E = tir.compute((size,), lambda i: D[i] + A[i], name="E")
    a, b = np.arange(n, dtype="f4"), np.full(n, 0.5, "f4")
    s = tir.schedule(E).split("E.i", 32).compute_at("D", "E.io").compute_at("C", "E.io")
    run(s, {"A": a, "B": b}, 2 * (a + b) + a)
    run(s.vectorize("E.ii", width=8).parallel("E.io"), {"A": a, "B": b}, 2 * (a + b) + a)
