"""What operators share: checks of their arguments, axes, broadcast shapes and indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tensorir.ir.affine import Lin
from tensorir.ir.dtype import FLOAT32, FLOAT64, DType
from tensorir.ir.expr import Axis, Expr, Load
from tensorir.ir.index import from_lin
from tensorir.ir.language import reduce_axis
from tensorir.ir.tensor import Tensor, shape_text
from tensorir.support.errors import ArgumentError, ArgumentTypeError, UnsupportedError

Dim: TypeAlias = int | Expr
Number: TypeAlias = bool | int | float
Axes: TypeAlias = int | Sequence[int] | None
NAMES = "ijklmnpqrstuvw"


def tensor(x: object, what: str, rank: int | None = None) -> Tensor:
    """`x`, if it is a tensor (of that rank); an error that calls it `what` otherwise.

    Examples
    --------
    >>> tensor(3, "x of relu")
    Traceback (most recent call last):
        ...
    tensorir.ArgumentTypeError: x of relu must be a tensor, not int 3
    """
    if not isinstance(x, Tensor):
        raise ArgumentTypeError(f"{what} must be a tensor, not {type(x).__name__} {x!r:.60}")
    if rank is not None and x.ndim != rank:
        raise ArgumentError(f"{what} must have {rank} dimensions, but its shape is {shape(x)}")
    return x


def floating(x: object, what: str, rank: int | None = None) -> Tensor:
    """`x`, if it is a tensor of floats."""
    t = tensor(x, what, rank)
    if not t.dtype.is_float:
        raise ArgumentTypeError(f"{what} must hold floats, not {t.dtype}: convert it with ops.cast")
    return t


def integral(x: object, what: str, rank: int | None = None) -> Tensor:
    """`x`, if it is a tensor of integers."""
    t = tensor(x, what, rank)
    if not t.dtype.is_integer:
        raise ArgumentTypeError(
            f"{what} must hold integers, not {t.dtype}: convert it with ops.cast"
        )
    return t


def shape(x: Tensor) -> str:
    """The shape of a tensor as Python writes a tuple."""
    return shape_text(x.extents)


def wide(d: DType) -> DType:
    """The float type in which values of type `d` are computed: halves in float32.

    Examples
    --------
    >>> from tensorir.ir.dtype import dtype
    >>> wide(dtype("float16")), wide(dtype("float64")), wide(dtype("int8"))
    (float32, float64, float32)
    """
    if d.is_float:
        return d if d.bits >= 32 else FLOAT32
    return FLOAT32 if d.bits <= 16 else FLOAT64


def integer(x: object, what: str, low: int | None = None) -> int:
    """`x` as an integer of at least `low`.

    Examples
    --------
    >>> integer(0, "stride of conv2d", 1)
    Traceback (most recent call last):
        ...
    tensorir.ArgumentError: stride of conv2d must be at least 1, not 0
    """
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise ArgumentTypeError(f"{what} must be an integer, not {type(x).__name__} {x!r:.60}")
    value = int(x.__index__())
    if low is not None and value < low:
        raise ArgumentError(f"{what} must be at least {low}, not {value}")
    return value


def several(x: object, count: int, what: str, low: int | None = None) -> tuple[int, ...]:
    """`count` integers: one for all, or one for each.

    Examples
    --------
    >>> several(2, 3, "stride"), several((1, 2), 2, "stride")
    ((2, 2, 2), (1, 2))
    """
    if not isinstance(x, tuple | list):
        return (integer(x, what, low),) * count
    if len(x) != count:
        raise ArgumentError(f"{what} must be one integer or {count} of them, not {len(x)}")
    return tuple(integer(v, what, low) for v in x)


def one_of(x: object, choices: Sequence[str], what: str) -> str:
    """`x`, if it is one of the choices."""
    if x not in choices or not isinstance(x, str):
        raise ArgumentError(f"{what} must be one of {', '.join(choices)}, not {x!r:.60}")
    return x


def axis_of(axis: object, rank: int, what: str) -> int:
    """A dimension, counted from the end where it is negative.

    Examples
    --------
    >>> axis_of(-1, 3, "axis of softmax")
    2
    >>> axis_of(3, 3, "axis of softmax")
    Traceback (most recent call last):
        ...
    tensorir.ArgumentError: axis of softmax is 3, but there are 3 dimensions: -3 to 2
    """
    value = integer(axis, what)
    if not -rank <= value < rank:
        have = f"there are {rank} dimensions: {-rank} to {rank - 1}" if rank else "there is none"
        raise ArgumentError(f"{what} is {value}, but {have}")
    return value % rank


def axes_of(axes: Axes, rank: int, what: str) -> tuple[int, ...]:
    """Dimensions in rising order; None means all.

    Examples
    --------
    >>> axes_of((-1, 0), 3, "axis of sum"), axes_of(None, 2, "axis of sum")
    ((0, 2), (0, 1))
    """
    if axes is None:
        return tuple(range(rank))
    given = tuple(axes) if isinstance(axes, tuple | list) else (axes,)
    found = tuple(axis_of(a, rank, what) for a in given)
    if len(set(found)) < len(found):
        raise ArgumentError(f"{what} names a dimension twice: {axes}")
    return tuple(sorted(found))


def static(x: Tensor, dims: Sequence[int], what: str) -> tuple[int, ...]:
    """The extents of these dimensions, which must be constant."""
    for d in dims:
        if not x.extents[d].is_const:
            raise UnsupportedError(
                f"{what} needs a constant extent in dimension {d} of {x.name}, not "
                f"{x.extents[d]}: only the others may be sizes made by tir.var"
            )
    return tuple(x.extents[d].const for d in dims)


def need_same(a: Lin, b: Lin, what: str) -> None:
    """Raise unless two extents are equal for every size; `what` says which they are."""
    if a != b:
        raise ArgumentError(f"{what} must be equal, but they are {a} and {b}")


def dim(e: Lin) -> Dim:
    """An extent as `tir.compute` takes it."""
    return e.const if e.is_const else from_lin(e)


def broadcast(shapes: Sequence[tuple[Lin, ...]], what: str) -> tuple[Lin, ...]:
    """The shape to which these broadcast, as numpy's do: aligned at the right, 1 fits all.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> a, b = placeholder((4, 1), name="a"), placeholder((3,), name="b")
    >>> broadcast([a.extents, b.extents], "add")
    (Lin(4), Lin(3))
    """
    rank = max(map(len, shapes), default=0)
    out: list[Lin] = [Lin({}, 1)] * rank
    for s in shapes:
        for k, e in enumerate(s, start=rank - len(s)):
            if out[k] == Lin({}, 1):
                out[k] = e
            elif e not in (out[k], Lin({}, 1)):
                listed = " and ".join(map(shape_text, shapes))
                raise ArgumentError(
                    f"shapes of {what} do not broadcast: {listed} (dimension {k - rank}: "
                    f"{out[k]} and {e})"
                )
    return tuple(out)


def at(x: Tensor, index: Sequence[Any]) -> Load:
    """The element of `x` that broadcasting brings to this index of the result."""
    own = index[len(index) - x.ndim :]
    one = Lin({}, 1)
    return x[tuple(0 if e == one else i for e, i in zip(x.extents, own, strict=True))]


def names(rank: int) -> tuple[str, ...]:
    """Names for the axes of a computation of that rank.

    Examples
    --------
    >>> names(3)
    ('i', 'j', 'k')
    """
    if rank <= len(NAMES):
        return tuple(NAMES[:rank])
    return tuple(f"i{k}" for k in range(rank))


def reduce_axes(extents: Sequence[Lin], called: Sequence[str] | None = None) -> tuple[Axis, ...]:
    """A reduce axis for each extent."""
    titles = called or [f"r{k}" if len(extents) > 1 else "r" for k in range(len(extents))]
    return tuple(reduce_axis(dim(e), name=n) for e, n in zip(extents, titles, strict=True))


def dims(extents: Sequence[Lin]) -> tuple[Dim, ...]:
    """Extents as `tir.compute` takes them."""
    return tuple(map(dim, extents))
