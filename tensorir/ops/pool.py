"""Pooling: maxima and averages of windows, adaptive and global.

Layouts are those of the convolutions. Windows are reductions whose domain leaves the padding out,
so nothing outside is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorir.ir import reductions
from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast
from tensorir.ir.expr import Axis, Expr
from tensorir.ir.language import compute, reduce_axis
from tensorir.ir.tensor import Tensor
from tensorir.ops.conv import (
    SPACE,
    Padding,
    Sizes,
    channels_last,
    paddings,
    windows,
)
from tensorir.ops.shapes import dims, floating, several, static, tensor, wide
from tensorir.support.errors import ArgumentError
from tensorir.support.tracebacks import user_api


def _rank(x: Tensor, what: str) -> int:
    if x.ndim not in (3, 4, 5):
        raise ArgumentError(
            f"x of {what} must have 1 to 3 dimensions beside batch and channels; it has {x.ndim} "
            "dimensions in all"
        )
    return x.ndim - 2


def _layout(layout: str | None, rank: int, what: str) -> bool:
    return layout is not None and channels_last(layout, rank, what)


def _outputs(
    extents: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
    ceil: bool,
    what: str,
) -> list[int]:
    """How many windows there are; with `ceil` also one that is cut short, if it holds anything."""
    counts = windows(extents, kernel, stride, dilation, pads, what)
    if not ceil:
        return counts
    found = []
    for n, e, k, s, d, (low, high) in zip(
        counts, extents, kernel, stride, dilation, pads, strict=True
    ):
        rest = e + low + high - (k - 1) * d - 1 - (n - 1) * s
        # a window that starts in the padding after the elements would hold nothing
        found.append(n + (rest > 0 and n * s < e + low))
    return found


def _checked(
    outputs: Sequence[int],
    extents: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
    what: str,
) -> None:
    """Refuse windows that lie wholly in the padding."""
    for n, e, k, s, d, (low, high) in zip(
        outputs, extents, kernel, stride, dilation, pads, strict=True
    ):
        for i in range(n):
            if not any(0 <= i * s - low + r * d < e for r in range(k)):
                raise ArgumentError(
                    f"{what}: window {i} of {k} elements lies wholly in the padding of {low} and "
                    f"{high} around {e} elements"
                )


Finish = Callable[[Callable[[], Expr], tuple[Axis, ...], "Expr | None", list[Any]], Any]


def _pooled(
    t: Tensor,
    last: bool,
    outputs: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
    finish: Finish,
    name: str,
) -> Tensor:
    """A tensor over windows: `finish(element, axes, inside, index)` at each."""
    rank = t.ndim - 2
    space = slice(1, -1) if last else slice(2, None)
    extents = [e.const for e in t.extents[space]]

    def body(*index: Any) -> Any:
        at = list(index[space])
        taps = tuple(reduce_axis(k, name=f"r{c}") for k, c in zip(kernel, SPACE[rank], strict=True))
        place = [
            i * s + r * d - low
            for i, s, r, d, (low, _) in zip(at, stride, taps, dilation, pads, strict=True)
        ]
        inside: Expr | None = None
        for p, n, e, k, s, d, (low, _) in zip(
            place, outputs, extents, kernel, stride, dilation, pads, strict=True
        ):
            checks = [p >= 0] if low else []
            checks += [p < e] if (n - 1) * s + (k - 1) * d - low >= e else []
            for c in checks:
                inside = c if inside is None else inside & c
        full = (index[0], *place, index[-1]) if last else (*index[:2], *place)
        return finish(lambda: t[full], taps, inside, at)

    shape = list(t.extents)
    shape[space] = [Lin({}, n) for n in outputs]
    titles = ("n", *SPACE[rank], "c") if last else ("n", "c", *SPACE[rank])
    made: Tensor = compute(dims(shape), body, name=name, axes=titles)
    return made


def _plan(
    x: object,
    kernel: Sizes,
    stride: Sizes | None,
    padding: Padding,
    dilation: Sizes,
    ceil: bool,
    layout: str | None,
    what: str,
) -> tuple[Tensor, bool, list[int], Any, Any, Any, Any]:
    t = tensor(x, f"x of {what}")
    rank = _rank(t, what)
    last = _layout(layout, rank, what)
    sizes = several(kernel, rank, f"kernel of {what}", 1)
    steps = several(kernel if stride is None else stride, rank, f"stride of {what}", 1)
    gaps = several(dilation, rank, f"dilation of {what}", 1)
    extents = static(t, list(range(1, rank + 1)) if last else list(range(2, rank + 2)), what)
    pads = paddings(padding, extents, sizes, steps, gaps, what)
    outputs = _outputs(extents, sizes, steps, gaps, pads, ceil, what)
    _checked(outputs, extents, sizes, steps, gaps, pads, what)
    return t, last, outputs, sizes, steps, gaps, pads


@user_api
def max_pool(
    x: Tensor,
    kernel: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    layout: str | None = None,
    name: str = "max_pool",
) -> Tensor:
    """The greatest element of each window, NaN if one is NaN; padding is never the greatest.

    Parameters
    ----------
    x
        `(n, c, ...)` with 1 to 3 more dimensions, or channels last.
    kernel
        Extents of a window, one for all dimensions or one for each.
    stride
        Distance of windows; by default the kernel.
    padding
        A number, a number or a pair (before, after) for each dimension, `"valid"`, `"same"`
        or `"same_lower"`.
    dilation
        Distance of the elements of a window.
    ceil_mode
        Whether a last window that is cut short counts; it must begin before the elements end.
    layout
        As for the convolutions: NCHW (by default) or NHWC, and those of other ranks.
    name
        What the result is called.

    Raises
    ------
    ArgumentError
        For a window that does not fit, or that lies wholly in the padding.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> max_pool(placeholder((1, 8, 7, 7), name="x"), 3, stride=2, padding=1)
    max_pool: float32[1, 8, 4, 4]
    """
    t, last, outputs, sizes, steps, gaps, pads = _plan(
        x, kernel, stride, padding, dilation, ceil_mode, layout, "max_pool"
    )
    return _pooled(
        t, last, outputs, sizes, steps, gaps, pads,
        lambda element, axes, inside, at: reductions.max(element(), axis=axes, where=inside), name,
    )  # fmt: skip


@user_api
def avg_pool(
    x: Tensor,
    kernel: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_padding: bool = True,
    layout: str | None = None,
    name: str = "avg_pool",
) -> Tensor:
    """The mean of each window; parameters as :func:`max_pool`.

    With `count_padding` the zeros of the padding count in the divisor; what `ceil_mode` adds beyond
    the padding never does.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> avg_pool(placeholder((1, 8, 7, 7), name="x"), 2, ceil_mode=True)
    avg_pool: float32[1, 8, 4, 4]
    """
    floating(x, "x of avg_pool")
    t, last, outputs, sizes, steps, gaps, pads = _plan(
        x, kernel, stride, padding, 1, ceil_mode, layout, "avg_pool"
    )
    inner = wide(t.dtype)
    extents = [e.const for e in (t.extents[1:-1] if last else t.extents[2:])]

    def finish(
        element: Callable[[], Expr], axes: tuple[Axis, ...], inside: Expr | None, at: list[Any]
    ) -> Expr:
        total = reductions.sum(cast(element(), inner), axis=axes, where=inside)
        counted: Any = 1
        for i, e, k, s, (low, high) in zip(at, extents, sizes, steps, pads, strict=True):
            counted = binary("mul", _counted(i, e, k, s, low, high, count_padding), counted)
        return cast(total / cast(counted, inner), t.dtype)

    return _pooled(t, last, outputs, sizes, steps, gaps, pads, finish, name)


def _counted(i: Any, e: int, k: int, s: int, low: int, high: int, padding: bool) -> Expr:
    """How many elements of window `i` count along one dimension."""
    first = i * s - low
    if padding:
        return binary("sub", binary("min", first + k, e + high), first)
    return binary("sub", binary("min", first + k, e), binary("max", first, 0))


def _adaptive(x: object, outputs: Sizes, layout: str | None, name: str, kind: str) -> Tensor:
    what = f"adaptive_{kind}_pool"
    t = tensor(x, f"x of {what}") if kind == "max" else floating(x, f"x of {what}")
    rank = _rank(t, what)
    last = _layout(layout, rank, what)
    space = slice(1, -1) if last else slice(2, None)
    extents = static(t, list(range(t.ndim))[space], what)
    sizes = several(outputs, rank, f"outputs of {what}", 1)
    inner = wide(t.dtype)
    for e in extents:
        if e == 0:
            raise ArgumentError(f"{what} of {t.name}: a spatial extent is 0")

    def body(*index: Any) -> Expr:
        at = index[space]
        bounds = [
            ((i * e) // n, (i * e + e + n - 1) // n)
            for i, e, n in zip(at, extents, sizes, strict=True)
        ]
        axes = tuple(reduce_axis(b, name=f"r{c}") for b, c in zip(bounds, SPACE[rank], strict=True))
        element = t[(index[0], *axes, index[-1]) if last else (*index[:2], *axes)]
        if kind == "max":
            return reductions.max(element, axis=axes)
        counted: Any = 1
        for first, end in bounds:
            counted = binary("mul", binary("sub", end, first), counted)
        total = reductions.sum(cast(element, inner), axis=axes)
        return cast(total / cast(counted, inner), t.dtype)

    shape = list(t.extents)
    shape[space] = [Lin({}, n) for n in sizes]
    titles = ("n", *SPACE[rank], "c") if last else ("n", "c", *SPACE[rank])
    made: Tensor = compute(dims(shape), body, name=name, axes=titles)
    return made


@user_api
def adaptive_avg_pool(
    x: Tensor, outputs: Sizes, *, layout: str | None = None, name: str = "adaptive_avg_pool"
) -> Tensor:
    """The means of `outputs` windows along each dimension, from floor(i*e/n) to ceil((i+1)*e/n).

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> adaptive_avg_pool(placeholder((1, 8, 7, 7), name="x"), (3, 2))
    adaptive_avg_pool: float32[1, 8, 3, 2]
    """
    return _adaptive(x, outputs, layout, name, "avg")


@user_api
def adaptive_max_pool(
    x: Tensor, outputs: Sizes, *, layout: str | None = None, name: str = "adaptive_max_pool"
) -> Tensor:
    """The greatest elements of the windows of :func:`adaptive_avg_pool`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> adaptive_max_pool(placeholder((1, 8, 7), name="x"), 3)
    adaptive_max_pool: float32[1, 8, 3]
    """
    return _adaptive(x, outputs, layout, name, "max")


@user_api
def global_avg_pool(
    x: Tensor, *, layout: str | None = None, name: str = "global_avg_pool"
) -> Tensor:
    """The mean of each channel; its spatial extents become 1.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> global_avg_pool(placeholder((1, 8, 7, 7), name="x"))
    global_avg_pool: float32[1, 8, 1, 1]
    """
    return _adaptive(x, 1, layout, name, "avg")


@user_api
def global_max_pool(
    x: Tensor, *, layout: str | None = None, name: str = "global_max_pool"
) -> Tensor:
    """The greatest element of each channel; its spatial extents become 1.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> global_max_pool(placeholder((1, 7, 7, 8), name="x"), layout="NHWC")
    global_max_pool: float32[1, 1, 1, 8]
    """
    return _adaptive(x, 1, layout, name, "max")
