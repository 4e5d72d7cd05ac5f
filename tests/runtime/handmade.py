"""Kernels written by hand in LLVM text: they test the call, not the compiler."""

from __future__ import annotations

from tensorir.codegen import cpu
from tensorir.codegen.source import Argument, Check, KernelSource
from tensorir.ir.affine import Lin, lin
from tensorir.ir.dtype import DType, dtype
from tensorir.ir.expr import Var
from tensorir.ir.target import Target

HERE = cpu.target("native")
F32 = dtype("float32")

_LOOP = """
define i32 @{name}({params}, ptr %info) #0 {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, {count}
  br i1 %more, label %body, label %done
body:
{body}
  %next = add i64 %i, 1
  br label %head
done:
  ret i32 0
}}
"""


def shape(*extents: int | Var | Lin) -> tuple[Lin, ...]:
    return tuple(lin(e) for e in extents)


def source(
    name: str,
    text: str,
    arguments: list[Argument],
    sizes: tuple[Var, ...] = (),
    target: Target = HERE,
    **more: object,
) -> KernelSource:
    return KernelSource(name, text, tuple(arguments), sizes, target, **more)  # type: ignore[arg-type]


def given(name: str, kind: DType, *extents: int | Var | Lin) -> Argument:
    return Argument(name, kind, shape(*extents), "input")


def made(name: str, kind: DType, *extents: int | Var | Lin, **more: object) -> Argument:
    return Argument(name, kind, shape(*extents), "output", **more)  # type: ignore[arg-type]


def add(n: int = 8, target: Target = HERE, **more: object) -> KernelSource:
    """C[i] = A[i] + B[i], n a constant; C may be A."""
    body = """  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %pc = getelementptr float, ptr %c, i64 %i
  %x = load float, ptr %pa
  %y = load float, ptr %pb
  %z = fadd float %x, %y
  store float %z, ptr %pc"""
    text = _LOOP.format(name="tir_C", params="ptr %a, ptr %b, ptr %c", count=n, body=body)
    arguments = [given("A", F32, n), given("B", F32, n), made("C", F32, n, in_place=("A",))]
    more = {"operations": ((n, ()),), "bytes_moved": ((12 * n, ()),), **more}
    return source("tir_C", text, arguments, target=target, **more)


def copy(kind: str, *extents: int) -> KernelSource:
    """B[...] = A[...], byte by byte, any element type, constant shape."""
    total = dtype(kind).bytes
    for e in extents:
        total *= e
    body = """  %pa = getelementptr i8, ptr %a, i64 %i
  %pb = getelementptr i8, ptr %b, i64 %i
  %x = load i8, ptr %pa
  store i8 %x, ptr %pb"""
    text = _LOOP.format(name="tir_B", params="ptr %a, ptr %b", count=total, body=body)
    return source(
        "tir_B", text, [given("A", dtype(kind), *extents), made("B", dtype(kind), *extents)]
    )


def crop() -> KernelSource:
    """B[i, j] = A[i + 1, j + 1], A of shape (n + 2, 2*m + 2), B of (n, 2*m): sizes to be solved."""
    n, m = Var("n"), Var("m")
    body = """  %w = mul i64 %m, 2
  %r = sdiv i64 %i, %w
  %k = srem i64 %i, %w
  %r1 = add i64 %r, 1
  %k1 = add i64 %k, 1
  %w2 = add i64 %w, 2
  %row = mul i64 %r1, %w2
  %at = add i64 %row, %k1
  %pa = getelementptr float, ptr %a, i64 %at
  %pb = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %pa
  store float %x, ptr %pb"""
    text = _LOOP.format(
        name="tir_B", params="ptr %a, ptr %b, i64 %n, i64 %m", count="%total", body=body
    ).replace("entry:\n", "entry:\n  %w0 = mul i64 %m, 2\n  %total = mul i64 %n, %w0\n")
    arguments = [
        given("A", F32, lin(n) + 2, lin(m) * 2 + 2),
        made("B", F32, n, lin(m) * 2),
    ]
    work = ((4, (lin(n), lin(m))),)
    return source("tir_B", text, arguments, (n, m), bytes_moved=work)


def scale(**more: object) -> KernelSource:
    """B[i] = 2 * A[i], n symbolic."""
    n = Var("n")
    body = """  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %pa
  %z = fmul float %x, 2.0
  store float %z, ptr %pb"""
    text = _LOOP.format(name="tir_B", params="ptr %a, ptr %b, i64 %n", count="%n", body=body)
    arguments = [given("A", F32, n), made("B", F32, n)]
    operations = ((1, (lin(n),)),)
    more = {"operations": operations, **more}
    return source("tir_B", text, arguments, (n,), **more)


