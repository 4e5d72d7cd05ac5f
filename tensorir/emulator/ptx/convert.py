"""`cvt` and `cvta`: between types, with rounding, saturation and packing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tensorir.emulator.ptx import numbers
from tensorir.emulator.ptx.builders import Function, apply, builds
from tensorir.emulator.ptx.lanes import Array, Lanes, Micro, numpy_type, unsupported
from tensorir.emulator.ptx.spaces import WINDOWS
from tensorir.emulator.ptx.text import TYPE_BYTES, Instruction

_FLOATS = ("f16", "f32", "f64", "bf16", "tf32")
_EIGHT = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}
_LARGEST = {
    "e4m3x2": 448.0, "e5m2x2": 57344.0, "f16": 65504.0,
    "bf16": (2.0 - 2.0**-7) * 2.0**127, "tf32": (2.0 - 2.0**-10) * 2.0**127,
}  # fmt: skip
_TO_NUMBER = ("rn", "rz", "rm", "rp", "rna")
_TO_INTEGER = ("rni", "rzi", "rmi", "rpi")
_MODES = (*_TO_NUMBER, *_TO_INTEGER, "sat", "satfinite", "ftz", "relu")


@builds("cvt")
def _convert(lanes: Lanes, x: Instruction) -> Micro:
    to, given = x.words[-2:]
    modes = x.words[1:-2]
    for mode in modes:
        if mode not in _MODES:
            raise unsupported(x, f".{mode} is not run")
    if to in ("f16x2", "bf16x2", *_EIGHT):
        return _packed(lanes, x, to, given, modes)
    if not {to, given} <= TYPE_BYTES.keys() or any(w.endswith("x2") for w in (to, given)):
        raise unsupported(x)
    if given in _FLOATS and to in _FLOATS:
        return _between_floats(lanes, x, to, given, modes)
    if given in _FLOATS:
        return _to_integer(lanes, x, to, given, modes)
    if to in _FLOATS:
        return _to_float(lanes, x, to, given, modes)
    result = numpy_type(to)
    if "sat" in modes:
        info = np.iinfo(result)

        def clamp(a: Array) -> Array:
            low = max(int(info.min), int(np.iinfo(a.dtype).min))
            high = min(int(info.max), int(np.iinfo(a.dtype).max))
            return np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(result)

        return apply(lanes, x, clamp, (given,), to)
    return apply(lanes, x, lambda a: np.asarray(a).astype(result), (given,), to)


def _raw(word: str) -> str:
    return {"bf16": "b16", "tf32": "b32"}.get(word, word)


def _value(a: Any, word: str, ftz: bool) -> Array:
    value = numbers.bf16_to_f32(a) if word == "bf16" else np.asarray(a)
    return numbers.flush(value) if ftz and value.dtype == np.float32 else value


def _mode(x: Instruction, modes: tuple[str, ...], known: tuple[str, ...]) -> str | None:
    found = [m for m in modes if m in known]
    if len(found) > 1:
        raise unsupported(x)
    return found[0] if found else None


def _to_integer(lanes: Lanes, x: Instruction, to: str, given: str, modes: tuple[str, ...]) -> Micro:
    mode, dtype, ftz = _mode(x, modes, _TO_INTEGER), numpy_type(to), "ftz" in modes
    if mode is None or to[0] == "b" or given == "tf32":
        raise unsupported(x)
    return apply(
        lanes, x, lambda a: numbers.to_integer(_value(a, given, ftz), dtype, mode),
        (_raw(given),), to,
    )  # fmt: skip


def _to_float(lanes: Lanes, x: Instruction, to: str, given: str, modes: tuple[str, ...]) -> Micro:
    mode = _mode(x, modes, _TO_NUMBER)
    if mode in (None, "rna") or to == "tf32" or given[0] not in "us":
        raise unsupported(x)
    if to == "bf16" or mode != "rn":

        def convert(a: Array) -> Array:
            exact, error = _parts(np.asarray(a))
            if to == "bf16":
                odd = numbers.to_odd(exact, error).reshape(np.shape(exact))
                return numbers.f32_to_bf16(numbers.odd_f32(odd), str(mode))
            return numbers.directed(exact, error, str(mode), numpy_type(to))
    else:
        dtype = numpy_type(to)

        def convert(a: Array) -> Array:
            return np.asarray(a).astype(dtype)

    saturates = "sat" in modes
    if saturates and to == "bf16":
        raise unsupported(x)

    def bounded(a: Array) -> Array:
        return numbers.saturate(convert(a)) if saturates else convert(a)

    return apply(lanes, x, bounded, (given,), _raw(to))


def _parts(a: Array) -> tuple[Array, Array]:
    """An integer as float64, and what that lost."""
    if a.dtype.itemsize < 8:
        return a.astype(np.float64), np.zeros(np.shape(a))
    half = a.dtype.type(32)
    high = (a >> half).astype(np.float64) * 2.0**32
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return numbers.sum_with_error(high, low)


def _between_floats(
    lanes: Lanes, x: Instruction, to: str, given: str, modes: tuple[str, ...]
) -> Micro:
    integral, mode = _mode(x, modes, _TO_INTEGER), _mode(x, modes, _TO_NUMBER)
    narrows = to != given and (TYPE_BYTES[to] < TYPE_BYTES[given] or to in ("tf32", "bf16"))
    if given == "tf32" or (mode is None) == narrows or (integral is not None and narrows):
        raise unsupported(x)
    if (mode == "rna") > (to == "tf32") or ("sat" in modes and to in ("bf16", "tf32")):
        raise unsupported(x)
    ftz, finite = "ftz" in modes, "satfinite" in modes
    if finite and to not in _LARGEST:
        raise unsupported(x)

    def convert(a: Array) -> Array:
        v = _value(a, given, ftz)
        if integral is not None:
            v = numbers.ROUNDINGS[integral](v)
        if "relu" in modes:
            v = numbers.positive(v)
        if finite:
            v = _clipped(v, _LARGEST[to])
        out = _round(v, to, mode)
        if ftz and to == "f32":
            out = numbers.flush(out)
        return numbers.saturate(out) if "sat" in modes else out

    return apply(lanes, x, convert, (_raw(given),), _raw(to))


def _clipped(v: Array, top: float) -> Array:
    return np.clip(v, v.dtype.type(-top), v.dtype.type(top))


def _round(v: Array, to: str, mode: str | None) -> Array:
    """Values as another type; bits of tf32 and bf16."""
    if to == "tf32":
        return np.asarray(numbers.f32_to_tf32(v, str(mode)).view(np.uint32))
    if to == "bf16":
        wide = v if v.dtype == np.float64 else v.astype(np.float32)
        return numbers.f32_to_bf16(numbers.odd_f32(wide), str(mode))
    if to == "f16" and v.dtype != np.float16:
        return numbers.to_f16(v, str(mode)).view(np.float16)
    if mode not in (None, "rn"):
        return numbers.directed(v, np.float64(0), str(mode), numpy_type(to))
    return v.astype(numpy_type(to))


def _packed(lanes: Lanes, x: Instruction, to: str, given: str, modes: tuple[str, ...]) -> Micro:
    """Two values in one register, the first operand in the upper half."""
    relu, finite, mode = "relu" in modes, "satfinite" in modes, _mode(x, modes, _TO_NUMBER)
    if any(m in modes for m in ("ftz", "sat", *_TO_INTEGER)) or mode not in ("rn", "rz"):
        raise unsupported(x)

    def narrow(v: Array, word: str) -> Array:
        v = numbers.positive(v) if relu else v
        v = _clipped(v, _LARGEST[word]) if finite or word in _EIGHT else v
        if word in _EIGHT:
            bits = np.asarray(v.astype(_EIGHT[word])).view(np.uint8)
            return np.where(np.isnan(v), np.uint8(0x7F), bits)
        return numbers.f32_to_bf16(v, mode) if word == "bf16" else numbers.to_f16(v, mode)

    if given in _EIGHT and to == "f16x2" and mode == "rn" and not finite:
        dtype = _EIGHT[given]

        def widen(a: Array) -> Array:
            bits = np.asarray(a)
            parts = [
                np.asarray((bits >> np.uint16(s)).astype(np.uint8).view(dtype)).astype(np.float32)
                for s in (0, 8)
            ]
            low, high = (narrow(p, "f16").astype(np.uint32) for p in parts)
            return np.asarray(low | (high << np.uint32(16)))

        return apply(lanes, x, widen, ("b16",), "b32")
    if to in _EIGHT:
        if mode != "rn" or not finite:
            raise unsupported(x)
        raw, bits = "b16", 8
    else:
        raw, bits = "b32", 16
    small = numpy_type(raw)
    word = to if to in _EIGHT else to[:-2]

    def two(a: Array, b: Array) -> Array:
        high, low = (narrow(np.asarray(v), word).astype(small) for v in (a, b))
        return np.asarray((high << small(bits)) | low)

    if given == "f32":
        return apply(lanes, x, two, ("f32", "f32"), raw)
    if given != "f16x2" or to not in _EIGHT:
        raise unsupported(x)

    def halves(a: Array) -> Array:
        whole = np.asarray(a)
        parts = [(whole >> np.uint32(s)).astype(np.uint16).view(np.float16) for s in (16, 0)]
        return two(*(p.astype(np.float32) for p in parts))

    return apply(lanes, x, halves, ("b32",), raw)


@builds("cvta")
def _address(lanes: Lanes, x: Instruction) -> Micro:
    """Generic addresses: those of global memory are the same, the other spaces have windows."""
    word = x.words[-1]
    names = [w.split("::")[0] for w in x.words[1:-1] if w != "to"]
    if word not in ("u64", "b64") or len(names) != 1 or names[0] not in WINDOWS:
        raise unsupported(x)
    base = np.uint64(WINDOWS[names[0]])
    change: Function = np.subtract if "to" in x.words else np.add
    return apply(lanes, x, lambda a: change(np.asarray(a), base), (word,), word)
