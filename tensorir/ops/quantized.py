"""Quantised numbers: `value = scale * (q - zero_point)`, and products of them in int32."""

from __future__ import annotations

from typing import Any

from tensorir.ir import maths
from tensorir.ir.build import binary, cast, is_scalar
from tensorir.ir.dtype import DType
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import Expr
from tensorir.ir.language import compute, reduce_axis
from tensorir.ir.numerics import limits
from tensorir.ir.reductions import sum as total
from tensorir.ir.tensor import Tensor
from tensorir.ops.conv import Padding, Sizes, convolution
from tensorir.ops.movement import moved
from tensorir.ops.shapes import (
    axis_of,
    dim,
    dims,
    floating,
    integer,
    integral,
    need_same,
    shape,
    tensor,
    wide,
)
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.tracebacks import user_api

BYTES = ("int8", "uint8")


def _parameter(p: Any, t: Tensor, axis: int | None, what: str) -> Any:
    """A function of the index that gives a scale or zero point: one, or one for each slice."""
    if isinstance(p, Tensor):
        if p.ndim == 0:
            return lambda index: p[()]
        if axis is None:
            raise ArgumentError(f"{what} is a tensor of shape {shape(p)}: axis= must say of what")
        tensor(p, what, 1)
        need_same(p.extents[0], t.extents[axis], f"the extents of {what} and of dimension {axis}")
        return lambda index: p[index[axis]]
    if not is_scalar(p) or isinstance(p, bool):
        raise ArgumentTypeError(f"{what} must be a number or a tensor, not {p!r:.60}")
    return lambda index: p


def _zero(zero: Any, d: DType, what: str) -> Any:
    """A zero point, which must be one of the quantised numbers."""
    if isinstance(zero, Tensor):
        return integral(zero, what)
    value = integer(zero, what)
    low, high = limits(d)
    if not low <= value <= high:
        raise ArgumentError(f"{what} is {value}, which {d} does not hold: {low} to {high}")
    return value


@user_api
def quantize(
    x: Tensor,
    scale: float | Tensor,
    zero_point: int | Tensor = 0,
    *,
    dtype: object = "int8",
    axis: int | None = None,
    name: str = "quantize",
) -> Tensor:
    """`round(x / scale) + zero_point`, ties to even, kept inside the type; NaN gives 0.

    Parameters
    ----------
    x
        A tensor of floats.
    scale
        A number, or a tensor with one for each slice along `axis`.
    zero_point
        Which number stands for 0; likewise.
    dtype
        An integer type.
    axis
        The dimension that has its own scales.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> quantize(placeholder((4, 8), name="x"), 0.05)
    quantize: int8[4, 8]
    """
    t, to = floating(x, "x of quantize"), as_dtype(dtype)
    if not to.is_integer or to.bits > 32:
        raise ArgumentTypeError(f"dtype of quantize must be an integer of up to 32 bits, not {to}")
    d = None if axis is None else axis_of(axis, t.ndim, "axis of quantize")
    size = _parameter(scale, t, d, "scale of quantize")
    zero = _parameter(_zero(zero_point, to, "zero_point of quantize"), t, d, "zero_point")
    # float32 holds integers to 24 bits only
    inner = wide(t.dtype) if to.bits <= 16 else as_dtype("float64")

    def element(index: Any) -> Expr:
        s = size(index)
        by = cast(s, inner) if isinstance(s, Expr) else float(s)
        return cast(maths.round(cast(t[tuple(index)], inner) / by) + cast(zero(index), inner), to)

    return moved(t.extents, element, name)


