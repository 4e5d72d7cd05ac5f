"""Storage that outlives an iteration: windows that slide, folded or not."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir


def blur(n: object, m: object) -> tir.Tensor:
    A = tir.placeholder((n + 2, m + 2), name="A")  # type: ignore[operator]
    B = tir.compute(
        (n + 2, m),  # type: ignore[operator]
        lambda r, x: A[r, x] + A[r, x + 1] + A[r, x + 2],
        name="B",
    )
    return tir.compute((n, m), lambda y, x: (B[y, x] + B[y + 1, x] + B[y + 2, x]) / 9.0, name="C")


def blurred(a: np.ndarray) -> np.ndarray:
    b = a[:, :-2] + a[:, 1:-1] + a[:, 2:]
    return (b[:-2] + b[1:-1] + b[2:]) / 9


SIZES = [(1, 1), (2, 3), (37, 29), (16, 16), (8, 9)]
SCHEDULES = {
    "rows": lambda s, kept: s.compute_at("B", "y", storage=kept),
    "blocks": lambda s, kept: s.split("y", 8).compute_at("B", "yo", storage=kept),
    "threads": lambda s, kept: (
        s.split("y", 8).parallel("yo").compute_at("B", "yi", storage=kept)
    ),
    "whole": lambda s, kept: (
        s.split("y", 8).compute_at("B", "yi", storage=kept, store_at="yo").vectorize("C.x", 8)
        .vectorize("B.x", 8)
    ),
    "columns": lambda s, kept: (
        s.split("C.x", 8).reorder("C.xo", "y", "C.xi").compute_at("B", "y", storage=kept)
        .vectorize("B.x").vectorize("C.xi")
    ),
}  # fmt: skip


@pytest.mark.parametrize("kept", ["sliding", "folded"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_blur_of_symbolic_size(name: str, kept: str) -> None:
    s = SCHEDULES[name](tir.schedule(blur(tir.var("n"), tir.var("m"))), kept)
    kernel = tir.build(s)
    for n, m in SIZES:
        a = np.random.default_rng(n).standard_normal((n + 2, m + 2)).astype("float32")
        kernel.check(a, against=blurred)


def test_each_row_is_computed_once_and_three_are_kept() -> None:
    s = tir.schedule(blur(6, 4)).compute_at("B", "y", storage="folded", recompute=False)
    assert str(s.loops()).splitlines() == [
        "for y in 0..6",
        "  for B.warm.r in 0..2",
        "    for B.warm.x in 0..4",
        "      if y == 0",
        "        B[B.warm.r%4, B.warm.x] = A[B.warm.r, B.warm.x] + A[B.warm.r, B.warm.x + 1] + "
        "A[B.warm.r, B.warm.x + 2]",
        "  for B.x in 0..4",
        "    B[(y + 2)%4, B.x] = A[y + 2, B.x] + A[y + 2, B.x + 1] + A[y + 2, B.x + 2]",
        "  for x in 0..4",
        "    C[y, x] = (B[y%4, x] + B[(y + 1)%4, x] + B[(y + 2)%4, x]) / 9.0",
    ]
    assert s.step is not None
    assert s.step.notes == (
        "each iteration of 'y' computes what of B none before it needed",
        "B keeps 4 along dimension 0, index % 4",
    )
    kernel = tir.build(s, validate=True)
    assert "alloc B: float32[4, 4]" in kernel.loops


def test_what_is_recomputed_is_said() -> None:
    s = tir.schedule(blur(16, 4)).split("y", 4).compute_at("B", "yi", storage="sliding")
    assert s.step is not None
    assert s.step.notes[0] == "what several iterations of 'yo' need of B is recomputed"
    with pytest.raises(tir.IllegalSchedule, match="more than once"):
        tir.schedule(blur(16, 4)).split("y", 4).compute_at(
            "B", "yi", storage="sliding", recompute=False
        )


def chain(n: object) -> tir.Tensor:
    """Three 3-point stencils, one after the other."""
    t = tir.placeholder((n + 6,), "int32", name="A")  # type: ignore[operator]
    for k, name in ((4, "S1"), (2, "S2"), (0, "S3")):
        t = tir.compute(
            (n + k,),  # type: ignore[operator]
            lambda i, t=t: t[i] + 2 * t[i + 1] - 3 * t[i + 2],
            name=name,
        )
    return t


def chained(a: np.ndarray) -> np.ndarray:
    for _ in range(3):
        a = a[:-2] + 2 * a[1:-1] - 3 * a[2:]
    return a


@pytest.mark.parametrize("kept", ["sliding", "folded"])
def test_windows_over_windows(kept: str) -> None:
    """Each stage keeps three cells, and no cell of any is computed twice."""
    s = tir.schedule(chain(tir.var("n")))
    s = s.compute_at("S2", "S3.i", storage=kept, recompute=False)
    s = s.compute_at("S1", "S3.i", storage=kept, recompute=False)
    kernel = tir.build(s, validate=True)
    if kept == "folded":
        # at the start five cells of S1 wait for the first two of S2
        kept_cells = [x.split("  ")[0] for x in kernel.loops.splitlines() if "alloc" in x]
        assert sorted(kept_cells) == ["alloc S1: int32[8]", "alloc S2: int32[4]"]
    for n in (0, 1, 2, 3, 20):
        a = np.random.default_rng(n).integers(-9, 9, n + 6).astype("int32")
        kernel.check(a, against=chained)


def test_a_reduction_slides_with_its_initial_value() -> None:
    n = tir.var("n")
    A = tir.placeholder((n + 2, 5), "int32", name="A")
    k = tir.reduce_axis(5, name="k")
    S = tir.compute((n + 2,), lambda r: tir.sum(A[r, k], axis=k, dtype="int32"), name="S")
    C = tir.compute((n,), lambda y: S[y] * S[y + 2], name="C")
    kernel = tir.build(tir.schedule(C).compute_at("S", "y", storage="folded"), validate=True)
    for size in (1, 2, 9):
        a = np.random.default_rng(size).integers(-9, 9, (size + 2, 5)).astype("int32")
        kernel.check(a, against=lambda a: a.sum(1)[:-2] * a.sum(1)[2:])


def test_later_steps_that_would_lose_a_cell_are_refused() -> None:
    s = tir.schedule(blur(16, 4)).split("y", 4).compute_at("B", "yo", storage="folded")
    for step in (("parallel", "yo"), ("vectorize", "yo", 4), ("reorder", "yi", "r")):
        assert not s.check(*step), step
    assert s.check("vectorize", "C.x", 4)


def test_it_replays() -> None:
    tensor = blur(16, 4)
    s = tir.schedule(tensor).split("y", 4).compute_at("B", "yi", storage="folded", store_at="yo")
    again = tir.replay(tir.schedule(tensor), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()
