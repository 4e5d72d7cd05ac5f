"""float16 and bfloat16 arithmetic, alone and in pairs, against exact fractions rounded once."""

from __future__ import annotations

import math
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
    operation,
    rounded,
    same_floats,
    values_of,
)
from tests.emulator.ptx.test_floating import reference

COUNT = 512
WORDS = ("f16", "bf16")


def rows_of(name: str, word: str, seed: int = 1) -> list[Array]:
    rows = [floats(word, COUNT, seed + k) for k in range(3 if name == "fma" else 2)]
    if name == "fma":
        with np.errstate(all="ignore"):
            product = values_of(bits_of(rows[0] * rows[1], word), word)
        rows[2] = np.where(np.arange(COUNT) % 3 == 0, -product, rows[2])
    return rows


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_arithmetic(name: str, word: str) -> None:
    rows = rows_of(name, word)
    given = [bits_of(r, word) for r in rows]
    wanted = reference(name, word, "rn", rows)
    found = operation(f"{name}.rn.{word}", given, np.uint16)
    same_floats(values_of(found, word), wanted)
    pairs = operation(f"{name}.rn.{word}x2", [g.view(np.uint32) for g in given], np.uint32)
    np.testing.assert_array_equal(pairs.view(np.uint16), found)
    if name == "fma":
        found = operation(f"fma.rn.relu.{word}", given, np.uint16)
        same_floats(
            values_of(found, word), np.where(np.signbit(wanted) & ~np.isnan(wanted), 0.0, wanted)
        )


@pytest.mark.parametrize("word", WORDS)
def test_fused_with_far_addends(word: str) -> None:
    """Where rounding twice would be wrong: a product halfway, an addend far below."""
    precision = 11 if word == "f16" else 8
    rng = np.random.default_rng(3)
    half = (precision - 1) // 2
    a = 1 + rng.integers(0, 1 << half, COUNT) * 2.0**-half
    b = 1 + (2 * rng.integers(0, 1 << (precision - half - 1), COUNT) + 1) * 2.0 ** (
        half - precision
    )
    c = rng.choice([-1.0, 0.0, 1.0], COUNT) * 2.0 ** rng.integers(-14 - precision, -13, COUNT)
    rows = [values_of(bits_of(v, word), word) for v in (a, b, c)]
    found = operation(f"fma.rn.{word}", [bits_of(v, word) for v in rows], np.uint16)
    wanted = [
        rounded(Fraction(x) * Fraction(y) + Fraction(z), word)
        for x, y, z in zip(*rows, strict=True)
    ]
    np.testing.assert_array_equal(values_of(found, word), wanted)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes(name: str, word: str) -> None:
    a, b = floats(word, COUNT, 1), floats(word, COUNT, 2)
    a[::9], b[::9] = 0.0, -0.0
    given = [bits_of(v, word) for v in (a, b)]
    pick = (np.fmax if name == "max" else np.fmin)(a, b)
    pick = np.where((a == 0) & (b == 0), {"max": 0.0, "min": -0.0}[name], pick)
    both = (a == 0) & (b == 0) & (np.signbit(a) == np.signbit(b))
    pick = np.where(both, a, pick)
    found = operation(f"{name}.{word}", given, np.uint16)
    same_floats(values_of(found, word), pick)
    found = operation(f"{name}.NaN.{word}x2", [g.view(np.uint32) for g in given], np.uint32)
    wanted = np.where(np.isnan(a) | np.isnan(b), np.nan, pick)
    same_floats(values_of(found.view(np.uint16), word), wanted)
    nan = np.isnan(wanted)
    assert (found.view(np.uint16)[nan] == 0x7FFF).all()


@pytest.mark.parametrize("word", WORDS)
def test_signs_are_bits(word: str) -> None:
    a = np.random.default_rng(1).integers(0, 1 << 16, COUNT).astype(np.uint16)
    np.testing.assert_array_equal(operation(f"neg.{word}", [a], np.uint16), a ^ 0x8000)
    np.testing.assert_array_equal(operation(f"abs.{word}", [a], np.uint16), a & 0x7FFF)


def test_flushing_and_saturation() -> None:
    rows = [floats("f16", COUNT, k) for k in (1, 2)]
    given = [bits_of(r, "f16") for r in rows]

    def flushed(v: Array) -> Array:
        return np.where(np.abs(v) < 2.0**-14, np.copysign(0.0, v), v)

    wanted = flushed(reference("mul", "f16", "rn", [flushed(r) for r in rows]))
    same_floats(values_of(operation("mul.rn.ftz.f16", given, np.uint16), "f16"), wanted)
    total = reference("add", "f16", "rn", rows)
    wanted = np.where(np.isnan(total) | (total <= 0), 0, np.minimum(total, 1))
    same_floats(values_of(operation("add.rn.sat.f16", given, np.uint16), "f16"), wanted)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", ["ex2", "tanh"])
def test_functions(name: str, word: str) -> None:
    v = floats(word, COUNT, 1)
    form = "ex2.approx.ftz" if (name, word) == ("ex2", "bf16") else f"{name}.approx"
    found = operation(f"{form}.{word}", [bits_of(v, word)], np.uint16)
    function = math.tanh if name == "tanh" else None
    for x, y in zip(v, values_of(found, word), strict=True):
        if math.isnan(x):
            assert math.isnan(y)
        elif abs(x) < 200:
            exact = function(x) if function else 2.0**x
            step = 2.0 ** (-24 if word == "f16" else -133)
            top = 65520 if word == "f16" else math.inf
            assert abs(y - exact) <= max(abs(exact) * 2.0**-8, step) or exact >= top


@pytest.mark.parametrize("opcode", ["add.rz.f16", "div.rn.f16", "add.rn.sat.bf16", "sqrt.rn.f16"])
def test_unknown_forms(opcode: str) -> None:
    operands = "%h1, %h1" if opcode.startswith("sqrt") else "%h1, %h1, %h1"
    with pytest.raises(UnsupportedError, match=opcode):
        run(entry([], f"{opcode} {operands};"), block=32)
