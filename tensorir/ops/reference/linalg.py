"""Numpy references of products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir.ops import linalg
from tensorir.ops.registry import NUMBERS, Input, register


def typed(dtype: Any, *arrays: Any) -> tuple[list[Any], Any]:
    """Arrays in which products are exact enough, and the type of the result."""
    to = np.result_type(*arrays) if dtype is None else np.dtype(dtype)
    within = np.float64 if to.kind == "f" else to
    return [a.astype(within) for a in arrays], to


def _matmul(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, dtype: Any = None
) -> Any:
    (x, y), to = typed(dtype, a, b)
    x = x.swapaxes(-1, -2) if transpose_a else x
    y = y.swapaxes(-1, -2) if transpose_b else y
    return np.matmul(x, y).astype(to)


def _gemv(a: Any, x: Any, transpose: bool = False, dtype: Any = None) -> Any:
    return _matmul(a.T if transpose else a, x, dtype=dtype)


def _outer(x: Any, y: Any, dtype: Any = None) -> Any:
    (p, q), to = typed(dtype, x, y)
    return np.outer(p, q).astype(to)


def _einsum(*arrays: Any, subscripts: str, dtype: Any = None) -> Any:
    converted, to = typed(dtype, *arrays)
    return np.einsum(subscripts, *converted).astype(to)


def _declared_einsum(*tensors: Any, subscripts: str, **options: Any) -> Any:
    return linalg.einsum(subscripts, *tensors, **options)


def register_all() -> None:
    """Add them to the registry."""
    register(
        "matmul", linalg.matmul, _matmul, ("m", "n", "k"),
        lambda m, n, k: (Input((m, k)), Input((k, n))), NUMBERS,
    )  # fmt: skip
    register(
        "batch_matmul", linalg.matmul, _matmul, ("b", "m", "n", "k"),
        lambda b, m, n, k: (Input((b, m, k)), Input((b, k, n))), NUMBERS,
    )  # fmt: skip
    register(
        "gemv", linalg.gemv, _gemv, ("m", "n"), lambda m, n: (Input((m, n)), Input((n,))), NUMBERS
    )
    register("dot", linalg.dot, _matmul, ("n",), lambda n: (Input((n,)), Input((n,))), NUMBERS)
    register(
        "outer", linalg.outer, _outer, ("m", "n"), lambda m, n: (Input((m,)), Input((n,))), NUMBERS
    )
    register(
        "einsum", _declared_einsum, _einsum, ("b", "m", "n", "k"),
        lambda b, m, n, k: (Input((b, m, k)), Input((b, n, k))), NUMBERS,
        subscripts="bmk,bnk->mn",
    )  # fmt: skip
