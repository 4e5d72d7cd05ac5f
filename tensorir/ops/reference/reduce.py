"""Numpy references of the reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir.ops import reduce
from tensorir.ops.reference.elementwise import one
from tensorir.ops.registry import FLOATS, NUMBERS, Input, register


def _floats(x: Any) -> tuple[Any, Any]:
    """In float64 for computing, and the type of the result."""
    return x.astype(np.float64), x.dtype if x.dtype.kind == "f" else np.float64


def _logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    wide, to = _floats(x)
    return np.log(np.exp(wide).sum(axis=axis, keepdims=keepdims)).astype(to)


def _norm(x: Any, axis: Any = None, order: float = 2, keepdims: bool = False) -> Any:
    wide, to = _floats(np.abs(x))
    if order == np.inf:
        return wide.max(axis=axis, keepdims=keepdims, initial=0).astype(to)
    if order == -np.inf:
        return wide.min(axis=axis, keepdims=keepdims).astype(to)
    return ((wide**order).sum(axis=axis, keepdims=keepdims) ** (1 / order)).astype(to)


def _running(kind: str) -> Any:
    def run(
        x: Any, axis: int = -1, exclusive: bool = False, reverse: bool = False, dtype: Any = None
    ) -> Any:
        x = np.flip(x, axis) if reverse else x
        out = getattr(np, kind)(x, axis=axis, dtype=dtype)
        if exclusive:
            out = np.roll(out, 1, axis)
            first = [slice(None)] * x.ndim
            first[axis] = slice(0, 1)
            out[tuple(first)] = 0 if kind == "cumsum" else 1
        return np.flip(out, axis) if reverse else out

    return run


def register_all() -> None:
    """Add them to the registry."""
    f: Any = np
    shape = ("*shape",)
    for n in ("sum", "prod", "max", "min", "any", "all", "mean"):
        register(n, vars(reduce)[n], getattr(f, n), shape, one(-1, 1), NUMBERS, axis=-1)
    for n in ("argmax", "argmin"):
        register(n, vars(reduce)[n], getattr(f, n), shape, one(-1, 1), NUMBERS, axis=-1)
    register("variance", reduce.variance, np.var, shape, one(-1, 1), NUMBERS, axis=-1)
    register("std", reduce.std, np.std, shape, one(-1, 1), NUMBERS, axis=-1)
    register("logsumexp", reduce.logsumexp, _logsumexp, shape, one(-5, 5), NUMBERS, axis=-1)
    register("norm", reduce.norm, _norm, shape, one(-5, 5), NUMBERS, axis=-1)
    register("cumsum", reduce.cumsum, _running("cumsum"), shape, one(-1, 1), NUMBERS, axis=-1)
    register(
        "cumprod", reduce.cumprod, _running("cumprod"), ("n",),
        lambda n: (Input((n,), None, 0.5, 1.5),), FLOATS,
    )  # fmt: skip
