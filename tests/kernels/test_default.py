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
    steps = [step.primitive for step in s.trace]
    assert steps == ["compute_inline", "split", "vectorize", "split", "unroll", "parallel"] or (
        steps == ["compute_inline", "vectorize", "unroll", "parallel"]
    )


def test_the_place_of_the_greatest_of_a_row_is_found_in_lanes() -> None:
    A = tir.placeholder((64, 1000), name="A")
    k = tir.reduce_axis(1000, name="k")
    s = schedules.schedule_for(tir.compute((64,), lambda i: tir.argmax(A[i, k], axis=k), name="S"))
    assert "rfactor" in [step.primitive for step in s.trace.steps]
    a = np.random.default_rng(0).integers(0, 9, (64, 1000)).astype(np.float32)
    assert np.array_equal(tir.build(s)(a), a.argmax(axis=1))


def test_a_row_sum_runs_in_lanes() -> None:
    A = tir.placeholder((512, 1000), name="A")
    k = tir.reduce_axis(1000, name="k")
    s = schedules.schedule_for(tir.compute((512,), lambda i: tir.sum(A[i, k], axis=k), name="S"))
    assert "rfactor" in [step.primitive for step in s.trace]
    a = np.random.default_rng(0).standard_normal((512, 1000), np.float32)
    tir.build(s).check(a, against=lambda a: a.sum(axis=1))


def test_two_reductions_whose_axes_have_one_name() -> None:
    X, k, r = (tir.placeholder((33, 70), name="X"), *map(tir.reduce_axis, (33, 33)))
    top = tir.compute((70,), lambda i: tir.max(X[k, i], axis=k), name="top")
    T = tir.compute((70,), lambda i: tir.sum(X[r, i] - top[i], axis=r), name="T")
    x = np.random.default_rng(0).standard_normal((33, 70), np.float32)
    tir.build(schedules.schedule_for(T)).check(x, against=lambda x: (x - x.max(0)).sum(0))


def test_names_that_the_schedules_would_use_may_be_taken() -> None:
    m, n, d = (tir.var(x) for x in ("ic", "panel_a", "kk"))
    A, B = tir.placeholder((m, d), name="jr"), tir.placeholder((d, n), name="tile")
    k = tir.reduce_axis(d, name="pc")
    C = tir.compute((m, n), lambda ii, bj: tir.sum(A[ii, k] * B[k, bj], axis=k), name="al")
    a, b = np.ones((7, 9), np.float32), np.ones((9, 5), np.float32)
    tir.build(schedules.schedule_for(C)).check(a, b, against=lambda a, b: a @ b)
    P = tir.compute((m, d), lambda yo, xi: A[yo, xi] + 1.0, name="xo")
    Q = tir.compute((m, d), lambda i, j: P[i, j] * P[i, j], name="yi")
    tir.build(schedules.schedule_for(Q)).check(a, against=lambda a: (a + 1) ** 2)
