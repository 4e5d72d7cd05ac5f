"""Reductions: sum, prod, min, max, any, all, argmin, argmax, and the user's own."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from tensorir.ir.affine import Lin
from tensorir.ir.build import as_expr, binary, cast, compare, condition, const, is_scalar
from tensorir.ir.dtype import BOOL, DType
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import Axis, Expr, Load, Op, Reduce, Ref
from tensorir.ir.index import from_lin
from tensorir.ir.reducer import Reducer
from tensorir.ir.reducers import accumulator, init_values, standard
from tensorir.ir.scope import check_call, contains_reduce
from tensorir.ir.visit import nodes
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.names import check_name
from tensorir.support.tracebacks import user_api

Axes = Axis | Sequence[Axis]


def _axes(axis: Any, what: str) -> tuple[Axis, ...]:
    given = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    if not given:
        raise ArgumentError(f"axis= of {what} is empty: name at least one reduce axis")
    for k, a in enumerate(given):
        if not isinstance(a, Axis):
            raise ArgumentTypeError(
                f"axis= of {what} must be made by tir.reduce_axis, not {type(a).__name__} {a!r:.60}"
            )
        if not a.reduce:
            raise ArgumentError(
                f"axis= of {what} is {a.name}, an axis of the computation: reduce over an axis "
                "made by tir.reduce_axis"
            )
        if builtins.any(a is b for b in given[:k]):
            raise ArgumentError(f"axis= of {what} names {a.name} twice")
    return given


def _source(expr: Any, what: str) -> Expr:
    e = as_expr(expr)
    if contains_reduce(e):
        raise ArgumentError(
            f"{what} of an expression that holds a reduction: compute the inner one in a tensor of "
            "its own with tir.compute, and reduce that"
        )
    return e


def _where(where: Any, what: str) -> Expr | None:
    if where is None:
        return None
    e = condition(where, f"where= of {what}")
    if contains_reduce(e):
        raise ArgumentError(
            f"where= of {what} holds a reduction: compute it in a tensor of its own"
        )
    return e


def _init(init: Any, state: tuple[DType, ...], what: str) -> tuple[Expr, ...] | None:
    if init is None:
        return None
    given = tuple(init) if isinstance(init, tuple | list) else (init,)
    if len(given) != len(state):
        raise ArgumentError(f"init= of {what} needs {len(state)} values, not {len(given)}")
    for v in given:
        if isinstance(v, Expr) and contains_reduce(v):
            raise ArgumentError(f"init= of {what} holds a reduction")
    return tuple(
        const(v, d) if is_scalar(v) else cast(_source(v, what), d)
        for v, d in zip(given, state, strict=True)
    )


def _refuse_empty(reducer: Reducer, axes: tuple[Axis, ...], init: object) -> None:
    if reducer.empty != "error" or init is not None:
        return
    for a in axes:
        assert a.lower is not None and a.upper is not None
        extent = a.upper - a.lower
        if extent.is_const and extent.const <= 0:
            raise ArgumentError(
                f"{reducer.name} over {a.name} has no elements: {a.name} runs over "
                f"{a.lower}..{a.upper}; give init= the value it should have"
            )


def _reduce(
    reducer: Reducer,
    sources: tuple[Expr, ...],
    axis: Any,
    where: Any,
    init: Any,
    results: tuple[DType, ...] | None = None,
) -> tuple[Reduce, ...]:
    what = reducer.name
    axes = _axes(axis, what)
    state = tuple(s.dtype for s in sources)
    start = _init(init, state, what)
    _refuse_empty(reducer, axes, start)
    cond = _where(where, what)
    return tuple(
        Reduce(reducer, sources, axes, cond, start, state, k, (results or state)[k])
        for k in range(reducer.arity)
    )


def _accumulate(name: str, expr: Any, axis: Any, where: Any, init: Any, dtype: Any) -> Expr:
    e = _source(expr, name)
    state, result = accumulator(name, e.dtype)
    if dtype is not None:
        state = result = as_dtype(dtype)
        if state.kind == "bool":
            raise ArgumentTypeError(f"{name} needs a number type, not bool: use tir.any or tir.all")
    reducer = standard(name, state)
    return _reduce(reducer, (_widen(e, state),), axis, where, init, (result,))[0]


def _widen(e: Expr, state: DType) -> Expr:
    """The source in the accumulator's type; a product of halves is widened before it multiplies."""
    half = e.dtype.is_float and e.dtype.bits == 16 and state.is_float and state != e.dtype
    if half and isinstance(e, Op) and e.name == "mul":
        return binary("mul", cast(e.args[0], state), cast(e.args[1], state))
    return cast(e, state)


