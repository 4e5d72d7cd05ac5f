"""Products of matrices at every shape, and einsum."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tensorir import ops
from tests.ops.harness import agree, check


def draw(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.uniform(-1, 1, s) for s in shapes]


def placeholders(arrays: list[np.ndarray]) -> list[tir.Tensor]:
    return [tir.placeholder(a.shape, "float64", name=f"x{k}") for k, a in enumerate(arrays)]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (0, 4, 3), (4, 0, 3), (4, 5, 0), (17, 9, 33)])
def test_shapes(sizes: tuple[int, ...]) -> None:
    check("matmul", sizes)


@pytest.mark.parametrize(
    "shapes",
    [
        ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)),
        ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (6, 3, 4)), ((0, 2, 3), (1, 3, 4)),
    ],
)  # fmt: skip
def test_vectors_and_batches(shapes: tuple[tuple[int, ...], ...]) -> None:
    arrays = draw(*shapes)
    inputs = placeholders(arrays)
    agree(ops.matmul(*inputs), inputs, arrays, np.matmul(*arrays), what=shapes)


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_transposes(a: bool, b: bool) -> None:
    arrays = draw((2, 5, 3) if a else (2, 3, 5), (4, 5) if b else (5, 4))
    inputs = placeholders(arrays)
    left = arrays[0].swapaxes(1, 2) if a else arrays[0]
    right = arrays[1].T if b else arrays[1]
    agree(ops.matmul(*inputs, transpose_a=a, transpose_b=b), inputs, arrays, left @ right)


def test_a_named_type() -> None:
    check("matmul", (4, 5, 33), "int8", {"dtype": "int32"})
    check("matmul", (4, 5, 33), "float16", {"dtype": "float32"})
    check("gemv", (4, 5), "uint8", {"dtype": "int64"})


def test_small_integers_wrap_as_in_numpy() -> None:
    x = tir.placeholder((1, 8), "int8", name="x")
    a = np.full((1, 8), 100, np.int8)
    agree(ops.matmul(x, x, transpose_b=True), [x], [a], a @ a.T)


def test_halves_accumulate_in_float32() -> None:
    x, y = (tir.placeholder((4096,), "float16", name=n) for n in "xy")
    a = np.ones(4096, np.float16)
    agree(ops.dot(x, y), [x, y], [a, a], np.float16(4096))


def test_bools() -> None:
    x, y = (tir.placeholder((3, 3), "bool", name=n) for n in "xy")
    a = np.eye(3, dtype=bool)
    b = np.array([[0, 1, 0], [0, 0, 0], [1, 1, 1]], bool)
    agree(ops.matmul(x, y), [x, y], [a, b], a @ b)


def test_transposed_vectors_products() -> None:
    check("gemv", (5, 5), None, {"transpose": True})


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("ij,jk", ((2, 3), (3, 4))),
        ("ij,jk->ki", ((2, 3), (3, 4))),
        ("ii", ((3, 3),)),
        ("ii->i", ((3, 3),)),
        ("ij->", ((2, 3),)),
        ("ba", ((2, 3),)),
        ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 2))),
        ("i...->...", ((3, 2, 4),)),
        ("...", ((2, 3),)),
        ("ij,ij,ij->j", ((2, 3),) * 3),
        ("bhqd,bhkd->bhqk", ((1, 2, 3, 4), (1, 2, 5, 4))),
        ("i,j->ij", ((2,), (3,))),
        ("ij, jk -> i k", ((2, 0), (0, 4))),
        (",i->i", ((), (3,))),
    ],
)
def test_einsum(text: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    arrays = draw(*shapes)
    inputs = placeholders(arrays)
    result = ops.einsum(text, *inputs)
    agree(result, inputs, arrays, np.einsum(text, *arrays), what=text)


def test_einsum_is_one_expression() -> None:
    x, y = (tir.placeholder((3, 3), name=n) for n in "xy")
    s = tir.schedule(ops.einsum("ij,jk->ik", x, y))
    assert list(s.stages) == ["einsum"]


def test_symbolic_sizes() -> None:
    m, k = tir.var("m"), tir.var("k")
    x, y = tir.placeholder((m, k), name="x"), tir.placeholder((k, 3), name="y")
    a, b = (r.astype(np.float32) for r in draw((4, 5), (5, 3)))
    for result in (ops.matmul(x, y), ops.einsum("mk,kn->mn", x, y)):
        np.testing.assert_allclose(tir.build(tir.schedule(result))(a, b), a @ b, rtol=1e-5)
