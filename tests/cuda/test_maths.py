"""Maths functions on a GPU: there is no maths library there, so all of them are expanded."""

from __future__ import annotations

import math

import numpy as np
import pytest

import schedules
import tensorir as tir
from tensorir.codegen import maths
from tensorir.ir import build

# float64, in units of the last place, beside those of the reference
BOUNDS = {
    "exp": 1.5, "exp2": 1.5, "expm1": 2.5, "log": 1.5, "log2": 1.5, "log10": 1.5, "log1p": 2.0,
    "sin": 2.0, "cos": 2.0, "tan": 3.5, "asin": 2.5, "acos": 2.0, "atan": 2.0, "sinh": 2.0,
    "cosh": 2.0, "tanh": 2.5, "asinh": 2.5, "acosh": 2.5, "atanh": 2.5, "cbrt": 1.5, "erf": 2.0,
}  # fmt: skip
BOUNDS_OF_TWO = {"pow": 2.0, "atan2": 2.5, "hypot": 1.5}


def _points() -> np.ndarray:
    rng = np.random.default_rng(4)
    special = [0.0, 0.5, 1.0, 2.0, 5.9, 1e-310, 5e-324, 1e308, 2.0**30, 1e22, math.inf]
    return np.concatenate([
        2.0 ** rng.uniform(-30, 30, 200) * rng.choice([-1, 1], 200),
        rng.integers(0, 1 << 64, 200, np.uint64).view(np.float64),
        rng.uniform(-1.2, 1.2, 300), 1 + 2.0 ** rng.uniform(-40, 3, 100),
        rng.uniform(-40, 40, 200), rng.uniform(-750, 750, 100), np.arange(-40, 40) * math.pi / 2,
        special, [-x for x in special], [math.nan],
    ])  # fmt: skip


def _errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """In units of the last place; infinite where the kind of the result is wrong."""
    with np.errstate(all="ignore"):
        unit = np.spacing(np.minimum(np.abs(want), np.finfo(np.float64).max))
        error = np.abs(got - want) / unit
    plain = np.isfinite(want) & np.isfinite(got) & ((want != 0) | (got != 0))
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want))
    return np.where(plain, error, np.where(same, 0.0, np.inf))


def _kernel(n: int, of: object, dtype: str, arguments: int) -> tir.Kernel:
    given = [tir.placeholder((n,), dtype, name=f"x{k}") for k in range(arguments)]
    z = tir.compute((n,), lambda i: of(*(x[i] for x in given)), name="z")  # type: ignore[operator]
    return tir.build(schedules.schedule_for(z, target="emulator"), target="emulator")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", BOUNDS)
def test_float64(name: str) -> None:
    x = _points()
    got = _kernel(len(x), lambda e: build.unary(name, e), "float64", 1)(x)
    want = np.array([math.erf(v) for v in x]) if name == "erf" else getattr(np, name)(x)
    error = _errors(got, want)
    at = int(error.argmax())
    # the reference may be off by one unit itself
    assert error[at] <= BOUNDS[name] + 1, (x[at], got[at], want[at], error[at])


def test_the_nearest_to_a_multiple_of_half_a_turn() -> None:
    """The double whose cosine is the least of all, after J.-M. Muller; numpy's is 7 units off."""
    x = np.array([6381956970095103.0 * 2.0**797])
    got = _kernel(1, tir.cos, "float64", 1)(x)
    np.testing.assert_allclose(got, -4.68716592425462761112e-19, rtol=4e-16, atol=0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", BOUNDS_OF_TWO)
def test_float64_of_two_arguments(name: str) -> None:
    rng = np.random.default_rng(5)
    special = np.array([0.0, 1, 2, 0.5, 3, 1.5, 5e-324, 1e308, 2.0**53, 2.0**53 + 2, np.inf])
    special = np.concatenate([special, -special, [np.nan]])
    grid = np.array(np.meshgrid(special, special)).reshape(2, -1)
    x = np.concatenate([rng.lognormal(0, 3, 500), 1 + rng.uniform(-1e-3, 1e-3, 300), grid[0]])
    y = np.concatenate([80 * rng.standard_normal(500), 3e5 * rng.standard_normal(300), grid[1]])
    got = _kernel(len(x), getattr(tir, name), "float64", 2)(x, y)
    reference = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}[name]
    error = _errors(got, reference(x, y))
    at = int(error.argmax())
    assert error[at] <= BOUNDS_OF_TWO[name] + 1, (x[at], y[at], got[at], error[at])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", maths.BOUNDS)
def test_float32_as_on_a_processor(name: str) -> None:
    """The same algorithm: the same bits, but where one target has an instruction for a step."""
    x = _points()[::2].astype("float32")

    def of(e: object) -> object:
        return build.unary(name, e)

    got = _kernel(len(x), of, "float32", 1)(x)
    X = tir.placeholder((len(x),), name="x0")
    z = tir.compute((len(x),), lambda i: build.unary(name, X[i]), name="z")
    want = tir.build(tir.schedule(z))(x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    fine = ~np.isnan(want)
    np.testing.assert_array_equal(got[fine], want[fine])
