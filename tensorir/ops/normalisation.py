"""Softmax and normalisations, in stages. Halves are computed in float32 and rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorir.ir import maths, reductions
from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast, const
from tensorir.ir.dtype import DType
from tensorir.ir.expr import Expr
from tensorir.ir.index import from_lin
from tensorir.ir.language import compute
from tensorir.ir.tensor import Tensor
from tensorir.ops.movement import moved
from tensorir.ops.reduce import count, mean_of, over, shift_of, variance_of
from tensorir.ops.shapes import (
    Axes,
    axes_of,
    axis_of,
    dims,
    floating,
    integer,
    reduce_axes,
    shape,
    static,
    wide,
)
from tensorir.support.errors import ArgumentError
from tensorir.support.tracebacks import user_api


def _each(t: Tensor, axes: tuple[int, ...], fn: Any, name: str) -> Tensor:
    """A tensor like `t` of `fn(load, index)`; `load(s)` takes a statistic with its dims kept."""

    def element(index: Sequence[Any]) -> Expr:
        kept = tuple(0 if d in axes else i for d, i in enumerate(index))
        made: Expr = fn(lambda s: s[kept], index)
        return made

    return moved(t.extents, element, name)


@user_api
def softmax(x: Tensor, axis: int = -1, *, name: str = "softmax") -> Tensor:
    """`exp(x) / sum(exp(x))` along a dimension, without overflow.

    Four stages: `<name>_max`, `<name>_exp` (of the difference from it), `<name>_sum`, and the
    product of powers with one over their sum. A row that is all -inf gives NaN.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> softmax(placeholder((4, 10), name="x"))
    softmax: float32[4, 10]
    """
    t = floating(x, "x of softmax")
    axes = (axis_of(axis, t.ndim, "axis of softmax"),)
    inner = wide(t.dtype)
    top = shift_of(t, axes, inner, f"{name}_max")
    power = _each(
        t, axes, lambda load, i: maths.exp(cast(t[tuple(i)], inner) - load(top)), f"{name}_exp"
    )
    total: Tensor = over(
        power, axes, True, lambda element, r: reductions.sum(element(), axis=r), f"{name}_sum"
    )
    # one division a row: the total is at least 1, so that its reciprocal is exact to rounding
    return _each(
        t, axes, lambda load, i: cast(power[tuple(i)] * (1.0 / load(total)), t.dtype), name
    )


@user_api
def log_softmax(x: Tensor, axis: int = -1, *, name: str = "log_softmax") -> Tensor:
    """The logarithm of :func:`softmax`, accurate where that is tiny.

    Three stages: `<name>_max`, `<name>_sum` (of exponentials), and the difference.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> log_softmax(placeholder((4, 10), name="x"), axis=0)
    log_softmax: float32[4, 10]
    """
    t = floating(x, "x of log_softmax")
    axes = (axis_of(axis, t.ndim, "axis of log_softmax"),)
    inner = wide(t.dtype)
    top = shift_of(t, axes, inner, f"{name}_max")
    total: Tensor = over(
        t, axes, True,
        lambda element, r: reductions.sum(
            maths.exp(cast(element(), inner) - element(top)), axis=r
        ),
        f"{name}_sum",
    )  # fmt: skip

    def fn(load: Any, i: Sequence[Any]) -> Expr:
        e = cast(t[tuple(i)], inner) - load(top)
        return cast(e - maths.log(load(total)), t.dtype)

    return _each(t, axes, fn, name)


def _affine(
    e: Expr, index: Sequence[Any], weight: Tensor | None, bias: Tensor | None, inner: DType
) -> Expr:
    if weight is not None:
        e = e * cast(weight[tuple(index)], inner)
    return e if bias is None else e + cast(bias[tuple(index)], inner)


def _parameter(p: object, extents: Sequence[Lin], what: str) -> Tensor | None:
    if p is None:
        return None
    t = floating(p, what, len(extents))
    if t.extents != tuple(extents):
        wanted = ", ".join(map(str, extents)) + ("," if len(extents) == 1 else "")
        raise ArgumentError(f"{what} must have the shape ({wanted}), not {shape(t)}")
    return t


@user_api
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """`(x - mean) / sqrt(variance + eps) * weight + bias`, over `axis` and all dimensions after it.

    Stages: `<name>_mean`, `<name>_var`, and the result.

    Parameters
    ----------
    x
        A tensor of floats.
    weight, bias
        Of the shape of the reduced dimensions.
    axis
        The first dimension to reduce.
    eps
        Added to the variance.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, w = placeholder((4, 16), name="x"), placeholder((16,), name="w")
    >>> layer_norm(x, w)
    layer_norm: float32[4, 16]
    """
    t = floating(x, "x of layer_norm")
    first = axis_of(axis, t.ndim, "axis of layer_norm")
    axes = tuple(range(first, t.ndim))
    w = _parameter(weight, t.extents[first:], "weight of layer_norm")
    b = _parameter(bias, t.extents[first:], "bias of layer_norm")
    inner = wide(t.dtype)
    mean = mean_of(t, axes, True, f"{name}_mean", wider=True)
    var = variance_of(t, mean, axes, True, f"{name}_var", wider=True)

    def fn(load: Any, i: Sequence[Any]) -> Expr:
        e = (cast(t[tuple(i)], inner) - load(mean)) / maths.sqrt(load(var) + float(eps))
        return cast(_affine(e, i[first:], w, b, inner), t.dtype)

    return _each(t, axes, fn, name)


@user_api
def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-5,
    name: str = "rms_norm",
) -> Tensor:
    """`x / sqrt(mean(x*x) + eps) * weight`, over `axis` and all dimensions after it.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> rms_norm(placeholder((4, 16), name="x"), placeholder((16,), name="w"))
    rms_norm: float32[4, 16]
    """
    t = floating(x, "x of rms_norm")
    first = axis_of(axis, t.ndim, "axis of rms_norm")
    axes = tuple(range(first, t.ndim))
    w = _parameter(weight, t.extents[first:], "weight of rms_norm")
    inner = wide(t.dtype)
    square = _mean_square(t, axes, inner, f"{name}_mean")

    def fn(load: Any, i: Sequence[Any]) -> Expr:
        e = cast(t[tuple(i)], inner) / maths.sqrt(load(square) + float(eps))
        return cast(_affine(e, i[first:], w, None, inner), t.dtype)

    return _each(t, axes, fn, name)


def _mean_square(t: Tensor, axes: tuple[int, ...], inner: DType, name: str) -> Tensor:

    def body(element: Any, reduced: Any) -> Expr:
        e = cast(element(), inner)
        return reductions.sum(e * e, axis=reduced) / count(t, axes, inner)

    made: Tensor = over(t, axes, True, body, name)
    return made


@user_api
def batch_norm(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int = 1,
    eps: float = 1e-5,
    name: str = "batch_norm",
) -> Tensor:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` with given statistics of each channel.

    Parameters
    ----------
    x
        `(n, c, ...)`; `axis` says which dimension the channels are.
    mean, variance, weight, bias
        `(c,)`.
    axis
        The dimension of the channels.
    eps
        Added to the variance.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, m, v = placeholder((2, 3, 4, 4), name="x"), *(placeholder((3,), name=n) for n in "mv")
    >>> batch_norm(x, m, v)
    batch_norm: float32[2, 3, 4, 4]
    """
    t = floating(x, "x of batch_norm")
    d = axis_of(axis, t.ndim, "axis of batch_norm")
    own = (t.extents[d],)
    m, v = (
        _parameter(mean, own, "mean of batch_norm"),
        _parameter(variance, own, "variance of batch_norm"),
    )
    w, b = (
        _parameter(weight, own, "weight of batch_norm"),
        _parameter(bias, own, "bias of batch_norm"),
    )
    if m is None or v is None:
        raise ArgumentError("batch_norm needs mean and variance: it normalises by given statistics")
    inner = wide(t.dtype)

    def element(index: Sequence[Any]) -> Expr:
        c = index[d]
        e = cast(t[tuple(index)], inner) - cast(m[c], inner)
        e = e / maths.sqrt(cast(v[c], inner) + float(eps))
        return cast(_affine(e, (c,), w, b, inner), t.dtype)

    return moved(t.extents, element, name)


