"""Resizing images: nearest, linear and cubic.

The source coordinate of output `i`, of `o` outputs and `n` elements, is

- `half_pixel`: (i + 1/2) n / o - 1/2
- `align_corners`: i (n - 1) / (o - 1), and 0 for one output
- `asymmetric`: i n / o

Coordinates are computed exactly, as fractions of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast
from tensorir.ir.expr import Expr
from tensorir.ir.language import compute
from tensorir.ir.tensor import Tensor
from tensorir.ops.conv import SPACE, channels_last
from tensorir.ops.shapes import dims, floating, one_of, several, static, tensor, wide
from tensorir.support.errors import ArgumentError
from tensorir.support.tracebacks import user_api

COORDINATES = ("half_pixel", "align_corners", "asymmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def fraction(n: int, o: int, coordinates: str) -> tuple[int, int, int]:
    """(a, b, c): the coordinate of output i is (a i + b) / c.

    Examples
    --------
    >>> fraction(8, 4, "half_pixel"), fraction(8, 4, "align_corners")
    ((4, 1, 2), (7, 0, 3))
    """
    if o == 0:
        return 1, 0, 1
    if coordinates == "half_pixel":
        a, b, c = 2 * n, n - o, 2 * o
    elif coordinates == "align_corners":
        a, b, c = (n - 1, 0, o - 1) if o > 1 else (0, 0, 1)
    else:
        a, b, c = n, 0, o
    g = gcd(a, b, c)
    return a // g, b // g, c // g


def _spatial(x: object, what: str, layout: str | None) -> tuple[Tensor, list[int], bool]:
    t = tensor(x, f"x of {what}")
    rank = t.ndim - 2
    if rank not in SPACE:
        raise ArgumentError(
            f"x of {what} must have 1 to 3 dimensions beside batch and channels; it has {t.ndim} "
            "dimensions in all"
        )
    last = layout is not None and channels_last(layout, rank, what)
    return t, list(range(1, rank + 1)) if last else list(range(2, rank + 2)), last


def _clamped(e: Any, low: int, high: int, n: int) -> Any:
    """An index whose values run from `low` to `high`, kept inside n elements."""
    if low < 0:
        e = binary("max", e, 0)
    return binary("min", e, n - 1) if high > n - 1 else e


def _floor(i: Any, a: int, b: int, c: int) -> Any:
    """floor((a i + b) / c), with small numbers: a whole scale needs no division."""
    g = gcd(a, c)
    return (i * (a // g) + b // g) // (c // g)


@user_api
def resize_nearest(
    x: Tensor,
    size: int | Sequence[int],
    *,
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    layout: str | None = None,
    name: str = "resize_nearest",
) -> Tensor:
    """The element nearest to each source coordinate.

    Parameters
    ----------
    x
        `(n, c, ...)` with 1 to 3 more dimensions, or channels last.
    size
        The new extents, one for all or one for each.
    coordinates
        `half_pixel`, `align_corners` or `asymmetric`.
    rounding
        `round_prefer_floor`, `round_prefer_ceil` (they differ at ties), `floor` or `ceil`.
    layout
        As for the convolutions.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> resize_nearest(placeholder((1, 3, 8, 8), name="x"), (4, 16))
    resize_nearest: float32[1, 3, 4, 16]
    """
    what = "resize_nearest"
    t, space, _ = _spatial(x, what, layout)
    one_of(coordinates, COORDINATES, f"coordinates of {what}")
    one_of(rounding, ROUNDINGS, f"rounding of {what}")
    sizes, extents = _sizes(t, size, space, what)

    def source(i: Any, n: int, o: int) -> Any:
        a, b, c = fraction(n, o, coordinates)
        up = rounding in ("ceil", "round_prefer_floor")
        if rounding.startswith("round"):
            # the nearest is floor(x + 1/2) or ceil(x - 1/2)
            a, b, c = 2 * a, 2 * b + (-c if up else c), 2 * c
        values = [-(-(a * k + b) // c) if up else (a * k + b) // c for k in (0, max(o - 1, 0))]
        return _clamped(_floor(i, a, b + c - 1 if up else b, c), values[0], values[1], n)

    def body(*index: Any) -> Expr:
        place = list(index)
        for d, n, o in zip(space, extents, sizes, strict=True):
            place[d] = source(index[d], n, o)
        return t[tuple(place)]

    shape = list(t.extents)
    for d, o in zip(space, sizes, strict=True):
        shape[d] = Lin({}, o)
    made: Tensor = compute(dims(shape), body, name=name, axes=_titles(t, space))
    return made


def _sizes(t: Tensor, size: Any, space: list[int], what: str) -> tuple[Any, Any]:
    extents = static(t, space, what)
    sizes = several(size, len(space), f"size of {what}", 0)
    for n, o in zip(extents, sizes, strict=True):
        if n == 0 and o > 0:
            raise ArgumentError(f"{what} of {t.name}: there is nothing in an extent of 0")
    return sizes, extents


def _titles(t: Tensor, space: list[int]) -> tuple[str, ...]:
    names = SPACE[len(space)]
    return ("n", *names, "c") if space[0] == 1 else ("n", "c", *names)


def _along(t: Tensor, d: int, o: int, weigh: Any, space: list[int], name: str) -> Tensor:
    """A stage that resizes one dimension: `weigh(i)` lists (index, weight) pairs."""
    shape = list(t.extents)
    shape[d] = Lin({}, o)
    inner = wide(t.dtype)

    def body(*index: Any) -> Expr:
        total: Expr | None = None
        for at, weight in weigh(index[d], inner):
            e = cast(t[(*index[:d], at, *index[d + 1 :])], inner) * weight
            total = e if total is None else total + e
        assert total is not None
        return total

    made: Tensor = compute(dims(shape), body, name=name, axes=_titles(t, space))
    return made


def _interpolated(
    x: object, size: Any, coordinates: str, layout: str | None, taps: Any, name: str, what: str
) -> Tensor:
    """One stage for each dimension that changes, and the last one in the type of `x`."""
    floating(x, f"x of {what}")
    t, space, _ = _spatial(x, what, layout)
    one_of(coordinates, COORDINATES, f"coordinates of {what}")
    sizes, extents = _sizes(t, size, space, what)
    changed = [(d, n, o) for d, n, o in zip(space, extents, sizes, strict=True) if n != o]
    made = t
    for d, n, o in changed:
        title = name if (d, n, o) == changed[-1] and made.dtype == wide(t.dtype) == t.dtype else (
            f"{name}_{SPACE[len(space)][space.index(d)]}"
        )  # fmt: skip
        made = _along(
            made, d, o, lambda i, inner, n=n, o=o: taps(i, inner, n, o, coordinates), space, title
        )
    if changed and made.dtype == t.dtype:
        return made
    last = made
    out: Tensor = compute(
        dims(made.extents), lambda *index: cast(last[index], t.dtype), name=name,
        axes=_titles(t, space),
    )  # fmt: skip
    return out


def _linear(i: Any, inner: Any, n: int, o: int, coordinates: str) -> list[tuple[Any, Expr]]:
    a, b, c = fraction(n, o, coordinates)
    low = _floor(i, a, b, c)
    part = cast((i * a + b) % c, inner) / float(c)
    first, end = b // c, (a * max(o - 1, 0) + b) // c
    return [
        (_clamped(low, first, end, n), 1.0 - part),
        (_clamped(low + 1, first + 1, end + 1, n), part),
    ]


@user_api
def resize_linear(
    x: Tensor,
    size: int | Sequence[int],
    *,
    coordinates: str = "half_pixel",
    layout: str | None = None,
    name: str = "resize_linear",
) -> Tensor:
    """Linear interpolation, one dimension after the other; edges are repeated.

    Parameters as :func:`resize_nearest`; elements are floats.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> resize_linear(placeholder((1, 3, 8, 8), name="x"), 16)
    resize_linear: float32[1, 3, 16, 16]
    """
    return _interpolated(x, size, coordinates, layout, _linear, name, "resize_linear")


@user_api
def resize_cubic(
    x: Tensor,
    size: int | Sequence[int],
    *,
    coordinates: str = "half_pixel",
    coefficient: float = -0.75,
    layout: str | None = None,
    name: str = "resize_cubic",
) -> Tensor:
    """Cubic convolution (Keys, 1981), one dimension after the other; edges are repeated.

    Parameters as :func:`resize_nearest`; `coefficient` is Keys' a.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> resize_cubic(placeholder((1, 3, 8, 8), name="x"), (4, 12), coefficient=-0.5)
    resize_cubic: float32[1, 3, 4, 12]
    """
    k = float(coefficient)

    def near(s: Expr) -> Expr:
        return ((k + 2) * s - (k + 3)) * s * s + 1.0

    def far(s: Expr) -> Expr:
        return ((k * s - 5 * k) * s + 8 * k) * s - 4 * k

    def taps(i: Any, inner: Any, n: int, o: int, coordinates: str) -> list[tuple[Any, Expr]]:
        a, b, c = fraction(n, o, coordinates)
        low = _floor(i, a, b, c)
        part = cast((i * a + b) % c, inner) / float(c)
        first, end = b // c, (a * max(o - 1, 0) + b) // c
        weights = (far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part))
        return [
            (_clamped(low + j, first + j, end + j, n), w)
            for j, w in zip((-1, 0, 1, 2), weights, strict=True)
        ]

    return _interpolated(x, size, coordinates, layout, taps, name, "resize_cubic")
