"""Reductions over any dimensions, and running sums.

`axis` is None for all dimensions, one, or several; negative ones count from the end. `keepdims`
keeps the reduced dimensions with extent 1. Types follow numpy: sums of small integers widen to 64
bits, halves accumulate in float32, means of integers are float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorir.ir import maths, reductions
from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast, compare, const, select
from tensorir.ir.dtype import FLOAT64, DType
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import Expr
from tensorir.ir.index import from_lin
from tensorir.ir.language import compute, reduce_axis
from tensorir.ir.reducers import accumulator
from tensorir.ir.tensor import Tensor
from tensorir.ops.shapes import (
    Axes,
    axes_of,
    axis_of,
    dims,
    names,
    reduce_axes,
    tensor,
    wide,
)
from tensorir.support.errors import ArgumentError
from tensorir.support.tracebacks import user_api

Element = Callable[..., Any]


def over(
    x: Tensor,
    axes: tuple[int, ...],
    keepdims: bool,
    fn: Callable[[Element, Any], Any],
    name: str,
) -> Any:
    """A tensor over the dimensions that stay: `fn(element, reduce axes)` at each of its points.

    `element()` loads `x`; `element(t)` loads `t`, a tensor of the shape that `keepdims` gives.
    """
    stay = [d for d in range(x.ndim) if d not in axes]
    shape = [Lin({}, 1) if d in axes else x.extents[d] for d in range(x.ndim)]
    out = shape if keepdims else [x.extents[d] for d in stay]

    def body(*index: Any) -> Any:
        kept = [index[d] for d in stay] if keepdims else list(index)
        reduced = reduce_axes([x.extents[d] for d in axes])
        place = dict(zip((*stay, *axes), (*kept, *reduced), strict=True))

        def element(t: Tensor | None = None) -> Expr:
            if t is None:
                return x[tuple(place[d] for d in range(x.ndim))]
            return t[tuple(0 if d in axes else place[d] for d in range(x.ndim))]

        return fn(element, reduced)

    return compute(dims(out), body, name=name, axes=names(len(out)))


def count(x: Tensor, axes: tuple[int, ...], d: DType, less: int = 0) -> Expr:
    """How many elements are reduced, less that many but at least 0, as a value of type `d`."""
    total: Expr = const(1)
    for a in axes:
        total = binary("mul", total, from_lin(x.extents[a]))
    if less:
        total = binary("max", binary("sub", total, less), 0)
    return cast(total, d)


def _plain(
    kind: str, x: object, axis: Axes, keepdims: bool, name: str, dtype: object = None
) -> Tensor:
    t = tensor(x, f"x of {kind}")
    axes = axes_of(axis, t.ndim, f"axis of {kind}")
    reduce: Any = getattr(reductions, kind)
    options = {} if dtype is None else {"dtype": dtype}

    def body(element: Element, reduced: Any) -> Expr:
        e: Expr = element()
        if reduced:
            found: Expr = reduce(e, axis=reduced, **options)
            return found
        if kind in ("max", "min"):
            return e
        if kind in ("any", "all"):
            return e if e.dtype.kind == "bool" else compare("ne", e, const(0, e.dtype))
        return cast(e, dtype or accumulator(kind, e.dtype)[1])

    made: Tensor = over(t, axes, keepdims, body, name)
    return made


@user_api
def sum(
    x: Tensor,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    dtype: object = None,
    name: str = "sum",
) -> Tensor:
    """The sum of the elements; 0 over nothing.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> sum(placeholder((4, 3), "uint8", name="a"), axis=0)
    sum: uint64[3]
    """
    return _plain("sum", x, axis, keepdims, name, dtype)


@user_api
def prod(
    x: Tensor,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    dtype: object = None,
    name: str = "prod",
) -> Tensor:
    """The product of the elements; 1 over nothing.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> prod(placeholder((4, 3), name="a"), axis=-1, keepdims=True)
    prod: float32[4, 1]
    """
    return _plain("prod", x, axis, keepdims, name, dtype)


@user_api
def max(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str = "max") -> Tensor:
    """The greatest element, NaN if one is NaN; an error over nothing.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> max(placeholder((4, 3), name="a"))
    max: float32[]
    """
    return _plain("max", x, axis, keepdims, name)


@user_api
def min(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str = "min") -> Tensor:
    """The least element, NaN if one is NaN; an error over nothing.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> min(placeholder((4, 3), name="a"), axis=(0, 1))
    min: float32[]
    """
    return _plain("min", x, axis, keepdims, name)


@user_api
def any(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str = "any") -> Tensor:
    """Whether some element is not 0; False over nothing.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> any(placeholder((4, 3), name="a"), axis=1)
    any: bool[4]
    """
    return _plain("any", x, axis, keepdims, name)


@user_api
def all(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str = "all") -> Tensor:
    """Whether no element is 0; True over nothing.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> all(placeholder((4, 3), name="a"), axis=1)
    all: bool[4]
    """
    return _plain("all", x, axis, keepdims, name)


def _arg(kind: str, x: object, axis: int | None, keepdims: bool, name: str) -> Tensor:
    t = tensor(x, f"x of {kind}")
    if axis is not None:
        axis = axis_of(axis, t.ndim, f"axis of {kind}")
    axes = axes_of(axis, t.ndim, f"axis of {kind}")
    reduce: Any = getattr(reductions, kind)
    made: Tensor = over(
        t, axes, keepdims,
        lambda element, reduced: reduce(element(), axis=reduced) if reduced else const(0), name,
    )  # fmt: skip
    return made


@user_api
def argmax(
    x: Tensor, axis: int | None = None, *, keepdims: bool = False, name: str = "argmax"
) -> Tensor:
    """Where the greatest element is: the first of them, or the first NaN; int64.

    Without `axis` it is the row-major position.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> argmax(placeholder((4, 3), name="a"), axis=1)
    argmax: int64[4]
    """
    return _arg("argmax", x, axis, keepdims, name)


@user_api
def argmin(
    x: Tensor, axis: int | None = None, *, keepdims: bool = False, name: str = "argmin"
) -> Tensor:
    """Where the least element is: the first of them, or the first NaN; int64.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> argmin(placeholder((4, 3), name="a"))
    argmin: int64[]
    """
    return _arg("argmin", x, axis, keepdims, name)


def _mean_type(d: DType) -> tuple[DType, DType]:
    """In which type a mean is computed, and what it is returned in."""
    return (wide(d), d) if d.is_float else (FLOAT64, FLOAT64)


def mean_of(t: Tensor, axes: tuple[int, ...], keepdims: bool, name: str, *, wider: bool) -> Tensor:
    """The mean, in the type it is computed in where `wider`."""
    inner, outer = _mean_type(t.dtype)

    def body(element: Element, reduced: Any) -> Expr:
        e = cast(element(), inner)
        total = reductions.sum(e, axis=reduced) if reduced else e
        return cast(total / count(t, axes, inner), inner if wider else outer)

    made: Tensor = over(t, axes, keepdims, body, name)
    return made


@user_api
def mean(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str = "mean") -> Tensor:
    """The mean of the elements; NaN over nothing. Of integers it is float64.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> mean(placeholder((4, 3), "int32", name="a"), axis=0)
    mean: float64[3]
    """
    t = tensor(x, "x of mean")
    return mean_of(t, axes_of(axis, t.ndim, "axis of mean"), keepdims, name, wider=False)


def variance_of(
    t: Tensor,
    mean: Tensor,
    axes: tuple[int, ...],
    keepdims: bool,
    name: str,
    *,
    ddof: int = 0,
    root: bool = False,
    wider: bool = False,
) -> Tensor:
    """The variance about a mean that was computed with its dimensions kept."""
    inner, outer = _mean_type(t.dtype)

    def body(element: Element, reduced: Any) -> Expr:
        d = cast(element(), inner) - element(mean)
        total = reductions.sum(d * d, axis=reduced) if reduced else d * d
        v = total / count(t, axes, inner, ddof)
        return cast(maths.sqrt(v) if root else v, inner if wider else outer)

    made: Tensor = over(t, axes, keepdims, body, name)
    return made


def _spread(
    kind: str, x: object, axis: Axes, ddof: int, keepdims: bool, name: str, root: bool
) -> Tensor:
    t = tensor(x, f"x of {kind}")
    if isinstance(ddof, bool) or not isinstance(ddof, int) or ddof < 0:
        raise ArgumentError(f"ddof of {kind} must be an integer of at least 0, not {ddof!r:.60}")
    axes = axes_of(axis, t.ndim, f"axis of {kind}")
    mean = mean_of(t, axes, True, f"{name}_mean", wider=True)
    return variance_of(t, mean, axes, keepdims, name, ddof=ddof, root=root)


@user_api
def variance(
    x: Tensor,
    axis: Axes = None,
    *,
    ddof: int = 0,
    keepdims: bool = False,
    name: str = "variance",
) -> Tensor:
    """The mean of the squared distances from the mean, in two passes.

    Parameters
    ----------
    x
        A tensor.
    axis
        The dimensions to reduce; None for all.
    ddof
        The sum is divided by the number of elements less this.
    keepdims
        Whether reduced dimensions stay, with extent 1.
    name
        What the result is called; the mean is `<name>_mean`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> variance(placeholder((4, 3), name="a"), axis=1)
    variance: float32[4]
    """
    return _spread("variance", x, axis, ddof, keepdims, name, False)


@user_api
def std(
    x: Tensor, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False, name: str = "std"
) -> Tensor:
    """The standard deviation: the square root of :func:`variance`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> std(placeholder((4, 3), name="a"), axis=1, ddof=1)
    std: float32[4]
    """
    return _spread("std", x, axis, ddof, keepdims, name, True)


def shift_of(t: Tensor, axes: tuple[int, ...], inner: DType, name: str) -> Tensor:
    """The greatest element with its dimensions kept; -inf over nothing."""
    made: Tensor = over(
        t, axes, True,
        lambda element, reduced: reductions.max(
            cast(element(), inner), axis=reduced, init=-float("inf")
        ) if reduced else cast(element(), inner),
        name,
    )  # fmt: skip
    return made


@user_api
def logsumexp(
    x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str = "logsumexp"
) -> Tensor:
    """`log(sum(exp(x)))` without overflow; -inf over nothing, or where all elements are -inf.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> logsumexp(placeholder((4, 3), name="a"), axis=1)
    logsumexp: float32[4]
    """
    t = tensor(x, "x of logsumexp")
    axes = axes_of(axis, t.ndim, "axis of logsumexp")
    inner, outer = _mean_type(t.dtype)
    top = shift_of(t, axes, inner, f"{name}_max")

    def body(element: Element, reduced: Any) -> Expr:
        high = element(top)
        # an infinite greatest element is no shift: inf - inf is NaN
        shift = select(maths.isfinite(high), high, 0.0)
        e = maths.exp(cast(element(), inner) - shift)
        total = reductions.sum(e, axis=reduced) if reduced else e
        return cast(maths.log(total) + shift, outer)

    made: Tensor = over(t, axes, keepdims, body, name)
    return made


@user_api
def norm(
    x: Tensor,
    axis: Axes = None,
    *,
    order: float = 2,
    keepdims: bool = False,
    name: str = "norm",
) -> Tensor:
    """The vector norm of that order: `sum(abs(x)**order) ** (1/order)`.

    Parameters
    ----------
    x
        A tensor; integers are computed in float64.
    axis
        The dimensions to reduce; None for all.
    order
        1, 2, any other number that is not 0, or inf (-inf) for the greatest (least) absolute value.
    keepdims
        Whether reduced dimensions stay, with extent 1.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> norm(placeholder((4, 3), name="a"), axis=1, order=1)
    norm: float32[4]
    """
    t = tensor(x, "x of norm")
    if isinstance(order, bool) or not isinstance(order, int | float) or order != order:
        raise ArgumentError(f"order of norm must be a number, not {order!r:.60}")
    if order == 0:
        raise ArgumentError("order of norm is 0: count with ops.sum(ops.not_equal(x, 0)) instead")
    axes = axes_of(axis, t.ndim, "axis of norm")
    inner, outer = _mean_type(t.dtype)

    def body(element: Element, reduced: Any) -> Expr:
        e = cast(element(), inner)
        if not reduced:
            return cast(maths.abs(e), outer)
        if order == float("inf"):
            return cast(reductions.max(maths.abs(e), axis=reduced, init=0), outer)
        if order == -float("inf"):
            return cast(reductions.min(maths.abs(e), axis=reduced), outer)
        if order == 1:
            return cast(reductions.sum(maths.abs(e), axis=reduced), outer)
        if order == 2:
            return cast(maths.sqrt(reductions.sum(e * e, axis=reduced)), outer)
        total = reductions.sum(maths.pow(maths.abs(e), float(order)), axis=reduced)
        return cast(maths.pow(total, 1.0 / order), outer)

    made: Tensor = over(t, axes, keepdims, body, name)
    return made


def _running(
    kind: str, x: object, axis: int, exclusive: bool, reverse: bool, dtype: object, name: str
) -> Tensor:
    t = tensor(x, f"x of cum{kind}")
    d = axis_of(axis, t.ndim, f"axis of cum{kind}")
    reduce: Any = getattr(reductions, kind)
    options = {} if dtype is None else {"dtype": as_dtype(dtype)}

    def body(*index: Any) -> Any:
        i, extent = index[d], from_lin(t.extents[d])
        if reverse:
            bounds = (i + 1 if exclusive else i, extent)
        else:
            bounds = (0, i if exclusive else i + 1)
        r = reduce_axis(bounds, name="r")
        return reduce(t[(*index[:d], r, *index[d + 1 :])], axis=r, **options)

    made: Tensor = compute(dims(t.extents), body, name=name, axes=names(t.ndim))
    return made


@user_api
def cumsum(
    x: Tensor,
    axis: int = -1,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: object = None,
    name: str = "cumsum",
) -> Tensor:
    """The sum of the elements up to each one.

    It is declared as a reduction over a triangle, so n elements along the axis cost n(n+1)/2
    additions, each output independent of the others: right for short axes, and parallel. A tensor
    expression cannot say the recurrence with n additions; a loop program can.

    Parameters
    ----------
    x
        A tensor.
    axis
        Along which it runs.
    exclusive
        Whether the element itself is left out.
    reverse
        Whether it runs from the end.
    dtype
        Type in which it accumulates, and of the result; as :func:`sum` by default.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> cumsum(placeholder((4, 3), "int8", name="a"), axis=0)
    cumsum: int64[4, 3]
    """
    return _running("sum", x, axis, exclusive, reverse, dtype, name)


@user_api
def cumprod(
    x: Tensor,
    axis: int = -1,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: object = None,
    name: str = "cumprod",
) -> Tensor:
    """The product of the elements up to each one; parameters and cost as :func:`cumsum`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> cumprod(placeholder((4,), name="a"))
    cumprod: float32[4]
    """
    return _running("prod", x, axis, exclusive, reverse, dtype, name)
