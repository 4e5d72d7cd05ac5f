"""Matrix times vector, the matrix stored either way."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.cpu.gemv import gemv, params
from tensorir import ops
from tensorir.codegen import cpu


def declare(m: object, n: object, *, transpose: bool, dtype: str = "float32") -> tir.Tensor:
    A = tir.placeholder((n, m) if transpose else (m, n), dtype, name="A")
    return ops.gemv(A, tir.placeholder((n,), dtype, name="x"), transpose=transpose, name="y")


def arrays(m: int, n: int, *, transpose: bool, dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (n, m) if transpose else (m, n)
    return [rng.standard_normal(s).astype(dtype) for s in (shape, (n,))]


@pytest.mark.parametrize("name", ["native", "x86-64-v3"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (4, 32), (7, 100), (101, 35), (5, 3)])
def test_sizes_that_do_not_divide(size: tuple[int, int], transpose: bool, name: str) -> None:
    target = cpu.target(name)
    kernel = tir.build(
        gemv(tir.schedule(declare(*size, transpose=transpose)), target), target=target
    )
    kernel.check(
        *arrays(*size, transpose=transpose), against=lambda a, x: (a.T if transpose else a) @ x
    )


@pytest.mark.parametrize("transpose", [False, True])
def test_symbolic_sizes(transpose: bool) -> None:
    kernel = tir.build(gemv(tir.schedule(declare(tir.var("m"), tir.var("n"), transpose=transpose))))
    for size in ((1, 1), (30, 70), (129, 64), (0, 4), (4, 0)):
        kernel.check(
            *arrays(*size, transpose=transpose), against=lambda a, x: (a.T if transpose else a) @ x
        )


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_any_parameters(seed: int, transpose: bool) -> None:
    rng = Random(seed)
    chosen = {p.name: rng.choice(p.values) for p in params(cpu.target("native"))}
    size = (rng.randint(1, 90), rng.randint(1, 90))
    s = gemv(tir.schedule(declare(*size, transpose=transpose)), parallel=False, **chosen)
    tir.build(s).check(
        *arrays(*size, transpose=transpose), against=lambda a, x: (a.T if transpose else a) @ x
    )


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types(dtype: str, transpose: bool) -> None:
    a, x = arrays(30, 50, transpose=transpose, dtype=dtype)
    got = tir.build(gemv(tir.schedule(declare(30, 50, transpose=transpose, dtype=dtype))))(a, x)
    want = (a.T if transpose else a).astype("float64") @ x.astype("float64")
    np.testing.assert_allclose(got.astype("float64"), want, rtol=2e-3, atol=5e-3)


def test_vectors_on_either_side_and_batches_of_them() -> None:
    rng = np.random.default_rng(0)
    x, m = rng.standard_normal(50, np.float32), rng.standard_normal((50, 70), np.float32)
    schedules.build("matmul", x, m).check(x, m, against=np.matmul)
    many, each = (rng.standard_normal(s, np.float32) for s in ((4, 30, 50), (4, 50)))
    kernel = schedules.build("einsum", "bij,bj->bi", many, each)
    kernel.check(many, each, against=lambda a, x: np.einsum("bij,bj->bi", a, x))


def test_rows_share_what_they_read_of_the_vector() -> None:
    s = gemv(tir.schedule(declare(64, 512, transpose=False)), "znver4", rows=4, accumulators=2)
    kernel = tir.build(s, target="znver4")
    assert "gather" not in kernel.llvm
    assert not [n for n in kernel.notes if "gather" in n]


def test_something_else_is_refused() -> None:
    A, B = tir.placeholder((4, 5), name="A"), tir.placeholder((5, 6), name="B")
    with pytest.raises(tir.ArgumentError, match="gemv: expected one stage"):
        gemv(tir.schedule(ops.matmul(A, B)))
