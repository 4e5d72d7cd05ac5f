"""Placements, caches, layouts and factored reductions that went wrong elsewhere."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

import tensorir as tir
from tensorir.schedule.schedule import LATER
from tensorir.support.errors import IllegalSchedule, ScheduleError, TensorIRError, UnsupportedError
from tests.conformance.everyway import agree, attempt, call, same


def run(
    s: tir.Schedule, inputs: dict[str, np.ndarray], expect: np.ndarray, close: float = 0
) -> None:
    """The schedule gives `expect`, with its loops enumerated too."""
    (got,) = call(tir.build(s, validate=True), inputs, [expect.shape])
    agree(got, expect, close, f"{s.trace.to_python()}\n{s}")


@pytest.mark.parametrize("n", [16, 1000])
def test_a_stage_inside_vector_lanes(n: int) -> None:
    # T4: each lane needs an element of its own
    A, B = tir.placeholder((n,), name="A"), tir.placeholder((n,), name="B")
    C = tir.compute((n,), lambda i: A[i] + B[i], name="C")
    D = tir.compute((n,), lambda i: C[i] + C[i], name="D")
    E = tir.compute((n,), lambda i: D[i] + A[i], name="E")
    a, b = np.arange(n, dtype="f4"), np.ones(n, "f4")
    s = tir.schedule(E).split("E.i", 8).vectorize("E.ii", width=8)
    run(s.compute_at("D", "E.ii"), {"A": a, "B": b}, 2 * (a + b) + a)
    run(s.compute_at("D", "E.ii").compute_at("C", "E.io"), {"A": a, "B": b}, 2 * (a + b) + a)
    run(s.compute_at("D", "E.io").compute_at("C", "D.i"), {"A": a, "B": b}, 2 * (a + b) + a)


def test_a_layout_that_is_not_injective_is_refused() -> None:
    # T6
    A = tir.placeholder((256, 256), name="A")
    C = tir.compute((256, 256), lambda i, j: A[i, j] + 1, name="C")
    D = tir.compute((256, 256), lambda i, j: C[i, j] * 2, name="D")
    with pytest.raises(TensorIRError, match=r"C\[0, 0\] and C\[1, 0\] in one place"):
        tir.schedule(D).transform_layout("C", lambda i, j: (i // 2, j))
    a = np.arange(256 * 256, dtype="f4").reshape(256, 256)
    s = tir.schedule(D).transform_layout("C", lambda i, j: (i // 2, j, i % 2))
    assert tir.build(s).check(a, against=lambda a: (a + 1) * 2)


def test_a_difference_is_not_factored() -> None:
    # T10: x - y is no associative reducer
    minus = tir.reducer(lambda x, y: x - y, 0, name="minus", associative=False, commutative=False)
    A = tir.placeholder((6, 32), "int32", name="A")
    k = tir.reduce_axis(32, name="k")
    B = tir.compute((6,), lambda i: minus(A[i, k], axis=k), name="B")
    a = np.arange(6 * 32, dtype=np.int32).reshape(6, 32)
    same(B, {"A": a}, -a.sum(axis=1, dtype=np.int32))
    s = tir.schedule(B).split("k", 8)
    with pytest.raises(TensorIRError, match="minus"):
        s.rfactor("ko")
    with pytest.raises(IllegalSchedule):
        s.reorder("ki", "ko")


def test_a_reduction_factored_over_all_of_its_axes() -> None:
    # T12: the partial results are a pure copy
    A = tir.placeholder((1, 16, 7, 7), name="A")
    y, x = tir.reduce_axis(7, name="y"), tir.reduce_axis(7, name="x")
    S = tir.compute((1, 16), lambda n, c: tir.sum(A[n, c, y, x], axis=(y, x)), name="S")
    a = np.random.default_rng(12).integers(-9, 9, (1, 16, 7, 7)).astype("f4")
    s = tir.schedule(S).fuse("y", "x", into="yx")
    run(s, {"A": a}, a.sum(axis=(2, 3)))
    run(s.rfactor("yx"), {"A": a}, a.sum(axis=(2, 3)))
    run(s.rfactor("yx").vectorize("n", width=4), {"A": a}, a.sum(axis=(2, 3)))


@pytest.mark.parametrize("p", [1, 5, 8, 13])
def test_lanes_of_a_reduction_that_share_some_cells(p: int) -> None:
    # the lanes of C.kii go to cells kii // 3: three to one, the others to the next
    A, B = tir.placeholder((3, p), name="A"), tir.placeholder((p, 2), name="B")
    k = tir.reduce_axis(p, name="k")
    C = tir.compute((3, 2), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    a = np.arange(3 * p, dtype="f4").reshape(3, p)
    b = np.ones((p, 2), "f4")
    s = tir.schedule(C).split("k", 8, into=("ko", "ki")).rfactor("ki", at="j", lanes=8)
    s = s.vectorize("ki", 8).split("C.ki", 3).rfactor("C.kio")
    run(s, {"A": a, "B": b}, a @ b)
    run(s.split("C.kii", 4), {"A": a, "B": b}, a @ b)


def test_caches_of_part_of_an_array() -> None:
    # T14: buffers are as large as what is copied
    A = tir.placeholder((12, 24), name="A")
    C = tir.compute((10, 20), lambda i, j: A[i, j], name="C")
    a = np.arange(12 * 24, dtype="f4").reshape(12, 24)
    s = tir.schedule(C).cache_read("A", "global", at="i").split("i", 4).split("j", 16)
    run(s, {"A": a}, a[:10, :20])
    s = s.cache_write("C", "local", at="jo")
    run(s, {"A": a}, a[:10, :20])
    s = tir.schedule(C).tile("i", "j", 4, 8).cache_read("A", "global", at="jo")
    assert "float32[4, 8]" in tir.build(s).loops


def test_a_region_of_awkward_indices_is_exact() -> None:
    # T18: the index never leaves {0, 1}
    A = tir.placeholder((2,), name="A")
    a = np.array([3.0, 5.0], "f4")
    i = np.arange(2)
    forms = [
        (
            lambda i: tir.minimum(3 * i, 4 * i) + tir.minimum(-3 * i, -2 * i),
            np.minimum(3 * i, 4 * i) + np.minimum(-3 * i, -2 * i),
        ),
        (lambda i: i + (0 - i), i - i),
        (lambda i: tir.maximum(i - 5, 0) + i % 2, np.maximum(i - 5, 0) + i % 2),
    ]  # fmt: skip
    for f, at in forms:
        B = tir.compute((2,), lambda i, f=f: A[f(i)], name="B")
        same(B, {"A": a}, a[at])
        C = tir.compute((2,), lambda i: A[i] * 2, name="C")
        D = tir.compute((2,), lambda i, f=f, C=C: C[f(i)], name="D")
        same(D, {"A": a}, 2 * a[at])
        s = tir.schedule(D)
        run(attempt(s, lambda s: s.compute_at("C", "D.i")), {"A": a}, 2 * a[at])


def test_an_output_is_not_inlined() -> None:
    # T22
    A = tir.placeholder((8,), name="A")
    B = tir.compute((8,), lambda i: A[i] + 1, name="B")
    C = tir.compute((8,), lambda i: B[i] + 1, name="C")
    s = tir.schedule(B, C)
    for step in (lambda: s.compute_inline("B"), lambda: s.compute_inline("C")):
        with pytest.raises(TensorIRError, match="output"):
            step()
    with pytest.raises(TensorIRError, match="output"):
        s.compute_at("B", "C.i")


@pytest.mark.parametrize("placed", ["inline", "at y", "at x", "root"])
def test_padding_placed_at_the_pool(placed: str) -> None:
    # T24: no negative index
    n = 14
    A = tir.placeholder((n, n), name="A")
    inside = lambda y, x: (y >= 1) & (y <= n) & (x >= 1) & (x <= n)  # noqa: E731
    P = tir.compute(
        (n + 2, n + 2),
        lambda y, x: tir.if_then_else(inside(y, x), A[y - 1, x - 1], -1e9),
        name="P",
    )
    r, c = tir.reduce_axis(3, name="r"), tir.reduce_axis(3, name="c")
    M = tir.compute((n, n), lambda y, x: tir.max(P[y + r, x + c], axis=(r, c)), name="M")
    a = np.random.default_rng(24).standard_normal((n, n)).astype("f4")
    p = np.full((n + 2, n + 2), -1e9, "f4")
    p[1:-1, 1:-1] = a
    expect = np.max([p[i : i + n, j : j + n] for i in range(3) for j in range(3)], axis=0)
    s = tir.schedule(M)
    if placed == "inline":
        s = s.compute_inline("P")
    elif placed != "root":
        s = s.compute_at("P", f"M.{placed[-1]}")
    run(s, {"A": a}, expect)
    run(attempt(s, lambda s: s.tile("M.y", "M.x", 4, 8).parallel("yo")), {"A": a}, expect)
    same(M, {"A": a}, expect)


def test_reduction_bounds_that_depend_on_each_other() -> None:
    # T26: k1 < i1, k2 < i1 - 1
    n = 9
    A = tir.placeholder((n, n), "int32", name="A")

    def body(i: tir.Expr) -> tir.Expr:
        p, q = tir.reduce_axis((0, i), name="p"), tir.reduce_axis((0, i - 1), name="q")
        return tir.sum(A[p, q], axis=(p, q))

    C = tir.compute((n,), body, name="C")
    a = np.arange(n * n, dtype=np.int32).reshape(n, n)
    expect = np.array([a[:i, : max(i - 1, 0)].sum() for i in range(n)])
    same(C, {"A": a}, expect)
    run(tir.schedule(C).split("p", 4).split("q", 2), {"A": a}, expect)
    run(tir.schedule(C).split("i", 4).reorder("q", "p"), {"A": a}, expect)


def test_a_change_of_blocked_layouts() -> None:
    # T30: (i % 20 // 2 * 2) % 4 is not i % 4
    channels, h = 20, 3
    A = tir.placeholder((channels // 4, h, 4), name="A")  # channels in blocks of 4
    B = tir.compute(
        (channels // 2, h, 2),
        lambda c, y, v: A[(c * 2 + v) // 4, y, (c * 2 + v) % 4],
        name="B",
    )
    plain = np.arange(channels * h, dtype="f4").reshape(channels, h)
    a = plain.reshape(5, 4, h).transpose(0, 2, 1).copy()
    expect = plain.reshape(10, 2, h).transpose(0, 2, 1)
    same(B, {"A": a}, expect)
    flat = tir.compute(
        (channels * h,),
        lambda i: A[(i % 20 // 2 * 2 + i % 2) // 4, i // 20, (i % 20 // 2 * 2) % 4 + i % 2],
        name="F",
    )
    i = np.arange(channels * h)
    same(flat, {"A": a}, plain[i % 20, i // 20])


def test_predicates_with_divisions_and_remainders() -> None:
    # T32: the guard of a store, enumerated
    for w in (0, 1, 3):
        C = tir.compute(
            (64,),
            lambda t, w=w: tir.select(2 * (t % 4) < 16 * w + (t % 32) // 4, 1, 0),
            name="C",
        )
        t = np.arange(64)
        same(C, {}, np.where(2 * (t % 4) < 16 * w + (t % 32) // 4, 1, 0))
    A = tir.placeholder((2, 9), "int32", name="A")
    D = tir.compute((2, 9), lambda x, y: A[x, y], name="D", where=lambda x, y: 2 * x + y < 8)
    x, y = np.indices((2, 9))
    a = (10 * x + y).astype(np.int32)
    same(D, {"A": a}, a, where=2 * x + y < 8)
    E = tir.compute((64,), lambda t: t * 3, name="E", where=lambda t: 2 * (t % 4) < (t % 32) // 4)
    t = np.arange(64)
    same(E, {}, t * 3, where=2 * (t % 4) < (t % 32) // 4)


def test_a_row_sum_with_the_reduction_outside() -> None:
    # T38: the init keeps its own loop
    A = tir.placeholder((96, 32), "int32", name="A")
    k = tir.reduce_axis(32, name="k")
    S = tir.compute((96,), lambda m: tir.sum(A[m, k], axis=k), name="S")
    a = np.arange(96 * 32, dtype=np.int32).reshape(96, 32)
    s = tir.schedule(S).reorder("k", "m").split("m", 32)
    run(s, {"A": a}, a.sum(axis=1))
    run(s.parallel("mo"), {"A": a}, a.sum(axis=1))
    run(s.vectorize("mi", width=8), {"A": a}, a.sum(axis=1))


def test_inlining_and_placing_in_one_pipeline() -> None:
    # T42
    n = 5
    X = tir.placeholder((n, n, n), name="X")
    k = tir.reduce_axis(n, name="k")
    e = tir.compute((n, n, n), lambda a, b, c: tir.sum(X[a, b, k] * X[k, b, c], axis=k), name="e")
    t = tir.compute((n, n, n), lambda a, b, c: e[a, b, c] * 0.5 - 1, name="t")
    y = tir.compute((n, n, n, n), lambda a, b, c, d: t[a, b, c] / (e[a, c, d] + 100), name="y")
    x = np.random.default_rng(42).integers(-3, 4, (n, n, n)).astype("f4")
    E = np.einsum("abk,kbc->abc", x, x)
    expect = (E * np.float32(0.5) - 1)[..., None] / (E[:, None] + 100)
    s = tir.schedule(y).compute_inline("t").tile("y.c", "y.d", 2, 3)
    run(s, {"X": x}, expect, 1e-6)
    placed = attempt(s, lambda s: s.compute_at("e", "co"))
    run(placed, {"X": x}, expect, 1e-6)
    same(y, {"X": x}, expect, close=1e-6)


def test_dilation_and_padding_inlined_into_a_convolution() -> None:
    # T44
    n, r = 7, 3
    X, W = tir.placeholder((n, n), name="X"), tir.placeholder((r, r), name="W")
    size = 2 * n - 1
    D = tir.compute(
        (size, size),
        lambda i, j: tir.if_then_else((i % 2 == 0) & (j % 2 == 0), X[i // 2, j // 2], 0.0),
        name="D",
    )
    P = tir.compute(
        (size + 4, size + 4),
        lambda i, j: tir.if_then_else(
            (i >= 2) & (i < size + 2) & (j >= 2) & (j < size + 2), D[i - 2, j - 2], 0.0
        ),
        name="P",
    )
    p, q = tir.reduce_axis(r, name="p"), tir.reduce_axis(r, name="q")
    out = size + 4 - r + 1
    C = tir.compute(
        (out, out),
        lambda i, j: tir.sum(P[i + p, j + q] * W[r - 1 - p, r - 1 - q], axis=(p, q)),
        name="C",
    )
    rng = np.random.default_rng(44)
    x, w = (rng.integers(-4, 5, s).astype("f4") for s in ((n, n), (r, r)))
    d = np.zeros((size + 4, size + 4), "f4")
    d[2:-2:2, 2:-2:2] = x
    expect = sum(
        d[i : i + out, j : j + out] * w[r - 1 - i, r - 1 - j]
        for i, j in product(range(r), repeat=2)
    )
    s = tir.schedule(C)
    run(s.compute_inline("D"), {"X": x, "W": w}, expect)
    run(s.compute_inline("D").compute_inline("P"), {"X": x, "W": w}, expect)
    run(s.compute_at("P", "C.i").compute_inline("D"), {"X": x, "W": w}, expect)
    tiled = (
        s.compute_inline("D")
        .tile("C.i", "C.j", 4, 8)
        .compute_at("P", "jo")
        .vectorize("ji", width=8)
    )
    run(tiled, {"X": x, "W": w}, expect)


@pytest.mark.parametrize("order", list(permutations(["A", "C", "D"]))[::2])
def test_caches_of_several_arrays_in_any_order(order: tuple[str, ...]) -> None:
    # T48
    n = 21
    A, C, D = (tir.placeholder((n,), name=x) for x in "ACD")
    A0 = tir.compute((n,), lambda i: A[i] + C[i], name="A0")
    A1 = tir.compute((n,), lambda i: D[i] * D[i], name="A1")
    A2 = tir.compute((n,), lambda i: A0[i] + A1[i] + A[i] - C[i], name="A2")
    B = tir.compute((n,), lambda i: A2[i], name="B")
    a, c, d = (np.arange(n, dtype="f4") * k for k in (1, 2, 3))
    s = tir.schedule(B).split("B.i", 8)
    for x in order:
        s = s.cache_read(x, "global")
    run(s, {"A": a, "C": c, "D": d}, (a + c) + d * d + a - c)
    s = s.compute_at("A2", "B.io").compute_at("A0", "B.io").compute_at("A1", "B.io")
    run(s, {"A": a, "C": c, "D": d}, (a + c) + d * d + a - c)


def test_requests_that_make_no_sense() -> None:
    # T50
    A = tir.placeholder((8, 8), name="A")
    B = tir.compute((8, 8), lambda x, y: A[x, y] + 1, name="B")
    C = tir.compute((8, 8), lambda x, y: B[x, y] + 1, name="C")
    other = tir.compute((8, 8), lambda x, y: A[x, y] + 2, name="O")
    s = tir.schedule(C)
    with pytest.raises(ScheduleError, match="reorder: .x. is given twice"):
        s.reorder("C.x", "C.y", "C.x")
    with pytest.raises(TensorIRError, match="B"):
        s.compute_at("B", "B.x")
    with pytest.raises(TensorIRError, match="O"):
        s.compute_at(other, "C.x")
    with pytest.raises(TensorIRError, match="x"):
        s.split(tir.schedule(other).axes[0], 4)


def test_a_stage_that_is_read_at_two_places_of_a_border() -> None:
    # T52: D[i] = C[i] + C[i > 0 ? i - 1 : 0], with C placed at i
    n = 12
    A = tir.placeholder((n,), name="A")
    C = tir.compute((n,), lambda i: A[i] * 2, name="C")
    D = tir.compute((n,), lambda i: C[i] + C[tir.select(i > 0, i - 1, 0)], name="D")
    a = np.arange(n, dtype="f4")
    c = 2 * a
    expect = c + c[np.maximum(np.arange(n) - 1, 0)]
    same(D, {"A": a}, expect)
    s = tir.schedule(D).compute_at("C", "D.i")
    run(s, {"A": a}, expect)
    assert "float32[2]" in tir.build(s).loops


def test_primitives_that_are_not_there_yet_say_so() -> None:
    s = tir.schedule(tir.compute((4,), lambda i: i, name="C"))
    for name in LATER:
        with pytest.raises((ScheduleError, UnsupportedError), match=name):
            getattr(s, name)("i")
