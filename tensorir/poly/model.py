"""A polyhedral program: statements, how loops enumerate them, buffers, and the order, a tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tensorir.ir.affine import Conj, Fact, Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Array, Statement
from tensorir.ir.stmt import Rows, Swizzle
from tensorir.poly.tree import Tree

ScopeName: TypeAlias = Literal["global", "local", "shared", "warp"]
Engine: TypeAlias = Literal["copy", "cp_async"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Placement:
    """How the loops above a statement enumerate its instances. No isl inside.

    `index` gives each iterator of the statement as an affine expression of `axes` (for people
    and for code); `facts` relate iterators' root axes, present axes and `retired` ones (for
    proofs): `root == f*o + i`, `0 <= i < f`. `roots` names the axis that an iterator equals.
    """

    stmt: Statement
    axes: tuple[Axis, ...]
    index: Mapping[Axis, Lin]
    facts: Conj = ()
    retired: tuple[Axis, ...] = ()
    roots: Mapping[Axis, Axis] = field(default_factory=dict)

    @staticmethod
    def fresh(stmt: Statement, axes: tuple[Axis, ...]) -> Placement:
        """Iterator k enumerated by axis k."""
        roots = dict(zip(stmt.iters, axes, strict=True))
        return Placement(stmt, axes, {i: Lin({a: 1}) for i, a in roots.items()}, (), (), roots)

    def rename(self, axis: Axis, by: Axis) -> Placement:
        """The same with `axis` called `by`: retire it and state that both are equal."""
        return self.replace_axis(axis, (by,), Lin({by: 1}), (("eq", Lin({axis: 1, by: -1})),))

    def replace_axis(
        self, axis: Axis, new: tuple[Axis, ...], value: Lin, facts: tuple[Fact, ...]
    ) -> Placement:
        """`axis` retired in favour of `new`, where `axis == value` and `facts` hold."""
        axes = tuple(x for a in self.axes for x in (new if a is axis else (a,)))
        env: dict[Axis | Var, Lin] = {axis: value}
        index = {i: e.subst(env) for i, e in self.index.items()}
        kept = (*self.facts, *facts)
        return Placement(self.stmt, axes, index, kept, (*self.retired, axis), self.roots)

    def with_stmt(self, stmt: Statement) -> Placement:
        """The same enumeration of a statement with the same iterators."""
        return Placement(stmt, self.axes, self.index, self.facts, self.retired, self.roots)


LayoutDim: TypeAlias = tuple[int, Literal["//", "%"] | None, int]


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Where a temporary array lives: one copy for each point of the axes `outside`.

    `layout` lists storage dimensions (index dimension, None | "//" | "%", tile) over index minus
    tile origin; None means row-major as declared. `shared` says that a cell holds several values,
    one after the other, so that who touches it keeps its place in the order. Of a buffer that a
    pipeline fills ahead, `turns` are the loops each of whose iterations fills one of its tiles
    anew, and `engine` is how. `told` are those of `outside` that a cell tells, for each cell is of
    one thread. `rows` tells how far rows of storage lie apart, and `swizzle` how each is turned.
    """

    scope: ScopeName = "global"
    outside: tuple[Axis, ...] = ()
    layout: tuple[LayoutDim, ...] | None = None
    shared: bool = False
    turns: tuple[Axis, ...] = ()
    engine: Engine = "copy"
    told: tuple[Axis, ...] = ()
    rows: Rows | None = None
    swizzle: Swizzle | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Requirement:
    """Sizes that a call must refuse: where every fact of `refused` holds, with what to say."""

    refused: Conj
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch:
    """What instances of a statement read later, asked of memory ahead of time.

    An instance asks for the cells of `array` that the instance reads whose iterators are greater
    by `shift`.
    """

    stmt: str
    array: Array
    shift: tuple[tuple[Axis, int], ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Program:
    """Everything about a computation and its order.

    Parameters
    ----------
    tree
        The order.
    placements
        One for each statement, by name, in the textual order of first appearance.
    buffers
        One for each temporary array.
    arrays
        Inputs in the order of first appearance, then outputs, then temporaries.
    sizes
        Symbolic sizes, in the order of first appearance.
    context
        Facts about sizes that always hold (each is at least 0; what a schedule specialised).
    requirements
        What a call must refuse for its sizes.
    specializations
        Facts about sizes for which the nest is made once more, tested in order before it.
    streaming
        Arrays that are written past the caches, each where it holds more than so many bytes.
    prefetches
        What is asked of memory before it is read.
    """

    tree: Tree
    placements: Mapping[str, Placement]
    buffers: Mapping[Array, Buffer]
    arrays: tuple[Array, ...]
    sizes: tuple[Var, ...]
    context: Conj
    requirements: tuple[Requirement, ...] = ()
    specializations: tuple[Conj, ...] = ()
    streaming: tuple[tuple[Array, int], ...] = ()
    prefetches: tuple[Prefetch, ...] = ()

    def stmt(self, name: str) -> Statement:
        return self.placements[name].stmt

    def change(self, **fields: Any) -> Program:
        """A copy with some fields replaced."""
        now = {k: getattr(self, k) for k in Program.__dataclass_fields__}
        return Program(**(now | fields))

    @property
    def statements(self) -> tuple[Statement, ...]:
        return tuple(p.stmt for p in self.placements.values())
