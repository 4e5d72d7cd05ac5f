"""LLVM's spelling of types and constants."""

from __future__ import annotations

import struct

import numpy as np

from tensorir.ir.dtype import DType

# how a value of an element type is held while it is computed with
VALUE = {
    "bool": "i1",
    **{f"{u}int{b}": f"i{b}" for u in ("", "u") for b in (8, 16, 32, 64)},
    "float16": "half",
    "bfloat16": "i16",
    "float32": "float",
    "float64": "double",
}
# how it lies in memory; halves move as integers, where masks and shuffles have instructions
MEMORY = {**VALUE, "bool": "i8", "float16": "i16"}
# the part of an overloaded intrinsic's name
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64}


def vector(ty: str, width: int) -> str:
    """`<16 x float>`, or the scalar type for width 0."""
    return f"<{width} x {ty}>" if width else ty


def suffix(ty: str, width: int = 0) -> str:
    """`v16f32` or `f32`: how intrinsics name a type."""
    name = _SUFFIX.get(ty, ty)
    return f"v{width}{name}" if width else name


def literal(value: bool | int | float, dtype: DType) -> str:
    """A constant of `dtype` as LLVM reads it.

    Examples
    --------
    >>> from tensorir.ir.dtype import dtype
    >>> literal(1.0, dtype("float32")), literal(True, dtype("bool")), literal(255, dtype("uint8"))
    ('0x3FF0000000000000', 'true', '255')
    """
    if dtype.kind == "bool":
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    with np.errstate(all="ignore"):
        if dtype.name == "float64":
            return f"0x{_bits64(float(value)):016X}"
        if dtype.name == "float32":
            return f"0x{_bits64(float(np.float32(value))):016X}"
        raw = int(np.asarray(value, np.float64).astype(dtype.numpy).view(np.uint16))
    return f"0xH{raw:04X}" if dtype.name == "float16" else str(raw)


def _bits64(x: float) -> int:
    bits: int = struct.unpack("<Q", struct.pack("<d", x))[0]
    # a NaN must be one that a float can hold
    return 0x7FF8000000000000 if x != x else bits
