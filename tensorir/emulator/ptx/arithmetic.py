"""Integer, logical and floating-point instructions as operations on lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorir.emulator.ptx import numbers
from tensorir.emulator.ptx.lanes import (
    Array,
    Lanes,
    Mask,
    Micro,
    Selection,
    numpy_type,
    unsupported,
)
from tensorir.emulator.ptx.text import TYPE_BYTES, Instruction, Not, Pair, Reg, Vec

Builder = Callable[[Lanes, Instruction], Micro]
Function = Callable[..., Any]

BUILDERS: dict[str, Builder] = {}


def builds(*families: str) -> Callable[[Builder], Builder]:
    """Make a function the builder of some instruction families."""

    def add(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(families, builder))
        return builder

    return add


def apply(
    lanes: Lanes,
    x: Instruction,
    function: Function,
    operands: tuple[str, ...],
    result: str,
    *,
    in_place: bool = False,
) -> Micro:
    """`result = function(operands)`, the operands read as PTX types.

    `in_place` functions are numpy's own and take `out`.
    """
    reads = [lanes.read(o, t, x) for o, t in zip(x.operands[1:], operands, strict=True)]
    put = lanes.write(x.operands[0], result, x)
    into = lanes.target(x.operands[0], result, x) if in_place else None
    if into is not None and len(reads) == 2:
        a, b = reads
        there = into

        def quick(sel: Selection, act: Mask) -> None:
            if act is None and isinstance(sel, slice):
                function(a(sel), b(sel), out=there[sel], casting="unsafe")
            else:
                put(sel, act, function(a(sel), b(sel)))

        return quick

    def micro(sel: Selection, act: Mask) -> None:
        put(sel, act, function(*(r(sel) for r in reads)))

    return micro


def kind_of(word: str) -> str:
    """`float`, `half` (pairs too), `int`, or `pred`."""
    if word == "pred":
        return "pred"
    if word in ("f32", "f64"):
        return "float"
    return "half" if word.startswith(("f16", "bf16")) else "int"


# integers


def _high(a: Array, b: Array) -> Array:
    """The upper half of a product."""
    dtype = np.result_type(a, b)
    if dtype.itemsize < 8:
        wide = np.int64 if dtype.kind == "i" else np.uint64
        return ((np.asarray(a).astype(wide) * b) >> (8 * dtype.itemsize)).astype(dtype)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    ua, ub = np.asarray(a).view(np.uint64), np.asarray(b).view(np.uint64)
    al, ah, bl, bh = ua & low, ua >> half, ub & low, ub >> half
    mid = ah * bl + ((al * bl) >> half)
    mid2 = al * bh + (mid & low)
    out = ah * bh + (mid >> half) + (mid2 >> half)
    if dtype.kind == "i":  # of negative factors, the other factor was added 2^64 times too often
        out = out - np.where(np.asarray(a) < 0, ub, np.uint64(0))
        out = out - np.where(np.asarray(b) < 0, ua, np.uint64(0))
    return np.asarray(out).view(dtype)


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


def _shift(left: bool) -> Function:
    def shift(a: Array, by: Array) -> Array:
        bits = 8 * np.asarray(a).dtype.itemsize
        most = np.minimum(np.asarray(by).astype(np.uint64), bits - 1).astype(np.asarray(a).dtype)
        out = np.left_shift(a, most) if left else np.right_shift(a, most)
        if left or np.asarray(a).dtype.kind == "u":
            out = np.where(np.asarray(by) >= bits, np.zeros_like(out), out)
        return np.asarray(out)

    return shift


_INTEGER: dict[str, Function] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _plain(x: Instruction, allowed: tuple[str, ...]) -> str:
    """The type of an instruction whose words are all known; refuses the others by name."""
    for word in x.words[1:-1]:
        if word not in allowed:
            raise unsupported(x, f".{word} is not run")
    if x.words[-1] not in TYPE_BYTES:
        raise unsupported(x)
    return x.words[-1]


@builds("add", "sub", "min", "max")
def _add(lanes: Lanes, x: Instruction) -> Micro:
    if kind_of(x.words[-1]) in ("float", "half"):
        return _floating(lanes, x)
    word = _plain(x, ())
    return apply(lanes, x, _INTEGER[x.family], (word, word), word, in_place=True)


@builds("and", "or", "xor")
def _bits(lanes: Lanes, x: Instruction) -> Micro:
    word = _plain(x, ())
    return apply(lanes, x, _INTEGER[x.family], (word, word), word, in_place=True)


@builds("not", "cnot", "neg", "abs")
def _unary(lanes: Lanes, x: Instruction) -> Micro:
    if kind_of(x.words[-1]) in ("float", "half"):
        return _floating(lanes, x)
    word = _plain(x, ())
    function: Function = {
        "not": np.logical_not if word == "pred" else np.invert,
        "cnot": lambda a: (a == 0).astype(a.dtype),
        "neg": lambda a: (0 - a).astype(a.dtype),
        "abs": np.abs,
    }[x.family]
    return apply(lanes, x, function, (word,), word)


@builds("mul", "mad")
def _multiply(lanes: Lanes, x: Instruction) -> Micro:
    word = x.words[-1]
    if kind_of(word) in ("float", "half"):
        return _floating(lanes, x)
    mode = next((w for w in x.words[1:-1] if w in ("lo", "hi", "wide")), None)
    if mode is None:
        raise unsupported(x)
    _plain(x, ("lo", "hi", "wide"))
    dtype = numpy_type(word)
    result = word
    if mode == "wide":
        result = word[0] + str(2 * int(word[1:]))
        wide = numpy_type(result)

        def multiply(a: Array, b: Array) -> Array:
            return np.multiply(a, b, dtype=wide)
    elif mode == "hi":
        multiply = _high
    else:

        def multiply(a: Array, b: Array) -> Array:
            return np.multiply(a, b, dtype=dtype)

    if x.family == "mul":
        return apply(lanes, x, multiply, (word, word), result)
    return apply(lanes, x, lambda a, b, c: multiply(a, b) + c, (word, word, result), result)


@builds("div", "rem")
def _division(lanes: Lanes, x: Instruction) -> Micro:
    if kind_of(x.words[-1]) in ("float", "half"):
        return _floating(lanes, x)
    word = _plain(x, ())
    return apply(lanes, x, _divide if x.family == "div" else _remainder, (word, word), word)


@builds("shl", "shr")
def _shifts(lanes: Lanes, x: Instruction) -> Micro:
    word = _plain(x, ())
    return apply(lanes, x, _shift(x.family == "shl"), (word, "u32"), word)


@builds("bfe", "bfi", "brev", "clz", "popc", "bfind", "prmt", "lop3", "shf")
def _bit_fields(lanes: Lanes, x: Instruction) -> Micro:
    word = x.words[-1]
    bits = 8 * TYPE_BYTES[word]
    dtype = numpy_type(word)

    def mask(n: Array) -> Array:
        n = np.minimum(np.asarray(n).astype(np.uint64), bits)
        full = np.uint64((1 << bits) - 1)
        cut = full >> (np.uint64(bits) - np.maximum(n, 1))
        return np.where(n == 0, np.uint64(0), cut)

    def extract(a: Array, start: Array, length: Array) -> Array:
        start = np.minimum(np.asarray(start).astype(np.uint64) & np.uint64(255), np.uint64(bits))
        length = np.asarray(length).astype(np.uint64) & np.uint64(255)
        raw = np.asarray(a).view(_unsigned(a)).astype(np.uint64)
        out = np.where(start >= bits, np.uint64(0), raw >> np.minimum(start, bits - 1)) & mask(
            length
        )
        if dtype(0).dtype.kind == "i":
            top = np.minimum(start + length, bits) - np.uint64(1)
            negative = (length > 0) & ((raw >> np.minimum(top, bits - 1)) & np.uint64(1)).astype(
                bool
            )
            out = np.where(negative, out | ~mask(np.minimum(length, bits - start)), out)
        return out.astype(_unsigned(a)).view(np.asarray(a).dtype)

    def insert(a: Array, b: Array, start: Array, length: Array) -> Array:
        at = np.minimum(np.asarray(start).astype(np.uint64) & np.uint64(255), np.uint64(63))
        hole = mask(np.asarray(length).astype(np.uint64) & np.uint64(255)) << at
        out = (np.asarray(b).astype(np.uint64) & ~hole) | (
            (np.asarray(a).astype(np.uint64) << at) & hole
        )
        return np.asarray(out).astype(dtype)

    def reverse(a: Array) -> Array:
        out = np.zeros_like(a)
        for k in range(bits):
            out |= ((a >> dtype(k)) & dtype(1)) << dtype(bits - 1 - k)
        return out

    def length(a: Array) -> Array:
        """How many bits up to the highest that is set."""
        a, n = np.asarray(a).astype(np.uint64), np.zeros(np.shape(a), np.uint32)
        for k in (32, 16, 8, 4, 2, 1):
            more = a >= (np.uint64(1) << np.uint64(k))
            n += np.where(more, np.uint32(k), np.uint32(0))
            a = np.where(more, a >> np.uint64(k), a)
        return n + (a > 0).astype(np.uint32)

    def find(a: Array) -> Array:
        a = np.asarray(a)
        a = np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a
        return length(a.view(_unsigned(a))) - np.uint32(1)

    def permute(a: Array, b: Array, selector: Array) -> Array:
        both = (np.asarray(b).astype(np.uint64) << np.uint64(32)) | np.asarray(a).astype(np.uint64)
        out = np.zeros(np.broadcast(a, b, selector).shape, np.uint64)
        for k in range(4):
            s = (np.asarray(selector).astype(np.uint64) >> np.uint64(4 * k)) & np.uint64(15)
            byte = (both >> ((s & np.uint64(7)) << np.uint64(3))) & np.uint64(255)
            sign = np.where(byte >= 128, np.uint64(255), np.uint64(0))
            out |= np.where(s >= 8, sign, byte) << np.uint64(8 * k)
        return out.astype(np.uint32)

    def logic(a: Array, b: Array, c: Array, table: Array) -> Array:
        out = np.zeros(np.broadcast(a, b, c).shape, np.uint32)
        for k in range(8):
            if int(np.ravel(table)[0]) >> k & 1:
                ins = (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
                out |= ins
        return out

    def funnel(a: Array, b: Array, by: Array) -> Array:
        both = (np.asarray(b).astype(np.uint64) << np.uint64(32)) | np.asarray(a).astype(np.uint64)
        by = np.asarray(by).astype(np.uint64)
        by = by & np.uint64(31) if "wrap" in x.words else np.minimum(by, np.uint64(32))
        if x.words[1] == "l":
            # the upper word, with zeros entering below the lower one
            shifted = np.where(by == 0, both, both << np.maximum(by, 0))
            return (shifted >> np.uint64(32)).astype(np.uint32)
        return (both >> by).astype(np.uint32)

    u32 = "u32"
    match x.family:
        case "bfe":
            return apply(lanes, x, extract, (word, u32, u32), word)
        case "bfi":
            return apply(lanes, x, insert, (word, word, u32, u32), word)
        case "brev":
            return apply(lanes, x, reverse, (word,), word)
        case "clz":
            return apply(lanes, x, lambda a: np.uint32(bits) - length(a), (word,), u32)
        case "popc":
            return apply(lanes, x, lambda a: np.bitwise_count(a).astype(np.uint32), (word,), u32)
        case "bfind":
            if "shiftamt" in x.words:
                return apply(lanes, x, lambda a: np.uint32(bits - 1) - find(a), (word,), u32)
            return apply(lanes, x, find, (word,), u32)
        case "prmt":
            if len(x.words) > 2:
                raise unsupported(x, "modes of prmt are not run")
            return apply(lanes, x, permute, (u32, u32, u32), u32)
        case "lop3":
            return apply(lanes, x, logic, (u32, u32, u32, u32), u32)
        case _:
            return apply(lanes, x, funnel, (u32, u32, u32), u32)


def _unsigned(a: Any) -> type[Any]:
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[np.asarray(a).dtype.itemsize]


# moves, choices, comparisons


@builds("mov")
def _move(lanes: Lanes, x: Instruction) -> Micro:
    to, given = x.operands
    word = _plain(x, ())
    if isinstance(to, Vec):
        part = f"b{8 * TYPE_BYTES[word] // len(to.items)}"
        puts = [lanes.write(o, part, x) for o in to.items]
        read, dtype, step = lanes.read(given, word, x), numpy_type(part), 8 * TYPE_BYTES[part]

        def unpack(sel: Selection, act: Mask) -> None:
            value = read(sel)
            for k, put in enumerate(puts):
                put(sel, act, (value >> value.dtype.type(step * k)).astype(dtype))

        return unpack
    if isinstance(given, Vec):
        part = f"b{8 * TYPE_BYTES[word] // len(given.items)}"
        reads = [lanes.read(o, part, x) for o in given.items]
        put, dtype, step = lanes.write(to, word, x), numpy_type(word), 8 * TYPE_BYTES[part]

        def pack(sel: Selection, act: Mask) -> None:
            value = dtype(0)
            for k, r in enumerate(reads):
                value = value | (np.asarray(r(sel)).astype(dtype) << dtype(step * k))
            put(sel, act, value)

        return pack
    return apply(lanes, x, lambda a: a, (word,), word)


@builds("selp")
def _select(lanes: Lanes, x: Instruction) -> Micro:
    word = _plain(x, ())
    raw = f"b{8 * TYPE_BYTES[word]}"
    return apply(lanes, x, lambda a, b, p: np.where(p, a, b), (raw, raw, "pred"), raw)


_COMPARE: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal,
    "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def _comparison(name: str, floating: bool) -> Function:
    if not floating:
        return _COMPARE[name]
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if len(name) == 3:  # unordered
        plain = _COMPARE[name[:2]]
        return lambda a, b: plain(a, b) | np.isnan(a) | np.isnan(b)
    if name == "ne":  # ordered: false where one is NaN
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    return _COMPARE[name]


@builds("setp")
def _set_predicate(lanes: Lanes, x: Instruction) -> Micro:
    word = x.words[-1]
    rest = [w for w in x.words[1:-1] if w != "ftz"]
    combine = rest[1] if len(rest) > 1 else None
    read_word = "u16" if word == "bf16" else word
    compare = _comparison(rest[0], kind_of(word) in ("float", "half"))
    if word in ("f16x2", "bf16x2") or combine not in (None, "and", "or", "xor"):
        raise unsupported(x)
    to = x.operands[0]
    first, second = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    a, b = (lanes.read(o, read_word, x) for o in x.operands[1:3])
    puts = [lanes.write(first, "pred", x)]
    if second is not None:
        puts.append(lanes.write(second, "pred", x))
    other, negated = None, False
    if combine is not None:
        last = x.operands[3]
        negated = isinstance(last, Not)
        other = lanes.read(last.reg if isinstance(last, Not) else last, "pred", x)
    widen = numbers.bf16_to_f32 if word == "bf16" else None
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.get(combine or "")
    ftz = "ftz" in x.words

    def micro(sel: Selection, act: Mask) -> None:
        u, v = a(sel), b(sel)
        if widen is not None:
            u, v = widen(u), widen(v)
        if ftz:
            u, v = numbers.flush(u), numbers.flush(v)
        holds = compare(u, v)
        for put, value in zip(puts, (holds, ~holds), strict=False):
            if other is not None and join is not None:
                p = other(sel)
                value = join(value, ~p if negated else p)
            put(sel, act, value)

    return micro


# floating point


def _minimum(larger: bool, propagate: bool) -> Function:
    """PTX's min and max: a NaN gives way to a number, and -0 is less than +0."""

    def pick(a: Array, b: Array) -> Array:
        plain = (
            (np.maximum if larger else np.minimum)
            if propagate
            else (np.fmax if larger else np.fmin)
        )
        out = plain(a, b)
        zeros = (np.asarray(a) == 0) & (np.asarray(b) == 0)
        if np.any(zeros):
            negative = np.signbit(a) & np.signbit(b) if larger else np.signbit(a) | np.signbit(b)
            out = np.where(zeros, np.where(negative, -np.zeros_like(out), np.zeros_like(out)), out)
        return out

    return pick


