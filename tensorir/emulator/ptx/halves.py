"""Arithmetic on float16 and bfloat16, alone or in pairs: computed wider and rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir.emulator.ptx import numbers
from tensorir.emulator.ptx.builders import Function, apply, on_halves
from tensorir.emulator.ptx.lanes import Array, Lanes, Micro, unsupported
from tensorir.emulator.ptx.text import Instruction

_WIDE: dict[str, Function] = {
    "add": np.add, "sub": np.subtract, "ex2": np.exp2, "tanh": np.tanh,
    # float64 holds a product of two bfloat16 numbers, float32 not where it is subnormal
    "mul": lambda a, b: np.multiply(a, b, dtype=np.float64),
    "fma": numbers.fma_narrow,
}  # fmt: skip
_SIGN = {"neg": (np.bitwise_xor, 0x8000), "abs": (np.bitwise_and, 0x7FFF)}


def half(lanes: Lanes, x: Instruction, word: str, arity: int) -> Micro:
    """An instruction on f16, bf16, or pairs of them."""
    if any(w in x.words for w in ("rz", "rm", "rp")) or ("sat" in x.words and word[0] == "b"):
        raise unsupported(x)
    compute = _sign(x, word) if x.family in _SIGN else _function(x, word)
    if word.endswith("x2"):
        return apply(lanes, x, on_halves(compute, np.uint16), ("b32",) * arity, "b32")
    return apply(lanes, x, compute, ("b16",) * arity, "b16")


def _sign(x: Instruction, word: str) -> Function:
    operation, mask = _SIGN[x.family]
    ftz = "ftz" in x.words

    def change(bits: Array) -> Array:
        out = operation(np.asarray(bits), np.uint16(mask))
        return np.asarray(_flushed(out) if ftz and word[0] == "f" else out)

    return change


def _flushed(bits: Array) -> Array:
    return numbers.flush(np.asarray(bits).view(np.float16)).view(np.uint16)


def _function(x: Instruction, word: str) -> Function:
    """The function of bits to bits."""
    brain = word.startswith("bf16")
    # bfloat16 subnormals are always kept
    ftz = "ftz" in x.words and not brain
    if x.family in ("min", "max"):
        function = minimum(x)
    elif x.family in _WIDE:
        function = _WIDE[x.family]
    else:
        raise unsupported(x)
    narrow_first = x.family in ("ex2", "tanh")

    def widen(bits: Any) -> Array:
        bits = np.asarray(bits)
        if brain:
            return numbers.bf16_to_f32(bits)
        return (_flushed(bits) if ftz else bits).view(np.float16).astype(np.float32)

    def compute(*given: Array) -> Array:
        v = [widen(b) for b in given]
        if narrow_first:
            out = function(v[0].astype(np.float64)).astype(np.float32)
        else:
            out = function(*np.broadcast_arrays(*v)) if len(v) > 1 else function(*v)
        if "relu" in x.words:
            out = numbers.positive(out)
        if "sat" in x.words:
            out = numbers.saturate(out)
        bits = numbers.f32_to_bf16(numbers.odd_f32(out)) if brain else numbers.to_f16(out)
        return _flushed(bits) if ftz else bits

    return compute


def minimum(x: Instruction) -> Function:
    """`min` and `max`: -0 is less than +0; a NaN gives way to a number unless `.NaN` is said."""
    larger, propagate = x.family == "max", "NaN" in x.words
    if propagate:
        pick: Function = np.maximum if larger else np.minimum
    else:
        pick = np.fmax if larger else np.fmin

    def choose(a: Array, b: Array) -> Array:
        out = np.asarray(pick(a, b))
        zeros = (np.asarray(a) == 0) & (np.asarray(b) == 0)
        if np.any(zeros):
            negative = np.signbit(a) & np.signbit(b) if larger else np.signbit(a) | np.signbit(b)
            out = np.where(zeros, np.where(negative, -np.zeros_like(out), np.zeros_like(out)), out)
        return out

    if "xorsign" not in x.words:
        return choose

    def with_sign(a: Array, b: Array) -> Array:
        negative = np.signbit(a) ^ np.signbit(b)
        size = choose(np.abs(a), np.abs(b))
        return np.where(negative, -size, size)

    return with_sign