@user_api
def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    name: str = "group_norm",
) -> Tensor:
    """Normalisation over each group of channels and all dimensions after them.

    Parameters
    ----------
    x
        `(n, c, ...)`, `c` a constant multiple of `groups`.
    groups
        How many there are.
    weight, bias
        `(c,)`.
    eps
        Added to the variance.
    name
        What the result is called; its stages are `<name>_mean` and `<name>_var`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> group_norm(placeholder((2, 6, 4, 4), name="x"), 3)
    group_norm: float32[2, 6, 4, 4]
    """
    t = floating(x, "x of group_norm")
    if t.ndim < 2:
        raise ArgumentError(f"x of group_norm must be (n, c, ...), but its shape is {shape(t)}")
    (channels,) = static(t, (1,), "group_norm")
    parts = integer(groups, "groups of group_norm", 1)
    if channels % parts:
        raise ArgumentError(f"group_norm: {parts} groups do not divide {channels} channels")
    each = channels // parts
    w = _parameter(weight, (t.extents[1],), "weight of group_norm")
    b = _parameter(bias, (t.extents[1],), "bias of group_norm")
    inner = wide(t.dtype)
    reduced = [Lin({}, each), *t.extents[2:]]
    size = cast(_product(reduced), inner)

    def statistic(fn: Any, title: str) -> Tensor:
        def body(n: Any, g: Any) -> Expr:
            axes = reduce_axes(reduced)
            e = cast(t[(n, g * each + axes[0], *axes[1:])], inner)
            return reductions.sum(fn(e, n, g), axis=axes) / size

        made: Tensor = compute(
            dims([t.extents[0], Lin({}, parts)]), body, name=title, axes=("n", "g")
        )
        return made

    mean = statistic(lambda e, n, g: e, f"{name}_mean")
    var = statistic(lambda e, n, g: (e - mean[n, g]) * (e - mean[n, g]), f"{name}_var")

    def element(index: Sequence[Any]) -> Expr:
        n, c = index[:2]
        g = c // max(each, 1)
        e = (cast(t[tuple(index)], inner) - mean[n, g]) / maths.sqrt(var[n, g] + float(eps))
        return cast(_affine(e, (c,), w, b, inner), t.dtype)

    return moved(t.extents, element, name)