_APPROXIMATE: dict[str, Function] = {
    "ex2": np.exp2, "lg2": np.log2, "rcp": lambda a: 1.0 / a, "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
}  # fmt: skip


def _f32_function(x: Instruction) -> Function:
    """The float32 function of an instruction without saturation and flushing."""
    mode = next((w for w in x.words[1:-1] if w in ("rn", "rz", "rm", "rp")), "rn")
    family = x.family
    if family in ("min", "max"):
        return _minimum(family == "max", "NaN" in x.words)
    if family == "neg":
        return np.negative
    if family == "abs":
        return np.abs
    if family == "copysign":
        return lambda a, b: np.copysign(b, a)  # the sign of the first, the size of the second
    if family in ("fma", "mad"):
        if mode == "rn":
            return numbers.fma_f32

        def directed(a: Array, b: Array, c: Array) -> Array:
            p = np.asarray(a).astype(np.float64) * b
            return numbers.directed_f32(*numbers.sum_with_error(p, np.asarray(c, np.float64)), mode)

        return directed
    if family in ("add", "sub", "mul") and mode != "rn":

        def directed_two(a: Array, b: Array) -> Array:
            wide = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
            if family == "mul":
                exact, error = wide[0] * wide[1], np.zeros(1)
            else:
                exact, error = numbers.sum_with_error(
                    wide[0], -wide[1] if family == "sub" else wide[1]
                )
            return numbers.directed_f32(exact, np.asarray(error), mode)

        return directed_two
    if family in ("add", "sub", "mul"):
        return {"add": np.add, "sub": np.subtract, "mul": np.multiply}[family]
    if family == "div":
        return np.divide
    if family in ("sqrt", "rcp") and "rn" in x.words:
        return np.sqrt if family == "sqrt" else (lambda a: np.divide(np.float32(1), a))
    if family in _APPROXIMATE:
        exact = _APPROXIMATE[family]
        return lambda a: exact(np.asarray(a).astype(np.float64)).astype(np.float32)
    raise unsupported(x)


