"""Exponentials, logarithms, tanh, erf, sine and cosine of float32.

`scale` says that there is an instruction that multiplies by a power of two.
"""

from __future__ import annotations

import math
from itertools import pairwise

from tensorir.codegen.maths_parts import (
    add,
    bits,
    both,
    c,
    div,
    fma,
    greatest,
    i,
    least,
    mul,
    nearest,
    poly,
    power,
    real,
    scaled,
    select,
    shift,
    signed,
    size,
    sub,
    test,
)
from tensorir.ir.dtype import FLOAT32, FLOAT64, INT32, INT64, UINTS
from tensorir.ir.expr import Const, Expr, Op

_U64 = UINTS[64]


# -- exponentials

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06
EXP = (
    0.0013933652080595493, 0.008363181725144386, 0.04166646674275398, 0.16666576266288757, 0.5,
    1.0, 1.0,
)  # fmt: skip


def reduced(x: Expr) -> tuple[Expr, tuple[Expr, Expr]]:
    """x as n * log(2) + r: r and n, as a float and as an int32."""
    n, whole = nearest(x, _LOG2E)
    r = fma(n, c(-_LN2_LOW), fma(n, c(-_LN2_HIGH), x))
    return r, (n, whole)


def exp(x: Expr, scale: bool) -> Expr:
    r, n = reduced(least(greatest(x, c(-104.0)), c(89.0)))
    return scaled(poly(r, *EXP), n, scale)


def exp2(x: Expr, scale: bool) -> Expr:
    x = least(greatest(x, c(-151.0)), c(129.0))
    n, whole = nearest(x, 1.0)
    r = sub(x, n)
    p = poly(
        r, 1.535335904918611e-04, 1.3398876180872321e-03, 9.61843691766262e-03,
        5.5503323674201965e-02, 0.24022647738456726, 0.6931471824645996, 1.0,
    )  # fmt: skip
    return scaled(p, (n, whole), scale)


def expm1(x: Expr, scale: bool) -> Expr:
    del scale
    low = least(greatest(x, c(-18.0)), c(89.0))
    r, (_, n) = reduced(low)
    p = poly(
        r, 1.9845907809212804e-04, 1.3940620701760054e-03, 8.333389647305012e-03,
        4.1666362434625626e-02, 0.1666666567325592, 0.5,
    )  # fmt: skip
    q = fma(mul(r, r), p, r)
    # by halves: 2**128 is no float
    half = power(sub(n, i(1)))
    y = fma(half, q, sub(half, c(0.5)))
    return select(test("eq", x, c(0.0)), x, add(y, y))


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
    small = test("lt", x, c(2.0**-126))
    y = select(small, mul(x, c(2.0**23)), x)
    pattern = bits(y)
    n = shift("shr", sub(pattern, i(_SQRT_HALF_BITS)), 23)
    f = sub(real(sub(pattern, shift("shl", n, 23))), c(1.0))
    e = sub(Op("cast", (n,), FLOAT32), select(small, c(23.0), c(0.0)))
    z = mul(f, f)
    more = fma(z, c(-0.5), mul(mul(f, z), poly(f, *_LOG)))
    return f, e, more


def log_special(x: Expr, y: Expr) -> Expr:
    """`y` for positive finite x, else what the logarithm is."""
    normal = both(test("gt", x, c(0.0)), test("lt", x, c(math.inf)))
    other = select(test("gt", x, c(0.0)), x, c(math.nan))
    return select(normal, y, select(test("eq", x, c(0.0)), c(-math.inf), other))


def log_positive(x: Expr) -> Expr:
    f, e, more = _parts(x)
    y = add(f, fma(e, c(-2.12194440e-4), more))
    return fma(e, c(0.693359375), y)


def log(x: Expr, scale: bool) -> Expr:
    del scale
    return log_special(x, log_positive(x))


def log2(x: Expr, scale: bool) -> Expr:
    del scale
    f, e, more = _parts(x)
    # log2(e) = 1.4426950 as 1.4423828125 + 0.0003122284; products with f cut to 12 bits are exact
    return log_special(x, _based(f, more, e, 1.4423828125, 0.00031222839, 1.0, 0.0))


def log10(x: Expr, scale: bool) -> Expr:
    del scale
    f, e, more = _parts(x)
    high, low = 0.43408203125, 0.00021245068
    return log_special(x, _based(f, more, e, high, low, 0.30078125, 0.00024874566))


def _based(
    f: Expr, more: Expr, e: Expr, high: float, low: float, two_high: float, two_low: float
) -> Expr:
    """The logarithm to another base from its parts: (f + more) * (high + low) + e * two."""
    head = real(both(bits(f), i(-4096)))
    tail = add(sub(f, head), more)
    y = fma(head, c(low), mul(tail, c(low)))
    y = fma(tail, c(high), y)
    if two_low:
        y = fma(e, c(two_low), y)
    y = fma(head, c(high), y)
    return fma(e, c(two_high), y)


def log1p(x: Expr, scale: bool) -> Expr:
    del scale
    u = add(x, c(1.0))
    # what the sum lost
    lost = sub(x, sub(u, c(1.0)))
    y = add(log_positive(u), div(lost, u))
    normal = both(test("gt", u, c(0.0)), test("lt", u, c(math.inf)))
    tiny = test("eq", u, c(1.0))
    return select(normal, select(tiny, x, y), log_special(u, y))


# -- hyperbolic tangent, error function, sigmoid


