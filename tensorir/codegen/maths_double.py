"""Maths functions of float64, for targets that have no maths library.

The logarithm and the error function follow fdlibm (Sun Microsystems, 1993) in how they reduce
their arguments; other polynomials are fitted to a relative error of 2**-55 or less.
"""

from __future__ import annotations

import math
from itertools import pairwise

from tensorir.codegen.maths_parts import (
    add,
    bits,
    both,
    c,
    cast,
    div,
    either,
    fma,
    greatest,
    i,
    least,
    mul,
    nearest,
    neg,
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
from tensorir.ir.dtype import FLOAT64, INT32, INT64, UINTS
from tensorir.ir.expr import Expr, Op

_U64 = UINTS[64]
_LN2 = (0.6931471803691238, 1.9082149292705877e-10)  # the first times 2000 is exact
_LOG2E = 1.4426950408889634


def _d(x: float) -> Expr:
    return c(x, FLOAT64)


# -- exponentials

_EXP = (
    2.0926847512672338e-09, 2.5112230522392983e-08, 2.755723365806611e-07, 2.7557234260217084e-06,
    2.4801587373416763e-05, 0.0001984126989703872, 0.0013888888888858582, 0.008333333333316746,
    0.04166666666666673, 0.16666666666666685, 0.5,
)  # fmt: skip


def _reduced(x: Expr) -> tuple[Expr, tuple[Expr, Expr]]:
    n, whole = nearest(x, _LOG2E)
    r = fma(n, _d(-_LN2[1]), fma(n, _d(-_LN2[0]), x))
    return r, (n, whole)


def _exp_of(r: Expr) -> Expr:
    return add(fma(mul(r, r), poly(r, *_EXP), r), _d(1.0))


def exp(x: Expr) -> Expr:
    r, n = _reduced(least(greatest(x, _d(-746.0)), _d(710.0)))
    return scaled(_exp_of(r), n, False)


def half_exp(a: Expr) -> Expr:
    r, (n, whole) = _reduced(least(a, _d(712.0)))
    return scaled(_exp_of(r), (n, sub(whole, i(1, INT64))), False)


def exp2(x: Expr) -> Expr:
    x = least(greatest(x, _d(-1076.0)), _d(1025.0))
    n, whole = nearest(x, 1.0)
    return scaled(_exp_of(mul(sub(x, n), _d(math.log(2.0)))), (n, whole), False)


def expm1(x: Expr) -> Expr:
    r, (_, n) = _reduced(least(greatest(x, _d(-40.0)), _d(710.0)))
    q = fma(mul(r, r), poly(r, *_EXP), r)
    half = power(sub(n, i(1, INT64)))
    y = fma(half, q, sub(half, _d(0.5)))
    return select(test("lt", size(x), _d(2.0**-54)), x, add(y, y))


# -- logarithms

_SQRT_HALF = 0x3FE6A09E667F3BCD
_LOG = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
    2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
    6.666666666666735130e-01,
)  # fmt: skip


def _parts(x: Expr) -> tuple[Expr, Expr]:
    """A positive x as (1 + f) * 2**n with 1 + f from sqrt(1/2) to sqrt(2): f, and n as a float."""
    small = test("lt", x, _d(2.0**-1022))
    y = select(small, mul(x, _d(2.0**54)), x)
    pattern = bits(y)
    n = shift("shr", sub(pattern, i(_SQRT_HALF, INT64)), 52)
    f = sub(real(sub(pattern, shift("shl", n, 52))), _d(1.0))
    return f, sub(cast(n, FLOAT64), select(small, _d(54.0), _d(0.0)))


def _series(f: Expr) -> tuple[Expr, Expr]:
    """Half of the square of f, and with it what is added to f - that for log(1 + f)."""
    half = mul(_d(0.5), mul(f, f))
    s = div(f, add(_d(2.0), f))
    z = mul(s, s)
    return half, mul(s, add(half, mul(z, poly(z, *_LOG))))


def _log_positive(x: Expr) -> Expr:
    f, n = _parts(x)
    half, more = _series(f)
    y = sub(f, sub(half, fma(n, _d(_LN2[1]), more)))
    return fma(n, _d(_LN2[0]), y)


def _special(x: Expr, y: Expr) -> Expr:
    """`y` for positive finite x, else what the logarithm is."""
    infinite = _d(math.inf)
    normal = both(test("gt", x, _d(0.0)), test("lt", x, infinite))
    other = select(test("gt", x, _d(0.0)), x, _d(math.nan))
    return select(normal, y, select(test("eq", x, _d(0.0)), neg(infinite), other))


