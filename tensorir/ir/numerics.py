"""What each operation computes, to the letter of the numeric contract, on numpy arrays.

Constant folding and the reference interpreter both go through here. Nothing in it traps: integers
wrap, division by zero gives 0, shifts by the width or more give 0 or -1, conversions from float
saturate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorir.ir.dtype import DType, dtype

if TYPE_CHECKING:
    from tensorir.ir.expr import Const

Array = NDArray[Any]
_F64 = np.dtype(np.float64)


def limits(d: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type.

    Examples
    --------
    >>> limits(dtype("int8")), limits(dtype("uint16"))
    ((-128, 127), (0, 65535))
    """
    if d.kind == "uint":
        return 0, (1 << d.bits) - 1
    return -(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1


def wrap(value: int, d: DType) -> int:
    """`value` modulo 2 to the width, as a number of type `d`."""
    value &= (1 << d.bits) - 1
    return value - (1 << d.bits) if d.kind == "int" and value >> (d.bits - 1) else value


def round_to(value: float | int, d: DType) -> float:
    """A number as the nearest value of a float type, ties to even.

    Examples
    --------
    >>> round_to(0.1, dtype("float32")), round_to(257, dtype("bfloat16"))
    (0.10000000149011612, 256.0)
    """
    if isinstance(value, int):
        return _round_integer(value, d)
    if d.bits == 64 or math.isnan(value) or math.isinf(value):
        return value
    with np.errstate(all="ignore"):
        return float(convert(np.asarray(value, _F64), d))


def _round_integer(value: int, d: DType) -> float:
    if -(1 << 53) <= value <= 1 << 53:
        return round_to(float(value), d)
    # to odd at 64 bits: then one more rounding is exact
    shift = abs(value).bit_length() - 64
    if shift > 0:
        kept = abs(value) >> shift
        kept |= int((kept << shift) != abs(value))
        value = (kept << shift) * (1 if value > 0 else -1)
    try:
        whole = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    if d.bits == 64:
        return whole
    return round_to(_odd(whole, value - int(whole)), d)


def _odd(nearest: float, error: int) -> float:
    """The neighbour of an inexact value whose last bit is odd."""
    if error == 0 or np.float64(nearest).view(np.int64) & 1:
        return nearest
    return math.nextafter(nearest, math.inf if error > 0 else -math.inf)


# -- conversion


def convert(x: Array, to: DType) -> Array:
    """`x` as `to`: nearest even, saturating from float to integer with NaN 0, wrapping integers."""
    of = dtype(x.dtype)
    if of == to:
        return x
    if to.kind == "bool":
        return np.asarray(x != x.dtype.type(0))
    if to.is_integer:
        return _saturate(x.astype(_F64), to) if of.is_float else x.astype(to.numpy)
    if to.name == "bfloat16" and of.name != "float32":
        return _single_odd(x).astype(to.numpy)
    if of.name == "bfloat16" and to.bits != 32:
        return x.astype(np.float32).astype(to.numpy)
    return x.astype(to.numpy)


def _saturate(x: Array, to: DType) -> Array:
    low, high = limits(to)
    whole = np.trunc(x)
    top, bottom = whole >= float(high), whole <= float(low)
    inside = np.where(np.isnan(x) | top | bottom, 0.0, whole)
    out = inside.astype(to.numpy)
    out = np.where(top, to.numpy.type(high), out)
    return np.where(bottom, to.numpy.type(low), out)


def _single_odd(x: Array) -> Array:
    """float32 rounded to odd, so that a rounding to fewer bits is as if it were the only one."""
    if x.dtype == np.float16 or (x.dtype.kind in "biu" and x.dtype.itemsize < 3):
        return np.asarray(x.astype(np.float32))
    wide = _integer_odd(x) if x.dtype.kind in "iu" else x
    near = np.asarray(wide.astype(np.float32))
    error = wide - near.astype(_F64)
    fix = np.isfinite(near) & (error != 0) & (near.view(np.int32) & 1 == 0)
    toward = np.where(error > 0, np.float32(np.inf), np.float32(-np.inf))
    return np.where(fix, np.nextafter(near, toward), near)


def _integer_odd(x: Array) -> Array:
    """An integer as float64, rounded to odd."""
    if x.dtype.itemsize < 8:
        return np.asarray(x.astype(_F64))
    half = x.dtype.type(32)
    high = (x >> half).astype(_F64) * 2.0**32
    low = (x & x.dtype.type(0xFFFFFFFF)).astype(_F64)
    return _to_odd(*_two_sum(high, low))


# -- integers


def floordiv(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, b.dtype.type(1), b)
    with np.errstate(over="ignore"):  # the least integer by -1 wraps
        return np.where(b == 0, a.dtype.type(0), np.floor_divide(a, safe))


def floormod(a: Array, b: Array) -> Array:
    return np.asarray(np.where(b == 0, a.dtype.type(0), a - floordiv(a, b) * b))


def truncdiv(a: Array, b: Array) -> Array:
    q = floordiv(a, b)
    up = (b != 0) & (a != q * b) & ((a < 0) != (b < 0))
    return np.asarray(q + up.astype(a.dtype))


def truncmod(a: Array, b: Array) -> Array:
    return np.asarray(np.where(b == 0, a.dtype.type(0), a - truncdiv(a, b) * b))


def _shift(a: Array, b: Array, *, left: bool) -> Array:
    width = a.dtype.itemsize * 8
    outside = (b < 0) | (b >= width)
    by = np.where(outside, b.dtype.type(0), b)
    if left:
        return np.where(outside, a.dtype.type(0), np.left_shift(a, by))
    far = np.where(a < 0, ~a.dtype.type(0), a.dtype.type(0))
    return np.where(outside, far, np.right_shift(a, by))


def _unsigned(a: Array) -> Array:
    return np.asarray(a).view(np.dtype(f"u{a.dtype.itemsize}"))


def popcount(a: Array) -> Array:
    return np.asarray(np.bitwise_count(_unsigned(a)).astype(a.dtype))


def clz(a: Array) -> Array:
    width = a.dtype.itemsize * 8
    bits = _unsigned(a)
    n = np.full(a.shape, width, a.dtype)
    for k in range(width):
        n = np.where(np.right_shift(bits, bits.dtype.type(k)) != 0, a.dtype.type(width - 1 - k), n)
    return n


# -- fused multiply-add, rounded once


def fma(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` rounded once."""
    d = dtype(a.dtype)
    if d.bits == 64:
        return _fma64(a, b, c)
    x, y, z = (v.astype(_F64) for v in (a, b, c))
    product = x * y  # exact: at most 48 bits
    total, error = _two_sum(product, z)
    return convert(_to_odd(total, error), d)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _to_odd(s: Array, error: Array) -> Array:
    s = np.asarray(s)
    even = s.view(np.int64) & 1 == 0
    fix = np.isfinite(s) & np.isfinite(error) & (error != 0) & even
    return np.where(fix, np.nextafter(s, np.where(error > 0, np.inf, -np.inf)), s)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Dekker's product: the rounded product and its error."""
    split = np.float64((1 << 27) + 1)
    p = a * b
    t = split * a
    ah = t - (t - a)
    al = a - ah
    t = split * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008); the rare values
    near overflow or underflow one by one in rational numbers."""
    a, b, c = np.broadcast_arrays(a, b, c)
    if a.ndim == 0:
        return _fma64(a[None], b[None], c[None]).reshape(())
    uh, ul = _two_product(a, b)
    th, tl = _two_sum(c, ul)
    vh, vl = _two_sum(uh, th)
    zh, zl = _two_sum(tl, vl)
    out = np.array(vh + _to_odd(zh, zl), copy=True)
    small, big = 2.0**-900, 2.0**900
    safe = np.abs(uh) > small
    for v in (a, b, c, uh):
        safe &= np.abs(v) < big
    plain = (a == 0) | (b == 0) | ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c)
    out[plain] = (a * b + c)[plain]
    for at in zip(*np.nonzero(~safe & ~plain), strict=True):
        out[at] = _fma_exact(float(a[at]), float(b[at]), float(c[at]))
    return out


def _fma_exact(a: float, b: float, c: float) -> float:
    (an, ad), (bn, bd), (cn, cd) = (v.as_integer_ratio() for v in (a, b, c))
    top, bottom = an * bn * cd + cn * ad * bd, ad * bd * cd
    if top == 0:
        return a * b + c if c != 0 else math.copysign(0.0, c)
    try:
        return top / bottom
    except OverflowError:
        return math.inf if top > 0 else -math.inf


# -- maths


def _erf(x: Array) -> Array:
    flat = [math.erf(v) for v in np.asarray(x, _F64).ravel().tolist()]
    return np.array(flat, _F64).reshape(np.shape(x))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def _isnan(x: Array) -> Array:
    return np.not_equal(x, x)


_Function = Callable[..., Any]
_NUMPY_MATHS: dict[str, _Function] = {
    name: getattr(np, name)
    for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos",
        "tan", "sinh", "cosh", "tanh", "hypot",
    )
}  # fmt: skip
_FLOAT64_MATHS: dict[str, _Function] = _NUMPY_MATHS | {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "pow": np.power, "sigmoid": _sigmoid, "erf": _erf,
}  # fmt: skip
# exact in any float type, and in float32 for the halves
_EXACT_FLOAT: dict[str, _Function] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
    "neg": np.negative, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc, "sign": np.sign, "copysign": np.copysign, "min": np.minimum,
    "max": np.maximum, "fmin": np.fmin, "fmax": np.fmax,
}  # fmt: skip
_COMPARE: dict[str, _Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "isnan": _isnan, "isinf": np.isinf, "isfinite": np.isfinite,
}  # fmt: skip
_BITS: dict[str, _Function] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
}  # fmt: skip
_INTEGER: dict[str, _Function] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs,
    "min": np.minimum, "max": np.maximum, "sign": np.sign, "floordiv": floordiv,
    "floormod": floormod, "truncdiv": truncdiv, "truncmod": truncmod, "popcount": popcount,
    "clz": clz, "shl": lambda a, b: _shift(a, b, left=True),
    "shr": lambda a, b: _shift(a, b, left=False),
}  # fmt: skip


def apply(name: str, args: Sequence[Array], to: DType) -> Array:
    """The operation on arrays (broadcast together) of the types its rule asks for.

    `select` and `if_then_else` choose element by element; which loads happen is the caller's
    business. The caller silences numpy's warnings.

    Examples
    --------
    >>> with np.errstate(all="ignore"):
    ...     apply("floordiv", (np.int8([-128, 7]), np.int8([-1, 0])), dtype("int8"))
    array([-128,    0], dtype=int8)
    """
    xs = tuple(np.asarray(x) for x in args)
    if name in ("select", "if_then_else"):
        return np.where(*xs)
    if name == "cast":
        return convert(xs[0], to)
    if name == "reinterpret":
        return xs[0].view(to.numpy)
    if name in _COMPARE:
        of = dtype(xs[0].dtype)
        if of.is_float and of.bits == 16:
            xs = tuple(x.astype(np.float32) for x in xs)
        return np.asarray(_COMPARE[name](*xs))
    if name in _BITS:
        return np.asarray(_BITS[name](*xs))
    if not to.is_float:
        return np.asarray(_INTEGER[name](*xs), to.numpy)
    if name == "fma":
        return fma(*xs)
    if name == "ldexp":
        return convert(_ldexp(xs[0], xs[1]), to)
    if name in _EXACT_FLOAT:
        if to.bits == 16:
            xs = tuple(x.astype(np.float32) for x in xs)
        return convert(np.asarray(_EXACT_FLOAT[name](*xs)), to)
    return convert(np.asarray(_FLOAT64_MATHS[name](*(x.astype(_F64) for x in xs))), to)


def _ldexp(x: Array, n: Array) -> Array:
    if x.dtype.itemsize == 8:
        return np.ldexp(x, n)
    # exact in float64 unless far outside the range of the result
    return np.asarray(np.ldexp(x.astype(_F64), np.clip(n, -600, 600)))


# -- folding

_NOT_FOLDED = frozenset(_FLOAT64_MATHS) - {"sqrt"}
_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


def fold(name: str, args: Sequence[Const], to: DType) -> bool | int | float | None:
    """The value of an operation on constants, or None where it is left to the kernel.

    Left alone are maths functions (their last bit is the target's), and what a checked kernel
    reports: integer division by zero, shifts by the width or more.
    """
    if name in _NOT_FOLDED:
        return None
    if name in _DIVISIONS and args[1].value == 0:
        return None
    if name in ("shl", "shr") and not 0 <= args[1].value < to.bits:
        return None
    extremes = name in ("min", "max", "fmin", "fmax")
    if extremes and to.is_float and args[0].value == args[1].value == 0:
        return None
    if to.is_integer and name in ("add", "sub", "mul"):
        a, b = int(args[0].value), int(args[1].value)
        return wrap(a + b if name == "add" else a - b if name == "sub" else a * b, to)
    with np.errstate(all="ignore"):
        out = apply(name, [np.asarray(a.value, a.dtype.numpy) for a in args], to)
    if to.kind == "bool":
        return bool(out)
    return float(out) if to.is_float else int(out)


__all__ = ["apply", "convert", "fma", "fold", "limits", "round_to", "wrap"]
