"""Elements in other places, at odd and empty shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir import ops
from tests.ops.harness import agree, check


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((2, 3, 4), (6, 4)), ((2, 3, 4), (4, 3, 2)), ((0, 3), (5, 0)), ((1,), ()), ((), (1, 1)),
        ((6, 4), (2, 3, 2, 2)), ((12,), (3, -1)), ((3, 4), (2, 6)), ((1, 1, 3), (3, 1, 1)),
        ((0,), (0, 4)), ((3, 0), (0,)), ((0,), (3, 0)), ((4, 0), (0, 10)),
        ((2, 20, 3), (2, 5, 4, 3)),
    ],
)  # fmt: skip
def test_reshape(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    check("reshape", old, None, {"shape": new})


def test_reshape_divides_only_where_it_must() -> None:
    x = tir.placeholder((5, 6, 7), name="x")
    text = str(tir.schedule(ops.reshape(x, (5, 2, 3, 7))))
    assert "//" not in text
    assert "%" not in text


@pytest.mark.parametrize(
    "index",
    [
        np.s_[::-1], np.s_[1::3, None, 2], np.s_[..., -1], np.s_[5:2], np.s_[:, ::-2],
        np.s_[-3:-1, 1:], np.s_[None, ..., None], np.s_[6, 4], np.s_[2:100:4],
    ],
)  # fmt: skip
def test_slice(index: Any) -> None:
    check("slice", (7, 5), None, {"index": index})


def test_slice_leaves_symbolic_extents() -> None:
    n = tir.var("n")
    x = tir.placeholder((n, 6), name="x")
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    kernel = tir.build(tir.schedule(ops.slice(x, np.s_[:, 1::2])))
    np.testing.assert_array_equal(kernel(a), a[:, 1::2])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(mode: str) -> None:
    check("pad", (4, 5), None, {"width": ((1, 2), (3, 0)), "mode": mode})
    check("pad", (3, 4, 5), None, {"width": (0, 1, (3, 1)), "mode": mode})
    check("pad", (2, 2), "int8", {"width": 1, "mode": mode})


def test_pad_of_little() -> None:
    check("pad", (0, 4), None, {"width": 1})
    check("pad", (1, 4), None, {"width": ((2, 2), (0, 0)), "mode": "edge"})
    check("pad", (3,), None, {"width": 2, "value": -1.5})


@pytest.mark.parametrize("widths", [(63, 1, 64), (0, 2, 0), (1, 1, 1), (0, 0, 0)])
def test_concatenate_of_odd_widths(widths: tuple[int, ...]) -> None:
    xs = [tir.placeholder((3, w), name=f"x{k}") for k, w in enumerate(widths)]
    arrays = [np.random.default_rng(k).standard_normal((3, w), np.float32)
              for k, w in enumerate(widths)]  # fmt: skip
    agree(ops.concatenate(xs, axis=1), xs, arrays, np.concatenate(arrays, axis=1))


def test_concatenate_of_symbolic_and_mixed() -> None:
    n = tir.var("n")
    x, y = tir.placeholder((n, 2), name="x"), tir.placeholder((3, 2), "int8", name="y")
    a, b = np.ones((5, 2), np.float32), np.full((3, 2), 7, np.int8)
    kernel = tir.build(tir.schedule(ops.concatenate([x, y])))
    np.testing.assert_array_equal(kernel(a, b), np.concatenate([a, b]))


@pytest.mark.parametrize("parts", [3, [2], [0, 2, 2], [6], [1, 4]])
def test_split(parts: Any) -> None:
    check("split", (4, 6), None, {"parts": parts})


def test_others() -> None:
    check("flip", (2, 3, 4), None, {"axis": (0, -1)})
    check("roll", (5,), None, {"shift": -7})
    check("tile", (2, 3), None, {"repeats": 2})
    check("tile", (2, 3), None, {"repeats": (0, 2)})
    check("tile", (0, 3), None, {"repeats": (2, 2)})
    check("repeat", (2, 3), None, {"times": 0})
    check("repeat", (2, 3), None, {"times": 4, "axis": 0})
    check("stack", (2, 3), None, {"axis": -1})
    check("transpose", (2, 3, 4), "uint8", {"axes": (1, -1, 0)})
    check("expand_dims", (2, 3), None, {"axis": (0, -1)})
    check("squeeze", (1, 2, 1), None, {"axis": 0})
    check("tril", (4, 3), None, {"diagonal": 1})
    check("triu", (4, 3), None, {"diagonal": -5})


def test_data_as_indices() -> None:
    check("take", (4, 3, 5), None, {"axis": 0})
    check("take", (1, 1, 0))
    check("gather", (4, 3, 5), "int8")
    check("one_hot", (2, 3), None, {"axis": 0})
    check("one_hot", (2, 3), None, {"depth": 9, "dtype": "bool"})
    check("embedding", (10, 3, 0))
    check("scatter_add", (4, 0, 3))
    check("scatter_add", (1, 9, 2), "float16")


def test_indices_of_any_rank_in_the_middle() -> None:
    x, i = tir.placeholder((2, 5, 3), name="x"), tir.placeholder((2, 4), "int32", name="i")
    a = np.random.default_rng(5).standard_normal((2, 5, 3), np.float32)
    at = np.array([[0, 4, 2, 2], [1, 1, 3, 0]], np.int32)
    agree(ops.take(x, i, axis=1), [x, i], [a, at], np.take(a, at, axis=1))


def test_an_index_outside_is_refused_by_the_kernel() -> None:
    x, i = tir.placeholder((5,), name="x"), tir.placeholder((2,), "int64", name="i")
    kernel = tir.build(tir.schedule(ops.take(x, i)))
    a = np.zeros(5, np.float32)
    for bad in (5, -1):
        with pytest.raises(tir.TensorIRError):
            kernel(a, np.array([0, bad]))


def test_one_hot_of_an_index_outside_is_zero() -> None:
    i = tir.placeholder((3,), "int64", name="i")
    at = np.array([-1, 2, 7])
    want = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]], np.float32)
    agree(ops.one_hot(i, 3), [i], [at], want)
