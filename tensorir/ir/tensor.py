"""Tensors and the computations that define them, as declared. Identity is the object."""

from __future__ import annotations

from typing import Any, NoReturn

from tensorir.ir.affine import Lin
from tensorir.ir.dtype import DType
from tensorir.ir.expr import Axis, Const, Expr, Load
from tensorir.support import display
from tensorir.support.errors import ArgumentError, ArgumentTypeError, BoundsError


def _index_error(tensor: Tensor, *_: object) -> NoReturn:
    axes = ", ".join("ijklmn"[: tensor.ndim]) if tensor.ndim <= 6 else "..."
    raise ArgumentTypeError(
        f"{tensor.name} is a whole tensor: operators take one element at a time, "
        f"{tensor.name}[{axes or '()'}], inside tir.compute(shape, lambda {axes}: ...)"
    )


class Tensor:
    """A multi-dimensional array of the declaration: an input, or an output of a computation.

    `extents` are affine in sizes. `op` is the computation that defines it, None for a
    placeholder; it is output number `component` of it. Index it to use an element.
    """

    __slots__ = ("name", "dtype", "extents", "op", "component", "__weakref__")
    name: str
    dtype: DType
    extents: tuple[Lin, ...]
    op: Compute | None
    component: int

    def __init__(
        self,
        name: str,
        dtype: DType,
        extents: tuple[Lin, ...],
        op: Compute | None = None,
        component: int = 0,
    ) -> None:
        put = object.__setattr__
        put(self, "name", name)
        put(self, "dtype", dtype)
        put(self, "extents", extents)
        put(self, "op", op)
        put(self, "component", component)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise ArgumentError(f"tensor {self.name} cannot be changed: {name!r} was assigned to")

    def __delattr__(self, name: str) -> NoReturn:
        raise ArgumentError(f"tensor {self.name} cannot be changed: {name!r} was deleted")

    def __setstate__(self, state: tuple[None, dict[str, object]]) -> None:
        for name, value in state[1].items():
            object.__setattr__(self, name, value)

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: object) -> Tensor:
        return self

    @property
    def shape(self) -> tuple[int | Expr, ...]:
        """The extent of each dimension: an int where it is constant, else an expression."""
        from tensorir.ir.index import from_lin

        return tuple(e.const if e.is_const else from_lin(e) for e in self.extents)

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.extents)

    def __getitem__(self, index: Any) -> Load:
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != self.ndim:
            raise ArgumentError(
                f"{self.name} has {_count(self.ndim, 'dimension')} "
                f"{shape_text(self.extents)}, but is indexed with {len(given)}: "
                f"{self.name}[{', '.join(_index_text(i) for i in given)}]"
            )
        return Load(self, tuple(self._check(k, i) for k, i in enumerate(given)))

    def _check(self, k: int, i: Any) -> Expr:
        from tensorir.ir.build import as_expr, cast
        from tensorir.ir.index import to_lin

        if isinstance(i, slice | str | bytes | list | tuple) or i is None or i is Ellipsis:
            raise ArgumentTypeError(
                f"{self.name} is indexed with {_index_text(i)} in dimension {k}: each index is one "
                "integer expression; slices are written as the range of an axis"
            )
        e = as_expr(i)
        if not e.dtype.is_integer:
            raise ArgumentTypeError(
                f"index {k} of {self.name} must be an integer, not {e.dtype} {e}: convert it with "
                "tir.cast(index, 'int64')"
            )
        e = cast(e, "int64")
        at, extent = to_lin(e), self.extents[k]
        if isinstance(e, Const) and int(e.value) < 0:
            raise BoundsError(
                f"index {k} of {self.name} is {e.value}: indices start at 0 and do not count from "
                f"the end; the last one is {(extent - 1).text()}"
            )
        past = None if at is None else at - extent
        if past is not None and past.is_const and past.const >= 0:
            raise BoundsError(
                f"index {k} of {self.name} is {at}, outside 0..{extent} (the end excluded)"
            )
        return e

    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise ArgumentTypeError(
            f"elements of {self.name} are not assigned: tir.compute declares a tensor by what each "
            "element is"
        )

    def __len__(self) -> NoReturn:
        raise ArgumentTypeError(f"{self.name} has no len(): see {self.name}.shape")

    def __iter__(self) -> NoReturn:
        raise ArgumentTypeError(f"{self.name} cannot be iterated over: use it in tir.compute")

    def __bool__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"the truth of the tensor {self.name} is not known while it is declared"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _index_error
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _index_error
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __and__ = __rand__ = _index_error
    __or__ = __ror__ = __xor__ = __rxor__ = __lt__ = __le__ = __gt__ = __ge__ = _index_error
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _index_error
    __neg__ = __pos__ = __abs__ = __invert__ = _index_error

    def __repr__(self) -> str:
        return display.text(self)


class Compute:
    """A computation: for each point of its axes, the value of each output.

    `bodies` holds an expression for each output; where they hold reductions these are all one
    (same reducer, axes and sources). `where` restricts the points, by axes and sizes.
    """

    __slots__ = ("name", "axes", "bodies", "where", "outputs", "__weakref__")

    def __init__(
        self, name: str, axes: tuple[Axis, ...], bodies: tuple[Expr, ...], where: Expr | None
    ) -> None:
        self.name, self.axes, self.bodies, self.where = name, axes, bodies, where
        self.outputs: tuple[Tensor, ...] = ()

    def __repr__(self) -> str:
        return display.text(self)


def scalar(tensor: Tensor) -> Expr:
    """The element of a tensor of rank 0; an error for any other."""
    if tensor.ndim:
        _index_error(tensor)
    return tensor[()]


def shape_text(extents: tuple[Lin, ...]) -> str:
    """`(M, 4)`, as Python writes a tuple."""
    inner = ", ".join(e.text() for e in extents)
    return f"({inner},)" if len(extents) == 1 else f"({inner})"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _index_text(i: object) -> str:
    if isinstance(i, slice):
        ends = [("" if x is None else str(x)) for x in (i.start, i.stop)]
        return ":".join(ends) + ("" if i.step is None else f":{i.step}")
    return "..." if i is Ellipsis else f"{i!r:.60}" if isinstance(i, str | bytes) else f"{i!s:.60}"