_ARITY = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "copysign": 2, "fma": 3, "mad": 3,
}  # fmt: skip
_WORDS = (
    "rn", "rz", "rm", "rp", "ftz", "sat", "approx", "full", "NaN", "noftz", "relu",
)  # fmt: skip


@builds("fma", "copysign", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def _floating(lanes: Lanes, x: Instruction) -> Micro:
    word = _plain(x, _WORDS)
    arity = _ARITY.get(x.family, 1)
    if word in ("f16", "f16x2", "bf16", "bf16x2"):
        return _half(lanes, x, word, arity)
    if word == "f64":
        return apply(lanes, x, _f64_function(x), ("f64",) * arity, "f64")
    if word != "f32":
        raise unsupported(x)
    plain = _f32_function(x)
    function = plain
    if "ftz" in x.words:
        flushed = plain

        def function(*v: Array) -> Array:
            return numbers.flush(flushed(*(numbers.flush(np.asarray(a)) for a in v)))

    if "sat" in x.words:
        unbounded = function

        def function(*v: Array) -> Array:
            return numbers.saturate(np.asarray(unbounded(*v)))

    quick = function in (np.add, np.subtract, np.multiply)
    return apply(lanes, x, function, ("f32",) * arity, "f32", in_place=quick)


def _f64_function(x: Instruction) -> Function:
    family = x.family
    if any(w in x.words for w in ("rz", "rm", "rp")):
        raise unsupported(x, "directed rounding of f64 is not run")
    if family in ("fma", "mad"):
        return numbers.fma_f64
    if family in ("min", "max"):
        return _minimum(family == "max", "NaN" in x.words)
    simple: dict[str, Function] = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
        "abs": np.abs, "sqrt": np.sqrt, "copysign": lambda a, b: np.copysign(b, a),
        "rcp": lambda a: 1.0 / a, "rsqrt": lambda a: 1.0 / np.sqrt(a),
    }  # fmt: skip
    if family not in simple:
        raise unsupported(x)
    return simple[family]


