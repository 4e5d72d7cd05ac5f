"""Every operator, in every type that it takes, at usual and degenerate sizes."""

from __future__ import annotations

import pytest

import tensorir as tir
from tensorir import ops
from tensorir.ops import operator, operators
from tests.errors.saying import said
from tests.ops.harness import check

USUAL = (3, 5, 7, 4, 2, 3)
# sizes for which the usual ones mean nothing
SIZES = {
    "conv1d_transpose": (2, 3, 5, 2, 3),
    "conv2d_transpose": (2, 3, 4, 2, 3),
    "conv3d_transpose": (1, 2, 3, 2, 2),
    "conv3d": (1, 2, 4, 3, 3),
}
# neither blur nor sobel has a window in one element
SMALLEST = {"blur": (3, 3), "sobel": (3, 3)}


def usual(name: str) -> tuple[int, ...]:
    sizes = operator(name).sizes
    if sizes == ("*shape",):
        return (3, 7)
    return SIZES.get(name, USUAL[: len(sizes)])


@pytest.mark.parametrize("name", operators())
def test_against_numpy(name: str) -> None:
    for k, dtype in enumerate(operator(name).dtypes):
        check(name, usual(name), dtype, evaluated=k == 0)


@pytest.mark.parametrize("name", operators())
def test_extents_of_one(name: str) -> None:
    op = operator(name)
    check(name, SMALLEST.get(name, (1,) * max(1, len(op.sizes))))


@pytest.mark.parametrize("name", [n for n in operators() if operator(n).sizes == ("*shape",)])
def test_no_elements_and_no_dimensions(name: str) -> None:
    check(name, (0, 3))
    if "axis" not in operator(name).parameters:
        check(name, ())


def test_every_public_operator_is_registered() -> None:
    ours = {operator(n).function for n in operators()}
    other = {"Input", "Operator", "operator", "operators", "register"}
    # reached through an adapter that gives them a list, a string or a shape
    adapted = {"broadcast_to", "concatenate", "stack", "einsum", "group_norm"}
    missing = [n for n in ops.__all__ if n not in other | adapted and getattr(ops, n) not in ours]
    assert missing == []
    assert adapted <= set(operators())


def test_unknown_name() -> None:
    with pytest.raises(tir.ArgumentError) as refused:
        operator("softmaxx")
    assert said(refused.value) == (
        "ArgumentError: no operator 'softmaxx'; did you mean 'softmax'?\n"
    )


def test_wrong_number_of_sizes() -> None:
    with pytest.raises(tir.ArgumentError) as refused:
        operator("matmul").declare(4, 5)
    assert said(refused.value) == "ArgumentError: matmul takes the sizes m n k, not 2 of them\n"


def test_wrong_type() -> None:
    with pytest.raises(tir.ArgumentTypeError) as refused:
        operator("gelu").declare(4, dtype="int8")
    assert said(refused.value) == (
        "ArgumentTypeError: gelu takes float32, float64, float16, not int8\n"
    )


def test_a_name_is_registered_once() -> None:
    with pytest.raises(tir.ArgumentError, match="there is an operator 'relu' already"):
        ops.register("relu", ops.relu, lambda x: x, ("*shape",), lambda *s: (ops.Input(s),))
