"""Conversions between element types, as the numeric contract has them.

Round to nearest even, once; float to integer saturates and NaN gives 0; integers wrap. bfloat16
is held as its bits, so every step of it is written out here; float16 is converted by the target.
"""

from __future__ import annotations

from tensorir.codegen.types import BITS, VALUE, suffix, vector
from tensorir.codegen.values import Emitter
from tensorir.ir.dtype import BFLOAT16, BOOL, FLOAT16, FLOAT32, DType
from tensorir.support.errors import UnsupportedError


def convert(em: Emitter, x: str, of: DType, to: DType, w: int) -> str:
    """`x` of type `of` as a value of type `to`; `w` lanes, or 0 for a scalar."""
    if of == to:
        return x
    if to == BOOL:
        return _truth(em, x, of, w)
    if of == BOOL:
        return _from_bool(em, x, to, w)
    if not of.is_float:
        return _from_integer(em, x, of, to, w)
    if not to.is_float:
        return _to_integer(em, widen(em, x, of, w), _wide(of), to, w)
    if of.bits == 16:
        single = widen(em, x, of, w)
        return convert(em, single, FLOAT32, to, w)
    if to.bits == 16:
        return narrow(em, x if of == FLOAT32 else odd(em, x, w), to, w)
    form = "fpext" if to.bits > of.bits else "fptrunc"
    return _unary(em, form, x, VALUE[of.name], VALUE[to.name], w)


def _unary(em: Emitter, form: str, x: str, a: str, b: str, w: int) -> str:
    return em.op(f"{form} {vector(a, w)} {{0}} to {vector(b, w)}", x)


def constant(text: str, ty: str, w: int) -> str:
    """A scalar constant, in every lane where there are lanes."""
    return f"splat ({ty} {text})" if w else text


def _wide(d: DType) -> DType:
    return FLOAT32 if d.bits == 16 else d


def _truth(em: Emitter, x: str, of: DType, w: int) -> str:
    if of.is_float:
        wide = _wide(of)
        ty = VALUE[wide.name]
        x = widen(em, x, of, w)
        return em.op(f"fcmp une {vector(ty, w)} {{0}}, {constant('0.0', ty, w)}", x)
    ty = VALUE[of.name]
    return em.op(f"icmp ne {vector(ty, w)} {{0}}, {constant('0', ty, w)}", x)


def _from_bool(em: Emitter, x: str, to: DType, w: int) -> str:
    if not to.is_float:
        return _unary(em, "zext", x, "i1", VALUE[to.name], w)
    single = _unary(em, "uitofp", x, "i1", VALUE[_wide(to).name], w)
    return narrow(em, single, to, w)


def _from_integer(em: Emitter, x: str, of: DType, to: DType, w: int) -> str:
    a = VALUE[of.name]
    signed = of.kind == "int"
    if not to.is_float:
        b = VALUE[to.name]
        if of.bits == to.bits:
            return x
        form = "trunc" if to.bits < of.bits else "sext" if signed else "zext"
        return _unary(em, form, x, a, b, w)
    form = "sitofp" if signed else "uitofp"
    if to != BFLOAT16 or of.bits <= 16:
        # whatever float16 holds, float32 holds exactly, and larger ones become infinite
        return narrow(em, _unary(em, form, x, a, VALUE[_wide(to).name], w), to, w)
    if of.bits == 64:
        x = _sticky(em, x, signed, w)
    double = _unary(em, form, x, a, "double", w)
    return narrow(em, odd(em, double, w), to, w)


def _sticky(em: Emitter, x: str, signed: bool, w: int) -> str:
    """A 64-bit integer that float64 holds and that rounds to fewer bits as `x` does."""
    ty = vector("i64", w)

    def c(v: int) -> str:
        return constant(str(v), "i64", w)

    low = em.op(f"and {ty} {{0}}, {c(2047)}", x)
    some = em.op(f"icmp ne {ty} {{0}}, {c(0)}", low)
    high = em.op(f"and {ty} {{0}}, {c(-2048)}", x)
    rest = em.op(f"select {vector('i1', w)} {{0}}, {ty} {c(1024)}, {ty} {c(0)}", some)
    folded = em.op(f"or {ty} {{0}}, {{1}}", high, rest)
    size = x
    if signed:
        name = f"llvm.abs.{suffix('i64', w)}"
        em.module.declare(name, ty, f"{ty}, i1")
        size = em.op(f"call {ty} @{name}({ty} {{0}}, i1 false)", x)
    large = em.op(f"icmp ugt {ty} {{0}}, {c(1 << 53)}", size)
    return em.op(f"select {vector('i1', w)} {{0}}, {ty} {{1}}, {ty} {{2}}", large, folded, x)


