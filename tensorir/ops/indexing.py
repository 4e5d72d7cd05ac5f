"""Operators whose indices are data: take, gather, one-hot, embedding, scatter-add.

Indices count from 0; a kernel checks each (`index_check=` of `tir.build`), so none reads outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorir.ir import reductions
from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast, compare, const, if_then_else, select
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import Expr
from tensorir.ir.language import reduce_axis
from tensorir.ir.tensor import Tensor
from tensorir.ops.movement import moved
from tensorir.ops.shapes import axis_of, dim, integer, integral, need_same, shape, tensor
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.tracebacks import user_api


@user_api
def take(x: Tensor, indices: Tensor, axis: int = 0, *, name: str = "take") -> Tensor:
    """Whole slices along a dimension: the indices' dimensions take its place.

    Parameters
    ----------
    x
        A tensor.
    indices
        Integers of at least 0, in any shape.
    axis
        The dimension of `x` that is indexed.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> a, i = placeholder((5, 6), name="a"), placeholder((2, 3), "int64", name="i")
    >>> take(a, i, axis=1)
    take: float32[5, 2, 3]
    """
    t, n = tensor(x, "x of take"), integral(indices, "indices of take")
    d = axis_of(axis, t.ndim, "axis of take")

    def element(index: Sequence[Any]) -> Expr:
        at = n[tuple(index[d : d + n.ndim])]
        return t[(*index[:d], at, *index[d + n.ndim :])]

    return moved([*t.extents[:d], *n.extents, *t.extents[d + 1 :]], element, name)


@user_api
def gather(x: Tensor, indices: Tensor, axis: int = -1, *, name: str = "gather") -> Tensor:
    """An element for each index: `numpy.take_along_axis`.

    Parameters
    ----------
    x
        A tensor.
    indices
        Integers of at least 0, of the rank of `x`; extents differ along `axis` only.
    axis
        The dimension of `x` that is indexed.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> a, i = placeholder((5, 6), name="a"), placeholder((5, 2), "int64", name="i")
    >>> gather(a, i)
    gather: float32[5, 2]
    """
    t = tensor(x, "x of gather")
    n = integral(indices, "indices of gather", t.ndim)
    d = axis_of(axis, t.ndim, "axis of gather")
    for k in range(t.ndim):
        if k != d:
            need_same(t.extents[k], n.extents[k], f"extents {k} of x and indices of gather")
    return moved(n.extents, lambda index: t[(*index[:d], n[tuple(index)], *index[d + 1 :])], name)


@user_api
def embedding(table: Tensor, indices: Tensor, *, name: str = "embedding") -> Tensor:
    """A row of `table` `(rows, width)` for each index: `(..., width)`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> embedding(placeholder((100, 8), name="t"), placeholder((4,), "int64", name="i"))
    embedding: float32[4, 8]
    """
    t, n = tensor(table, "table of embedding", 2), integral(indices, "indices of embedding")
    return take(t, n, 0, name=name)


@user_api
def one_hot(
    indices: Tensor, depth: int, *, axis: int = -1, dtype: object = "float32", name: str = "one_hot"
) -> Tensor:
    """1 where the new dimension's index is the given one, else 0; an index outside gives zeros.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> one_hot(placeholder((4,), "int32", name="i"), 10)
    one_hot: float32[4, 10]
    """
    n, to = integral(indices, "indices of one_hot"), as_dtype(dtype)
    extent = integer(depth, "depth of one_hot", 0)
    d = axis_of(axis, n.ndim + 1, "axis of one_hot")

    def element(index: Sequence[Any]) -> Expr:
        hit = compare("eq", n[(*index[:d], *index[d + 1 :])], index[d])
        return hit if to.kind == "bool" else select(hit, const(1, to), const(0, to))

    return moved([*n.extents[:d], Lin({}, extent), *n.extents[d:]], element, name)


@user_api
def scatter_add(
    x: Tensor, indices: Tensor, updates: Tensor, *, name: str = "scatter_add"
) -> Tensor:
    """`x` with slice k of the updates added to slice `indices[k]`, in the order of k.

    It is declared as a sum with a condition on data, in which each output looks at every index: m
    indices and n slices take m * n comparisons. The primitive `scatter` has each index find its
    slice instead, as the library's schedule does. An index outside adds nothing.

    Parameters
    ----------
    x
        `(n, ...)`.
    indices
        `(m,)`, integers.
    updates
        `(m, ...)`, of the type of `x`.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, u = placeholder((5, 3), name="x"), placeholder((4, 3), name="u")
    >>> scatter_add(x, placeholder((4,), "int64", name="i"), u)
    scatter_add: float32[5, 3]
    """
    t, u = tensor(x, "x of scatter_add"), tensor(updates, "updates of scatter_add")
    n = integral(indices, "indices of scatter_add", 1)
    if t.ndim == 0:
        raise ArgumentError("x of scatter_add is a scalar")
    if u.ndim != t.ndim or u.extents[1:] != t.extents[1:]:
        raise ArgumentError(
            f"updates of scatter_add have the shape {shape(u)}: slices must be those of {shape(t)}"
        )
    if u.dtype != t.dtype or t.dtype.kind == "bool":
        raise ArgumentTypeError(
            f"updates of scatter_add are {u.dtype} and x is {t.dtype}: both must be one number type"
        )
    need_same(u.extents[0], n.extents[0], "the numbers of updates and of indices of scatter_add")

    def element(index: Sequence[Any]) -> Expr:
        k = reduce_axis(dim(n.extents[0]), name="k")
        hit = compare("eq", n[k], index[0])
        added = if_then_else(hit, u[(k, *index[1:])], const(0, u.dtype))
        half = t.dtype.is_float and t.dtype.bits == 16
        total = reductions.sum(added, axis=k, **({} if half else {"dtype": t.dtype}))
        return cast(binary("add", t[tuple(index)], total), t.dtype)

    return moved(t.extents, element, name)


@user_api
def tril(x: Tensor, diagonal: int = 0, *, name: str = "tril") -> Tensor:
    """The last two dimensions with 0 above the diagonal of that number.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> tril(placeholder((4, 4), name="a"), -1)
    tril: float32[4, 4]
    """
    return _triangle("tril", x, diagonal, name)


@user_api
def triu(x: Tensor, diagonal: int = 0, *, name: str = "triu") -> Tensor:
    """The last two dimensions with 0 below the diagonal of that number.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> triu(placeholder((4, 4), name="a"))
    triu: float32[4, 4]
    """
    return _triangle("triu", x, diagonal, name)


def _triangle(kind: str, x: object, diagonal: int, name: str) -> Tensor:
    t = tensor(x, f"x of {kind}")
    if t.ndim < 2:
        raise ArgumentError(f"x of {kind} has the shape {shape(t)}: it needs two dimensions")
    by = integer(diagonal, f"diagonal of {kind}")

    def element(index: Sequence[Any]) -> Expr:
        limit = index[-2] + by
        keep = index[-1] <= limit if kind == "tril" else index[-1] >= limit
        return if_then_else(keep, t[tuple(index)], const(0, t.dtype))

    return moved(t.extents, element, name)
