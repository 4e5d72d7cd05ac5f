"""Matmul of bytes and bfloat16: exact integers, odd sizes, every kind of target, any parameters."""

from __future__ import annotations

from random import Random

import ml_dtypes
import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.cpu.matmul_lowp import dot_for, matmul_lowp, params
from schedules.registry import entry_for
from tensorir import ops
from tensorir.codegen import cpu
from tensorir.codegen.emit import emit
from tensorir.lower.pipeline import lower

BF16 = ml_dtypes.bfloat16
# what this machine runs of: dot products of bytes, of 16-bit integers, none
TARGETS = ["native", "x86-64-v3"]


def bytes_product(
    m: object, n: object, k: object, a: str, b: str, *, zeros: tuple[int, int] = (0, 0),
    turned: bool = False,
) -> tir.Tensor:  # fmt: skip
    A = tir.placeholder((m, k), a, name="A")
    B = tir.placeholder((n, k) if turned else (k, n), b, name="B")
    return ops.quantized_matmul(
        A, B, zero_a=zeros[0], zero_b=zeros[1], transpose_b=turned, name="C"
    )


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bfloat16":
        return rng.standard_normal(shape).astype(np.float32).astype(BF16)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


def exact(a: np.ndarray, b: np.ndarray, zeros: tuple[int, int] = (0, 0)) -> np.ndarray:
    product = (a.astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1])
    return product.astype(np.int32)


