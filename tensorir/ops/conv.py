"""Convolutions of 1, 2 and 3 dimensions, and depthwise.

As everywhere in the field, kernels are not mirrored: it is cross-correlation. Padding is a stage of
its own, so a schedule chooses whether it is inlined. Sums have the type of the product, halves
accumulate in float32; `dtype=` names another, into which elements are converted first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast, const
from tensorir.ir.dtype import promote
from tensorir.ir.expr import Expr
from tensorir.ir.language import compute, reduce_axis
from tensorir.ir.tensor import Tensor
from tensorir.ops.linalg import product_sum
from tensorir.ops.movement import padded, widths
from tensorir.ops.shapes import dims, integer, one_of, several, shape, static, tensor
from tensorir.support.errors import ArgumentError
from tensorir.support.tracebacks import user_api

Sizes = int | Sequence[int]
Padding = int | str | Sequence[Any]
LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
SPACE = {1: ("x",), 2: ("y", "x"), 3: ("z", "y", "x")}


def channels_last(layout: object, rank: int, what: str) -> bool:
    """Whether the channels are the last dimension."""
    return one_of(layout, LAYOUTS[rank], f"layout of {what}") == LAYOUTS[rank][1]


def paddings(
    padding: Padding,
    extents: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    what: str,
) -> list[tuple[int, int]]:
    """(before, after) for each spatial dimension.

    `valid` is none. `same` gives ceil(extent / stride) outputs, the odd one after; `same_lower`
    puts it before.
    """
    if not isinstance(padding, str):
        return widths(padding, len(extents), f"padding of {what}")
    kind = one_of(padding, ("valid", "same", "same_lower"), f"padding of {what}")
    pairs = []
    for e, k, s, d in zip(extents, kernel, stride, dilation, strict=True):
        outputs = -(-e // s)
        total = max((outputs - 1) * s + (k - 1) * d + 1 - e, 0) if kind != "valid" else 0
        low = total // 2
        pairs.append((low, total - low) if kind != "same_lower" else (total - low, low))
    return pairs


def windows(
    extents: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
    what: str,
) -> list[int]:
    """How many windows fit in each dimension."""
    found = []
    for e, k, s, d, (low, high) in zip(extents, kernel, stride, dilation, pads, strict=True):
        span = (k - 1) * d + 1
        if e + low + high < span:
            raise ArgumentError(
                f"{what}: a window of {span} does not fit into {e} elements padded by "
                f"{low} and {high}"
            )
        found.append((e + low + high - span) // s + 1)
    return found


def convolution(
    rank: int,
    x: object,
    weight: object,
    bias: object,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    layout: str,
    dtype: object,
    name: str,
    *,
    what: str,
    zero: tuple[int, int] | None = None,
) -> Tensor:
    """A convolution of that many dimensions; `zero` holds the zero points of quantised inputs."""
    t, w = tensor(x, f"x of {what}", rank + 2), tensor(weight, f"weight of {what}", rank + 2)
    last = channels_last(layout, rank, what)
    steps = several(stride, rank, f"stride of {what}", 1)
    gaps = several(dilation, rank, f"dilation of {what}", 1)
    parts = integer(groups, f"groups of {what}", 1)
    space = list(range(1, rank + 1)) if last else list(range(2, rank + 2))
    extents = static(t, space, what)
    (channels,) = static(t, (rank + 1 if last else 1,), what)
    own = static(w, range(rank + 2), what)
    kernel = own[:rank] if last else own[2:]
    filters, inner = (own[rank + 1], own[rank]) if last else own[:2]
    if channels % parts or filters % parts or channels // parts != inner:
        need = channels // parts if channels % parts == 0 else f"{channels}/{parts}"
        raise ArgumentError(
            f"{what} of {channels} channels in {parts} groups needs a weight of {need} channels "
            f"and a multiple of {parts} filters; its shape {shape(w)} has {inner} and {filters}"
        )
    pads = paddings(padding, extents, kernel, steps, gaps, what)
    outputs = windows(extents, kernel, steps, gaps, pads, what)
    offset = bias_of(bias, filters, what)
    if any(low or high for low, high in pads):
        pairs = [(0, 0), *pads, (0, 0)] if last else [(0, 0), (0, 0), *pads]
        t = padded(t, pairs, f"{name}_pad", value=zero[0] if zero else _zero(t))
    common = promote(t.dtype, w.dtype)
    titles = ("n", *SPACE[rank], "f") if last else ("n", "f", *SPACE[rank])
    full = (t.extents[0], *lins(outputs), Lin({}, filters))
    if not last:
        full = (t.extents[0], Lin({}, filters), *lins(outputs))
    # windows of one element, all in a row: pixels are one dimension, as in a product of matrices
    joined = math.prod(outputs) if rank > 1 and outputs == list(extents) and parts == 1 else 0
    flat = joined > 0 and not last and all(k == 1 for k in kernel)

    def product(n: Any, f: Any, at: Sequence[Any]) -> Expr:
        taps: list[Any] = [
            reduce_axis(k, name=f"r{c}") for k, c in zip(kernel, SPACE[rank], strict=True)
        ]
        place = [i * s + r * d for i, s, r, d in zip(at, steps, taps, gaps, strict=True)]
        c: Any = reduce_axis(inner, name="c")
        axes: tuple[Any, ...] = () if inner == 1 else (c,)
        c = const(0) if inner == 1 else c
        if flat:
            taps, place = [const(0)] * rank, list(at)
        else:
            axes = (*axes, *taps)
        channel = c if parts == 1 else f // max(filters // parts, 1) * inner + c
        a = t[(n, *place, channel)] if last else t[(n, channel, *place)]
        b = w[(*taps, c, f)] if last else w[(f, c, *taps)]
        left, right = (_shifted(a, zero[0]), _shifted(b, zero[1])) if zero else (a, b)
        return product_sum((left, right), axes, dtype, common)

    rows: Tensor | None = None
    if flat:
        shape_ = (t.extents[0], Lin({}, filters), Lin({}, joined))
        rows = compute(
            dims(shape_),
            lambda n, f, p: product(n, f, _apart(p, outputs)),
            name=f"{name}_pixels",
            axes=("n", "f", "p"),
        )

    def body(*index: Any) -> Expr:
        n, f, at = (index[0], index[-1], index[1:-1]) if last else (index[0], index[1], index[2:])
        total = product(n, f, at) if rows is None else rows[n, f, _together(at, outputs)]
        return total if offset is None else binary("add", total, cast(offset[f], total.dtype))

    made: Tensor = compute(dims(full), body, name=name, axes=titles)
    return made


def _apart(pixel: Any, extents: Sequence[int]) -> list[Any]:
    """The coordinates of a pixel that is given by its number."""
    found = []
    for k, e in enumerate(extents):
        behind = math.prod(extents[k + 1 :])
        found.append(pixel // behind % e if k else pixel // behind)
    return found


def _together(at: Sequence[Any], extents: Sequence[int]) -> Any:
    """The number of a pixel."""
    number: Any = at[0]
    for i, e in zip(at[1:], extents[1:], strict=True):
        number = number * e + i
    return number


def lins(values: Sequence[int]) -> tuple[Lin, ...]:
    return tuple(Lin({}, v) for v in values)


def _zero(t: Tensor) -> Any:
    return False if t.dtype.kind == "bool" else 0


def _shifted(e: Expr, zero: int) -> Expr:
    return binary("sub", cast(e, "int32"), zero) if zero else cast(e, "int32")


def bias_of(bias: object, filters: int, what: str) -> Tensor | None:
    if bias is None:
        return None
    b = tensor(bias, f"bias of {what}", 1)
    if b.extents[0] != Lin({}, filters):
        raise ArgumentError(f"bias of {what} has {b.extents[0]} elements for {filters} filters")
    return b


@user_api
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCW",
    dtype: object = None,
    name: str = "conv1d",
) -> Tensor:
    """The convolution of signals; parameters as :func:`conv2d`, layouts NCW and NWC.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> conv1d(placeholder((1, 3, 16), name="x"), placeholder((8, 3, 5), name="w"), stride=2)
    conv1d: float32[1, 8, 6]
    """
    return convolution(
        1, x, weight, bias, stride, padding, dilation, groups, layout, dtype, name, what="conv1d"
    )  # fmt: skip


@user_api
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCHW",
    dtype: object = None,
    name: str = "conv2d",
) -> Tensor:
    """The convolution of images.

    Parameters
    ----------
    x
        `(n, c, h, w)`, or `(n, h, w, c)` with layout NHWC. `n` may be symbolic.
    weight
        `(f, c // groups, kh, kw)`, or `(kh, kw, c // groups, f)` with layout NHWC.
    bias
        `(f,)`, added.
    stride
        Distance of windows, for all dimensions or for each.
    padding
        Zeros around each image: a number, or a number or a pair (before, after) for each
        dimension; or `"valid"`, `"same"` (the odd one after), `"same_lower"` (before).
    dilation
        Distance of the elements of a window.
    groups
        Into how many independent groups channels and filters are cut; `c` of them is depthwise.
    layout
        NCHW or NHWC.
    dtype
        Type of the products, the sum and the result.
    name
        What the result is called; the padded input is `<name>_pad`.

    Raises
    ------
    ArgumentError
        For channels, filters and groups that do not fit, or a window larger than the padded image.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, w = placeholder((1, 3, 32, 32), name="x"), placeholder((8, 3, 3, 3), name="w")
    >>> conv2d(x, w, stride=2, padding="same")
    conv2d: float32[1, 8, 16, 16]
    """
    return convolution(
        2, x, weight, bias, stride, padding, dilation, groups, layout, dtype, name, what="conv2d"
    )  # fmt: skip


@user_api
def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCDHW",
    dtype: object = None,
    name: str = "conv3d",
) -> Tensor:
    """The convolution of volumes; parameters as :func:`conv2d`, layouts NCDHW and NDHWC.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, w = placeholder((1, 2, 8, 8, 8), name="x"), placeholder((4, 2, 3, 3, 3), name="w")
    >>> conv3d(x, w, padding=1)
    conv3d: float32[1, 4, 8, 8, 8]
    """
    return convolution(
        3, x, weight, bias, stride, padding, dilation, groups, layout, dtype, name, what="conv3d"
    )  # fmt: skip


@user_api
def depthwise_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    layout: str = "NCHW",
    dtype: object = None,
    name: str = "depthwise_conv2d",
) -> Tensor:
    """The convolution of each channel by itself: :func:`conv2d` with as many groups as channels.

    The weight is `(c * m, 1, kh, kw)`, or `(kh, kw, 1, c * m)` with layout NHWC.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x, w = placeholder((1, 8, 16, 16), name="x"), placeholder((8, 1, 3, 3), name="w")
    >>> depthwise_conv2d(x, w, padding=1)
    depthwise_conv2d: float32[1, 8, 16, 16]
    """
    what = "depthwise_conv2d"
    t = tensor(x, f"x of {what}", 4)
    last = channels_last(layout, 2, what)
    (channels,) = static(t, (3 if last else 1,), what)
    return convolution(
        2, t, weight, bias, stride, padding, dilation, channels, layout, dtype, name, what=what
    )  # fmt: skip
