from __future__ import annotations

import tensorir as tir
from tests.errors.saying import matmul


def test_init_gets_its_own_loops_only_where_a_reduction_crosses() -> None:
    s = matmul(8, 8, 8)
    assert s.reorder("j", "i").loops() == (
        "for j in 0..8\n"
        "  for i in 0..8\n"
        "    C[i, j] = 0.0\n"
        "    for k in 0..8\n"
        "      C[i, j] = fma(A[i, k], B[k, j], C[i, j])"
    )
    assert s.reorder("k", "j").loops() == s.reorder("i", "k", "j").loops()
    assert s.reorder("k", "i").loops() == (
        "for C.init.i in 0..8\n"
        "  for C.init.j in 0..8\n"
        "    C[C.init.i, C.init.j] = 0.0\n"
        "for k in 0..8\n"
        "  for j in 0..8\n"
        "    for i in 0..8\n"
        "      C[i, j] = fma(A[i, k], B[k, j], C[i, j])"
    )
    assert s.reorder("k", "i").step.notes == ("loops of its own: C.init.i, C.init.j",)


def test_a_second_crossing_takes_the_copies_along() -> None:
    s = matmul(8, 8, 8).reorder("i", "k", "j").reorder("k", "i")
    assert s.loops() == (
        "for C.init.i in 0..8\n"
        "  for C.init.j in 0..8\n"
        "    C[C.init.i, C.init.j] = 0.0\n"
        "for k in 0..8\n"
        "  for i in 0..8\n"
        "    for j in 0..8\n"
        "      C[i, j] = fma(A[i, k], B[k, j], C[i, j])"
    )


def test_finish_is_treated_like_the_init() -> None:
    A = tir.placeholder((4, 8), "float16", name="A")
    k = tir.reduce_axis(8, name="k")
    s = tir.schedule(tir.compute((4,), lambda i: tir.sum(A[i, k], axis=k), name="H"))
    assert s.reorder("k", "i").loops() == (
        "for H.init.i in 0..4\n"
        "  H.acc[H.init.i] = 0.0\n"
        "for k in 0..8\n"
        "  for i in 0..4\n"
        "    H.acc[i] = H.acc[i] + float32(A[i, k])\n"
        "for H.finish.i in 0..4\n"
        "  H[H.finish.i] = float16(H.acc[H.finish.i])"
    )


def test_copies_run_as_the_loops_they_come_from() -> None:
    s = matmul(8, 8, 8).parallel("i").reorder("i", "k", "j")
    assert "parallel" in s.loops().splitlines()[0]
    s = matmul(8, 8, 8).unroll("j").reorder("k", "j")
    assert "  for C.init.j in 0..8  # unroll" in s.loops().splitlines()


def test_reorder_of_a_reduction_reassociates_only_where_it_does() -> None:
    s = matmul(8, 8, 8)
    assert not s.reorder("k", "j", "i").step.reassociates
    split = s.split("k", 4)
    assert not split.reorder("ko", "i", "j", "ki").step.reassociates
    assert split.reorder("ki", "ko").step.reassociates
    assert str(split.reorder("ki", "ko").trace).splitlines()[-1].endswith("(changes rounding)")


def test_an_exact_reduction_never_reassociates() -> None:
    A = tir.placeholder((8, 8), "int32", name="A")
    k = tir.reduce_axis(8, name="k")
    s = tir.schedule(tir.compute((8,), lambda i: tir.sum(A[i, k], axis=k), name="C"))
    assert not s.split("k", 4).reorder("ki", "ko").step.reassociates


def test_a_reducer_that_does_not_commute_keeps_its_order() -> None:
    A = tir.placeholder((8, 8), name="A")
    last = tir.reducer(
        lambda a, b: b, lambda d: tir.const(0, d), name="last", associative=True, commutative=False
    )
    p, q = tir.reduce_axis(8, name="p"), tir.reduce_axis(8, name="q")
    s = tir.schedule(tir.compute((), lambda: last(A[p, q], axis=(p, q)), name="C"))
    verdict = s.check("reorder", "q", "p")
    assert not verdict
    assert verdict.witness.source.at == {"p": 0, "q": 1}
    assert verdict.witness.sink.at == {"p": 1, "q": 0}


def test_tile_is_split_and_reorder() -> None:
    s = matmul(64, 64, 16)
    by_hand = s.split("i", 6).split("j", 16).reorder("io", "jo", "ii", "ji")
    tiled = s.tile("i", "j", 6, 16)
    assert tiled.loops() == by_hand.loops()
    assert [x.primitive for x in tiled.trace] == ["tile"]
