"""non_temporal and prefetch: what they need, what they leave alone, and what replays."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir


def doubled(n: object = 64, m: object = 256) -> tir.Schedule:
    A = tir.placeholder((n, m), name="A")
    B = tir.compute((n, m), lambda i, j: A[i, j] * 2.0, name="B")
    return tir.schedule(B)


def two() -> tir.Schedule:
    A = tir.placeholder((16, 64), name="A")
    X = tir.compute((16, 64), lambda i, j: A[i, j] + 1.0, name="X")
    Y = tir.compute((16, 64), lambda i, j: X[i, j] * 2.0, name="Y")
    return tir.schedule(Y)


def test_they_replay_from_plain_arguments() -> None:
    s = doubled().vectorize("j", 16).non_temporal("B", above=100).prefetch("A", "i", 2)
    again = tir.replay(doubled(), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()
    assert "streaming above 100 bytes  # prefetch A[i + 2, 16*j + j.v]" in s.loops()


def test_a_tensor_may_be_given_for_its_name() -> None:
    A = tir.placeholder((64, 256), name="A")
    B = tir.compute((64, 256), lambda i, j: A[i, j] * 2.0, name="B")
    given = tir.schedule(B).non_temporal(B).prefetch(A, "i", reader=B)
    named = tir.schedule(B).non_temporal("B").prefetch("A", "i", reader="B")
    assert given.loops() == named.loops()


def test_a_stage_in_memory_streams_and_may_be_read_in_other_loops() -> None:
    s = two().vectorize("X.j", 16).non_temporal("X")
    kernel = tir.build(s)
    a = np.random.default_rng(0).standard_normal((16, 64), np.float32)
    assert kernel(a).tobytes() == ((a + 1) * 2).tobytes()
    assert not kernel.notes


def test_a_size_that_is_known_decides_at_once() -> None:
    with pytest.warns(tir.TensorIRWarning, match="B has 65,536 bytes"):
        s = doubled().non_temporal("B", above=65_536)
    assert "streaming" not in s.loops()
    assert "# streaming" in doubled().non_temporal("B", above=65_535).loops()
    with pytest.warns(tir.TensorIRWarning, match="B streams already"):
        doubled().non_temporal("B").non_temporal("B")


def test_what_is_read_again_later_is_stored_plainly_and_said() -> None:
    k = tir.reduce_axis(64, name="k")
    A = tir.placeholder((16, 64), name="A")
    C = tir.compute((16,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    s = tir.schedule(C).cache_write("C", at="i").non_temporal("C")
    assert tir.build(s)(np.ones((16, 64), np.float32)).tolist() == [64.0] * 16
    made = two().non_temporal("X").compute_at("X", "Y.i")
    assert any("X: plain stores: it is kept inside a loop" in n for n in tir.build(made).notes)


def test_a_prefetch_follows_its_statement_through_later_steps() -> None:
    s = doubled().prefetch("A", "i", 1).tile("i", "j", 4, 32).vectorize("ji", 16)
    assert "# prefetch A[4*io + ii + 1, 32*jo + 16*ji + ji.v]" in s.loops()
    far = doubled().split("i", 4).prefetch("A", "io", 3)
    assert "# prefetch A[4*io + ii + 12, j]" in far.loops()


def test_a_prefetch_goes_with_the_last_reader_unless_told() -> None:
    A = tir.placeholder((16, 64), name="A")
    k, q = tir.reduce_axis(64, name="k"), tir.reduce_axis(64, name="q")
    M = tir.compute((16,), lambda i: tir.max(A[i, k], axis=k), name="M")
    S = tir.compute((16,), lambda i: tir.sum(tir.exp(A[i, q] - M[i]), axis=q), name="S")
    s = tir.schedule(S).compute_at("M", "S.i")
    last = [x for x in s.prefetch("A", "i").loops().splitlines() if "# prefetch" in x]
    told = [x for x in s.prefetch("A", "i", reader="M").loops().splitlines() if "# prefetch" in x]
    assert len(last) == len(told) == 1
    assert last[0].lstrip().startswith("S[i]") and told[0].lstrip().startswith("M[i]")


def test_a_prefetch_that_lost_its_reader_is_told() -> None:
    s = doubled().prefetch("A", "i", 1).cache_read("A", at="i")
    assert "prefetch" not in s.loops()
    assert any("A: no prefetch" in n for n in tir.build(s).notes)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (64, 256), (0, 8), (2, 1000)])
def test_results_are_the_same_beyond_the_end_too(size: tuple[int, int]) -> None:
    s = doubled(tir.var("n"), tir.var("m")).vectorize("j", 16)
    s = s.non_temporal("B").prefetch("A", "i", 1000).prefetch("A", "j", 7)
    a = np.random.default_rng(0).standard_normal(size, np.float32)
    assert tir.build(s)(a).tobytes() == (2 * a).tobytes()
