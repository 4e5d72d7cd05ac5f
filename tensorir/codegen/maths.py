"""Maths functions of float32 as expressions: one algorithm for every target.

`expand` turns a call into an expression of additions, products, fma and bit operations, which
any emitter can then vectorise. The largest errors over all inputs, in units of the last place,
are in `BOUNDS`; the tests measure them. Subnormals, infinities, NaN and arguments up to the
largest float are right. The halves go through float32. Other functions, and float64, are left to
the maths library of the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from tensorir.ir.build import MATHS
from tensorir.ir.dtype import BOOL, FLOAT32, FLOAT64, INT32, INT64, UINTS, DType
from tensorir.ir.expr import Const, Expr, Op
from tensorir.ir.target import Target

# functions that are worth not computing where their value is not wanted
COSTLY = frozenset({*MATHS, "pow", "atan2", "hypot"} - {"sqrt", "rsqrt"})

# measured over every float32
BOUNDS = {
    "exp": 1.0,
    "exp2": 1.0,
    "expm1": 2.0,
    "log": 1.0,
    "log2": 2.0,
    "log10": 2.0,
    "log1p": 2.0,
    "tanh": 2.0,
    "erf": 1.5,
    "sigmoid": 2.5,
    "sin": 2.0,
    "cos": 2.0,
    "rsqrt": 1.5,
}

_U64 = UINTS[64]
_MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, held in the low bits
_MAGIC_BITS = 0x4B400000


def expand(e: Op, target: Target) -> Expr | None:
    """What computes the maths function `e`, or None if it is no such function or has no form."""
    if e.name not in _KNOWN or not e.dtype.is_float:
        return None
    # an instruction that scales by a power of two
    scale = target.has("avx512f") and target.has("avx512vl")
    if e.dtype.bits == 16:
        wide = tuple(Op("cast", (a,), FLOAT32) for a in e.args)
        return Op("cast", (Op(e.name, wide, FLOAT32),), e.dtype)
    if e.dtype == FLOAT64:
        found = _DOUBLE.get(e.name)
        return found(e.args[0]) if found is not None else None
    single = _SINGLE.get(e.name)
    return single(e.args[0], scale) if single is not None else None


# -- building


def _c(x: float) -> Const:
    return Const(float(x), FLOAT32)


def _i(x: int, d: DType = INT32) -> Const:
    return Const(x, d)


def _add(a: Expr, b: Expr) -> Expr:
    return Op("add", (a, b), a.dtype)


def _sub(a: Expr, b: Expr) -> Expr:
    return Op("sub", (a, b), a.dtype)


def _mul(a: Expr, b: Expr) -> Expr:
    return Op("mul", (a, b), a.dtype)


def _div(a: Expr, b: Expr) -> Expr:
    return Op("div", (a, b), a.dtype)


def _fma(a: Expr, b: Expr, c: Expr) -> Expr:
    return Op("fma", (a, b, c), a.dtype)


def _abs(a: Expr) -> Expr:
    return Op("abs", (a,), a.dtype)


def _min(a: Expr, b: Expr) -> Expr:
    return Op("min", (a, b), a.dtype)


def _max(a: Expr, b: Expr) -> Expr:
    return Op("max", (a, b), a.dtype)


def _is(name: str, a: Expr, b: Expr) -> Expr:
    return Op(name, (a, b), BOOL)


def _and(a: Expr, b: Expr) -> Expr:
    return Op("and", (a, b), a.dtype)


def _select(c: Expr, a: Expr, b: Expr) -> Expr:
    return Op("select", (c, a, b), a.dtype)


def _bits(a: Expr) -> Expr:
    return Op("reinterpret", (a,), INT32)


def _real(a: Expr) -> Expr:
    return Op("reinterpret", (a,), FLOAT32)


def _shift(name: str, a: Expr, by: int) -> Expr:
    return Op(name, (a, _i(by, a.dtype)), a.dtype)


def _signed(size: Expr, sign: Expr) -> Expr:
    return Op("copysign", (size, sign), size.dtype)


def _poly(x: Expr, *coefficients: float) -> Expr:
    """By Horner, the highest power first."""
    p: Expr = _c(coefficients[0])
    for k in coefficients[1:]:
        p = _fma(p, x, _c(k))
    return p


def _nearest(x: Expr, factor: float) -> tuple[Expr, Expr]:
    """The integer nearest to `x * factor`, as a float and as an int32."""
    t = _fma(x, _c(factor), _c(_MAGIC))
    return _sub(t, _c(_MAGIC)), _sub(_bits(t), _i(_MAGIC_BITS))


def _scaled(p: Expr, power: tuple[Expr, Expr], scale: bool) -> Expr:
    """`p * 2**n` rounded once, for p near 1 and n from -151 to 129, as a float and as an int32."""
    real, n = power
    if scale:
        return Op("scalef", (p, real), FLOAT32)
    # the first product is exact
    half = _shift("shr", n, 1)
    return _mul(_mul(p, _power(half)), _power(_sub(n, half)))


def _power(n: Expr) -> Expr:
    """2**n for n from -126 to 127."""
    return _real(_shift("shl", _add(n, _i(127)), 23))


# -- exponentials

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06
_EXP = (
    0.0013933652080595493, 0.008363181725144386, 0.04166646674275398, 0.16666576266288757, 0.5,
    1.0, 1.0,
)  # fmt: skip


def _reduced(x: Expr) -> tuple[Expr, tuple[Expr, Expr]]:
    """x as n * log(2) + r: r and n, as a float and as an int32."""
    n, whole = _nearest(x, _LOG2E)
    r = _fma(n, _c(-_LN2_LOW), _fma(n, _c(-_LN2_HIGH), x))
    return r, (n, whole)


def _exp(x: Expr, scale: bool) -> Expr:
    r, n = _reduced(_min(_max(x, _c(-104.0)), _c(89.0)))
    return _scaled(_poly(r, *_EXP), n, scale)


def _exp2(x: Expr, scale: bool) -> Expr:
    x = _min(_max(x, _c(-151.0)), _c(129.0))
    n, whole = _nearest(x, 1.0)
    r = _sub(x, n)
    p = _poly(
        r, 1.535335904918611e-04, 1.3398876180872321e-03, 9.61843691766262e-03,
        5.5503323674201965e-02, 0.24022647738456726, 0.6931471824645996, 1.0,
    )  # fmt: skip
    return _scaled(p, (n, whole), scale)


def _expm1(x: Expr, scale: bool) -> Expr:
    del scale
    low = _min(_max(x, _c(-18.0)), _c(89.0))
    r, (_, n) = _reduced(low)
    p = _poly(
        r, 1.9845907809212804e-04, 1.3940620701760054e-03, 8.333389647305012e-03,
        4.1666362434625626e-02, 0.1666666567325592, 0.5,
    )  # fmt: skip
    q = _fma(_mul(r, r), p, r)
    # by halves: 2**128 is no float
    half = _power(_sub(n, _i(1)))
    y = _fma(half, q, _sub(half, _c(0.5)))
    return _select(_is("eq", x, _c(0.0)), x, _add(y, y))


# -- logarithms

_SQRT_HALF_BITS = 0x3F3504F3
_TINY_BITS = 0x00800000
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip


def _parts(x: Expr) -> tuple[Expr, Expr, Expr]:
    """A positive x as (1 + f) * 2**n with 1 + f from sqrt(1/2) to sqrt(2): f, n, and what must
    be added to f for its logarithm."""
    small = _is("lt", x, _c(2.0**-126))
    y = _select(small, _mul(x, _c(2.0**23)), x)
    bits = _bits(y)
    n = _shift("shr", _sub(bits, _i(_SQRT_HALF_BITS)), 23)
    f = _sub(_real(_sub(bits, _shift("shl", n, 23))), _c(1.0))
    e = _sub(Op("cast", (n,), FLOAT32), _select(small, _c(23.0), _c(0.0)))
    z = _mul(f, f)
    more = _fma(z, _c(-0.5), _mul(_mul(f, z), _poly(f, *_LOG)))
    return f, e, more


def _log_special(x: Expr, y: Expr) -> Expr:
    """`y` for positive finite x, else what the logarithm is."""
    normal = _and(_is("gt", x, _c(0.0)), _is("lt", x, _c(math.inf)))
    other = _select(_is("gt", x, _c(0.0)), x, _c(math.nan))
    return _select(normal, y, _select(_is("eq", x, _c(0.0)), _c(-math.inf), other))


def _log_positive(x: Expr) -> Expr:
    f, e, more = _parts(x)
    y = _add(f, _fma(e, _c(-2.12194440e-4), more))
    return _fma(e, _c(0.693359375), y)


def _log(x: Expr, scale: bool) -> Expr:
    del scale
    return _log_special(x, _log_positive(x))


def _log2(x: Expr, scale: bool) -> Expr:
    del scale
    f, e, more = _parts(x)
    # log2(e) = 1.4426950 as 1.4423828125 + 0.0003122284; products with f cut to 12 bits are exact
    return _log_special(x, _based(f, more, e, 1.4423828125, 0.00031222839, 1.0, 0.0))


def _log10(x: Expr, scale: bool) -> Expr:
    del scale
    f, e, more = _parts(x)
    high, low = 0.43408203125, 0.00021245068
    return _log_special(x, _based(f, more, e, high, low, 0.30078125, 0.00024874566))


def _based(
    f: Expr, more: Expr, e: Expr, high: float, low: float, two_high: float, two_low: float
) -> Expr:
    """The logarithm to another base from its parts: (f + more) * (high + low) + e * two."""
    head = _real(_and(_bits(f), _i(-4096)))
    tail = _add(_sub(f, head), more)
    y = _fma(head, _c(low), _mul(tail, _c(low)))
    y = _fma(tail, _c(high), y)
    if two_low:
        y = _fma(e, _c(two_low), y)
    y = _fma(head, _c(high), y)
    return _fma(e, _c(two_high), y)


def _log1p(x: Expr, scale: bool) -> Expr:
    del scale
    u = _add(x, _c(1.0))
    # what the sum lost
    lost = _sub(x, _sub(u, _c(1.0)))
    y = _add(_log_positive(u), _div(lost, u))
    normal = _and(_is("gt", u, _c(0.0)), _is("lt", u, _c(math.inf)))
    tiny = _is("eq", u, _c(1.0))
    return _select(normal, _select(tiny, x, y), _log_special(u, y))


# -- hyperbolic tangent, error function, sigmoid


def _tanh(x: Expr, scale: bool) -> Expr:
    size = _min(_abs(x), _c(10.0))
    z = _mul(size, size)
    p = _poly(
        z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
        -3.33332819422e-1,
    )  # fmt: skip
    near = _fma(_mul(size, z), p, size)
    e = _exp(_add(size, size), scale)
    far = _sub(_c(1.0), _div(_c(2.0), _add(e, _c(1.0))))
    return _signed(_select(_is("lt", size, _c(0.625)), near, far), x)


def _erf(x: Expr, scale: bool) -> Expr:
    """After N. Juffa: two minimax polynomials, one of them in the exponent."""
    t = _min(_abs(x), _c(4.0))
    s = _mul(t, t)
    r = _fma(_c(-1.72853470e-5), t, _c(3.83197126e-4))
    u = _fma(_c(-3.88396438e-3), t, _c(2.42546219e-2))
    r = _fma(r, s, u)
    for k in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = _fma(r, t, _c(k))
    r = _fma(r, t, Op("neg", (t,), FLOAT32))
    far = _sub(_c(1.0), _exp(r, scale))
    p = _poly(
        s, -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1,
        1.28379166e-1,
    )  # fmt: skip
    near = _fma(p, t, t)
    return _signed(_select(_is("gt", t, _c(0.927734375)), far, near), x)


def _sigmoid(x: Expr, scale: bool) -> Expr:
    return _sigmoid_of(x, _exp(Op("neg", (_abs(x),), FLOAT32), scale))


def _sigmoid_of(x: Expr, small: Expr) -> Expr:
    """From exp(-|x|), which cannot overflow."""
    one = Const(1.0, x.dtype)
    top = _select(_is("lt", x, Const(0.0, x.dtype)), small, one)
    return _div(top, _add(small, one))


def _rsqrt(x: Expr, scale: bool) -> Expr:
    del scale
    return _div(Const(1.0, x.dtype), Op("sqrt", (x,), x.dtype))


# -- sine and cosine

# beyond this, 2/pi to 48 bits is not enough
_FAR = 71476.0
# 2/pi in binary, after 32 zeros
_TWO_OVER_PI = (
    0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
)  # fmt: skip


def _quadrant(x: Expr) -> tuple[Expr, Expr]:
    """x as q * pi/2 + r with r from -pi/4 to pi/4: r, and q as int32."""
    n, q = _nearest(x, 0.6366197723675814)
    r = x
    for k in (1.57079601e00, 3.13916473e-07, 5.39030253e-15):
        r = _fma(n, _c(-k), r)
    far = _is("gt", _abs(x), _c(_FAR))
    big, turns = _quadrant_far(x)
    return Op("rarely", (far, big, r, turns), FLOAT32), Op("rarely", (far, turns, q, big), INT32)


def _quadrant_far(x: Expr) -> tuple[Expr, Expr]:
    """After Payne and Hanek: only the bits of 2/pi that matter, in integers."""
    bits = _and(_bits(x), _i(0x7FFFFFFF))
    at = _add(_shift("shr", bits, 23), _i(-127 - 23 + 30))
    mantissa = Op("or", (_and(bits, _i(0x7FFFFF)), _i(0x800000)), INT32)
    word, within = _shift("shr", at, 5), Op("cast", (_and(at, _i(31)),), _U64)
    words = [_pick(word, k) for k in range(4)]
    limbs = [
        _shift("shr", Op("shl", (Op("or", (_shift("shl", a, 32), b), _U64), within), _U64), 32)
        for a, b in pairwise(words)
    ]
    m = Op("cast", (mantissa,), _U64)
    # the turn as a fraction of 2**64; what leaves the top are whole turns
    turn = _add(_shift("shl", _mul(m, limbs[0]), 32), _mul(m, limbs[1]))
    turn = _add(turn, _shift("shr", _mul(m, limbs[2]), 32))
    q = _shift("shr", _add(turn, _i(1 << 61, _U64)), 62)
    rest = Op("reinterpret", (_sub(turn, _shift("shl", q, 62)),), INT64)
    wide = _mul(Op("cast", (rest,), FLOAT64), Const(math.pi / 2 * 2.0**-62, FLOAT64))
    r: Expr = Op("cast", (wide,), FLOAT32)
    q32: Expr = Op("cast", (q,), INT32)
    negative = _is("lt", x, _c(0.0))
    q32 = _select(negative, Op("neg", (q32,), INT32), q32)
    r = _select(negative, Op("neg", (r,), FLOAT32), r)
    return _select(_is("lt", _abs(x), _c(math.inf)), r, _c(math.nan)), q32


def _pick(word: Expr, offset: int) -> Expr:
    """Word number `word + offset` of 2/pi, for `word` from 0 to 4."""
    e: Expr = _i(_TWO_OVER_PI[4 + offset] if 4 + offset < 8 else 0, _U64)
    for k in range(4):
        e = _select(_is("eq", word, _i(k)), _i(_TWO_OVER_PI[k + offset], _U64), e)
    return e


def _sine_of(r: Expr, q: Expr) -> Expr:
    """sin(q * pi/2 + r)."""
    s = _mul(r, r)
    p = _poly(s, 2.86567956e-6, -1.98559923e-4, 8.33338592e-3, -1.66666672e-1)
    # adding 0 lets a negative zero through
    sine = _fma(p, _fma(r, s, _c(0.0)), r)
    cosine = _poly(s, 2.44677067e-5, -1.38877297e-3, 4.16666567e-2, -5.00000000e-1, 1.0)
    odd = _is("ne", _and(q, _i(1)), _i(0))
    y = _select(odd, cosine, sine)
    flip = _shift("shl", _and(q, _i(2)), 30)
    return _real(Op("xor", (_bits(y), flip), INT32))


def _sin(x: Expr, scale: bool) -> Expr:
    del scale
    return _sine_of(*_quadrant(x))


def _cos(x: Expr, scale: bool) -> Expr:
    del scale
    r, q = _quadrant(x)
    return _sine_of(r, _add(q, _i(1)))


def _exp64(x: Expr) -> Expr:
    return _sigmoid_of(x, Op("exp", (Op("neg", (_abs(x),), FLOAT64),), FLOAT64))


def _rsqrt64(x: Expr) -> Expr:
    return _rsqrt(x, False)


_SINGLE: dict[str, Callable[[Expr, bool], Expr]] = {
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log2": _log2,
    "log10": _log10,
    "log1p": _log1p,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "rsqrt": _rsqrt,
    "sin": _sin,
    "cos": _cos,
}
_DOUBLE: dict[str, Callable[[Expr], Expr]] = {"sigmoid": _exp64, "rsqrt": _rsqrt64}
_KNOWN = frozenset({*MATHS, "pow", "atan2", "hypot"} - {"sqrt"})
