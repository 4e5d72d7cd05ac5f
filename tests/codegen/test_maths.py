"""Maths functions of float32, expanded here: their largest errors, and every special value."""

from __future__ import annotations

import ctypes
import math
from functools import cache

import numpy as np
import pytest

import tensorir as tir
from tensorir.codegen import maths
from tensorir.ir import build
from tensorir.ir.numerics import convert
from tests.codegen.machine import link, source_of

N = 1 << 18
TARGETS = ("native", "x86-64-v3")


@cache
def function(name: str, target: str, d: str = "float32", lanes: int = 16):
    X = tir.placeholder((N,), d, name="X")
    y = tir.compute((N,), lambda i: build.unary(name, X[i]), name="Y")
    s = tir.schedule(y)
    run = link(source_of(s.vectorize("i", lanes) if lanes else s, target))
    info = (ctypes.c_int64 * 4)()

    def apply(x: np.ndarray) -> np.ndarray:
        out = np.empty(N, x.dtype)
        full = np.resize(x, N)
        assert run(full.ctypes.data, out.ctypes.data, ctypes.addressof(info)) == 0
        return out[: len(x)]

    return apply


def reference(name: str, x: np.ndarray) -> np.ndarray:
    """In float64, where an error is far below one unit of float32."""
    x = x.astype(np.float64)
    if name == "erf":
        return np.concatenate(
            [function("erf", "native", "float64", 8)(p) for p in np.array_split(x, -(-len(x) // N))]
        )
    if name == "sigmoid":
        small = np.exp(-np.abs(x))
        return np.where(x < 0, small, 1.0) / (1.0 + small)
    return 1.0 / np.sqrt(x) if name == "rsqrt" else getattr(np, name)(x)


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """In units of the last place; infinite where the kind of the result is wrong."""
    near = want.astype(np.float32)
    largest = np.finfo(np.float32).max
    unit = np.spacing(np.minimum(np.abs(near), largest)).astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - want) / unit
    edge = np.isinf(near) != np.isinf(got)
    # at the edge of overflow the largest float and infinity are neighbours
    close = np.maximum(np.abs(got), np.abs(near)) == np.inf
    least = np.minimum(np.abs(got), np.abs(near)) >= largest * (1 - 2**-22)
    error = np.where(edge, np.where(close & least, 1.0, np.inf), error)
    error = np.where(~edge & np.isinf(near), np.where(got == near, 0.0, np.inf), error)
    nan = np.isnan(want)
    error = np.where(nan & np.isnan(got), 0.0, np.where(nan | np.isnan(got), np.inf, error))
    zero = (want == 0) & (got == 0) & (np.signbit(want) != np.signbit(got))
    return np.where(zero, np.inf, error)


@cache
def sample() -> np.ndarray:
    """Every exponent of either sign with many mantissas, and the neighbours of what is special."""
    rng = np.random.default_rng(11)
    exponents = np.repeat(np.arange(512, dtype=np.uint32), 480) << 23
    some = exponents | rng.integers(0, 1 << 23, len(exponents), dtype=np.uint32)
    points = [0.0, 1.0, 0.5, 2.0, 0.625, 0.927734375, 88.722839, 89.0, -87.33654, -103.972084,
              -104.0, 128.0, -126.0, -149.0, -150.0, -151.0, 9.0, 10.0, 4.0, -18.0, -17.328680,
              71476.0, math.pi / 4, math.pi / 2, math.pi, 1.4142135, 0.70710678, 2.0**-126, 1e-45,
              2.0**-24, 2.0**-25, 3.4028235e38, math.inf, math.nan]  # fmt: skip
    bits = np.array([*points, *(-p for p in points)], np.float32).view(np.int32)
    around = (bits[:, None] + np.arange(-20, 21)).ravel().astype(np.int32)
    return np.concatenate([some.view(np.float32), around.view(np.float32)])[:N]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", maths.BOUNDS)
def test_error_on_a_sample(name: str, target: str) -> None:
    x = sample()
    error = errors(function(name, target)(x), reference(name, x))
    at = int(error.argmax())
    assert error[at] <= maths.BOUNDS[name], (x[at], error[at])


@cache
def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of any two floats, of those whose powers are numbers, and of all special ones."""
    rng = np.random.default_rng(12)
    n = 1 << 15
    special = np.array([0.0, 1, 2, 0.5, 3, 1.5, 2.5, 1e-45, 3e38, 2.0**24, 2.0**25 + 2, np.inf])
    special = np.concatenate([special, -special, [np.nan]]).astype(np.float32)
    grid = np.array(np.meshgrid(special, special), np.float32).reshape(2, -1)
    any_two = rng.integers(0, 1 << 32, (2, n), np.uint64).astype(np.uint32).view(np.float32)
    near = np.abs(rng.standard_normal(n)), 20 * rng.standard_normal(n)
    wide = rng.lognormal(0, 5, n), 5 * rng.standard_normal(n)
    x, y = (
        np.concatenate([any_two[k], near[k], wide[k], grid[k]]).astype(np.float32) for k in (0, 1)
    )
    return x, y


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", maths.BOUNDS_OF_TWO)
def test_error_of_two_arguments(name: str, target: str) -> None:
    x, y = pairs()
    X, Y = (tir.placeholder((len(x),), name=n) for n in "XY")
    z = tir.compute((len(x),), lambda i: getattr(tir, name)(X[i], Y[i]), name="Z")
    got = tir.build(tir.schedule(z).vectorize("i", 16), target=target)(x, y)
    reference_of = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}[name]
    error = errors(got, reference_of(x.astype(np.float64), y.astype(np.float64)))
    at = int(error.argmax())
    assert error[at] <= maths.BOUNDS_OF_TWO[name], (x[at], y[at], error[at])


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", maths.BOUNDS)
def test_error_over_every_float(name: str) -> None:
    worst, where = 0.0, 0.0
    for start in range(0, 1 << 32, N):
        x = np.arange(start, start + N, dtype=np.uint64).astype(np.uint32).view(np.float32)
        error = errors(function(name, "native")(x), reference(name, x))
        at = int(error.argmax())
        if error[at] > worst:
            worst, where = float(error[at]), float(x[at])
    print(f"{name}: {worst:.3f} units at {where!r}")
    assert worst <= maths.BOUNDS[name], where


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin", "erf", "sigmoid"])
def test_scalar_code_gives_the_same_bits(name: str) -> None:
    x = sample()
    lanes = function(name, "native")(x)
    one = function(name, "native", lanes=0)(x)
    same = (lanes.view(np.int32) == one.view(np.int32)) | (np.isnan(lanes) & np.isnan(one))
    assert same.all(), x[~same][:5]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin", "cos"])
def test_targets_agree(name: str) -> None:
    x = sample()
    a, b = (function(name, t)(x) for t in TARGETS)
    same = (a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))
    assert same.all(), x[~same][:5]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("d", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "cos"])
def test_halves_over_every_value(name: str, d: str) -> None:
    kind = tir.dtype(d).numpy if hasattr(tir, "dtype") else convert(np.zeros(1), _dtype(d)).dtype
    x = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(kind)
    got = function(name, "native", d)(x).astype(np.float64)
    want = reference(name, x.astype(np.float32)).astype(np.float32).astype(kind)
    want = want.astype(np.float64)
    nan = np.isnan(want)
    assert (np.isnan(got) == nan).all()
    step = 2.0**-10 if d == "float16" else 2.0**-7
    least = 2.0**-24 if d == "float16" else 2.0**-133
    finite = ~nan & np.isfinite(want)
    assert (np.abs(got - want)[finite] <= np.maximum(step * np.abs(want), least)[finite]).all()
    assert (got == want)[~nan].mean() > 0.999


def _dtype(name: str):
    from tensorir.ir.dtype import dtype

    return dtype(name)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["exp", "log", "sin", "erf", "sigmoid", "rsqrt", "cbrt", "atan"])
def test_double_precision(name: str) -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.standard_normal(1000) * 10, [0.0, -0.0, np.inf, -np.inf, np.nan]])
    got = function(name, "native", "float64", 8)(x)
    if name == "erf":
        want = np.array([math.erf(v) for v in x])
    elif name == "atan":
        want = np.arctan(x)
    else:
        want = reference(name, x)
    np.testing.assert_allclose(got, want, rtol=1e-14)
