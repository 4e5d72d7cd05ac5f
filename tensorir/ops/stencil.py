"""Stencils for teaching: blur, Jacobi, heat, Sobel. Small programs with something to schedule."""

from __future__ import annotations

from typing import Any

from tensorir.ir import maths
from tensorir.ir.build import cast, if_then_else
from tensorir.ir.expr import Expr
from tensorir.ir.index import from_lin
from tensorir.ir.language import compute
from tensorir.ir.tensor import Tensor
from tensorir.ops.shapes import dims, floating, integer, shape, wide
from tensorir.support.errors import ArgumentError
from tensorir.support.tracebacks import user_api


def _image(x: object, what: str, least: int = 0) -> Tensor:
    t = floating(x, f"x of {what}", 2)
    for e in t.extents:
        if e.is_const and e.const < least:
            raise ArgumentError(
                f"{what} needs at least {least} elements in each dimension; the shape is {shape(t)}"
            )
    return t


@user_api
def blur(x: Tensor, *, name: str = "blur") -> Tensor:
    """The mean of 3 by 3 neighbours, in two stages: along x, then along y.

    An image `(h, w)` gives `(h - 2, w - 2)`; the first stage is `<name>_x`. Halide's first example.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> blur(placeholder((8, 10), name="image"))
    blur: float32[6, 8]
    """
    t = _image(x, "blur", 2)
    h, w = t.extents
    inner = wide(t.dtype)

    def load(y: Any, x: Any) -> Expr:
        return cast(t[y, x], inner)

    along: Tensor = compute(
        dims((h, w - 2)),
        lambda y, x: (load(y, x) + load(y, x + 1) + load(y, x + 2)) / 3.0,
        name=f"{name}_x",
    )
    made: Tensor = compute(
        dims((h - 2, w - 2)),
        lambda y, x: cast((along[y, x] + along[y + 1, x] + along[y + 2, x]) / 3.0, t.dtype),
        name=name,
    )
    return made


def _stepped(x: object, steps: int, what: str, inner: Any, name: str) -> Tensor:
    """A stage for each step: `inner(t, y, x)` inside, the border as it is."""
    t = _image(x, what)
    n = integer(steps, f"steps of {what}", 1)
    h, w = (from_lin(e) for e in t.extents)
    for k in range(n):
        before = t
        t = compute(
            dims(t.extents),
            lambda y, x: if_then_else(
                (y >= 1) & (y < h - 1) & (x >= 1) & (x < w - 1), inner(before, y, x), before[y, x]
            ),
            name=name if k == n - 1 else f"{name}_{k + 1}",
        )
    return t


@user_api
def jacobi(x: Tensor, *, steps: int = 1, name: str = "jacobi") -> Tensor:
    """Steps of Jacobi's method for Laplace's equation: each inner point becomes the mean of its
    four neighbours; the border stays.

    Every step is a stage, `<name>_1` and on.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> jacobi(placeholder((8, 8), name="u"), steps=3)
    jacobi: float32[8, 8]
    """

    def inner(t: Tensor, y: Any, x: Any) -> Expr:
        return (t[y - 1, x] + t[y + 1, x] + t[y, x - 1] + t[y, x + 1]) * 0.25

    return _stepped(x, steps, "jacobi", inner, name)


@user_api
def heat(x: Tensor, alpha: float = 0.1, *, steps: int = 1, name: str = "heat") -> Tensor:
    """Explicit steps of the heat equation: `u + alpha * laplacian(u)` inside; the border stays.

    Stable for `alpha` up to 1/4. Every step is a stage, `<name>_1` and on.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> heat(placeholder((8, 8), name="u"), 0.2)
    heat: float32[8, 8]
    """
    by = float(alpha)

    def inner(t: Tensor, y: Any, x: Any) -> Expr:
        around = t[y - 1, x] + t[y + 1, x] + t[y, x - 1] + t[y, x + 1]
        return t[y, x] + (around - t[y, x] * 4.0) * by

    return _stepped(x, steps, "heat", inner, name)


@user_api
def sobel(x: Tensor, *, name: str = "sobel") -> Tensor:
    """The size of the gradient by Sobel's 3 by 3 kernels: `(h, w)` gives `(h - 2, w - 2)`.

    Stages `<name>_x` and `<name>_y` hold its parts.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> sobel(placeholder((8, 10), name="image"))
    sobel: float32[6, 8]
    """
    t = _image(x, "sobel", 2)
    h, w = t.extents

    def part(turned: bool) -> Tensor:
        def body(y: Any, x: Any) -> Expr:
            def load(a: int, b: int) -> Expr:
                return t[(y + b, x + a) if turned else (y + a, x + b)]

            right = load(0, 2) + load(1, 2) * 2.0 + load(2, 2)
            left = load(0, 0) + load(1, 0) * 2.0 + load(2, 0)
            return right - left

        made: Tensor = compute(
            dims((h - 2, w - 2)), body, name=f"{name}_{'y' if turned else 'x'}", axes=("y", "x")
        )
        return made

    gx, gy = part(False), part(True)
    made: Tensor = compute(
        dims((h - 2, w - 2)),
        lambda y, x: maths.sqrt(gx[y, x] * gx[y, x] + gy[y, x] * gy[y, x]),
        name=name,
    )
    return made