def _to_integer(em: Emitter, x: str, of: DType, to: DType, w: int) -> str:
    a, b = vector(VALUE[of.name], w), vector(VALUE[to.name], w)
    kind = "fptosi" if to.kind == "int" else "fptoui"
    name = f"llvm.{kind}.sat.{suffix(VALUE[to.name], w)}.{suffix(VALUE[of.name], w)}"
    em.module.declare(name, b, a)
    return em.op(f"call {b} @{name}({a} {{0}})", x)


def widen(em: Emitter, x: str, of: DType, w: int) -> str:
    """A half as float32; others as they are."""
    if of == FLOAT16:
        _needs_half(em)
        return _unary(em, "fpext", x, "half", "float", w)
    if of != BFLOAT16:
        return x
    bits = _unary(em, "zext", x, "i16", "i32", w)
    high = em.op(f"shl {vector('i32', w)} {{0}}, {constant('16', 'i32', w)}", bits)
    return _unary(em, "bitcast", high, "i32", "float", w)


def narrow(em: Emitter, x: str, to: DType, w: int) -> str:
    """A float32 as a half; as it is for other types."""
    if to == FLOAT16:
        _needs_half(em)
        return _unary(em, "fptrunc", x, "float", "half", w)
    if to != BFLOAT16:
        return x
    ty = vector("i32", w)

    def c(v: int) -> str:
        return constant(str(v), "i32", w)

    bits = _unary(em, "bitcast", x, "float", "i32", w)
    high = em.op(f"lshr {ty} {{0}}, {c(16)}", bits)
    last = em.op(f"and {ty} {{0}}, {c(1)}", high)
    bias = em.op(f"add {ty} {{0}}, {c(0x7FFF)}", last)
    near = em.op(f"lshr {ty} {{0}}, {c(16)}", em.op(f"add {ty} {{0}}, {{1}}", bits, bias))
    quiet = em.op(f"or {ty} {{0}}, {c(0x40)}", high)
    nan = em.op(f"fcmp uno {vector('float', w)} {{0}}, {{0}}", x)
    kept = em.op(f"select {vector('i1', w)} {{0}}, {ty} {{1}}, {ty} {{2}}", nan, quiet, near)
    return _unary(em, "trunc", kept, "i32", "i16", w)


def _needs_half(em: Emitter) -> None:
    if em.target.is_x86 and not em.target.has("f16c"):
        raise UnsupportedError(
            f"float16 needs a processor with F16C, which {em.target} lacks",
            details='  try  target="x86-64-v3", or compute in float32',
        )


def odd(em: Emitter, x: str, w: int) -> str:
    """A float64 as float32, rounded to odd where inexact: a further rounding is then as if it
    were the only one."""
    v64, i32, i1 = (vector(t, w) for t in ("double", "i32", "i1"))

    def c(value: int) -> str:
        return constant(str(value), "i32", w)

    near = _unary(em, "fptrunc", x, "double", "float", w)
    back = _unary(em, "fpext", near, "float", "double", w)
    bits = _unary(em, "bitcast", near, "float", "i32", w)
    inexact = em.op(f"fcmp one {v64} {{0}}, {{1}}", x, back)
    low = em.op(f"and {i32} {{0}}, {c(1)}", bits)
    even = em.op(f"icmp eq {i32} {{0}}, {c(0)}", low)
    move = em.op(f"and {i1} {{0}}, {{1}}", inexact, even)
    above = em.op(f"fcmp ogt {v64} {{0}}, {{1}}", x, back)
    negative = em.op(f"icmp slt {i32} {{0}}, {c(0)}", bits)
    outward = em.op(f"xor {i1} {{0}}, {{1}}", above, negative)
    step = em.op(f"select {i1} {{0}}, {i32} {c(1)}, {i32} {c(-1)}", outward)
    moved = em.op(f"add {i32} {{0}}, {{1}}", bits, step)
    kept = em.op(f"select {i1} {{0}}, {i32} {{1}}, {i32} {{2}}", move, moved, bits)
    return _unary(em, "bitcast", kept, "i32", "float", w)


def reinterpret(em: Emitter, x: str, of: DType, to: DType, w: int) -> str:
    """The same bits as another type of equal size."""
    a, b = VALUE[of.name], VALUE[to.name]
    assert BITS[a] == BITS[b]
    return x if a == b else _unary(em, "bitcast", x, a, b, w)


__all__ = ["constant", "convert", "narrow", "odd", "reinterpret", "widen"]
