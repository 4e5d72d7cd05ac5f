"""Instructions declared by what they compute: a tensor expression over a fixed tile, and operands.

`tensorize` replaces a loop nest by one where the nest's meaning equals the declaration. Nothing
here emits code or knows a loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorir.ir.expr import Axis, Reduce
from tensorir.ir.tensor import Tensor
from tensorir.ir.visit import loads, reductions
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.names import hint
from tensorir.support.tracebacks import user_api

__all__ = ["Intrinsic", "Numerics", "Operand", "intrinsic", "named", "names"]

Scope: TypeAlias = Literal["register", "shared", "warp"]


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """How an operand lies: the tile's axes over which its elements run, row-major.

    An operand that does not depend on one of its axes holds each element once for every point of
    it. `map` is how many elements it moves along each tile axis where it is read from memory; 0
    where it does not move. `align` is what its address must be a multiple of, in bytes.
    """

    tensor: Tensor
    over: tuple[Axis, ...]
    map: Mapping[Axis, int]
    align: int = 1
    scope: Scope = "register"

    @property
    def elements(self) -> int:
        """How many elements the instruction takes."""
        return math.prod(_extent(a) for a in self.over)


@dataclass(frozen=True, slots=True)
class Numerics:
    """Where the instruction's arithmetic differs from the declared expression's.

    `order` is how it sums: "any" where that cannot matter. `rounding` and `subnormals` say what
    is done to a result: "exact", "nearest even"; "kept", "flushed".
    """

    order: str = "any"
    rounding: str = "exact"
    subnormals: str = "kept"

    @property
    def exact(self) -> bool:
        """Whether every bit is that of the declared expression."""
        return self.order == "any" and self.rounding == "exact" and self.subnormals == "kept"

    @property
    def text(self) -> str:
        said = [] if self.order == "any" else [f"sums {self.order}"]
        said += [] if self.rounding == "exact" else [f"rounds to {self.rounding}"]
        said += [] if self.subnormals == "kept" else [f"subnormals {self.subnormals}"]
        return ", ".join(said) or "exact"


@dataclass(frozen=True, slots=True, eq=False)
class Intrinsic:
    """A declared instruction; make one with :func:`intrinsic`.

    Attributes
    ----------
    name
        What schedules call it.
    tensor
        What it computes, over a tile of constant extents.
    operands
        In the order of the call. The result is among them where it is accumulated into.
    llvm
        LLVM's name of the function that is called.
    features
        What the target must have: one of these sets.
    numerics
        Where it computes otherwise than the declaration says.
    """

    name: str
    tensor: Tensor
    operands: tuple[Operand, ...]
    llvm: str
    features: tuple[tuple[str, ...], ...]
    numerics: Numerics

    @property
    def lanes(self) -> tuple[Axis, ...]:
        """The axes of the result."""
        assert self.tensor.op is not None
        return tuple(self.tensor.op.axes)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes of the tile: those of the result, then those that are summed over."""
        assert self.tensor.op is not None
        found = reductions(self.tensor.op.bodies)
        return (*self.lanes, *(a for r in found for a in r.axes))

    @property
    def accumulates(self) -> bool:
        """Whether the call takes what was there before; else its result is added."""
        return any(o.tensor is self.tensor for o in self.operands)

    def extent(self, axis: Axis) -> int:
        """How many points a tile axis has."""
        return _extent(axis)

    def __repr__(self) -> str:
        return f"Intrinsic({self.name})"


def _extent(axis: Axis) -> int:
    low, high = axis.lower, axis.upper
    if low is None or high is None or not (low.is_const and high.is_const) or low.const != 0:
        raise ArgumentError(
            f"intrinsic: axis {axis.name} of a tile must run from 0 to a constant, not "
            f"{low} to {high}"
        )
    return high.const


_declared: dict[str, Intrinsic] = {}


@user_api
def intrinsic(
    name: str,
    tensor: Tensor,
    operands: Sequence[tuple[Tensor, Sequence[str]]],
    *,
    llvm: str,
    features: str | Sequence[str] = "",
    numerics: Mapping[str, str] | None = None,
    align: int = 1,
) -> Intrinsic:
    """Declare an instruction, so that `s.tensorize(axis, name)` can put it in a loop nest's place.

    Parameters
    ----------
    name
        What schedules call it.
    tensor
        What it computes: one tensor of constant shape, at most one reduction of constant extents.
    operands
        In the order of the call: a tensor, and the names of the axes over which its elements run.
        One that does not depend on some of them is repeated along those. The result itself is
        listed where the call accumulates; else what the call gives is added to what was there.
    llvm
        LLVM's name of the function, `llvm.x86.avx512.vpdpbusd.512`; its types follow from the
        operands, a vector for each.
    features
        What the target must have, by LLVM's names with spaces between; a sequence where any of
        several sets will do.
    numerics
        `order`, `rounding` and `subnormals`, where it computes otherwise than `tensor` says; a
        schedule that uses it is then marked as one that changes rounding.
    align
        What addresses of vectors read from memory must be a multiple of, in bytes.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        A shape that is not constant, an unknown axis, or an operand that the tensor does not read.

    Examples
    --------
    >>> import tensorir as tir
    >>> a = tir.placeholder((8, 2), "int16", name="a")
    >>> b = tir.placeholder((8, 2), "int16", name="b")
    >>> k = tir.reduce_axis(2, name="k")
    >>> pairs = tir.compute((8,), lambda i: tir.sum(
    ...     tir.cast(a[i, k], "int32") * tir.cast(b[i, k], "int32"), axis=k, dtype="int32"),
    ...     name="pairs")
    >>> tir.intrinsic("my.pairs", pairs, [(a, ("i", "k")), (b, ("i", "k"))],
    ...     llvm="llvm.x86.avx2.pmadd.wd", features="avx2")
    Intrinsic(my.pairs)
    """
    if not isinstance(name, str) or not name:
        raise ArgumentTypeError(f"intrinsic: a name is a string, not {name!r:.60}")
    if name in builtin():
        raise ArgumentError(f"intrinsic: {name!r} is declared by the library; choose another name")
    made = declare(name, tensor, operands, llvm, features, numerics or {}, align)
    _declared[name] = made
    return made