def tanh(x: Expr, scale: bool) -> Expr:
    bounded = least(size(x), c(10.0))
    z = mul(bounded, bounded)
    p = poly(
        z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
        -3.33332819422e-1,
    )  # fmt: skip
    near = fma(mul(bounded, z), p, bounded)
    e = exp(add(bounded, bounded), scale)
    far = sub(c(1.0), div(c(2.0), add(e, c(1.0))))
    return signed(select(test("lt", bounded, c(0.625)), near, far), x)


def erf(x: Expr, scale: bool) -> Expr:
    """After N. Juffa: two minimax polynomials, one of them in the exponent."""
    t = least(size(x), c(4.0))
    s = mul(t, t)
    r = fma(c(-1.72853470e-5), t, c(3.83197126e-4))
    u = fma(c(-3.88396438e-3), t, c(2.42546219e-2))
    r = fma(r, s, u)
    for k in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = fma(r, t, c(k))
    r = fma(r, t, Op("neg", (t,), FLOAT32))
    far = sub(c(1.0), exp(r, scale))
    p = poly(
        s, -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1,
        1.28379166e-1,
    )  # fmt: skip
    near = fma(p, t, t)
    return signed(select(test("gt", t, c(0.927734375)), far, near), x)


def sigmoid(x: Expr, scale: bool) -> Expr:
    return sigmoid_of(x, exp(Op("neg", (size(x),), FLOAT32), scale))


def sigmoid_of(x: Expr, small: Expr) -> Expr:
    """From exp(-|x|), which cannot overflow."""
    one = Const(1.0, x.dtype)
    top = select(test("lt", x, Const(0.0, x.dtype)), small, one)
    return div(top, add(small, one))


def rsqrt(x: Expr, scale: bool) -> Expr:
    del scale
    return div(Const(1.0, x.dtype), Op("sqrt", (x,), x.dtype))


# -- sine and cosine

# beyond this, 2/pi to 48 bits is not enough
_FAR = 71476.0
# 2/pi in binary, after 32 zeros
_TWO_OVER_PI = (
    0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
)  # fmt: skip


def quadrant(x: Expr) -> tuple[Expr, Expr]:
    """x as q * pi/2 + r with r from -pi/4 to pi/4: r, and q as int32."""
    n, q = nearest(x, 0.6366197723675814)
    r = x
    for k in (1.57079601e00, 3.13916473e-07, 5.39030253e-15):
        r = fma(n, c(-k), r)
    far = test("gt", size(x), c(_FAR))
    big, turns = _quadrant_far(x)
    return Op("rarely", (far, big, r, turns), FLOAT32), Op("rarely", (far, turns, q, big), INT32)


def _quadrant_far(x: Expr) -> tuple[Expr, Expr]:
    """After Payne and Hanek: only the bits of 2/pi that matter, in integers."""
    pattern = both(bits(x), i(0x7FFFFFFF))
    at = add(shift("shr", pattern, 23), i(-127 - 23 + 30))
    mantissa = Op("or", (both(pattern, i(0x7FFFFF)), i(0x800000)), INT32)
    word, within = shift("shr", at, 5), Op("cast", (both(at, i(31)),), _U64)
    words = [_pick(word, k) for k in range(4)]
    limbs = [
        shift("shr", Op("shl", (Op("or", (shift("shl", a, 32), b), _U64), within), _U64), 32)
        for a, b in pairwise(words)
    ]
    m = Op("cast", (mantissa,), _U64)
    # the turn as a fraction of 2**64; what leaves the top are whole turns
    turn = add(shift("shl", mul(m, limbs[0]), 32), mul(m, limbs[1]))
    turn = add(turn, shift("shr", mul(m, limbs[2]), 32))
    q = shift("shr", add(turn, i(1 << 61, _U64)), 62)
    rest = Op("reinterpret", (sub(turn, shift("shl", q, 62)),), INT64)
    wide = mul(Op("cast", (rest,), FLOAT64), Const(math.pi / 2 * 2.0**-62, FLOAT64))
    r: Expr = Op("cast", (wide,), FLOAT32)
    q32: Expr = Op("cast", (q,), INT32)
    negative = test("lt", x, c(0.0))
    q32 = select(negative, Op("neg", (q32,), INT32), q32)
    r = select(negative, Op("neg", (r,), FLOAT32), r)
    return select(test("lt", size(x), c(math.inf)), r, c(math.nan)), q32


def _pick(word: Expr, offset: int) -> Expr:
    """Word number `word + offset` of 2/pi, for `word` from 0 to 4."""
    e: Expr = i(_TWO_OVER_PI[4 + offset] if 4 + offset < 8 else 0, _U64)
    for k in range(4):
        e = select(test("eq", word, i(k)), i(_TWO_OVER_PI[k + offset], _U64), e)
    return e


def _sine_of(r: Expr, q: Expr) -> Expr:
    """sin(q * pi/2 + r)."""
    s = mul(r, r)
    p = poly(s, 2.86567956e-6, -1.98559923e-4, 8.33338592e-3, -1.66666672e-1)
    # adding 0 lets a negative zero through
    sine = fma(p, fma(r, s, c(0.0)), r)
    cosine = poly(s, 2.44677067e-5, -1.38877297e-3, 4.16666567e-2, -5.00000000e-1, 1.0)
    odd = test("ne", both(q, i(1)), i(0))
    y = select(odd, cosine, sine)
    flip = shift("shl", both(q, i(2)), 30)
    return real(Op("xor", (bits(y), flip), INT32))


def sin(x: Expr, scale: bool) -> Expr:
    del scale
    return _sine_of(*quadrant(x))


def cos(x: Expr, scale: bool) -> Expr:
    del scale
    r, q = quadrant(x)
    return _sine_of(r, add(q, i(1)))