@user_api
def sum(
    expr: Any, axis: Axes, *, where: Any = None, init: Any = None, dtype: object = None
) -> Expr:
    """The sum of `expr` over the axes.

    Small integers accumulate in 64 bits, as numpy's do; halves accumulate in float32 and the
    result is rounded once. A floating sum of products accumulates with fma.

    Parameters
    ----------
    expr
        What is added, an expression of the axes.
    axis
        One reduce axis, or several, outer to inner.
    where
        A condition: only where it holds is an element loaded and added.
    init
        What the sum starts from, instead of 0.
    dtype
        Type in which it accumulates, and of the result.

    Examples
    --------
    >>> from tensorir.ir.language import compute, placeholder, reduce_axis
    >>> A = placeholder((4, 8), "uint8", name="A"); k = reduce_axis(8, name="k")
    >>> compute((4,), lambda i: sum(A[i, k], axis=k), name="s")
    s: uint64[4]
    """
    return _accumulate("sum", expr, axis, where, init, dtype)


@user_api
def prod(
    expr: Any, axis: Axes, *, where: Any = None, init: Any = None, dtype: object = None
) -> Expr:
    """The product of `expr` over the axes; types and parameters as for :func:`sum`.

    Examples
    --------
    >>> from tensorir.ir.language import compute, placeholder, reduce_axis
    >>> A = placeholder((8,), "float16", name="A"); k = reduce_axis(8, name="k")
    >>> compute((), lambda: prod(A[k], axis=k), name="p")
    p: float16[]
    """
    return _accumulate("prod", expr, axis, where, init, dtype)


def _one(name: str, expr: Any, axis: Any, where: Any, init: Any) -> Expr:
    e = _source(expr, name)
    return _reduce(standard(name, e.dtype), (e,), axis, where, init)[0]


@user_api
def max(expr: Any, axis: Axes, *, where: Any = None, init: Any = None) -> Expr:
    """The greatest value of `expr` over the axes; NaN if one is NaN.

    Over no elements it is an error, unless `init` is given; where `where` masks all elements it is
    -inf, or the least integer.

    Examples
    --------
    >>> from tensorir.ir.language import compute, placeholder, reduce_axis
    >>> A = placeholder((4, 8), name="A"); k = reduce_axis(8, name="k")
    >>> compute((4,), lambda i: max(A[i, k], axis=k), name="m").op.bodies[0]
    max(A[i, k], axis=k)
    """
    return _one("max", expr, axis, where, init)


@user_api
def min(expr: Any, axis: Axes, *, where: Any = None, init: Any = None) -> Expr:
    """The least value of `expr` over the axes; as :func:`max`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder, reduce_axis
    >>> A = placeholder((8,), name="A"); k = reduce_axis(8, name="k")
    >>> min(A[k], axis=k, init=0)
    min(A[k], axis=k, init=0.0)
    """
    return _one("min", expr, axis, where, init)


def _truth(name: str, expr: Any, axis: Any, where: Any, init: Any) -> Expr:
    e = _source(expr, name)
    if e.dtype.kind != "bool":
        e = compare("ne", e, const(0, e.dtype))
    return _reduce(standard(name, BOOL), (e,), axis, where, init)[0]


@user_api
def any(expr: Any, axis: Axes, *, where: Any = None, init: Any = None) -> Expr:
    """Whether `expr` holds (or is not 0) somewhere along the axes; False over nothing.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder, reduce_axis
    >>> A = placeholder((8,), name="A"); k = reduce_axis(8, name="k")
    >>> any(A[k] > 0, axis=k)
    any(A[k] > 0.0, axis=k)
    """
    return _truth("any", expr, axis, where, init)


@user_api
def all(expr: Any, axis: Axes, *, where: Any = None, init: Any = None) -> Expr:
    """Whether `expr` holds (or is not 0) everywhere along the axes; True over nothing.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder, reduce_axis
    >>> A = placeholder((8,), name="A"); k = reduce_axis(8, name="k")
    >>> all(A[k] > 0, axis=k)
    all(A[k] > 0.0, axis=k)
    """
    return _truth("all", expr, axis, where, init)


