"""float32 and float64 arithmetic against exact fractions, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import UnsupportedError
from tests.emulator.ptx.kernels import (
    Array,
    bits_of,
    entry,
    floats,
    on_lanes,
    operation,
    rounded,
    same_floats,
    values_of,
)

COUNT = 512
EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c, "mad": lambda a, b, c: a * b + c, "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
}  # fmt: skip
IEEE: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "fma": lambda a, b, c: a * b + c, "mad": lambda a, b, c: a * b + c, "rcp": np.reciprocal,
}  # fmt: skip


def reference(name: str, word: str, mode: str, rows: list[Array]) -> Array:
    """Exact where all is finite and the result no zero; else numpy's float64 tells what it is."""
    with np.errstate(all="ignore"):
        plain = np.asarray(IEEE[name](*rows), np.float64)
    out = plain.copy()
    for k, row in enumerate(zip(*rows, strict=True)):
        if not all(map(math.isfinite, row)) or (name in ("div", "rcp") and row[-1] == 0):
            continue
        exact = EXACT[name](*(Fraction(float(v)) for v in row))
        if exact != 0:
            out[k] = rounded(exact, word, mode)
            if out[k] == 0 and exact < 0:
                out[k] = -0.0
        elif name in ("add", "sub", "fma", "mad") and mode == "rm":
            first = row[0] * row[1] if len(row) == 3 else row[0]
            second = -row[-1] if name == "sub" else row[-1]
            both = math.copysign(1, first) > 0 and math.copysign(1, second) > 0
            out[k] = 0.0 if both else -0.0
    return out


def operands(name: str, word: str, seed: int) -> list[Array]:
    count = {"fma": 3, "mad": 3, "rcp": 1}.get(name, 2)
    rows = [floats(word, COUNT, seed + k) for k in range(count)]
    if name in ("fma", "mad"):  # sums that cancel, and addends far below
        near = np.arange(COUNT) % 3
        with np.errstate(all="ignore"):
            product = values_of(bits_of(rows[0] * rows[1], word), word)
        rows[2] = np.where(near == 0, -product, rows[2])
    if name in ("add", "sub"):
        rows[1] = np.where(np.arange(COUNT) % 7 == 0, -rows[0], rows[1])
    return rows


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", EXACT)
def test_float32(name: str, mode: str) -> None:
    rows = operands(name, "f32", 11)
    found = operation(f"{name}.{mode}.f32", [bits_of(r, "f32") for r in rows], np.uint32)
    same_floats(values_of(found, "f32"), reference(name, "f32", mode, rows))


@pytest.mark.parametrize("name", EXACT)
def test_float64(name: str) -> None:
    rows = operands(name, "f64", 5)
    found = operation(f"{name}.rn.f64", rows, np.float64)
    same_floats(found, reference(name, "f64", "rn", rows))


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "sub"])
def test_float64_directed_sums(name: str, mode: str) -> None:
    rows = [np.where(abs(r) < 1e300, r, 3.0) for r in operands(name, "f64", 6)]
    found = operation(f"{name}.{mode}.f64", rows, np.float64)
    same_floats(found, reference(name, "f64", mode, rows))


def test_fused_halfway_cases() -> None:
    """Products that lie halfway between two float32 numbers, and an addend that decides."""
    rng = np.random.default_rng(3)
    a = (1 + rng.integers(0, 1 << 12, COUNT) * 2.0**-12).astype(np.float32)
    b = (1 + (2 * rng.integers(0, 1 << 11, COUNT) + 1) * 2.0**-12).astype(np.float32)
    c = (rng.choice([-1.0, 0.0, 1.0], COUNT) * 2.0 ** rng.integers(-120, -30, COUNT)).astype("f4")
    found = operation("fma.rn.f32", [a, b, c], np.float32)
    for k in range(COUNT):
        exact = Fraction(float(a[k])) * Fraction(float(b[k])) + Fraction(float(c[k]))
        assert float(found[k]) == rounded(exact, "f32")


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_square_root(mode: str) -> None:
    a = np.abs(floats("f32", COUNT, 1)).astype(np.float32)
    a[:64] = np.arange(64) ** 2
    found = operation(f"sqrt.{mode}.f32", [a], np.float32)
    for v, r in zip(a, found, strict=True):
        if not math.isfinite(v) or v == 0:
            assert r == v or (math.isnan(r) and math.isnan(v))
            continue
        # the root rounds to r just where the number lies between the squares around it
        low, high = (Fraction(float(np.nextafter(r, np.float32(d)))) for d in (0, np.inf))
        exact, at = Fraction(float(v)), Fraction(float(r))
        if mode == "rn":
            assert ((low + at) / 2) ** 2 <= exact <= ((high + at) / 2) ** 2
        elif mode == "rp":
            assert low**2 < exact <= at**2
        else:
            assert at**2 <= exact < high**2


