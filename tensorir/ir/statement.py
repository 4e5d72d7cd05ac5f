"""Statements of a polyhedral program: what runs, for which instances, and which cells it touches.

Pure structure; the isl objects that answer questions about them are memos kept by `tensorir.poly`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorir.ir.affine import Conj, Fact, Lin, Region
from tensorir.ir.dtype import DType
from tensorir.ir.expr import Axis, Expr
from tensorir.ir.reducer import Reducer

ArrayRole: TypeAlias = Literal["input", "output", "temp"]
StatementRole: TypeAlias = Literal[
    "init", "update", "finish", "copy", "compute", "barrier", "commit", "wait"
]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Array:
    """A named array of the program. Its identity is the object; the name is unique in a program.

    `shape` holds one affine expression in sizes for each dimension.
    """

    name: str
    dtype: DType
    shape: tuple[Lin, ...]
    role: ArrayRole

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class May:
    """An index that is not affine: `value` may refer to axes, sizes and earlier reads (`Ref`).

    It lies in `lower..upper` (inclusive, affine in sizes and iterators) where that is proved;
    None means that the whole dimension may be touched and that the value is checked when it runs.
    With `skip` nothing happens where it lies outside, in place of an error.
    """

    value: Expr
    lower: Lin | None = None
    upper: Lin | None = None
    skip: bool = False


Index: TypeAlias = Lin | May


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Access:
    """A cell touched by an instance: `array[index]`, the index over the statement's iterators.

    `guard` are unions of facts under which the access happens (an `if_then_else` around it);
    the empty conjunction means always.
    """

    array: Array
    index: tuple[Index, ...]
    guard: Region = ((),)

    @property
    def exact(self) -> bool:
        """Whether every index is affine."""
        return all(isinstance(i, Lin) for i in self.index)

    @property
    def affine(self) -> tuple[Lin, ...]:
        """The index of an exact access."""
        assert self.exact
        return self.index  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Statement:
    """What runs. Never changed by a primitive that only moves loops.

    Parameters
    ----------
    name
        Unique in the program: `C`, `C.init`, `C.finish`, `A_cache.copy`.
    stage
        The name of the tensor whose computation it belongs to.
    iters
        Its iterators, outer to inner as declared. One instance for each point of `domain`.
    domain
        A union of conjunctions of facts over iterators and sizes.
    writes
        One access for each component of the state, all with one index.
    reads
        What the bodies' `Ref(k)` mean. For an update the first `len(writes)` are the accumulator.
    bodies
        One expression for each write, over iterators, sizes and Refs.
    combiner
        Of an update (and of the load and write back of its accumulator): its reducer.
    role
        What it is to its stage.
    atomic
        Of an update: it is made in one step, so that threads may make several of a cell at once.
    in_flight
        Of a wait for asynchronous copies: how many of the youngest groups it does not wait for.
    """

    name: str
    stage: str
    iters: tuple[Axis, ...]
    domain: Region
    writes: tuple[Access, ...]
    reads: tuple[Access, ...]
    bodies: tuple[Expr, ...]
    role: StatementRole
    combiner: Reducer | None = None
    atomic: bool = False
    in_flight: int = 0

    @property
    def synchronises(self) -> bool:
        """Whether it touches no memory, and makes threads or copies wait for each other."""
        return self.role in ("barrier", "commit", "wait")

    @property
    def read_order(self) -> tuple[int, ...]:
        """The slots of `reads` in an order in which an index refers to earlier ones only.

        The accumulator of a scatter is found by what the reads after it give.
        """
        late = [k for k in range(min(len(self.writes), len(self.reads))) if self._scatters(k)]
        return (*(k for k in range(len(self.reads)) if k not in late), *late)

    def _scatters(self, slot: int) -> bool:
        return any(isinstance(i, May) and i.skip for i in self.reads[slot].index)

    def __repr__(self) -> str:
        return self.name


__all__ = ["Access", "Array", "Conj", "Fact", "Index", "May", "Region", "Statement"]
