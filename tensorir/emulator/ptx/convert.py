"""`cvt` and `cvta`: between types, with rounding, saturation and packing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tensorir.emulator.ptx import numbers
from tensorir.emulator.ptx.arithmetic import apply, builds
from tensorir.emulator.ptx.lanes import Array, Lanes, Micro, numpy_type, unsupported
from tensorir.emulator.ptx.spaces import WINDOWS
from tensorir.emulator.ptx.text import Instruction

_FLOATS = ("f16", "f32", "f64", "bf16", "tf32")
_EIGHT = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}
_LARGEST = {"e4m3x2": 448.0, "e5m2x2": 57344.0}
_MODES = (
    "rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "sat", "satfinite", "ftz", "relu",
)  # fmt: skip
_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@builds("cvt")
def _convert(lanes: Lanes, x: Instruction) -> Micro:
    words = x.words[1:]
    to, given = words[-2], words[-1]
    modes = words[:-2]
    known = (
        "rn",
        "rz",
        "rm",
        "rp",
        "rna",
        "rni",
        "rzi",
        "rmi",
        "rpi",
        "sat",
        "satfinite",
        "ftz",
        "relu",
    )
    for mode in modes:
        if mode not in known:
            raise unsupported(x, f".{mode} is not run")
    if to in ("f16x2", "bf16x2", *_EIGHT) or given in _EIGHT:
        return _packed(lanes, x, to, given, modes)
    if to in _FLOATS and given in _FLOATS:
        return _between_floats(lanes, x, to, given, modes)
    if given in _FLOATS:
        mode = next((m for m in modes if m.endswith("i")), "rzi")
        dtype = numpy_type(to)
        return apply(
            lanes,
            x,
            lambda a: numbers.to_integer(_value(a, given), dtype, mode),
            (_raw(given),),
            to,
        )
    if to in _FLOATS:
        return _to_float(lanes, x, to, given, modes)
    result = numpy_type(to)
    if "sat" in modes:
        info = np.iinfo(result)

        def clamp(a: Array) -> Array:
            low = max(int(info.min), int(np.iinfo(a.dtype).min))
            high = min(int(info.max), int(np.iinfo(a.dtype).max))
            return np.clip(a, low, high).astype(result)

        return apply(lanes, x, clamp, (given,), to)
    return apply(lanes, x, lambda a: np.asarray(a).astype(result), (given,), to)


def _raw(word: str) -> str:
    return {"bf16": "b16", "tf32": "b32"}.get(word, word)


def _value(a: Any, word: str) -> Array:
    return numbers.bf16_to_f32(a) if word == "bf16" else np.asarray(a)


def _to_float(lanes: Lanes, x: Instruction, to: str, given: str, modes: tuple[str, ...]) -> Micro:
    if to == "bf16" or any(m in modes for m in ("rm", "rp", "rz")):
        raise unsupported(x)
    dtype = numpy_type(to)
    return apply(lanes, x, lambda a: np.asarray(a).astype(dtype), (given,), to)


def _between_floats(
    lanes: Lanes, x: Instruction, to: str, given: str, modes: tuple[str, ...]
) -> Micro:
    integral = next((m for m in modes if m.endswith("i")), None)
    mode = next((m for m in modes if m in ("rn", "rz", "rm", "rp", "rna")), "rn")

    def convert(a: Array) -> Array:
        v = _value(a, given)
        if "ftz" in modes and v.dtype == np.float32:
            v = numbers.flush(v)
        if integral is not None:
            v = _ROUND[integral](v)
        if "relu" in modes:
            v = np.where(v > 0, v, np.zeros_like(v))
        out = _round(v, to, mode, x)
        return numbers.saturate(out) if "sat" in modes else out

    return apply(lanes, x, convert, (_raw(given),), _raw(to))


def _round(v: Array, to: str, mode: str, x: Instruction) -> Array:
    if to == "tf32":
        return numbers.f32_to_tf32(v, mode).view(np.uint32)
    if to == "bf16":
        if mode not in ("rn", "rz") or v.dtype == np.float64:
            raise unsupported(x)
        return numbers.f32_to_bf16(v.astype(np.float32), mode)
    if mode != "rn" and to == "f32" and v.dtype == np.float64:
        return numbers.directed_f32(v, np.float64(0) * v, mode)
    if mode != "rn" and np.dtype(numpy_type(to)).itemsize < v.dtype.itemsize:
        raise unsupported(x)
    return v.astype(numpy_type(to))


def _packed(lanes: Lanes, x: Instruction, to: str, given: str, modes: tuple[str, ...]) -> Micro:
    """Two values in one register, the first operand in the upper half."""
    relu = "relu" in modes

    def positive(v: Array) -> Array:
        return np.where(v > 0, v, np.zeros_like(v)) if relu else v

    if given in _EIGHT and to == "f16x2":
        dtype = _EIGHT[given]

        def widen(a: Array) -> Array:
            low, high = (
                ((np.asarray(a) >> np.uint16(s)).astype(np.uint8).view(dtype)).astype(np.float16)
                for s in (0, 8)
            )
            upper = high.view(np.uint16).astype(np.uint32) << np.uint32(16)
            return np.asarray(low.view(np.uint16).astype(np.uint32) | upper)

        return apply(lanes, x, widen, ("b16",), "b32")
    if given != "f32" or ("rz" in modes and to != "bf16x2"):
        raise unsupported(x)
    if to in _EIGHT:
        dtype = _EIGHT[to]
        top = _LARGEST[to]

        def eight(a: Array, b: Array) -> Array:
            high, low = (
                np.clip(positive(np.asarray(v)), -top, top).astype(dtype).view(np.uint8)
                for v in (a, b)
            )
            return (high.astype(np.uint16) << np.uint16(8)) | low

        return apply(lanes, x, eight, ("f32", "f32"), "b16")
    mode = "rz" if "rz" in modes else "rn"

    def two(a: Array, b: Array) -> Array:
        halves = []
        for v in (a, b):
            v = positive(np.asarray(v))
            bits = (
                numbers.f32_to_bf16(v, mode)
                if to == "bf16x2"
                else v.astype(np.float16).view(np.uint16)
            )
            halves.append(np.asarray(bits).astype(np.uint32))
        return (halves[0] << np.uint32(16)) | halves[1]

    return apply(lanes, x, two, ("f32", "f32"), "b32")


@builds("cvta")
def _address(lanes: Lanes, x: Instruction) -> Micro:
    """Generic addresses: those of global memory are the same, the other spaces have windows."""
    word = x.words[-1]
    names = [w.split("::")[0] for w in x.words[1:-1] if w != "to"]
    if word not in ("u64", "b64") or len(names) != 1 or names[0] not in WINDOWS:
        raise unsupported(x)
    base = np.uint64(WINDOWS[names[0]])
    if "to" in x.words:
        return apply(lanes, x, lambda a: np.asarray(a) - base, (word,), word)
    return apply(lanes, x, lambda a: np.asarray(a) + base, (word,), word)
