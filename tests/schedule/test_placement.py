"""compute_at, compute_root, compute_inline: loops, notes, and the same result."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tests.schedule.interpret import run, same

SIZES = ({"M": 1, "N": 1}, {"M": 5, "N": 7}, {"M": 0, "N": 3})


def blur() -> tir.Schedule:
    m, n = tir.var("M"), tir.var("N")
    A = tir.placeholder((m + 2, n + 2), name="A")
    X = tir.compute((m + 2, n), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="X")
    Y = tir.compute((m, n), lambda i, j: X[i, j] + X[i + 1, j] + X[i + 2, j], name="Y")
    return tir.schedule(Y)


def keeps(before: tir.Schedule, after: tir.Schedule, *sizes: dict[str, int]) -> None:
    for z in sizes or ({},):
        same(before.program, after.program, z)


def test_a_tile_computes_its_rows() -> None:
    s0 = blur()
    s = s0.tile("i", "j", 4, 4).compute_at("X", "jo")
    head, _, rest = s.loops().partition("        X[")
    assert (
        head
        == """\
for io in 0..(M + 3)//4
  for jo in 0..(N + 3)//4
    alloc X: float32 in global
    for y in 0..min(6, M - 4*io + 2)
      for x in 0..min(4, N - 4*jo)
"""
    )
    assert rest.startswith("4*io + y, 4*jo + x] = ")
    assert s.step.notes == ("what several iterations of 'jo' need of X is recomputed",)
    assert not s.step.reassociates
    keeps(s0, s, *SIZES)


def test_moved_loops_can_be_scheduled() -> None:
    s0 = blur()
    s = s0.tile("i", "j", 4, 4).compute_at("X", "jo")
    s = s.unroll("ii").vectorize("ji", 4).vectorize("x", 4).parallel("io")
    keeps(s0, s, *SIZES)


def test_without_overlap_nothing_is_recomputed() -> None:
    s0 = blur()
    s = s0.split("j", 4).reorder("jo", "i", "ji").compute_at("X", "jo", recompute=False)
    assert s.step.notes == ()
    keeps(s0, s, *SIZES)


def test_recompute_false_names_an_instance() -> None:
    with pytest.raises(tir.IllegalSchedule, match=r"X\[1, 0\] more than once: for i = 0 and") as e:
        blur().compute_at("X", "i", recompute=False)
    assert e.value.witness["instance"] == (1, 0)


def test_a_reduction_moves_with_its_init() -> None:
    A = tir.placeholder((6, 5), name="A")
    B = tir.placeholder((5, 7), name="B")
    k = tir.reduce_axis(5, name="k")
    C = tir.compute((6, 7), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = tir.compute((6, 7), lambda y, x: tir.maximum(C[y, x], 0.0), name="D")
    s0 = tir.schedule(D)
    s = s0.split("y", 4).compute_at("C", "yo")
    assert (
        s.loops()
        == """\
