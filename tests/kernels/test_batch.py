"""Batches of products, shared operands, and what einsum says."""

from __future__ import annotations

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.cpu.contraction import contraction
from schedules.cpu.matmul import matmul
from tensorir import ops
from tensorir.codegen import cpu

EINSUMS = {
    "ij,jk->ik": ((13, 21), (21, 37)),
    "ij,kj->ik": ((13, 21), (37, 21)),
    "ji,jk->ik": ((21, 13), (21, 37)),
    "ij,jk->ki": ((13, 21), (21, 37)),
    "bij,bjk->bik": ((3, 13, 21), (3, 21, 37)),
    "bij,jk->bik": ((3, 13, 21), (21, 37)),
    "ij,bjk->bik": ((13, 21), (3, 21, 37)),
    "bhid,bhjd->bhij": ((2, 3, 13, 21), (2, 3, 37, 21)),
    "bhij,bhjd->bhid": ((2, 3, 13, 21), (2, 3, 21, 37)),
    "bmk,bnk->mn": ((3, 13, 21), (3, 37, 21)),
    "aik,bkj->abij": ((2, 13, 21), (3, 21, 37)),
}


@pytest.mark.parametrize("text", EINSUMS)
def test_einsum(text: str) -> None:
    target = cpu.target("x86-64-v3" if len(text) % 2 else "native")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, np.float32) for s in EINSUMS[text]]
    kernel = schedules.build("einsum", text, *arrays, target=target)
    kernel.check(*arrays, against=lambda a, b: np.einsum(text, a, b))
    made = ops.einsum(
        text, *(tir.placeholder(a.shape, name=n) for a, n in zip(arrays, "AB", strict=True))
    )
    assert contraction(tir.schedule(made)) is not None
    packed = tir.build(matmul(tir.schedule(made), target, parallel=False), target=target)
    packed.check(*arrays, against=lambda a, b: np.einsum(text, a, b))


@pytest.mark.parametrize("shapes", [((1, 13, 21), (5, 21, 37)), ((5, 13, 21), (1, 21, 37))])
def test_a_batch_of_one_is_shared(shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, np.float32) for s in shapes)
    schedules.build("matmul", a, b).check(a, b, against=np.matmul)


def test_a_shared_right_operand_is_packed_once_for_the_batch() -> None:
    A, B = tir.placeholder((64, 100, 300), name="A"), tir.placeholder((300, 900), name="B")
    s = matmul(tir.schedule(ops.einsum("bij,jk->bik", A, B)))
    order = [a.name for a in s.axes]
    assert order.index("jr") < order.index("strip.j") < order.index("b")


def test_many_small_ones_share_the_threads() -> None:
    a, b = (np.ones((256, 32, 32), np.float32) for _ in range(2))
    s = schedules.schedule_for(
        ops.matmul(tir.placeholder(a.shape, name="A"), tir.placeholder(b.shape, name="B"))
    )
    assert [(x.primitive, x.args) for x in s.trace.steps][-1] == ("parallel", ("b",))
    assert np.array_equal(tir.build(s)(a, b), np.full((256, 32, 32), 32, np.float32))


@pytest.mark.parametrize(
    "other",
    [
        lambda A, B: ops.einsum("ij,ij->i", A, B),
        lambda A, B: ops.sum(A, axis=1),
        lambda A, B: ops.einsum("ij,ij->ij", A, B),
    ],
)
def test_other_sums_are_not_taken_for_one(other: object) -> None:
    A, B = tir.placeholder((8, 8), name="A"), tir.placeholder((8, 8), name="B")
    assert contraction(tir.schedule(other(A, B))) is None


def test_a_product_with_itself_is_left_to_the_default() -> None:
    A = tir.placeholder((30, 40), name="A")
    a = np.random.default_rng(0).standard_normal((30, 40), np.float32)
    assert contraction(tir.schedule(ops.matmul(A, A, transpose_b=True))) is None
    schedules.build(lambda x: ops.matmul(x, x, transpose_b=True), a).check(
        a, against=lambda a: a @ a.T
    )
