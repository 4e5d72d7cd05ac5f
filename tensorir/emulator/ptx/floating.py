"""Arithmetic on float32 and float64 as operations on lanes.

Rounded as PTX states; where that allows an error (`.approx`, `.full`) to the nearest value.
NaNs have no particular bits: the hardware's are positive, numpy's need not be.
"""

from __future__ import annotations

import numpy as np

from tensorir.emulator.ptx import numbers
from tensorir.emulator.ptx.builders import Function, apply, builds, plain
from tensorir.emulator.ptx.halves import half, minimum
from tensorir.emulator.ptx.lanes import Array, Lanes, Micro, unsupported
from tensorir.emulator.ptx.text import Instruction

ARITY = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "copysign": 2, "fma": 3, "mad": 3,
}  # fmt: skip
_DIRECTED = ("rz", "rm", "rp")
_BASIC = ("rn", *_DIRECTED, "ftz", "sat")
# the words that each family takes, those of f16 and bf16 among them
_WORDS: dict[str, tuple[str, ...]] = {
    "add": (*_BASIC, "noftz"), "sub": (*_BASIC, "noftz"), "mul": (*_BASIC, "noftz"),
    "fma": (*_BASIC, "relu"), "mad": _BASIC, "div": (*_BASIC[:-1], "approx", "full"),
    "min": ("ftz", "NaN", "xorsign", "abs"), "max": ("ftz", "NaN", "xorsign", "abs"),
    "neg": ("ftz",), "abs": ("ftz",), "copysign": (),
    "sqrt": (*_BASIC[:-1], "approx"), "rcp": (*_BASIC[:-1], "approx"),
}  # fmt: skip
_APPROXIMATE_ONLY = ("approx", "ftz")


@builds("fma", "copysign", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def floating(lanes: Lanes, x: Instruction) -> Micro:
    """An instruction on floating-point numbers of any width."""
    word = plain(x, _WORDS.get(x.family, _APPROXIMATE_ONLY))
    arity = ARITY.get(x.family, 1)
    if word in ("f16", "f16x2", "bf16", "bf16x2"):
        return half(lanes, x, word, arity)
    if word == "f64":
        return apply(lanes, x, _f64_function(x), ("f64",) * arity, "f64")
    if word != "f32" or "relu" in x.words or "noftz" in x.words:
        raise unsupported(x)
    function = exact = _f32_function(x)
    if "ftz" in x.words:

        def function(*v: Array) -> Array:
            return numbers.flush(exact(*(numbers.flush(np.asarray(a)) for a in v)))

    if "sat" in x.words:
        unbounded = function

        def function(*v: Array) -> Array:
            return numbers.saturate(np.asarray(unbounded(*v)))

    quick = function in (np.add, np.subtract, np.multiply)
    return apply(lanes, x, function, ("f32",) * arity, "f32", in_place=quick)


APPROXIMATE: dict[str, Function] = {
    "ex2": np.exp2, "lg2": np.log2, "rcp": np.reciprocal, "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
}  # fmt: skip
_EXACT: dict[str, Function] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "abs": np.abs, "sqrt": np.sqrt, "rcp": np.reciprocal,
    "copysign": lambda a, b: np.copysign(b, a),  # the sign of the first, the size of the second
}  # fmt: skip


def _f32_function(x: Instruction) -> Function:
    """The float32 function of an instruction without saturation and flushing."""
    family = x.family
    mode = next((w for w in x.words if w in _DIRECTED), None)
    if mode is not None:
        return _directed(family, mode)
    if family in ("min", "max"):
        return minimum(x)
    if family in ("fma", "mad"):
        return numbers.fma_f32
    if family == "div" and "approx" in x.words:
        return _quick_quotient
    if family in _EXACT and "approx" not in x.words:
        return _EXACT[family]
    wide = APPROXIMATE[family]
    return lambda a: wide(np.asarray(a).astype(np.float64)).astype(np.float32)


def _quick_quotient(a: Array, b: Array) -> Array:
    """`div.approx`: a divisor above 2^126 gives zero, and of an infinity a NaN."""
    out = np.divide(a, b)
    size = np.abs(b)
    huge = (size > np.float32(2.0**126)) & np.isfinite(b)
    if np.any(huge):
        lost = np.where(np.isinf(a), np.float32(np.nan), np.copysign(np.float32(0), out))
        out = np.where(huge & ~np.isnan(a), lost, out)
    return np.asarray(out, np.float32)


def _directed(family: str, mode: str) -> Function:
    """float32 results rounded down, up or towards zero."""

    def wide(v: Array) -> Array:
        return np.asarray(v).astype(np.float64)

    if family in ("mul", "div", "sqrt", "rcp"):
        # exact, or so near in float64 that it lies on the right side of every float32 number
        function = _EXACT[family]
        return lambda *v: numbers.directed(
            np.asarray(function(*map(wide, v))), np.float64(0), mode, np.float32
        )
    if family in ("add", "sub"):
        sign = -1.0 if family == "sub" else 1.0
        return lambda a, b: numbers.directed_sum(wide(a), sign * wide(b), mode, np.float32)
    return lambda a, b, c: numbers.directed_sum(wide(a) * wide(b), wide(c), mode, np.float32)


def _f64_function(x: Instruction) -> Function:
    family = x.family
    mode = next((w for w in x.words if w in _DIRECTED), None)
    if "sat" in x.words or "relu" in x.words or "noftz" in x.words or "xorsign" in x.words:
        raise unsupported(x)
    if mode is not None:
        if family not in ("add", "sub"):
            raise unsupported(x, "directed rounding of f64 is run for sums only")
        sign = -1.0 if family == "sub" else 1.0
        return lambda a, b: numbers.directed_sum(a, sign * b, mode, np.float64)
    if family in ("fma", "mad"):
        return numbers.fma_f64
    if family in ("min", "max"):
        return minimum(x)
    if family in _EXACT:
        return _EXACT[family]
    if family in ("rsqrt", "tanh"):
        return APPROXIMATE[family]
    raise unsupported(x)