@pytest.mark.parametrize("word", ["f32", "f64"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes(name: str, word: str) -> None:
    a, b = floats(word, COUNT, 1), floats(word, COUNT, 2)
    a[::9], b[::9] = 0.0, -0.0
    a[4::9], b[4::9] = -0.0, 0.0
    given = [bits_of(v, word) for v in (a, b)]
    pick = max if name == "max" else min

    def order(v: float) -> tuple[float, float]:
        return v, math.copysign(1, v)

    wanted = []
    for u, v in zip(a, b, strict=True):
        wanted.append(v if math.isnan(u) else u if math.isnan(v) else pick(u, v, key=order))
    found = operation(f"{name}.{word}", given, given[0].dtype)
    same_floats(values_of(found, word), np.array(wanted))
    if word == "f64":
        return
    keeps = np.where(np.isnan(a) | np.isnan(b), np.nan, wanted)
    found = operation(f"{name}.NaN.f32", given, np.uint32)
    same_floats(values_of(found, word), keeps)
    sign = np.where(np.signbit(a) ^ np.signbit(b), -1.0, 1.0)
    size = (np.fmax if name == "max" else np.fmin)(abs(a), abs(b))
    found = operation(f"{name}.xorsign.abs.f32", given, np.uint32)
    same_floats(values_of(found, word), np.copysign(size, sign))


@pytest.mark.parametrize("word", ["f32", "f64"])
def test_signs(word: str) -> None:
    a, b = (bits_of(floats(word, COUNT, k), word) for k in (1, 2))
    u, v = values_of(a, word), values_of(b, word)
    same_floats(values_of(operation(f"neg.{word}", [a], a.dtype), word), -u)
    same_floats(values_of(operation(f"abs.{word}", [a], a.dtype), word), abs(u))
    found = operation(f"copysign.{word}", [a, b], a.dtype)
    same_floats(values_of(found, word), np.copysign(v, u))


def test_flushing_and_saturation() -> None:
    a, b = (floats("f32", COUNT, k).astype(np.float32) for k in (1, 2))

    def flushed(v: Array) -> Array:
        return np.where(np.abs(v) < np.float32(2.0**-126), np.copysign(np.float32(0), v), v)

    with np.errstate(all="ignore"):
        wanted = flushed(flushed(a) * flushed(b))
        summed = a + b
    same_floats(operation("mul.rn.ftz.f32", [a, b], np.float32), wanted)
    same_floats(operation("abs.ftz.f32", [a], np.float32), flushed(abs(a)))
    wanted = np.where(np.isnan(summed) | (summed <= 0), 0, np.minimum(summed, 1))
    same_floats(operation("add.rn.sat.f32", [a, b], np.float32), wanted)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2, "lg2": np.log2, "rcp": np.reciprocal, "sqrt": np.sqrt, "sin": np.sin,
    "cos": np.cos, "tanh": np.tanh, "rsqrt": lambda a: 1 / np.sqrt(a),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_approximations_are_the_nearest_values(name: str) -> None:
    a = floats("f32", COUNT, 1).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](a.astype(np.float64)).astype(np.float32)
        same_floats(operation(f"{name}.approx.f32", [a], np.float32), exact)
        if name != "tanh":
            tiny = np.abs(a) < np.float32(2.0**-126)
            inside = np.where(tiny, np.copysign(np.float32(0), a), a).astype(np.float64)
            exact = FUNCTIONS[name](inside).astype(np.float32)
            small = np.abs(exact) < np.float32(2.0**-126)
            exact = np.where(small, np.copysign(np.float32(0), exact), exact)
            same_floats(operation(f"{name}.approx.ftz.f32", [a], np.float32), exact)


def test_quick_quotient_of_a_huge_divisor() -> None:
    a = np.array([1.0, np.inf, 1e30, -8.0], np.float32)
    b = np.array([2.0**127, 2.0**127, 4.0, -(2.0**127)], np.float32)
    same_floats(
        operation("div.approx.f32", [a, b], np.float32),
        [0.0, np.nan, np.float32(1e30) / np.float32(4), 0.0],
    )
    same_floats(operation("div.full.f32", [a, b], np.float32), a / b)


def test_constants() -> None:
    body = (
        "mov.f32 %d0, 0f3FC00000; add.rn.f32 %d1, %a, 0fBF800000; mov.f64 %d2, 0d3FF8000000000000;"
    )
    found = on_lanes(body, [np.ones(1, "f4")], [np.float32, np.float32, np.float64])
    assert [float(f[0]) for f in found] == [1.5, 0.0, 1.5]


@pytest.mark.parametrize("opcode", [
    "add.rn.relu.f32", "mul.rz.f64", "fma.rp.f64", "add.sat.f64", "sin.f64", "ex2.approx.rn.f32",
    "add.rn.f32x2",
])  # fmt: skip
def test_unknown_forms(opcode: str) -> None:
    operands = ", ".join(["%r1"] * (4 if opcode.startswith("fma") else 3))
    with pytest.raises(UnsupportedError, match=opcode):
        run(entry([], f"{opcode} {operands};"), block=32)
