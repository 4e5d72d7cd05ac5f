"""decompose_reduction, init_at, rfactor, vector_reduce: loops, algebra, and the same result."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul
from tests.schedule.interpret import same

SIZES = ({"M": 1, "N": 1, "K": 1}, {"M": 5, "N": 6, "K": 7}, {"M": 3, "N": 2, "K": 0})


def symbolic() -> tir.Schedule:
    return matmul(tir.var("M"), tir.var("N"), tir.var("K"))


def rows(m: object = 4, n: object = 11, dtype: str = "float32") -> tir.Schedule:
    A = tir.placeholder((m, n), dtype, name="A")
    k = tir.reduce_axis(n, name="k")
    return tir.schedule(tir.compute((m,), lambda i: tir.sum(A[i, k], axis=k), name="S"))


def keeps(before: tir.Schedule, after: tir.Schedule, *sizes: dict[str, int]) -> None:
    for z in sizes or ({},):
        same(before.program, after.program, z)


def test_init_at_sits_beside_the_update() -> None:
    s0 = symbolic()
    s = s0.split("k", 4).split("i", 2).reorder("ko", "io", "j", "ki", "ii").init_at("C", "ko")
    names = [a.name for a in s.axes]
    assert names == ["ko", "io", "j", "C.init.ii", "ki", "ii"]
    keeps(s0, s, *SIZES)
    back = s.decompose_reduction("C", "ko")
    keeps(s0, back, *SIZES)
    keeps(s0, back.init_at("C", "ko"), *SIZES)


def test_marks_on_the_update_reach_the_init() -> None:
    s = symbolic().split("i", 2).split("k", 4).reorder("ko", "io", "j", "ki", "ii")
    s = s.init_at("C", "ko").unroll("ii")
    kinds = {x.name: k for x, k in _kinds(s)}
    assert kinds["ii"] == kinds["C.init.ii"] == "unroll"


def _kinds(s: tir.Schedule) -> list[tuple[tir.Axis, str]]:
    from tensorir.poly import tree

    return [(x.axis, x.kind) for x in tree.loops(s.program.tree)]


def test_init_at_with_a_lower_bound() -> None:
    A = tir.placeholder((4, 9), name="A")
    k = tir.reduce_axis((3, 9), name="k")
    C = tir.compute((4,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    s0 = tir.schedule(C)
    keeps(s0, s0.reorder("k", "i").init_at("C", "k"))
    keeps(s0, s0.split("k", 4).reorder("ko", "i", "ki").init_at("C", "ko"))


def test_init_at_of_a_triangle() -> None:
    n = tir.var("N")
    A = tir.placeholder((n, n), name="A")
    k = tir.reduce_axis(n, name="k")
    C = tir.compute((n,), lambda i: tir.sum(A[i, k], axis=k, where=k >= i), name="C")
    s0 = tir.schedule(C)
    keeps(s0, s0.init_at("C", "k"), {"N": 0}, {"N": 1}, {"N": 5})
    keeps(s0, s0.reorder("k", "i").init_at("C", "k"), {"N": 1}, {"N": 5})


def test_decompose_undoes_init_at_of_a_triangle() -> None:
    A = tir.placeholder((7, 7), name="A")

    def body(i: tir.Axis, j: tir.Axis) -> tir.Expr:
        k = tir.reduce_axis((j, i + 1), name="k")
        return tir.sum(A[i, k] * A[k, j], axis=k)

    s0 = tir.schedule(tir.compute((7, 7), body, where=lambda i, j: j <= i, name="U"))
    s = s0.init_at("U", "k")
    back = s.decompose_reduction("U", "i")
    assert str(back) == str(s0.decompose_reduction("U", "i"))
    keeps(s0, back.split("i", 3))
    keeps(s0, s.split("j", 2).split("k", 2).decompose_reduction("U", "jo").vectorize("ji"))


def test_decompose_refuses_an_axis_that_also_tells_the_cell() -> None:
    s = rows().init_at("S", "k").fuse("i", "k", into="f")
    with pytest.raises(tir.UnsupportedError) as caught:
        s.decompose_reduction("S", "f")
    assert str(caught.value).splitlines()[0] == (
        "decompose_reduction: 'f' runs over a reduction and another axis at once"
    )


def test_decompose_takes_the_finish_along() -> None:
    s0 = rows(dtype="float16")
    s = s0.decompose_reduction("S", "i")
    assert [a.name for a in s.axes] == ["S.init.i", "i", "k", "S.finish.i"]
    keeps(s0, s)


def test_rfactor_of_points_and_of_blocks() -> None:
    s0 = rows(tir.var("M"), tir.var("K"))
    for name, at in (("ki", None), ("ko", None), ("ki", "i"), ("ko", "i")):
        s = s0.split("k", 4).rfactor(name, into="P", at=at)
        assert s.step.reassociates
        for z in ({"M": 3, "K": 9}, {"M": 2, "K": 0}, {"M": 1, "K": 3}):
            keeps(s0, s, z)
            keeps(s0, s.parallel(name) if name == "ki" else s.reorder("ko", "ki"), z)


def test_rfactor_lets_the_loop_be_parallel() -> None:
    s = rows().split("k", 4)
    assert not s.check("parallel", "ko")
    t = s.rfactor("ko").parallel("ko")
    keeps(s, t)


def test_rfactor_of_fused_reduction_axes_is_a_copy() -> None:
    A = tir.placeholder((2, 3, 4), name="A")
    a, b = tir.reduce_axis(3, name="a"), tir.reduce_axis(4, name="b")
    S = tir.compute((2,), lambda i: tir.sum(A[i, a, b], axis=(a, b)), name="S")
    s0 = tir.schedule(S)
    s = s0.fuse("a", "b", into="f").rfactor("f")
    part = next(a for a in s.program.arrays if a.name == "S_rf")
    assert [str(e) for e in part.shape] == ["12", "2"]
    keeps(s0, s)


def test_rfactor_with_a_finish_stays_before_it() -> None:
    s0 = rows(dtype="float16")
    s = s0.split("k", 4).rfactor("ki")
    assert [
        x.name
        for x in next(iter(b.outside for a, b in s.program.buffers.items() if a.name == "S_rf"))
    ] == ["i"]
    keeps(s0, s)


def test_rfactor_of_a_tuple() -> None:
    A = tir.placeholder((4, 9), "int32", name="A")
    k = tir.reduce_axis(9, name="k")
    V = tir.compute((4,), lambda i: tir.argmax(A[i, k], axis=k), name="V")
    s0 = tir.schedule(V)
    s = s0.split("k", 2).rfactor("ki", at="i")
    assert not s.step.reassociates
    keeps(s0, s)


def test_rfactor_inside_a_cache() -> None:
    s0 = symbolic().split("k", 4).split("j", 3)
    s = s0.reorder("i", "jo", "ko", "ki", "ji").cache_write("C", at="jo").rfactor("ki")
    keeps(s0, s, *SIZES)


def test_an_ordered_reducer_keeps_its_order() -> None:
    join = tir.reducer(
        lambda a, b: a + b, identity=0.0, name="join", associative=True, commutative=False
    )
    A = tir.placeholder((3, 8), name="A")
    k = tir.reduce_axis(8, name="k")
    s = tir.schedule(tir.compute((3,), lambda i: join(A[i, k], axis=k), name="S")).split("k", 4)
    assert s.check("rfactor", "ko")
    with pytest.raises(tir.IllegalSchedule, match="not commutative"):
        s.rfactor("ki")


def test_vector_reduce_is_its_parts() -> None:
    s0 = rows(tir.var("M"), tir.var("K"))
    s = s0.vector_reduce("k", 4, accumulators=2)
    assert [x.primitive for x in s.trace] == ["split", "rfactor", "set_scope", "vectorize"]
    t = tir.replay(s0, s.trace)
    assert t.loops() == s.loops()
    for z in ({"M": 3, "K": 19}, {"M": 2, "K": 0}, {"M": 1, "K": 3}):
        keeps(s0, s, z)
    kinds = {x.name: k for x, k in _kinds(s)}
    assert kinds["ki"] == kinds["S_rf.init.ki"] == kinds["S.ki"] == "vectorize"
    # later steps check the marks around them again, and the horizontal end is no race
    keeps(s0, s.split("i", 2).parallel("io"), {"M": 3, "K": 19})


def test_vector_reduce_of_everything() -> None:
    A = tir.placeholder((37,), name="A")
    k = tir.reduce_axis(37, name="k")
    S = tir.compute((), lambda: tir.sum(A[k] * A[k], axis=k), name="S")
    s0 = tir.schedule(S)
    keeps(s0, s0.vector_reduce("k", 4))
