"""Conversions: every pair of types and rounding against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import UnsupportedError
from tests.emulator.ptx.kernels import (
    Array,
    bits_of,
    entry,
    floats,
    integers,
    operation,
    rounded,
    same_floats,
    values_of,
)

COUNT = 512
INTEGERS = {"u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "u32": np.uint32,
            "s32": np.int32, "u64": np.uint64, "s64": np.int64}  # fmt: skip
BITS = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64, "tf32": np.uint32}
ROUND = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def register(word: str) -> Any:
    """The narrowest register that holds a type: 16 bits for one of 8."""
    return {"u8": np.uint16, "s8": np.int16}.get(word, INTEGERS.get(word))


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("given", INTEGERS)
def test_between_integers(to: str, given: str) -> None:
    a = integers(INTEGERS[given], COUNT, 1).astype(register(given))
    found = operation(f"cvt.{to}.{given}", [a], register(to))
    np.testing.assert_array_equal(found, a.astype(INTEGERS[to]).astype(register(to)))
    found = operation(f"cvt.sat.{to}.{given}", [a], register(to))
    info = np.iinfo(INTEGERS[to])
    wanted = [min(max(int(v), info.min), info.max) for v in a]
    np.testing.assert_array_equal(found, np.array(wanted, register(to)))


def test_narrow_results_fill_their_register() -> None:
    a = np.array([-1, 200, 127, -128] * 8, np.int32)
    np.testing.assert_array_equal(
        operation("cvt.s8.s32", [a], np.int32), a.astype(np.int8).astype(np.int32)
    )
    np.testing.assert_array_equal(
        operation("cvt.u8.u32", [a], np.int32), a.astype(np.uint8).astype(np.int32)
    )


@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize("given", ["f16", "bf16", "f32", "f64"])
def test_to_integers(given: str, mode: str) -> None:
    v = floats(given, COUNT, 3, near=18)
    v[:16] = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 255, 256, -1, -0.25, 127, 128, -128, -129, 65504, 3]
    bits = bits_of(v, given)
    v = values_of(bits, given)
    for to, dtype in INTEGERS.items():
        info = np.iinfo(dtype)
        long = given == "f64" or info.bits == 64
        missing = (info.min if info.min else 1 << (info.bits - 1)) if long else 0
        wanted = []
        for x in v:
            if math.isnan(x):
                wanted.append(missing)
            elif math.isinf(x):
                wanted.append(info.max if x > 0 else info.min)
            else:
                wanted.append(min(max(ROUND[mode](x), info.min), info.max))
        found = operation(f"cvt.{mode}.{to}.{given}", [bits], register(to))
        np.testing.assert_array_equal(found, np.array(wanted, dtype).astype(register(to)))


def test_flushed_before_rounding_up() -> None:
    tiny = np.array([1e-40, -1e-40, 1e-37, 0.5], np.float32)
    for form, wanted in (("rpi", [1, 0, 1, 1]), ("rpi.ftz", [0, 0, 1, 1])):
        np.testing.assert_array_equal(operation(f"cvt.{form}.s32.f32", [tiny], np.int32), wanted)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("to", ["f16", "bf16", "f32", "f64"])
def test_from_integers(to: str, mode: str) -> None:
    for given, dtype in INTEGERS.items():
        a = integers(dtype, COUNT, 1)
        found = operation(f"cvt.{mode}.{to}.{given}", [a.astype(register(given))], BITS[to])
        wanted = [rounded(Fraction(int(v)), to, mode) for v in a]
        np.testing.assert_array_equal(values_of(found, to), wanted)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("to, given", [
    ("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"),
])  # fmt: skip
def test_narrower_floats(to: str, given: str, mode: str) -> None:
    v = floats(given, COUNT, 2, near=20)
    # values beside the halfway points of the narrow type
    rng = np.random.default_rng(1)
    near = values_of(bits_of(floats(to, COUNT, 4), to), to)
    v = np.where(rng.integers(0, 3, COUNT) == 0, near * (1 + 2.0**-12), v)
    bits = bits_of(v, given)
    v = values_of(bits, given)
    found = values_of(operation(f"cvt.{mode}.{to}.{given}", [bits], BITS[to]), to)
    finite = np.isfinite(v)
    wanted = [rounded(Fraction(x), to, mode) if f else x for x, f in zip(v, finite, strict=True)]
    same_floats(found, np.copysign(wanted, v))


@pytest.mark.parametrize("to, given", [
    ("f32", "f16"), ("f64", "f16"), ("f32", "bf16"), ("f64", "f32"),
])  # fmt: skip
def test_wider_floats(to: str, given: str) -> None:
    bits = bits_of(floats(given, COUNT, 1), given)
    found = operation(f"cvt.{to}.{given}", [bits], BITS[to])
    same_floats(values_of(found, to), values_of(bits, given))


@pytest.mark.parametrize("mode", ROUND)
def test_to_whole_numbers(mode: str) -> None:
    v = np.concatenate([floats("f32", COUNT - 8, 1), [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.2, -0.2]])
    function = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
    for word in ("f16", "f32", "f64"):
        bits = bits_of(np.clip(v, -65504, 65504), word)
        found = operation(f"cvt.{mode}.{word}.{word}", [bits], BITS[word])
        same_floats(values_of(found, word), function(values_of(bits, word)))


def test_saturating_and_flushing() -> None:
    v = floats("f32", COUNT, 1).astype(np.float32)
    found = operation("cvt.sat.f32.f32", [v], np.float32)
    same_floats(found, np.where(np.isnan(v) | (v <= 0), 0, np.minimum(v, 1)))
    wide = np.array([1e-39, -1e-39, 1.0, 1e-30] * 8)
    found = operation("cvt.rn.ftz.f32.f64", [wide], np.float32)
    same_floats(found, [0.0, -0.0, 1.0, np.float32(1e-30)] * 8)
    found = operation("cvt.ftz.f64.f32", [wide.astype(np.float32)], np.float64)
    same_floats(found, [0.0, -0.0, 1.0, float(np.float32(1e-30))] * 8)


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32(mode: str) -> None:
    v = np.concatenate([floats("f32", COUNT - 4, 1), 1 + np.array([1, 3, 2, 6]) * 2.0**-11])
    found = values_of(operation(f"cvt.{mode}.tf32.f32", [bits_of(v, "f32")], np.uint32), "f32")
    finite = np.isfinite(v)
    wanted = [
        rounded(Fraction(x), "tf32", mode) if f else x for x, f in zip(v, finite, strict=True)
    ]
    same_floats(found, np.copysign(wanted, v))


@pytest.mark.parametrize("word", ["f16", "bf16"])
def test_two_into_a_pair(word: str) -> None:
    a, b = (floats("f32", COUNT, k) for k in (1, 2))
    given = [bits_of(v, "f32") for v in (a, b)]
    for form, mode, relu, finite in (
        ("rn", "rn", 0, 0), ("rz", "rz", 0, 0), ("rn.relu", "rn", 1, 0),
        ("rn.satfinite", "rn", 0, 1),
    ):  # fmt: skip
        found = operation(f"cvt.{form}.{word}x2.f32", given, np.uint32).view(np.uint16)
        top = {"f16": 65504.0, "bf16": (2 - 2.0**-7) * 2.0**127}[word]
        for half, v in ((found[1::2], a), (found[::2], b)):
            ends = [
                x if math.isinf(x) or math.isnan(x) else rounded(Fraction(x), word, mode) for x in v
            ]
            wanted = np.copysign(ends, v)
            if relu:
                wanted = np.where(np.signbit(wanted) & ~np.isnan(wanted), 0.0, wanted)
            if finite:
                wanted = np.clip(wanted, -top, top)
            same_floats(values_of(half, word), wanted)


EIGHT = {"e4m3x2": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2x2": (ml_dtypes.float8_e5m2, 57344.0)}


def nearest(v: float, dtype: Any, top: float) -> int:
    """The byte of the nearest value, ties to the even one."""
    if math.isnan(v):
        return 0x7F
    every = np.arange(256, dtype=np.uint8)
    values = every.view(dtype).astype(np.float64)
    keep = np.isfinite(values) & (np.signbit(values) == np.signbit(v))
    every, values = every[keep], values[keep]
    distance = np.abs(values - min(max(v, -top), top))
    best = every[distance == distance.min()]
    return int(best[best % 2 == 0][0] if len(best) > 1 else best[0])


@pytest.mark.parametrize("to", EIGHT)
def test_eight_bits(to: str) -> None:
    dtype, top = EIGHT[to]
    a, b = (np.clip(floats("f32", COUNT, k, near=9), -1e6, 1e6) for k in (1, 2))
    a[:8] = [448, 464, 465, -500, 57344, 61440, 17.0, 2.0**-10]
    given = [v.astype(np.float32) for v in (a, b)]
    found = operation(f"cvt.rn.satfinite.{to}.f32", given, np.uint16).view(np.uint8)
    for half, v in ((found[1::2], given[0]), (found[::2], given[1])):
        np.testing.assert_array_equal(half, [nearest(float(x), dtype, top) for x in v])
    halves = np.clip(np.stack([b, a], 1), -60000, 60000).astype(np.float16)
    again = operation(f"cvt.rn.satfinite.{to}.f16x2", [halves.view(np.uint32).ravel()], np.uint16)
    wanted = [nearest(float(x), dtype, top) for x in halves.ravel()]
    np.testing.assert_array_equal(again.view(np.uint8), wanted)


@pytest.mark.parametrize("given", EIGHT)
def test_from_eight_bits(given: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    pairs = np.stack([every, every[::-1]], 1).ravel().view(np.uint16)
    found = operation(f"cvt.rn.f16x2.{given}", [pairs], np.uint32)
    wanted: Array = pairs.view(np.uint8).view(EIGHT[given][0]).astype(np.float64)
    ours = values_of(found.view(np.uint16), "f16")
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(wanted))
    np.testing.assert_array_equal(ours[~np.isnan(ours)], wanted[~np.isnan(wanted)])


@pytest.mark.parametrize("opcode", [
    "cvt.f32.f64", "cvt.s32.f32", "cvt.f32.s32", "cvt.rn.f64.f32", "cvt.rs.f16.f32",
    "cvt.rn.e4m3x2.f32", "cvt.rna.f16.f32", "cvt.pack.sat.s8.s32.b32", "cvt.rn.s32.f32",
])  # fmt: skip
def test_forms_that_ptx_lacks_are_refused(opcode: str) -> None:
    with pytest.raises(UnsupportedError, match=opcode):
        run(entry([], f"{opcode} %r1, %r2;"), block=32)
