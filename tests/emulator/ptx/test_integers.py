"""Integer arithmetic against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import UnsupportedError
from tests.emulator.ptx.kernels import entry, integers, on_lanes, operation, thread

DTYPES = {"u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64,
          "s64": np.int64}  # fmt: skip
COUNT = 256


def wrap(value: int, dtype: Any) -> int:
    info = np.iinfo(dtype)
    value %= 1 << info.bits
    return value - (1 << info.bits) if value > info.max else value


def against(
    opcode: str, dtypes: list[Any], output: Any, reference: Callable[..., int], count: int = COUNT
) -> None:
    given = [integers(d, count, 7 * k + 1) for k, d in enumerate(dtypes)]
    found = operation(opcode, given, output)
    wanted = [wrap(reference(*(int(v) for v in row)), output) for row in zip(*given, strict=True)]
    np.testing.assert_array_equal(found, np.array(wanted, output))


def quotient(a: int, b: int) -> int:
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


TWO: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul.lo": lambda a, b: a * b,
    "min": min, "max": max, "div": quotient,
    "rem": lambda a, b: a if b == 0 else a - quotient(a, b) * b,
}  # fmt: skip


@pytest.mark.parametrize("word", DTYPES)
@pytest.mark.parametrize("name", TWO)
def test_of_two(name: str, word: str) -> None:
    against(f"{name}.{word}", [DTYPES[word]] * 2, DTYPES[word], TWO[name])


@pytest.mark.parametrize("word", DTYPES)
def test_high_product(word: str) -> None:
    bits = int(word[1:])
    against(f"mul.hi.{word}", [DTYPES[word]] * 2, DTYPES[word], lambda a, b: (a * b) >> bits)
    against(f"mad.lo.{word}", [DTYPES[word]] * 3, DTYPES[word], lambda a, b, c: a * b + c)
    against(
        f"mad.hi.{word}", [DTYPES[word]] * 3, DTYPES[word], lambda a, b, c: ((a * b) >> bits) + c
    )


@pytest.mark.parametrize("word", ["u16", "s16", "u32", "s32"])
def test_wide_product(word: str) -> None:
    wide = DTYPES[f"{word[0]}{2 * int(word[1:])}"]
    against(f"mul.wide.{word}", [DTYPES[word]] * 2, wide, lambda a, b: a * b)
    against(f"mad.wide.{word}", [DTYPES[word]] * 2 + [wide], wide, lambda a, b, c: a * b + c)


@pytest.mark.parametrize("word", ["s16", "s32", "s64"])
def test_of_one(word: str) -> None:
    against(f"neg.{word}", [DTYPES[word]], DTYPES[word], lambda a: -a)
    against(f"abs.{word}", [DTYPES[word]], DTYPES[word], abs)
    against(f"not.b{word[1:]}", [DTYPES[word]], DTYPES[word], lambda a: ~a)
    against(f"cnot.b{word[1:]}", [DTYPES[word]], DTYPES[word], lambda a: int(a == 0))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bits: int) -> None:
    dtype = DTYPES[f"u{bits}"]
    against(f"and.b{bits}", [dtype] * 2, dtype, lambda a, b: a & b)
    against(f"or.b{bits}", [dtype] * 2, dtype, lambda a, b: a | b)
    against(f"xor.b{bits}", [dtype] * 2, dtype, lambda a, b: a ^ b)


@pytest.mark.parametrize("word", ["b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_shifts_clamp_their_count(word: str) -> None:
    bits = int(word[1:])
    dtype = DTYPES[word.replace("b", "u")]
    value = integers(dtype, COUNT, 3)
    count = np.resize(
        np.array([0, 1, bits - 1, bits, bits + 1, 255, 0xFFFFFFFF, 5], np.uint32), COUNT
    )
    wanted = [wrap(int(v) >> min(int(c), 200), dtype) for v, c in zip(value, count, strict=True)]
    np.testing.assert_array_equal(operation(f"shr.{word}", [value, count], dtype), wanted)
    by = on_lanes(f"shr.{word} %d0, %a, {bits - 1}; shr.{word} %d1, %a, {bits};",
                  [value], [dtype, dtype])  # fmt: skip
    np.testing.assert_array_equal(by[0], value >> dtype(bits - 1))
    np.testing.assert_array_equal(by[1], np.where(value < 0, ~dtype(0), dtype(0)))
    if word[0] == "b":
        wanted = [
            wrap(int(v) << min(int(c), 200), dtype) for v, c in zip(value, count, strict=True)
        ]
        np.testing.assert_array_equal(operation(f"shl.{word}", [value, count], dtype), wanted)


def clamp(value: int, low: int = -(1 << 31), high: int = (1 << 31) - 1) -> int:
    return max(low, min(high, value))


def test_saturation() -> None:
    s32 = np.int32
    against("add.sat.s32", [s32] * 2, s32, lambda a, b: clamp(a + b))
    against("sub.sat.s32", [s32] * 2, s32, lambda a, b: clamp(a - b))
    against("mad.hi.sat.s32", [s32] * 3, s32, lambda a, b, c: clamp(((a * b) >> 32) + c))
    against("min.relu.s32", [s32] * 2, s32, lambda a, b: max(min(a, b), 0))
    against("max.relu.s32", [s32] * 2, s32, lambda a, b: max(a, b, 0))


@pytest.mark.parametrize("word", ["u16x2", "s16x2"])
@pytest.mark.parametrize("name", ["add", "sub", "min", "max"])
def test_pairs(name: str, word: str) -> None:
    dtype = DTYPES[word[:3]]
    a, b = (integers(dtype, 2 * COUNT, k) for k in (1, 2))
    found = operation(f"{name}.{word}", [a.view(np.uint32), b.view(np.uint32)], np.uint32)
    wanted = [wrap(TWO[name](int(u), int(v)), dtype) for u, v in zip(a, b, strict=True)]
    np.testing.assert_array_equal(found.view(dtype), wanted)


@pytest.mark.parametrize("word", ["u32", "s32"])
def test_24_bits(word: str) -> None:
    def low(a: int) -> int:
        a &= 0xFFFFFF
        return a - (1 << 24) if word == "s32" and a >> 23 else a

    dtype = DTYPES[word]
    against(f"mul24.lo.{word}", [dtype] * 2, dtype, lambda a, b: low(a) * low(b))
    against(f"mul24.hi.{word}", [dtype] * 2, dtype, lambda a, b: (low(a) * low(b)) >> 16)
    against(f"mad24.lo.{word}", [dtype] * 3, dtype, lambda a, b, c: low(a) * low(b) + c)


@pytest.mark.parametrize("word", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_sum_of_differences(word: str) -> None:
    dtype = DTYPES[word]
    against(f"sad.{word}", [dtype] * 3, dtype, lambda a, b, c: abs(a - b) + c)


@pytest.mark.parametrize("bits", [32, 64])
def test_carry_chains(bits: int) -> None:
    """Sums, differences and products of twice the width, as LLVM writes those of 128 bits."""
    dtype = DTYPES[f"u{bits}"]
    names = [integers(dtype, COUNT, k) for k in range(4)]
    low, high, low2, high2 = names
    body = f"""
        add.cc.u{bits} %d0, %a, %c; addc.u{bits} %d1, %b, %e;
        sub.cc.u{bits} %d2, %a, %c; subc.u{bits} %d3, %b, %e;"""
    found = on_lanes(body, names, [dtype] * 4)
    most = 1 << 2 * bits
    for k in range(COUNT):
        a = int(low[k]) | int(high[k]) << bits
        b = int(low2[k]) | int(high2[k]) << bits
        for total, at in (((a + b) % most, 0), ((a - b) % most, 2)):
            assert (int(found[at][k]), int(found[at + 1][k])) == (
                total % (1 << bits), total >> bits
            )  # fmt: skip


def test_a_carry_goes_through_three_words() -> None:
    a, b = (integers(np.uint32, 3 * COUNT, k).reshape(3, -1) for k in (5, 6))
    body = """
        add.cc.u32 %d0, %a, %e; addc.cc.u32 %d1, %b, %f; addc.u32 %d2, %c, %g;"""
    found = on_lanes(body, [*a, *b], [np.uint32] * 3)
    for k in range(COUNT):
        u, v = (sum(int(w[j, k]) << 32 * j for j in range(3)) for w in (a, b))
        got = sum(int(found[j][k]) << 32 * j for j in range(3))
        assert got == (u + v) % (1 << 96)


def test_product_chain() -> None:
    a, b, c, e = (integers(np.uint32, COUNT, k) for k in (1, 2, 3, 4))
    body = "mad.lo.cc.u32 %d0, %a, %b, %c; madc.hi.u32 %d1, %a, %b, %e;"
    low, high = on_lanes(body, [a, b, c, e], [np.uint32] * 2)
    for k in range(COUNT):
        total = int(a[k]) * int(b[k]) + (int(c[k]) | int(e[k]) << 32)
        assert int(low[k]) | int(high[k]) << 32 == total % (1 << 64)


@pytest.mark.parametrize("first", ["u32", "s32"])
@pytest.mark.parametrize("second", ["u32", "s32"])
def test_dot_products(first: str, second: str) -> None:
    a, b = (integers(np.uint32, COUNT, k) for k in (1, 2))
    result = np.int32 if "s32" in (first, second) else np.uint32
    c = integers(result, COUNT, 3)

    def parts(v: int, bits: int, signed: bool) -> list[int]:
        out = [v >> s & ((1 << bits) - 1) for s in range(0, 32, bits)]
        return [p - (1 << bits) if signed and p >> (bits - 1) else p for p in out]

    four = operation(f"dp4a.{first}.{second}", [a, b, c], result)
    low = operation(f"dp2a.lo.{first}.{second}", [a, b, c], result)
    high = operation(f"dp2a.hi.{first}.{second}", [a, b, c], result)
    for k in range(COUNT):
        bytes_a, bytes_b = (parts(int(v[k]), 8, w == "s32") for v, w in ((a, first), (b, second)))
        halves = parts(int(a[k]), 16, first == "s32")
        base = int(c[k])
        dot = sum(u * v for u, v in zip(bytes_a, bytes_b, strict=True))
        assert four[k] == wrap(base + dot, result)
        pairs = [
            sum(u * v for u, v in zip(halves, bytes_b[s : s + 2], strict=True)) for s in (0, 2)
        ]
        assert (low[k], high[k]) == tuple(wrap(base + p, result) for p in pairs)


@pytest.mark.parametrize("opcode", [
    "add.sat.u32 %r1, %r1, %r1", "mul.wide.u64 %rd1, %rd1, %rd1", "mul.u32 %r1, %r1, %r1",
    "add.s32.wrong %r1, %r1, %r1", "fns.b32 %r1, %r1, %r1, %r1", "min.s32 %r1, %r1, %r1, %r1",
])  # fmt: skip
def test_unknown_forms_are_refused_by_name(opcode: str) -> None:
    text = entry(["a"], thread("a") + opcode + ";")
    with pytest.raises(UnsupportedError) as error:
        run(text, block=32, args=[np.zeros(32, np.int32)])
    assert opcode.split()[0] in str(error.value) and "PTX line" in str(error.value)