def _position(axes: tuple[Axis, ...], what: str) -> Expr:
    """The index that argmax returns: the axis itself, or the row-major position in a box."""
    if len(axes) == 1:
        return axes[0]
    total: Expr | None = None
    for a in axes:
        assert a.lower is not None and a.upper is not None
        extent: Lin = a.upper - a.lower
        if [x for x in extent.atoms() if isinstance(x, Axis)]:
            raise ArgumentError(
                f"{what} over several axes needs a box, but the extent of {a.name} is {extent}"
            )
        step = binary("sub", a, from_lin(a.lower))
        total = step if total is None else binary("add", total * from_lin(extent), step)
    assert total is not None
    return total


def _arg(name: str, expr: Any, axis: Any, where: Any, init: Any, with_value: bool) -> Any:
    e = _source(expr, name)
    if e.dtype.kind == "bool":
        e = cast(e, "uint8")
    sources = (e, _position(_axes(axis, name), name))
    value, index = _reduce(standard(name, e.dtype), sources, axis, where, init)
    return (value, index) if with_value else index


@overload
def argmax(
    expr: Any, axis: Axes, *, where: Any = ..., init: Any = ..., with_value: Literal[False] = ...
) -> Expr: ...
@overload
def argmax(
    expr: Any, axis: Axes, *, where: Any = ..., init: Any = ..., with_value: Literal[True]
) -> tuple[Expr, Expr]: ...
@user_api
def argmax(
    expr: Any, axis: Axes, *, where: Any = None, init: Any = None, with_value: bool = False
) -> Expr | tuple[Expr, Expr]:
    """Where `expr` is greatest: the value of the axis, int64. The first one, or the first NaN.

    Over several axes it is the row-major position in their box. With `with_value` the result is
    (value, index). Where `where` masks all elements the index is 2**63 - 1.

    Examples
    --------
    >>> from tensorir.ir.language import compute, placeholder, reduce_axis
    >>> A = placeholder((4, 8), name="A"); k = reduce_axis(8, name="k")
    >>> compute((4,), lambda i: argmax(A[i, k], axis=k), name="at")
    at: int64[4]
    """
    return _arg("argmax", expr, axis, where, init, with_value)  # type: ignore[no-any-return]


@overload
def argmin(
    expr: Any, axis: Axes, *, where: Any = ..., init: Any = ..., with_value: Literal[False] = ...
) -> Expr: ...
@overload
def argmin(
    expr: Any, axis: Axes, *, where: Any = ..., init: Any = ..., with_value: Literal[True]
) -> tuple[Expr, Expr]: ...
@user_api
def argmin(
    expr: Any, axis: Axes, *, where: Any = None, init: Any = None, with_value: bool = False
) -> Expr | tuple[Expr, Expr]:
    """Where `expr` is least: the value of the axis, int64; as :func:`argmax`.

    Examples
    --------
    >>> from tensorir.ir.language import compute, placeholder, reduce_axis
    >>> A = placeholder((4, 8), name="A"); k = reduce_axis(8, name="k")
    >>> compute((4,), lambda i: argmin(A[i, k], axis=k, with_value=True), name=("low", "at"))
    (low: float32[4], at: int64[4])
    """
    return _arg("argmin", expr, axis, where, init, with_value)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class UserReducer:
    """A reducer of the user's, to call as `sum` is called; made by :func:`reducer`."""

    reducer: Reducer

    def __call__(
        self, *exprs: Any, axis: Axes, where: Any = None, init: Any = None, dtype: object = None
    ) -> Any:
        """Reduce one expression for each scalar of the state; a tuple where there are several."""
        r = self.reducer
        if len(exprs) != r.arity:
            raise ArgumentError(
                f"{r.name} has a state of {r.arity}, but reduces {len(exprs)} expressions"
            )
        sources = tuple(_source(e, r.name) for e in exprs)
        if dtype is not None:
            named = tuple(dtype) if isinstance(dtype, tuple | list) else (dtype,) * r.arity
            if len(named) != r.arity:
                raise ArgumentError(f"dtype= of {r.name} needs {r.arity} types, not {len(named)}")
            sources = tuple(cast(e, d) for e, d in zip(sources, named, strict=True))
        made = _reduce(r, sources, axis, where, init)
        # both are called here, so that a mistake in them is reported where they are used
        init_values(made[0])
        refs = tuple(Ref(k, s.dtype) for k, s in enumerate((*sources, *sources)))
        _require_closed(r.combine(refs[: r.arity], refs[r.arity :]), f"combine of {r.name}")
        if r.identity is not None:
            types = tuple(s.dtype for s in sources)
            _require_closed(r.identity(types), f"identity of {r.name}")
        return made if r.arity > 1 else made[0]

    def __repr__(self) -> str:
        return f"reducer({self.reducer.name})"


