"""What the emitters hand to the runtime: text, and everything a call must know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tensorir.ir.affine import Lin
from tensorir.ir.dtype import DType
from tensorir.ir.expr import Var
from tensorir.ir.stmt import Bound
from tensorir.ir.target import Target


@dataclass(frozen=True, slots=True)
class Argument:
    """One array argument of a kernel.

    `shape` is affine in the sizes; a size is read off a dimension in which it stands alone with
    some coefficient and constant, and every other dimension must agree. `in_place` lists the
    inputs that an output may be the same array as (same pointer, shape and strides).
    """

    name: str
    dtype: DType
    shape: tuple[Lin, ...]
    role: Literal["input", "output"]
    in_place: tuple[str, ...] = ()
    # an output whose domain leaves cells unwritten: a fresh one must be zeroed
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """What a non-zero status means: `message` may use {0}..{3}, the values the kernel stored."""

    message: str


@dataclass(frozen=True, slots=True)
class LaunchSource:
    """One entry of a module for a GPU: what it takes, and its grid.

    The entry is `void @NAME(ptr a0, .., i64 n0, .., ptr report)`: the arrays whose numbers
    `arrays` gives, among the kernel's arguments and then its scratch arrays; all sizes; and, where
    `reports`, room for five i64 that are zero: the status of a failed check and four values.
    `grid` gives for each index the loops bound to it, each by its upper bounds over the sizes, of
    which the least holds; the grid is the largest of them.
    """

    name: str
    arrays: tuple[int, ...]
    grid: tuple[tuple[tuple[Bound, ...], ...], ...]
    threads: tuple[int, int, int]
    shared_bytes: int
    reports: bool
    barriers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelSource:
    """LLVM text of one kernel and its signature.

    The text defines `i32 @NAME(ptr a0, .., i64 s0, .., ptr info)`: argument pointers (C
    contiguous) in the order of `arguments`, sizes in the order of `sizes`, and room for four i64
    that a failing check fills. Status k > 0 means `checks[k - 1]`. It has no module header and no
    attribute group #0: `codegen.cpu` adds both. Text may declare and call what `imports` names
    (`GOMP_parallel`, `omp_get_thread_num`, libm functions, malloc).

    `work` holds (floating operations, bytes moved) as functions of the sizes: each a sum of
    products, ((coefficient, (Lin, Lin, ..)), ..).

    For a GPU the text defines one entry for each of `launches`, which run in that order; `scratch`
    are arrays in global memory that they share.
    """

    name: str
    llvm: str
    arguments: tuple[Argument, ...]
    sizes: tuple[Var, ...]
    target: Target
    checks: tuple[Check, ...] = ()
    imports: tuple[str, ...] = ()
    parallel: bool = False
    operations: tuple[tuple[int, tuple[Lin, ...]], ...] = ()
    bytes_moved: tuple[tuple[int, tuple[Lin, ...]], ...] = ()
    loops: str = ""
    launches: tuple[LaunchSource, ...] = ()
    scratch: tuple[Argument, ...] = ()
    notes: tuple[str, ...] = field(default=())