SIZES = [(1, 1, 1), (7, 17, 5), (37, 70, 31), (13, 64, 260)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", TARGETS)
def test_bytes(size: tuple[int, int, int], target: str) -> None:
    rng = Random(sum(size))
    m, n, k = size
    types = rng.choice(["int8", "uint8"]), rng.choice(["int8", "uint8"])
    zeros = tuple(rng.choice([0, 3, 100]) for _ in types)
    for ab, z in (("int8", "int8"), (0, 0)), (types, zeros):
        made = bytes_product(m, n, k, *ab, zeros=z)
        s = matmul_lowp(tir.schedule(made), target, parallel=bool(k % 2))
        assert not any(step.reassociates for step in s.trace)
        a, b = numbers((m, k), ab[0]), numbers((k, n), ab[1], 1)
        assert np.array_equal(tir.build(s, target=target)(a, b), exact(a, b, z)), (ab, z)


def test_extremes_wrap_nowhere() -> None:
    """The largest products, summed: int32 holds them, and the moved ones too."""
    a, b = np.full((5, 700), -128, np.int8), np.full((700, 20), -128, np.int8)
    for target in TARGETS:
        s = matmul_lowp(tir.schedule(bytes_product(5, 20, 700, "int8", "int8")), target)
        assert np.array_equal(tir.build(s, target=target)(a, b), exact(a, b))


def close(got: np.ndarray, a: np.ndarray, b: np.ndarray, eps: float) -> None:
    want = a.astype(np.float64) @ b.astype(np.float64)
    room = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    assert np.all(np.abs(got.astype(np.float64) - want) <= eps * room)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", TARGETS)
def test_bfloat16(size: tuple[int, int, int], target: str) -> None:
    m, n, k = size
    a, b = numbers((m, k), "bfloat16"), numbers((k, n), "bfloat16", 1)
    A, B = (
        tir.placeholder((m, k), "bfloat16", name="A"),
        tir.placeholder((k, n), "bfloat16", name="B"),
    )
    r = tir.reduce_axis(k, name="k")
    wide = tir.compute(
        (m, n),
        lambda i, j: tir.sum(tir.cast(A[i, r], "float32") * tir.cast(B[r, j], "float32"), axis=r),
        name="C",
    )
    s = matmul_lowp(tir.schedule(wide), target, parallel=bool(k % 2))
    close(tir.build(s, target=target)(a, b), a, b, 1e-5)
    s = matmul_lowp(tir.schedule(ops.matmul(A, B)), target)
    close(tir.build(s, target=target)(a, b), a, b, 5e-3)


def test_bfloat16_one_by_one_keeps_every_bit() -> None:
    A, B = (tir.placeholder(x, "bfloat16", name=n) for x, n in (((9, 33), "A"), ((33, 40), "B")))
    made = ops.matmul(A, B)
    a, b = numbers((9, 33), "bfloat16"), numbers((33, 40), "bfloat16", 1)
    s = matmul_lowp(tir.schedule(made), dot=0)
    assert not any(step.reassociates for step in s.trace)
    assert tir.build(s)(a, b).tobytes() == tir.build(made)(a, b).tobytes()


@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_symbolic_sizes(kind: str) -> None:
    m, n, k = (tir.var(x) for x in "MNK")
    A, B = tir.placeholder((m, k), kind, name="A"), tir.placeholder((k, n), kind, name="B")
    made = ops.matmul(A, B) if kind == "bfloat16" else ops.quantized_matmul(A, B)
    kernel = tir.build(matmul_lowp(tir.schedule(made)))
    for m_, n_, k_ in [*SIZES, (0, 3, 2), (3, 0, 2), (3, 2, 0)]:
        a, b = numbers((m_, k_), kind), numbers((k_, n_), kind, 1)
        got = kernel(a, b)
        if kind == "int8":
            assert np.array_equal(got, exact(a, b))
        else:
            close(got, a, b, 5e-3)


@pytest.mark.parametrize("seed", range(4))
def test_any_parameters(seed: int) -> None:
    rng = Random(seed)
    target = cpu.target(rng.choice(TARGETS))
    kind = rng.choice(["int8", "bfloat16"])
    chosen = {p.name: rng.choice(p.values) for p in params(target, 1 if kind == "int8" else 2)}
    chosen["kc"] = rng.choice([8, 20, 64, 4096])
    m, n, k = (rng.randint(1, 200) for _ in range(3))
    a = numbers((m, k), kind)
    if kind == "int8":
        turned = rng.random() < 0.5
        made = bytes_product(m, n, k, "int8", "uint8", zeros=(1, 2), turned=turned)
        b = numbers((k, n), "uint8", 1)
        s = matmul_lowp(tir.schedule(made), target, parallel=bool(seed % 2), **chosen)
        given = np.ascontiguousarray(b.T) if turned else b
        assert np.array_equal(tir.build(s, target=target)(a, given), exact(a, b, (1, 2))), chosen
    else:
        A, B = tir.placeholder((m, k), kind, name="A"), tir.placeholder((k, n), kind, name="B")
        b = numbers((k, n), kind, 1)
        s = matmul_lowp(tir.schedule(ops.matmul(A, B)), target, parallel=bool(seed % 2), **chosen)
        close(tir.build(s, target=target)(a, b), a, b, 5e-3)


@pytest.mark.parametrize(
    ("target", "kind", "call"),
    [
        ("znver5", "int8", "@llvm.x86.avx512.vpdpbusd.512("),
        ("znver4", "bfloat16", "@llvm.x86.avx512bf16.dpbf16ps.512("),
        ("alderlake", "int8", "@llvm.x86.avx512.vpdpbusd.256("),
        ("skylake-avx512", "int8", "@llvm.x86.avx512.pmaddw.d.512("),
        ("haswell", "int8", "@llvm.x86.avx2.pmadd.wd("),
        ("haswell", "bfloat16", "@llvm.fma.v8f32("),
    ],
)
def test_the_instruction_of_each_target(target: str, kind: str, call: str) -> None:
    """Edges included: no tile is computed in loops."""
    A, B = tir.placeholder((37, 30), kind, name="A"), tir.placeholder((30, 70), kind, name="B")
    made = ops.matmul(A, B) if kind == "bfloat16" else ops.quantized_matmul(A, B)
    where = cpu.target(target)
    source = emit(lower(matmul_lowp(tir.schedule(made), where).program, where), where)
    assert call in source.llvm
    assert not any("loops in place" in n or "not in registers" in n for n in source.notes)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_that_widen_by_default(target: str) -> None:
    """A sum of int32 is int64: it is summed in int32 where no sum can be larger."""
    A, B = tir.placeholder((7, 30), "int8", name="A"), tir.placeholder((30, 70), "int8", name="B")
    r = tir.reduce_axis(30, name="k")
    made = tir.compute(
        (7, 70),
        lambda i, j: tir.sum(tir.cast(A[i, r], "int32") * tir.cast(B[r, j], "int32"), axis=r),
        name="C",
    )
    a, b = numbers((7, 30), "int8"), numbers((30, 70), "int8", 1)
    got = tir.build(matmul_lowp(tir.schedule(made), target), target=target)(a, b)
    assert got.dtype == np.int64
    assert np.array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


def test_no_instruction_below_avx2() -> None:
    assert dot_for(cpu.target("x86-64-v2"), "int8") is None
    made = bytes_product(4, 5, 6, "int8", "int8")
    with pytest.raises(tir.ArgumentError, match="no vectors of 32 bytes"):
        matmul_lowp(tir.schedule(made), "x86-64-v2")
    s = schedules.schedule_for(made, target="x86-64-v2")
    a, b = numbers((4, 6), "int8"), numbers((6, 5), "int8", 1)
    assert np.array_equal(tir.build(s, target="x86-64-v2")(a, b), exact(a, b))


def test_what_is_recognised() -> None:
    A, B = tir.placeholder((8, 12), "int8", name="A"), tir.placeholder((12, 9), "int8", name="B")
    r = tir.reduce_axis(12, name="k")

    def named(made: tir.Tensor) -> str | None:
        entry = entry_for(tir.schedule(made))
        return None if entry is None else entry.name

    def summed(term: object, dtype: str | None = "int32") -> tir.Tensor:
        return tir.compute((8, 9), lambda i, j: tir.sum(term(i, j), axis=r, dtype=dtype), name="C")

    wide = lambda e: tir.cast(e, "int32")  # noqa: E731
    assert named(summed(lambda i, j: wide(A[i, r]) * wide(B[r, j]))) == "matmul_lowp"
    assert named(summed(lambda i, j: wide(B[r, j]) * wide(A[i, r]))) == "matmul_lowp"
    assert named(summed(lambda i, j: (wide(A[i, r]) - 3) * wide(B[r, j]))) == "matmul_lowp"
    assert named(summed(lambda i, j: wide(A[i, r]) + wide(B[r, j]))) != "matmul_lowp"
    assert named(summed(lambda i, j: wide(A[i, r]) * wide(B[r, j]), None)) == "matmul_lowp"
    assert named(summed(lambda i, j: wide(A[i, r]) * wide(B[r, j]), "int16")) != "matmul_lowp"
    assert named(bytes_product(0, 9, 12, "int8", "int8")) != "matmul_lowp"


def test_another_computation_is_refused() -> None:
    A = tir.placeholder((8, 8), name="A")
    with pytest.raises(tir.ArgumentError, match="matmul_lowp: expected one stage"):
        matmul_lowp(tir.schedule(tir.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="B")))


@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_the_trace_replays(kind: str) -> None:
    A, B = tir.placeholder((9, 30), kind, name="A"), tir.placeholder((30, 70), kind, name="B")
    made = ops.matmul(A, B) if kind == "bfloat16" else ops.quantized_matmul(A, B, zero_a=1)
    s = matmul_lowp(tir.schedule(made), "znver4")
    again = tir.replay(tir.schedule(made), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()
