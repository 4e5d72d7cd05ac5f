"""Operators that join tensors and cut them: concatenate, stack, split, slice."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast, if_then_else
from tensorir.ir.dtype import promote
from tensorir.ir.expr import Expr
from tensorir.ir.index import from_lin
from tensorir.ir.tensor import Tensor
from tensorir.ops.movement import ONE, moved
from tensorir.ops.shapes import axis_of, integer, need_same, shape, static, tensor
from tensorir.support.errors import ArgumentError, ArgumentTypeError, BoundsError
from tensorir.support.tracebacks import user_api


def _listed(tensors: object, what: str) -> list[Tensor]:
    if not isinstance(tensors, tuple | list):
        raise ArgumentTypeError(f"{what} takes a list of tensors, not {tensors!r:.60}")
    if not tensors:
        raise ArgumentError(f"{what} takes at least one tensor")
    return [tensor(t, f"tensor {k} of {what}") for k, t in enumerate(tensors)]


@user_api
def concatenate(tensors: Sequence[Tensor], axis: int = 0, *, name: str = "concatenate") -> Tensor:
    """Tensors one after the other along a dimension; their other extents are equal.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> a, b = placeholder((2, 3), name="a"), placeholder((2, 4), name="b")
    >>> concatenate([a, b], axis=1)
    concatenate: float32[2, 7]
    """
    ts = _listed(tensors, "concatenate")
    d = axis_of(axis, ts[0].ndim, "axis of concatenate")
    for t in ts[1:]:
        tensor(t, "each tensor of concatenate", ts[0].ndim)
        for k in range(t.ndim):
            if k != d:
                what = f"extents {k} of {ts[0].name} and {t.name} in concatenate"
                need_same(ts[0].extents[k], t.extents[k], what)
    starts = [Lin({}, 0)]
    for t in ts:
        starts.append(starts[-1] + t.extents[d])
    common = ts[0].dtype
    for t in ts[1:]:
        common = promote(common, t.dtype)

    def element(index: Sequence[Any]) -> Expr:
        value: Expr | None = None
        for t, s in reversed(list(zip(ts, starts, strict=False))):
            own = binary("sub", index[d], from_lin(s)) if s.terms or s.const else index[d]
            e = cast(t[(*index[:d], own, *index[d + 1 :])], common)
            end = from_lin(s + t.extents[d])
            value = e if value is None else if_then_else(index[d] < end, e, value)
        assert value is not None
        return value

    extents = [starts[-1] if k == d else e for k, e in enumerate(ts[0].extents)]
    return moved(extents, element, name)


@user_api
def stack(tensors: Sequence[Tensor], axis: int = 0, *, name: str = "stack") -> Tensor:
    """Tensors of one shape along a new dimension.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> stack([placeholder((2, 3), name="a"), placeholder((2, 3), name="b")], axis=-1)
    stack: float32[2, 3, 2]
    """
    ts = _listed(tensors, "stack")
    d = axis_of(axis, ts[0].ndim + 1, "axis of stack")
    common = ts[0].dtype
    for t in ts[1:]:
        tensor(t, "each tensor of stack", ts[0].ndim)
        common = promote(common, t.dtype)
        for k in range(t.ndim):
            what = f"extents {k} of {ts[0].name} and {t.name} in stack"
            need_same(ts[0].extents[k], t.extents[k], what)

    def element(index: Sequence[Any]) -> Expr:
        own = (*index[:d], *index[d + 1 :])
        value: Expr = cast(ts[-1][own], common)
        for k in range(len(ts) - 2, -1, -1):
            value = if_then_else(index[d] <= k, cast(ts[k][own], common), value)
        return value

    extents = list(ts[0].extents)
    extents.insert(d, Lin({}, len(ts)))
    return moved(extents, element, name)


@user_api
def split(
    x: Tensor, parts: int | Sequence[int], axis: int = 0, *, name: str = "split"
) -> tuple[Tensor, ...]:
    """The tensor in pieces along a dimension: that many equal ones, or cut at those indices.

    Raises
    ------
    ArgumentError
        If equal pieces do not divide the extent, or the indices do not rise within it.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> split(placeholder((6,), name="a"), 3)
    (split_0: float32[2], split_1: float32[2], split_2: float32[2])
    >>> split(placeholder((6,), name="a"), [1, 4])
    (split_0: float32[1], split_1: float32[3], split_2: float32[2])
    """
    t = tensor(x, "x of split")
    d = axis_of(axis, t.ndim, "axis of split")
    (extent,) = static(t, (d,), "split")
    if isinstance(parts, tuple | list):
        cuts = [0, *(integer(p, "index of split", 0) for p in parts), extent]
        if cuts != sorted(cuts):
            raise ArgumentError(f"indices of split must rise from 0 to {extent}: {list(parts)}")
    else:
        n = integer(parts, "parts of split", 1)
        if extent % n:
            raise ArgumentError(f"split into {n} parts: they do not divide the extent {extent}")
        cuts = [k * (extent // n) for k in range(n + 1)]

    def piece(first: int, end: int, k: int) -> Tensor:
        extents = [Lin({}, end - first) if a == d else e for a, e in enumerate(t.extents)]
        return moved(
            extents, lambda index: t[(*index[:d], index[d] + first, *index[d + 1 :])], f"{name}_{k}"
        )

    return tuple(piece(a, b, k) for k, (a, b) in enumerate(pairwise(cuts)))


@user_api
def slice(x: Tensor, index: Any, *, name: str = "slice") -> Tensor:
    """`x[index]` with integers, slices (any step but 0), `...` and None, as in numpy.

    Sliced dimensions need constant extents; `:` leaves any as it is. Write the index with
    `numpy.s_`.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorir.ir.language import placeholder
    >>> slice(placeholder((5, 6, 7), name="a"), np.s_[::-2, 1, 2:])
    slice: float32[3, 5]
    >>> slice(placeholder((5,), name="a"), 5)
    Traceback (most recent call last):
        ...
    tensorir.BoundsError: index 5 of slice is outside dimension 0 of a, whose extent is 5
    """
    t = tensor(x, "x of slice")
    given = list(index) if isinstance(index, tuple) else [index]
    if builtins.sum(i is Ellipsis for i in given) > 1:
        raise ArgumentError("index of slice holds ... more than once")
    count = builtins.sum(i is not None and i is not Ellipsis for i in given)
    if count > t.ndim:
        raise ArgumentError(f"slice with {count} indices of {t.name}, whose shape is {shape(t)}")
    if Ellipsis not in [i for i in given if i is Ellipsis]:
        given.append(Ellipsis)
    where = next(k for k, i in enumerate(given) if i is Ellipsis)
    given[where : where + 1] = [builtins.slice(None)] * (t.ndim - count)
    extents: list[Lin] = []
    plan: list[tuple[int, int, int | None]] = []  # first, step, dimension of the result
    for i in given:
        d = len(plan)
        if i is None:
            extents.append(ONE)
        elif isinstance(i, builtins.slice) and i == builtins.slice(None):
            plan.append((0, 1, len(extents)))
            extents.append(t.extents[d])
        elif isinstance(i, builtins.slice):
            if i.step is not None and integer(i.step, "step of slice") == 0:
                raise ArgumentError("step of slice is 0")
            first, end, step = i.indices(static(t, (d,), "slice")[0])
            plan.append((first, step, len(extents)))
            extents.append(Lin({}, len(range(first, end, step))))
        else:
            at = integer(i, "index of slice")
            (extent,) = static(t, (d,), "slice")
            if not -extent <= at < extent:
                raise BoundsError(
                    f"index {at} of slice is outside dimension {d} of {t.name}, "
                    f"whose extent is {extent}"
                )
            plan.append((at % extent, 0, None))

    def element(axes: Sequence[Any]) -> Expr:
        return t[tuple(f if d is None else axes[d] * s + f for f, s, d in plan)]

    return moved(extents, element, name)
