"""What follows a matmul done on the tile that was just computed: nothing is stored in between."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir

SIZES = [(1, 1, 1), (6, 32, 16), (7, 33, 17), (64, 64, 64), (5, 3, 0), (13, 100, 9)]
MR, NR = 6, 32


def declare(m: object, n: object, k: object) -> tir.Tensor:
    """`relu(A @ B + bias)` in two stages."""
    A, B = tir.placeholder((m, k), name="A"), tir.placeholder((k, n), name="B")
    bias = tir.placeholder((n,), name="bias")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")
    return tir.compute((m, n), lambda i, j: tir.maximum(C[i, j] + bias[j], 0.0), name="D")


def reference(a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return np.maximum(a @ b + bias, 0)


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(m + n + k)
    return tuple(rng.standard_normal(s).astype("float32") for s in ((m, k), (k, n), (n,)))


def tiled(s: tir.Schedule) -> tir.Schedule:
    s = s.tile("C.i", "C.j", MR, NR, into=("io", "jo", "ii", "ji"))
    return s.reorder("io", "jo", "C.k", "ii", "ji")


def cached_first(s: tir.Schedule) -> tir.Schedule:
    return tiled(s).cache_write("C", "local", at="jo").reverse_compute_at("D", "jo")


def moved_first(s: tir.Schedule) -> tir.Schedule:
    return tiled(s).reverse_compute_at("D", "jo").cache_write("C", "local", at="jo")


def in_registers(s: tir.Schedule) -> tir.Schedule:
    return s.vectorize("ji").unroll("ii").vectorize("D.j").unroll("D.i")


@pytest.mark.parametrize("order", [cached_first, moved_first])
@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_epilogue_in_registers(order: object, target: str) -> None:
    s = in_registers(order(tir.schedule(declare(*(tir.var(x) for x in "MNK")))))
    assert not any(step.reassociates for step in s.trace)
    kernel = tir.build(s, target=target, validate=target == "native")
    assert kernel.notes == ()
    # the only buffer is the tile, and it is no memory
    allocated = [line for line in kernel.loops.splitlines() if "alloc" in line]
    assert len(allocated) == 1
    assert allocated[0].endswith("# registers")
    assert "scratch" not in kernel.llvm
    for size in SIZES:
        kernel.check(*operands(*size), against=reference)


def test_the_same_bits_as_the_declaration() -> None:
    size = (13, 70, 33)
    s = in_registers(cached_first(tir.schedule(declare(*size))))
    data = operands(*size)
    assert tir.build(s)(*data).tobytes() == tir.build(declare(*size))(*data).tobytes()


def test_epilogue_of_two_stages() -> None:
    m, n, k = (tir.var(x) for x in "MNK")
    A, B = tir.placeholder((m, k), name="A"), tir.placeholder((k, n), name="B")
    bias = tir.placeholder((n,), name="bias")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")
    E = tir.compute((m, n), lambda i, j: C[i, j] + bias[j], name="E")
    D = tir.compute((m, n), lambda i, j: tir.maximum(E[i, j], 0.0), name="D")
    s = tiled(tir.schedule(D)).cache_write("C", "local", at="jo")
    s = s.reverse_compute_at("E", "jo").reverse_compute_at("D", "jo").compute_inline("E")
    s = in_registers(s)
    kernel = tir.build(s)
    assert "scratch" not in kernel.llvm
    assert s.stages == ("C", "D")
    for size in SIZES:
        kernel.check(*operands(*size), against=reference)


def test_epilogue_when_panels_are_split() -> None:
    """Partial sums stay in the output, and the last panel finishes them there."""
    s = tir.schedule(declare(*(tir.var(x) for x in "MNK")))
    s = s.split("k", 8, into=("pc", "kk")).tile("C.i", "C.j", MR, NR, into=("io", "jo", "ii", "ji"))
    s = s.reorder("pc", "io", "jo", "kk", "ii", "ji").init_at("C", "pc")
    s = s.cache_write("C", "local", at="jo").reverse_compute_at("D", "jo").reuse("C", "D")
    s = in_registers(s)
    kernel = tir.build(s, validate=True)
    assert "scratch" not in kernel.llvm
    for size in SIZES:
        kernel.check(*operands(*size), against=reference)


def test_epilogue_in_threads() -> None:
    s = in_registers(cached_first(tir.schedule(declare(200, 100, 64)))).parallel("io")
    tir.build(s).check(*operands(200, 100, 64), against=reference)
