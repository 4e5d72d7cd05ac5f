"""Declaring a computation: placeholder, var, compute, and the axes of reductions."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tensorir.ir.affine import Lin, lin
from tensorir.ir.build import as_expr, cast, condition
from tensorir.ir.dtype import DType
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import Axis, Expr, Var
from tensorir.ir.index import conditions, to_lin
from tensorir.ir.scope import check_bodies, check_call, check_condition
from tensorir.ir.tensor import Compute, Tensor, shape_text
from tensorir.support.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from tensorir.support.names import check_name
from tensorir.support.tracebacks import user_api

# More elements, or bytes, than this are refused: sizes stay well inside 64 bits.
MAX_SIZE = 1 << 62


@user_api
def var(name: str) -> Var:
    """A symbolic size: an integer of at least 0 that is known when a kernel is called.

    Examples
    --------
    >>> n = var("n")
    >>> placeholder((n, 2 * n), name="A")
    A: float32[n, 2*n]
    """
    return Var(check_name(name, "name of a size"))


@user_api
def placeholder(shape: Any, dtype: object = "float32", *, name: str = "placeholder") -> Tensor:
    """An input tensor.

    Parameters
    ----------
    shape
        An extent or a tuple of extents: integers of at least 0, sizes made by :func:`var`, or
        affine expressions of them. `()` is a tensor of rank 0.
    dtype
        Type of its elements.
    name
        What it is called in loops and errors.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        For an extent that is negative, too large, or no size.

    Examples
    --------
    >>> placeholder((2, 3), "int8", name="A")
    A: int8[2, 3]
    """
    name = check_name(name, "name of a tensor")
    d = as_dtype(dtype)
    return Tensor(name, d, _extents(shape, name, d))


def _extents(shape: Any, name: str, d: DType | None = None) -> tuple[Lin, ...]:
    given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    extents = tuple(_extent(x, k, name) for k, x in enumerate(given))
    total = 1 if d is None else d.bytes
    for e in extents:
        total *= e.const if e.is_const else 1
    if total > MAX_SIZE:
        takes = f"has {total} elements" if d is None else f"of {d} takes {total} bytes"
        raise ArgumentError(f"{name} {shape_text(extents)} {takes}: too large")
    return extents


def _extent(x: Any, k: int, name: str) -> Lin:
    what = f"extent {k} of {name}"
    e = _affine(x, what)
    if e.is_const and e.const < 0:
        raise ArgumentError(f"{what} is {e.const}: extents are at least 0")
    if e.is_const and e.const > MAX_SIZE:
        raise ArgumentError(f"{what} is {e.const}: too large")
    if any(isinstance(a, Axis) for a in e.atoms()):
        raise ArgumentError(f"{what} is {e}: extents depend on sizes only, not on axes")
    return e


def _affine(x: Any, what: str) -> Lin:
    """An integer, or an affine expression of sizes and axes."""
    if not isinstance(x, Expr):
        try:
            if not isinstance(x, bool):
                return lin(operator.index(x))
        except TypeError:
            pass
        raise ArgumentTypeError(
            f"{what} must be an integer or a size made by tir.var, not {type(x).__name__} {x!r:.60}"
        )
    e = to_lin(x)
    if e is None:
        raise ArgumentError(
            f"{what} is {x}, which is not affine: only sums of sizes and axes, their products with "
            "integers, and // and % by positive integers are"
        )
    return e


@user_api
def reduce_axis(bounds: Any, *, name: str = "k") -> Axis:
    """An axis to reduce over.

    Parameters
    ----------
    bounds
        Its extent, or a pair (first, end) with the end excluded. Integers, sizes, and affine
        expressions of sizes and of other axes: made inside the function of a computation, its
        bounds may depend on the axes there.
    name
        What it is called.

    Raises
    ------
    ArgumentError
        If the end lies before the first, or a bound is not affine.

    Examples
    --------
    >>> k = reduce_axis((1, 7), name="k")
    >>> k.lower, k.upper
    (Lin(1), Lin(7))
    """
    name = check_name(name, "name of an axis")
    if isinstance(bounds, tuple | list):
        if len(bounds) != 2:
            raise ArgumentError(
                f"the bounds of {name} are a pair (first, end), not {len(bounds)} values"
            )
        low, high = bounds
    else:
        low, high = 0, bounds
    lower, upper = _affine(low, f"first of {name}"), _affine(high, f"end of {name}")
    extent = upper - lower
    if extent.is_const and extent.const < 0:
        raise ArgumentError(
            f"axis {name} runs from {lower} to {upper}: the end lies before the first; "
            "an axis runs upwards, its end excluded"
        )
    return Axis(name, lower, upper, reduce=True)


@user_api
def compute(
    shape: Any,
    fn: Callable[..., Any],
    *,
    name: str | Sequence[str] = "compute",
    where: Callable[..., Any] | Expr | bool | None = None,
    dtype: object = None,
    axes: Sequence[str] | None = None,
) -> Any:
    """A tensor whose element at each index is `fn(*index)`.

    Parameters
    ----------
    shape
        Its extents, as for :func:`placeholder`.
    fn
        Takes one axis for each dimension and returns the element: an expression or a number, or
        a tuple of them for several outputs. It is called once, with symbolic axes.
    name
        What it is called; for several outputs a tuple, or one name that is numbered.
    where
        A condition on the axes and sizes, as a function of the axes: which elements are computed.
        It must be affine. The others are 0 in a fresh array and left untouched in `out=`.
    dtype
        Type of the elements; by default the type of the expression.
    axes
        Names of the axes; by default the names of the parameters of `fn`.

    Returns
    -------
    Tensor, or a tuple of them if `fn` returned a tuple.

    Raises
    ------
    ArgumentError, ArgumentTypeError, BoundsError
        For an expression that is not well formed; the message says where.

    Examples
    --------
    >>> A = placeholder((4, 3), name="A")
    >>> compute((3, 4), lambda i, j: A[j, i] * 2, name="B")
    B: float32[3, 4]
    >>> compute((4,), lambda i: (A[i, 0], A[i, 1] > 0), name=("C", "D"))
    (C: float32[4], D: bool[4])
    """
    names = _tensor_names(name)
    extents = _extents(shape, names[0])
    if not callable(fn):
        raise ArgumentTypeError(f"fn of {names[0]} must be a function of its axes, not {fn!r:.60}")
    made = tuple(
        Axis(n, lin(0), e)
        for n, e in zip(_axis_names(fn, axes, extents, names[0]), extents, strict=True)
    )
    result = fn(*made)
    several = isinstance(result, tuple | list)
    values = tuple(result) if several else (result,)
    if not values:
        raise ArgumentError(
            f"fn of {names[0]} returned an empty tuple: there is nothing to compute"
        )
    bodies = tuple(_body(v, names[0], dtype) for v in values)
    op = Compute(names[0], made, bodies, _domain(where, made, names[0]))
    check_bodies(op)
    titles = _output_names(names, len(bodies))
    for t, b in zip(titles, bodies, strict=True):
        _extents(shape, t, b.dtype)
    op.outputs = tuple(
        Tensor(t, b.dtype, extents, op, k)
        for k, (t, b) in enumerate(zip(titles, bodies, strict=True))
    )
    return op.outputs if several else op.outputs[0]


def _tensor_names(name: str | Sequence[str]) -> tuple[str, ...]:
    given = tuple(name) if isinstance(name, tuple | list) else (name,)
    if not given:
        raise ArgumentError("name is empty")
    return tuple(check_name(n, "name of a tensor") for n in given)


def _output_names(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    if len(names) == count:
        if len(set(names)) < count:
            raise ArgumentError(f"outputs need different names, not {', '.join(names)}")
        return names
    if len(names) > 1:
        raise ArgumentError(f"{len(names)} names for {count} outputs of {names[0]}")
    return tuple(f"{names[0]}_{k}" for k in range(count))


def _axis_names(
    fn: Callable[..., Any], axes: Sequence[str] | None, extents: tuple[Lin, ...], name: str
) -> tuple[str, ...]:
    rank = len(extents)
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    starred = any(p.kind is p.VAR_POSITIONAL for p in parameters) or not parameters
    required = [
        p for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    if parameters and (len(required) > rank or (len(named) < rank and not starred)):
        raise ArgumentError(
            f"{name} has shape {shape_text(extents)}, so its function takes {rank} "
            f"{'axis' if rank == 1 else 'axes'}, but it has {len(required)} parameters: "
            f"({', '.join(named)})"
        )
    if not parameters and rank and not _takes_anything(fn):
        raise ArgumentError(
            f"{name} has shape {shape_text(extents)}, so its function takes {rank} "
            f"{'axis' if rank == 1 else 'axes'}, but it has no parameters"
        )
    if axes is not None:
        try:
            given = list(axes)
        except TypeError:
            raise ArgumentTypeError(f"axes of {name} must be names, not {axes!r:.60}") from None
        chosen = tuple(check_name(a, "name of an axis") for a in given)
        if len(chosen) != rank or len(set(chosen)) < rank:
            raise ArgumentError(f"axes of {name} must be {rank} different names, not {given}")
        return chosen
    return _distinct(named[:rank], rank)


def _takes_anything(fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(fn)
    except (TypeError, ValueError):
        return True
    return False


def _distinct(given: list[str], rank: int) -> tuple[str, ...]:
    """Names of axes from those of parameters; the rest are counted."""
    names = [n.strip("_") or f"i{k}" for k, n in enumerate(given)]
    names = [n if n.isidentifier() else f"i{k}" for k, n in enumerate(names)]
    names += [f"i{k}" for k in range(len(names), rank)]
    return tuple(n if n not in names[:k] else f"{n}_{k}" for k, n in enumerate(names))


def _body(value: Any, name: str, dtype: object) -> Expr:
    if value is None:
        raise ArgumentTypeError(f"fn of {name} returned None: it must return the element")
    if isinstance(value, str | bytes | dict | set):
        raise ArgumentTypeError(f"fn of {name} returned {type(value).__name__} {value!r:.60}")
    e = as_expr(value)
    return e if dtype is None else cast(e, dtype)


def _domain(
    where: Callable[..., Any] | Expr | bool | None, axes: tuple[Axis, ...], name: str
) -> Expr | None:
    if where is None:
        return None
    given: Any = where
    if callable(where):
        check_call(where, len(axes), f"where= of {name}")
        given = where(*axes)
    e = condition(given, f"where= of {name}")
    check_condition(e, axes, name)
    if conditions(e) is None:
        raise UnsupportedError(
            f"where= of {name} is {e}, which is not affine: only comparisons of sums of axes, "
            "sizes and constants shape a domain; for a condition on data use tir.select or "
            "tir.if_then_else in the body"
        )
    return e


__all__ = ["compute", "placeholder", "reduce_axis", "var"]