def log(x: Expr) -> Expr:
    return _special(x, _log_positive(x))


def _based(x: Expr, base: tuple[float, float], two: tuple[float, float]) -> Expr:
    """The logarithm to another base: `base` is 1/log of it, `two` the logarithm of 2, in parts."""
    f, n = _parts(x)
    half, more = _series(f)
    rest = sub(f, half)
    high = real(both(bits(rest), i(-(1 << 32), INT64)))
    low = add(sub(sub(f, high), half), more)
    top, whole = mul(high, _d(base[0])), mul(n, _d(two[0]))
    tail = fma(n, _d(two[1]), fma(add(low, high), _d(base[1]), mul(low, _d(base[0]))))
    w = add(whole, top)
    return _special(x, add(add(tail, add(sub(whole, w), top)), w))


def log2(x: Expr) -> Expr:
    return _based(x, (1.44269504072144627571, 1.67517131648865118353e-10), (1.0, 0.0))


def log10(x: Expr) -> Expr:
    base = (4.34294481878168880939e-01, 2.50829467116452752298e-11)
    return _based(x, base, (3.01029995663611771306e-01, 3.69423907715893078616e-13))


def log1p(x: Expr) -> Expr:
    u = add(x, _d(1.0))
    # what the sum lost
    high = test("gt", x, _d(1.0))
    lost = select(high, sub(_d(1.0), sub(u, x)), sub(x, sub(u, _d(1.0))))
    y = add(_log_positive(u), div(lost, u))
    normal = both(test("gt", u, _d(0.0)), test("lt", u, _d(math.inf)))
    return select(normal, select(test("eq", u, _d(1.0)), x, y), _special(u, y))


# -- hyperbolic tangent, error function, sigmoid

_ERF_NEAR = (
    -4.223035598210216e-12, 8.703879364626725e-11, -1.216306731674423e-09, 1.4792149943437563e-08,
    -1.636461486678353e-07, 1.6462043439674808e-06, -1.492564746668102e-05, 0.00012055332899410248,
    -0.0008548327021854369, 0.0052239776254221024, -0.026866170645129736, 0.11283791670955119,
    -0.37612638903183754, 0.1283791670955126,
)  # fmt: skip
_ERF_FAR = (
    1.7716511976691443e-13, -2.1413286693816966e-12, 1.1092717980025903e-11,
    -3.189231576356852e-11, 3.491667035331233e-11, 2.6161314700269695e-10, -2.5186830685406247e-09,
    1.3969714807655142e-08, -5.782218911406904e-08, 1.7318522763195495e-07,
    -2.0362692573183588e-07, -1.9521812456344757e-06, 2.0706428182810996e-05,
    -0.00013530933896766529, 0.0007323993860442079, -0.003570756345540037, 0.016465118136905557,
    0.9237508418237781, 4.418160805994415, 5.364941264616638,
)  # fmt: skip


def tanh(x: Expr) -> Expr:
    a = least(size(x), _d(22.0))
    t = expm1(add(a, a))
    return signed(div(t, add(t, _d(2.0))), x)


def erf(x: Expr) -> Expr:
    """Near 0 a polynomial, from 1 on one minus the exponential of one around 2."""
    a = least(size(x), _d(6.0))
    z = mul(a, a)
    near = fma(poly(z, *_ERF_NEAR), a, a)
    far = sub(_d(1.0), exp(neg(poly(sub(a, _d(2.0)), *_ERF_FAR))))
    return signed(select(test("lt", a, _d(1.0)), near, far), x)


# -- sine and cosine

_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_FAR = 2.0**30  # up to here quotients by pi/2 and their products with its parts are exact
_SIN = (
    -7.578541257606857e-13, 1.60583631868406e-10, -2.505210488205659e-08, 2.755731921406581e-06,
    -0.000198412698412548, 0.008333333333333323, -0.16666666666666666,
)  # fmt: skip
_COS = (
    -1.1359694798766901e-11, 2.0875724183545062e-09, -2.7557314358952905e-07,
    2.4801587289504075e-05, -0.0013888888888874155, 0.0416666666666666,
)  # fmt: skip
# 2/pi in binary, after 32 zeros
_TWO_OVER_PI = (
    0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
    0xDEBBC561, 0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5,
    0x2EBB4484, 0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF,
    0xDE05980F, 0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7,
    0xEBE5F17B, 0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08, 0x56033046, 0xFC7B6BAB,
)  # fmt: skip
_LIMBS = 6


