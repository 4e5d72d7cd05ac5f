"""`evaluate` against numpy, and the cases of the field that declarations alone decide."""

# ruff: noqa: E501  (whole messages, one a line)

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensorir.emulator.reference import evaluate
from tensorir.ir.build import cast, const, if_then_else, select
from tensorir.ir.dtype import dtype
from tensorir.ir.expr import Expr
from tensorir.ir.language import compute, placeholder, reduce_axis, var
from tensorir.ir.maths import exp, fmax, maximum, minimum, truncdiv, truncmod
from tensorir.ir.reductions import all as all_of
from tensorir.ir.reductions import any as any_of
from tensorir.ir.reductions import argmax, argmin, prod, reducer
from tensorir.ir.reductions import max as max_of
from tensorir.ir.reductions import min as min_of
from tensorir.ir.reductions import sum as sum_of
from tensorir.ir.tensor import Tensor
from tensorir.schedule.schedule import schedule
from tensorir.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    BoundsError,
    CallTypeError,
    CallValueError,
)
from tests.errors.saying import said

RNG = np.random.default_rng(5)


def matmul(m: Any, n: Any, depth: Any, kind: str = "float32") -> Tensor:
    a, b = placeholder((m, depth), kind, name="A"), placeholder((depth, n), kind, name="B")
    k = reduce_axis(depth, name="k")
    return compute((m, n), lambda i, j: sum_of(a[i, k] * b[k, j], axis=k), name="C")  # type: ignore[no-any-return]


def test_matmul_of_whole_numbers() -> None:
    a, b = RNG.integers(-9, 9, (5, 7)), RNG.integers(-9, 9, (7, 3))
    c = evaluate(matmul(var("m"), var("n"), var("k"), "int64"), a, b)
    np.testing.assert_array_equal(c, a @ b)
    np.testing.assert_array_equal(evaluate(matmul(5, 3, 7, "int64"), a, b), a @ b)


def test_matmul_of_floats_is_a_chain_of_fma() -> None:
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((3, 9), (9, 2)))
    c = evaluate(matmul(3, 2, 9), a, b)
    assert c.dtype == np.float32
    for i in range(3):
        for j in range(2):
            acc = np.float32(0)
            for k in range(9):
                # exact in float64: 48 bits of product, and the sum is rounded once below
                acc = np.float32(float(a[i, k]) * float(b[k, j]) + float(acc))
            assert abs(float(c[i, j]) - float(acc)) <= np.spacing(abs(acc))


def test_half_precision_accumulates_in_float32() -> None:
    a, b = (RNG.standard_normal(s).astype(np.float16) for s in ((2, 300), (300, 2)))
    c = evaluate(matmul(2, 2, 300, "float16"), a, b)
    assert c.dtype == np.float16
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(c - exact).max() <= 2**-10 * np.abs(exact).max()


def test_several_stages_and_outputs() -> None:
    n = var("n")
    a = placeholder((n,), name="A")
    b = compute((n,), lambda i: a[i] + 1, name="B")
    low, high = compute(
        (n,), lambda i: (minimum(a[i], b[n - 1 - i]), maximum(a[i], b[i])), name="C"
    )
    x = RNG.standard_normal(6).astype(np.float32)
    got = evaluate((high, low, b), x)
    np.testing.assert_array_equal(got[0], x + 1)
    np.testing.assert_array_equal(got[1], np.minimum(x, (x + 1)[::-1]))
    np.testing.assert_array_equal(got[2], x + 1)
    np.testing.assert_array_equal(evaluate(low, x), got[1])


def test_inputs_come_in_the_order_of_first_appearance() -> None:
    a, b = placeholder((2,), "int64", name="A"), placeholder((2,), "int64", name="B")
    c = compute((2,), lambda i: b[i] * 10 + a[i], name="C")
    assert evaluate(c, np.array([1, 2]), np.array([3, 4])).tolist() == [13, 24]


def test_what_is_no_tensor_is_refused() -> None:
    a = placeholder((2,), name="A")
    s = schedule(compute((2,), lambda i: a[i] + 1.0, name="B"))
    with pytest.raises(ArgumentTypeError) as caught:
        evaluate(s, np.zeros(2, np.float32))  # type: ignore[arg-type]
    assert said(caught.value) == EVALUATED_SCHEDULE
    with pytest.raises(ArgumentTypeError) as caught:
        evaluate(3)  # type: ignore[arg-type]
    assert said(caught.value).startswith("ArgumentTypeError: evaluate: expected tensors, not a int")


