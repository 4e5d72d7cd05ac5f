"""The program that `online` makes: one loop, what keeps the old maximum, what rescales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensorir.ir.build import binary, cast, compare, const, make, select
from tensorir.ir.expr import Axis, Expr, Op, Ref
from tensorir.ir.statement import Access, Array, Region, Statement
from tensorir.poly import access, tree
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.tree import Loop, Tree
from tensorir.schedule import copies, placed, resolve, rewrite
from tensorir.schedule.copies import Window
from tensorir.schedule.online_cells import cell_of_first
from tensorir.schedule.online_factor import Factor, First
from tensorir.support.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

WHAT = "online"


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A reduction that takes part: its update, its init, and the loop that becomes one."""

    name: str
    update: Statement
    init: Statement
    loop: Loop


class Builder:
    """Makes the program from stages that were proved fit.

    Parameters
    ----------
    s
        The schedule before.
    first
        What the first of `stages` compares.
    stages
        All of them; the loop of the last one stays.
    factors
        How each of the others depends on the first.
    """

    def __init__(
        self, s: Schedule, first: First, stages: Sequence[Stage], factors: Sequence[Factor]
    ) -> None:
        self.start, self.first, self.stages, self.factors = s, first, stages, factors
        axis = stages[-1].loop.axis
        self.inside = (*rewrite.path_axes(s.program, axis)[:-1], axis)
        self.placements: dict[str, Placement] = dict(s.program.placements)
        self.buffers: dict[Array, Buffer] = dict(s.program.buffers)
        self.arrays: list[Array] = []
        self.names: list[str] = []
        # what a max (or min) of nothing is; never met where it starts from a finite number
        self.nothing = const(-math.inf if first.is_max else math.inf, first.array.dtype)
        self.finite = math.isfinite(first.lowest)

    def program(self, before: Sequence[Tree], after: Sequence[Tree]) -> Program:
        """The program; what stood between the loops now runs before and after the one."""
        loop = self.stages[-1].loop
        for x in self.stages[:-1]:
            self._rename(x.loop)
        for x, f in zip(self.stages[1:], self.factors, strict=True):
            if f.stmt is x.update:
                self._replace(self._safe(f, x.update))
        bodies = [x.loop.body for x in self.stages]
        self.now = self._with([*before, replace(loop, body=tree.seq(bodies)), *after])
        old, factor = self._of_first()
        items = [old, bodies[0], factor, *self._links()]
        ends = []
        for x, f in zip(self.stages[1:], self.factors, strict=True):
            items += [self._rescale(x, f), x.loop.body]
            if not (f.guarded or self.finite):
                ends.append(self._of_nothing(x, f))
        one = replace(loop, body=tree.seq(items))
        self.names += [x.update.name for x in self.stages]
        return self._with([*before, one, *ends, *after]).program

    # -- the one loop
    def _rename(self, loop: Loop) -> None:
        gone, axis = loop.axis, self.inside[-1]
        for n in tree.stmts(loop):
            self.placements[n] = self.placements[n].rename(gone, axis)
        for array, b in list(self.buffers.items()):
            if rewrite.has(b.outside, gone):
                outside = tuple(axis if a is gone else a for a in b.outside)
                self.buffers[array] = replace(b, outside=outside)

    def _with(self, items: Sequence[Tree]) -> Schedule:
        """The schedule with `items` in place of all from the first loop to the last."""
        s = self.start
        first, last = self.stages[0].loop, self.stages[-1].loop

        def changed(body: Tree) -> Tree:
            now = list(body.items) if isinstance(body, tree.Seq) else [body]
            low = next(k for k, x in enumerate(now) if x is first)
            high = next(k for k, x in enumerate(now) if x is last)
            return tree.seq([*now[:low], *items, *now[high + 1 :]])

        def inside(x: Loop) -> Loop:
            return replace(x, body=changed(x.body))

        order = s.program.tree
        outer = self.inside[:-1]
        order = tree.rewrite(order, outer[-1], inside) if outer else changed(order)
        new = rewrite.assemble(s.program, order, self.placements, self.buffers, self.arrays)
        return type(s)(new, s.outputs, s.parent, s.step)

    def _replace(self, stmt: Statement) -> None:
        self.placements[stmt.name] = self.placements[stmt.name].with_stmt(stmt)

    def _place(self, stmt: Statement, at: Window) -> Tree:
        self.placements[stmt.name], item = copies.place(self.now, stmt, at)
        self.names.append(stmt.name)
        return item

    def _window(self, stmt: Statement, at: Axis | None) -> tuple[Window, Region]:
        """The cells that an update writes in one iteration of `at`, and the instances for them."""
        program, array = self.now.program, stmt.writes[0].array
        with rewrite.proving(self.start, WHAT, f"what {stmt.name} writes"):
            cells = access.footprint(program, array, at, [stmt.name], "writes")[0]
            outer = rewrite.path_axes(program, at)
            view = copies.window(program, cells, outer, array, [stmt.name])
            return view, view.domain(cells, program)

    # -- the first
    def _of_first(self) -> tuple[Tree, Tree]:
        """What keeps its value from before an iteration, and the factor that this one makes."""
        m = self.first.array
        names = resolve.free_names(self.start, f"{m.name}_old", f"{m.name}_factor")
        old, factor = (copies.buffer_like(m, n) for n in names)
        self.arrays += [old, factor]
        self.buffers |= {a: Buffer("global", self.inside) for a in (old, factor)}
        view, domain = self._window(self.first.stmt, self.inside[-1])
        keep = copies.statement(f"{old.name}.copy", old.name, view, domain, [old], [m])
        before, after = Ref(0, m.dtype), Ref(1, m.dtype)
        low, high = (before, after) if self.first.is_max else (after, before)
        power = self._power(binary("sub", low, high))
        # equal ones may both be infinite, and their difference is not 0
        body = select(compare("eq", before, after), const(1.0, m.dtype), power)
        change = copies.statement(
            factor.name, factor.name, view, domain, [factor], [old, m], role="compute",
            bodies=(body,),
        )  # fmt: skip
        self.factor = factor
        return self._place(keep, view), self._place(change, view)

    def _power(self, difference: Expr) -> Expr:
        f = self.factors[0]
        if f.scale is not None:
            difference = binary("mul", difference, f.scale)
        return make(f.power, (difference,), difference.dtype)

    # -- powers in stages of their own
    def _links(self) -> list[Tree]:
        """Stages that compute powers, each just what an iteration needs of it."""
        distinct = {f.stmt: f for f in self.factors if f.via is not None}
        return [self._link(f) for f in distinct.values()]

    def _link(self, f: Factor) -> Tree:
        s, name = self.now, f.stmt.name
        base = placed.base_statements(self.start, [name], WHAT)
        stmts = [self._safe(f, x) for x in base]
        arrays = [f.stmt.writes[0].array]
        among = tree.stmts(s.program.tree)
        users = [n for n in among if rewrite.readers(s.program, arrays[0], [n])]
        gone = placed.names_gone(self.start, s.program.tree)
        with rewrite.proving(self.start, WHAT, f"what of {name} is needed"):
            need, _ = placed.need_of(s, f.stmt.stage, stmts, arrays, users, self.inside[-1])
            part = placed.part(
                s, stmts, need, arrays, users, self.inside,
                lambda its: rewrite.fresh_axes(s, its, f.stmt.stage, gone),
            )  # fmt: skip
        self.placements |= part.placements
        self.buffers[arrays[0]] = replace(self.buffers[arrays[0]], outside=self.inside)
        self.names.append(name)
        return part.item

    def _safe(self, f: Factor, stmt: Statement) -> Statement:
        """The statement whose power is 0 as long as the first has met nothing.

        All that it compared so far was -inf then, of which the powers from any later value are 0.
        """
        if f.guarded or self.finite:
            return stmt
        slot = next(k for k, r in enumerate(f.stmt.reads) if r is f.m)
        empty = compare("eq", Ref(slot, f.m.array.dtype), self.nothing)
        safe = select(empty, const(0.0, f.node.dtype), f.node)
        return replace(stmt, bodies=(_put(stmt.bodies[0], f.node, safe),))

    # -- the later ones
    def _rescale(self, x: Stage, f: Factor) -> Tree:
        """What a sum has so far, for the new value of the first."""
        array = x.update.writes[0].array
        view, domain = self._window(x.update, self.inside[-1])
        stmt = copies.statement(
            f"{x.name}.rescale", x.name, view, domain, [array], [array], role="compute",
            bodies=(binary("mul", Ref(0, array.dtype), _as(1, self.factor, array)),),
        )  # fmt: skip
        return self._place(self._reading(stmt, x, f, view, self.factor), view)

    def _of_nothing(self, x: Stage, f: Factor) -> Tree:
        """What a sum is where the first has met nothing but -inf: exp(-inf - -inf) is NaN."""
        outer = self.inside[:-1]
        array, m = x.update.writes[0].array, self.first.array
        view, domain = self._window(x.update, outer[-1] if outer else None)
        empty = compare("eq", Ref(1, m.dtype), self.nothing)
        body = select(empty, const(math.nan, array.dtype), Ref(0, array.dtype))
        stmt = copies.statement(
            f"{x.name}.nothing", x.name, view, domain, [array], [array], role="compute",
            bodies=(body,),
        )  # fmt: skip
        return self._place(self._reading(stmt, x, f, view, m), view)

    def _reading(
        self, stmt: Statement, x: Stage, f: Factor, view: Window, array: Array
    ) -> Statement:
        """`stmt`, on cells of a sum, reading the cell of `array` that belongs to each."""
        index = cell_of_first(f, x.update, view.index)
        if index is None:
            m = self.first.array.name
            resolve.fail(
                f"{WHAT}: which cell of {m} a cell of {x.name} uses is not known from its index",
                why=f"{f.stmt.name} must index {m} by what indexes {x.name}.",
                cls=UnsupportedError,
            )
        return replace(stmt, reads=(*stmt.reads, Access(array, index)))


def _as(slot: int, array: Array, like: Array) -> Expr:
    ref = Ref(slot, array.dtype)
    return ref if array.dtype == like.dtype else cast(ref, like.dtype)


def _put(e: Expr, old: Expr, new: Expr) -> Expr:
    """`e` with one part in place of another."""
    if e is old:
        return new
    if not isinstance(e, Op):
        return e
    return Op(e.name, [_put(a, old, new) for a in e.args], e.dtype)


__all__ = ["Builder", "Stage"]
