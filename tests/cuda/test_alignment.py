"""Vector accesses of a GPU: 16 bytes at once where addresses are known to be multiples of that."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tests.cuda.programs import tiled


def _scaled(n: object, dtype: str = "float32", width: int = 4, begin: int = 0) -> tir.Schedule:
    A = tir.placeholder((n,), dtype, name="A")
    B = tir.compute((n - begin,), lambda i: A[i + begin] + A[i + begin], name="B")  # type: ignore[operator]
    s = tir.schedule(B).split("i", 32 * width, into=("b", "r")).split("r", width, into=("t", "v"))
    return s.bind("b", "blockIdx.x").bind("t", "threadIdx.x").vectorize("v")


@pytest.mark.parametrize("n", [4096, 4100, 1001])
def test_neighbours_are_one_access(n: int) -> None:
    kernel = tir.build(_scaled(n), target="emulator")
    assert "ld.global.nc.v4.b32" in kernel.ptx and "st.global.v4.b32" in kernel.ptx
    x = np.random.default_rng(n).standard_normal(n).astype("float32")
    np.testing.assert_array_equal(kernel(x), x + x)
    assert kernel.reports[0].extra_sectors == 0


@pytest.mark.parametrize("dtype, width, wide", [
    ("float64", 2, "v2.b64"), ("int8", 16, "v4.b32"), ("int16", 8, "v4.b32"),
    ("float16", 8, "v4.b32"), ("int32", 2, "v2.b32"),
])  # fmt: skip
def test_types(dtype: str, width: int, wide: str) -> None:
    kernel = tir.build(_scaled(1024, dtype, width), target="emulator")
    assert f"ld.global.nc.{wide}" in kernel.ptx and f"st.global.{wide}" in kernel.ptx


@pytest.mark.parametrize("begin, wide", [(4, ".v4.b32"), (2, ".v2.b32"), (1, None)])
def test_where_a_view_begins(begin: int, wide: str | None) -> None:
    kernel = tir.build(_scaled(1024 + begin, begin=begin), target="emulator")
    loads = [x for x in kernel.ptx.splitlines() if "ld.global" in x]
    assert all(".v" not in x for x in loads) if wide is None else wide in loads[0]
    x = np.arange(1024 + begin, dtype="float32")
    np.testing.assert_array_equal(kernel(x), 2 * x[begin:])


def test_rows_of_unknown_length() -> None:
    A = tir.placeholder((8, tir.var("n")), name="A")
    B = tir.compute(A.shape, lambda i, j: A[i, j] * 2.0, name="B")
    s = tir.schedule(B).bind("i", "blockIdx.x").split("j", 4, into=("t", "v"))
    s = s.split("t", 32, into=("o", "t")).bind("t", "threadIdx.x").vectorize("v")
    kernel = tir.build(s, target="emulator")
    assert ".v4" not in kernel.ptx and ".v2" not in kernel.ptx
    x = np.random.default_rng(1).standard_normal((8, 71)).astype("float32")
    np.testing.assert_array_equal(kernel(x), 2 * x)


def test_shared_memory() -> None:
    kernel = tir.build(tiled(128, 128, 64), target="emulator")
    assert "ld.shared.v4.b32" in kernel.ptx and "st.global.v4.b32" in kernel.ptx


def test_a_condition_of_all_lanes_takes_nothing_apart() -> None:
    """What fills a shared buffer to its edge loads whole vectors or none."""
    A = tir.placeholder((4, 1000), name="A")
    T = tir.compute(A.shape, lambda i, j: A[i, j] + 1.0, name="T")
    B = tir.compute(A.shape, lambda i, j: T[i, j] * 2.0, name="B")
    s = tir.schedule(B).compute_at("T", "B.i").bind("B.i", "blockIdx.x").set_scope("T", "shared")
    for axis in ("T.j", "B.j"):
        o, r, t, v = (f"{axis[0]}{x}" for x in "ortv")
        s = s.split(axis, 512, into=(o, r)).split(r, 4, into=(t, v))
        s = s.bind(t, "threadIdx.x").vectorize(v)
    kernel = tir.build(s, target="emulator")
    loads = [x.split()[0] for x in kernel.ptx.splitlines() if "ld.global" in x]
    assert set(loads) == {"ld.global.nc.v4.b32"}
    x = np.random.default_rng(2).standard_normal((4, 1000)).astype("float32")
    np.testing.assert_array_equal(kernel(x), (x + 1) * 2)
