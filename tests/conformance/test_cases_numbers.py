"""Division, rounding, overflow, NaN, infinities and empty reductions, under every schedule."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tensorir as tir
from tensorir.support.errors import ArgumentError, KernelError
from tests.conformance.everyway import everyway, same

BF16 = np.dtype(ml_dtypes.bfloat16)


def vector(n: int, dtype: str, name: str) -> tir.Tensor:
    return tir.placeholder((n,), dtype, name=name)


# -- H01: division and remainder of negative integers


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("n", [4, 37])
def test_division_of_negative_integers(dtype: str, n: int) -> None:
    a = np.resize(np.array([7, -7, 7, -7], dtype), n)
    b = np.resize(np.array([2, 2, -2, -2], dtype), n)
    A, B = vector(n, dtype, "A"), vector(n, dtype, "B")
    out = tir.compute(
        (n,),
        lambda i: (
            A[i] // B[i], A[i] % B[i], tir.truncdiv(A[i], B[i]), tir.truncmod(A[i], B[i])
        ),
        name=("fd", "fm", "td", "tm"),
    )  # fmt: skip
    expect = [[3, -4, -4, 3], [1, 1, -1, -1], [3, -3, -3, 3], [1, -1, 1, -1]]
    same(out, {"A": a, "B": b}, tuple(np.resize(np.array(e, dtype), n) for e in expect))


@pytest.mark.parametrize("divisor", [2, -2, 3, -3, 7, 8, 1, -1])
def test_division_by_a_literal(divisor: int) -> None:
    n = 41
    a = np.arange(-20, 21, dtype=np.int32)
    A = vector(n, "int32", "A")
    out = tir.compute(
        (n,),
        lambda i: (
            A[i] // divisor, A[i] % divisor,
            tir.truncdiv(A[i], divisor), tir.truncmod(A[i], divisor),
        ),
        name=("fd", "fm", "td", "tm"),
    )  # fmt: skip
    t = np.trunc(a / divisor).astype(np.int32)
    same(out, {"A": a}, (a // divisor, a % divisor, t, a - t * divisor))


def test_literals_are_folded_by_the_same_rules() -> None:
    pairs = [(7, 2), (-7, 2), (7, -2), (-7, -2)]
    values: list[int] = []
    for a, b in pairs:
        x, y = tir.const(a, "int8"), tir.const(b, "int8")
        C = tir.compute(
            (), lambda x=x, y=y: (x // y, x % y, tir.truncdiv(x, y), tir.truncmod(x, y)), name="C"
        )
        values += [int(v) for v in tir.build(tir.schedule(*C))()]
    assert values == [3, 1, 3, 1, -4, 1, -3, -1, -4, -1, -3, 1, 3, -1, 3, -1]


def test_floor_division_in_an_index() -> None:
    a = np.arange(10, 15, dtype=np.float32)
    A = vector(5, "float32", "A")
    out = tir.compute((9,), lambda i: A[(i - 5) // 3 + 2], name="C")
    same(out, {"A": a}, a[(np.arange(9) - 5) // 3 + 2])


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16"])
def test_division_by_zero_gives_zero(dtype: str) -> None:
    a, b = np.array([5, 0, 7, 100], dtype), np.array([0, 0, 2, 0], dtype)
    A, B = vector(4, dtype, "A"), vector(4, dtype, "B")
    out = tir.compute(
        (4,), lambda i: (A[i] // B[i], A[i] % B[i], tir.truncdiv(A[i], B[i])), name=("q", "r", "t")
    )
    expect = ([0, 0, 3, 0], [0, 0, 1, 0], [0, 0, 3, 0])
    same(out, {"A": a, "B": b}, tuple(np.array(e, dtype) for e in expect))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_the_smallest_integer_by_minus_one_wraps(dtype: str) -> None:
    low = np.iinfo(dtype).min
    a, b = np.full(9, low, dtype), np.full(9, -1, dtype)
    A, B = vector(9, dtype, "A"), vector(9, dtype, "B")
    out = tir.compute((9,), lambda i: (A[i] // B[i], A[i] % B[i]), name=("q", "r"))
    same(out, {"A": a, "B": b}, (np.full(9, low, dtype), np.zeros(9, dtype)))


# -- H02: bfloat16


def test_float_to_bfloat16_rounds_to_nearest_even() -> None:
    bits = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    x = np.array([0.2691408770292272, 3.14, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, bits], np.float32)
    X = vector(6, "float32", "X")
    out = tir.compute((6,), lambda i: tir.cast(X[i], "bfloat16"), name="C")
    expect = np.array([0.26953125, 3.140625, 1.0, 1.015625, np.inf, np.nan], BF16)
    same(out, {"X": x}, expect)


def test_integer_to_bfloat16_rounds_to_nearest_even() -> None:
    X = vector(3, "int32", "X")
    out = tir.compute((3,), lambda i: tir.cast(X[i], "bfloat16"), name="C")
    same(out, {"X": np.array([257, 259, -257], np.int32)}, np.array([256, 260, -256], BF16))


def test_bfloat16_products_are_rounded_once() -> None:
    rng = np.random.default_rng(2)
    n = 4099
    a, b = (rng.standard_normal(n).astype(BF16) for _ in range(2))
    A, B = vector(n, "bfloat16", "A"), vector(n, "bfloat16", "B")
    out = tir.compute((n,), lambda i: A[i] * B[i], name="C")
    exact = a.astype(np.float64) * b.astype(np.float64)
    same(out, {"A": a, "B": b}, exact.astype(np.float32).astype(BF16))


# -- H03: small integers


def test_sums_of_small_integers_widen() -> None:
    ones = np.ones(5000, np.uint8)
    A = vector(5000, "uint8", "A")
    k = tir.reduce_axis(5000, name="k")
    wide = tir.compute((), lambda: tir.sum(A[k], axis=k), name="wide")
    assert wide.dtype.name == "uint64"
    same(wide, {"A": ones}, np.uint64(5000))
    q = tir.reduce_axis(5000, name="q")
    narrow = tir.compute((), lambda: tir.sum(A[q], axis=q, dtype="uint8"), name="narrow")
    same(narrow, {"A": ones}, np.uint8(136))


def test_mean_of_large_integers() -> None:
    A = vector(2, "int32", "A")
    k = tir.reduce_axis(2, name="k")
    S = tir.compute((), lambda: tir.sum(A[k], axis=k), name="S")
    mean = tir.compute((), lambda: tir.cast(S[()] // 2, "int32"), name="mean")
    same(mean, {"A": np.full(2, 2**31 - 1, np.int32)}, np.int32(2**31 - 1))


def test_small_integers_wrap() -> None:
    n = 19
    A, B = vector(n, "uint8", "A"), vector(n, "int8", "B")
    out = tir.compute((n,), lambda i: (A[i] + 100, tir.abs(B[i])), name=("s", "a"))
    inputs = {"A": np.full(n, 200, np.uint8), "B": np.full(n, -128, np.int8)}
    same(out, inputs, (np.full(n, 44, np.uint8), np.full(n, -128, np.int8)))


def test_unsigned_differences_wrap() -> None:
    # T46: no assumption that unsigned arithmetic does not overflow
    n = 21
    a, b = np.arange(n, dtype=np.uint32), np.full(n, 10, np.uint32)
    A, B = vector(n, "uint32", "A"), vector(n, "uint32", "B")
    D = tir.compute((n,), lambda i: A[i] - B[i], name="D")
    out = tir.compute((n,), lambda i: D[i] > 0, name="C")
    same(out, {"A": a, "B": b}, (a - b) > 0)
    s = tir.schedule(out).split("C.i", 4).compute_at("D", "C.io")
    assert tir.build(s).check(a, b, against=lambda x, y: (x - y) > 0)
    assert "nuw" not in tir.build(s).llvm


# -- H04: NaN in extremes


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 16, 17, 33])
def test_one_nan_decides_an_extreme_wherever_it_is(n: int) -> None:
    A = tir.placeholder((n, n), "float32", name="A")
    k = tir.reduce_axis(n, name="k")
    most = tir.compute((n,), lambda i: tir.max(A[i, k], axis=k), name="most")
    q = tir.reduce_axis(n, name="q")
    least = tir.compute((n,), lambda j: tir.min(A[q, j], axis=q), name="least")
    a = np.random.default_rng(n).standard_normal((n, n)).astype(np.float32)
    a[np.arange(n), np.arange(n)] = np.nan  # row i and column i hold one at place i
    same((most, least), {"A": a}, (np.full(n, np.nan), np.full(n, np.nan)))


def test_extremes_of_pairs_with_nan() -> None:
    values = np.array([1.0, np.nan, -2.0, np.inf, -np.inf, 0.0], np.float32)
    a, b = (x.ravel() for x in np.meshgrid(values, values))
    n = len(a)
    A, B = vector(n, "float32", "A"), vector(n, "float32", "B")
    out = tir.compute(
        (n,),
        lambda i: (
            tir.maximum(A[i], B[i]), tir.minimum(A[i], B[i]),
            tir.fmax(A[i], B[i]), tir.fmin(A[i], B[i]),
        ),
        name=("mx", "mn", "fx", "fn"),
    )  # fmt: skip
    same(out, {"A": a, "B": b}, (np.maximum(a, b), np.minimum(a, b), np.fmax(a, b), np.fmin(a, b)))


def test_arg_extremes_take_the_first_and_nan_is_extreme() -> None:
    a = np.array(
        [[1, 3, 3, 2], [np.nan, 9, np.nan, 1], [5, 5, 5, 5], [-1, -np.inf, 0, np.nan]], "f4"
    )
    A = tir.placeholder((4, 4), "float32", name="A")
    k = tir.reduce_axis(4, name="k")
    top = tir.compute((4,), lambda i: tir.argmax(A[i, k], axis=k), name="top")
    same(top, {"A": a}, np.argmax(a, axis=1))
    q = tir.reduce_axis(4, name="q")
    low = tir.compute((4,), lambda i: tir.argmin(A[i, q], axis=q), name="low")
    same(low, {"A": a}, np.argmin(a, axis=1))


# -- H05: softmax


def softmax(shape: tuple[int, ...], dim: int, dtype: str) -> tuple[tir.Tensor, ...]:
    X = tir.placeholder(shape, dtype, name="X")
    others = tuple(n for d, n in enumerate(shape) if d != dim)

    def at(rest: tuple[tir.Expr, ...], x: tir.Expr) -> tuple[tir.Expr, ...]:
        return (*rest[:dim], x, *rest[dim:])

    k = tir.reduce_axis(shape[dim], name="k")
    m = tir.compute(others, lambda *r: tir.max(X[at(r, k)], axis=k), name="m")
    E = tir.compute(
        shape, lambda *i: tir.exp(X[i] - m[tuple(x for d, x in enumerate(i) if d != dim)]), name="E"
    )
    q = tir.reduce_axis(shape[dim], name="q")
    t = tir.compute(others, lambda *r: tir.sum(E[at(r, q)], axis=q), name="t")
    return (
        tir.compute(
            shape, lambda *i: E[i] / t[tuple(x for d, x in enumerate(i) if d != dim)], name="Y"
        ),
    )


def numpy_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        e = np.exp((x - x.max(axis=axis, keepdims=True)).astype(np.float64))
        return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize(
    ("x", "expect"),
    [
        ([1000, 1000, -1000], [0.5, 0.5, 0]),
        ([-245000, -245001, -245003], [0.7053845, 0.2594965, 0.0351190]),
    ],
)
def test_softmax_of_extreme_values(x: list[float], expect: list[float]) -> None:
    (Y,) = softmax((3,), 0, "float32")
    same(Y, {"X": np.array(x, np.float32)}, np.array(expect, np.float32), close=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extent", [1, 5, 33])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softmax_along_each_axis(axis: int, extent: int, dtype: str) -> None:
    shape = (extent, 4) if axis == 0 else (4, extent)
    x = (np.random.default_rng(extent).standard_normal(shape) * 20).astype(dtype)
    (Y,) = softmax(shape, axis, dtype)
    tolerance = 1e-6 if dtype == "float32" else 2e-3
    same(Y, {"X": x}, numpy_softmax(x, axis), close=tolerance)


def test_a_row_of_minus_infinity_does_not_disturb_the_others() -> None:
    x = np.random.default_rng(0).standard_normal((5, 11)).astype(np.float32)
    x[2] = -np.inf
    (Y,) = softmax((5, 11), 1, "float32")
    expect = numpy_softmax(x, 1)
    assert np.isnan(expect[2]).all()
    assert np.isfinite(expect[[0, 1, 3, 4]]).all()
    same(Y, {"X": x}, expect, close=1e-6)


# -- H06: nothing to reduce


def test_matmul_over_nothing_is_zero() -> None:
    A, B = tir.placeholder((4, 0), name="A"), tir.placeholder((0, 4), name="B")
    k = tir.reduce_axis(0, name="k")
    C = tir.compute((4, 4), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    same(C, {"A": np.zeros((4, 0), "f4"), "B": np.zeros((0, 4), "f4")}, np.zeros((4, 4), "f4"))


@pytest.mark.parametrize(
    ("how", "expect", "dtype"),
    [("sum", 0, "float32"), ("prod", 1, "float32"), ("any", False, "bool"), ("all", True, "bool")],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_reductions_over_nothing(how: str, expect: object, dtype: str, symbolic: bool) -> None:
    n = tir.var("n") if symbolic else 0
    A = tir.placeholder((3, n), dtype, name="A")
    k = tir.reduce_axis(n, name="k")
    C = tir.compute((3,), lambda i: getattr(tir, how)(A[i, k], axis=k), name="C")
    same(C, {"A": np.zeros((3, 0), dtype)}, np.full(3, expect, dtype))


@pytest.mark.parametrize("how", ["max", "min", "argmax", "argmin"])
def test_extremes_of_nothing_are_refused(how: str) -> None:
    A = tir.placeholder((3, 0), name="A")
    k = tir.reduce_axis(0, name="k")
    with pytest.raises(ArgumentError, match=rf"{how} over k has no elements"):
        tir.compute((3,), lambda i: getattr(tir, how)(A[i, k], axis=k), name="C")


@pytest.mark.parametrize("how", ["max", "min"])
def test_extremes_of_a_size_that_turns_out_to_be_zero(how: str) -> None:
    n = tir.var("n")
    A = tir.placeholder((3, n), name="A")
    k = tir.reduce_axis(n, name="k")
    C = tir.compute((3,), lambda i: getattr(tir, how)(A[i, k], axis=k), name="C")
    for _, s in everyway(C):
        kernel = tir.build(s)
        with pytest.raises(KernelError, match=f"{how} over k has nothing to reduce"):
            kernel(np.zeros((3, 0), "f4"))
        a = np.arange(6, dtype="f4").reshape(3, 2)
        assert (kernel(a) == getattr(np, how)(a, axis=1)).all()
    q = tir.reduce_axis(n, name="q")
    D = tir.compute((3,), lambda i: getattr(tir, how)(A[i, q], axis=q, init=7.0), name="D")
    same(D, {"A": np.zeros((3, 0), "f4")}, np.full(3, 7, "f4"))


@pytest.mark.parametrize("shape", [(4, 0), (0, 4)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_pointwise_on_nothing(shape: tuple[int, int], symbolic: bool) -> None:
    declared = (tir.var("m"), tir.var("n")) if symbolic else shape
    A = tir.placeholder(declared, name="A")
    C = tir.compute(declared, lambda i, j: A[i, j] + 1, name="C")
    same(C, {"A": np.zeros(shape, "f4")}, np.zeros(shape, "f4"))


def test_reshape_of_nothing() -> None:
    A = tir.placeholder((4, 0), name="A")
    C = tir.compute((0, 10), lambda i, j: A[(10 * i + j) // 1000 % 4, 10 * i + j], name="C")
    same(C, {"A": np.zeros((4, 0), "f4")}, np.zeros((0, 10), "f4"))


# -- others


def test_half_comparison_selects_bytes() -> None:
    # T54
    a = np.arange(12, dtype=np.float16).reshape(3, 2, 2)
    A = tir.placeholder((3, 2, 2), "float16", name="A")
    C = tir.compute(
        (3, 2, 2),
        lambda i, j, k: tir.select(A[i, j, k] > 5.0, tir.const(1, "uint8"), tir.const(0, "uint8")),
        name="C",
    )
    same(C, {"A": a}, (a > 5).astype(np.uint8))
    wide = tir.build(tir.schedule(C).vectorize("k", width=2))
    assert (wide(a) == (a > 5)).all()


def test_float_to_integer_saturates_and_nan_gives_zero() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1.9, -1.9, 300.0, 0.0], np.float32)
    X = vector(9, "float32", "X")
    out = tir.compute(
        (9,), lambda i: (tir.cast(X[i], "int32"), tir.cast(X[i], "uint8")), name=("a", "b")
    )
    top, low = 2**31 - 1, -(2**31)
    same(
        out, {"X": x},
        (
            np.array([0, top, low, top, low, 1, -1, 300, 0], np.int32),
            np.array([0, 255, 0, 255, 0, 1, 0, 255, 0], np.uint8),
        ),
    )  # fmt: skip