def _half(lanes: Lanes, x: Instruction, word: str, arity: int) -> Micro:
    """f16 and bf16, alone or in pairs: computed wider, rounded once."""
    family, relu = x.family, "relu" in x.words
    brain, paired = word.startswith("bf16"), word.endswith("x2")
    if any(w in x.words for w in ("rz", "rm", "rp", "sat")):
        raise unsupported(x)

    def widen(bits: Array) -> Array:
        bits = np.asarray(bits)
        return numbers.bf16_to_f32(bits) if brain else bits.view(np.float16).astype(np.float32)

    def narrow(v: Array) -> Array:
        if brain:
            # float64 comes rounded to odd, and keeps that through float32
            return numbers.f32_to_bf16(_odd_f32(v) if v.dtype == np.float64 else v)
        return np.asarray(v.astype(np.float16)).view(np.uint16)

    def compute(*bits: Array) -> Array:
        v = [widen(b) for b in bits]
        if family in ("fma", "mad"):
            out = numbers.fma_narrow(*np.broadcast_arrays(*v))
        elif family in ("min", "max"):
            out = _minimum(family == "max", "NaN" in x.words)(*v)
        elif family in ("ex2", "tanh"):
            out = _APPROXIMATE[family](v[0].astype(np.float64)).astype(np.float32)
        elif family in ("neg", "abs", "add", "sub", "mul"):
            named: dict[str, Function] = {
                "neg": np.negative, "abs": np.abs, "add": np.add, "sub": np.subtract,
                "mul": np.multiply,
            }  # fmt: skip
            out = named[family](*v)
        else:
            raise unsupported(x)
        if relu:
            out = np.where(out > 0, out, np.zeros_like(out))
        return narrow(np.asarray(out))

    if not paired:
        return apply(lanes, x, compute, ("b16",) * arity, "b16")

    def both(*pairs: Array) -> Array:
        low = compute(*(np.asarray(p).astype(np.uint16) for p in pairs))
        high = compute(*((np.asarray(p) >> np.uint32(16)).astype(np.uint16) for p in pairs))
        return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))

    return apply(lanes, x, both, ("b32",) * arity, "b32")


