"""Integer arithmetic as operations on lanes: sums, products, quotients, shifts, carry chains.

Division by zero, of which PTX says that the result is unspecified, gives all ones, and the
remainder the dividend, as the hardware does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir.emulator.ptx.builders import (
    Function,
    apply,
    builds,
    integer,
    kind_of,
    on_halves,
    plain,
    unsigned,
)
from tensorir.emulator.ptx.floating import floating
from tensorir.emulator.ptx.lanes import (
    CARRY,
    Array,
    Lanes,
    Mask,
    Micro,
    Selection,
    numpy_type,
    unsupported,
)
from tensorir.emulator.ptx.text import TYPE_BYTES, Imm, Instruction, Reg

_SIMPLE: dict[str, Function] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@builds("add", "sub", "min", "max")
def _add(lanes: Lanes, x: Instruction) -> Micro:
    if kind_of(x.words[-1]) in ("float", "half"):
        return floating(lanes, x)
    if "cc" in x.words:
        return _with_carry(lanes, x)
    bounded = ("sat",) if x.family in ("add", "sub") else ("relu",)
    word = integer(x, bounded)
    function = _SIMPLE[x.family]
    if "sat" in x.words:
        if word != "s32":
            raise unsupported(x)
        low, high = -(1 << 31), (1 << 31) - 1

        def saturated(a: Array, b: Array) -> Array:
            exact = function(np.asarray(a, np.int64), np.asarray(b, np.int64))
            return np.asarray(np.clip(exact, low, high).astype(np.int32))

        return apply(lanes, x, saturated, (word, word), word)
    if "relu" in x.words:
        extreme = function

        def function(a: Array, b: Array) -> Array:
            return np.asarray(np.maximum(extreme(a, b), a.dtype.type(0)))

    if word in ("u16x2", "s16x2"):
        halves = on_halves(function, np.int16 if word[0] == "s" else np.uint16)
        return apply(lanes, x, halves, ("b32", "b32"), "b32")
    return apply(lanes, x, function, (word, word), word, in_place="relu" not in x.words)


@builds("and", "or", "xor")
def _bits(lanes: Lanes, x: Instruction) -> Micro:
    word = plain(x)
    return apply(lanes, x, _SIMPLE[x.family], (word, word), word, in_place=True)


@builds("not", "cnot", "neg", "abs")
def _unary(lanes: Lanes, x: Instruction) -> Micro:
    if kind_of(x.words[-1]) in ("float", "half"):
        return floating(lanes, x)
    word = plain(x)
    function: Function = {
        "not": np.logical_not if word == "pred" else np.invert,
        "cnot": lambda a: (a == 0).astype(a.dtype),
        "neg": np.negative,
        "abs": np.abs,
    }[x.family]
    return apply(lanes, x, function, (word,), word)


def _high(a: Array, b: Array) -> Array:
    """The upper half of a product."""
    dtype = np.result_type(a, b)
    if dtype.itemsize < 8:
        wide = np.int64 if dtype.kind == "i" else np.uint64
        product = np.asarray(a).astype(wide) * np.asarray(b).astype(wide)
        return np.asarray((product >> wide(8 * dtype.itemsize)).astype(dtype))
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    ua, ub = unsigned(a), unsigned(b)
    al, ah, bl, bh = ua & low, ua >> half, ub & low, ub >> half
    mid = ah * bl + ((al * bl) >> half)
    mid2 = al * bh + (mid & low)
    out = ah * bh + (mid >> half) + (mid2 >> half)
    if dtype.kind == "i":  # of negative factors, the other factor was added 2^64 times too often
        out = out - np.where(np.asarray(a) < 0, ub, np.uint64(0))
        out = out - np.where(np.asarray(b) < 0, ua, np.uint64(0))
    return np.asarray(out).view(dtype)


def _product(x: Instruction, word: str) -> tuple[Function, str]:
    """The product that `.lo`, `.hi` or `.wide` asks for, and its type."""
    modes = [w for w in x.words[1:-1] if w in ("lo", "hi", "wide")]
    if len(modes) != 1 or kind_of(word) != "int":
        raise unsupported(x)
    if modes[0] == "hi":
        return _high, word
    result = word
    if modes[0] == "wide":
        result = f"{word[0]}{2 * int(word[1:])}"
        if result not in TYPE_BYTES:
            raise unsupported(x)
    dtype = numpy_type(result)
    return (lambda a, b: np.multiply(a, b, dtype=dtype)), result


@builds("mul", "mad")
def _multiply(lanes: Lanes, x: Instruction) -> Micro:
    word = x.words[-1]
    if kind_of(word) in ("float", "half"):
        return floating(lanes, x)
    if "cc" in x.words:
        return _with_carry(lanes, x)
    plain(x, ("lo", "hi", "wide", "sat"))
    multiply, result = _product(x, word)
    if "sat" in x.words:
        if x.family != "mad" or word != "s32" or "hi" not in x.words:
            raise unsupported(x)
        low, high = -(1 << 31), (1 << 31) - 1

        def saturated(a: Array, b: Array, c: Array) -> Array:
            exact = np.asarray(multiply(a, b)).astype(np.int64) + np.asarray(c, np.int64)
            return np.asarray(np.clip(exact, low, high).astype(np.int32))

        return apply(lanes, x, saturated, (word,) * 3, word)
    if x.family == "mul":
        return apply(lanes, x, multiply, (word, word), result)
    return apply(lanes, x, lambda a, b, c: multiply(a, b) + c, (word, word, result), result)


@builds("mul24", "mad24")
def _multiply_24(lanes: Lanes, x: Instruction) -> Micro:
    """Products of the low 24 bits: the lower or upper 32 of their 48."""
    word = integer(x, ("lo", "hi"))
    if word not in ("u32", "s32") or len(x.words) != 3:
        raise unsupported(x)
    wide = np.int64 if word == "s32" else np.uint64
    shift = wide(16 if x.words[1] == "hi" else 0)
    dtype = numpy_type(word)

    def low(a: Array) -> Array:
        a = np.asarray(a)
        return np.asarray(((a << a.dtype.type(8)) >> a.dtype.type(8)).astype(wide))

    def multiply(a: Array, b: Array) -> Array:
        return np.asarray(((low(a) * low(b)) >> shift).astype(dtype))

    if x.family == "mul24":
        return apply(lanes, x, multiply, (word, word), word)
    return apply(lanes, x, lambda a, b, c: multiply(a, b) + c, (word,) * 3, word)


@builds("addc", "subc", "madc")
def _with_carry(lanes: Lanes, x: Instruction) -> Micro:
    """`add`, `sub` and `mad` that leave a carry for the next (`.cc`), or take that of the last."""
    word = integer(x, ("cc", "lo", "hi"))
    if word not in ("u32", "s32", "u64", "s64"):
        raise unsupported(x)
    raw = "u" + word[1:]
    takes, leaves = x.family.endswith("c"), "cc" in x.words
    carry_in = lanes.read(Reg(CARRY), "pred", x)
    carry_out = lanes.write(Reg(CARRY), "pred", x)
    put = lanes.write(x.operands[0], raw, x)
    reads = [lanes.read(o, word if x.family.startswith("mad") else raw, x) for o in x.operands[1:]]
    multiply = _product(x, word)[0] if x.family.startswith("mad") else None
    if len(reads) != (2 if multiply is None else 3):
        raise unsupported(x)
    minus = x.family.startswith("sub")

    def micro(sel: Selection, act: Mask) -> None:
        a, b = (r(sel) for r in reads[:2])
        if multiply is not None:
            a, b = unsigned(multiply(a, b)), unsigned(reads[2](sel))
        total = a - b if minus else a + b
        over = a < b if minus else total < a
        if takes:
            one = carry_in(sel).astype(total.dtype)
            again = total - one if minus else total + one
            over = over | (again > total if minus else again < total)
            total = again
        put(sel, act, total)
        if leaves:
            carry_out(sel, act, over)

    return micro


@builds("sad")
def _difference(lanes: Lanes, x: Instruction) -> Micro:
    """`c + |a - b|`."""
    word = integer(x)
    return apply(
        lanes, x, lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c, (word,) * 3, word
    )


def _divide(a: Array, b: Array) -> Array:
    """Integer division towards zero; by zero it is all ones, as the hardware gives."""
    safe = np.where(b == 0, np.ones_like(b), b)
    if np.asarray(a).dtype.kind == "u":
        out = a // safe
    else:
        q = np.asarray(np.floor_divide(a, safe))
        exact = q * safe == a
        out = np.where(~exact & ((a < 0) != (safe < 0)), q + 1, q).astype(q.dtype)
    return np.where(b == 0, np.asarray(-1).astype(out.dtype), out)


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a - _divide(a, b) * b).astype(np.result_type(a, b))


@builds("div", "rem")
def _division(lanes: Lanes, x: Instruction) -> Micro:
    if kind_of(x.words[-1]) in ("float", "half"):
        return floating(lanes, x)
    word = integer(x)
    return apply(lanes, x, _divide if x.family == "div" else _remainder, (word, word), word)


def _shift(left: bool, bits: int, signed: bool) -> Function:
    """Shifts by any count: from the width on, nothing is left but a sign."""

    def shift(a: Array, by: Array) -> Array:
        most = np.minimum(by, np.uint32(bits - 1)).astype(np.asarray(a).dtype)
        out = np.left_shift(a, most) if left else np.right_shift(a, most)
        if left or not signed:
            out = np.where(by >= np.uint32(bits), np.zeros_like(out), out)
        return np.asarray(out)

    return shift


@builds("shl", "shr")
def _shifts(lanes: Lanes, x: Instruction) -> Micro:
    word = integer(x)
    bits, dtype = 8 * TYPE_BYTES[word], numpy_type(word)
    by = x.operands[2] if len(x.operands) == 3 else None
    if isinstance(by, Imm) and 0 <= by.value < bits:
        count = dtype(by.value)
        quick: Function = np.left_shift if x.family == "shl" else np.right_shift
        return apply(lanes, x, lambda a, _: quick(a, count), (word, "u32"), word)
    function = _shift(x.family == "shl", bits, word[0] == "s")
    return apply(lanes, x, function, (word, "u32"), word)


@builds("dp4a", "dp2a")
def _dot(lanes: Lanes, x: Instruction) -> Micro:
    """Products of bytes with bytes, or with the two halves of a word, all added to the third."""
    words = x.words[1:]
    half = words[0] if x.family == "dp2a" else ""
    if half not in (("lo", "hi") if x.family == "dp2a" else ("",)):
        raise unsupported(x)
    first, second = words[-2:]
    if not {first, second} <= {"s32", "u32"} or len(words) != 2 + bool(half):
        raise unsupported(x)
    result = "s32" if "s32" in (first, second) else "u32"

    def piece(v: Any, k: int, bits: int, signed: bool) -> Array:
        small = np.uint8 if bits == 8 else np.uint16
        raw = (np.asarray(v) >> np.uint32(bits * k)).astype(small)
        kept = raw.view(np.int8 if bits == 8 else np.int16) if signed else raw
        return np.asarray(kept.astype(np.int64))

    wide, start = (8, 0) if not half else (16, 2 * (half == "hi"))

    def dot(a: Array, b: Array, c: Array) -> Array:
        total = np.asarray(c).astype(np.int64)
        for k in range(4 if not half else 2):
            left = piece(a, k, wide, first == "s32")
            total = total + left * piece(b, k + start, 8, second == "s32")
        return np.asarray(total.astype(np.uint64).astype(np.uint32).view(numpy_type(result)))

    return apply(lanes, x, dot, ("b32", "b32", result), result)
