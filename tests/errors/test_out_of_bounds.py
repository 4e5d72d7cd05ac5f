"""A read that leaves its array, one of a cell that nothing computes, and an index of no kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import said

OUTSIDE = """\
BoundsError: C reads A[i + 1] outside A: index 0, i + 1, is 256 at i = 255; allowed is 0..255

  script.py:1:  tir.schedule(C)

  why  a read must lie inside its array wherever it runs; tir.if_then_else(condition, read, other)
       runs it only where the condition holds.
"""
HOLE = """\
BoundsError: C reads T[0, 1], which nothing computes: the domain of T leaves that cell out (i = 0, j = 1)

  script.py:1:  tir.schedule(C)
"""


def test_out_of_bounds() -> None:
    A = tir.placeholder((256,), name="A")
    C = tir.compute((256,), lambda i: A[i + 1], name="C")
    with pytest.raises(tir.BoundsError) as refused:
        tir.schedule(C)
    assert said(refused.value) == OUTSIDE
    assert refused.value.witness == {"sizes": {}, "instance": {"i": 255}, "index": (256,)}


def test_cell_that_nothing_computes() -> None:
    A = tir.placeholder((8, 8), name="A")
    T = tir.compute((8, 8), lambda i, j: A[i, j], where=lambda i, j: j <= i, name="T")
    C = tir.compute((8, 8), lambda i, j: T[i, j] * 2.0, name="C")
    with pytest.raises(tir.BoundsError) as refused:
        tir.schedule(C)
    assert said(refused.value) == HOLE
    assert refused.value.witness == {"sizes": {}, "instance": {"i": 0, "j": 1}, "index": (0, 1)}


A = tir.placeholder((10,), name="A")
INDICES: dict[str, tuple[Callable[[], object], str]] = {
    "text": (
        lambda: A["x"],
        "ArgumentTypeError: A is indexed with 'x' in dimension 0: each index is one integer "
        "expression; slices are written as the range of an axis\n",
    ),
    "slice": (
        lambda: A[0:3],
        "ArgumentTypeError: A is indexed with 0:3 in dimension 0: each index is one integer "
        "expression; slices are written as the range of an axis\n",
    ),
    "float": (
        lambda: A[1.5],
        "ArgumentTypeError: index 0 of A must be an integer, not float64 1.5: convert it with "
        "tir.cast(index, 'int64')\n",
    ),
    "tensor": (
        lambda: A[A],
        "ArgumentTypeError: A is a whole tensor: operators take one element at a time, A[i], "
        "inside tir.compute(shape, lambda i: ...)\n",
    ),
    "negative": (
        lambda: A[-1],
        "BoundsError: index 0 of A is -1: indices start at 0 and do not count from the end; the "
        "last one is 9\n",
    ),
    "past_the_end": (
        lambda: A[10],
        "BoundsError: index 0 of A is 10, outside 0..10 (the end excluded)\n",
    ),
    "two": (
        lambda: A[0, 1],
        "ArgumentError: A has 1 dimension (10,), but is indexed with 2: A[0, 1]\n",
    ),
}


@pytest.mark.parametrize("case", INDICES)
def test_index_of_no_kind(case: str) -> None:
    call, text = INDICES[case]
    with pytest.raises(tir.TensorIRError) as refused:
        call()
    assert said(refused.value) == text
