from __future__ import annotations

import numpy as np

import tensorir as tir
from tests.errors.saying import blurred, chain, matmul, triangle
from tests.schedule.test_range_ops import same


def shifted(by: int) -> tir.Schedule:
    """Two stages, the second reading the first `by` cells further on."""
    A = tir.placeholder((16,), name="A")
    X = tir.compute((16,), lambda x: A[x] + 1.0, name="X")
    Y = tir.compute((16 - by,), lambda y: X[y] * X[y + by], name="Y")
    return tir.schedule(Y)


def test_merge_of_equal_and_of_different_ranges() -> None:
    s = chain()
    same(s, s.merge("X.i", "Y.i"), (8,))
    assert s.merge("X.i", "Y.i").loops().count("for") == 1
    assert not shifted(2).check("merge", "x", "y")
    late = shifted(2).shift("y", 2)
    same(shifted(2), late.merge("x", "y"), (16,))


def test_merge_says_by_how_much_the_second_must_lag() -> None:
    refused = shifted(2).check("merge", "x", "y")
    assert refused.suggestions == (
        's.shift("y", 2).merge("x", "y")',
        's.shift("y", 3).merge("x", "y")',
    )
    assert refused.witness is not None


def test_merge_undoes_fission() -> None:
    s = matmul(6, 7, 5)
    apart = s.fission("j", after="C.init")
    assert [a.name for a in apart.axes] == ["i", "C.init.j", "j", "k"]
    assert apart.merge("C.init.j", "j").loops() == s.loops()
    same(s, apart, (6, 5), (5, 7))


def test_merged_into_a_loop_that_it_came_from() -> None:
    s = matmul(6, 6, 5)
    apart = s.fission("j", after="C.init").reorder("j", "i")
    assert not apart.check("merge", "C.init.i", "j")
    same(s, apart, (6, 5), (5, 6))


def test_fission_of_both_loops_names_and_marks() -> None:
    s = matmul(6, 16, 5).parallel("i").fission("j", "C.init", into=("a", "b"))
    assert [a.name for a in s.axes] == ["i", "a", "b", "k"]
    twice = s.fission("i", "C.init")
    assert [a.name for a in twice.axes] == ["C.init.i", "a", "i", "b", "k"]
    assert twice.loops().count("# parallel") == 2
    again = matmul(6, 16, 5).fission("j", "C.init")
    assert again.vectorize("j").loops().count("# vectorize") == 2


def test_fission_refused_for_a_shared_buffer_and_at_the_end() -> None:
    s = blurred()
    for args in (("y", "X"), ("y", "Y")):
        verdict = s.check("fission", *args)
        assert not verdict and verdict.witness is None


def test_jammed_copies_share_a_row() -> None:
    s = matmul(10, 9, 7)
    same(s, s.unroll_and_jam("i", 4), (10, 7), (7, 9))
    t = s.unroll_and_jam("j", 2)
    assert t.loops().splitlines()[-2:] == [
        "      for j.u in 0..min(2, 9 - 2*j)  # unroll",
        "        C[i, 2*j + j.u] = fma(A[i, k], B[k, 2*j + j.u], C[i, 2*j + j.u])",
    ]
    assert not triangle().check("unroll_and_jam", "j", 2)


def test_replays() -> None:
    s = chain().merge("X.i", "Y.i").fission("i", after="X").unroll("i", np.int8(2))
    again = tir.replay(s.at(0), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()