for yo in 0..2
  alloc C: float32 in global
  for i in 0..min(4, 6 - 4*yo)
    for j in 0..7
      C[4*yo + i, j] = 0.0
      for k in 0..5
        C[4*yo + i, j] = fma(A[4*yo + i, k], B[k, j], C[4*yo + i, j])
  for yi in 0..min(4, 6 - 4*yo)
    for x in 0..7
      D[4*yo + yi, x] = max(C[4*yo + yi, x], 0.0)"""
    )
    keeps(s0, s)
    keeps(s0, s.compute_at("C", "x"))
    keeps(s0, s.compute_at("C", "x").compute_root("C"))
    assert s.compute_root("C").loops() == s0.split("y", 4).loops()


def test_a_wider_accumulator_moves_too() -> None:
    A = tir.placeholder((6, 5), "float16", name="A")
    k = tir.reduce_axis(5, name="k")
    C = tir.compute((6,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    D = tir.compute((5,), lambda y: C[y] + C[y + 1], name="D")
    s0 = tir.schedule(D)
    s = s0.compute_at("C", "y")
    outside = {a.name: [x.name for x in b.outside] for a, b in s.program.buffers.items()}
    assert outside == {"C": ["y"], "C.acc": ["y"]}
    keeps(s0, s)


def test_chains_stay_in_order() -> None:
    A = tir.placeholder((16,), name="A")
    C = tir.compute((16,), lambda i: A[i] + 1.0, name="C")
    D = tir.compute((16,), lambda i: C[i] + C[i], name="D")
    E = tir.compute((16,), lambda i: D[i] + A[i], name="E")
    s0 = tir.schedule(E)
    s = s0.split("E.i", 8, into=("o", "p")).vectorize("p", 8).compute_at("D", "p")
    for t in (s.compute_at("C", "o"), s.compute_at("C", "p")):
        keeps(s0, t)
    deep = s.compute_at("C", "o").compute_at("D", "o")
    keeps(s0, deep)
    keeps(s0, deep.compute_at("C", "D.i"))


def test_footprint_of_a_choice() -> None:
    n = tir.var("N")
    A = tir.placeholder((n,), name="A")
    C = tir.compute((n,), lambda i: A[i] * 2.0, name="C")
    D = tir.compute((n,), lambda i: C[i] + C[tir.maximum(i - 1, 0)], name="D")
    s0 = tir.schedule(D)
    s = s0.compute_at("C", "D.i")
    assert "  for C.i in max(0, 1 - i)..2\n    C[i + C.i - 1] = A[i + C.i - 1] * 2.0\n" in s.loops()
    keeps(s0, s, {"N": 0}, {"N": 1}, {"N": 6})


def test_strides_stay_exact() -> None:
    A = tir.placeholder((17,), name="A")
    B = tir.compute((17,), lambda x: A[x] + 1.0, name="B")
    C = tir.compute((6,), lambda i: B[3 * i], name="C")
    s0 = tir.schedule(C)
    s = s0.split("i", 4).compute_at("B", "io")
    keeps(s0, s)
    runs = [n for n, p in s.program.placements.items() if p.stmt.stage == "B"]
    assert runs == ["B"]


def test_inline_composes_guards_and_reads() -> None:
    n = tir.var("N")
    A = tir.placeholder((n,), name="A")
    P = tir.compute(
        (n + 2,),
        lambda i: tir.if_then_else((i >= 1) & (i <= n), A[i - 1], 0.0),
        name="P",
    )
    Q = tir.compute((n,), lambda i: P[i] + P[i + 1] * P[i + 2], name="Q")
    s0 = tir.schedule(Q)
    s = s0.compute_inline("P")
    assert s.stages == ("Q",)
    keeps(s0, s, {"N": 0}, {"N": 1}, {"N": 5})
    keeps(s0, s.split("i", 4).vectorize("ii", 4), {"N": 5})
    keeps(s0, s0.split("Q.i", 4).compute_at("P", "io"), {"N": 0}, {"N": 1}, {"N": 9})


def test_inline_into_a_reduction_keeps_its_accumulator() -> None:
    A = tir.placeholder((4, 5), name="A")
    B = tir.compute((4, 5), lambda i, j: A[i, j] * 3.0, name="B")
    k = tir.reduce_axis(5, name="k")
    C = tir.compute((4,), lambda i: tir.sum(B[i, k], axis=k), name="C")
    s0 = tir.schedule(C)
    s = s0.compute_inline("B")
    stmt = s.program.stmt("C")
    assert [r.array.name for r in stmt.reads] == ["C", "A"]
    keeps(s0, s)
    keeps(s0, s.reorder("k", "i").init_at("C", "k"))


def test_dilate_pad_and_window_inlined() -> None:
    A = tir.placeholder((4,), name="A")
    wide = tir.compute((7,), lambda i: tir.if_then_else(i % 2 == 0, A[i // 2], 0.0), name="wide")
    pad = tir.compute(
        (9,), lambda i: tir.if_then_else((i >= 1) & (i < 8), wide[i - 1], 0.0), name="pad"
    )
    k = tir.reduce_axis(3, name="k")
    C = tir.compute((7,), lambda x: tir.sum(pad[x + 2 - k], axis=k), name="C")
    s0 = tir.schedule(C)
    keeps(s0, s0.compute_inline("wide").compute_inline("pad"))
    keeps(s0, s0.compute_inline("pad").split("x", 4).compute_at("wide", "xo"))


def test_root_and_back_forgets_nothing() -> None:
    s0 = blur()
    s = s0.split("i", 4).compute_at("X", "io").compute_root("X")
    assert s.loops() == s0.split("i", 4).loops()
    assert run(s.program, {"M": 3, "N": 2}) == run(s0.program, {"M": 3, "N": 2})


def test_inlining_what_another_read_is_indexed_by() -> None:
    A, T = tir.placeholder((8,), name="A"), tir.placeholder((8,), name="T")
    S = tir.compute((8,), lambda i: A[i] + A[7 - i], name="S")
    C = tir.compute((8,), lambda i: T[tir.cast(S[i], "int64")], name="C")
    s = tir.schedule(C).compute_inline("S")
    assert s.loops() == "for i in 0..8\n  C[i] = T[int64(A[i] + A[-i + 7])]"
    a, t = np.array([0, 1, 2, 1, 0, 1, 1, 1], "float32"), np.arange(8, dtype="float32")
    got = tir.build(s, args=[A, T, C])(a, t)
    assert np.array_equal(got, t[(a + a[::-1]).astype(int)])
