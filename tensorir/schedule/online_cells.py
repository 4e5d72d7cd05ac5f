"""What the proof of `online` asks of instances: which cells later reductions take, and when."""

from __future__ import annotations

from collections.abc import Sequence

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Statement
from tensorir.poly import isl
from tensorir.poly.isl import Map, dt
from tensorir.poly.model import Program
from tensorir.poly.relation import access_map, context_set, ordered
from tensorir.schedule.online_factor import Factor, First


def same_keys(
    program: Program,
    first: First,
    factor: Factor,
    later: str,
    outer: tuple[Axis, ...],
    axes: tuple[Axis, Axis],
) -> bool:
    """Whether each cell of a later reduction takes at each point of the loop what the first does.

    Parameters
    ----------
    outer
        The loops around all of them.
    axes
        The loop that becomes one: that of the first reduction, and that of the later.
    """
    sizes, stmt = program.sizes, program.stmt(later)

    def touched(of: Statement, accesses: Sequence[Access]) -> list[Map]:
        return [access_map(of, a, sizes) for a in accesses]

    mine = [r for r, _ in factor.pairs]
    theirs = [q for _, q in factor.pairs]
    there = ordered(program, first.stmt.name, (*outer, axes[0]))
    for m in touched(first.stmt, [first.stmt.writes[0], *theirs]):
        there = there.flat_range_product(m)
    here = ordered(program, later, (*outer, axes[1]))
    through = _through(program, factor, later, outer)
    for m in touched(factor.stmt, [factor.m, *mine]):
        here = here.flat_range_product(through.apply_range(m) if through is not None else m)
    n = here.dim(dt.out)
    here = here.flat_range_product(access_map(stmt, stmt.writes[0], sizes))
    whole = here.dim(dt.out)
    # each cell of the later one takes all that its cell of the first compares
    at = len(outer)
    row = [*range(at), *range(at + 1, at + 1 + len(factor.m.index)), *range(n, whole)]
    rows = isl.select_set(isl.select(here, row).range(), row, whole)
    wanted = isl.select_set(there.range(), range(n), whole).intersect(rows)
    context = context_set(program)
    found = here.range().intersect_params(context)
    return bool(found.is_equal(wanted.intersect_params(context)))


def _through(program: Program, factor: Factor, later: str, outer: tuple[Axis, ...]) -> Map | None:
    """Instances of a later reduction to those that computed the power it reads."""
    if factor.via is None:
        return None
    sizes, stmt = program.sizes, program.stmt(later)
    read = ordered(program, later, outer).flat_range_product(access_map(stmt, factor.via, sizes))
    made = ordered(program, factor.stmt.name, outer).flat_range_product(
        access_map(factor.stmt, factor.stmt.writes[0], sizes)
    )
    return read.apply_range(made.reverse())


def cell_of_first(factor: Factor, later: Statement, cell: Sequence[Lin]) -> tuple[Lin, ...] | None:
    """The cell of the first reduction that a cell of a later one follows; None: not known."""
    env = _solved(later.writes[0], cell)
    if factor.via is not None:
        env = _solved(factor.stmt.writes[0], [_put(i, env) for i in factor.via.affine])
    found = [_put(i, env) for i in factor.m.affine]
    return None if any(i is None for i in found) else tuple(i for i in found if i is not None)


def _solved(write: Access, cell: Sequence[Lin | None]) -> dict[Axis | Var, Lin]:
    """The iterators that a written cell gives, as far as it is known."""
    env: dict[Axis | Var, Lin] = {}
    for index, value in zip(write.affine, cell, strict=True):
        it = next(iter(index.terms), None)
        if value is not None and isinstance(it, Axis) and index == Lin({it: 1}, index.const):
            env[it] = value - index.const
    return env


def _put(index: Lin, env: dict[Axis | Var, Lin]) -> Lin | None:
    if any(isinstance(a, Axis) and a not in env for a in index.atoms()):
        return None
    return index.subst(env)


__all__ = ["cell_of_first", "same_keys"]
