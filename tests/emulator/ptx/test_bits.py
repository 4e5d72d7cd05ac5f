"""Fields, counts and permutations of bits against their definitions in the PTX ISA."""

from __future__ import annotations

import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import UnsupportedError
from tests.emulator.ptx.kernels import entry, integers, on_lanes, operation

DTYPES = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64}
COUNT = 256


def places(seed: int) -> np.ndarray:
    """Starts and lengths: inside, at the end, past it, and with bits that are ignored."""
    some = np.array([0, 1, 5, 31, 32, 33, 63, 64, 65, 255, 256 + 4, 12], np.uint32)
    return some[np.random.default_rng(seed).integers(0, len(some), COUNT)]


@pytest.mark.parametrize("word", DTYPES)
def test_extract(word: str) -> None:
    dtype, top = DTYPES[word], int(word[1:]) - 1
    a, at, count = integers(dtype, COUNT, 1), places(2), places(3)
    found = operation(f"bfe.{word}", [a, at, count], dtype)
    for k in range(COUNT):
        raw, pos, length = int(a[k]) % (1 << (top + 1)), int(at[k]) & 255, int(count[k]) & 255
        sign = 0 if word[0] == "u" or not length else raw >> min(pos + length - 1, top) & 1
        wanted = 0
        for i in range(top + 1):
            inside = i < length and pos + i <= top
            wanted |= (raw >> (pos + i) & 1 if inside else sign) << i
        assert int(found[k]) % (1 << (top + 1)) == wanted, (k, raw, pos, length)


@pytest.mark.parametrize("bits", [32, 64])
def test_insert(bits: int) -> None:
    dtype = DTYPES[f"u{bits}"]
    a, b, at, count = integers(dtype, COUNT, 1), integers(dtype, COUNT, 2), places(3), places(4)
    found = operation(f"bfi.b{bits}", [a, b, at, count], dtype)
    for k in range(COUNT):
        wanted, pos, length = int(b[k]), int(at[k]) & 255, int(count[k]) & 255
        for i in range(length):
            if pos + i >= bits:
                break
            bit = 1 << (pos + i)
            wanted = wanted & ~bit | (bit if int(a[k]) >> i & 1 else 0)
        assert int(found[k]) == wanted


@pytest.mark.parametrize("bits", [32, 64])
def test_counts(bits: int) -> None:
    dtype = DTYPES[f"u{bits}"]
    a = integers(dtype, COUNT, 1)
    zeros, ones = (operation(f"{n}.b{bits}", [a], np.uint32) for n in ("clz", "popc"))
    turned = operation(f"brev.b{bits}", [a], dtype)
    for k, v in enumerate(map(int, a)):
        assert zeros[k] == bits - v.bit_length()
        assert ones[k] == v.bit_count()
        assert int(turned[k]) == int(f"{v:0{bits}b}"[::-1], 2)


@pytest.mark.parametrize("word", DTYPES)
def test_find(word: str) -> None:
    bits = int(word[1:])
    a = integers(DTYPES[word], COUNT, 1)
    found = operation(f"bfind.{word}", [a], np.uint32)
    shift = operation(f"bfind.shiftamt.{word}", [a], np.uint32)
    for k, v in enumerate(map(int, a)):
        at = (~v if v < 0 else v).bit_length() - 1
        none = 0xFFFFFFFF
        assert (found[k], shift[k]) == ((at, bits - 1 - at) if at >= 0 else (none, none))


def test_permute() -> None:
    a, b, s = (integers(np.uint32, COUNT, k) for k in (1, 2, 3))
    found = operation("prmt.b32", [a, b, s], np.uint32)
    for k in range(COUNT):
        data = int(a[k]).to_bytes(4, "little") + int(b[k]).to_bytes(4, "little")
        out = []
        for i in range(4):
            pick = int(s[k]) >> 4 * i & 15
            byte = data[pick & 7]
            out.append((255 if byte >> 7 else 0) if pick & 8 else byte)
        assert int(found[k]) == int.from_bytes(out, "little")


MODES = {  # bytes from the highest, as the table of the ISA has them
    "f4e": ("3210", "4321", "5432", "6543"), "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"), "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"), "rc16": ("1010", "3232", "1010", "3232"),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_permute_by_mode(mode: str) -> None:
    a, b = np.full(8, 0x33221100, np.uint32), np.full(8, 0x77665544, np.uint32)
    found = operation(f"prmt.b32.{mode}", [a, b, np.arange(8, dtype=np.uint32)], np.uint32)
    wanted = ["".join(2 * d for d in MODES[mode][k % 4]) for k in range(8)]
    assert [f"{v:08x}" for v in found] == wanted


def test_logic_of_three_by_its_table() -> None:
    a, b, c = (integers(np.uint32, COUNT, k) for k in (1, 2, 3))
    tables = (0x96, 0xE8, 0xCA, 0x80, 0xFE, 0x00, 0xFF, 0x1D)
    body = " ".join(f"lop3.b32 %d{k}, %a, %b, %c, {t};" for k, t in enumerate(tables))
    found = on_lanes(body, [a, b, c], [np.uint32] * len(tables))
    assert (found[0] == a ^ b ^ c).all() and (found[1] == (a & b | a & c | b & c)).all()
    assert (found[2] == (a & b | ~a & c)).all() and (found[3] == a & b & c).all()
    assert (found[4] == a | b | c).all() and not found[5].any() and (found[6] == 0xFFFFFFFF).all()
    for k in range(8):
        ins = [np.uint32(0xFFFFFFFF if k >> s & 1 else 0) for s in (2, 1, 0)]
        got = on_lanes(f"lop3.b32 %d0, {', '.join(map(str, ins))}, 0x1D;", [a], [np.uint32])[0]
        assert (got == (0xFFFFFFFF if 0x1D >> k & 1 else 0)).all()


@pytest.mark.parametrize("side", "lr")
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shift(side: str, mode: str) -> None:
    a, b, by = integers(np.uint32, COUNT, 1), integers(np.uint32, COUNT, 2), places(3)
    found = operation(f"shf.{side}.{mode}.b32", [a, b, by], np.uint32)
    for k in range(COUNT):
        n = int(by[k]) & 31 if mode == "wrap" else min(int(by[k]), 32)
        low, high = int(a[k]), int(b[k])
        if side == "l":
            wanted = (high << n | low >> (32 - n)) & 0xFFFFFFFF
        else:
            wanted = (high << (32 - n) | low >> n) & 0xFFFFFFFF
        assert int(found[k]) == wanted


@pytest.mark.parametrize("line", [
    "prmt.b32.no %r1, %r1, %r1, %r1", "lop3.b32 %r1, %r1, %r1, %r1, %r2", "bfe.b32 %r1, %r1, 1, 1",
    "shf.l.b32 %r1, %r1, %r1, 1", "lop3.or.b32 %r1, %r1, %r1, %r1, 3, %p1",
])  # fmt: skip
def test_unknown_forms(line: str) -> None:
    with pytest.raises(UnsupportedError, match="PTX line"):
        run(entry([], line + ";"), block=32)
