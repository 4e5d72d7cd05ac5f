"""Operations on values, for every element type, in one lane or many.

The numeric contract to the letter: integers wrap, division by zero gives 0 and never traps,
shifts by the width or more give 0 or -1, `min` and `max` propagate NaN, nothing is contracted.
float16 and bfloat16 are computed in float32 and rounded after each operation.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorir.codegen.convert import constant, convert, narrow, odd, widen
from tensorir.codegen.loads import Instance
from tensorir.codegen.types import BITS, VALUE, suffix, vector
from tensorir.codegen.values import Emitter
from tensorir.ir.dtype import BOOL, FLOAT32, FLOAT64, DType
from tensorir.ir.expr import Op


def compute(em: Emitter, inst: Instance, e: Op, xs: list[str], types: list[DType], w: int) -> str:
    """The operation `e` on values `xs` of `types`; `w` lanes, or 0."""
    name, of = e.name, types[0]
    if name in _TESTS:
        return _test(em, name, xs, of, w)
    if of.is_float:
        return _float(em, name, xs, e.dtype, w)
    simple = _BITWISE.get(name)
    if simple is not None:
        return _bitwise(em, name, simple, xs, of, w)
    if name in _DIVISIONS:
        return _division(em, inst, e, xs, of, w)
    if name in ("shl", "shr"):
        return _shift(em, inst, e, xs, of, w)
    if name in _INTEGER:
        return _INTEGER[name](em, xs, of, w)
    raise em.impossible(f"{name} of {of}")


def call(em: Emitter, name: str, ty: str, xs: list[str], w: int, extra: str = "") -> str:
    """An intrinsic overloaded on one type, its operands all of that type."""
    full, v = f"{name}.{suffix(ty, w)}", vector(ty, w)
    params = ", ".join([v] * len(xs)) + (", i1" if extra else "")
    em.module.declare(full, v, params)
    args = ", ".join(f"{v} {{{k}}}" for k in range(len(xs)))
    return em.op(f"call {v} @{full}({args}{extra})", *xs)


# -- tests and comparisons

_TESTS = {
    # name: (of floats, of signed integers, of unsigned integers)
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
    "lt": ("olt", "slt", "ult"),
    "le": ("ole", "sle", "ule"),
    "gt": ("ogt", "sgt", "ugt"),
    "ge": ("oge", "sge", "uge"),
    "isnan": ("uno", "", ""),
    "isinf": ("oeq", "", ""),
    "isfinite": ("one", "", ""),
}
_INFINITY = "0x7FF0000000000000"


def _test(em: Emitter, name: str, xs: list[str], of: DType, w: int) -> str:
    real, signed, unsigned = _TESTS[name]
    if not of.is_float:
        v = vector(VALUE[of.name], w)
        return em.op(f"icmp {signed if of.kind == 'int' else unsigned} {v} {{0}}, {{1}}", *xs)
    ty = VALUE[FLOAT32.name if of.bits == 16 else of.name]
    xs = [widen(em, x, of, w) for x in xs]
    v = vector(ty, w)
    if name == "isnan":
        return em.op(f"fcmp uno {v} {{0}}, {{0}}", *xs)
    if name in ("isinf", "isfinite"):
        size = call(em, "llvm.fabs", ty, xs, w)
        test = "oeq" if name == "isinf" else "olt"
        return em.op(f"fcmp {test} {v} {{0}}, {constant(_INFINITY, ty, w)}", size)
    return em.op(f"fcmp {real} {v} {{0}}, {{1}}", *xs)


# -- floats

_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_ROUND = {
    "floor": "llvm.floor",
    "ceil": "llvm.ceil",
    "trunc": "llvm.trunc",
    "round": "llvm.roundeven",
    "sqrt": "llvm.sqrt",
}


def _float(em: Emitter, name: str, xs: list[str], to: DType, w: int) -> str:
    if to.bits == 16:
        return _half(em, name, xs, to, w)
    ty = VALUE[to.name]
    v = vector(ty, w)
    if name in _BINARY:
        return em.op(f"{_BINARY[name]} {v} {{0}}, {{1}}", *xs)
    if name == "fma":
        if not em.target.has_fma:
            em.module.imports["fmaf" if ty == "float" else "fma"] = None
        return call(em, "llvm.fma", ty, xs, w)
    if name in _ROUND:
        return call(em, _ROUND[name], ty, xs, w)
    if name == "neg":
        return em.op(f"fneg {v} {{0}}", *xs)
    if name == "abs":
        return call(em, "llvm.fabs", ty, xs, w)
    if name == "copysign":
        return call(em, "llvm.copysign", ty, xs, w)
    if name in ("min", "max"):
        return _extreme(em, name == "max", xs, ty, w)
    if name in ("fmin", "fmax"):
        return _extreme_number(em, name == "fmax", xs, ty, w)
    if name == "sign":
        return _sign(em, xs[0], ty, w)
    if name == "ldexp":
        return _ldexp(em, xs, ty, w)
    if name == "scalef":
        return _scale(em, xs, w)
    if name in LIBM:
        return library(em, LIBM[name], xs, to, w)
    raise em.impossible(f"{name} of {to}")


def _choose(em: Emitter, cond: str, a: str, b: str, ty: str, w: int) -> str:
    v = vector(ty, w)
    return em.op(f"select {vector('i1', w)} {{0}}, {v} {{1}}, {v} {{2}}", cond, a, b)


def _is_number(x: str, w: int) -> bool:
    """Whether an operand is a constant, and not NaN."""
    if x[0] == "%":
        return False
    return "0x7FF8" not in x and "0xFFF8" not in x


def _extreme(em: Emitter, largest: bool, xs: list[str], ty: str, w: int) -> str:
    """The larger or smaller; NaN if either is. One compare and choice where one is a number
    known now, else one more to let a NaN on the right through: not on the left, where what
    accumulates would wait for it."""
    v = vector(ty, w)
    test = "ogt" if largest else "olt"
    b, a = xs
    if _is_number(b, w):
        a, b = b, a
    picked = _choose(em, em.op(f"fcmp {test} {v} {{0}}, {{1}}", a, b), a, b, ty, w)
    if _is_number(a, w):
        return picked
    return _nan_through(em, picked, a, ty, w)


def _nan_through(em: Emitter, x: str, a: str, ty: str, w: int) -> str:
    """`a` where that is NaN, else `x`. AVX-512 has an instruction for it that needs no mask."""
    v, bits = vector(ty, w), w * BITS[ty]
    if bits not in (128, 256, 512) or not (em.target.has("avx512f") and em.target.has("avx512vl")):
        nan = em.op(f"fcmp uno {v} {{0}}, {{0}}", a)
        return _choose(em, nan, a, x, ty, w)
    kind, whole = ("ps", "i32") if ty == "float" else ("pd", "i64")
    mask = "i16" if w == 16 else "i8"
    rounding = (", i32", ", i32 4") if bits == 512 else ("", "")
    name = f"llvm.x86.avx512.mask.fixupimm.{kind}.{bits}"
    table = vector(whole, w)
    em.module.declare(name, v, f"{v}, {v}, {table}, i32, {mask}{rounding[0]}")
    # for a quiet and for a signalling NaN the second operand as a quiet one, else the first
    form = f"{v} {{0}}, {v} {{1}}, {table} splat ({whole} 34), i32 0, {mask} -1{rounding[1]}"
    return em.op(f"call {v} @{name}({form})", x, a)


def extreme_of_numbers(em: Emitter, largest: bool, xs: list[str], ty: str, w: int) -> str:
    """The larger or smaller where neither is NaN."""
    a, b = xs
    test = em.op(f"fcmp {'ogt' if largest else 'olt'} {vector(ty, w)} {{0}}, {{1}}", a, b)
    return _choose(em, test, a, b, ty, w)


def _extreme_number(em: Emitter, largest: bool, xs: list[str], ty: str, w: int) -> str:
    """The larger or smaller of those that are no NaN."""
    v = vector(ty, w)
    a, b = xs
    test = "ogt" if largest else "olt"
    picked = _choose(em, em.op(f"fcmp {test} {v} {{0}}, {{1}}", a, b), a, b, ty, w)
    nan = em.op(f"fcmp uno {v} {{0}}, {{0}}", b)
    return _choose(em, nan, a, picked, ty, w)


def _sign(em: Emitter, x: str, ty: str, w: int) -> str:
    v, zero = vector(ty, w), constant("0.0", ty, w)
    one = call(em, "llvm.copysign", ty, [constant("1.0", ty, w), x], w)
    moves = em.op(f"fcmp one {v} {{0}}, {zero}", x)
    # 0 for both zeros, and NaN stays NaN
    other = em.op(f"fadd {v} {{0}}, {zero}", x)
    return _choose(em, moves, one, other, ty, w)


def _ldexp(em: Emitter, xs: list[str], ty: str, w: int) -> str:
    """`x * 2**n` rounded once; n is an int32."""
    x, n = xs
    if em.target.has("avx512f") and em.target.has("avx512vl"):
        v, i32 = vector(ty, w), vector("i32", w)
        name = f"llvm.ldexp.{suffix(ty, w)}.{suffix('i32', w)}"
        em.module.declare(name, v, f"{v}, {i32}")
        return em.op(f"call {v} @{name}({v} {{0}}, {i32} {{1}})", x, n)
    if ty == "float":
        # float64 holds the product exactly
        wide = em.op(f"fpext {vector(ty, w)} {{0}} to {vector('double', w)}", x)
        power = _power_of_two(em, _clamp(em, n, -600, 600, w), w)
        product = em.op(f"fmul {vector('double', w)} {{0}}, {{1}}", wide, power)
        return em.op(f"fptrunc {vector('double', w)} {{0}} to {vector(ty, w)}", product)
    return _ldexp_double(em, x, n, w)


def _scale(em: Emitter, xs: list[str], w: int) -> str:
    """`x * 2**n` rounded once, of float32 with AVX-512; n is a float that holds an integer."""
    v = vector("float", w)
    if w not in (4, 8, 16):
        whole = em.op(f"fptosi {v} {{0}} to {vector('i32', w)}", xs[1])
        return _ldexp(em, [xs[0], whole], "float", w)
    extra, bits = (", i32", 16) if w == 16 else ("", 8)
    name = f"llvm.x86.avx512.mask.scalef.ps.{32 * w}"
    em.module.declare(name, v, f"{v}, {v}, {v}, i{bits}{extra}")
    rounding = ", i32 4" if w == 16 else ""
    form = f"call {v} @{name}({v} {{0}}, {v} {{1}}, {v} zeroinitializer, i{bits} -1{rounding})"
    return em.op(form, *xs)


def _clamp(em: Emitter, n: str, low: int, high: int, w: int) -> str:
    n = call(em, "llvm.smax", "i32", [n, constant(str(low), "i32", w)], w)
    return call(em, "llvm.smin", "i32", [n, constant(str(high), "i32", w)], w)


def _power_of_two(em: Emitter, n: str, w: int) -> str:
    """2**n as a float64, for n from -1022 to 1023."""
    i64 = vector("i64", w)
    wide = em.op(f"sext {vector('i32', w)} {{0}} to {i64}", n)
    biased = em.op(f"add {i64} {{0}}, {constant('1023', 'i64', w)}", wide)
    bits = em.op(f"shl {i64} {{0}}, {constant('52', 'i64', w)}", biased)
    return em.op(f"bitcast {i64} {{0}} to {vector('double', w)}", bits)


def _ldexp_double(em: Emitter, x: str, n: str, w: int) -> str:
    """In three steps. Going down, a step leaves so much that a value which it made subnormal
    ends at zero anyway: nothing is rounded twice."""
    i32, v = vector("i32", w), vector("double", w)
    for step in range(3):
        if step < 2:
            low = em.op(f"icmp slt {i32} {{0}}, {constant('-1022', 'i32', w)}", n)
            up = call(em, "llvm.smin", "i32", [n, constant("1023", "i32", w)], w)
            k = _choose(em, low, constant("-969", "i32", w), up, "i32", w)
        else:
            k = _clamp(em, n, -1022, 1023, w)
        x = em.op(f"fmul {v} {{0}}, {{1}}", x, _power_of_two(em, k, w))
        n = em.op(f"sub {i32} {{0}}, {{1}}", n, k)
    return x


def _half(em: Emitter, name: str, xs: list[str], to: DType, w: int) -> str:
    if name in ("neg", "abs", "copysign"):
        return _half_sign(em, name, xs, to, w)
    if name == "fma":
        # in float64 the product is exact and the sum is, wherever its rounding could matter
        a, b, c = (convert(em, x, to, FLOAT64, w) for x in xs)
        v = vector("double", w)
        product = em.op(f"fmul {v} {{0}}, {{1}}", a, b)
        total = em.op(f"fadd {v} {{0}}, {{1}}", product, c)
        return narrow(em, odd(em, total, w), to, w)
    rest = xs[1:] if name == "ldexp" else [widen(em, x, to, w) for x in xs[1:]]
    wide = [widen(em, xs[0], to, w), *rest]
    return narrow(em, _float(em, name, wide, FLOAT32, w), to, w)


def _half_sign(em: Emitter, name: str, xs: list[str], to: DType, w: int) -> str:
    held, i16 = vector(VALUE[to.name], w), vector("i16", w)
    cast = VALUE[to.name] != "i16"
    bits = [em.op(f"bitcast {held} {{0}} to {i16}", x) if cast else x for x in xs]

    def c(v: int) -> str:
        return constant(str(v), "i16", w)

    if name == "neg":
        out = em.op(f"xor {i16} {{0}}, {c(-0x8000)}", bits[0])
    else:
        out = em.op(f"and {i16} {{0}}, {c(0x7FFF)}", bits[0])
    if name == "copysign":
        sign = em.op(f"and {i16} {{0}}, {c(-0x8000)}", bits[1])
        out = em.op(f"or {i16} {{0}}, {{1}}", out, sign)
    return em.op(f"bitcast {i16} {{0}} to {held}", out) if cast else out


# -- functions of the maths library, lane by lane

LIBM = {
    **{n: n for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "sin")},
    **{n: n for n in ("cos", "tan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf")},
    **{n: n for n in ("pow", "atan2", "hypot")},
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
}


def library(em: Emitter, name: str, xs: list[str], to: DType, w: int) -> str:
    """A call of libm for each lane."""
    ty = VALUE[to.name]
    full = name + ("f" if ty == "float" else "")
    em.module.call_outside(full, ty, ", ".join([ty] * len(xs)))
    if not w:
        return em.now(f"call {ty} @{full}({', '.join(f'{ty} {x}' for x in xs)})")
    em.module.note(f"{name} of {to} calls the maths library for each lane")
    v = vector(ty, w)
    out = "poison"
    for k in range(w):
        args = ", ".join(f"{ty} {em.op(f'extractelement {v} {{0}}, i64 {k}', x)}" for x in xs)
        one = em.now(f"call {ty} @{full}({args})")
        out = em.op(f"insertelement {v} {{0}}, {ty} {{1}}, i64 {k}", out, one)
    return out


# -- integers

_BITWISE = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


def _bitwise(em: Emitter, name: str, op: str, xs: list[str], of: DType, w: int) -> str:
    if of == BOOL and name in ("add", "mul"):
        op = "or" if name == "add" else "and"
    return em.op(f"{op} {vector(VALUE[of.name], w)} {{0}}, {{1}}", *xs)


def _division(em: Emitter, inst: Instance, e: Op, xs: list[str], of: DType, w: int) -> str:
    """Never a trap: a divisor that would is replaced, and the result chosen afterwards."""
    ty = VALUE[of.name]
    v, zero, one = vector(ty, w), constant("0", ty, w), constant("1", ty, w)
    a, b = xs
    known = _constant_of(b)
    is_zero: str | None = None
    if known is None:
        is_zero = em.op(f"icmp eq {v} {{0}}, {zero}", b)
        if em.module.checked:
            _report(em, inst, f"division by zero in {inst.stmt.stage}", is_zero, w)
    elif known == 0:
        if em.module.checked:
            here = em.op(f"icmp eq {v} {{0}}, {zero}", b)
            _report(em, inst, f"division by zero in {inst.stmt.stage}", here, w)
        return zero
    signed = of.kind == "int"
    minus = None
    safe = b
    if is_zero is not None:
        safe = _choose(em, is_zero, one, b, ty, w)
    if signed and known is None:
        minus = em.op(f"icmp eq {v} {{0}}, {constant('-1', ty, w)}", b)
        safe = _choose(em, minus, one, safe, ty, w)
    if signed and known == -1:
        return zero if e.name.endswith("mod") else em.op(f"sub {v} {zero}, {{0}}", a)
    quotient, rest = _divide(em, e.name, a, safe, v, ty, w, signed, known)
    if e.name.endswith("mod"):
        # by -1 nothing is left: the divisor was replaced by 1, so that holds already
        return rest if is_zero is None else _choose(em, is_zero, zero, rest, ty, w)
    if minus is not None:
        negated = em.op(f"sub {v} {zero}, {{0}}", a)
        quotient = _choose(em, minus, negated, quotient, ty, w)
    return quotient if is_zero is None else _choose(em, is_zero, zero, quotient, ty, w)


def _divide(
    em: Emitter,
    name: str,
    a: str,
    b: str,
    v: str,
    ty: str,
    w: int,
    signed: bool,
    known: int | None,
) -> tuple[str, str]:
    """Quotient and remainder for a divisor that cannot trap."""
    power = known is not None and known > 0 and known & (known - 1) == 0
    if known is not None and power and signed and name.startswith("floor"):
        shift = constant(str(known.bit_length() - 1), ty, w)
        mask = constant(str(known - 1), ty, w)
        if name == "floordiv":
            return em.op(f"ashr {v} {{0}}, {shift}", a), ""
        return "", em.op(f"and {v} {{0}}, {mask}", a)
    d, r = ("sdiv", "srem") if signed else ("udiv", "urem")
    quotient = em.op(f"{d} {v} {{0}}, {{1}}", a, b)
    if not signed or name.startswith("trunc"):
        rest = em.op(f"{r} {v} {{0}}, {{1}}", a, b) if name.endswith("mod") else ""
        return quotient, rest
    rest = em.op(f"{r} {v} {{0}}, {{1}}", a, b)
    zero = constant("0", ty, w)
    left = em.op(f"icmp ne {v} {{0}}, {zero}", rest)
    differ = em.op(f"icmp slt {v} {{0}}, {zero}", em.op(f"xor {v} {{0}}, {{1}}", rest, b))
    below = em.op(f"and {vector('i1', w)} {{0}}, {{1}}", left, differ)
    if name == "floormod":
        return "", _choose(em, below, em.op(f"add {v} {{0}}, {{1}}", rest, b), rest, ty, w)
    # true counts as -1 when extended by its sign
    less = em.op(f"sext {vector('i1', w)} {{0}} to {v}", below)
    return em.op(f"add {v} {{0}}, {{1}}", quotient, less), rest


def _constant_of(x: str) -> int | None:
    """The value of a constant integer operand, in all lanes alike."""
    text = x[:-1].rsplit(" ", 1)[1] if x.startswith("splat (") else x
    return int(text) if text.lstrip("-").isdigit() else None


def _shift(em: Emitter, inst: Instance, e: Op, xs: list[str], of: DType, w: int) -> str:
    ty = VALUE[of.name]
    v, bits = vector(ty, w), of.bits
    a, n = xs
    arithmetic = e.name == "shr" and of.kind == "int"
    form = "shl" if e.name == "shl" else "ashr" if arithmetic else "lshr"
    zero, width = constant("0", ty, w), constant(str(bits), ty, w)
    known = _constant_of(n)
    if known is not None and 0 <= known < bits:
        return em.op(f"{form} {v} {{0}}, {{1}}", a, n)
    far = em.op(f"icmp uge {v} {{0}}, {width}", n)
    if em.module.checked:
        message = f"shift by {bits} or more bits of a value of {bits} bits in {inst.stmt.stage}"
        _report(em, inst, message, far, w)
    if arithmetic:
        most = constant(str(bits - 1), ty, w)
        return em.op(f"ashr {v} {{0}}, {{1}}", a, _choose(em, far, most, n, ty, w))
    moved = em.op(f"{form} {v} {{0}}, {{1}}", a, _choose(em, far, zero, n, ty, w))
    return _choose(em, far, zero, moved, ty, w)


def _report(em: Emitter, inst: Instance, message: str, bad: str, w: int) -> None:
    from tensorir.codegen.indirect import fail_where

    status = em.module.check(message)
    nothing = constant("0", "i64", w)
    fail_where(em, inst, status, em.invert(bad, w), w, nothing)


def _negate(em: Emitter, xs: list[str], of: DType, w: int) -> str:
    ty = VALUE[of.name]
    return em.op(f"sub {vector(ty, w)} {constant('0', ty, w)}, {{0}}", *xs)


def _not(em: Emitter, xs: list[str], of: DType, w: int) -> str:
    ty = VALUE[of.name]
    ones = constant("true" if of == BOOL else "-1", ty, w)
    return em.op(f"xor {vector(ty, w)} {{0}}, {ones}", *xs)


def _abs(em: Emitter, xs: list[str], of: DType, w: int) -> str:
    return xs[0] if of.kind == "uint" else call(em, "llvm.abs", VALUE[of.name], xs, w, ", i1 false")


def _pick(which: str) -> Callable[[Emitter, list[str], DType, int], str]:
    def pick(em: Emitter, xs: list[str], of: DType, w: int) -> str:
        if of == BOOL:
            op = "or" if which == "max" else "and"
            return em.op(f"{op} {vector('i1', w)} {{0}}, {{1}}", *xs)
        sign = "s" if of.kind == "int" else "u"
        return call(em, f"llvm.{sign}{which}", VALUE[of.name], xs, w)

    return pick


def _integer_sign(em: Emitter, xs: list[str], of: DType, w: int) -> str:
    ty = VALUE[of.name]
    v, zero = vector(ty, w), constant("0", ty, w)
    some = em.op(f"icmp ne {v} {{0}}, {zero}", xs[0])
    positive = em.op(f"zext {vector('i1', w)} {{0}} to {v}", some)
    if of.kind == "uint":
        return positive
    negative = em.op(f"ashr {v} {{0}}, {constant(str(of.bits - 1), ty, w)}", xs[0])
    return em.op(f"or {v} {{0}}, {{1}}", positive, negative)


def _count(name: str, extra: str) -> Callable[[Emitter, list[str], DType, int], str]:
    def count(em: Emitter, xs: list[str], of: DType, w: int) -> str:
        return call(em, name, VALUE[of.name], xs, w, extra)

    return count


def _multiply_add(em: Emitter, xs: list[str], of: DType, w: int) -> str:
    v = vector(VALUE[of.name], w)
    return em.op(f"add {v} {{0}}, {{1}}", em.op(f"mul {v} {{0}}, {{1}}", xs[0], xs[1]), xs[2])


_INTEGER: dict[str, Callable[[Emitter, list[str], DType, int], str]] = {
    "neg": _negate,
    "not": _not,
    "abs": _abs,
    "min": _pick("min"),
    "max": _pick("max"),
    "fmin": _pick("min"),
    "fmax": _pick("max"),
    "sign": _integer_sign,
    "popcount": _count("llvm.ctpop", ""),
    "clz": _count("llvm.ctlz", ", i1 false"),
    "fma": _multiply_add,
}

__all__ = ["LIBM", "call", "compute", "library"]
