"""What this machine can do at most, measured: the roof that shares are taken of."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from tensorir.codegen import cpu, llvm
from tensorir.ir.dtype import FLOAT32, DType
from tensorir.ir.target import Target

ACCUMULATORS = 24  # more than latency times units on any processor here, fewer than registers
STEPS = 20_000


def fma_peak(
    target: Target | None = None, dtype: DType = FLOAT32
) -> tuple[Callable[[], None], int]:
    """A function that does nothing but fused multiply-adds, and the operations of one call.

    Divide the operations by the best time of a call for the peak of one thread, in operations a
    second; interleave it with what is measured against it.

    Examples
    --------
    >>> run, operations = fma_peak()
    >>> run(); operations > 0
    True
    """
    where = target if target is not None else cpu.target("native")
    llvm.require_runs_here(where)
    lanes = where.lanes(dtype)
    count = min(ACCUMULATORS, where.vector_registers - 4)
    text = _text(f"<{lanes} x {'float' if dtype == FLOAT32 else 'double'}>", lanes, dtype, count)
    library = llvm.link(llvm.compile_object(cpu.module(text, where), where), ["peak"], {})
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library["peak"])
    room = (ctypes.c_double * (count * 8))(*[0.3] * (count * 8))

    def run() -> None:
        assert library is not None  # the code lives as long as this function
        call(ctypes.addressof(room), STEPS)

    return run, 2 * lanes * count * STEPS


def _text(vector: str, lanes: int, dtype: DType, count: int) -> str:
    fma = f"@llvm.fma.v{lanes}f{dtype.bits}"
    size = lanes * dtype.bytes
    out = [f"declare {vector} {fma}({vector}, {vector}, {vector})"]
    out += ["define void @peak(ptr %p, i64 %n) #0 {", "entry:"]
    for i in range(count):
        out.append(f"  %a{i} = getelementptr i8, ptr %p, i64 {size * i}")
        out.append(f"  %v{i} = load {vector}, ptr %a{i}, align 8")
    out += ["  br label %l", "l:", "  %i = phi i64 [0, %entry], [%nx, %l]"]
    out += [f"  %x{i} = phi {vector} [%v{i}, %entry], [%y{i}, %l]" for i in range(count)]
    out += [
        f"  %y{i} = call {vector} {fma}({vector} %x{i}, {vector} %v0, {vector} %v1)"
        for i in range(count)
    ]
    out += ["  %nx = add i64 %i, 1", "  %c = icmp slt i64 %nx, %n"]
    out += ["  br i1 %c, label %l, label %x, !llvm.loop !0", "x:"]
    out += [f"  store {vector} %y{i}, ptr %a{i}, align 8" for i in range(count)]
    out += ["  ret void", "}", "!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}']
    return "\n".join(out) + "\n"
