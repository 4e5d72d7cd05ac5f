"""The library's product of matrices for a GPU, at sizes of all kinds."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.cuda.matmul import matmul, params
from schedules.registry import entry_for
from tensorir.codegen import targets

NUMPY = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def _product(m: int, n: int, k: int, dtype: str, turned: str = "") -> tir.Tensor:
    A = tir.placeholder((k, m) if "A" in turned else (m, k), dtype, name="A")
    B = tir.placeholder((n, k) if "B" in turned else (k, n), dtype, name="B")
    r = tir.reduce_axis(k, name="k")

    def cell(i: tir.Expr, j: tir.Expr) -> tir.Expr:
        a, b = A[r, i] if "A" in turned else A[i, r], B[j, r] if "B" in turned else B[r, j]
        return tir.sum(tir.cast(a, "float32") * tir.cast(b, "float32"), axis=r, dtype="float32")

    return tir.compute((m, n), cell, name="C")


def _check(s: tir.Schedule, m: int, n: int, k: int, dtype: str, turned: str = "") -> tir.Kernel:
    kernel = tir.build(s, target="emulator")
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal(x).astype(NUMPY[dtype]) for x in ((m, k), (k, n)))
    want = a.astype("float64") @ b.astype("float64")
    a = np.ascontiguousarray(a.T) if "A" in turned else a
    b = np.ascontiguousarray(b.T) if "B" in turned else b
    np.testing.assert_allclose(kernel(a, b), want, rtol=1e-4, atol=1e-3)
    return kernel


@pytest.mark.parametrize("turned", ["", "A", "B"])
@pytest.mark.parametrize("sizes", [(64, 64, 192), (65, 70, 33), (40, 33, 130)])
def test_on_the_tensor_cores(sizes: tuple[int, int, int], turned: str) -> None:
    m, n, k = sizes
    s = matmul(tir.schedule(_product(m, n, k, "float16", turned)), "emulator")
    kernel = _check(s, m, n, k, "float16", turned)
    assert "mma.sync.aligned.m16n8k16" in kernel.ptx
    assert not any("loops in place" in x for x in kernel.notes)


def test_what_a_block_of_the_tensor_cores_does() -> None:
    s = matmul(tir.schedule(_product(128, 128, 256, "bfloat16")), "emulator")
    kernel = _check(s, 128, 128, 256, "bfloat16")
    (report,) = kernel.reports
    assert (report.bank_conflicts, report.extra_sectors) == (0, 0)
    assert kernel.ptx.count("bar.sync") == 1
    assert kernel.ptx.count("cp.async.cg.shared.global") == 8
    assert kernel.ptx.count("mma.sync") == 64
    assert not kernel.notes


@pytest.mark.parametrize("sizes", [(61, 67, 33), (16, 130, 7)])
def test_in_threads(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    s = matmul(tir.schedule(_product(m, n, k, "float32")), "emulator")
    _check(s, m, n, k, "float32")


def test_what_a_block_of_threads_does() -> None:
    kernel = _check(
        matmul(tir.schedule(_product(64, 64, 48, "float32")), "emulator"), 64, 64, 48, "float32"
    )
    assert kernel.reports[0].bank_conflicts == 0
    assert kernel.ptx.count("ld.shared.v4") == 64
    assert "ld.shared.b32" not in kernel.ptx
    assert kernel.ptx.count("bar.sync") == 1


def test_any_parameters() -> None:
    where = targets.resolve("emulator")
    rng = np.random.default_rng(7)
    for dtype in ("float16", "float32"):
        m, n, k = 97, 72, 65
        for _ in range(2):
            drawn = {p.name: int(rng.choice(p.values)) for p in params(where, 4, m, n)}
            if dtype == "float16":
                drawn |= {"bm": 32, "bk": 32}
            print(dtype, drawn)
            s = matmul(tir.schedule(_product(m, n, k, dtype)), where, **drawn)
            _check(s, m, n, k, dtype)


def test_recognised() -> None:
    assert entry_for(tir.schedule(_product(64, 64, 64, "float16")), "cuda").name == "cuda-matmul"
    kernel = schedules.build("matmul", (40, 24), (24, 48), target="emulator")
    a, b = (np.random.default_rng(0).standard_normal(x).astype("f4") for x in ((40, 24), (24, 48)))
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)
    kernel = schedules.build("matmul", (2, 40, 24), (2, 24, 48), target="emulator")
    a, b = (np.random.default_rng(0).standard_normal(x).astype("f4")
            for x in ((2, 40, 24), (2, 24, 48)))  # fmt: skip
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)
