"""What operations compute, exhaustively where that is small, against Python's own arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tensorir.ir import numerics
from tensorir.ir.dtype import dtype

ALL8 = np.arange(-128, 128).astype(np.int8)
A8, B8 = (x.ravel() for x in np.meshgrid(ALL8, ALL8, indexing="ij"))
BF16 = np.dtype(ml_dtypes.bfloat16)


def apply(name: str, *args: np.ndarray, to: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return numerics.apply(name, args, dtype(to))


def wrap8(x: int) -> int:
    return (x + 128) % 256 - 128


def trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


DIVISIONS = {
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else 0,
    "truncdiv": lambda a, b: trunc_div(a, b) if b else 0,
    "truncmod": lambda a, b: a - trunc_div(a, b) * b if b else 0,
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_of_all_pairs_of_int8(name: str) -> None:
    expected = [wrap8(DIVISIONS[name](a, b)) for a, b in zip(A8.tolist(), B8.tolist(), strict=True)]
    assert apply(name, A8, B8, to="int8").tolist() == expected


@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_of_all_pairs_of_uint8(name: str) -> None:
    a, b = A8.view(np.uint8), B8.view(np.uint8)
    expected = [DIVISIONS[name](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert apply(name, a, b, to="uint8").tolist() == expected


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("name", DIVISIONS)
def test_the_least_integer_over_minus_one_wraps(name: str, bits: int) -> None:
    low, _ = numerics.limits(dtype(f"int{bits}"))
    a, b = np.array([low, 7, -7, 7, -7]), np.array([-1, 2, 2, -2, -2])
    got = apply(name, a.astype(f"int{bits}"), b.astype(f"int{bits}"), to=f"int{bits}").tolist()
    rest = [DIVISIONS[name](x, y) for x, y in ((7, 2), (-7, 2), (7, -2), (-7, -2))]
    assert got == [low if name.endswith("div") else 0, *rest]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "and", "or", "xor", "min", "max"])
def test_arithmetic_of_all_pairs_of_int8_wraps(name: str) -> None:
    python = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
        "min": min, "max": max,
    }[name]  # fmt: skip
    expected = [wrap8(python(a, b)) for a, b in zip(A8.tolist(), B8.tolist(), strict=True)]
    assert apply(name, A8, B8, to="int8").tolist() == expected


def test_shifts_of_all_pairs_of_int8() -> None:
    pairs = list(zip(A8.tolist(), B8.tolist(), strict=True))
    left = [wrap8(a << b) if 0 <= b < 8 else 0 for a, b in pairs]
    right = [a >> b if 0 <= b < 8 else -(a < 0) for a, b in pairs]
    assert apply("shl", A8, B8, to="int8").tolist() == left
    assert apply("shr", A8, B8, to="int8").tolist() == right
    u = [x % 256 >> y if 0 <= y < 8 else 0 for x, y in pairs]
    unsigned = apply("shr", A8.view(np.uint8), B8.view(np.uint8), to="uint8")
    assert unsigned.tolist() == u


def test_unary_integers() -> None:
    assert apply("neg", ALL8, to="int8").tolist() == [wrap8(-x) for x in ALL8.tolist()]
    assert apply("abs", ALL8, to="int8").tolist() == [wrap8(abs(x)) for x in ALL8.tolist()]
    assert apply("not", ALL8, to="int8").tolist() == [~x for x in ALL8.tolist()]
    bits = [x % 256 for x in ALL8.tolist()]
    assert apply("popcount", ALL8, to="int8").tolist() == [x.bit_count() for x in bits]
    assert apply("clz", ALL8, to="int8").tolist() == [8 - x.bit_length() for x in bits]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_float_to_integer_saturates_and_nan_is_0(kind: str) -> None:
    low, high = numerics.limits(dtype(kind))
    x = np.array([math.nan, math.inf, -math.inf, 1e30, -1e30, 2.9, -2.9, 0.0, high, low])
    back = [0, high, low, high, low, 2, max(-2, low), 0, high, low]
    assert apply("cast", x, to=kind).tolist() == back
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    assert apply("cast", half, to=kind).tolist()[:3] == [0, high, low]


def test_bfloat16_rounds_to_nearest_even() -> None:
    quiet = np.array([0x7F800001], np.uint32).view(np.float32)
    x = np.array([0.2691408770292272, 3.14, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38], np.float32)
    assert apply("cast", x, to="bfloat16").astype(float).tolist() == [
        0.26953125, 3.140625, 1.0, 1.015625, math.inf,
    ]  # fmt: skip
    assert np.isnan(apply("cast", quiet, to="bfloat16").astype(np.float32)).all()
    whole = apply("cast", np.array([257, 259, -257], np.int32), to="bfloat16")
    assert whole.astype(float).tolist() == [256.0, 260.0, -256.0]


def test_bfloat16_is_rounded_once_from_wider_types() -> None:
    # just above a tie: a first rounding to float32 would land on the tie
    above = 2**24 + 2**16 + 1
    for x in (np.array(above, np.int32), np.array(above, np.int64), np.array(above + 2**-20)):
        assert float(apply("cast", x, to="bfloat16")) == 2.0**24 + 2.0**17
    tie = np.array(2**24 + 2**16, np.int64)
    assert float(apply("cast", tie, to="bfloat16")) == 2.0**24
    big = np.array((1 << 62) + (1 << 54) + 1, np.int64)
    assert float(apply("cast", big, to="bfloat16")) == 2.0**62 + 2.0**55


def test_products_of_bfloat16_are_rounded_once() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(4096).astype(np.float32).astype(BF16) for _ in range(2))
    exact = (a.astype(np.float64) * b.astype(np.float64)).astype(np.float32).astype(BF16)
    got = apply("mul", a, b, to="bfloat16")
    assert (got.view(np.uint16) == exact.view(np.uint16)).all()


def test_constants_round_once() -> None:
    assert numerics.round_to(2**24 + 2**16 + 1, dtype("bfloat16")) == 2.0**24 + 2.0**17
    assert numerics.round_to(2**100 + 1, dtype("float32")) == 2.0**100
    assert numerics.round_to((1 << 200) + (1 << 176) + 1, dtype("float32")) == math.inf
    assert numerics.round_to(10**400, dtype("float64")) == math.inf
    assert numerics.round_to((1 << 100) + (1 << 76) + 1, dtype("float32")) == 2.0**100 + 2.0**77


def nearest(x: Fraction, kind: str) -> float:
    """Correctly rounded, through Python's exact division."""
    if kind == "float64":
        return x.numerator / x.denominator
    low = np.dtype(kind).type(x.numerator / x.denominator)
    near = [np.nextafter(low, low.dtype.type(s)) for s in (-np.inf, np.inf)]
    options = [v for v in (low, *near) if np.isfinite(v)]
    best = min(abs(Fraction(float(v)) - x) for v in options)
    ties = [v for v in options if abs(Fraction(float(v)) - x) == best]
    even = [v for v in ties if int(v.view(np.uint32 if kind == "float32" else np.uint16)) % 2 == 0]
    return float((even or ties)[0])


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_fma_is_rounded_once(kind: str) -> None:
    rng = np.random.default_rng(7)
    n = 2000
    scale = 8 if kind == "float16" else 60
    a, b = (
        np.ldexp(rng.uniform(-1, 1, n), rng.integers(-scale // 2, scale // 2, n)).astype(kind)
        for _ in range(2)
    )
    # sums that nearly cancel, and sums of very different size
    c = np.where(
        rng.random(n) < 0.5,
        -(a.astype(float) * b.astype(float)) * (1 + rng.integers(-2, 3, n) * 2.0**-10),
        rng.uniform(-1, 1, n) * 2.0 ** rng.integers(-scale, scale, n).astype(float),
    ).astype(kind)
    got = apply("fma", a, b, c, to=kind)
    for x, y, z, r in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert float(r) == nearest(exact, kind)


def test_fma_at_the_edges_of_float64() -> None:
    tiny, huge = 5e-324, 1.7976931348623157e308
    rows = [
        (huge, 2.0, -huge, huge), (tiny, 0.5, tiny, 2 * tiny), (tiny, 0.5, 0.0, 0.0),
        (huge, huge, 0.0, math.inf), (1e-200, 1e-200, 1.0, 1.0), (math.inf, 0.0, 1.0, math.nan),
        (0.0, -1.0, 0.0, 0.0), (math.inf, 1.0, -math.inf, math.nan), (2.0, 3.0, -6.0, 0.0),
        (0.0, 1.0, -0.0, 0.0), (1.5, tiny, -tiny, 0.0), (2.5, tiny, -tiny, 2 * tiny),
    ]  # fmt: skip
    a, b, c, want = (np.array(v) for v in zip(*rows, strict=True))
    np.testing.assert_array_equal(apply("fma", a, b, c, to="float64"), want)
    for x, y, z, w in rows:
        np.testing.assert_array_equal(apply("fma", *map(np.array, (x, y, z)), to="float64"), w)


def test_min_and_max_propagate_nan_and_fmin_and_fmax_ignore_it() -> None:
    a, b = np.array([1, np.nan, 2, np.nan]), np.array([np.nan, 1, 3, np.nan])
    nan = np.nan
    np.testing.assert_array_equal(apply("min", a, b, to="float64"), [nan, nan, 2, nan])
    np.testing.assert_array_equal(apply("max", a, b, to="float64"), [nan, nan, 3, nan])
    np.testing.assert_array_equal(apply("fmin", a, b, to="float64"), [1, 1, 2, nan])
    np.testing.assert_array_equal(apply("fmax", a, b, to="float64"), [1, 1, 3, nan])


@pytest.mark.parametrize("name", ["sigmoid", "erf", "rsqrt", "exp2", "pow", "atan2", "asinh"])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_maths_functions(name: str, kind: str) -> None:
    x = np.array([0.25, 1.0, 3.5]).astype(dtype(kind).numpy)
    python = {
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)), "erf": math.erf, "exp2": lambda v: 2.0**v,
        "rsqrt": lambda v: 1 / math.sqrt(v), "pow": lambda v: v**v,
        "atan2": lambda v: math.atan2(v, v), "asinh": math.asinh,
    }[name]  # fmt: skip
    args = (x, x) if name in ("pow", "atan2") else (x,)
    got = apply(name, *args, to=kind)
    assert got.dtype == dtype(kind).numpy
    want = np.array([python(float(v)) for v in x])
    step = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-51}
    assert (np.abs(got.astype(float) - want) <= step[kind] * np.abs(want)).all()


def test_ldexp() -> None:
    x = np.array([1.5, -1.5, 1.0, 0.0], np.float32)
    got = apply("ldexp", x, np.array([3, -3, 2000, -2000], np.int32), to="float32")
    assert got.tolist() == [12.0, -0.1875, math.inf, 0.0]
