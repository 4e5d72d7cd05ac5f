from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tests.errors.saying import matmul, scaled, triangle


def test_split_names_default_and_given() -> None:
    s = scaled(10)
    assert [a.name for a in s.split("i", 4).axes] == ["io", "ii"]
    assert [a.name for a in s.split("i", 4, into=("a", "b")).axes] == ["a", "b"]
    assert [a.name for a in s.split("i", 4).split("io", 2, into=("i", "x")).axes] == [
        "i",
        "x",
        "ii",
    ]


def test_split_default_names_avoid_those_in_use() -> None:
    s = matmul().split("i", 8, into=("jo", "x"))
    assert [a.name for a in s.split("j", 8).axes] == ["jo", "x", "jo_1", "ji", "k"]


def test_split_by_an_integer_of_any_type() -> None:
    s = scaled(10)
    assert s.split("i", np.int64(4)).loops() == s.split("i", 4).loops()
    assert s.split("i", np.int64(4)).step.args == ("i", 4)


@pytest.mark.parametrize(("parts", "inner"), [(1, 10), (2, 5), (3, 4), (4, 3), (10, 1), (64, 1)])
def test_split_into_parts(parts: int, inner: int) -> None:
    s = scaled(10)
    assert s.split("i", parts=parts).loops() == s.split("i", inner).loops()


def test_exact_split_where_it_divides() -> None:
    assert "min" not in scaled(12).split("i", 4, tail="exact").loops()
    s = matmul(12, 8, 4).split("i", 6, into=("io", "ii"))
    assert s.check("split", "ii", 3, tail="exact")
    assert not s.check("split", "ii", 4, tail="exact")


def test_split_starts_at_a_constant_lower_bound() -> None:
    A = tir.placeholder((12,), name="A")
    k = tir.reduce_axis((3, 11), name="k")
    s = tir.schedule(tir.compute((), lambda: tir.sum(A[k], axis=k), name="C"))
    assert s.split("k", 4, tail="exact").loops() == (
        "C[()] = 0.0\nfor ko in 0..2\n  for ki in 0..4\n    C[()] = C[()] + A[4*ko + ki + 3]"
    )


def test_split_keeps_how_a_loop_runs() -> None:
    s = matmul()
    assert (
        s.parallel("i")
        .split("i", 8)
        .loops()
        .startswith("for io in 0..8  # parallel\n  for ii in 0..8\n")
    )
    assert (
        "for jo in 0..16\n    for ji in 0..4  # vectorize 4\n"
        in s.vectorize("j").split("j", 4).loops()
    )
    text = s.unroll("k").split("k", 8).loops()
    assert "for ko in 0..8  # unroll\n" in text and "for ki in 0..8  # unroll\n" in text


def test_split_of_a_triangle() -> None:
    assert triangle().split("j", 4).loops() == (
        "for i in 0..8\n"
        "  for jo in 0..(i//4 + 1)\n"
        "    for ji in 0..min(4, i - 4*jo + 1)\n"
        "      T[i, 4*jo + ji] = A[i, 4*jo + ji] + 1.0"
    )


def test_fuse_of_three_and_of_partial_tiles() -> None:
    A = tir.placeholder((3, 4, 5), name="A")
    B = tir.compute((3, 4, 5), lambda i, j, k: A[i, j, k] * 2.0, name="B")
    s = tir.schedule(B)
    fused = s.fuse("i", "j", "k")
    assert [a.name for a in fused.axes] == ["ijk"]
    assert fused.loops().startswith("for ijk in 0..60\n")
    partial = s.split("k", 3).reorder("ko", "i", "j", "ki").fuse("j", "ki", into="f")
    assert partial.loops() == (
        "for ko in 0..2\n"
        "  for i in 0..3\n"
        "    for f in 0..12\n"
        "      if 3*ko + f%3 <= 4\n"
        "        B[i, f//3, 3*ko + f%3] = A[i, f//3, 3*ko + f%3] * 2.0"
    )


def test_fuse_of_parallel_loops_stays_parallel() -> None:
    A = tir.placeholder((6, 4), name="A")
    B = tir.compute((6, 4), lambda i, j: A[i, j] * 2.0, name="B")
    s = tir.schedule(B).fuse("i", "j", into="f").parallel("f")
    assert s.loops().startswith("for f in 0..24  # parallel\n")


def test_axis_objects_are_names() -> None:
    A = tir.placeholder((8, 8), name="A")
    k = tir.reduce_axis(8, name="k")
    C = tir.compute((8,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    s = tir.schedule(C)
    assert s.split(k, 4).loops() == s.split("k", 4).loops()
    assert s.split(k, 4).step.args == ("k", 4)
    assert s.split(s.axes[0], 4).loops() == s.split("i", 4).loops()
    assert s.split("C.k", 4).loops() == s.split("k", 4).loops()
    with pytest.raises(tir.ScheduleError, match="step 1"):
        s.split(k, 4).split(k, 2)