@user_api
def reducer(
    combine: Callable[[Any, Any], Any],
    identity: Any = None,
    *,
    name: str = "reducer",
    arity: int = 1,
    associative: bool = False,
    commutative: bool = False,
    exact: bool = False,
) -> UserReducer:
    """A way to combine values of your own.

    Parameters
    ----------
    combine
        `combine(state, next)` returns the new state. A state is one expression, or with `arity`
        above 1 a tuple of them.
    identity
        The state that changes nothing: numbers, or a function of the element types that returns
        them. None if there is none; then each use gives `init=`.
    name
        What it is called.
    arity
        How many scalars are in a state.
    associative, commutative
        What holds of `combine`. Only these let a schedule regroup or reorder a reduction.
    exact
        Whether regrouping never changes the result, not even in the last bit.

    Examples
    --------
    >>> from tensorir.ir.language import compute, placeholder, reduce_axis
    >>> gcd_like = reducer(lambda a, b: a ^ b, 0, name="xor", associative=True, commutative=True)
    >>> A = placeholder((8,), "int32", name="A"); k = reduce_axis(8, name="k")
    >>> compute((), lambda: gcd_like(A[k], axis=k), name="x").op.bodies[0]
    xor(A[k], axis=k)
    """
    check_name(name, "name of a reducer")
    flags = {"associative": associative, "commutative": commutative, "exact": exact}
    for flag, given in flags.items():
        if not isinstance(given, bool):
            raise ArgumentTypeError(f"{flag}= of {name} must be True or False, not {given!r:.60}")
    if not callable(combine):
        raise ArgumentTypeError(f"combine of {name} must be a function, not {combine!r:.60}")
    check_call(combine, 2, f"combine of {name}")
    if isinstance(arity, bool) or not isinstance(arity, int) or arity < 1:
        raise ArgumentError(f"arity of {name} must be an integer of at least 1, not {arity!r}")

    def combined(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        made = combine(a, b) if arity > 1 else combine(a[0], b[0])
        return _state(made, tuple(x.dtype for x in a), f"combine of {name}")

    def identities(types: tuple[DType, ...]) -> tuple[Expr, ...]:
        made = identity
        if callable(identity):
            check_call(identity, arity, f"identity of {name}")
            made = identity(*types)
        return _state(made, types, f"identity of {name}")

    return UserReducer(
        Reducer(
            name,
            arity,
            combined,
            None if identity is None else identities,
            associative,
            commutative,
            exact,
        )
    )


def _require_closed(made: tuple[Expr, ...], what: str) -> None:
    """A reducer means the same wherever a schedule puts it: it reads no tensor and uses no axis."""
    for x in nodes(*made):
        if isinstance(x, Load | Axis):
            raise ArgumentError(
                f"{what} uses {x}: it may use its arguments, numbers and sizes only; put {x} into "
                "what is reduced"
            )


def _state(made: Any, types: tuple[DType, ...], what: str) -> tuple[Expr, ...]:
    given = tuple(made) if isinstance(made, tuple | list) else (made,)
    if len(given) != len(types):
        raise ArgumentError(f"{what} gives {len(given)} values for a state of {len(types)}")
    out: list[Expr] = []
    for v, d in zip(given, types, strict=True):
        e = const(v, d) if is_scalar(v) else as_expr(v)
        if e.dtype != d:
            raise ArgumentTypeError(
                f"{what} gives {e.dtype} where the state is {d}: cast it, or name the state's type "
                "with dtype="
            )
        out.append(e)
    return tuple(out)


__all__ = [
    "UserReducer", "all", "any", "argmax", "argmin", "max", "min", "prod", "reducer",
    "sum",
]  # fmt: skip