def declare(
    name: str,
    tensor: Tensor,
    operands: Sequence[tuple[Tensor, Sequence[str]]],
    llvm: str,
    features: str | Sequence[str],
    numerics: Mapping[str, str],
    align: int = 1,
) -> Intrinsic:
    """An intrinsic, checked; not yet known by its name."""
    if not isinstance(tensor, Tensor) or tensor.op is None:
        raise ArgumentTypeError(f"intrinsic {name}: expected a computed tensor, not {tensor!r:.60}")
    found = reductions(tensor.op.bodies)
    plain = len(tensor.op.bodies) == 1 and tensor.op.where is None
    if not plain or len(found) > 1 or (found and tensor.op.bodies[0] is not found[0]):
        raise ArgumentError(
            f"intrinsic {name}: its meaning is one expression or one reduction, over a whole tile"
        )
    if any(r.where is not None or r.init is not None for r in found):
        raise ArgumentError(f"intrinsic {name}: its reduction takes neither where= nor init=")
    axes = (*tensor.op.axes, *(a for r in found for a in r.axes))
    known = {a.name: a for a in axes}
    for a in axes:
        _extent(a)
    read = {id(x.tensor): x.tensor for x in loads(tensor.op.bodies)}
    made = tuple(_operand(name, tensor, t, over, known, found, align) for t, over in operands)
    missing = [t.name for t in read.values() if not any(o.tensor is t for o in made)]
    if missing:
        raise ArgumentError(f"intrinsic {name}: {missing[0]} is read, and is no operand")
    wrong = [k for k in numerics if k not in ("order", "rounding", "subnormals")]
    if wrong:
        raise ArgumentError(
            f"intrinsic {name}: numerics has no {wrong[0]!r}"
            f"{hint(wrong[0], ('order', 'rounding', 'subnormals'))}"
        )
    sets = (features,) if isinstance(features, str) else tuple(features)
    needs = tuple(tuple(x.split()) for x in sets)
    return Intrinsic(name, tensor, made, llvm, needs, Numerics(**numerics))


def _operand(
    name: str,
    result: Tensor,
    tensor: Tensor,
    over: Sequence[str],
    known: Mapping[str, Axis],
    found: Sequence[Reduce],
    align: int,
) -> Operand:
    assert result.op is not None
    for x in over:
        if x not in known:
            raise ArgumentError(
                f"intrinsic {name}: no axis {x!r}{hint(x, known)}; there are {', '.join(known)}"
            )
    axes = tuple(known[x] for x in over)
    if tensor is result:
        if not found:
            raise ArgumentError(f"intrinsic {name}: {result.name} is set, not accumulated into")
        index = tuple(result.op.axes)
    else:
        uses = [x for x in loads(result.op.bodies) if x.tensor is tensor]
        if len(uses) != 1 or not all(isinstance(i, Axis) for i in uses[0].index):
            raise ArgumentError(
                f"intrinsic {name}: an operand is read once, by axes alone; "
                f"{getattr(tensor, 'name', tensor)!s} is not"
            )
        index = tuple(i for i in uses[0].index if isinstance(i, Axis))
    strides: dict[Axis, int] = dict.fromkeys(known.values(), 0)
    step = 1
    for a in reversed(index):
        strides[a] = step
        step *= _extent(a)
    inside = [id(a) for a in axes if strides[a]]
    if inside != [id(a) for a in index]:
        raise ArgumentError(
            f"intrinsic {name}: {tensor.name} is indexed by {', '.join(a.name for a in index)}, "
            f"and its elements run over {', '.join(over) or 'nothing'}"
        )
    return Operand(tensor, axes, strides, align)


def builtin() -> Mapping[str, Intrinsic]:
    """The library's own declarations."""
    from tensorir.ir.dot_products import x86

    return x86()


def names() -> list[str]:
    """Every name that is declared now."""
    return [*builtin(), *_declared]


def named(name: str) -> Intrinsic | None:
    """The intrinsic of that name."""
    return builtin().get(name) or _declared.get(name)
