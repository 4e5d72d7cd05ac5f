from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tensorir as tir
from tests.errors.saying import blurred, chain, matmul, scaled, triangle


def window(n: object = 8) -> tir.Schedule:
    """A sum of three neighbours, those outside counting as zero."""
    A = tir.placeholder((n,), name="A")

    def near(i: tir.Expr, d: int) -> tir.Expr:
        inside = (i + d >= 0) & (i + d < n)
        return tir.if_then_else(inside, A[i + d], 0.0)

    return tir.schedule(
        tir.compute((n,), lambda i: near(i, -1) + near(i, 0) + near(i, 1), name="B")
    )


def same(s: tir.Schedule, t: tir.Schedule, *shapes: tuple[int, ...]) -> None:
    """Both compute the same, and the loops of `t` pass the validator."""
    plain, cut = tir.build(s), tir.build(t, validate=True)
    for k in range(3):
        rng = np.random.default_rng(k)
        arrays = [rng.integers(-9, 9, shape).astype(np.float32) for shape in shapes]
        assert plain(*arrays).tobytes() == cut(*arrays).tobytes()


def test_a_cut_at_a_number() -> None:
    s = scaled(10).partition("i", 4)
    assert s.loops() == (
        "for i.first in 0..4\n  B[i.first] = A[i.first] * 2.0\nfor i in 4..10\n  B[i] = A[i] * 2.0"
    )


@pytest.mark.parametrize("at", [0, -3, 10, 12])
def test_a_cut_outside_leaves_one_part(at: int) -> None:
    s = scaled(10)
    with pytest.warns(tir.TensorIRWarning, match="one of the parts has no points"):
        cut = s.partition("i", at)
    assert cut.loops() == s.loops()


def test_names_given() -> None:
    s = matmul().partition("i", 8, into=("low", "high"))
    assert [a.name for a in s.axes] == ["low", "j.low", "k.low", "high", "j", "k"]
    assert s.stages == ("C",)


def test_every_way_to_say_where() -> None:
    n = tir.var("n")
    s = scaled(n)
    there = s.partition("i", "n - 4").loops()
    assert there == s.partition("i", n - 4).loops()
    assert "for i.first in 0..(n - 4)" in there
    assert s.partition("i", n - 4).trace.steps[-1].args == ("i", "n - 4")
    assert s.partition("i", np.int32(3)).trace.steps[-1].args == ("i", 3)


