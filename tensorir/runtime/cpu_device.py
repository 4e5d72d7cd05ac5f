"""Loading compiled kernels on this processor: what an object refers to, and where that is."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from tensorir.codegen import cpu, llvm
from tensorir.codegen.source import KernelSource
from tensorir.runtime import scratch, threads
from tensorir.support.errors import internal

__all__ = ["Loaded", "load", "undefined"]


class Loaded(NamedTuple):
    """A kernel in memory: the code, which must be kept, its address, and a way to call it."""

    code: llvm.Library
    address: int
    function: Callable[..., int]


def load(object_code: bytes, source: KernelSource) -> Loaded:
    """Link the object of `source` into this process.

    Raises
    ------
    InternalError
        If it refers to a symbol that there is not.
    """
    names = dict.fromkeys((*source.imports, *undefined(object_code)))
    found = {name: address(name) for name in names if name != "_GLOBAL_OFFSET_TABLE_"}
    missing = [name for name, where in found.items() if not where]
    if missing:
        message = f"compiled code calls {', '.join(missing)}, which this process does not have"
        raise internal(message, state=source.llvm)
    code = llvm.link(object_code, [source.name], found)
    entry = code[source.name]
    pointers = [ctypes.c_void_p] * len(source.arguments)
    sizes = [ctypes.c_int64] * len(source.sizes)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *pointers, *sizes, ctypes.c_void_p)
    return Loaded(code, entry, prototype(entry))


def undefined(object_code: bytes) -> list[str]:
    """Names that an ELF object refers to and does not define; none for other formats.

    The layout is that of the System V ABI, chapter 4: section headers, then the symbol table.
    """
    if object_code[:5] != b"\x7fELF\x02":
        return []
    (table,) = struct.unpack_from("<Q", object_code, 0x28)
    size, count = struct.unpack_from("<HH", object_code, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", object_code, table + k * size) for k in range(count)
    ]
    names = []
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        strings = sections[link][4]
        for at in range(offset + entry, offset + length, entry):
            name, _, _, section = struct.unpack_from("<IBBH", object_code, at)
            if section == 0 and name:
                start = strings + name
                names.append(object_code[start : object_code.index(b"\0", start)].decode())
    return names


def address(name: str) -> int:
    """Where `name` is: OpenMP, our own helpers, the maths library, or the process; 0 if nowhere."""
    if name in threads.SYMBOLS:
        return threads.symbols()[name]
    if name in scratch.SYMBOLS:
        return scratch.symbols()[name]
    if name in _HELPERS:
        return _helpers()[name]
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    return 0


@cache
def _libraries() -> tuple[Any, ...]:
    if sys.platform == "win32":
        return (ctypes.CDLL("ucrtbase"),)
    found = ctypes.util.find_library("m") if sys.platform != "linux" else "libm.so.6"
    libraries = [ctypes.CDLL(None)]
    try:
        libraries.append(ctypes.CDLL(found or "libm.so"))
    except OSError:
        pass
    return tuple(libraries)


# What LLVM calls where a processor has no instruction for a conversion; a compiler's support
# library has them, and Python need not be linked to one. Rounding is to nearest even. A double
# becomes a float whose last bit remembers that something was cut off, so that rounding again to
# 16 bits is exact (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
_HELPERS = ("__extendhfsf2", "__truncsfhf2", "__truncdfhf2", "__truncsfbf2", "__truncdfbf2")
_HELPER_TEXT = """
define float @__extendhfsf2(half %h) #0 {
  %b = bitcast half %h to i16
  %w = zext i16 %b to i32
  %m = and i32 %w, 32767
  %s = shl i32 %m, 13
  %f = bitcast i32 %s to float
  %scaled = fmul float %f, 0x46F0000000000000
  %bits = bitcast float %scaled to i32
  %special = icmp uge i32 %m, 31744
  %inf = or i32 %bits, 2139095040
  %mag = select i1 %special, i32 %inf, i32 %bits
  %sg = and i32 %w, 32768
  %sign = shl i32 %sg, 16
  %all = or i32 %mag, %sign
  %r = bitcast i32 %all to float
  ret float %r
}
define half @__truncsfhf2(float %x) #0 {
  %b = bitcast float %x to i32
  %f = and i32 %b, 2147483647
  %nan = icmp ugt i32 %f, 2139095040
  %big = icmp uge i32 %f, 1199570944
  %small = icmp ult i32 %f, 947912704
  %special = select i1 %nan, i32 32256, i32 31744
  %fv = bitcast i32 %f to float
  %sum = fadd float %fv, 5.0e-01
  %sumbits = bitcast float %sum to i32
  %sub = sub i32 %sumbits, 1056964608
  %shift = lshr i32 %f, 13
  %odd = and i32 %shift, 1
  %rebias = add i32 %f, -939520001
  %rounded = add i32 %rebias, %odd
  %normal = lshr i32 %rounded, 13
  %a = select i1 %small, i32 %sub, i32 %normal
  %m = select i1 %big, i32 %special, i32 %a
  %signbit = lshr i32 %b, 16
  %sign = and i32 %signbit, 32768
  %all = or i32 %m, %sign
  %t = trunc i32 %all to i16
  %r = bitcast i16 %t to half
  ret half %r
}
define bfloat @__truncsfbf2(float %x) #0 {
  %b = bitcast float %x to i32
  %nan = fcmp uno float %x, %x
  %high = lshr i32 %b, 16
  %quiet = or i32 %high, 64
  %odd = and i32 %high, 1
  %half = add i32 %b, 32767
  %sum = add i32 %half, %odd
  %near = lshr i32 %sum, 16
  %m = select i1 %nan, i32 %quiet, i32 %near
  %t = trunc i32 %m to i16
  %r = bitcast i16 %t to bfloat
  ret bfloat %r
}
define internal float @to_odd(double %x) #0 {
  %f = fptrunc double %x to float
  %back = fpext float %f to double
  %inexact = fcmp one double %back, %x
  %b = bitcast float %f to i32
  %xb = bitcast double %x to i64
  %xm = and i64 %xb, 9223372036854775807
  %bb = bitcast double %back to i64
  %bm = and i64 %bb, 9223372036854775807
  %up = icmp ugt i64 %bm, %xm
  %down = sext i1 %up to i32
  %cut = add i32 %b, %down
  %odd = or i32 %cut, 1
  %all = select i1 %inexact, i32 %odd, i32 %b
  %r = bitcast i32 %all to float
  ret float %r
}
define half @__truncdfhf2(double %x) #0 {
  %f = call float @to_odd(double %x)
  %r = call half @__truncsfhf2(float %f)
  ret half %r
}
define bfloat @__truncdfbf2(double %x) #0 {
  %f = call float @to_odd(double %x)
  %r = call bfloat @__truncsfbf2(float %f)
  ret bfloat %r
}
"""


@cache
def _helpers() -> llvm.Library:
    here = cpu.target("native")
    return llvm.link(llvm.compile_object(cpu.module(_HELPER_TEXT, here), here), _HELPERS, {})
