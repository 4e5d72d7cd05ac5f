from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tests.conformance.nests import build as nest
from tests.errors.saying import matmul, scaled, triangle
from tests.schedule.test_range_ops import same


def test_reverse_counts_from_the_last() -> None:
    assert scaled(10).reverse("i").loops() == "for i in 0..10\n  B[-i + 9] = A[-i + 9] * 2.0"
    n = tir.var("n")
    s = scaled(n).reverse("i")
    assert s.loops() == "for i in 0..n\n  B[-i + n - 1] = A[-i + n - 1] * 2.0"
    assert s.reverse("i").loops() == scaled(n).loops()


def test_a_reversed_reduction_changes_rounding() -> None:
    s = matmul(6, 7, 5)
    assert s.check("reverse", "k").reassociates
    assert not s.check("reverse", "j").reassociates
    same(s, s.reverse("k").reverse("i"), (6, 5), (5, 7))


def test_reverse_refused_where_order_matters() -> None:
    refused = nest("lcs").check("reverse", "i")
    assert not refused and refused.witness is not None


def test_reversed_lanes() -> None:
    s = scaled(37)
    same(s, s.reverse("i").vectorize("i", 8), (37,))
    same(s, s.vectorize("i", 8).reverse("i.v"), (37,))


@pytest.mark.parametrize("by", [3, -2, "i", "2*i + 1"])
def test_shift_keeps_everything_but_the_numbers(by: object) -> None:
    s = triangle()
    same(s, s.shift("j", by), (8, 8))
    assert s.shift("j", by).shift("j", f"-({by})").loops() == s.loops()


def test_blocks_of_a_shifted_loop_begin_where_it_does() -> None:
    s = scaled(16).shift("i", 3).split("i", 8, tail="exact")
    assert "min" not in s.loops()


def test_a_wavefront() -> None:
    s = nest("lcs")
    assert not s.check("parallel", "j")
    skewed = s.skew("j", by="i").reorder("j", "i")
    assert skewed.parallel("i").loops().count("# parallel") == 1


def test_tiles_after_a_skew() -> None:
    s = nest("jacobi1d_timebuf")
    assert not s.check("tile", "t", "i", 2, 4)
    assert s.skew("i", by="t").check("tile", "t", "i", 2, 4)


def test_a_skewed_nest_runs() -> None:
    s = matmul(5, 6, 4)
    for t in (s.skew("j", by="i"), s.skew("j", by="i", factor=-2), s.skew("k", by="j", factor=2)):
        same(s, t, (5, 4), (4, 6))
    tiled = s.skew("j", by="i").tile("i", "j", 2, 3).vectorize("ji")
    same(s, tiled, (5, 4), (4, 6))


def test_replays() -> None:
    s = matmul().shift("i", 2).skew("j", by="i", factor=np.int64(2)).reverse("j")
    again = tir.replay(s.at(0), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()
