"""Fields, counts and permutations of bits as operations on lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir.emulator.ptx.builders import apply, builds, integer, plain, unsigned
from tensorir.emulator.ptx.lanes import Array, Lanes, Micro, numpy_type, unsupported
from tensorir.emulator.ptx.text import TYPE_BYTES, Imm, Instruction

_ONE, _BYTE = np.uint64(1), np.uint64(255)


def _wide(a: Any) -> Array:
    return np.asarray(a).astype(np.uint64)


def _ones(count: Array) -> Array:
    """So many low bits set, of 64."""
    cut = np.uint64((1 << 64) - 1) >> (np.uint64(64) - np.clip(count, 1, 64).astype(np.uint64))
    return np.where(count == 0, np.uint64(0), cut)


@builds("bfe")
def _extract(lanes: Lanes, x: Instruction) -> Micro:
    """A field from a start, filled with its sign: the last bit of it that the operand has."""
    word = integer(x)
    if word not in ("u32", "s32", "u64", "s64"):
        raise unsupported(x)
    bits, signed, dtype = np.uint64(8 * TYPE_BYTES[word]), word[0] == "s", numpy_type(word)

    def extract(a: Array, start: Array, length: Array) -> Array:
        at, count = _wide(start) & _BYTE, _wide(length) & _BYTE
        raw = _wide(unsigned(a))
        out = np.where(at >= bits, np.uint64(0), raw >> np.minimum(at, bits - _ONE)) & _ones(count)
        if signed:
            last = np.minimum(np.maximum(at + count, _ONE) - _ONE, bits - _ONE)
            negative = (count > 0) & ((raw >> last) & _ONE).astype(np.bool_)
            has = np.minimum(count, bits - np.minimum(at, bits))
            out = np.where(negative, out | ~_ones(has), out)
        return np.asarray(out.astype(unsigned(a).dtype).view(dtype))

    return apply(lanes, x, extract, (word, "u32", "u32"), word)


@builds("bfi")
def _insert(lanes: Lanes, x: Instruction) -> Micro:
    word = integer(x)
    bits, dtype = np.uint64(8 * TYPE_BYTES[word]), numpy_type(word)

    def insert(a: Array, b: Array, start: Array, length: Array) -> Array:
        at, count = _wide(start) & _BYTE, _wide(length) & _BYTE
        by = np.minimum(at, np.uint64(63))
        hole = np.where(at >= bits, np.uint64(0), _ones(count) << by)
        return np.asarray(((_wide(b) & ~hole) | ((_wide(a) << by) & hole)).astype(dtype))

    return apply(lanes, x, insert, (word, word, "u32", "u32"), word)


@builds("brev")
def _reverse(lanes: Lanes, x: Instruction) -> Micro:
    word = integer(x)
    bits, dtype = 8 * TYPE_BYTES[word], numpy_type(word)

    def reverse(a: Array) -> Array:
        out = np.zeros(np.shape(a), dtype)
        for k in range(bits):
            out |= ((a >> dtype(k)) & dtype(1)) << dtype(bits - 1 - k)
        return out

    return apply(lanes, x, reverse, (word,), word)


def _length(a: Any) -> Array:
    """How many bits up to the highest that is set."""
    a, n = _wide(a), np.zeros(np.shape(a), np.uint32)
    for k in (32, 16, 8, 4, 2, 1):
        more = a >= (_ONE << np.uint64(k))
        n += np.where(more, np.uint32(k), np.uint32(0))
        a = np.where(more, a >> np.uint64(k), a)
    return np.asarray(n + (a > 0).astype(np.uint32))


@builds("clz", "popc", "bfind")
def _count(lanes: Lanes, x: Instruction) -> Micro:
    word = integer(x, ("shiftamt",) if x.family == "bfind" else ())
    bits, none = np.uint32(8 * TYPE_BYTES[word]), np.uint32(0xFFFFFFFF)
    if x.family == "clz":
        return apply(lanes, x, lambda a: bits - _length(a), (word,), "u32")
    if x.family == "popc":
        return apply(lanes, x, lambda a: np.bitwise_count(a).astype(np.uint32), (word,), "u32")
    shift = "shiftamt" in x.words

    def find(a: Any) -> Array:
        a = np.asarray(a)
        a = np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a
        at = _length(unsigned(a)) - np.uint32(1)
        return np.where(at == none, none, bits - np.uint32(1) - at) if shift else at

    return apply(lanes, x, find, (word,), "u32")


# for each mode and the two low bits of the selector, the byte that each place takes, lowest first
_PERMUTATIONS = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


@builds("prmt")
def _permute(lanes: Lanes, x: Instruction) -> Micro:
    """Bytes of two words, by four numbers, the sign of a byte where the number's top bit is set."""
    modes = [w for w in x.words[1:] if w != "b32"]
    if "b32" not in x.words or len(modes) > 1 or any(m not in _PERMUTATIONS for m in modes):
        raise unsupported(x)
    table = np.array(_PERMUTATIONS[modes[0]], np.uint64) if modes else None

    def permute(a: Array, b: Array, selector: Array) -> Array:
        both = (_wide(b) << np.uint64(32)) | _wide(a)
        out = np.zeros(np.broadcast(a, b, selector).shape, np.uint64)
        for k in range(4):
            if table is None:
                s = (_wide(selector) >> np.uint64(4 * k)) & np.uint64(15)
            else:
                s = table[:, k][np.asarray(selector) & np.uint32(3)]
            byte = (both >> ((s & np.uint64(7)) << np.uint64(3))) & _BYTE
            sign = np.where(byte >= 128, _BYTE, np.uint64(0))
            out |= np.where(s >= 8, sign, byte) << np.uint64(8 * k)
        return out.astype(np.uint32)

    return apply(lanes, x, permute, ("u32", "u32", "u32"), "u32")


@builds("lop3")
def _logic(lanes: Lanes, x: Instruction) -> Micro:
    """Any function of three bits, by its table."""
    if plain(x) != "b32":
        raise unsupported(x)
    table = x.operands[-1]
    if not isinstance(table, Imm):
        raise unsupported(x, "a table that is not a constant")
    terms = [k for k in range(8) if table.value >> k & 1]

    def logic(a: Array, b: Array, c: Array, _: Array) -> Array:
        out = np.zeros(np.broadcast(a, b, c).shape, np.uint32)
        for k in terms:
            out |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
        return out

    return apply(lanes, x, logic, ("u32",) * 4, "u32")


@builds("shf")
def _funnel(lanes: Lanes, x: Instruction) -> Micro:
    """A word of two that are shifted as one."""
    if x.words[1] not in ("l", "r") or x.words[2:] not in (("wrap", "b32"), ("clamp", "b32")):
        raise unsupported(x)
    left, wrap = x.words[1] == "l", x.words[2] == "wrap"

    def funnel(a: Array, b: Array, by: Array) -> Array:
        both = (_wide(b) << np.uint64(32)) | _wide(a)
        n = _wide(by)
        n = n & np.uint64(31) if wrap else np.minimum(n, np.uint64(32))
        # to the left the upper word, to the right the lower one
        return np.asarray((both << n >> np.uint64(32) if left else both >> n).astype(np.uint32))

    return apply(lanes, x, funnel, ("u32",) * 3, "u32")
