"""Sliding windows, consumers under their producers, atomic updates: reports from the field."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tests.conformance.everyway import agree, call
from tests.conformance.test_cases_pipelines import BOX, box, run


@pytest.mark.parametrize("case", range(5))
def test_a_box_filter_whose_windows_slide(case: int) -> None:
    """Chains of sliding windows, also at a loop that was split by 1, and under a guarded split."""
    s = tir.schedule(box())
    made = [
        # consumer split by 2 and guarded; the sum at the inner loop, stored further out
        lambda: s.split("out.x", 2, tail="guard").compute_at("s", "out.xi", storage="sliding"),
        # the sum at the outer loop of a split by 1, the source there too, both kept
        lambda: (
            s.split("out.y", 1).compute_at("s", "out.yo", storage="sliding")
            .compute_at("src", "out.yo", storage="folded")
        ),
        lambda: s.compute_at("src", "s.y", storage="folded"),
        lambda: (
            s.split("out.y", 5).compute_at("s", "out.yi", storage="folded")
            .compute_at("src", "out.yi", storage="folded", store_at="out.yo").parallel("out.yo")
        ),
        lambda: (
            s.compute_at("s", "out.y").compute_at("src", "out.y", storage="folded")
            .vectorize("out.x", width=8)
        ),
    ][case]()  # fmt: skip
    (got,) = call(tir.build(made, validate=case == 3), {}, [BOX.shape])
    agree(got, BOX, 0, str(made))


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1000])
def test_a_consumer_moves_under_a_split_loop_of_symbolic_extent(n: int) -> None:
    size = tir.var("n")
    A, B = tir.placeholder((size,), name="A"), tir.placeholder((size,), name="B")
    C = tir.compute((size,), lambda i: A[i] + B[i], name="C")
    D = tir.compute((size,), lambda i: C[i] + C[i], name="D")
    E = tir.compute((size,), lambda i: D[i] + A[i], name="E")
    s = tir.schedule(E).split("D.i", 32).reverse_compute_at("E", "io")
    data = {"A": np.arange(n, dtype="float32"), "B": np.full(n, 3, "float32")}
    run(s, data, 2 * (data["A"] + data["B"]) + data["A"])


def test_a_parallel_atomic_reduction_beside_vector_lanes() -> None:
    """f(x) = sum of 20 + x at 13 points, points in lanes of 8, the sum shared out among threads."""
    source = tir.placeholder((20,), "int32", name="source")
    r = tir.reduce_axis(20, name="r")
    F = tir.compute((13,), lambda x: tir.sum(source[r] + x, axis=r), name="F")
    s = tir.schedule(F).reorder("r", "x").atomic("F").vectorize("x", 8).parallel("r")
    before, tir.knobs.parallel_threshold = tir.knobs.parallel_threshold, 0
    try:
        data = np.arange(20, dtype="int32") ** 2
        run(s, {"source": data}, data.sum() + 20 * np.arange(13))
    finally:
        tir.knobs.parallel_threshold = before


def test_a_parallel_histogram() -> None:
    """A reduction loop is shared out only with private copies or atomic updates."""
    A = tir.placeholder((35,), "int64", name="A")
    k = tir.reduce_axis(35, name="k")
    one = lambda b: tir.select(A[k] == b, 1, 0)  # noqa: E731
    H = tir.compute((9,), lambda b: tir.sum(one(b), axis=k), name="H")
    data = np.random.default_rng(3).integers(0, 9, 35)
    s = tir.schedule(H).reorder("k", "b")
    assert not s.check("parallel", "k")
    made = s.atomic("H").parallel("k")
    (got,) = call(tir.build(made, validate=True), {"A": data}, [(9,)])
    agree(got, np.bincount(data, minlength=9), 0, str(made))
