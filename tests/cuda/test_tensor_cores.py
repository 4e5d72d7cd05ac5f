"""Matrix tiles of a warp: each type, each way an operand may lie, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tensorir as tir
from tensorir.support.errors import ScheduleError, UnsupportedError

NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32,
         "int8": np.int8}  # fmt: skip


def _product(
    m: int, n: int, k: int, dtype: str = "float16", acc: str = "float32", turned: str = ""
) -> tir.Tensor:
    A = tir.placeholder((k, m) if "A" in turned else (m, k), dtype, name="A")
    B = tir.placeholder((n, k) if "B" in turned else (k, n), dtype, name="B")
    r = tir.reduce_axis(k, name="k")

    def cell(i: tir.Expr, j: tir.Expr) -> tir.Expr:
        a = A[r, i] if "A" in turned else A[i, r]
        b = B[j, r] if "B" in turned else B[r, j]
        return tir.sum(tir.cast(a, acc) * tir.cast(b, acc), axis=r, dtype=acc)

    return tir.compute((m, n), cell, name="C")


def _lanes(C: tir.Tensor, depth: int, *, swizzled: bool = True) -> tir.Schedule:
    """One warp: tiles of 16 by 8 of a block of 32 by 16, up to the instruction."""
    s = tir.schedule(C)
    s = s.split("i", 32, into=("by", "i1")).split("i1", 16, into=("mi", "i2"))
    s = s.split("i2", 8, into=("r", "li"))
    s = s.split("j", 16, into=("bx", "j1")).split("j1", 8, into=("ni", "j2"))
    s = s.split("j2", 2, into=("lj", "c"))
    s = s.reorder("by", "bx", "li", "lj", "mi", "ni", "r", "c").fuse("li", "lj", into="lane")
    s = s.split("k", depth, into=("ko", "kk"))
    s = s.reorder("by", "bx", "ko", "lane", "mi", "ni", "r", "c", "kk")
    s = s.cache_write("C", "local", at="bx", name="acc")
    s = s.transform_layout("acc", lambda i, j: (i // 8, j // 8, i % 8, j % 8))
    s = s.cache_read("A", "shared", at="ko", name="As")
    s = s.cache_read("B", "shared", at="ko", name="Bs")
    s = s.bind("by", "blockIdx.y").bind("bx", "blockIdx.x").bind("lane", "threadIdx.x")
    for name in ("As", "Bs"):
        loops = [x.split()[1] for x in s.loops().splitlines() if f"for {name}." in x]
        s = s.fuse(*loops, into=f"{name}f").split(f"{name}f", 32, into=(f"{name}o", f"{name}x"))
        s = s.bind(f"{name}x", "threadIdx.x")
    s = s.split("acc.store.i", 16, into=("smi", "si")).split("si", 8, into=("sr", "sli"))
    s = s.split("acc.store.j", 8, into=("sni", "sj")).split("sj", 2, into=("slj", "sc"))
    s = s.reorder("sli", "slj", "smi", "sni", "sr", "sc").fuse("sli", "slj", into="sl")
    return s.bind("sl", "threadIdx.x")


def _finished(s: tir.Schedule, name: str) -> tir.Schedule:
    s = s.tensorize("r", name)
    for loop in ("mi", "ni", "C.init.r", "C.init.c", "smi", "sni", "sr", "sc"):
        s = s.unroll(loop)
    return s


def _data(m: int, n: int, k: int, dtype: str, turned: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m + n + k)
    if dtype == "int8":
        a, b = (rng.integers(-9, 9, x).astype(np.int8) for x in ((m, k), (k, n)))
    else:
        a, b = (rng.standard_normal(x).astype(NUMPY[dtype]) for x in ((m, k), (k, n)))
    a = np.ascontiguousarray(a.T) if "A" in turned else a
    return a, np.ascontiguousarray(b.T) if "B" in turned else b


@pytest.mark.parametrize(
    ("name", "dtype", "acc", "depth", "tolerance"),
    [
        ("mma.m16n8k16.f16", "float16", "float32", 16, 1e-4),
        ("mma.m16n8k16.bf16", "bfloat16", "float32", 16, 1e-4),
        ("mma.m16n8k8.tf32", "float32", "float32", 8, 5e-2),
        ("mma.m16n8k32.s8", "int8", "int32", 32, 0),
    ],
)
@pytest.mark.parametrize("turned", ["", "AB"])
def test_each_type(
    name: str, dtype: str, acc: str, depth: int, tolerance: float, turned: str
) -> None:
    m, n, k = 35, 17, 2 * depth
    s = _finished(_lanes(_product(m, n, k, dtype, acc, turned), depth), name)
    kernel = tir.build(s, target="emulator")
    assert kernel.ptx.count("mma.sync") == 4
    a, b = _data(m, n, k, dtype, turned)
    want = (a.T if "A" in turned else a).astype("float64") @ (b.T if "B" in turned else b).astype(
        "float64"
    )
    for seed in range(2):
        kernel.seed = seed
        np.testing.assert_allclose(kernel(a, b), want, rtol=0, atol=tolerance)
    assert not kernel.notes


def test_rows_and_columns_by_ldmatrix() -> None:
    for turned, forms in (("", ["x4", "x2.trans"]), ("AB", ["x4.trans", "x2"])):
        s = _finished(_lanes(_product(32, 16, 32, turned=turned), 16), "mma.m16n8k16.f16")
        ptx = tir.build(s, target="emulator").ptx
        found = {x.split(".m8n8.")[1].split(".shared")[0] for x in ptx.split() if ".m8n8." in x}
        assert found == set(forms)


def test_the_nest_says_so() -> None:
    s = _lanes(_product(32, 16, 32), 16).tensorize("r", "mma.m16n8k16.f16")
    assert "for r in 0..2  # tensorize mma.m16n8k16.f16" in s.loops()
    assert s.trace.steps[-1].text == 'tensorize("r", "mma.m16n8k16.f16")'
    assert s.trace.steps[-1].reassociates


def test_refused() -> None:
    s = _lanes(_product(32, 16, 32), 16)
    with pytest.raises(ScheduleError, match="As is float32, not float16"):
        _lanes(_product(32, 16, 32, "float32"), 16).tensorize("r", "mma.m16n8k16.f16")
    with pytest.raises(ScheduleError, match="from 'mi' on are 2 x 2 x 2 x 2 x 16"):
        s.tensorize("mi", "mma.m16n8k16.f16")
    with pytest.raises(ScheduleError, match="As is float16, not bfloat16"):
        s.tensorize("r", "mma.m16n8k16.bf16")
    with pytest.raises(ScheduleError, match="no instruction 'mma.m16n8k16.f32'"):
        s.tensorize("r", "mma.m16n8k16.f32")
    with pytest.raises(UnsupportedError, match="the last tile is not full along 'kk'"):
        _lanes(_product(32, 16, 40), 16).tensorize("r", "mma.m16n8k16.f16")
    with pytest.raises(ScheduleError, match="moves by"):
        s.reorder("c", "r").tensorize("c", "mma.m16n8k16.f16")


def test_not_on_an_older_gpu() -> None:
    s = _finished(_lanes(_product(32, 16, 32), 16), "mma.m16n8k16.f16")
    with pytest.raises(UnsupportedError, match="mma.m16n8k16.f16 needs sm_80"):
        tir.build(s, target="emulator:sm_75")
