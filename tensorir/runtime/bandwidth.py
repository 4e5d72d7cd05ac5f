"""How fast memory is, measured: the roof of whatever moves bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorir.codegen import cpu, llvm
from tensorir.ir.dtype import FLOAT32

STEP = 8  # vectors of each array in a step
_PAGE = 4096
_ONCE = 1 << 20  # bytes that a call moves at least, so that calling is nothing


def streams(size: int, reads: int, writes: int) -> tuple[dict[str, Callable[[], object]], int]:
    """Loops that read and write so many arrays of `size` bytes, of random numbers.

    Parameters
    ----------
    size
        Bytes of each array, rounded down to whole steps of the loop.
    reads, writes
        How many arrays are summed, and how many get the sum.

    Returns
    -------
    calls
        `stream` has plain stores, `stream nt`, where something is written, stores that go past the
        caches. The faster one is the roof; interleave it with what is measured against it. Numbers
        are random: stores of zeros look twice as fast on some processors.
    passes
        How often a call goes over the arrays: small ones, in a cache, more than once.

    Examples
    --------
    >>> calls, passes = streams(1 << 16, 2, 1)
    >>> [run() for run in calls.values()], [*calls], passes
    ([None, None], ['stream', 'stream nt'], 5)
    """
    target = cpu.target("native")
    llvm.require_runs_here(target)
    lanes = target.lanes(FLOAT32)
    block = 4 * lanes * STEP
    count = max(1, size // block)
    rng = np.random.default_rng(3)
    arrays = [_aligned(count * block, rng) for _ in range(reads + writes)]
    sink = _aligned(block, rng)
    passes = max(1, _ONCE // (count * block * len(arrays)))
    out: dict[str, Callable[[], object]] = {}
    for name, temporal in (("stream", True), ("stream nt", False)):
        if not writes and not temporal:
            continue
        text = _text(lanes, reads, writes, temporal)
        library = llvm.link(llvm.compile_object(cpu.module(text, target), target), ["stream"], {})
        out[name] = _caller(library, [*arrays, sink], count, passes)
    return out, passes


def _caller(
    library: llvm.Library, arrays: list[NDArray[Any]], count: int, passes: int
) -> Callable[[], object]:
    kinds = [ctypes.c_void_p] * len(arrays) + [ctypes.c_int64] * 2
    call = ctypes.CFUNCTYPE(None, *kinds)(library["stream"])
    pointers = [x.ctypes.data for x in arrays]

    def run(_keep: object = (library, arrays)) -> None:
        call(*pointers, count, passes)

    return run


def _aligned(size: int, rng: np.random.Generator) -> NDArray[Any]:
    raw = rng.integers(0, 1 << 30, (size + _PAGE) // 4, np.int32).view(np.float32)
    start = -raw.ctypes.data % _PAGE // 4
    return raw[start : start + size // 4]


def _text(lanes: int, reads: int, writes: int, temporal: bool) -> str:
    vector, size = f"<{lanes} x float>", 4 * lanes
    names = [f"r{k}" for k in range(reads)] + [f"w{k}" for k in range(writes)]
    mark = "" if temporal else ", !nontemporal !1"
    out = ["define void @stream("]
    out[0] += ", ".join(f"ptr noalias %{x}" for x in [*names, "sink"]) + ", i64 %n, i64 %m) #0 {"
    out += ["entry:", "  br label %pass", "pass:", "  %j = phi i64 [0, %entry], [%jx, %next]"]
    out += [
        f"  %a{s} = phi {vector} [zeroinitializer, %entry], [%u{s}, %next]" for s in range(STEP)
    ]
    out += ["  br label %l", "l:", "  %i = phi i64 [0, %pass], [%nx, %l]"]
    out += [f"  %t{s} = phi {vector} [%a{s}, %pass], [%u{s}, %l]" for s in range(STEP)]
    out.append(f"  %base = mul i64 %i, {size * STEP}")
    for s in range(STEP):
        out.append(f"  %o{s} = add i64 %base, {size * s}")
        total = "zeroinitializer" if writes else f"%t{s}"
        for k in range(reads):
            out.append(f"  %p{k}_{s} = getelementptr i8, ptr %r{k}, i64 %o{s}")
            out.append(f"  %v{k}_{s} = load {vector}, ptr %p{k}_{s}, align {size}")
            out.append(f"  %s{k}_{s} = fadd {vector} {total}, %v{k}_{s}")
            total = f"%s{k}_{s}"
        for k in range(writes):
            out.append(f"  %q{k}_{s} = getelementptr i8, ptr %w{k}, i64 %o{s}")
            out.append(f"  store {vector} {total}, ptr %q{k}_{s}, align {size}{mark}")
        out.append(f"  %u{s} = fadd {vector} {total}, zeroinitializer")
    out += ["  %nx = add i64 %i, 1", "  %c = icmp slt i64 %nx, %n"]
    out += ["  br i1 %c, label %l, label %next, !llvm.loop !0", "next:"]
    out += ["  %jx = add i64 %j, 1", "  %d = icmp slt i64 %jx, %m"]
    out += ["  br i1 %d, label %pass, label %x", "x:"]
    for s in range(STEP):
        out.append(f"  %z{s} = getelementptr i8, ptr %sink, i64 {size * s}")
        out.append(f"  store {vector} %u{s}, ptr %z{s}, align {size}")
    out += ["  ret void", "}", "!0 = distinct !{!0, !2}", "!1 = !{i32 1}"]
    out.append('!2 = !{!"llvm.loop.unroll.disable"}')
    return "\n".join(out) + "\n"
