"""How fast the PTX emulator runs, with all its checks and without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import tensorir as tir
from tests.benchmarks.figures import Row, product
from tests.benchmarks.measure import interleaved


def square(s: tir.Schedule, t: int = 16) -> tir.Schedule:
    """16x16 tiles"""
    s = s.tile("i", "j", t, t, into=("by", "bx", "ty", "tx"))
    s = s.split("k", t, into=("ko", "ki")).reorder("by", "bx", "ko", "ty", "tx", "ki")
    s = s.cache_write("C", "local", at="bx", name="acc")
    s = s.cache_read("A", "shared", at="ko", name="As").cache_read(
        "B", "shared", at="ko", name="Bs"
    )
    s = s.bind("by", "blockIdx.y").bind("bx", "blockIdx.x")
    for axis in ("ty", "As.i", "Bs.k", "acc.store.i"):
        s = s.bind(axis, "threadIdx.y")
    for axis in ("tx", "As.k", "Bs.j", "acc.store.j"):
        s = s.bind(axis, "threadIdx.x")
    return s


def registers(
    s: tir.Schedule, bm: int = 64, bn: int = 64, bk: int = 16, tm: int = 4, tn: int = 4
) -> tir.Schedule:
    """4x4 registers"""
    s = s.split("i", bm, into=("by", "i1")).split("i1", tm, into=("ty", "ii"))
    s = s.split("j", bn, into=("bx", "j1")).split("j1", tn, into=("tx", "ji"))
    s = s.reorder("by", "bx", "ty", "tx", "ii", "ji").split("k", bk, into=("ko", "ki"))
    s = s.reorder("by", "bx", "ko", "ty", "tx", "ki", "ii", "ji")
    s = s.cache_write("C", "local", at="bx", name="acc")
    s = s.cache_read("A", "shared", at="ko", name="As").cache_read(
        "B", "shared", at="ko", name="Bs"
    )
    s = s.bind("by", "blockIdx.y").bind("bx", "blockIdx.x").bind("ty", "threadIdx.y")
    s = s.bind("tx", "threadIdx.x").unroll("ii").vectorize("ji", tn)
    s = s.split("acc.store.i", tm, into=("sy", "si")).split("acc.store.j", tn, into=("sx", "sj"))
    s = s.reorder("sy", "sx", "si", "sj").bind("sy", "threadIdx.y").bind("sx", "threadIdx.x")
    s = s.unroll("si").vectorize("sj", tn)
    s = s.split("As.i", bm // tm, into=("ao", "ai")).bind("ai", "threadIdx.y")
    s = s.bind("As.k", "threadIdx.x").split("Bs.j", bn // tn, into=("bo", "bi"))
    return s.bind("bi", "threadIdx.x").bind("Bs.k", "threadIdx.y")


# kernel, sizes, and the seconds that it may take without checks and with all
CASES = (
    (square, (256, 256, 256), 0.4, 2.0),
    (square, (250, 255, 253), 0.6, 3.0),
    (registers, (127, 130, 65), 0.5, 1.0),
)


def rows() -> Iterator[Row]:
    """The figures, once the results are known to be right."""
    for make, (m, n, k), plain, checked in CASES:
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
        kernel = tir.build(make(product(m, n, k)), target="emulator:sm_80")

        def call(checks: bool, f: Any = kernel, a: Any = a, b: Any = b) -> Any:
            f.checks = checks
            return f(a, b)

        np.testing.assert_allclose(call(True), a @ b, rtol=1e-3, atol=1e-3)
        instructions = kernel.reports[0].instructions
        t = interleaved(
            {"plain": lambda c=call: c(False), "checked": lambda c=call: c(True)},
            rounds=3, clock=time.perf_counter,
        )  # fmt: skip
        what = f"emulated matmul {m}x{n}x{k}, {make.__doc__}"
        yield Row(f"{what}, no checks", t["plain"], "s", plain, True)
        speed = f"{instructions / t['checked'] / 1e6:.2f} M instructions of warps a second"
        yield Row(f"{what}, all checks", t["checked"], "s", checked, True, speed)
