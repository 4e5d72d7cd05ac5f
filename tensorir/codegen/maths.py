"""Maths functions as expressions: one algorithm for every target.

`expand` turns a call into an expression of additions, products, fma and bit operations, which
any emitter can then vectorise. The largest errors in units of the last place are in `BOUNDS`: up to
`rsqrt` measured over every float32, after it over samples; the tests measure them again.
Subnormals, infinities, NaN and arguments up to the largest float are right. The halves go through
float32. On a processor most of float64 is left to its maths library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tensorir.codegen import maths_double as double
from tensorir.codegen import maths_more as more
from tensorir.codegen import maths_single as single
from tensorir.codegen.maths_parts import cast, i, least, like, neg, poly, scaled, size, sub
from tensorir.ir.build import MATHS
from tensorir.ir.dtype import FLOAT32, FLOAT64, INT32
from tensorir.ir.expr import Expr, Op
from tensorir.ir.target import Target

# functions that are worth not computing where their value is not wanted
COSTLY = frozenset({*MATHS, "pow", "atan2", "hypot"} - {"sqrt", "rsqrt"})

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
    "tan": 3.0,
    "asin": 2.5,
    "acos": 1.5,
    "atan": 2.0,
    "sinh": 2.0,
    "cosh": 1.5,
    "asinh": 2.0,
    "acosh": 2.0,
    "atanh": 2.5,
    "cbrt": 1.0,
}
# of functions of two arguments, over samples
BOUNDS_OF_TWO = {"pow": 1.0, "atan2": 2.5, "hypot": 1.5}


def expand(e: Op, target: Target) -> Expr | None:
    """What computes the maths function `e`, or None if it is no such function or has no form."""
    if e.name not in _KNOWN or not e.dtype.is_float:
        return None
    if e.dtype.bits == 16:
        wide = tuple(Op("cast", (a,), FLOAT32) for a in e.args)
        return Op("cast", (Op(e.name, wide, FLOAT32),), e.dtype)
    if e.dtype == FLOAT64:
        found = (_DOUBLE if target.kind == "cuda" else _EVERYWHERE).get(e.name)
        return found(*e.args) if found is not None else None
    exact = _SINGLE.get(e.name)
    if exact is not None:
        # an instruction that scales by a power of two
        return exact(e.args[0], target.has("avx512f") and target.has("avx512vl"))
    return _COMPOSED[e.name](*e.args)


_SINGLE: dict[str, Callable[[Expr, bool], Expr]] = {
    "exp": single.exp,
    "exp2": single.exp2,
    "expm1": single.expm1,
    "log": single.log,
    "log2": single.log2,
    "log10": single.log10,
    "log1p": single.log1p,
    "tanh": single.tanh,
    "erf": single.erf,
    "sigmoid": single.sigmoid,
    "rsqrt": single.rsqrt,
    "sin": single.sin,
    "cos": single.cos,
}
_KNOWN = frozenset({*MATHS, "pow", "atan2", "hypot"} - {"sqrt"})


def _half_exp(a: Expr) -> Expr:
    r, (n, whole) = single.reduced(least(a, like(90.0, a)))
    return scaled(poly(r, *single.EXP), (n, sub(whole, i(1, INT32))), False)


def _pow(x: Expr, y: Expr) -> Expr:
    wide = double.short_power_of_size(cast(size(x), FLOAT64), cast(y, FLOAT64))
    return more.with_cases(x, y, cast(wide, FLOAT32))


def _pow64(x: Expr, y: Expr) -> Expr:
    return more.with_cases(x, y, double.power_of_size(size(x), y))


def _sigmoid64(x: Expr) -> Expr:
    return single.sigmoid_of(x, Op("exp", (neg(size(x)),), FLOAT64))


def _rsqrt64(x: Expr) -> Expr:
    return single.rsqrt(x, False)


_OF_SINGLE = more.Kit(
    half_exp=_half_exp,
    log1p=lambda x: single.log1p(x, False),
    quadrant=single.quadrant,
    tan=(
        0.00437595136, 9.02267057e-05, 0.0108352304, 0.0212824307, 0.0540598668, 0.133326635,
        0.333333492,
    ),
    atan=(
        -0.00179311051, 0.0109123429, -0.0311736893, 0.057953503, -0.0840321779, 0.109521091,
        -0.142642274, 0.199985474, -0.333332986,
    ),
    asin=(0.0375115983, 0.0144418757, 0.0318069085, 0.0445170477, 0.0750050396, 0.166666597),
    sinh=(2.81688494e-06, 0.000198361726, 0.0083333496, 0.166666672),
    pi=(3.1415927410125732, -8.742278000372485e-08),
    large=2.0**28,
)  # fmt: skip
_OF_DOUBLE = more.Kit(
    half_exp=double.half_exp,
    log1p=double.log1p,
    quadrant=double.quadrant,
    tan=(
        9.710689234916048e-06, -2.3878361464470752e-05, 4.784036527057905e-05,
        -2.4684513785725905e-05, 6.647438661354892e-05, 8.396775078920631e-05,
        0.00024359195251895963, 0.000588908988079905, 0.0014560367124698407, 0.003592102113481634,
        0.008863237805543168, 0.021869488406461277, 0.05396825397264519, 0.1333333333332581,
        0.33333333333333376,
    ),
    atan=(
        -2.024961157239501e-05, 0.00022293718178689105, -0.0011636975693047184,
        0.003854971150606986, -0.009182720244479348, 0.01697559883121735, -0.025824383205639272,
        0.034065990818816554, -0.040925327055243876, 0.046739024561075766, -0.05239216813910823,
        0.05877303541495631, -0.06665859535261454, 0.07692212812063269, -0.09090901223430412,
        0.11111110677941163, -0.14285714271301386, 0.199999999997543, -0.33333333333331855,
    ),
    asin=(
        0.03191148773836206, -0.016223158499033857, 0.019527609078230184, 0.006528194159427554,
        0.012169167740456188, 0.01388524071621656, 0.01735970444004624, 0.02237175805141003,
        0.030381959138252795, 0.04464285682824415, 0.07500000000337227, 0.16666666666665408,
    ),
    sinh=(
        7.75874806191995e-13, 1.605725979717255e-10, 2.505212313629696e-08, 2.755731915707498e-06,
        0.00019841269841431862, 0.008333333333333148, 0.16666666666666669,
    ),
    pi=(3.141592653589793, 1.2246467991473532e-16),
    large=2.0**60,
)  # fmt: skip


def _composed(k: more.Kit) -> dict[str, Callable[..., Expr]]:
    every: dict[str, Callable[..., Expr]] = {**more.UNARY, **more.BINARY}
    return {n: lambda *x, f=f: f(k, *x) for n, f in every.items()}


_COMPOSED: Mapping[str, Callable[..., Expr]] = MappingProxyType(
    {**_composed(_OF_SINGLE), "pow": _pow}
)
_EVERYWHERE: Mapping[str, Callable[..., Expr]] = MappingProxyType(
    {"sigmoid": _sigmoid64, "rsqrt": _rsqrt64}
)
_DOUBLE: Mapping[str, Callable[..., Expr]] = MappingProxyType({
    **_composed(_OF_DOUBLE), **_EVERYWHERE, "pow": _pow64, "exp": double.exp, "exp2": double.exp2,
    "expm1": double.expm1, "log": double.log, "log2": double.log2, "log10": double.log10,
    "log1p": double.log1p, "tanh": double.tanh, "erf": double.erf, "sin": double.sin,
    "cos": double.cos,
})  # fmt: skip
