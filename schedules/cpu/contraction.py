"""What a sum of products of two operands is: which loop goes over what, and how each is stored.

Any declaration of that structure is recognised, whoever wrote it: products of matrices with either
operand transposed, batches of them, einsum. Its loops fall into four kinds: `batch` (in the result
and both operands), `rows` and `columns` (in the result and one operand) and `sums`. The right
operand is the one that has the last index of the result, so that columns are contiguous in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tensorir.ir.affine import Lin
from tensorir.ir.dtype import DType
from tensorir.ir.expr import Axis, Expr, Op, Ref
from tensorir.ir.statement import Access
from tensorir.ir.target import Target
from tensorir.poly import tree
from tensorir.schedule.resolve import reference
from tensorir.schedule.schedule import Schedule

Index = tuple["str | None", ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that is read: its name, its type, and the loop of each of its dimensions."""

    name: str
    dtype: DType
    index: Index

    @property
    def last(self) -> str | None:
        """The loop along contiguous memory."""
        return self.index[-1] if self.index else None


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products of two operands.

    Attributes
    ----------
    stage
        The result.
    dtype
        In which it accumulates.
    finished
        Whether something is done to the sum before it is stored.
    batch, rows, columns, sums
        Loops by what they have in common, outer to inner.
    left, right
        The operands; `right` has the last index of the result.
    sizes
        How often each loop runs, outer to inner, None where that is not constant.
    """

    stage: str
    dtype: DType
    finished: bool
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    sums: tuple[str, ...]
    left: Operand
    right: Operand
    sizes: Mapping[str, int | None]

    def lanes(self, target: Target) -> int:
        """Elements of the accumulator in a vector."""
        return target.lanes(self.dtype)

    def size(self, *loops: str) -> int | None:
        """How often loops run together, None where that is not constant."""
        known = [self.sizes[x] for x in loops]
        return None if None in known else prod(n or 0 for n in known)

    @staticmethod
    def copy(buffer: str, loop: str) -> str:
        """The loop of a copy of an operand that goes along `loop`."""
        return f"{buffer}.{loop.rpartition('.')[2]}"

    def others(self, *loops: str) -> list[str]:
        """The loops over the result but these, outer to inner."""
        return [x for x in self.sizes if x not in self.sums and x not in loops]


def contraction(s: Schedule, stage: str | None = None) -> Contraction | None:
    """The sum of products that a fresh schedule consists of, or one stage of it; or None.

    A stage among others is one if its loops are still those of its declaration.
    """
    program = s.program
    mine = [x for x in program.statements if stage is None or x.stage == stage]
    updates = [x for x in mine if x.role == "update"]
    if len(updates) != 1 or (stage is None and (s.step is not None or len(s.stages) != 1)):
        return None
    u = updates[0]
    loops = tree.loops_of(program.tree, u.name)
    if [x.axis for x in loops] != list(u.iters) or any(x.kind != "serial" for x in loops):
        return None
    if {x.role for x in mine} - {"init", "update", "finish"} or len(u.domain) != 1:
        return None
    if len(u.reads) != 3 or len(u.writes) != 1 or not _product(u.bodies[0]):
        return None
    names = {a: reference(program, a) for a in u.iters}
    places = [_index(x, names) for x in (u.writes[0], u.reads[1], u.reads[2])]
    if any(p is None for p in places):
        return None
    out, one, two = (p for p in places if p is not None)
    if not out or out[-1] is None or (out[-1] in one and out[-1] in two):
        return None
    operands = [
        Operand(x.array.name, x.array.dtype, p)
        for x, p in zip(u.reads[1:], (one, two), strict=True)
    ]
    left, right = operands if out[-1] in two else operands[::-1]
    if left.name == right.name or out[-1] not in right.index:
        return None
    sizes = {names[a]: _extent(a) for a in u.iters}
    sums = tuple(a for a in sizes if a not in out)
    shared = tuple(a for a in sizes if a in out and a in left.index and a in right.index)
    rows = tuple(a for a in sizes if a in out and a in left.index and a not in right.index)
    columns = tuple(a for a in sizes if a in out and a in right.index and a not in left.index)
    whole = len(shared) + len(rows) + len(columns) + len(sums) == len(u.iters)
    if not whole or not sums or not all(a in left.index and a in right.index for a in sums):
        return None
    finished = any(x.role == "finish" for x in mine)
    return Contraction(
        u.stage, u.writes[0].array.dtype, finished, shared, rows, columns, sums, left, right, sizes
    )


def _extent(a: Axis) -> int | None:
    """The number of iterations of a declared loop where it is constant."""
    if a.lower is None or a.upper is None:
        return None
    n = a.upper - a.lower
    return max(n.const, 0) if n.is_const else None


def _index(x: Access, names: Mapping[Axis, str]) -> Index | None:
    """The loop of each dimension, None for the first cell of one; None for any other access."""
    if not x.exact or x.guard != ((),):
        return None
    found: list[str | None] = []
    for e in x.affine:
        if e == Lin({}, 0):
            found.append(None)
            continue
        axis = next(iter(e.terms), None)
        if not isinstance(axis, Axis) or e != Lin({axis: 1}) or names[axis] in found:
            return None
        found.append(names[axis])
    return tuple(found)


def _product(e: Expr) -> bool:
    """Whether a body adds the product of both operands, each perhaps converted."""
    if not isinstance(e, Op):
        return False
    if e.name == "fma":
        return _reads(e.args[0], 1) and _reads(e.args[1], 2) and _reads(e.args[2], 0)
    if e.name != "add" or not _reads(e.args[0], 0):
        return False
    term = e.args[1]
    if not isinstance(term, Op) or term.name != "mul":
        return False
    return _reads(term.args[0], 1) and _reads(term.args[1], 2)


def _reads(e: Expr, k: int) -> bool:
    inner = e.args[0] if isinstance(e, Op) and e.name == "cast" else e
    return isinstance(inner, Ref) and inner.slot == k
