"""What a sum of products of two operands is: which loop goes over what, and how each is stored.

Any declaration of that structure is recognised, whoever wrote it: products of matrices with either
operand transposed, batches of them, einsum. Its loops fall into four kinds: `batch` (in the result
and both operands), `rows` and `columns` (in the result and one operand) and `sums`. The right
operand is the one that has the last index of the result, so that columns are contiguous in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorir.ir.affine import Lin
from tensorir.ir.dtype import DType
from tensorir.ir.expr import Axis, Expr, Op, Ref
from tensorir.ir.statement import Access, Statement
from tensorir.ir.target import Target
from tensorir.schedule.schedule import Schedule

Index = tuple["Axis | None", ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that is read: its name, its type, and the axis of each of its dimensions."""

    name: str
    dtype: DType
    index: Index

    @property
    def last(self) -> Axis | None:
        """The axis along contiguous memory."""
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
    """

    stage: str
    dtype: DType
    finished: bool
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    sums: tuple[Axis, ...]
    left: Operand
    right: Operand
    order: tuple[Axis, ...]

    def lanes(self, target: Target) -> int:
        """Elements of the accumulator in a vector."""
        return target.lanes(self.dtype)


def extent(a: Axis) -> int | None:
    """The number of iterations of a declared loop where it is constant."""
    if a.lower is None or a.upper is None:
        return None
    n = a.upper - a.lower
    return max(n.const, 0) if n.is_const else None


def contraction(s: Schedule) -> Contraction | None:
    """The sum of products that a fresh schedule consists of, or None."""
    program = s.program
    updates = [x for x in program.statements if x.role == "update"]
    if s.step is not None or len(updates) != 1 or len(s.stages) != 1:
        return None
    u = updates[0]
    if {x.role for x in program.statements} - {"init", "update", "finish"} or len(u.domain) != 1:
        return None
    if len(u.reads) != 3 or len(u.writes) != 1 or not _product(u.bodies[0]):
        return None
    places = [_index(x) for x in (u.writes[0], u.reads[1], u.reads[2])]
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
    sums = tuple(a for a in u.iters if a not in out)
    shared = tuple(a for a in u.iters if a in out and a in left.index and a in right.index)
    rows = tuple(a for a in u.iters if a in out and a in left.index and a not in right.index)
    columns = tuple(a for a in u.iters if a in out and a in right.index and a not in left.index)
    whole = len(shared) + len(rows) + len(columns) + len(sums) == len(u.iters)
    if not whole or not sums or not all(a in left.index and a in right.index for a in sums):
        return None
    finished = any(x.role == "finish" for x in program.statements)
    return Contraction(
        u.stage, u.writes[0].array.dtype, finished, shared, rows, columns, sums, left, right,
        u.iters,
    )  # fmt: skip


def _index(x: Access) -> Index | None:
    """The axis of each dimension, None for the first cell of one; None for any other access."""
    if not x.exact or x.guard != ((),):
        return None
    found: list[Axis | None] = []
    for e in x.affine:
        if e == Lin({}, 0):
            found.append(None)
            continue
        axis = next(iter(e.terms), None)
        if not isinstance(axis, Axis) or e != Lin({axis: 1}) or axis in found:
            return None
        found.append(axis)
    return tuple(found)


def _product(e: Expr) -> bool:
    """Whether a body adds the product of both operands, each perhaps converted."""
    if not isinstance(e, Op):
        return False
    if e.name == "fma":
        return _reads(e.args[0], 1) and _reads(e.args[1], 2) and _reads(e.args[2], 0)
    if e.name != "add" or not _reads(e.args[0], 0):
        return False
    of = e.args[1]
    return isinstance(of, Op) and of.name == "mul" and _reads(of.args[0], 1) and _reads(of.args[1], 2)


def _reads(e: Expr, k: int) -> bool:
    inner = e.args[0] if isinstance(e, Op) and e.name == "cast" else e
    return isinstance(inner, Ref) and inner.slot == k

