"""`schedule_for` on anything: the same answer as the declaration's own order."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import schedules
import tensorir as tir
from tests.properties import programs


@pytest.mark.parametrize("seed", range(48))
def test_any_declaration(seed: int) -> None:
    case = programs.draw(Random(seed))
    plain = tir.build(tir.schedule(*case.outputs))
    s = schedules.schedule_for(*case.outputs)
    kernel = tir.build(s)
    loose = any(step.reassociates for step in s.trace)
    for k, sizes in enumerate(case.sizes):
        inputs = case.arrays(sizes, k)
        want, got = plain(*inputs), kernel(*inputs)
        for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (want, got)), strict=True):
            where = f"seed {seed}, {case.name}, {sizes}\n{s}"
            if loose:
                assert np.allclose(a.astype(float), b.astype(float), rtol=1e-2), where
            else:
                assert np.array_equal(a.astype(float), b.astype(float), equal_nan=True), where


def test_an_elementwise_chain_is_one_vector_loop() -> None:
    A = tir.placeholder((1 << 20,), name="A")
    B = tir.compute((1 << 20,), lambda i: A[i] * 2.0, name="B")
    C = tir.compute((1 << 20,), lambda i: B[i] + 1.0, name="C")
    s = schedules.schedule_for(C)
    assert [step.primitive for step in s.trace] == [
        "compute_inline",
        "split",
        "vectorize",
        "parallel",
    ] or [step.primitive for step in s.trace] == ["compute_inline", "vectorize", "parallel"]


def test_a_row_sum_runs_in_lanes() -> None:
    A = tir.placeholder((512, 1000), name="A")
    k = tir.reduce_axis(1000, name="k")
    s = schedules.schedule_for(tir.compute((512,), lambda i: tir.sum(A[i, k], axis=k), name="S"))
    assert "rfactor" in [step.primitive for step in s.trace]
    a = np.random.default_rng(0).standard_normal((512, 1000), np.float32)
    tir.build(s).check(a, against=lambda a: a.sum(axis=1))
