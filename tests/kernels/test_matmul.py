"""The hand schedule of matmul, at sizes that do not divide, over its parameters."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.cpu import matmul
from schedules.cpu.matmul import params
from tensorir import ops
from tensorir.codegen import cpu
from tensorir.lower.pipeline import lower
from tensorir.runtime.build import source_of

SIZES = [(1, 1, 1), (6, 64, 16), (7, 65, 17), (100, 100, 100), (97, 1027, 129), (5, 3, 1000)]


def declare(m: object, n: object, k: object, dtype: str = "float32") -> tir.Tensor:
    A, B = tir.placeholder((m, k), dtype, name="A"), tir.placeholder((k, n), dtype, name="B")
    r = tir.reduce_axis(k, name="k")
    return tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")


def operands(m: int, n: int, k: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


@pytest.fixture(scope="module")
def symbolic() -> tir.Kernel:
    return tir.build(matmul(tir.schedule(declare(*(tir.var(x) for x in "MNK")))))


@pytest.mark.parametrize("size", SIZES)
def test_symbolic_sizes(symbolic: tir.Kernel, size: tuple[int, int, int]) -> None:
    symbolic.check(*operands(*size), against=lambda a, b: a @ b)


@pytest.mark.parametrize("size", SIZES)
def test_constant_sizes(size: tuple[int, int, int]) -> None:
    kernel = tir.build(matmul(tir.schedule(declare(*size))))
    kernel.check(*operands(*size), against=lambda a, b: a @ b)


def test_the_same_bits_as_the_declaration() -> None:
    a, b = operands(37, 70, 600)
    s = matmul(tir.schedule(declare(37, 70, 600)))
    assert not any(step.reassociates for step in s.trace)
    plain = tir.build(declare(37, 70, 600))
    assert tir.build(s)(a, b).tobytes() == plain(a, b).tobytes()


@pytest.mark.parametrize("size", SIZES)
def test_both_operands_packed(size: tuple[int, int, int]) -> None:
    kernel = tir.build(matmul(tir.schedule(declare(*size)), pack_a=1))
    kernel.check(*operands(*size), against=lambda a, b: a @ b)


@pytest.mark.parametrize("size", [(0, 5, 5), (5, 0, 5), (5, 5, 0)])
def test_nothing_to_do(symbolic: tir.Kernel, size: tuple[int, int, int]) -> None:
    a, b = operands(*size)
    got = symbolic(a, b)
    assert got.shape == (size[0], size[1])
    assert not got.any()


@pytest.mark.parametrize("seed", range(8))
def test_any_parameters(seed: int) -> None:
    rng = Random(seed)
    chosen = {p.name: rng.choice(p.values) for p in params(cpu.target("native"))}
    m, n, k = (rng.randint(1, 300) for _ in range(3))
    kernel = tir.build(matmul(tir.schedule(declare(m, n, k)), **chosen))
    kernel.check(*operands(m, n, k), against=lambda a, b: a @ b)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("turned", [(True, False), (False, True), (True, True)])
def test_operands_stored_the_other_way_round(turned: tuple[bool, bool], seed: int) -> None:
    rng = Random(seed)
    target = cpu.target(rng.choice(["native", "x86-64-v3"]))
    chosen = {p.name: rng.choice(p.values) for p in params(target)}
    m, n, k = (rng.randint(1, 200) for _ in range(3))
    a, b = operands(m, n, k)
    a, b = (np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turned, strict=True))
    for given in (chosen, {}) if seed == 0 else (chosen,):
        s = matmul(tir.schedule(product(a, b, *turned)), target, parallel=bool(seed % 2), **given)
        tir.build(s, target=target).check(
            a, b, against=lambda a, b: (a.T if turned[0] else a) @ (b.T if turned[1] else b)
        )


def product(a: np.ndarray, b: np.ndarray, turn_a: bool, turn_b: bool) -> tir.Tensor:
    A, B = tir.placeholder(a.shape, name="A"), tir.placeholder(b.shape, name="B")
    return ops.matmul(A, B, transpose_a=turn_a, transpose_b=turn_b, name="C")


def test_symbolic_sizes_transposed() -> None:
    m, n, k = (tir.var(x) for x in "MNK")
    A, B = tir.placeholder((k, m), name="A"), tir.placeholder((n, k), name="B")
    kernel = tir.build(matmul(tir.schedule(ops.matmul(A, B, transpose_a=True, transpose_b=True))))
    for size in SIZES:
        a, b = operands(*size)
        kernel.check(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T),
                     against=lambda a, b: a.T @ b.T)  # fmt: skip


@pytest.mark.parametrize("whole", [True, False])
def test_a_deep_sum_of_halves_is_rounded_once(whole: bool) -> None:
    a, b = operands(13, 37, 300, "float16")
    s = matmul(tir.schedule(declare(13, 37, 300, "float16")), kc=4096 if whole else 128)
    want = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    got = tir.build(s)(a, b)
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=2e-3, atol=1e-2
    )


def test_blocks_of_rows_and_panels_of_the_sum() -> None:
    a, b = operands(250, 70, 300)
    for parallel in (False, True):
        s = matmul(tir.schedule(declare(250, 70, 300)), mc=96, kc=128, parallel=parallel)
        tir.build(s).check(a, b, against=lambda a, b: a @ b)


def test_a_last_panel_of_whole_vectors_is_as_narrow_as_it_may_be() -> None:
    target = cpu.target("znver4")
    s = matmul(tir.schedule(declare(64, 80, 64)), target, mr=8, nv=3, ku=1)
    text = source_of(lower(s.program, target), target).llvm
    assert text.count("call <16 x float> @llvm.fma.v16f32") == 8 * 3 + 8 * 2


def test_double_precision() -> None:
    kernel = tir.build(matmul(tir.schedule(declare(65, 66, 67, "float64"))))
    kernel.check(*operands(65, 66, 67, "float64"), against=lambda a, b: a @ b)


@pytest.mark.parametrize("pack_a", [0, 1])
@pytest.mark.parametrize("name", ["native", "x86-64-v3"])
def test_a_row_of_one_vector(name: str, pack_a: int) -> None:
    target = cpu.target(name)
    lanes = target.lanes(tir.dtype("float32"))
    for n, given in ((lanes, {}), (5 * lanes, {"nv": 1})):
        s = matmul(tir.schedule(declare(7, n, 9)), target, pack_a=pack_a, **given)
        kernel = tir.build(s, target=target)
        kernel.check(*operands(7, n, 9), against=lambda a, b: a @ b)


def test_a_target_by_its_name() -> None:
    named, meant = (matmul(tir.schedule(declare(50, 60, 70)), t) for t in ("x86-64-v3", None))
    assert str(named) == str(matmul(tir.schedule(declare(50, 60, 70)), cpu.target("x86-64-v3")))
    assert str(meant) == str(matmul(tir.schedule(declare(50, 60, 70)), "native"))
    with pytest.raises(tir.ArgumentTypeError, match="a target is a string, not int 3"):
        matmul(tir.schedule(declare(4, 4, 4)), 3)


def test_code_for_avx2_runs_here_too() -> None:
    target = cpu.target("x86-64-v3")
    kernel = tir.build(matmul(tir.schedule(declare(50, 60, 70)), target), target=target)
    assert "zmm" not in kernel.asm
    assert "vfmadd" in kernel.asm
    kernel.check(*operands(50, 60, 70), against=lambda a, b: a @ b)


def test_the_registry_knows_it() -> None:
    s = schedules.schedule_for(declare(64, 64, 64))
    assert "ii" in str(s)
    assert "strip" not in str(s)  # it is small
    assert "strip" in str(schedules.schedule_for(declare(512, 512, 512)))


def test_something_else_is_refused() -> None:
    A = tir.placeholder((4,), name="A")
    with pytest.raises(tir.ArgumentError, match="matmul: expected one stage"):
        matmul(tir.schedule(tir.compute((4,), lambda i: A[i] + 1, name="B")))


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(tir.ArgumentError, match="no parameter 'kcc'; did you mean 'kc'"):
        matmul(tir.schedule(declare(64, 64, 64)), kcc=6)
    with pytest.raises(tir.ArgumentError, match="mr=0: expected a positive integer"):
        matmul(tir.schedule(declare(64, 64, 64)), mr=0)
