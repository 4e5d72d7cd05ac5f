"""From a declaration to its program: statements, domains, reads, and what calls must refuse."""

from __future__ import annotations

import pytest

import tensorir as tir
from tensorir.ir.affine import Lin
from tensorir.ir.printer import statement_text
from tensorir.poly import declare, tree
from tensorir.poly.model import Program


def program(*outputs: tir.Tensor) -> Program:
    return declare.program(outputs)


def texts(p: Program) -> list[str]:
    return [statement_text(s) for s in p.statements]


def test_a_sum_of_products_is_one_fma() -> None:
    A, B = tir.placeholder((4, 5), name="A"), tir.placeholder((5, 6), name="B")
    k = tir.reduce_axis(5, name="k")
    C = tir.compute((4, 6), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    p = program(C)
    assert texts(p) == ["C[i, j] = 0.0", "C[i, j] = fma(A[i, k], B[k, j], C[i, j])"]
    assert [a.name for a in p.arrays] == ["A", "B", "C"]
    assert [a.role for a in p.arrays] == ["input", "input", "output"]
    assert [x.axis.name for x in tree.loops(p.tree)] == ["i", "j", "k"]


def test_what_surrounds_a_reduction_is_its_finish() -> None:
    A = tir.placeholder((4, 8), name="A")
    k = tir.reduce_axis(8, name="k")
    M = tir.compute((4,), lambda i: tir.sum(A[i, k], axis=k) / 8.0, name="M")
    p = program(M)
    assert [s.role for s in p.statements] == ["init", "update", "finish"]
    assert texts(p)[2] == "M[i] = M.acc[i] / 8.0"
    assert [a.name for a in p.arrays if a.role == "temp"] == ["M.acc"]


def test_half_precision_accumulates_in_float32_and_is_rounded_once() -> None:
    A = tir.placeholder((8,), "float16", name="A")
    k = tir.reduce_axis(8, name="k")
    p = program(tir.compute((), lambda: tir.sum(A[k], axis=k), name="s"))
    (acc,) = [a for a in p.arrays if a.role == "temp"]
    assert acc.dtype.name == "float32"
    assert texts(p)[-1] == "s[()] = float16(s.acc[()])"


def test_an_affine_condition_of_a_reduction_is_part_of_its_domain() -> None:
    A = tir.placeholder((8, 8), name="A")
    k = tir.reduce_axis(8, name="k")
    p = program(tir.compute((8,), lambda i: tir.sum(A[i, k], axis=k, where=k <= i), name="s"))
    i, kk = p.stmt("s").iters
    assert ("ge", Lin({i: 1, kk: -1})) in p.stmt("s").domain[0]
    assert texts(p)[1] == "s[i] = s[i] + A[i, k]"


def test_a_condition_on_data_guards_the_update() -> None:
    A = tir.placeholder((8, 8), name="A")
    k = tir.reduce_axis(8, name="k")
    p = program(tir.compute((8,), lambda i: tir.sum(A[i, k], axis=k, where=A[i, k] > 0), name="s"))
    assert texts(p)[1] == "s[i] = if_then_else(A[i, k] > 0.0, s[i] + A[i, k], s[i])"


def test_an_index_that_chooses_becomes_guarded_exact_reads() -> None:
    A = tir.placeholder((8,), name="A")
    p = program(tir.compute((8,), lambda i: A[tir.maximum(i - 2, 0)], name="B"))
    s = p.stmt("B")
    assert all(r.exact for r in s.reads)
    (i,) = s.iters
    assert [r.index[0] for r in s.reads] == [Lin({i: 1}, -2), Lin()]
    assert s.reads[0].guard == ((("ge", Lin({i: 1}, -2)),),)


def test_a_loaded_index_is_a_may_access() -> None:
    A, at = tir.placeholder((8,), name="A"), tir.placeholder((4,), "int32", name="at")
    p = program(tir.compute((4,), lambda i: A[at[i]], name="B"))
    assert [r.exact for r in p.stmt("B").reads] == [True, False]


def test_two_reductions_may_share_an_axis_object() -> None:
    A = tir.placeholder((8, 8), name="A")
    k = tir.reduce_axis(8, name="k")
    R = tir.compute((8,), lambda i: tir.sum(A[i, k], axis=k), name="R")
    S = tir.compute((8,), lambda i: R[i] + tir.max(A[i, k], axis=k), name="S")
    axes = [x.axis for x in tree.loops(program(S).tree)]
    assert len(axes) == len(set(map(id, axes))) == 4


def test_a_read_outside_is_refused_at_once_with_the_instance() -> None:
    A = tir.placeholder((256,), name="A")
    C = tir.compute((256,), lambda i: A[i + 1], name="C")
    with pytest.raises(tir.BoundsError) as e:
        program(C)
    assert str(e.value) == (
        "C reads A[i + 1] outside A: index 0, i + 1, is 256 at i = 255; allowed is 0..255"
    )


def test_a_read_outside_for_every_size_is_refused_at_once() -> None:
    n = tir.var("n")
    A = tir.placeholder((n,), name="A")
    with pytest.raises(tir.BoundsError, match=r"is 1 at n = 1, i = 0; allowed is 0..n - 1"):
        program(tir.compute((n,), lambda i: A[i + 1], name="C"))


def test_a_read_outside_for_some_sizes_is_left_to_the_call() -> None:
    n = tir.var("n")
    A = tir.placeholder((n,), name="A")
    p = program(tir.compute((n,), lambda i: A[5 - 0 * i], name="C"))
    assert len(p.requirements) == 1
    assert "is 5 at n = 1" in p.requirements[0].message


def test_a_condition_takes_part_in_the_bounds_of_the_reads_it_guards() -> None:
    A = tir.placeholder((8,), name="A")
    p = program(tir.compute((10,), lambda i: tir.if_then_else(i < 8, A[i], 0.0), name="B"))
    assert p.requirements == ()


def test_a_condition_partly_on_data_still_bounds_what_it_guards() -> None:
    A, F = tir.placeholder((8,), name="A"), tir.placeholder((10,), "bool", name="F")
    B = tir.compute((10,), lambda i: tir.if_then_else(F[i] & (i < 8), A[i], 0.0), name="B")
    assert program(B).requirements == ()
    C = tir.compute((10,), lambda i: tir.if_then_else(F[i] | (i >= 8), 0.0, A[i]), name="C")
    assert program(C).requirements == ()
    with pytest.raises(tir.BoundsError):
        program(tir.compute((10,), lambda i: tir.if_then_else(F[i] | (i < 8), A[i], 0.0), name="D"))


def test_reading_a_cell_that_nothing_computes_is_refused() -> None:
    A = tir.placeholder((4, 4), name="A")
    T = tir.compute((4, 4), lambda i, j: A[i, j], name="T", where=lambda i, j: j <= i)
    with pytest.raises(tir.BoundsError) as e:
        program(tir.compute((4, 4), lambda i, j: T[i, j] + 1, name="U"))
    assert str(e.value) == (
        "U reads T[0, 1], which nothing computes: the domain of T leaves that cell out "
        "(i = 0, j = 1)"
    )


def test_a_maximum_over_nothing_is_refused() -> None:
    A = tir.placeholder((4, 4), name="A")
    k = tir.reduce_axis(4, name="k")
    with pytest.raises(tir.ArgumentError) as e:
        program(tir.compute((4,), lambda i: tir.max(A[i, k], axis=k, where=k < i), name="m"))
    assert str(e.value) == (
        "m: max over k has nothing to reduce at i = 0; give the reduction init= for that"
    )


def test_a_maximum_over_a_symbolic_nothing_is_left_to_the_call() -> None:
    n = tir.var("n")
    A = tir.placeholder((4, n), name="A")
    k = tir.reduce_axis(n, name="k")
    p = program(tir.compute((4,), lambda i: tir.max(A[i, k], axis=k), name="m"))
    assert [r.message for r in p.requirements] == [
        "m: max over k has nothing to reduce at n = 0, i = 0; give the reduction init= for that "
        "(and wherever n == 0)"
    ]


def test_two_sizes_of_one_name_are_refused() -> None:
    A = tir.placeholder((tir.var("n"),), name="A")
    B = tir.placeholder((tir.var("n"),), name="B")
    with pytest.raises(tir.ArgumentError, match="two different sizes are called 'n'"):
        program(tir.compute((4,), lambda i: A[i] + B[i], name="C"))
