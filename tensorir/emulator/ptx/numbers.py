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
    """bfloat16 bits of float32 values, rounded to nearest even, or towards zero (`rz`)."""
    x = np.ascontiguousarray(x, np.float32)
    bits = x.view(np.uint32)
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    out = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), out)


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


def directed_f32(exact: Array, error: Array, mode: str) -> Array:
    """float64 values and what they lost, rounded to float32 down, up or towards zero."""
    near = exact.astype(np.float32)
    wide = near.astype(np.float64)
    above = (wide > exact) | ((wide == exact) & (error < 0))
    below = (wide < exact) | ((wide == exact) & (error > 0))
    down = np.where(above, np.nextafter(near, np.float32(-np.inf)), near)
    up = np.where(below, np.nextafter(near, np.float32(np.inf)), near)
    if mode == "rm":
        return down
    if mode == "rp":
        return up
    return np.where(exact > 0, down, up)


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
    """Subnormal float32 values replaced by zeros of their sign."""
    tiny = np.abs(x) < np.float32(1.17549435e-38)
    return np.where(tiny, np.copysign(np.float32(0), x), x) if np.any(tiny & (x != 0)) else x


def saturate(x: Array) -> Array:
    """Clamped to [0, 1], NaN to 0."""
    return np.where(np.isnan(x), x.dtype.type(0), np.clip(x, 0, 1)).astype(x.dtype)


def to_integer(x: Array, dtype: type[Any], mode: str) -> Array:
    """Floating values as integers: rounded as `mode` says, clamped to the type, NaN as 0."""
    x = np.asarray(x).astype(np.float64)
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](x)
    info = np.iinfo(dtype)
    top = float(info.max) + 1 if info.bits == 64 else float(info.max)
    high = rounded >= top
    low = rounded <= float(info.min)
    inside = np.where(high | low | np.isnan(rounded), 0.0, rounded).astype(dtype)
    return np.where(high, dtype(info.max), np.where(low, dtype(info.min), inside))