def count_up() -> KernelSource:
    """C[i] = i: a size that only the output has."""
    n = Var("n")
    body = """  %p = getelementptr i64, ptr %c, i64 %i
  store i64 %i, ptr %p"""
    text = _LOOP.format(name="tir_C", params="ptr %c, i64 %n", count="%n", body=body)
    return source("tir_C", text, [made("C", dtype("int64"), n)], (n,))


def first_cell() -> KernelSource:
    """C[0] = A[0] and nothing else: a partial output of shape (n,)."""
    n = Var("n")
    text = """
define i32 @tir_C(ptr %a, ptr %c, i64 %n, ptr %info) #0 {
  %x = load float, ptr %a
  store float %x, ptr %c
  ret i32 0
}
"""
    return source("tir_C", text, [given("A", F32, n), made("C", F32, n, partial=True)], (n,))


def both() -> KernelSource:
    """S = A + A, D = A - A, 0-d each; the order of arguments is D, A, S."""
    text = """
define i32 @tir_S(ptr %d, ptr %a, ptr %s, ptr %info) #0 {
  %x = load double, ptr %a
  %p = fadd double %x, %x
  %m = fsub double %x, %x
  store double %p, ptr %s
  store double %m, ptr %d
  ret i32 0
}
"""
    f64 = dtype("float64")
    return source("tir_S", text, [made("D", f64), given("A", f64), made("S", f64)])


def positive() -> KernelSource:
    """B = A, refused where A is negative: a check with two of its four values."""
    text = """
define i32 @tir_B(ptr %a, ptr %b, ptr %info) #0 {
  %x = load i64, ptr %a
  %bad = icmp slt i64 %x, 0
  br i1 %bad, label %fail, label %fine
fail:
  store i64 %x, ptr %info
  %p = getelementptr i64, ptr %info, i64 1
  store i64 7, ptr %p
  ret i32 2
fine:
  store i64 %x, ptr %b
  ret i32 0
}
"""
    i64 = dtype("int64")
    checks = (Check("never"), Check("index {0} of A[{1}] is negative"))
    return source("tir_B", text, [given("A", i64, 1), made("B", i64, 1)], checks=checks)


def parallel(steps: int = 1 << 12) -> KernelSource:
    """C[i] = A[i] squared, by the rules of `runtime.threads`; N[0] is how many threads did it."""
    text = """
@tir_threads = external global i32
@tir_region_busy = external global i32
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
define internal void @share(ptr %context) #0 {
entry:
  %a = load ptr, ptr %context
  %pc = getelementptr ptr, ptr %context, i64 1
  %c = load ptr, ptr %pc
  %pn = getelementptr ptr, ptr %context, i64 2
  %n = load ptr, ptr %pn
  %t = call i32 @omp_get_thread_num()
  %threads = call i32 @omp_get_num_threads()
  %t64 = sext i32 %t to i64
  %nt64 = sext i32 %threads to i64
  store i32 %threads, ptr %n
  %a0 = mul i64 %t64, STEPS
  %lo = sdiv i64 %a0, %nt64
  %t1 = add i64 %t64, 1
  %a1 = mul i64 %t1, STEPS
  %hi = sdiv i64 %a1, %nt64
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %pa = getelementptr i64, ptr %a, i64 %i
  %po = getelementptr i64, ptr %c, i64 %i
  %x = load i64, ptr %pa
  %y = mul i64 %x, %x
  store i64 %y, ptr %po
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
define i32 @tir_C(ptr %a, ptr %c, ptr %n, ptr %info) #0 {
entry:
  %context = alloca [3 x ptr]
  store ptr %a, ptr %context
  %pc = getelementptr ptr, ptr %context, i64 1
  store ptr %c, ptr %pc
  %pn = getelementptr ptr, ptr %context, i64 2
  store ptr %n, ptr %pn
  %threads = load i32, ptr @tir_threads
  %several = icmp sgt i32 %threads, 1
  br i1 %several, label %try, label %serial
try:
  %pair = cmpxchg ptr @tir_region_busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %region, label %serial
region:
  call void @GOMP_parallel(ptr @share, ptr %context, i32 %threads, i32 0)
  store atomic i32 0, ptr @tir_region_busy release, align 4
  ret i32 0
serial:
  call void @share(ptr %context)
  ret i32 0
}
""".replace("STEPS", str(steps))
    i64, i32 = dtype("int64"), dtype("int32")
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "tir_threads",
             "tir_region_busy")  # fmt: skip
    arguments = [given("A", i64, steps), made("C", i64, steps), made("N", i32, 1)]
    return source("tir_C", text, arguments, parallel=True, imports=names,
                  operations=((steps * 100, ()),))  # fmt: skip
