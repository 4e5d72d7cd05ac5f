"""Every operator, in every type that it takes, at usual and degenerate sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
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


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "keyword": (
        lambda: operator("matmul").declare(3, 4, 5, dtyp="int8"),  # type: ignore[call-arg]
        "ArgumentTypeError: declare(*sizes, dtype=None, parameters=None) has no argument 'dtyp'; "
        "did you mean 'dtype'?",
    ),
    "parameter": (
        lambda: operator("softmax").declare(3, 4, parameters={"axs": 1}),
        "ArgumentTypeError: softmax(x, axis=-1, *, name='softmax') has no argument 'axs'; "
        "did you mean 'axis'?",
    ),
    "no_dictionary": (
        lambda: operator("softmax").declare(3, 4, parameters=3),  # type: ignore[arg-type]
        "ArgumentTypeError: parameters of softmax must be a dictionary, not 3",
    ),
    "seed": (
        lambda: operator("softmax").arrays(3, 4, seed="x"),  # type: ignore[arg-type]
        "ArgumentTypeError: seed must be an integer, not str 'x'",
    ),
    "too_few_arrays": (
        lambda: operator("matmul").expected(np.ones((2, 2))),
        "ArgumentTypeError: matmul(a, b, transpose_a=False, transpose_b=False, dtype=None): "
        "missing a required argument: 'b'",
    ),
    "arrays_that_do_not_fit": (
        lambda: operator("add").expected(np.ones(2), np.ones(3)),
        "ArgumentError: the reference of add does not take these arrays: operands could not be "
        "broadcast together with shapes (2,) (3,)",
    ),
    "not_a_name": (lambda: operator(3), "ArgumentError: no operator 3"),  # type: ignore[arg-type]
    "list": (
        lambda: operators(3),  # type: ignore[call-arg]
        "ArgumentTypeError: operators(): too many positional arguments",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_calls(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises(tir.TensorIRError) as refused:
        call()
    assert said(refused.value).splitlines()[0].rstrip() == text
