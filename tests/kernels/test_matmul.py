"""The hand schedule of matmul, at sizes that do not divide, over its parameters."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.cpu import matmul
from schedules.cpu.matmul import params
from tensorir.codegen import cpu

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


def test_double_precision() -> None:
    kernel = tir.build(matmul(tir.schedule(declare(65, 66, 67, "float64"))))
    kernel.check(*operands(65, 66, 67, "float64"), against=lambda a, b: a @ b)


@pytest.mark.parametrize("pack_a", [0, 1])
@pytest.mark.parametrize("name", ["native", "x86-64-v3"])
def test_a_row_of_one_vector(name: str, pack_a: int) -> None:
    target = cpu.target(name)
    lanes = target.lanes(tir.dtype("float32"))
    for n, given in ((lanes, {}), (5 * lanes, {"nr": lanes})):
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
    assert "panel_b" in str(s)


def test_something_else_is_refused() -> None:
    A = tir.placeholder((4,), name="A")
    with pytest.raises(tir.ArgumentError, match="matmul: expected one stage"):
        matmul(tir.schedule(tir.compute((4,), lambda i: A[i] + 1, name="B")))


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(tir.ArgumentError, match="no parameter 'ncc'; did you mean 'nc'"):
        matmul(tir.schedule(declare(64, 64, 64)), ncc=6)
    with pytest.raises(tir.ArgumentError, match="mr=0: expected a positive integer"):
        matmul(tir.schedule(declare(64, 64, 64)), mr=0)