EVALUATED_SCHEDULE = """\
ArgumentTypeError: evaluate: expected tensors, not a Schedule

  script.py:1:  evaluate(s, np.zeros(2, np.float32))  # type: ignore[arg-type]

  why  what is declared is evaluated; no schedule changes it.
  try  tir.evaluate(B, ...)
"""


# H01


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("n", [4, 37])
def test_division_and_remainder_of_negative_integers(kind: str, n: int) -> None:
    a, b = placeholder((n,), kind, name="A"), placeholder((n,), kind, name="B")
    ops = (
        lambda x, y: x // y, lambda x, y: x % y, truncdiv, truncmod,
    )  # fmt: skip
    outputs = compute((n,), lambda i: tuple(f(a[i], b[i]) for f in ops), name="C")
    x = np.resize([7, -7, 7, -7], n).astype(kind)
    y = np.resize([2, 2, -2, -2], n).astype(kind)
    want = ([3, -4, -4, 3], [1, 1, -1, -1], [3, -3, -3, 3], [1, -1, 1, -1])
    for got, w in zip(evaluate(outputs, x, y), want, strict=True):
        assert got.tolist() == np.resize(w, n).tolist()
    for f, w in zip(ops, want, strict=True):
        folded = [
            f(const(p, kind), const(q, kind)).value  # type: ignore[attr-defined]
            for p, q in zip([7, -7, 7, -7], [2, 2, -2, -2], strict=True)
        ]
        assert folded == w


