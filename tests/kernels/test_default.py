"""`schedule_for` on anything: the same answer as the declaration's own order."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.default import default_schedule
from tensorir import ops
from tensorir.codegen import cpu
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


def on(s: tir.Schedule, *arrays: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(tir.build(s)(*arrays), want, rtol=1e-3, atol=1e-4)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.parametrize("name", ["native", "x86-64-v3"])
@pytest.mark.parametrize("size", [(30, 50, 40), (300, 1000, 400), (13, 37, 9)])
def test_what_follows_a_product_is_done_on_its_tiles(size: tuple[int, int, int], name: str) -> None:
    m, n, k = size
    A, B, bias = (
        tir.placeholder(s, name=x) for s, x in zip(((m, k), (k, n), (n,)), "ABb", strict=True)
    )
    C = ops.matmul(A, B, name="C")
    D = tir.compute((m, n), lambda i, j: C[i, j] + bias[j], name="D")
    s = default_schedule(tir.schedule(ops.relu(D, name="E")), cpu.target(name))
    steps = [step.primitive for step in s.trace]
    assert "reverse_compute_at" in steps
    assert "compute_inline" in steps
    assert "C[" not in str(s)  # it is never stored
    a, b, v = random(m, k), random(k, n), random(n)
    kernel = tir.build(s, target=name, args=[A, B, bias, "E"])
    kernel.check(a, b, v, against=lambda a, b, v: np.maximum(a @ b + v, 0))


def test_a_product_of_a_product_keeps_both_tiles() -> None:
    A, B = tir.placeholder((50, 60), name="A"), tir.placeholder((60, 60), name="B")
    first = ops.relu(ops.matmul(A, B, name="first"), name="between")
    s = schedules.schedule_for(ops.matmul(first, B, name="second"))
    tiles = [x.args[0] for x in s.trace if x.primitive == "cache_write"]
    assert tiles == ["first", "second"]
    a, b = random(50, 60), random(60, 60)
    tir.build(s, args=[A, B, "second"]).check(a, b, against=lambda a, b: np.maximum(a @ b, 0) @ b)


def test_cheap_stages_are_inlined_at_several_places_and_costly_ones_are_not() -> None:
    A = tir.placeholder((100,), name="A")
    for function, inlined in ((lambda x: x * 2.0 + 1.0, True), (tir.exp, False)):
        B = tir.compute((100,), lambda i, f=function: f(A[i]), name="B")
        C = tir.compute((98,), lambda i, B=B: B[i] * B[i + 1] - B[i + 2], name="C")
        s = default_schedule(tir.schedule(C), cpu.target("native"))
        assert ("compute_inline" in [step.primitive for step in s.trace]) == inlined
        b = random(100) * 2 + 1 if inlined else np.exp(random(100))
        on(s, random(100), want=b[:-2] * b[1:-1] - b[2:])


def test_rows_of_a_stage_are_computed_where_they_are_read() -> None:
    A = tir.placeholder((20, 30, 40), name="A")
    k = tir.reduce_axis(40, name="k")
    top = tir.compute((20, 30), lambda i, j: tir.max(A[i, j, k], axis=k), name="top")
    B = tir.compute((20, 30, 40), lambda i, j, x: tir.exp(A[i, j, x] - top[i, j]), name="B")
    s = default_schedule(tir.schedule(B), cpu.target("native"))
    assert [x.args for x in s.trace if x.primitive == "compute_at"] == [("top", "B.j")]
    a = random(20, 30, 40)
    on(s, a, want=np.exp(a - a.max(2, keepdims=True)))


def test_a_statistic_of_columns_stays_outside() -> None:
    A = tir.placeholder((50, 70), name="A")
    k = tir.reduce_axis(50, name="k")
    mean = tir.compute((70,), lambda j: tir.sum(A[k, j], axis=k), name="mean")
    B = tir.compute((50, 70), lambda i, j: A[i, j] - mean[j], name="B")
    s = default_schedule(tir.schedule(B), cpu.target("native"))
    assert "compute_at" not in [step.primitive for step in s.trace]
    a = random(50, 70)
    on(s, a, want=a - a.sum(0))


def test_a_chain_of_stencils_goes_in_blocks_of_rows() -> None:
    A = tir.placeholder((400, 300), name="A")
    X = tir.compute((400, 300), lambda y, x: tir.exp(A[y, x]), name="X")
    Y = tir.compute((396, 300), lambda y, x: X[y, x] + X[y + 2, x] * X[y + 4, x], name="Y")
    s = default_schedule(tir.schedule(Y), cpu.target("native"))
    assert [step.primitive for step in s.trace][:2] == ["split", "compute_at"]
    e = np.exp(random(400, 300))
    on(s, random(400, 300), want=e[:-4] + e[2:-2] * e[4:])


def test_a_copy_that_gathers_is_left_to_scalars() -> None:
    A = tir.placeholder((60, 50), name="A")
    s = default_schedule(tir.schedule(ops.tile(A, (2, 3))), cpu.target("native"))
    assert "vectorize" not in [step.primitive for step in s.trace]
    on(s, random(60, 50), want=np.tile(random(60, 50), (2, 3)))
