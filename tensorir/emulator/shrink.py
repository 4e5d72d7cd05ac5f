"""A schedule made again for a smaller declaration, so that its loops can be enumerated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tensorir.emulator.reference import stages
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Const, Expr, Load, Op, Reduce
from tensorir.ir.tensor import Compute, Tensor
from tensorir.ir.visit import reductions
from tensorir.schedule import schedule as schedules
from tensorir.schedule.schedule import Schedule
from tensorir.schedule.trace import replay
from tensorir.support.errors import InternalError, TensorIRError

# constants this close to an extent are taken to be the extent and a border
NEAR = 8
CAPS = (97, 53, 37, 23, 13, 9)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A smaller schedule, and what became of each extent."""

    schedule: Schedule
    extents: Mapping[int, int]


def shrunk(s: Schedule) -> Iterator[Shrunk]:
    """The schedule at smaller constant extents, the largest first, as far as it applies there."""
    computes, inputs = stages(s.outputs)
    bases = _bases(computes)
    for cap in CAPS:
        extents = {b: min(b, cap + k % 3) for k, b in enumerate(bases)}
        if all(b == n for b, n in extents.items()):
            continue
        try:
            made = _Remade(extents)
            for t in inputs:
                made.tensors[t] = Tensor(t.name, t.dtype, tuple(map(made.lin, t.extents)))
            for c in computes:
                made.compute(c)
            small = schedules.schedule(*(made.tensors[t] for t in s.outputs))
            yield Shrunk(replay(small, s.trace), extents)
        except InternalError:
            raise
        except TensorIRError:
            continue  # a step does not apply at this size


def _bases(computes: list[Compute]) -> list[int]:
    """Constant extents above `NEAR`, those close to a smaller one left out."""
    found: set[int] = set()
    for c in computes:
        for a in (*c.axes, *(x for r in reductions(c.bodies) for x in r.axes)):
            if a.upper is not None and a.upper.is_const and a.upper.const > NEAR:
                found.add(a.upper.const)
    out: list[int] = []
    for n in sorted(found):
        if not out or n - out[-1] > NEAR:
            out.append(n)
    return out


class _Remade:
    """The declaration with other constants."""

    def __init__(self, extents: Mapping[int, int]) -> None:
        self.extents = extents
        self.tensors: dict[Tensor, Tensor] = {}
        self.axes: dict[Axis, Axis] = {}
        self.memo: dict[int, Expr] = {}

    def number(self, n: int) -> int:
        for base, new in self.extents.items():
            if abs(n - base) <= NEAR:
                return new + n - base
        return n

    def lin(self, e: Lin) -> Lin:
        out = Lin(const=self.number(e.const))
        for a, v in e.terms.items():
            if isinstance(a, tuple):
                inner = self.lin(a[1])
                out = out + (inner // a[2] if a[0] == "//" else inner % a[2]) * v
            else:
                out = out + Lin({self.axes.get(a, a) if isinstance(a, Axis) else a: v})
        return out

    def axis(self, a: Axis) -> None:
        assert a.lower is not None and a.upper is not None
        new = Axis(a.name, self.lin(a.lower), self.lin(a.upper), reduce=a.reduce)
        self.axes[a] = new

    def compute(self, c: Compute) -> None:
        for a in (*c.axes, *(x for r in reductions(c.bodies) for x in r.axes)):
            if a not in self.axes:
                self.axis(a)
        where = self.expr(c.where, index=True) if c.where is not None else None
        bodies = tuple(self.expr(b, index=False) for b in c.bodies)
        new = Compute(c.name, tuple(self.axes[a] for a in c.axes), bodies, where)
        new.outputs = tuple(
            Tensor(t.name, t.dtype, tuple(map(self.lin, t.extents)), new, t.component)
            for t in c.outputs
        )
        self.tensors |= dict(zip(c.outputs, new.outputs, strict=True))

    def expr(self, e: Expr, *, index: bool) -> Expr:
        """`e` with its constants changed where they are int64: positions, not data."""
        if isinstance(e, Const):
            position = e.dtype.name == "int64"
            return Const(self.number(int(e.value)), e.dtype) if position else e
        if isinstance(e, Axis):
            return self.axes.get(e, e)
        if isinstance(e, Load):
            return Load(self.tensors[e.tensor], tuple(self.expr(i, index=True) for i in e.index))
        if isinstance(e, Op):
            return Op(e.name, tuple(self.expr(a, index=index) for a in e.args), e.dtype)
        if isinstance(e, Reduce):
            return self._reduce(e)
        return e

    def _reduce(self, e: Reduce) -> Expr:
        key = id(e)
        if key not in self.memo:
            self.memo[key] = Reduce(
                e.reducer,
                tuple(self.expr(x, index=False) for x in e.sources),
                tuple(self.axes[a] for a in e.axes),
                self.expr(e.where, index=True) if e.where is not None else None,
                tuple(self.expr(x, index=False) for x in e.init) if e.init is not None else None,
                e.state,
                e.component,
                e.dtype,
            )
        return self.memo[key]
