"""What objects refer to, and the conversions that some processors lack."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tensorir.codegen import cpu, llvm
from tensorir.runtime import cpu_device
from tensorir.runtime.kernel import make_kernel
from tests.runtime import handmade

ALL_HALVES = np.arange(1 << 16, dtype=np.uint16)


def test_undefined_names_are_read_off_an_object() -> None:
    text = """
@tir_threads = external global i32
declare double @sin(double)
define double @f(double %x) #0 {
  %n = load i32, ptr @tir_threads
  %y = sitofp i32 %n to double
  %z = call double @sin(double %y)
  ret double %z
}
"""
    here = handmade.HERE
    code = llvm.compile_object(cpu.module(text, here), here)
    assert sorted(cpu_device.undefined(code)) == ["sin", "tir_threads"]
    assert cpu_device.undefined(b"") == cpu_device.undefined(b"MZ whatever") == []


LOOP = """
declare {into} @{helper}({from_})
define i32 @tir_B(ptr %a, ptr %b, i64 %n, ptr %info) #0 {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %pa = getelementptr {from_}, ptr %a, i64 %i
  %pb = getelementptr {into}, ptr %b, i64 %i
  %x = load {from_}, ptr %pa
  %y = call {into} @{helper}({from_} %x)
  store {into} %y, ptr %pb
  %next = add i64 %i, 1
  br label %head
done:
  ret i32 0
}}
"""
_LLVM = {"float16": "half", "bfloat16": "bfloat", "float32": "float", "float64": "double"}


def apply(helper: str, a: np.ndarray, into: str) -> np.ndarray:
    from tensorir.ir.dtype import dtype
    from tensorir.ir.expr import Var

    n, kind = Var("n"), dtype(a.dtype)
    text = LOOP.format(helper=helper, from_=_LLVM[kind.name], into=_LLVM[into])
    arguments = [handmade.given("A", kind, n), handmade.made("B", dtype(into), n)]
    result: np.ndarray = make_kernel(handmade.source("tir_B", text, arguments, (n,)))(a)
    return result


def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Bit for bit, but any NaN is as good as another."""
    with np.errstate(all="ignore"):
        nan = np.isnan(expected.astype("f8"))
        np.testing.assert_array_equal(np.isnan(got.astype("f8")), nan)
    word = f"u{got.itemsize}"
    np.testing.assert_array_equal(got.view(word)[~nan], expected.view(word)[~nan])


def interesting() -> np.ndarray:
    """Floats near every half-precision value, and at random."""
    rng = np.random.default_rng(3)
    halves = ALL_HALVES.view(np.float16).astype(np.float32)
    bfloats = ALL_HALVES.view(ml_dtypes.bfloat16).astype(np.float32)
    parts = [halves, bfloats]
    with np.errstate(all="ignore"):
        parts += [np.nextafter(p, np.float32(s)) for p in parts for s in (-np.inf, np.inf)]
        parts += [(p[:-1] + p[1:]) / 2 for p in parts[:2]]
    parts.append(rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32))
    return np.concatenate(parts)


def test_half_to_float() -> None:
    halves = ALL_HALVES.view(np.float16)
    same(apply("__extendhfsf2", halves, "float32"), halves.astype("f4"))


def test_float_to_half() -> None:
    a = interesting()
    with np.errstate(all="ignore"):
        same(apply("__truncsfhf2", a, "float16"), a.astype("f2"))
        same(apply("__truncsfbf2", a, "bfloat16"), a.astype(ml_dtypes.bfloat16))


def test_double_to_half_rounds_once() -> None:
    rng = np.random.default_rng(4)
    halves = ALL_HALVES.view(np.float16).astype("f8")
    halves = halves[np.isfinite(halves)]
    middles = (np.sort(halves)[:-1] + np.sort(halves)[1:]) / 2
    with np.errstate(all="ignore"):
        near = [np.nextafter(middles, s) for s in (-np.inf, np.inf)]
        random = np.ldexp(rng.random(100_000) - 0.5, rng.integers(-160, 140, 100_000))
        a = np.concatenate([halves, middles, *near, random, [np.nan, np.inf, -np.inf, 1e300]])
        same(apply("__truncdfhf2", a, "float16"), a.astype("f2"))


def test_double_to_bfloat_rounds_once() -> None:
    """Just above the middle of two bfloats: rounding to float first would land on the tie."""
    one = np.float64(1.0)
    step = 2.0**-7
    tie = one + step / 2
    a = np.array([tie, np.nextafter(tie, 2), np.nextafter(tie, 0), tie + step, 1e-45, -1e300])
    expected = np.array([1, 1 + step, 1, 1 + 2 * step, 1e-45, -np.inf], ml_dtypes.bfloat16)
    same(apply("__truncdfbf2", a, "bfloat16"), expected)


def test_half_arithmetic_without_instructions_for_it() -> None:
    """The oldest level has none: LLVM calls helpers, and ours are found."""
    text = """
define i32 @tir_B(ptr %a, ptr %b, ptr %info) #0 {
  %x = load half, ptr %a
  %y = fpext half %x to double
  %z = fmul double %y, 3.0
  %h = fptrunc double %z to half
  store half %h, ptr %b
  ret i32 0
}
"""
    from tensorir.ir.dtype import dtype

    kind = dtype("float16")
    arguments = [handmade.given("A", kind, 1), handmade.made("B", kind, 1)]
    k = make_kernel(handmade.source("tir_B", text, arguments, target=cpu.target("x86-64")))
    assert any(name.startswith("__") for name in cpu_device.undefined(k._object))
    assert k(np.array([1.5], "f2"))[0] == 4.5


def test_the_maths_library_is_found() -> None:
    text = """
declare double @tgamma(double)
declare float @llvm.fma.f32(float, float, float)
define i32 @tir_B(ptr %a, ptr %b, ptr %info) #0 {
  %x = load double, ptr %a
  %y = call double @tgamma(double %x)
  %s = fptrunc double %y to float
  %m = call float @llvm.fma.f32(float %s, float 2.0, float 1.0)
  %d = fpext float %m to double
  store double %d, ptr %b
  ret i32 0
}
"""
    from tensorir.ir.dtype import dtype

    kind = dtype("float64")
    arguments = [handmade.given("A", kind, 1), handmade.made("B", kind, 1)]
    k = make_kernel(handmade.source("tir_B", text, arguments, target=cpu.target("x86-64")))
    assert cpu_device.undefined(k._object) and k(np.array([5.0]))[0] == 49.0


def test_memory_functions_are_found() -> None:
    """LLVM calls memset and memcpy of its own accord."""
    text = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define i32 @tir_B(ptr %b, i64 %n, ptr %info) #0 {
  call void @llvm.memset.p0.i64(ptr %b, i8 7, i64 %n, i1 false)
  ret i32 0
}
"""
    from tensorir.ir.dtype import dtype
    from tensorir.ir.expr import Var

    n = Var("n")
    arguments = [handmade.made("B", dtype("uint8"), n)]
    k = make_kernel(handmade.source("tir_B", text, arguments, (n,)))
    np.testing.assert_array_equal(k(np.empty(1000, np.uint8)), np.full(1000, 7))