def _odd_f32(v: Array) -> Array:
    """float64 rounded to odd float32."""
    near = v.astype(np.float32)
    wide = near.astype(np.float64)
    bits = np.ascontiguousarray(near).view(np.int32)
    wrong = (wide != v) & ((bits & 1) == 0) & np.isfinite(near)
    up = (np.abs(v) > np.abs(wide)).astype(np.int32) * 2 - 1
    return np.where(wrong, (bits + up).view(np.float32), near)


@builds("dp4a")
def _dot(lanes: Lanes, x: Instruction) -> Micro:
    first, second = x.words[1:3]
    result = "s32" if "s32" in (first, second) else "u32"

    def dot(a: Array, b: Array, c: Array) -> Array:
        total = np.asarray(c).astype(np.int64)
        for k in range(4):
            u, v = ((np.asarray(y) >> np.uint32(8 * k)).astype(np.uint8) for y in (a, b))
            signed = [y.view(np.int8) if w == "s32" else y for y, w in ((u, first), (v, second))]
            total = total + signed[0].astype(np.int64) * signed[1]
        return total.astype(np.uint32).view(numpy_type(result))

    return apply(lanes, x, dot, ("b32", "b32", result), result)


def guard_of(lanes: Lanes, x: Instruction) -> Callable[[Selection], Array] | None:
    """How the guard of an instruction is read."""
    if x.guard is None:
        return None
    read = lanes.read(Reg(x.guard.name), "pred", x)
    if not x.guard_negated:
        return read
    return lambda sel: ~read(sel)
