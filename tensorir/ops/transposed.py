"""Transposed convolutions of 1, 2 and 3 dimensions."""

from __future__ import annotations

from typing import Any

from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast
from tensorir.ir.dtype import promote
from tensorir.ir.expr import Expr
from tensorir.ir.language import compute, reduce_axis
from tensorir.ir.tensor import Tensor
from tensorir.ops.conv import SPACE, Padding, Sizes, bias_of, channels_last, lins
from tensorir.ops.linalg import product_sum
from tensorir.ops.movement import widths
from tensorir.ops.shapes import dims, integer, several, shape, static, tensor
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.tracebacks import user_api


def _transposed(
    rank: int,
    x: object,
    weight: object,
    bias: object,
    stride: Sizes,
    padding: Padding,
    output_padding: Sizes,
    dilation: Sizes,
    groups: int,
    layout: str,
    dtype: object,
    name: str,
) -> Tensor:
    what = f"conv{rank}d_transpose"
    t, w = tensor(x, f"x of {what}", rank + 2), tensor(weight, f"weight of {what}", rank + 2)
    steps = several(stride, rank, f"stride of {what}", 1)
    gaps = several(dilation, rank, f"dilation of {what}", 1)
    more = several(output_padding, rank, f"output_padding of {what}", 0)
    parts = integer(groups, f"groups of {what}", 1)
    last = channels_last(layout, rank, what)
    space = range(1, rank + 1) if last else range(2, rank + 2)
    extents = static(t, space, what)
    (channels,) = static(t, (rank + 1 if last else 1,), what)
    own = static(w, range(rank + 2), what)
    kernel, each, inner = (own[:rank], own[-2], own[-1]) if last else (own[2:], own[1], own[0])
    if inner != channels or channels % parts:
        raise ArgumentError(
            f"{what} of {channels} channels in {parts} groups needs a weight of as many; its shape "
            f"{shape(w)} has {inner}"
        )
    if isinstance(padding, str):
        raise ArgumentTypeError(f"padding of {what} must be numbers, not {padding!r:.60}")
    pads = widths(padding, rank, f"padding of {what}")
    outputs = []
    for e, k, s, d, (low, high), m in zip(extents, kernel, steps, gaps, pads, more, strict=True):
        if m >= max(s, d):
            raise ArgumentError(
                f"output_padding of {what} is {m}: it must be less than stride or dilation"
            )
        size = (e - 1) * s + (k - 1) * d + 1 + m - low - high if e else 0
        if size < 0:
            raise ArgumentError(f"{what}: padding {low} and {high} leaves {size} outputs")
        outputs.append(size)
    filters = each * parts
    offset = bias_of(bias, filters, what)
    common = promote(t.dtype, w.dtype)

    def body(*index: Any) -> Expr:
        n, f, at = (index[0], index[-1], index[1:-1]) if last else (*index[:2], index[2:])
        taps = [reduce_axis(k, name=f"r{c}") for k, c in zip(kernel, SPACE[rank], strict=True)]
        c = reduce_axis(channels // parts, name="c")
        channel = c if parts == 1 else f // max(each, 1) * (channels // parts) + c
        # a tap falls on an input at one output in `stride`
        spread = [i + low - r * d for i, r, d, (low, _) in zip(at, taps, gaps, pads, strict=True)]
        where: Expr | None = None
        for far, s, e in zip(spread, steps, extents, strict=True):
            hits = [far >= 0, far < e * s] + ([] if s == 1 else [binary("eq", far % s, 0)])
            for hit in hits:
                where = hit if where is None else where & hit
        sources = [far // s for far, s in zip(spread, steps, strict=True)]
        filter_ = f if parts == 1 else f % max(each, 1)
        value = t[(n, *sources, channel) if last else (n, channel, *sources)]
        factor = w[(*taps, filter_, channel) if last else (channel, filter_, *taps)]
        total = product_sum((value, factor), (c, *taps), dtype, common, where)
        return total if offset is None else binary("add", total, cast(offset[f], total.dtype))

    full = (t.extents[0], Lin({}, filters), *lins(outputs))
    titles = ("n", "f", *SPACE[rank])
    if last:
        full, titles = (*full[:1], *full[2:], full[1]), (*titles[:1], *titles[2:], titles[1])
    made: Tensor = compute(dims(full), body, name=name, axes=titles)
    return made


@user_api
def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCW",
    dtype: object = None,
    name: str = "conv1d_transpose",
) -> Tensor:
    """The transpose of :func:`conv1d`; parameters as :func:`conv2d_transpose`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, w = placeholder((1, 3, 8), name="x"), placeholder((3, 4, 3), name="w")
    >>> conv1d_transpose(x, w, stride=2)
    conv1d_transpose: float32[1, 4, 17]
    """
    return _transposed(
        1,
        x,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        layout,
        dtype,
        name,
    )


@user_api
def conv2d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCHW",
    dtype: object = None,
    name: str = "conv2d_transpose",
) -> Tensor:
    """The transpose of :func:`conv2d`: each input adds its multiple of the kernel to the outputs.

    It is declared from the outputs: the sum over the taps that fall on an input, which shape the
    domain of the sum, so that no zeros are multiplied.

    Parameters
    ----------
    x
        `(n, c, h, w)`, or `(n, h, w, c)` with layout NHWC.
    weight
        `(c, f // groups, kh, kw)`, or `(kh, kw, f // groups, c)` with layout NHWC.
    bias
        `(f,)`, added.
    stride
        Distance of the copies of the kernel.
    padding
        How many outputs are cut off: a number, or a number or a pair for each dimension.
    output_padding
        How many outputs are added at the end, fewer than the stride or the dilation.
    dilation
        Distance of the elements of the kernel.
    groups
        Into how many independent groups channels and filters are cut.
    layout
        NCHW or NHWC.
    dtype
        Type of the products, the sum and the result.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, w = placeholder((1, 3, 8, 8), name="x"), placeholder((3, 4, 3, 3), name="w")
    >>> conv2d_transpose(x, w, stride=2, padding=1, output_padding=1)
    conv2d_transpose: float32[1, 4, 16, 16]
    """
    return _transposed(
        2,
        x,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        layout,
        dtype,
        name,
    )


@user_api
def conv3d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCDHW",
    dtype: object = None,
    name: str = "conv3d_transpose",
) -> Tensor:
    """The transpose of :func:`conv3d`; parameters as :func:`conv2d_transpose`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, w = placeholder((1, 2, 4, 4, 4), name="x"), placeholder((2, 3, 2, 2, 2), name="w")
    >>> conv3d_transpose(x, w, stride=2)
    conv3d_transpose: float32[1, 3, 8, 8, 8]
    """
    return _transposed(
        3,
        x,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        layout,
        dtype,
        name,
    )