def quadrant(x: Expr) -> tuple[Expr, Expr]:
    """x as q * pi/2 + r with r from -pi/4 to pi/4: r, and q as int64."""
    n, q = nearest(x, 2.0 / math.pi)
    r = x
    for k in _HALF_PI:
        r = fma(n, _d(-k), r)
    r = select(test("eq", n, _d(0.0)), x, r)  # a negative zero too
    far = test("gt", size(x), _d(_FAR))
    big, turns = _quadrant_far(x)
    return Op("rarely", (far, big, r, turns), FLOAT64), Op("rarely", (far, turns, q, big), INT64)


def _quadrant_far(x: Expr) -> tuple[Expr, Expr]:
    """After Payne and Hanek: only the bits of 2/pi that matter, in digits of 32 bits."""
    pattern = both(bits(x), i(0x7FFFFFFFFFFFFFFF, INT64))
    at = add(shift("shr", pattern, 52), i(-1075 - 2 + 32, INT64))
    mantissa = cast(both(pattern, i((1 << 52) - 1, INT64)), _U64)
    mantissa = Op("or", (mantissa, i(1 << 52, _U64)), _U64)
    within = cast(both(at, i(31, INT64)), _U64)
    words = _words(shift("shr", at, 5))
    limbs = [
        shift("shr", Op("shl", (Op("or", (shift("shl", a, 32), b), _U64), within), _U64), 32)
        for a, b in pairwise(words)
    ]
    rest, low, q = _turn(mantissa, limbs)
    # of the number of 128 bits that they are, the size
    negative = test("lt", rest, i(0, INT64))
    carried = select(test("eq", low, i(0, _U64)), i(1, INT64), i(0, INT64))
    flipped = add(Op("xor", (rest, i(-1, INT64)), INT64), carried)
    rest = select(negative, flipped, rest)
    low = select(negative, sub(i(0, _U64), low), low)
    wide = fma(cast(rest, FLOAT64), _d(2.0**64), cast(low, FLOAT64))
    r = mul(wide, _d(math.pi / 2 * 2.0**-126))
    minus = test("lt", x, _d(0.0))
    r = select(test("ne", negative, minus), neg(r), r)
    q = select(minus, Op("neg", (q,), INT64), q)
    return select(test("lt", size(x), _d(math.inf)), r, _d(math.nan)), q


def _turn(m: Expr, limbs: list[Expr]) -> tuple[Expr, Expr, Expr]:
    """m times the limbs as a fraction of 2**128, of a turn: what is left of it after the nearest
    quarter, high and low, and how many quarters that was."""
    mask = i(0xFFFFFFFF, _U64)
    halves = (both(m, mask), shift("shr", m, 32))
    digits: dict[int, Expr] = {}
    for k, limb in enumerate(limbs):
        for h, half in enumerate(halves):
            product = mul(half, limb)
            for place, part in ((3, both(product, mask)), (4, shift("shr", product, 32))):
                at = place - k + h
                if -1 <= at <= 3:
                    digits[at] = add(digits[at], part) if at in digits else part
    carry = shift("shr", digits[-1], 32)
    clean = []
    for at in range(4):
        total = add(digits[at], carry)
        clean.append(both(total, mask))
        carry = shift("shr", total, 32)
    low = Op("or", (shift("shl", clean[1], 32), clean[0]), _U64)
    high = Op("or", (shift("shl", clean[3], 32), clean[2]), _U64)
    q = shift("shr", add(high, i(1 << 61, _U64)), 62)
    rest = Op("reinterpret", (sub(high, shift("shl", q, 62)),), INT64)
    return rest, low, cast(q, INT64)


def _words(first: Expr) -> list[Expr]:
    """Words of 2/pi from number `first` on, up to 31: one more than limbs."""
    words: list[Expr] = [i(x, _U64) for x in _TWO_OVER_PI]
    for step in (16, 8, 4, 2, 1):
        on = test("ne", both(first, i(step, INT64)), i(0, INT64))
        have = step - 1 + _LIMBS + 1
        words = [select(on, words[k + step], words[k]) for k in range(have)]
    return words


def _sine_of(r: Expr, q: Expr) -> Expr:
    """sin(q * pi/2 + r)."""
    z = mul(r, r)
    # adding 0 lets a negative zero through
    sine = fma(poly(z, *_SIN), fma(r, z, _d(0.0)), r)
    half = mul(_d(0.5), z)
    top = sub(_d(1.0), half)
    rest = sub(sub(_d(1.0), top), half)
    cosine = add(top, fma(mul(z, z), poly(z, *_COS), rest))
    odd = test("ne", both(q, i(1, INT64)), i(0, INT64))
    flip = shift("shl", both(q, i(2, INT64)), 62)
    return real(Op("xor", (bits(select(odd, cosine, sine)), flip), INT64))


