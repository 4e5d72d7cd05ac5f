"""Last panels with fewer live vectors: which copies there are, and that none has loose guards."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tensorir.codegen import cpu
from tensorir.ir.stmt import Node
from tensorir.lower.boxes import loops, runs
from tensorir.lower.pipeline import lower

V4 = cpu.target("znver4")


def tiled(m: int, n: int, k: int, mr: int, nv: int) -> tir.Schedule:
    A, B = tir.placeholder((m, k), name="A"), tir.placeholder((k, n), name="B")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = tir.schedule(C).split("j", 16 * nv, into=("jr", "ji")).split("i", mr, into=("ir", "ii"))
    s = s.reorder("jr", "ir", "ii", "ji").reorder("k", "ii", "ji").cache_write("C", at="ir")
    return s.vectorize("ji", width=16).unroll("ii")


def widths(node: Node) -> list[int]:
    """How many vectors of the result each copy of the sum computes, row by row."""
    found = []
    for sums in (x for x in loops(node) if x.axis.name == "k"):
        vectors = 1
        for x in loops(sums.body):
            if x.axis.name.startswith("ji"):
                vectors *= (x.extent or 1) // (x.width or 1)
        found.append(vectors)
    return found


@pytest.mark.parametrize(
    ("n", "nv", "expected"),
    [
        (128, 4, {4}),  # whole panels only
        (136, 4, {1, 4}),  # half a vector is left, read through a mask
        (160, 4, {2, 4}),  # two whole vectors: a guard that counts vectors, not lanes
        (1000, 4, {3, 4}),
        (80, 3, {2, 3}),
    ],
)
def test_the_last_panel_is_as_narrow_as_it_may_be(n: int, nv: int, expected: set[int]) -> None:
    lowered = lower(tiled(30, n, 20, 6, nv).program, V4)
    assert set(widths(lowered.body)) == expected


def test_a_count_of_whole_vectors_is_no_guard_of_the_sum() -> None:
    """Extra vectors of a private tile may be computed: no `if` stays between fma and fma."""
    lowered = lower(tiled(24, 160, 20, 6, 4).program, V4)
    sums = [x for x in runs(lowered.body) if x.statement.name == "C"]
    assert sums
    assert not any(x.conds for x in sums)


@pytest.mark.parametrize("size", [(7, 40, 5), (13, 160, 9), (6, 80, 3), (25, 48, 33)])
def test_the_same_result(size: tuple[int, int, int]) -> None:
    m, n, k = size
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
    for nv in (2, 3, 4):
        tir.build(tiled(m, n, k, 4, nv)).check(a, b, against=lambda a, b: a @ b)