def test_a_cut_that_depends_on_a_loop_around() -> None:
    s = triangle()
    cut = s.partition("j", "i // 2")
    assert "for j.first in 0..i//2" in cut.loops()
    same(s, cut, (8, 8))
    outer = next(a for a in s.axes if a.name == "i")
    assert s.partition("j", outer // 2).loops() == cut.loops()


def test_parts_are_scheduled_apart_and_blocks_begin_at_the_cut() -> None:
    s = scaled(21)
    cut = s.partition("i", 5).vectorize("i", 8).unroll("i.first")
    assert "for i in 0..2\n  for i.v in 0..8" in cut.loops()
    same(s, cut, (21,))


def test_a_reduction_in_parts() -> None:
    s = matmul(6, 7, 5)
    cut = s.partition("k", 2).partition("i", 3)
    same(s, cut, (6, 5), (5, 7))
    assert cut.step is not None and not any(x.reassociates for x in cut.trace)
    half = s.partition("i", 3).decompose_reduction("C", "i").decompose_reduction("C", "i.first")
    same(s, half, (6, 5), (5, 7))


def test_a_buffer_inside_the_loop_is_one_for_each_part() -> None:
    s = blurred()
    cut = s.partition("y", 5)
    assert {a.name for a in cut.program.arrays} == {"A", "X", "X.first", "Y"}
    same(s, cut, (18, 16))
    for step in ("compute_root", "compute_inline"):
        assert not cut.check(step, "X")


def test_a_tile_kept_in_each_part() -> None:
    s = matmul(20, 16, 5).split("i", 4).reorder("io", "k", "ii", "j")
    cut = s.partition("io", 3).cache_write("C", "local", at="io")
    cut = cut.cache_write("C", "local", at="io.first", name="kept")
    same(s, cut, (20, 5), (5, 16))


def test_marks_go_with_both_parts() -> None:
    s = scaled(32).parallel("i").partition("i", 8)
    assert s.loops().count("# parallel") == 2
    twin = matmul().reorder("k", "i", "j").partition("j", 16)
    twin = twin.vectorize("j.first")
    assert twin.loops().count("# vectorize") == 1


def test_the_vector_of_a_part_takes_that_of_its_init_along() -> None:
    s = matmul(8, 32, 4).reorder("i", "k", "j").partition("i", 3).vectorize("j.first")
    assert [x for x in s.loops().splitlines() if "# vectorize" in x] == [
        "  for C.init.j.first in 0..32  # vectorize 16",
        "    for j.first in 0..32  # vectorize 16",
    ]


def test_peeled_ends() -> None:
    s = window()
    cut = s.peel("i", first=1, last=1)
    assert cut.loops() == (
        "for i.first in 0..1\n  B[i.first] = 0.0 + A[i.first] + A[i.first + 1]\n"
        "for i in 1..7\n  B[i] = A[i - 1] + A[i] + A[i + 1]\n"
        "for i.last in 7..8\n  B[i.last] = A[i.last - 1] + A[i.last] + 0.0"
    )
    same(s, cut, (8,))


def test_what_a_part_settles_in_part() -> None:
    A = tir.placeholder((8, 8), name="A")
    k = tir.reduce_axis(3, name="k")

    def near(i: tir.Expr, j: tir.Expr) -> tir.Expr:
        inside = (i + k - 1 >= 0) & (i + k - 1 < 8)
        return tir.sum(tir.if_then_else(inside, A[i + k - 1, j], 0.0), axis=k)

    s = tir.schedule(tir.compute((8, 8), near, name="B"))
    cut = s.peel("i", first=1, last=2)
    lines = [x.partition(" + ")[2] for x in cut.loops().splitlines() if "fma" in x or " + " in x]
    assert lines == [
        "if_then_else(i.first + (k.first) - 1 >= 0, A[i.first + k.first - 1, j.first], 0.0)",
        "A[i + k - 1, j]",
        "if_then_else(i.last + (k.last) - 1 < 8, A[i.last + k.last - 1, j.last], 0.0)",
    ]
    same(s, cut, (8, 8))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 9])
def test_peeled_ends_of_any_size(size: int) -> None:
    s = window(tir.var("n"))
    cut = tir.build(s.peel("i", first=1, last=1).vectorize("i", 4))
    a = np.arange(1, size + 1, dtype=np.float32)
    assert cut(a).tobytes() == tir.build(s)(a).tobytes()


def test_a_piece_of_a_piece() -> None:
    s = scaled(20).partition("i", 8).partition("i", 12).partition("i.first", 2)
    assert [a.name for a in s.axes] == ["i.first.first", "i.first", "i.first2", "i"]
    same(scaled(20), s, (20,))


def test_the_output_is_seen_to_be_written_whole() -> None:
    s = matmul(tir.var("M"), 16, 4).partition("i", "M - 3").peel("j", first=2, last=1)
    kernel = tir.build(s)
    assert not kernel.arguments[-1].partial


def test_hints_go_with_both_parts() -> None:
    s = matmul(32, 32, 32).prefetch("B", "k", 2).partition("i", 8)
    assert s.loops().count("# prefetch B") == 2


SHOWS: list[Callable[[], tir.Schedule]] = [
    lambda: matmul().partition("i", 7).peel("j", last=3),
    lambda: chain().partition("X.i", "3"),
    lambda: triangle().partition("j", "i - 2"),
]


@pytest.mark.parametrize("made", SHOWS)
def test_replays(made: Callable[[], tir.Schedule]) -> None:
    s = made()
    again = tir.replay(s.at(0), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()