def sin(x: Expr) -> Expr:
    return _sine_of(*quadrant(x))


def cos(x: Expr) -> Expr:
    r, q = quadrant(x)
    return _sine_of(r, add(q, i(1, INT64)))


# -- powers, from a logarithm in two parts

_LOG_TAIL = (
    0.11988985448882805, 0.11674818982074327, 0.13336317586423582, 0.15384556860001208,
    0.1818181887060543, 0.22222222217532694, 0.28571428571445134, 0.3999999999999998,
)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LN2_LOWEST = 1.1612227229362532e-26


def _sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b for a not the smaller one, and what that lost."""
    s = add(a, b)
    return s, add(sub(a, s), b)


def _product(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    p = mul(a[0], b[0])
    lost = fma(a[0], b[0], neg(p))
    return _sum(p, fma(a[0], b[1], fma(a[1], b[0], lost)))


def _log_twofold(x: Expr) -> tuple[Expr, Expr]:
    """The logarithm of a positive finite x as a sum of two floats."""
    f, n = _parts(x)
    two = _d(2.0)
    below = add(two, f)
    lost = sub(f, sub(below, two))
    s = div(f, below)
    rest = div(fma(neg(s), lost, fma(neg(s), below, f)), below)
    square = _product((s, rest), (s, rest))
    cube = _product(square, (s, rest))
    third = _product(cube, (_d(_TWO_THIRDS[0]), _d(_TWO_THIRDS[1])))
    tail = mul(mul(cube[0], square[0]), poly(square[0], *_LOG_TAIL))
    high, low = _sum(add(s, s), third[0])
    low = add(low, add(add(add(rest, rest), third[1]), tail))
    whole = mul(n, _d(_LN2[0]))
    # without a whole part, f is the larger one
    none = test("eq", n, _d(0.0))
    top, left = _sum(whole, high)
    top, left = select(none, high, top), select(none, _d(0.0), left)
    low = add(low, fma(n, _d(_LN2_LOWEST), left))
    return _sum(top, fma(n, _d(_LN2[1]), low))


def power_of_size(a: Expr, y: Expr) -> Expr:
    """a to the power y for a of at least 0, but for ones and for y = 0."""
    high, low = _log_twofold(a)
    t = mul(y, high)
    less = fma(y, high, neg(t))
    fine = test("lt", size(t), _d(1000.0))
    less = select(fine, fma(y, low, less), _d(0.0))
    ends = either(test("eq", a, _d(0.0)), test("eq", a, _d(math.inf)))
    t = select(ends, mul(y, select(test("eq", a, _d(0.0)), _d(-math.inf), a)), t)
    less = select(ends, _d(0.0), less)
    r, n = _reduced(least(greatest(t, _d(-746.0)), _d(710.0)))
    nan = test("ne", a, a)
    return select(nan, a, scaled(_exp_of(add(r, less)), n, False))


# -- powers of float32, in float64

_LOG2_OF = (
    0.2829082022205795, 0.31990516725817325, 0.4122092644260035, 0.5770779422548136,
    0.9617966941136871, 2.88539008177785,
)  # fmt: skip
_EXP2_OF = (
    0.00015345789100342687, 0.0013399912594956231, 0.0096184892642293, 0.055503288313511145,
    0.24022646844455426, 0.6931472057077628, 1.0000000005558123,
)  # fmt: skip


def short_power_of_size(a: Expr, y: Expr) -> Expr:
    """As `power_of_size`, of floats that were float32, and to so many digits."""
    pattern = bits(a)
    n = shift("shr", sub(pattern, i(_SQRT_HALF, INT64)), 52)
    f = sub(real(sub(pattern, shift("shl", n, 52))), _d(1.0))
    s = div(f, add(f, _d(2.0)))
    log2 = fma(s, poly(mul(s, s), *_LOG2_OF), cast(cast(n, INT32), FLOAT64))
    inside = both(test("gt", a, _d(0.0)), test("lt", a, _d(math.inf)))
    log2 = select(inside, log2, select(test("eq", a, _d(0.0)), _d(-math.inf), a))
    t = least(greatest(mul(y, log2), _d(-200.0)), _d(200.0))
    whole, m = nearest(t, 1.0)
    return mul(poly(sub(t, whole), *_EXP2_OF), power(m))