def _product(extents: Sequence[Lin]) -> Expr:

    total: Expr = const(1)
    for e in extents:
        total = binary("mul", total, from_lin(e))
    return total


@user_api
def instance_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    name: str = "instance_norm",
) -> Tensor:
    """Normalisation of each channel of each image, `(n, c, ...)`, over the dimensions after them.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> instance_norm(placeholder((2, 3, 4, 4), name="x"))
    instance_norm: float32[2, 3, 4, 4]
    """
    t = floating(x, "x of instance_norm")
    if t.ndim < 3:
        raise ArgumentError(f"x of instance_norm must be (n, c, ...), but its shape is {shape(t)}")
    axes = tuple(range(2, t.ndim))
    w = _parameter(weight, (t.extents[1],), "weight of instance_norm")
    b = _parameter(bias, (t.extents[1],), "bias of instance_norm")
    inner = wide(t.dtype)
    mean = mean_of(t, axes, True, f"{name}_mean", wider=True)
    var = variance_of(t, mean, axes, True, f"{name}_var", wider=True)

    def fn(load: Any, i: Sequence[Any]) -> Expr:
        e = (cast(t[tuple(i)], inner) - load(mean)) / maths.sqrt(load(var) + float(eps))
        return cast(_affine(e, (i[1],), w, b, inner), t.dtype)

    return _each(t, axes, fn, name)


@user_api
def l2_normalize(
    x: Tensor, axis: Axes = -1, *, eps: float = 1e-12, name: str = "l2_normalize"
) -> Tensor:
    """`x / max(norm(x), eps)` along dimensions.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> l2_normalize(placeholder((4, 16), name="x"))
    l2_normalize: float32[4, 16]
    """
    t = floating(x, "x of l2_normalize")
    axes = axes_of(axis, t.ndim, "axis of l2_normalize")
    inner = wide(t.dtype)

    def squares(element: Any, reduced: Any) -> Expr:
        e = cast(element(), inner)
        return maths.sqrt(reductions.sum(e * e, axis=reduced) if reduced else e * e)

    size: Tensor = over(t, axes, True, squares, f"{name}_norm")
    return _each(
        t, axes,
        lambda load, i: cast(
            cast(t[tuple(i)], inner) / maths.maximum(load(size), float(eps)), t.dtype
        ),
        name,
    )  # fmt: skip
