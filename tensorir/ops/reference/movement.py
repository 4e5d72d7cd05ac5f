"""Numpy references of the operators that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir.ops import indexing, joining, movement
from tensorir.ops.reference.elementwise import one, two
from tensorir.ops.registry import NUMBERS, Input, register

ALL = (*NUMBERS, "bool")


def _split(x: Any, parts: Any, axis: int = 0) -> Any:
    return tuple(np.split(x, parts, axis))


def _pad(x: Any, width: Any, mode: str = "constant", value: Any = 0) -> Any:
    pairs = (
        [(w, w) if isinstance(w, int) else tuple(w) for w in width]
        if isinstance(width, tuple | list) else width
    )  # fmt: skip
    if mode == "constant":
        return np.pad(x, pairs, constant_values=value)
    return np.pad(x, pairs, mode=mode)  # type: ignore[call-overload]


def _joined(function: Any) -> Any:
    return lambda x, y, **options: function([x, y], **options)


def _one_hot(indices: Any, depth: int, axis: int = -1, dtype: Any = "float32") -> Any:
    hot = indices[..., None] == np.arange(depth)
    return np.moveaxis(hot.astype(dtype), -1, axis)


def _scatter_add(x: Any, indices: Any, updates: Any) -> Any:
    out = x.astype(np.float64) if x.dtype.kind == "f" else x.copy()
    np.add.at(out, indices, updates)
    return out.astype(x.dtype)


def _tile(x: Any, repeats: Any) -> Any:
    return np.tile(x, repeats)


def _repeat(x: Any, times: int, axis: int = -1) -> Any:
    return np.repeat(x, times, axis)


def _tril(x: Any, diagonal: int = 0) -> Any:
    return np.tril(x, diagonal)


def _triu(x: Any, diagonal: int = 0) -> Any:
    return np.triu(x, diagonal)


def _embedding(table: Any, indices: Any) -> Any:
    return table[indices]


def register_all() -> None:
    """Add them to the registry."""
    shape = ("*shape",)
    any_of = one(-5, 5)
    register("transpose", movement.transpose, np.transpose, shape, any_of, ALL)
    register("reshape", movement.reshape, np.reshape, shape, any_of, ALL, shape=-1)
    register("flatten", movement.flatten, lambda x: x.reshape(-1), ("m", "n"), any_of, ALL)
    register("expand_dims", movement.expand_dims, np.expand_dims, shape, any_of, ALL, axis=0)
    register("squeeze", movement.squeeze, np.squeeze, shape, any_of, ALL)
    register(
        "broadcast_to", lambda x: movement.broadcast_to(x, (4, *x.shape)),
        lambda x: np.broadcast_to(x, (4, *x.shape)), shape, any_of, ALL,
    )  # fmt: skip
    register(
        "concatenate", _joined(joining.concatenate), _joined(np.concatenate), ("m", "n"),
        two(-5, 5), ALL, axis=-1,
    )  # fmt: skip
    register("stack", _joined(joining.stack), _joined(np.stack), shape, two(-5, 5), ALL)
    register("split", joining.split, _split, ("m", "n"), any_of, ALL, parts=1, axis=1)
    register(
        "slice", joining.slice, lambda x, index: x[index], ("m", "n"), any_of, ALL,
        index=(slice(None, None, -2), slice(1, None)),
    )  # fmt: skip
    register("pad", movement.pad, _pad, shape, any_of, ALL, width=1)
    register("flip", movement.flip, np.flip, shape, any_of, ALL)
    register("roll", movement.roll, np.roll, ("n",), any_of, ALL, shift=2)
    register("tile", movement.tile, _tile, ("m", "n"), any_of, ALL, repeats=(2, 1, 3))
    register("repeat", movement.repeat, _repeat, ("m", "n"), any_of, ALL, times=3, axis=1)
    register("tril", indexing.tril, _tril, ("m", "n"), any_of, NUMBERS, diagonal=-1)
    register("triu", indexing.triu, _triu, ("m", "n"), any_of, NUMBERS, diagonal=1)
    register(
        "take", indexing.take, np.take, ("m", "n", "count"),
        lambda m, n, count: (Input((m, n)), Input((count,), "int64", 0, m)), ALL, axis=0,
    )  # fmt: skip
    register(
        "gather", indexing.gather, np.take_along_axis, ("m", "n", "count"),
        lambda m, n, count: (Input((m, n)), Input((m, count), "int32", 0, n)), ALL, axis=1,
    )  # fmt: skip
    register(
        "embedding", indexing.embedding, _embedding, ("rows", "width", "count"),
        lambda r, w, count: (Input((r, w)), Input((count,), "int64", 0, r)),
    )  # fmt: skip
    register(
        "one_hot", indexing.one_hot, _one_hot, shape,
        lambda *s: (Input(s, "int64", 0, 4),), ("float32",), depth=4,
    )  # fmt: skip
    register(
        "scatter_add", indexing.scatter_add, _scatter_add, ("n", "m", "width"),
        lambda n, m, w: (Input((n, w)), Input((m,), "int64", 0, n), Input((m, w))), NUMBERS,
    )  # fmt: skip
