"""Products of small constant sizes: tiles in registers, exact edges, batches."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.cpu.small import params, small_matmul
from schedules.cpu.tiling import tile_of
from tensorir import ops
from tensorir.codegen import cpu


def declare(*shapes: tuple[int, ...], dtype: str = "float32", **options: object) -> tir.Tensor:
    A, B = (tir.placeholder(s, dtype, name=n) for s, n in zip(shapes, "AB", strict=True))
    return ops.matmul(A, B, name="C", **options)


def operands(*shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("name", ["native", "x86-64-v3"])
@pytest.mark.parametrize("size", [(1, 1, 1), (5, 16, 3), (17, 33, 9), (64, 80, 7), (13, 100, 64)])
def test_sizes_that_do_not_divide(size: tuple[int, int, int], name: str) -> None:
    m, n, k = size
    target = cpu.target(name)
    s = small_matmul(tir.schedule(declare((m, k), (k, n))), target)
    tir.build(s, target=target).check(*operands((m, k), (k, n)), against=lambda a, b: a @ b)


@pytest.mark.parametrize("seed", range(6))
def test_any_parameters(seed: int) -> None:
    rng = Random(seed)
    target = cpu.target("native")
    chosen = {p.name: rng.choice(p.values) for p in params(target)}
    m, n, k = (rng.randint(1, 60) for _ in range(3))
    s = small_matmul(tir.schedule(declare((m, k), (k, n))), parallel=bool(seed % 2), **chosen)
    tir.build(s).check(*operands((m, k), (k, n)), against=lambda a, b: a @ b)


def test_the_sum_starts_in_registers_and_is_stored_once() -> None:
    s = small_matmul(tir.schedule(declare((32, 32), (32, 32))), "znver4")
    kernel = tir.build(s, target="znver4")
    assert kernel.llvm.count("store <16 x float>") - kernel.llvm.count("acc") <= 16
    assert "memset" not in kernel.llvm
    assert ".load." not in str(s)


def test_the_tile_leaves_little_beyond_the_edges() -> None:
    v4 = cpu.target("znver4")
    assert tile_of(v4, 16, 16, 16, 16) == (16, 1)
    assert tile_of(v4, 16, 3, 1000)[0] == 3
    for rows, columns in ((1, 1), (7, 300), (1000, 5), (None, 48), (48, None)):
        mr, nv = tile_of(v4, 16, rows, columns)
        assert mr * nv + nv + 1 <= v4.vector_registers


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_other_types(dtype: str) -> None:
    a, b = operands((13, 21), (21, 37), dtype="float64")
    a, b = ((4 * x).astype(dtype) for x in (a, b))
    got = tir.build(small_matmul(tir.schedule(declare(a.shape, b.shape, dtype=dtype))))(a, b)
    want = (a.astype("float64") @ b.astype("float64")).astype(dtype)
    np.testing.assert_allclose(got.astype("float64"), want.astype("float64"), rtol=2e-3)


def test_the_registry_takes_it_where_all_is_small() -> None:
    small = schedules.schedule_for(declare((100, 100), (100, 100)))
    assert not [a.name for a in small.axes if a.name.startswith("strip")]
    large = schedules.schedule_for(declare((500, 100), (100, 3000)))
    assert [a.name for a in large.axes if a.name.startswith("strip")]


def test_something_else_is_refused() -> None:
    with pytest.raises(tir.ArgumentError, match="small_matmul: expected one stage"):
        small_matmul(tir.schedule(declare((4, 5), (6, 5), transpose_b=True)))


@pytest.mark.parametrize(
    ("rows", "columns", "copied"),
    [(8, 4096, False), (40, 1000, False), (40, 1024, True), (400, 1000, True)],
)
def test_few_rows_are_not_worth_a_copy(rows: int, columns: int, copied: bool) -> None:
    s = schedules.schedule_for(declare((rows, 300), (300, columns)))
    assert bool([a.name for a in s.axes if a.name.startswith("strip")]) == copied
