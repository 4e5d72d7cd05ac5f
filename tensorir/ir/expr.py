"""Scalar expressions: the nodes. Immutable, slotted, interned: equal nodes are one object.

Compare nodes with ``is``. ``==`` between expressions builds a comparison, as users expect, and the
truth of an expression is an error. The rules of types live in :mod:`tensorir.ir.build`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakValueDictionary

from tensorir.ir.dtype import BOOL, INT64, DType
from tensorir.support import display
from tensorir.support.errors import ArgumentTypeError
from tensorir.support.tracebacks import user_api

if TYPE_CHECKING:
    from tensorir.ir.affine import Lin
    from tensorir.ir.reducer import Reducer
    from tensorir.ir.tensor import Tensor

_interned: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()
_serial = itertools.count()


def _intern(key: tuple[Any, ...], node: Expr) -> Any:
    return _interned.setdefault(key, node)


def _build() -> Any:
    from tensorir.ir import build

    return build


class Expr:
    """A scalar expression. Operators follow Python: ``//`` and ``%`` floor, ``&|^~`` are bitwise
    on integers and logical on bool; integers wrap."""

    __slots__ = ("dtype", "__weakref__")
    dtype: DType

    def __bool__(self) -> NoReturn:
        raise ArgumentTypeError(
            "the truth of a tensor expression is not known while it is declared: use "
            "tir.select(cond, a, b) or tir.if_then_else(cond, a, b) instead of `if`, "
            "`and`, `or`, `not`; and & | ~ between conditions"
        )

    def __iter__(self) -> NoReturn:
        raise ArgumentTypeError("a scalar expression cannot be iterated over")

    def __float__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"the value of {self} is not known while it is declared: functions of numbers such as "
            "math.exp do not take it, use tir.exp and its kin"
        )

    __int__ = __complex__ = __float__

    def __index__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"the value of {self} is not known while it is declared: range() and lists do not take "
            "it; loops over it are written as axes"
        )

    def _no_builtin(self, *_: object) -> NoReturn:
        raise ArgumentTypeError(
            "Python's round, divmod, math.floor, math.ceil and math.trunc want a number, and the "
            f"value of {self} is not known while it is declared: use tir.round, tir.floor, "
            "tir.ceil and tir.trunc, and // with %"
        )

    __round__ = __divmod__ = __rdivmod__ = __floor__ = __ceil__ = __trunc__ = _no_builtin

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Expr:
        return _build().from_ufunc(ufunc, method, inputs, options)  # type: ignore[no-any-return]

    __hash__ = object.__hash__

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __repr__(self) -> str:
        return display.text(self)

    def __add__(self, o: Any) -> Expr:
        return _build().binary("add", self, o)  # type: ignore[no-any-return]

    def __radd__(self, o: Any) -> Expr:
        return _build().binary("add", o, self)  # type: ignore[no-any-return]

    def __sub__(self, o: Any) -> Expr:
        return _build().binary("sub", self, o)  # type: ignore[no-any-return]

    def __rsub__(self, o: Any) -> Expr:
        return _build().binary("sub", o, self)  # type: ignore[no-any-return]

    def __mul__(self, o: Any) -> Expr:
        return _build().binary("mul", self, o)  # type: ignore[no-any-return]

    def __rmul__(self, o: Any) -> Expr:
        return _build().binary("mul", o, self)  # type: ignore[no-any-return]

    def __truediv__(self, o: Any) -> Expr:
        return _build().binary("div", self, o)  # type: ignore[no-any-return]

    def __rtruediv__(self, o: Any) -> Expr:
        return _build().binary("div", o, self)  # type: ignore[no-any-return]

    def __floordiv__(self, o: Any) -> Expr:
        return _build().binary("floordiv", self, o)  # type: ignore[no-any-return]

    def __rfloordiv__(self, o: Any) -> Expr:
        return _build().binary("floordiv", o, self)  # type: ignore[no-any-return]

    def __mod__(self, o: Any) -> Expr:
        return _build().binary("floormod", self, o)  # type: ignore[no-any-return]

    def __rmod__(self, o: Any) -> Expr:
        return _build().binary("floormod", o, self)  # type: ignore[no-any-return]

    def __pow__(self, o: Any) -> Expr:
        return _build().binary("pow", self, o)  # type: ignore[no-any-return]

    def __rpow__(self, o: Any) -> Expr:
        return _build().binary("pow", o, self)  # type: ignore[no-any-return]

    def __and__(self, o: Any) -> Expr:
        return _build().binary("and", self, o)  # type: ignore[no-any-return]

    def __rand__(self, o: Any) -> Expr:
        return _build().binary("and", o, self)  # type: ignore[no-any-return]

    def __or__(self, o: Any) -> Expr:
        return _build().binary("or", self, o)  # type: ignore[no-any-return]

    def __ror__(self, o: Any) -> Expr:
        return _build().binary("or", o, self)  # type: ignore[no-any-return]

    def __xor__(self, o: Any) -> Expr:
        return _build().binary("xor", self, o)  # type: ignore[no-any-return]

    def __rxor__(self, o: Any) -> Expr:
        return _build().binary("xor", o, self)  # type: ignore[no-any-return]

    def __lshift__(self, o: Any) -> Expr:
        return _build().binary("shl", self, o)  # type: ignore[no-any-return]

    def __rlshift__(self, o: Any) -> Expr:
        return _build().binary("shl", o, self)  # type: ignore[no-any-return]

    def __rshift__(self, o: Any) -> Expr:
        return _build().binary("shr", self, o)  # type: ignore[no-any-return]

    def __rrshift__(self, o: Any) -> Expr:
        return _build().binary("shr", o, self)  # type: ignore[no-any-return]

    def __neg__(self) -> Expr:
        return _build().unary("neg", self)  # type: ignore[no-any-return]

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return _build().unary("abs", self)  # type: ignore[no-any-return]

    def __invert__(self) -> Expr:
        return _build().unary("not", self)  # type: ignore[no-any-return]

    def __eq__(self, o: object) -> Expr:  # type: ignore[override]
        return _build().compare("eq", self, o)  # type: ignore[no-any-return]

    def __ne__(self, o: object) -> Expr:  # type: ignore[override]
        return _build().compare("ne", self, o)  # type: ignore[no-any-return]

    def __lt__(self, o: Any) -> Expr:
        return _build().compare("lt", self, o)  # type: ignore[no-any-return]

    def __le__(self, o: Any) -> Expr:
        return _build().compare("le", self, o)  # type: ignore[no-any-return]

    def __gt__(self, o: Any) -> Expr:
        return _build().compare("gt", self, o)  # type: ignore[no-any-return]

    def __ge__(self, o: Any) -> Expr:
        return _build().compare("ge", self, o)  # type: ignore[no-any-return]

    @user_api
    def astype(self, dtype: object) -> Expr:
        """This value converted to `dtype` (round to nearest even; float to integer saturates)."""
        return _build().cast(self, dtype)  # type: ignore[no-any-return]


class Const(Expr):
    """A constant. `value` is a Python bool, int (already wrapped to its type) or float."""

    __slots__ = ("value",)
    value: bool | int | float

    def __new__(cls, value: bool | int | float, dtype: DType) -> Const:
        bits = struct.pack("d", value) if isinstance(value, float) else value
        node = object.__new__(cls)
        node.value, node.dtype = value, dtype
        return _intern((cls, bits, dtype.name), node)  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return Const, (self.value, self.dtype)


class Var(Expr):
    """A symbolic size: a non-negative int64 known at the call. Two of one name are two sizes."""

    __slots__ = ("name",)
    name: str

    def __init__(self, name: str) -> None:
        self.name, self.dtype = name, INT64


class Axis(Expr):
    """An axis: of a computation, of a reduction, or of a loop. Its identity is the object.

    `lower` and `upper` (exclusive) are affine in sizes and other axes; None for axes that only a
    schedule made, whose bounds come from the statements under them. `reduce` says that it runs
    over a reduction.
    """

    __slots__ = ("name", "lower", "upper", "reduce")
    name: str
    lower: Lin | None
    upper: Lin | None
    reduce: bool

    def __init__(
        self, name: str, lower: Lin | None = None, upper: Lin | None = None, *, reduce: bool = False
    ) -> None:
        self.name, self.lower, self.upper, self.reduce = name, lower, upper, reduce
        self.dtype = INT64


class Load(Expr):
    """`tensor[index]`, as written in a declaration."""

    __slots__ = ("tensor", "index")
    tensor: Tensor
    index: tuple[Expr, ...]

    def __new__(cls, tensor: Tensor, index: tuple[Expr, ...]) -> Load:
        node = object.__new__(cls)
        node.tensor, node.index, node.dtype = tensor, index, tensor.dtype
        return _intern((cls, tensor, *map(id, index)), node)  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return Load, (self.tensor, self.index)


class Ref(Expr):
    """The value of read number `slot` of the statement that this expression is the body of."""

    __slots__ = ("slot",)
    slot: int

    def __new__(cls, slot: int, dtype: DType) -> Ref:
        node = object.__new__(cls)
        node.slot, node.dtype = slot, dtype
        return _intern((cls, slot, dtype.name), node)  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return Ref, (self.slot, self.dtype)


class Op(Expr):
    """An operation on values: arithmetic, comparison, conversion, choice, a maths function.

    `name` is one of the names in :data:`tensorir.ir.build.OPS`. `cast` and `reinterpret` convert
    to `dtype`; `select` evaluates both arms, `if_then_else` loads only what the taken arm needs.
    """

    __slots__ = ("name", "args")
    name: str
    args: tuple[Expr, ...]

    def __new__(cls, name: str, args: Iterable[Expr], dtype: DType) -> Op:
        args = tuple(args)
        node = object.__new__(cls)
        node.name, node.args, node.dtype = name, args, dtype
        return _intern((cls, name, dtype.name, *map(id, args)), node)  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return Op, (self.name, self.args, self.dtype)


class Reduce(Expr):
    """Component `component` of reducing `sources` over `axes` with `reducer`, where `where` holds.

    `init` replaces the identity. `state` are the types in which it accumulates.
    """

    __slots__ = ("reducer", "sources", "axes", "where", "init", "state", "component")
    reducer: Reducer
    sources: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    where: Expr | None
    init: tuple[Expr, ...] | None
    state: tuple[DType, ...]
    component: int

    def __new__(
        cls,
        reducer: Reducer,
        sources: tuple[Expr, ...],
        axes: tuple[Axis, ...],
        where: Expr | None,
        init: tuple[Expr, ...] | None,
        state: tuple[DType, ...],
        component: int,
        dtype: DType,
    ) -> Reduce:
        node = object.__new__(cls)
        node.reducer, node.sources, node.axes, node.where = reducer, sources, axes, where
        node.init, node.state, node.component, node.dtype = init, state, component, dtype
        key = (
            cls, reducer, tuple(map(id, sources)), tuple(map(id, axes)), id(where),
            None if init is None else tuple(id(v) for v in init), tuple(d.name for d in state),
            component, dtype.name,
        )  # fmt: skip
        return _intern(key, node)  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        args = (self.reducer, self.sources, self.axes, self.where, self.init)
        return Reduce, (*args, self.state, self.component, self.dtype)


TRUE, FALSE = Const(True, BOOL), Const(False, BOOL)


def children(e: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside `e` (those of a reduction: sources, where, init)."""
    if isinstance(e, Op):
        return e.args
    if isinstance(e, Load):
        return e.index
    if isinstance(e, Reduce):
        return (*e.sources, *((e.where,) if e.where is not None else ()), *(e.init or ()))
    return ()
