"""cache_read, cache_write, transform_layout, set_scope: loops, domains, and the same result."""

from __future__ import annotations

import tensorir as tir
from tests.errors.saying import matmul
from tests.schedule.interpret import same

SIZES = ({"M": 1, "N": 1, "K": 1}, {"M": 5, "N": 6, "K": 7}, {"M": 3, "N": 2, "K": 0})


def symbolic() -> tir.Schedule:
    return matmul(tir.var("M"), tir.var("N"), tir.var("K"))


def keeps(before: tir.Schedule, after: tir.Schedule, *sizes: dict[str, int]) -> None:
    for z in sizes or ({},):
        same(before.program, after.program, z)


def test_packing_starts_at_the_panel() -> None:
    s0 = symbolic()
    s = s0.split("k", 4).split("j", 4).reorder("ko", "jo", "i", "ki", "ji")
    s = s.cache_read("B", at="jo", name="Bp")
    stmt = s.program.stmt("Bp.copy")
    assert [str(i) for i in stmt.writes[0].affine] == ["4*ko + k", "4*jo + j"]
    s = s.split("Bp.k", 2).transform_layout("Bp", lambda k, j: (k // 2, j, k % 2))
    layout = next(b.layout for a, b in s.program.buffers.items() if a.name == "Bp")
    assert layout == ((0, "//", 2), (1, None, 1), (0, "%", 2))
    keeps(s0, s, *SIZES)


def test_a_copy_of_an_input_does_not_ask_who_reads_it() -> None:
    s = symbolic().split("k", 4).reorder("ko", "i", "j", "ki").cache_read("B", at="ko")
    domain = s.program.stmt("B_cache.copy").domain
    assert len(domain) == 1
    sizes = [e for _, e in domain[0] if all(type(a).__name__ == "Var" for a in e.atoms())]
    assert sizes == []


def test_a_point_has_no_loop() -> None:
    s0 = symbolic()
    s = s0.cache_read("A", "local", at="i").cache_write("C", at="j")
    assert (
        s.loops()
        == """\
for i in 0..M
  alloc A_cache: float32 in local
  for A_cache.k in 0..K
    A_cache[i, A_cache.k] = A[i, A_cache.k]
  for j in 0..N
    alloc C_local: float32 in local
    C_local[i, j] = 0.0
    for k in 0..K
      C_local[i, j] = fma(A_cache[i, k], B[k, j], C_local[i, j])
    C[i, j] = C_local[i, j]"""
    )
    keeps(s0, s, *SIZES)


def test_caches_in_any_order() -> None:
    s0 = matmul(5, 6, 7).split("i", 4).split("j", 4).reorder("io", "jo", "k", "ii", "ji")
    a = s0.cache_read("A", at="io").cache_read("B", at="jo").cache_write("C", at="jo")
    b = s0.cache_write("C", at="jo").cache_read("B", at="jo").cache_read("A", at="io")
    keeps(s0, a)
    keeps(s0, b)
    keeps(s0, a.cache_read("A_cache", "local", at="k"))


def test_readers_choose_who_reads_the_copy() -> None:
    A = tir.placeholder((8,), name="A")
    X = tir.compute((8,), lambda i: A[i] * 2.0, name="X")
    Y = tir.compute((8,), lambda i: X[i] + A[i], name="Y")
    s0 = tir.schedule(Y)
    s = s0.cache_read("A", readers=["Y"])
    assert [r.array.name for r in s.program.stmt("X").reads] == ["A"]
    assert [r.array.name for r in s.program.stmt("Y").reads] == ["X", "A_cache"]
    keeps(s0, s)


def test_a_guard_shrinks_the_copy() -> None:
    A = tir.placeholder((12, 24), name="A")
    C = tir.compute(
        (10, 20), lambda i, j: tir.if_then_else((i < 6) & (j < 5), A[i, j], 0.0), name="C"
    )
    s0 = tir.schedule(C)
    s = s0.cache_read("A")
    assert "for A_cache.i in 0..6" in s.loops() and "for A_cache.j in 0..5" in s.loops()
    keeps(s0, s)


def test_load_keeps_rounding_and_identity_does_not() -> None:
    s0 = symbolic().split("k", 4).reorder("ko", "i", "j", "ki")
    s = s0.cache_write("C", at="ko")
    assert not s.step.reassociates
    assert {"C_local.load", "C_local.store"} <= set(s.program.placements)
    keeps(s0, s, *SIZES)
    t = s0.cache_write("C", at="ko", init="identity")
    assert t.step.reassociates
    assert {"C_local.init", "C_local.store"} <= set(t.program.placements)
    keeps(s0, t, *SIZES)


def test_the_outer_accumulation_stays_a_reduction() -> None:
    s0 = symbolic().split("k", 4).split("i", 4).reorder("ko", "io", "j", "ki", "ii")
    s = s0.cache_write("C", at="io")
    t = s.reorder("io", "ko")
    keeps(s0, t, *SIZES)


def test_after_init_at_only_later_iterations_load() -> None:
    s0 = symbolic().split("k", 4).reorder("ko", "i", "j", "ki").init_at("C", "ko")
    s = s0.cache_write("C", at="j", name="acc")
    assert "if ko >= 1 and 4*ko < K" in s.loops()
    keeps(s0, s, *SIZES)


def test_what_is_only_there_becomes_the_buffer() -> None:
    A = tir.placeholder((6, 5), "float16", name="A")
    k = tir.reduce_axis(5, name="k")
    C = tir.compute((6,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    s0 = tir.schedule(C)
    s = s0.cache_write("C", at="i")
    assert s.step.notes == ("C.acc is used only there: it is the buffer",)
    assert [b.scope for b in s.program.buffers.values()] == ["local"]
    keeps(s0, s)
    t = s0.split("k", 2).reorder("ko", "i", "ki").cache_write("C", at="i")
    assert "C_local.load" in t.program.placements
    keeps(s0, t)


def test_tuples_are_kept_together() -> None:
    A = tir.placeholder((4, 6), "int32", name="A")
    k = tir.reduce_axis(6, name="k")
    V = tir.compute((4,), lambda i: tir.argmax(A[i, k], axis=k), name="V")
    s0 = tir.schedule(V).split("k", 2).reorder("ko", "i", "ki")
    s = s0.cache_write("V", at="i")
    load = s.program.stmt("V_local.load")
    assert [w.array.name for w in load.writes] == ["V_local0", "V_local1"]
    keeps(s0, s)
    keeps(s0, s0.init_at("V", "ko").cache_write("V", at="i"))


def test_buffers_follow_their_loops() -> None:
    s0 = symbolic()
    s = s0.cache_write("C", at="i").split("i", 4).parallel("io")
    outside = next(b.outside for b in s.program.buffers.values())
    assert [a.name for a in outside] == ["io", "ii"]
    keeps(s0, s, *SIZES)


def test_a_layout_replays() -> None:
    A = tir.placeholder((4, 32), name="A")
    B = tir.compute((4, 32), lambda i, j: A[i, j] * 2.0, name="B")
    s0 = tir.schedule(B)
    s = s0.cache_read("A").transform_layout("A_cache", lambda i, j: (j // 16, i, j % 16))
    t = tir.replay(s0, s.trace)
    of = lambda x: [b.layout for b in x.program.buffers.values()]  # noqa: E731
    assert of(t) == of(s) == [((1, "//", 16), (0, None, 1), (1, "%", 16))]


def test_a_dimension_of_one_cell_may_go() -> None:
    s = symbolic().cache_write("C", at="j").transform_layout("C_local", lambda i, j: (j,))
    assert next(b.layout for b in s.program.buffers.values()) == ((1, None, 1),)
