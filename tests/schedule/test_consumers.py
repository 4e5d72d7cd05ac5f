"""Consumers under their producers' loops."""

from __future__ import annotations

import numpy as np

import tensorir as tir


def rounds(n: object) -> tir.Tensor:
    """`E = 2 * (A + B) + A` in three stages."""
    A, B = tir.placeholder((n,), name="A"), tir.placeholder((n,), name="B")
    C = tir.compute((n,), lambda i: A[i] + B[i], name="C")
    D = tir.compute((n,), lambda i: C[i] + C[i], name="D")
    return tir.compute((n,), lambda i: D[i] + A[i], name="E")


def test_a_consumer_under_a_split_loop_of_symbolic_size() -> None:
    s = tir.schedule(rounds(tir.var("n"))).split("D.i", 32).reverse_compute_at("E", "io")
    assert str(s.loops()).splitlines()[2:] == [
        "for io in 0..(n + 31)//32",
        "  alloc D: float32 in global",
        "  for ii in 0..min(32, n - 32*io)",
        "    D[32*io + ii] = C[32*io + ii] + C[32*io + ii]",
        "  for E.i in 0..min(32, n - 32*io)",
        "    E[32*io + E.i] = D[32*io + E.i] + A[32*io + E.i]",
    ]
    kernel = tir.build(s.vectorize("ii", 8).vectorize("E.i", 8).parallel("io"), validate=True)
    for n in (1, 31, 32, 33, 1000, 1024):
        a, b = (np.arange(n, dtype="float32") * x for x in (1, 3))
        kernel.check(a, b, against=lambda a, b: 2 * (a + b) + a, tol=0)


def test_all_loops_shared_makes_one_loop() -> None:
    s = tir.schedule(rounds(8)).reverse_compute_at("D", "C.i").reverse_compute_at("E", "C.i")
    assert [x.name for x in s.axes] == ["i"]
    tir.build(s, validate=True).check(
        np.arange(8, dtype="float32"),
        np.ones(8, dtype="float32"),
        against=lambda a, b: 2 * (a + b) + a,
    )


def test_a_window_runs_where_its_last_cell_is_made() -> None:
    n = tir.var("n")
    A = tir.placeholder((n + 2,), "int32", name="A")
    X = tir.compute((n + 2,), lambda x: A[x] * 3, name="X")
    Y = tir.compute((n,), lambda i: X[i] + X[i + 1] + X[i + 2], name="Y")
    s = tir.schedule(Y).reverse_compute_at("Y", "x")
    assert str(s.loops()).splitlines() == [
        "for x in 0..(n + 2)",
        "  X[x] = A[x] * 3",
        "  if x >= 2",
        "    Y[x - 2] = X[x - 2] + X[x - 1] + X[x]",
    ]
    kernel = tir.build(s, validate=True)
    for size in (0, 1, 5):
        a = np.arange(size + 2, dtype="int32") ** 2
        kernel.check(a, against=lambda a: 3 * (a[:-2] + a[1:-1] + a[2:]))


def test_in_a_reduction_loop_it_runs_in_the_last_iteration() -> None:
    A = tir.placeholder((6, 5), name="A")
    k = tir.reduce_axis(5, name="k")
    S = tir.compute((6,), lambda i: tir.sum(A[i, k], axis=k), name="S")
    R = tir.compute((6,), lambda x: S[x] * 2.0, name="R")
    s = tir.schedule(R).reverse_compute_at("R", "k")
    assert "if k == 4" in str(s.loops())
    assert s.step is not None
    assert s.step.notes[0] == "each cell of R in the last iteration that it waits for"
    a = np.random.default_rng(1).standard_normal((6, 5)).astype("float32")
    tir.build(s, validate=True).check(a, against=lambda a: a.sum(1) * 2)


def test_where_no_function_tells_the_iteration_the_stage_is_cut() -> None:
    n = tir.var("n")
    A = tir.placeholder((n,), "int32", name="A")
    X = tir.compute((n,), lambda x: A[x] + 1, name="X")
    Y = tir.compute((n,), lambda i: X[i] * 2 + X[n - 1 - i], name="Y")
    s = tir.schedule(Y).reverse_compute_at("Y", "x")
    assert s.step is not None
    assert s.step.notes[-1] == "Y is cut into 2 cases, for where that is"
    kernel = tir.build(s, validate=True)
    for size in (0, 1, 2, 9):
        a = np.arange(size, dtype="int32") ** 2
        kernel.check(a, against=lambda a: (a + 1) * 2 + (a + 1)[::-1])


def test_a_reduction_moves_as_a_whole() -> None:
    A = tir.placeholder((8, 6), name="A")
    X = tir.compute((8, 6), lambda y, x: A[y, x] + 1.0, name="X")
    k = tir.reduce_axis(6, name="k")
    S = tir.compute((8,), lambda i: tir.sum(X[i, k], axis=k), name="S")
    s = tir.schedule(S).split("y", 4).reverse_compute_at("S", "yo")
    lines = [x.strip() for x in str(s.loops()).splitlines()]
    assert lines.index("S[4*yo + i] = 0.0") > lines.index("for i in 0..4")
    a = np.random.default_rng(2).standard_normal((8, 6)).astype("float32")
    tir.build(s, validate=True).check(a, against=lambda a: (a + 1).sum(1))


def test_marks_go_to_an_edge_too() -> None:
    k0 = tir.var("K")
    A = tir.placeholder((5, k0), name="A")
    k = tir.reduce_axis(k0, name="k")
    S = tir.compute((5,), lambda i: tir.sum(A[i, k], axis=k), name="S")
    R = tir.compute((5,), lambda x: S[x] * 2.0, name="R")
    s = tir.schedule(R).split("k", 4, into=("ko", "ki")).reorder("ko", "i", "ki").init_at("S", "ko")
    s = s.reverse_compute_at("R", "ko").unroll("R.x")
    assert {x.name for x in s.axes if x.name.endswith("x")} == {"x", "R.edge.x"}
    kernel = tir.build(s, validate=True)
    for size in (0, 1, 4, 11):
        a = np.ones((5, size), "float32")
        kernel.check(a, against=lambda a: a.sum(1) * 2)


def test_a_stage_inside_a_loop_already_moves_further_in() -> None:
    A = tir.placeholder((6, 5), "int32", name="A")
    X = tir.compute((6, 5), lambda y, x: A[y, x] + 1, name="X")
    Y = tir.compute((6, 5), lambda i, j: X[i, j] * 2, name="Y")
    s = tir.schedule(Y).compute_at("X", "i").reverse_compute_at("Y", "x")
    tir.build(s, validate=True).check(
        np.arange(30, dtype="int32").reshape(6, 5), against=lambda a: (a + 1) * 2
    )


def test_it_replays() -> None:
    tensor = rounds(24)
    s = tir.schedule(tensor).split("D.i", 8).reverse_compute_at("E", "io")
    again = tir.replay(tir.schedule(tensor), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()
