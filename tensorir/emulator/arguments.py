"""Arrays given for a declaration: their number, dtypes, shapes, and the sizes that they tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.tensor import Compute, Tensor
from tensorir.ir.visit import nodes, reductions
from tensorir.support.errors import ArgumentError, CallTypeError, CallValueError

Array = NDArray[Any]


def bind(
    inputs: Sequence[Tensor],
    computes: Sequence[Compute],
    arrays: Sequence[Any],
    sizes: Mapping[Any, int] | None,
) -> tuple[dict[Tensor, Array], dict[Var, int]]:
    """The array of each input, and the value of each symbolic size.

    Raises
    ------
    CallTypeError, CallValueError
        For a wrong number of arrays, a wrong dtype, rank or shape, or a size nobody gives.
    """
    if len(arrays) != len(inputs):
        names = ", ".join(t.name for t in inputs) or "none"
        raise CallTypeError(f"expected {len(inputs)} arrays ({names}), got {len(arrays)}")
    values = {t: _array(t, a) for t, a in zip(inputs, arrays, strict=True)}
    needed = _sizes(inputs, computes)
    env = _given(needed, sizes or {})
    _solve(values, env)
    for v in needed:
        if v not in env:
            raise CallValueError(
                f"the arrays do not tell the size {v.name}: pass sizes={{'{v.name}': ...}}"
            )
    for t, a in values.items():
        expected = shape_of(t, env)
        if a.shape != expected:
            raise CallValueError(f"{t.name} is {t}, here {expected}, but has shape {a.shape}")
    return values, env


def shape_of(t: Tensor, env: Mapping[Var, int]) -> tuple[int, ...]:
    """The shape of a tensor for these sizes; an extent below 0 is refused."""
    full = tuple(_value(e, env) for e in t.extents)
    if any(n < 0 for n in full):
        raise CallValueError(f"{t} would have shape {full}")
    return full


def _value(e: Lin, env: Mapping[Var, int]) -> int:
    known: dict[Axis | Var, int] = dict(env.items())
    return e.evaluate(known)


def _array(t: Tensor, a: Any) -> Array:
    try:
        array = np.asarray(a)
    except (TypeError, ValueError) as problem:
        raise CallTypeError(f"{t.name} must be an array: {problem}") from None
    if array.dtype.newbyteorder("=") != t.dtype.numpy:
        raise CallTypeError(f"{t.name} must be {t.dtype}, not {array.dtype}")
    if array.ndim != t.ndim:
        raise CallValueError(f"{t.name} is {t}, but has {array.ndim} dimensions")
    return array.astype(t.dtype.numpy, copy=False)


def _sizes(inputs: Sequence[Tensor], computes: Sequence[Compute]) -> tuple[Var, ...]:
    found: dict[Var, None] = {}
    for e in _extents(inputs, computes):
        for a in e.atoms():
            if isinstance(a, Var):
                found.setdefault(a)
    for c in computes:
        for x in nodes(*c.bodies, *((c.where,) if c.where is not None else ())):
            if isinstance(x, Var):
                found.setdefault(x)
    return tuple(found)


def _extents(inputs: Sequence[Tensor], computes: Sequence[Compute]) -> Iterator[Lin]:
    for t in inputs:
        yield from t.extents
    for c in computes:
        for t in c.outputs:
            yield from t.extents
        for r in reductions(c.bodies):
            for a in r.axes:
                assert a.lower is not None and a.upper is not None
                yield from (a.lower, a.upper)


def _given(needed: Sequence[Var], sizes: Mapping[Any, int]) -> dict[Var, int]:
    env: dict[Var, int] = {}
    for key, n in sizes.items():
        name = key.name if isinstance(key, Var) else key
        match = [v for v in needed if v is key or (isinstance(key, str) and v.name == name)]
        if not match:
            known = ", ".join(v.name for v in needed) or "none"
            raise ArgumentError(f"there is no size {name!r} here; there are: {known}")
        if isinstance(n, bool) or not hasattr(n, "__index__") or int(n) < 0:
            raise CallValueError(f"size {name} must be an integer of at least 0, not {n!r}")
        env |= {v: int(n) for v in match}
    return env


def _solve(values: Mapping[Tensor, Array], env: dict[Var, int]) -> None:
    """Sizes from the shapes: each extent with one unknown gives it."""
    todo = [(t, e, n) for t, a in values.items() for e, n in zip(t.extents, a.shape, strict=True)]
    progress = True
    while progress:
        progress = False
        for t, e, n in todo:
            unknown = {a for a in e.atoms() if isinstance(a, Var) and a not in env}
            if len(unknown) == 1 and not any(isinstance(a, tuple) for a in e.terms):
                (v,) = unknown
                rest = _value(e.without(v), env)
                value, left = divmod(n - rest, e.coef(v))
                if left or value < 0:
                    raise CallValueError(f"{t.name} is {t}, which no {v.name} makes {n} long")
                env[v] = value
                progress = True


__all__ = ["bind", "shape_of"]
