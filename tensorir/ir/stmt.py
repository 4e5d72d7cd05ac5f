"""Loops: what a schedule becomes before code. For, If, Block, Run, Alloc, and nothing else.

A vector or unrolled loop stays a `For` with a constant extent; lanes, masks and addresses exist
only in the emitter. Bounds, guards and arguments are affine (`ir.affine`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tensorir.ir.affine import Conj, Lin
from tensorir.ir.expr import Axis
from tensorir.ir.intrinsic import Intrinsic
from tensorir.ir.matrix import MatrixIntrinsic
from tensorir.ir.statement import Array, Statement

LoopKind: TypeAlias = Literal["serial", "parallel", "vectorize", "unroll", "bind"]
Scope: TypeAlias = Literal["global", "local", "shared", "register", "stack", "arena"]
# A bound (c, e): a lower one means ceil(e / c), an upper one floor(e / c), inclusive.
Bound: TypeAlias = tuple[int, Lin]


@dataclass(frozen=True, slots=True)
class Rows:
    """The room of the last storage dimension: `by` elements more than it has, then as many more
    as make it `offset` more than a multiple of `factor`."""

    by: int = 0
    factor: int = 1
    offset: int = 0

    def room(self, extent: int) -> int:
        """How far rows of so many elements lie apart."""
        least = extent + self.by
        return least + (self.offset - least) % self.factor


@dataclass(frozen=True, slots=True)
class Swizzle:
    """Where an element of storage lies that would lie at `x`: `bits` bits of `x` from `base` on
    are xored with those `shift` higher. Each is its own inverse; what is below `base` stays."""

    bits: int
    base: int
    shift: int

    @property
    def span(self) -> int:
        """Elements after which it repeats."""
        return 1 << (self.base + self.shift + self.bits)

    def place(self, x: int) -> int:
        """Where the element of number `x` lies."""
        return x ^ (x >> (self.base + self.shift) & ((1 << self.bits) - 1)) << self.base


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Items in order."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """`axis` from the greatest of `lower` to the least of `upper`, both inclusive.

    `extent` is set for a loop of constant extent that starts at 0 (its bounds then say the same).
    `hull` turns the meaning into least of lower and greatest of upper: the hull of statements
    whose ranges do not join; guards below keep it exact. `width` are the lanes of a vector loop;
    its extent is a multiple of them. It is 1 for a bound loop whose threads are combined into the
    cell that they all update. `intrinsic` is the instruction that stands for it and the
    loops inside it, wherever no condition is left on them.
    """

    axis: Axis
    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]
    body: Node
    kind: LoopKind = "serial"
    extent: int | None = None
    width: int | None = None
    hull: bool = False
    bind: str | None = None
    intrinsic: Intrinsic | MatrixIntrinsic | None = None


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """`body` where all facts hold, else `other`."""

    conds: Conj
    body: Node
    other: Node | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One instance of a statement: `args` give its iterators.

    Each fact is an expression that must be at least 0. Where one of `conds` fails nothing
    happens. Where one of `read_conds` fails the instance still runs and writes padding nobody
    reads, but its loads are not made. `corner` says that all of them hold where the axes of the
    unrolled and vector loops around it are 0, so that address is always safe to load from.
    `part` says that other runs cover the rest of the statement's instances under the same loops,
    so that `conds` do not describe its domain.
    """

    statement: Statement
    args: tuple[Lin, ...]
    conds: tuple[Lin, ...] = ()
    read_conds: tuple[Lin, ...] = ()
    corner: bool = False
    part: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Alloc:
    """Storage of a private buffer, alive for one execution of `body`."""

    buffer: Storage
    body: Node


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """How a private array is laid out, decided by lowering.

    Storage dimension `d` of cell `c` is `c[dims[d][0]] - origin`, taken whole, `// tile` or
    `% tile`. `origin` and `shape` are affine in the axes outside it and in sizes. `lanes` are
    vector axes outside it: each adds an innermost dimension, so that `shape` has
    `len(dims) + len(lanes)` entries. `register` is None, or the lanes of each register it lives
    in (0: scalars). `turns` are axes of loops each of whose iterations fills some cells anew,
    of which nothing is read any more. `rows` and `swizzle` are as in the program's buffer; `shape`
    has them already.
    """

    array: Array
    origin: tuple[Lin, ...]
    extent: tuple[Lin, ...]
    dims: tuple[tuple[int, Literal["//", "%"] | None, int], ...]
    shape: tuple[Lin, ...]
    outside: tuple[Axis, ...]
    lanes: tuple[Axis, ...] = ()
    scope: Scope = "arena"
    register: int | None = None
    turns: tuple[Axis, ...] = ()
    rows: Rows | None = None
    swizzle: Swizzle | None = None
    notes: tuple[str, ...] = field(default=())


Node: TypeAlias = Block | For | If | Run | Alloc
