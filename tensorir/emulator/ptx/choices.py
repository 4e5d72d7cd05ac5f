"""Moves, comparisons, choices and tests as operations on lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir.emulator.ptx import numbers
from tensorir.emulator.ptx.builders import Function, apply, builds, kind_of, plain
from tensorir.emulator.ptx.lanes import (
    Array,
    Lanes,
    Mask,
    Micro,
    Read,
    Selection,
    numpy_type,
    unsupported,
)
from tensorir.emulator.ptx.spaces import WINDOWS
from tensorir.emulator.ptx.text import TYPE_BYTES, Instruction, Not, Operand, Pair, Vec


@builds("mov")
def _move(lanes: Lanes, x: Instruction) -> Micro:
    """A copy; with a vector on one side, it takes a value apart or puts it together."""
    word = plain(x)
    if len(x.operands) != 2:
        raise unsupported(x)
    to, given = x.operands
    if isinstance(to, Vec):
        part = _part(x, word, to)
        puts = [lanes.write(o, part, x) for o in to.items]
        read, dtype, step = lanes.read(given, word, x), numpy_type(part), 8 * TYPE_BYTES[part]

        def unpack(sel: Selection, act: Mask) -> None:
            value = read(sel)
            parts = [(value >> value.dtype.type(step * k)).astype(dtype) for k in range(len(puts))]
            for put, v in zip(puts, parts, strict=True):
                put(sel, act, v)

        return unpack
    if isinstance(given, Vec):
        part = _part(x, word, given)
        reads = [lanes.read(o, part, x) for o in given.items]
        put, dtype, step = lanes.write(to, word, x), numpy_type(word), 8 * TYPE_BYTES[part]

        def pack(sel: Selection, act: Mask) -> None:
            value = dtype(0)
            for k, r in enumerate(reads):
                value = value | (np.asarray(r(sel)).astype(dtype) << dtype(step * k))
            put(sel, act, value)

        return pack
    return apply(lanes, x, lambda a: a, (word,), word)


def _part(x: Instruction, word: str, vector: Vec) -> str:
    part = f"b{8 * TYPE_BYTES[word] // len(vector.items)}"
    if part not in TYPE_BYTES or not word.startswith("b"):
        raise unsupported(x)
    return part


@builds("selp")
def _select(lanes: Lanes, x: Instruction) -> Micro:
    raw = f"b{8 * TYPE_BYTES[plain(x)]}"
    return apply(lanes, x, lambda a, b, p: np.where(p, a, b), (raw, raw, "pred"), raw)


@builds("slct")
def _select_by_sign(lanes: Lanes, x: Instruction) -> Micro:
    """The first where the third is at least zero (a NaN is not), else the second."""
    word, sign = x.words[-2], x.words[-1]
    if x.words[1:-2] not in ((), ("ftz",)) or sign not in ("s32", "f32") or word not in TYPE_BYTES:
        raise unsupported(x)
    raw, ftz = f"b{8 * TYPE_BYTES[word]}", "ftz" in x.words

    def select(a: Array, b: Array, c: Array) -> Array:
        return np.where((numbers.flush(np.asarray(c)) if ftz else c) >= 0, a, b)

    return apply(lanes, x, select, (raw, raw, sign), raw)


_COMPARE: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED_ONLY: dict[str, Function] = {
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_JOIN: dict[str, Function] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip


def _comparison(x: Instruction, name: str, word: str) -> Function:
    floating = kind_of(word) in ("float", "half")
    if not floating:
        known = _COMPARE | _UNSIGNED_ONLY if word[0] == "u" else _COMPARE
        if name not in known or (word[0] in "bp" and name not in ("eq", "ne")):
            raise unsupported(x)
        return known[name]
    if name in ("num", "nan"):
        lacks = name == "nan"
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == lacks
    if name[:2] not in _COMPARE or name[2:] not in ("", "u"):
        raise unsupported(x)
    compare = _COMPARE[name[:2]]
    if name == "ne":  # ordered: false where one is NaN
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    if name.endswith("u") and name != "neu":  # unordered: true where one is NaN
        return lambda a, b: compare(a, b) | np.isnan(a) | np.isnan(b)
    return compare


class _Comparison:
    """What `setp` and `set` compare: one or two pairs of values, and a predicate joined to each."""

    def __init__(self, lanes: Lanes, x: Instruction, word: str, modes: tuple[str, ...]) -> None:
        rest = [w for w in modes if w != "ftz"]
        if not rest or len(rest) > 2 or (len(rest) == 2 and rest[1] not in _JOIN):
            raise unsupported(x)
        if word not in TYPE_BYTES or word in ("b8", "u8", "s8", "u16x2", "s16x2"):
            raise unsupported(x)
        self.pairs = word in ("f16x2", "bf16x2")
        self.word = word[:-2] if self.pairs else word
        self.compare = _comparison(x, rest[0], self.word)
        raw = "b32" if self.pairs else ("u16" if word == "bf16" else word)
        if len(x.operands) != 2 + len(rest):
            raise unsupported(x)
        self.reads = [lanes.read(o, raw, x) for o in x.operands[1:3]]
        self.ftz = "ftz" in modes
        self.join = _JOIN[rest[1]] if len(rest) == 2 else None
        self.other = predicate(lanes, x.operands[3], x) if len(rest) == 2 else None

    def holds(self, sel: Selection) -> list[Any]:
        """Whether each pair compares so."""
        u, v = (r(sel) for r in self.reads)
        if not self.pairs:
            return [self.compare(self._value(u), self._value(v))]
        return [
            self.compare(*(self._value((w >> np.uint32(s)).astype(np.uint16)) for w in (u, v)))
            for s in (0, 16)
        ]

    def _value(self, v: Any) -> Array:
        if self.word == "bf16":
            v = numbers.bf16_to_f32(v)
        elif self.pairs:
            v = v.view(np.float16)
        return numbers.flush(np.asarray(v)) if self.ftz else v

    def joined(self, sel: Selection, holds: Any) -> Any:
        """The result with the predicate that comes last."""
        if self.join is None or self.other is None:
            return holds
        return self.join(holds, self.other(sel))


def predicate(lanes: Lanes, o: Operand, x: Instruction) -> Read:
    """How a predicate, or the opposite of one, is read."""
    if not isinstance(o, Not):
        return lanes.read(o, "pred", x)
    read = lanes.read(o.reg, "pred", x)
    return lambda sel: ~read(sel)


@builds("setp")
def _set_predicate(lanes: Lanes, x: Instruction) -> Micro:
    """`p|q`: whether it holds and whether it does not, or, of pairs, whether either holds."""
    of = _Comparison(lanes, x, x.words[-1], x.words[1:-1])
    to = x.operands[0]
    results = (to.first, to.second) if isinstance(to, Pair) else (to,)
    puts = [lanes.write(o, "pred", x) for o in results]
    if of.pairs and len(puts) != 2:
        raise unsupported(x)

    def micro(sel: Selection, act: Mask) -> None:
        holds = of.holds(sel)
        if len(puts) == 1:
            puts[0](sel, act, of.joined(sel, holds[0]))
            return
        first, second = holds if of.pairs else (holds[0], ~holds[0])
        values = of.joined(sel, first), of.joined(sel, second)
        for put, value in zip(puts, values, strict=True):
            put(sel, act, value)

    return micro


# what `set` gives where the comparison holds
_TRUE = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "f32": 0x3F800000, "u16": 0xFFFF, "s16": 0xFFFF,
         "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}  # fmt: skip


@builds("set")
def _set(lanes: Lanes, x: Instruction) -> Micro:
    to, given = x.words[-2:]
    of = _Comparison(lanes, x, given, x.words[1:-2])
    if to not in _TRUE or of.pairs != to.endswith("x2"):
        raise unsupported(x)
    raw = f"u{8 * TYPE_BYTES[to]}"
    put, dtype, true = lanes.write(x.operands[0], raw, x), numpy_type(raw), _TRUE[to]

    def micro(sel: Selection, act: Mask) -> None:
        value = np.asarray(dtype(0))
        for k, holds in enumerate(of.holds(sel)):
            bits = dtype(true << 16 * k)
            value = value | np.where(of.joined(sel, holds), bits, dtype(0))
        put(sel, act, value)

    return micro


def _is_normal(a: Array) -> Array:
    return np.asarray(np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).smallest_normal))


_TESTS: dict[str, Function] = {
    "finite": np.isfinite, "infinite": np.isinf, "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan, "normal": _is_normal,
    "subnormal": lambda a: (a != 0) & np.isfinite(a) & ~_is_normal(a),
}  # fmt: skip


@builds("testp")
def _test(lanes: Lanes, x: Instruction) -> Micro:
    word = plain(x, tuple(_TESTS))
    if word not in ("f32", "f64") or len(x.words) != 3:
        raise unsupported(x)
    return apply(lanes, x, _TESTS[x.words[1]], (word,), "pred")


@builds("isspacep")
def _in_space(lanes: Lanes, x: Instruction) -> Micro:
    """Whether a generic address lies in a window."""
    name = x.words[1].split("::")[0]
    if len(x.words) != 2 or name not in WINDOWS:
        raise unsupported(x)
    number = np.uint64(WINDOWS[name] >> 60)
    return apply(lanes, x, lambda a: np.asarray(a) >> np.uint64(60) == number, ("u64",), "pred")