@user_api
def dequantize(
    x: Tensor,
    scale: float | Tensor,
    zero_point: int | Tensor = 0,
    *,
    dtype: object = "float32",
    axis: int | None = None,
    name: str = "dequantize",
) -> Tensor:
    """`(x - zero_point) * scale`; parameters as :func:`quantize`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, s = placeholder((4, 8), "int8", name="x"), placeholder((8,), name="s")
    >>> dequantize(x, s, axis=1)
    dequantize: float32[4, 8]
    """
    t, to = integral(x, "x of dequantize"), as_dtype(dtype)
    if not to.is_float:
        raise ArgumentTypeError(f"dtype of dequantize must be a float type, not {to}")
    d = None if axis is None else axis_of(axis, t.ndim, "axis of dequantize")
    size = _parameter(scale, t, d, "scale of dequantize")
    zero = _parameter(_zero(zero_point, t.dtype, "zero_point of dequantize"), t, d, "zero_point")
    inner = wide(to)

    def element(index: Any) -> Expr:
        s = size(index)
        q = binary("sub", cast(t[tuple(index)], "int64"), cast(zero(index), "int64"))
        by = cast(s, inner) if isinstance(s, Expr) else float(s)
        return cast(cast(cast(q, "int32"), inner) * by, to)

    return moved(t.extents, element, name)


def _bytes(x: object, what: str, rank: int) -> Tensor:
    t = tensor(x, what, rank)
    if t.dtype.name not in BYTES:
        raise ArgumentTypeError(f"{what} must be int8 or uint8, not {t.dtype}")
    return t


@user_api
def quantized_matmul(
    a: Tensor,
    b: Tensor,
    *,
    zero_a: int = 0,
    zero_b: int = 0,
    transpose_b: bool = False,
    name: str = "quantized_matmul",
) -> Tensor:
    """`(a - zero_a) @ (b - zero_b)` of int8 or uint8 matrices, accumulated in int32.

    `a` is `(m, k)`, `b` is `(k, n)`, or `(n, k)` with `transpose_b`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> a, b = placeholder((4, 8), "uint8", name="a"), placeholder((8, 5), "int8", name="b")
    >>> quantized_matmul(a, b, zero_a=128)
    quantized_matmul: int32[4, 5]
    """
    x, y = _bytes(a, "a of quantized_matmul", 2), _bytes(b, "b of quantized_matmul", 2)
    za = _zero(integer(zero_a, "zero_a of quantized_matmul"), x.dtype, "zero_a of quantized_matmul")
    zb = _zero(integer(zero_b, "zero_b of quantized_matmul"), y.dtype, "zero_b of quantized_matmul")
    inner, columns = y.extents[::-1] if transpose_b else y.extents
    need_same(
        x.extents[1], inner, f"the inner extents of quantized_matmul of {shape(x)} and {shape(y)}"
    )

    def body(i: Any, j: Any) -> Expr:
        k = reduce_axis(dim(inner), name="k")
        left = cast(x[i, k], "int32") - za
        right = cast(y[j, k] if transpose_b else y[k, j], "int32") - zb
        return total(binary("mul", left, right), axis=k, dtype="int32")

    made: Tensor = compute(dims((x.extents[0], columns)), body, name=name)
    return made


@user_api
def quantized_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    zero_x: int = 0,
    zero_weight: int = 0,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCHW",
    name: str = "quantized_conv2d",
) -> Tensor:
    """The convolution of int8 or uint8 images, accumulated in int32; padding stands for 0.

    Parameters as :func:`tensorir.ops.conv2d`; `bias` is int32.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x = placeholder((1, 3, 8, 8), "uint8", name="x")
    >>> quantized_conv2d(x, placeholder((4, 3, 3, 3), "int8", name="w"), zero_x=128, padding=1)
    quantized_conv2d: int32[1, 4, 8, 8]
    """
    what = "quantized_conv2d"
    t, w = _bytes(x, f"x of {what}", 4), _bytes(weight, f"weight of {what}", 4)
    zx = _zero(integer(zero_x, f"zero_x of {what}"), t.dtype, f"zero_x of {what}")
    zw = _zero(integer(zero_weight, f"zero_weight of {what}"), w.dtype, f"zero_weight of {what}")
    if isinstance(bias, Tensor) and bias.dtype.name != "int32":
        raise ArgumentTypeError(f"bias of {what} must be int32, not {bias.dtype}")
    return convolution(
        2, t, w, bias, stride, padding, dilation, groups, layout, "int32", name, what=what,
        zero=(zx, zw),
    )  # fmt: skip
