"""Operators that move elements: transpose, reshape, pad, flip, repeat."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from math import prod
from typing import Any

from tensorir.ir import maths
from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, const, if_then_else, is_scalar
from tensorir.ir.expr import Expr
from tensorir.ir.index import from_lin
from tensorir.ir.language import compute
from tensorir.ir.tensor import Tensor
from tensorir.ops.shapes import (
    Axes,
    Number,
    axes_of,
    axis_of,
    dims,
    integer,
    names,
    one_of,
    several,
    shape,
    static,
    tensor,
)
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.tracebacks import user_api

ONE = Lin({}, 1)


def moved(extents: Sequence[Lin], fn: Any, name: str) -> Tensor:
    """The tensor of these extents whose element is `fn(index)`, the index as a tuple."""
    made: Tensor = compute(
        dims(extents), lambda *index: fn(index), name=name, axes=names(len(extents))
    )
    return made


@user_api
def transpose(x: Tensor, axes: Sequence[int] | None = None, *, name: str = "transpose") -> Tensor:
    """The dimensions in another order; reversed without `axes`.

    Raises
    ------
    ArgumentError
        If `axes` does not name each dimension once.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> transpose(placeholder((2, 3, 4), name="a"), (0, 2, 1))
    transpose: float32[2, 4, 3]
    """
    t = tensor(x, "x of transpose")
    given = range(t.ndim)[::-1] if axes is None else axes
    order = [axis_of(a, t.ndim, "axis of transpose") for a in given]
    if sorted(order) != list(range(t.ndim)):
        raise ArgumentError(
            f"axes of transpose must name each of the {t.ndim} dimensions once, not {axes}"
        )
    back = [order.index(d) for d in range(t.ndim)]
    return moved(
        [t.extents[d] for d in order], lambda index: t[tuple(index[k] for k in back)], name
    )


# -- reshape


@user_api
def reshape(x: Tensor, shape: int | Sequence[int], *, name: str = "reshape") -> Tensor:
    """The elements in row-major order in another shape; one extent may be -1.

    Extents must be constant. Dimensions that stay as they are cost no division.

    Raises
    ------
    ArgumentError
        If the shapes hold different numbers of elements.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> reshape(placeholder((2, 3, 4), name="a"), (6, -1))
    reshape: float32[6, 4]
    """
    t = tensor(x, "x of reshape")
    old = static(t, range(t.ndim), "reshape")
    new = _shape(old, shape)
    groups = _groups(old, new)

    def element(index: Sequence[Any]) -> Expr:
        place: dict[int, Any] = {}
        for sources, targets in groups:
            flat: Any = const(0)
            for d in targets:
                flat = flat * new[d] + index[d]
            for d in reversed(sources):
                last = d == sources[0]
                place[d] = flat if last else flat % (old[d] or 2)
                flat = flat if last else flat // (old[d] or 2)
        return t[tuple(place[d] for d in range(t.ndim))]

    return moved([Lin({}, e) for e in new], element, name)


def _shape(old: tuple[int, ...], wanted: int | Sequence[int]) -> tuple[int, ...]:
    given = tuple(wanted) if isinstance(wanted, tuple | list) else (wanted,)
    new = [integer(e, "extent of reshape", -1) for e in given]
    have = prod(old)
    if new.count(-1) > 1:
        raise ArgumentError(f"shape of reshape holds -1 more than once: {tuple(new)}")
    if -1 in new:
        rest = prod(e for e in new if e != -1)
        if rest == 0 or have % rest:
            raise ArgumentError(
                f"{have} elements of shape {old} do not fill the shape {tuple(new)} of reshape"
            )
        new[new.index(-1)] = have // rest
    if prod(new) != have:
        raise ArgumentError(
            f"reshape from {old} to {tuple(new)}: {have} elements are not {prod(new)}"
        )
    return tuple(new)


def _groups(
    old: tuple[int, ...], new: tuple[int, ...]
) -> list[tuple[builtins.list[int], builtins.list[int]]]:
    """Runs of dimensions that hold the same elements before and after."""
    found = []
    i = j = 0
    while i < len(old) or j < len(new):
        sources, targets, p, q = [], [], 1, 1
        while True:
            if i < len(old) and (p <= q or j == len(new)):
                sources.append(i)
                p, i = p * old[i], i + 1
            elif j < len(new):
                targets.append(j)
                q, j = q * new[j], j + 1
            if p == q and sources and targets:
                break
            if i == len(old) and j == len(new):
                break
        found.append((sources, targets))
    return found


@user_api
def flatten(x: Tensor, start: int = 0, end: int = -1, *, name: str = "flatten") -> Tensor:
    """Dimensions `start` to `end`, that one included, as one.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> flatten(placeholder((2, 3, 4), name="a"), 1)
    flatten: float32[2, 12]
    """
    t = tensor(x, "x of flatten")
    first, last = (axis_of(a, t.ndim, "axis of flatten") for a in (start, end))
    if last < first:
        raise ArgumentError(f"flatten from dimension {first} to {last}: there is none between")
    old = static(t, range(t.ndim), "flatten")
    return reshape(t, (*old[:first], prod(old[first : last + 1]), *old[last + 1 :]), name=name)


@user_api
def expand_dims(x: Tensor, axis: Axes, *, name: str = "expand_dims") -> Tensor:
    """New dimensions of extent 1, where `axis` says that they are in the result.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> expand_dims(placeholder((2, 3), name="a"), (0, -1))
    expand_dims: float32[1, 2, 3, 1]
    """
    t = tensor(x, "x of expand_dims")
    given = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    rank = t.ndim + len(given)
    new = axes_of(given, rank, "axis of expand_dims")
    old = [d for d in range(rank) if d not in new]
    extents = [ONE if d in new else t.extents[old.index(d)] for d in range(rank)]
    return moved(extents, lambda index: t[tuple(index[d] for d in old)], name)


@user_api
def squeeze(x: Tensor, axis: Axes = None, *, name: str = "squeeze") -> Tensor:
    """The tensor without dimensions of extent 1: all of them, or those that `axis` names.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> squeeze(placeholder((1, 2, 1), name="a"))
    squeeze: float32[2]
    """
    t = tensor(x, "x of squeeze")
    ones = tuple(d for d in range(t.ndim) if t.extents[d] == ONE)
    gone = ones if axis is None else axes_of(axis, t.ndim, "axis of squeeze")
    for d in gone:
        if d not in ones:
            raise ArgumentError(f"squeeze of dimension {d}, whose extent is {t.extents[d]}, not 1")
    stay = [d for d in range(t.ndim) if d not in gone]

    def element(index: Sequence[Any]) -> Expr:
        place = dict(zip(stay, index, strict=True))
        return t[tuple(place.get(d, 0) for d in range(t.ndim))]

    return moved([t.extents[d] for d in stay], element, name)


@user_api
def broadcast_to(x: Tensor, shape: Sequence[Any], *, name: str = "broadcast_to") -> Tensor:
    """The tensor repeated along new dimensions and those of extent 1.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> broadcast_to(placeholder((3, 1), name="a"), (2, 3, 4))
    broadcast_to: float32[2, 3, 4]
    """
    from tensorir.ir.language import placeholder
    from tensorir.ops.shapes import at, broadcast

    t = tensor(x, "x of broadcast_to")
    target = placeholder(tuple(shape), t.dtype, name="shape").extents
    if broadcast([t.extents, target], "broadcast_to") != target:
        raise ArgumentError(f"{t.name} of shape {_of(t)} does not broadcast to {tuple(shape)}")
    return moved(target, lambda index: at(t, index), name)


def _of(t: Tensor) -> str:
    return shape(t)


# -- pad, flip, repeat


@user_api
def pad(
    x: Tensor,
    width: int | Sequence[Any],
    *,
    mode: str = "constant",
    value: Number = 0,
    name: str = "pad",
) -> Tensor:
    """The tensor with elements put around it.

    Parameters
    ----------
    x
        A tensor.
    width
        How many before and after: one number, or a number or a pair for each dimension.
    mode
        What they are: `constant`, `edge` (the nearest element) or `reflect` (mirrored at the edge,
        which is not repeated; each width is then less than the extent).
    value
        The constant.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> pad(placeholder((2, 3), name="a"), ((1, 2), 0))
    pad: float32[5, 3]
    """
    t = tensor(x, "x of pad")
    one_of(mode, ("constant", "edge", "reflect"), "mode of pad")
    if not is_scalar(value):
        raise ArgumentTypeError(f"value of pad must be a number, not {value!r:.60}")
    pairs = widths(width, t.ndim, "width of pad")
    for d, (before, after) in enumerate(pairs):
        if mode == "constant" or before == after == 0:
            continue
        (extent,) = static(t, (d,), f"pad by {mode}")
        most = extent - 1 if mode == "reflect" else before + after if extent else -1
        if builtins.max(before, after) > most:
            raise ArgumentError(
                f"pad by {mode} of dimension {d} with {before} and {after}: its extent is {extent}"
            )
    return padded(t, pairs, name, mode=mode, value=value)


def widths(width: Any, rank: int, what: str) -> list[tuple[int, int]]:
    """(before, after) for each dimension, from one number or a number or pair for each."""
    if not isinstance(width, tuple | list):
        n = integer(width, what, 0)
        return [(n, n)] * rank
    if len(width) != rank:
        raise ArgumentError(f"{what} must be one number or {rank} numbers or pairs, not {width}")
    pairs = [several(w, 2, what, 0) for w in width]
    return [(before, after) for before, after in pairs]


def padded(
    t: Tensor,
    pairs: Sequence[tuple[int, int]],
    name: str,
    *,
    mode: str = "constant",
    value: Any = 0,
) -> Tensor:
    """`pad` with checked widths; no load lies outside the tensor."""

    def element(index: Sequence[Any]) -> Expr:
        inside: Expr | None = None
        place = []
        for i, (before, after), e in zip(index, pairs, t.extents, strict=True):
            own = i - before if before else i
            place.append(own if mode == "constant" else _folded(own, before, after, e, mode))
            checks = [own >= 0] if before else []
            checks += [own < from_lin(e)] if after else []
            for c in checks:
                inside = c if inside is None else inside & c
        loaded = t[tuple(place)]
        if inside is None or mode != "constant":
            return loaded
        return if_then_else(inside, loaded, const(value, t.dtype))

    extents = [e + b + a for e, (b, a) in zip(t.extents, pairs, strict=True)]
    return moved(extents, element, name)


def _folded(own: Any, before: int, after: int, extent: Lin, mode: str) -> Any:
    last = extent.const - 1
    if mode == "edge":
        own = maths.maximum(own, 0) if before else own
        return maths.minimum(own, last) if after else own
    own = maths.maximum(own, -own) if before else own
    return maths.minimum(own, 2 * last - own) if after else own


@user_api
def flip(x: Tensor, axis: Axes = None, *, name: str = "flip") -> Tensor:
    """The elements in reverse along dimensions; all of them without `axis`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> flip(placeholder((2, 3), name="a"), axis=1)
    flip: float32[2, 3]
    """
    t = tensor(x, "x of flip")
    turned = axes_of(axis, t.ndim, "axis of flip")

    def element(index: Sequence[Any]) -> Expr:
        return t[tuple(
            binary("sub", from_lin(t.extents[d] - 1), i) if d in turned else i
            for d, i in enumerate(index)
        )]  # fmt: skip

    return moved(t.extents, element, name)


@user_api
def roll(x: Tensor, shift: int, axis: int = -1, *, name: str = "roll") -> Tensor:
    """The elements moved on by `shift` along a dimension; what leaves at the end comes in first.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> roll(placeholder((5,), name="a"), 2)
    roll: float32[5]
    """
    t = tensor(x, "x of roll")
    d = axis_of(axis, t.ndim, "axis of roll")
    extent = static(t, (d,), "roll")[0] or 2
    by = -integer(shift, "shift of roll") % extent

    def element(index: Sequence[Any]) -> Expr:
        return t[(*index[:d], (index[d] + by) % extent, *index[d + 1 :])]

    return moved(t.extents, element, name)


@user_api
def tile(x: Tensor, repeats: int | Sequence[int], *, name: str = "tile") -> Tensor:
    """The whole tensor that many times along each dimension, aligned at the last as in numpy.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> tile(placeholder((2, 3), name="a"), (4, 1, 2))
    tile: float32[4, 2, 6]
    """
    t = tensor(x, "x of tile")
    given = tuple(repeats) if isinstance(repeats, tuple | list) else (repeats,)
    times = [integer(r, "repeats of tile", 0) for r in given]
    times = [1] * (t.ndim - len(times)) + times
    lead = len(times) - t.ndim
    changed = [d for d in range(t.ndim) if times[lead + d] != 1]
    static(t, changed, "tile")

    def element(index: Sequence[Any]) -> Expr:
        own = index[lead:]
        return t[tuple(
            i % (t.extents[d].const or 2) if d in changed else i
            for d, i in enumerate(own)
        )]  # fmt: skip

    extents = [Lin({}, 1)] * lead + list(t.extents)
    return moved([e * n for e, n in zip(extents, times, strict=True)], element, name)


@user_api
def repeat(x: Tensor, times: int, axis: int = -1, *, name: str = "repeat") -> Tensor:
    """Each element that many times along a dimension.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> repeat(placeholder((2, 3), name="a"), 2, axis=0)
    repeat: float32[4, 3]
    """
    t = tensor(x, "x of repeat")
    d = axis_of(axis, t.ndim, "axis of repeat")
    n = integer(times, "times of repeat", 0)
    extents = [e * n if k == d else e for k, e in enumerate(t.extents)]

    def element(index: Sequence[Any]) -> Expr:
        return t[(*index[:d], index[d] // builtins.max(n, 1), *index[d + 1 :])]

    return moved(extents, element, name)
