"""Floating-point operations with the rounding that PTX states, in numpy.

A fused multiply-add of float32, float16 and bfloat16 is computed in float64, where the product is
exact, and rounded to odd before it is rounded to its type, which is right for types of less than
half the precision (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
algorithms using rounding to odd", 2008). That of float64 uses their algorithm with error-free sums
and products, and exact fractions where those could overflow or lose bits.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def bf16_to_f32(bits: Array) -> Array:
    """float32 values of bfloat16 bits."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x: Array, mode: str = "rn") -> Array:
    """bfloat16 bits of float32 values, rounded to nearest even or as `mode` says."""
    x = np.ascontiguousarray(x, np.float32).reshape(np.shape(x))
    bits = x.view(np.uint32)
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    elif mode != "rz":
        away = np.signbit(x) == (mode == "rm")
        bits = bits + np.where(away & np.isfinite(x), np.uint32(0xFFFF), np.uint32(0))
    out = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), out)


def to_f16(x: Array, mode: str = "rn") -> Array:
    """float16 bits of float32 or float64 values."""
    if mode == "rn":
        out = np.asarray(x).astype(np.float16)
    else:
        out = directed(np.asarray(x).astype(np.float64), np.float64(0), mode, np.float16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), np.asarray(out).view(np.uint16))


def odd_f32(v: Array) -> Array:
    """float64 rounded to odd float32, so that rounding once more is as good as rounding once."""
    if v.dtype == np.float32:
        return v
    near = v.astype(np.float32)
    wide = near.astype(np.float64)
    bits = np.asarray(near).view(np.int32)
    wrong = (wide != v) & ((bits & 1) == 0) & np.isfinite(v)
    if not np.any(wrong):
        return np.asarray(near)
    up = np.where(np.abs(v) > np.abs(wide), np.int32(1), np.int32(-1))
    # from zero the other neighbour would have the wrong sign
    moved = np.where(near == 0, np.copysign(np.float32(1e-45), v), (bits + up).view(np.float32))
    return np.where(wrong, moved, near).astype(np.float32)


def f32_to_tf32(x: Array, mode: str = "rna") -> Array:
    """float32 values with ten bits of fraction: ties away from zero, to even, or towards zero."""
    x = np.ascontiguousarray(x, np.float32)
    bits = x.view(np.uint32)
    if mode == "rna":
        bits = bits + np.uint32(0x1000)
    elif mode == "rn":
        bits = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return np.where(np.isfinite(x), (bits & np.uint32(0xFFFFE000)).view(np.float32), x)