def test_floor_division_in_an_index() -> None:
    a = placeholder((4,), "int64", name="A")
    c = compute((9,), lambda i: a[(i - 5) // 3 + 2], name="C")
    x = np.array([10, 11, 12, 13])
    assert evaluate(c, x).tolist() == [x[(i - 5) // 3 + 2] for i in range(9)]


def test_division_by_zero_gives_zero() -> None:
    a = placeholder((3,), "int32", name="A")
    got = evaluate(compute((3,), lambda i: (7 // a[i], 7 % a[i]), name="C"), np.int32([0, 2, -2]))
    assert [g.tolist() for g in got] == [[0, 3, -4], [0, 1, -1]]


# H03


def test_sums_of_small_integers() -> None:
    ones = np.ones(5000, np.uint8)
    a = placeholder((5000,), "uint8", name="A")
    k = reduce_axis(5000, name="k")
    assert evaluate(compute((), lambda: sum_of(a[k], axis=k)), ones).item() == 5000
    named = compute((), lambda: sum_of(a[k], axis=k, dtype="uint8"))
    assert evaluate(named, ones).item() == 136
    b = placeholder((2,), "int32", name="B")
    j = reduce_axis(2, name="j")
    mean = compute((), lambda: sum_of(b[j], axis=j) / 2)
    assert evaluate(mean, np.full(2, 2**31 - 1, np.int32)).item() == 2147483647
    u = placeholder((1,), "uint8", name="U")
    assert evaluate(compute((1,), lambda i: u[i] + 100), np.uint8([200])).tolist() == [44]
    s = placeholder((1,), "int8", name="S")
    assert evaluate(compute((1,), lambda i: abs(s[i])), np.int8([-128])).tolist() == [-128]


# H04


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 33])
def test_max_and_min_propagate_nan(n: int) -> None:
    a = placeholder((n,), name="A")
    k = reduce_axis(n, name="k")
    top, low = (compute((), lambda f=f: f(a[k], axis=k)) for f in (max_of, min_of))
    at, least = (compute((), lambda f=f: f(a[k], axis=k)) for f in (argmax, argmin))
    for p in range(n):
        x = RNG.standard_normal(n).astype(np.float32)
        x[p] = np.nan
        assert math.isnan(evaluate(top, x))
        assert math.isnan(evaluate(low, x))
        assert evaluate(at, x).item() == p
        assert evaluate(least, x).item() == p


def test_a_max_that_ignores_nan() -> None:
    ignoring = reducer(lambda a, b: fmax(a, b), -math.inf, name="nanmax")
    a = placeholder((3,), name="A")
    k = reduce_axis(3, name="k")
    c = compute((), lambda: ignoring(a[k], axis=k))
    assert evaluate(c, np.float32([1, np.nan, 2])).item() == 2


@pytest.mark.parametrize("kind", ["int8", "float32", "float64", "float16"])
def test_argmax_and_argmin_take_the_first(kind: str) -> None:
    x = RNG.integers(-3, 3, (40, 7)).astype(kind)
    if kind != "int8":
        x[::5, 3] = np.nan
        x[::10, 1] = np.nan
        x[1] = -np.inf
        x[2] = np.inf
    a = placeholder((40, 7), kind, name="A")
    k = reduce_axis(7, name="k")
    for f, g in ((argmax, np.argmax), (argmin, np.argmin)):
        value, at = compute((40,), lambda i, f=f: f(a[i, k], axis=k, with_value=True), name="C")
        got_value, got_at = evaluate((value, at), x)
        np.testing.assert_array_equal(got_at, g(x, axis=1))
        np.testing.assert_array_equal(got_value, np.take_along_axis(x, g(x, 1)[:, None], 1)[:, 0])


def test_argmax_over_several_axes_is_a_row_major_position() -> None:
    x = RNG.integers(0, 4, (5, 6)).astype(np.float32)
    a = placeholder((5, 6), name="A")
    p, q = reduce_axis(5, name="p"), reduce_axis(6, name="q")
    assert evaluate(compute((), lambda: argmax(a[p, q], axis=(p, q))), x).item() == x.argmax()
    swapped = compute((), lambda: argmax(a[p, q], axis=(q, p)))
    assert evaluate(swapped, x).item() == x.T.argmax()


# H05


def softmax(rows: Any, n: Any, kind: str) -> Tensor:
    a = placeholder((rows, n), kind, name="A")
    k, j = reduce_axis(n, name="k"), reduce_axis(n, name="j")
    top = compute((rows,), lambda r: max_of(a[r, k], axis=k), name="top")
    e = compute((rows, n), lambda r, i: exp(a[r, i] - top[r]), name="e")
    total = compute((rows,), lambda r: sum_of(e[r, j], axis=j), name="total")
    return compute((rows, n), lambda r, i: e[r, i] / total[r], name="softmax")  # type: ignore[no-any-return]


def test_softmax_at_the_extremes() -> None:
    x = np.float32([[1000, 1000, -1000], [-245000, -245001, -245003], [-np.inf] * 3, [0, 0, 0]])
    got = evaluate(softmax(4, 3, "float32"), x)
    np.testing.assert_allclose(got[0], [0.5, 0.5, 0])
    np.testing.assert_allclose(got[1], [0.7053845, 0.2594965, 0.0351190], atol=1e-6)
    assert np.isnan(got[2]).all()
    np.testing.assert_allclose(got[3], [1 / 3] * 3, rtol=1e-6)


# H06


@pytest.mark.parametrize("symbolic", [False, True])
def test_reducing_over_nothing(symbolic: bool) -> None:
    z = var("z") if symbolic else 0
    zeros = evaluate(matmul(4, 4, z), np.zeros((4, 0), np.float32), np.zeros((0, 4), np.float32))
    np.testing.assert_array_equal(zeros, np.zeros((4, 4), np.float32))
    a = placeholder((3, z), name="A")
    k = reduce_axis(z, name="k")
    x = np.zeros((3, 0), np.float32)
    for f, want in ((sum_of, 0), (prod, 1), (any_of, False), (all_of, True)):
        got = evaluate(compute((3,), lambda i, f=f: f(a[i, k], axis=k)), x)
        assert got.tolist() == [want] * 3
    given = compute((3,), lambda i: max_of(a[i, k], axis=k, init=-5))
    assert evaluate(given, x).tolist() == [-5] * 3
    if symbolic:
        with pytest.raises(CallValueError) as raised:
            evaluate(compute((3,), lambda i: max_of(a[i, k], axis=k)), x)
        assert str(raised.value) == (
            "max over k has no elements at i=0: give init= the value it should have"
        )
    both = placeholder((z, 4), name="B")
    got = evaluate(compute((z, 4), lambda i, j: both[i, j] + 1), np.zeros((0, 4), np.float32))
    assert got.shape == (0, 4)


def test_a_mask_of_everything_gives_the_identity() -> None:
    a = placeholder((4,), "int8", name="A")
    k = reduce_axis(4, name="k")
    x = np.int8([1, 2, 3, 4])
    starts = [(max_of, -128), (min_of, 127), (sum_of, 0), (argmax, 2**63 - 1)]
    for f, want in starts:
        c = compute((), lambda f=f: f(a[k], axis=k, where=a[k] > 9))
        assert evaluate(c, x).item() == want


def test_masked_reductions() -> None:
    a = placeholder((5, 6), name="A")
    k = reduce_axis(6, name="k")
    x = RNG.standard_normal((5, 6)).astype(np.float32)
    c = compute((5,), lambda i: sum_of(a[i, k], axis=k, where=(k > i) & (a[i, k] > 0)))
    want = np.where((np.arange(6) > np.arange(5)[:, None]) & (x > 0), x, 0).sum(1)
    np.testing.assert_allclose(evaluate(c, x), want, rtol=1e-6)
    started = compute((5,), lambda i: sum_of(a[i, k], axis=k, init=100))
    np.testing.assert_allclose(evaluate(started, x), x.sum(1) + 100, rtol=1e-5)


def test_a_mask_guards_its_loads() -> None:
    a = placeholder((4,), "int64", name="A")
    k = reduce_axis(7, name="k")
    c = compute((), lambda: sum_of(a[k - 2], axis=k, where=(k >= 2) & (k < 6)))
    assert evaluate(c, np.arange(4)).item() == 6


# non-rectangular


def test_a_triangular_domain_leaves_zeros() -> None:
    n = 10
    a = placeholder((n, 4), "int64", name="A")
    k = reduce_axis(4, name="k")
    c = compute(
        (n, n), lambda i, j: sum_of(a[i, k] * a[j, k], axis=k), where=lambda i, j: j <= i, name="C"
    )
    x = RNG.integers(-9, 9, (n, 4))
    np.testing.assert_array_equal(evaluate(c, x), np.tril(x @ x.T))


def test_bounds_of_a_reduction_that_depend_on_an_axis() -> None:
    a = placeholder((8,), "int64", name="A")

    def body(i: Expr) -> Expr:
        j = reduce_axis((i, minimum(i, i) + 3), name="j")
        return sum_of(a[j], axis=j)

    x = RNG.integers(0, 99, 8)
    got = evaluate(compute((6,), body, name="C"), x)
    assert got.tolist() == [x[i : i + 3].sum() for i in range(6)]


def test_two_dependent_reduction_axes() -> None:
    def body(i: Expr) -> Expr:
        p = reduce_axis(i, name="p")
        q = reduce_axis(p, name="q")
        return sum_of(p * 10 + q, axis=(p, q))

    got = evaluate(compute((6,), body, name="C"))
    assert got.tolist() == [sum(p * 10 + q for p in range(i) for q in range(p)) for i in range(6)]


def test_a_reduction_in_an_expression() -> None:
    a = placeholder((4, 5), name="A")
    k = reduce_axis(5, name="k")
    c = compute((4,), lambda i: (sum_of(a[i, k], axis=k) + i) / 5 * a[i, 0], dtype="float64")
    x = RNG.standard_normal((4, 5)).astype(np.float32)
    np.testing.assert_allclose(evaluate(c, x), (x.sum(1) + np.arange(4)) / 5 * x[:, 0], rtol=1e-5)


def test_a_reducer_of_the_users_runs_in_order() -> None:
    minus = reducer(lambda a, b: a - b, 0, name="minus")
    a = placeholder((3, 6), "int64", name="A")
    k = reduce_axis(6, name="k")
    x = RNG.integers(0, 9, (3, 6))
    got = evaluate(compute((3,), lambda i: minus(a[i, k], axis=k)), x)
    np.testing.assert_array_equal(got, -x.sum(1))


def test_a_reducer_with_two_values() -> None:
    # mean and second moment at once (Welford)
    def combine(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        count = a[0] + b[0]
        delta = b[1] - a[1]
        mean = a[1] + delta * b[0] / count
        return count, mean, a[2] + b[2] + delta * delta * a[0] * b[0] / count

    welford = reducer(combine, (0, 0, 0), name="welford", arity=3, associative=True)
    a = placeholder((50,), "float64", name="A")
    k = reduce_axis(50, name="k")
    one, zero = const(1.0), const(0.0)
    outputs = compute((), lambda: welford(one, a[k], zero, axis=k), name=("n", "mean", "m2"))
    x = RNG.standard_normal(50)
    n, mean, m2 = evaluate(outputs, x)
    assert n == 50
    np.testing.assert_allclose([mean, m2 / 50], [x.mean(), x.var()], rtol=1e-12)


# loads


def test_if_then_else_loads_only_what_is_taken_and_select_loads_both() -> None:
    a = placeholder((4,), "int64", name="A")
    padded = compute((6,), lambda i: if_then_else((i >= 1) & (i < 5), a[i - 1], -7), name="P")
    assert evaluate(padded, np.arange(4)).tolist() == [-7, 0, 1, 2, 3, -7]
    eager = compute((6,), lambda i: select((i >= 1) & (i < 5), a[i - 1], -7), name="P")
    with pytest.raises(BoundsError) as raised:
        evaluate(eager, np.arange(4))
    assert str(raised.value) == "P reads A[i - 1] with index (-1,) at i=0, but A has shape (4,)"


def test_reads_outside_a_tensor() -> None:
    a = placeholder((3,), name="A")
    k = reduce_axis(64, name="k")
    with pytest.raises(BoundsError) as raised:
        evaluate(compute((2,), lambda i: sum_of(a[k], axis=k), name="C"), np.zeros(3, np.float32))
    assert str(raised.value) == "C reads A[k] with index (3,) at i=0, k=3, but A has shape (3,)"
    at = placeholder((4,), "int32", name="P")
    c = compute((4,), lambda i: a[at[i]], name="C")
    with pytest.raises(BoundsError) as raised:
        evaluate(c, np.zeros(3, np.float32), np.int32([0, 1, -1, 2]))
    assert str(raised.value) == (
        "C reads A[int64(P[i])] with index (-1,) at i=2, but A has shape (3,)"
    )


def test_a_read_of_an_element_that_nothing_computes() -> None:
    t = compute((4,), lambda i: i, where=lambda i: i < 3, name="T")
    c = compute((4,), lambda i: t[i], name="C")
    with pytest.raises(BoundsError) as raised:
        evaluate(c)
    assert str(raised.value) == (
        "C reads T[i] with index (3,) at i=3, but nothing computes that element"
    )
    assert evaluate(compute((3,), lambda i: t[i], name="C")).tolist() == [0, 1, 2]


def test_indices_that_cancel() -> None:
    a = placeholder((2,), "int64", name="A")
    e = compute(
        (2,),
        lambda i: a[minimum(3 * i, 4 * i) + minimum(-3 * i, -2 * i)],
        name="B",
    )
    x = np.array([5, 6])
    assert evaluate(e, x).tolist() == [x[0], x[0]]


# arguments


def test_wrong_arguments() -> None:
    n, m = var("n"), var("m")
    a = placeholder((n, 2 * n), name="A")
    c = compute((n,), lambda i: a[i, 0], name="C")
    good = np.zeros((3, 6), np.float32)
    assert evaluate(c, good).shape == (3,)
    assert evaluate(c, good.astype(">f4")).dtype == np.float32
    assert evaluate(c, np.asfortranarray(good)[:, ::1]).shape == (3,)
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: evaluate(c), CallTypeError, "expected 1 arrays (A), got 0"),
        (lambda: evaluate(c, good.astype(float)), CallTypeError, "A must be float32, not float64"),
        (lambda: evaluate(c, good[0]), CallValueError, "A is A: float32[n, 2*n], but has 1 dimensions"),
        (lambda: evaluate(c, good[:, :5]), CallValueError, "A is A: float32[n, 2*n], here (3, 6), but has shape (3, 5)"),
        (lambda: evaluate(c, good, sizes={"q": 1}), ArgumentError, "there is no size 'q' here; there are: n"),
        (lambda: evaluate(a), ArgumentError, "A is a placeholder: there is nothing to compute"),
        (lambda: evaluate(compute((m,), lambda i: i)), CallValueError, "the arrays do not tell the size m: pass sizes={'m': ...}"),
        (lambda: evaluate(compute((m,), lambda i: i), sizes={"m": -1}), CallValueError, "size m must be an integer of at least 0, not -1"),
        (lambda: evaluate(compute((n,), lambda i: placeholder((2 * n,), name="B")[i]), good[0, :3]), CallValueError, "B is B: float32[2*n], which no n makes 3 long"),
    ]  # fmt: skip
    for call, error, text in cases:
        with pytest.raises(error) as raised:
            call()
        assert str(raised.value) == text
    assert evaluate(compute((m,), lambda i: i), sizes={m: 2}).tolist() == [0, 1]
    assert evaluate(compute((m,), lambda i: i * m), sizes={"m": 3}).tolist() == [0, 3, 6]


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32", "bool", "uint8"])
def test_rank_0_in_and_out(kind: str) -> None:
    a = placeholder((), kind, name="A")
    x = np.ones((), dtype(kind).numpy)
    got = evaluate(compute((), lambda: cast(a, "int8") + 1), x)
    assert got.shape == ()
    assert got.dtype == np.int8
    assert got.item() == 2