def sum_with_error(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and what rounding lost, exactly (Knuth's TwoSum)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def to_odd(s: Array, error: Array) -> Array:
    """`s`, of which `error` was lost, rounded to odd: sticky in its last bit."""
    s = np.array(s, np.float64, ndmin=1)
    bits = s.view(np.int64)
    inexact = (error != 0) & np.isfinite(error) & np.isfinite(s) & ((bits & 1) == 0)
    if inexact.any():
        # towards the true value the even neighbour's other side is odd
        toward = np.where((error > 0) == (s > 0), 1, -1)
        at_zero = s == 0
        moved = np.where(at_zero, np.copysign(5e-324, error), (bits + toward).view(np.float64))
        s = np.where(inexact, moved, s)
    return s


def fma_narrow(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of values of at most 24 bits, as float64 that rounds rightly to their type."""
    p = a.astype(np.float64) * b
    s, error = sum_with_error(p, np.asarray(c).astype(np.float64))
    shape = np.shape(s)
    return to_odd(s, error).reshape(shape)


_NORMAL = np.float32(1.2e-38)


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` with one rounding."""
    s = np.multiply(a, b, dtype=np.float64)
    s += c
    out = s.astype(np.float32)
    # rounding twice differs only where the first lands halfway between two float32 numbers, or
    # the result is subnormal and the halfway points lie elsewhere
    doubtful = (np.asarray(s).view(np.int64) & 0x1FFFFFFF) == 0x10000000
    if np.min(np.abs(out), initial=np.inf) < _NORMAL:
        doubtful |= (np.abs(out) < _NORMAL) & (s != 0)
    if np.any(doubtful):
        a, b, c = np.broadcast_arrays(a, b, c)
        out = np.array(out, ndmin=1).reshape(np.shape(s))
        out[doubtful] = fma_narrow(a[doubtful], b[doubtful], c[doubtful]).astype(np.float32)
    return out


def directed(exact: Array, error: Any, mode: str, dtype: type[Any]) -> Array:
    """float64 values and what they lost, rounded to a type down, up or towards zero."""
    near = np.asarray(exact).astype(dtype)
    wide = near.astype(np.float64)
    if mode != "rp":
        above = (wide > exact) | ((wide == exact) & (error < 0))
        down = np.where(above, np.nextafter(near, dtype(-np.inf)), near)
        if mode == "rm":
            return down
    below = (wide < exact) | ((wide == exact) & (error > 0))
    up = np.where(below, np.nextafter(near, dtype(np.inf)), near)
    return up if mode == "rp" else np.where(exact > 0, down, up)


def directed_sum(a: Array, b: Array, mode: str, dtype: type[Any]) -> Array:
    """`a + b` of float64, rounded to a type; a sum that cancels is -0 when rounded down."""
    s, error = sum_with_error(np.asarray(a), np.asarray(b))
    out = directed(s, error, mode, dtype)
    if mode == "rm":
        plus = ~np.signbit(a) & ~np.signbit(b)
        out = np.where((s == 0) & (error == 0) & ~plus, -np.zeros_like(out), out)
    return out


_SPLIT = 134217729.0  # 2^27 + 1


def _product_with_error(a: Array, b: Array) -> tuple[Array, Array]:
    p = a * b
    ah = _SPLIT * a
    ah = ah - (ah - a)
    bh = _SPLIT * b
    bh = bh - (bh - b)
    al, bl = a - ah, b - bh
    return p, al * bl - (((p - ah * bh) - al * bh) - ah * bl)


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of float64 with one rounding."""
    a, b, c = (np.array(x, np.float64) for x in np.broadcast_arrays(a, b, c))
    u, low = _product_with_error(a, b)
    t, tl = sum_with_error(c, low)
    v, vl = sum_with_error(u, t)
    z, lost = sum_with_error(tl, vl)
    out = v + to_odd(z, lost).reshape(np.shape(z))
    # of a sum that is nothing, the sign
    out = np.where(out == 0, a * b + c, out)
    # products that overflow, or whose lower half is subnormal, and everything near them
    safe = np.isfinite(out)
    for x in (a, b, c, u):
        safe &= (x == 0) | ((np.abs(x) > 1e-140) & (np.abs(x) < 1e140))
    doubtful = ~safe
    if doubtful.any():
        out = out.copy()
        plain = a * b + c
        finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
        out[doubtful & ~finite] = plain[doubtful & ~finite]
        for k in np.argwhere(doubtful & finite):
            at = tuple(k)
            out[at] = _exact_fma(float(a[at]), float(b[at]), float(c[at]))
    return out


def _exact_fma(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def flush(x: Array) -> Array:
    """Subnormal values replaced by zeros of their sign."""
    tiny: Array = (np.abs(x) < np.finfo(x.dtype).smallest_normal) & (x != 0)
    return np.where(tiny, np.copysign(x.dtype.type(0), x), x) if np.any(tiny) else x


def saturate(x: Array) -> Array:
    """Clamped to [0, 1], NaN and -0 to 0."""
    return np.asarray(np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0)))


def positive(x: Array) -> Array:
    """Negative values replaced by 0; a NaN stays."""
    return np.where(np.signbit(x) & ~np.isnan(x), x.dtype.type(0), x)


ROUNDINGS: dict[str, Any] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


def to_integer(x: Array, dtype: type[Any], mode: str) -> Array:
    """Floating values as integers: rounded as `mode` says, clamped to the type.

    A NaN becomes 0, or the top bit alone where one of the two types has 64 bits.
    """
    info = np.iinfo(dtype)
    long = x.dtype.itemsize == 8 or info.bits == 64
    nan = dtype(info.min if info.min else 1 << (info.bits - 1)) if long else dtype(0)
    x = np.asarray(x).astype(np.float64)
    rounded = ROUNDINGS[mode](x)
    top = float(info.max) + 1 if info.bits == 64 else float(info.max)
    high = rounded >= top
    low = rounded <= float(info.min)
    missing = np.isnan(rounded)
    inside = np.where(high | low | missing, 0.0, rounded).astype(dtype)
    clamped = np.where(high, dtype(info.max), np.where(low, dtype(info.min), inside))
    return np.where(missing, nan, clamped)
