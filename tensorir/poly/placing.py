"""Where the last thing that a stage needs is done: the loop point where each instance may run."""

from __future__ import annotations

from collections.abc import Sequence

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array, Statement
from tensorir.poly import access, isl, tree
from tensorir.poly.isl import Map, Set
from tensorir.poly.model import Program
from tensorir.poly.relation import access_map, context_set, domain_set, ordered

# Sizes from here on are those that a stage is meant for.
_LARGE = 64


def completed(
    program: Program, stmts: Sequence[Statement], producers: Sequence[str], outer: tuple[Axis, ...]
) -> tuple[Map, bool] | None:
    """Cells that a stage writes to the point of `outer` at which what it reads for them is there.

    Parameters
    ----------
    stmts
        The statements of the stage: what all of them read for one cell counts.
    producers
        The statements inside the loops over `outer` that write what is read.

    Returns
    -------
    map, bool
        The last such point of each cell, and whether it is one of several. None: nothing is read.
    """
    sizes = program.sizes
    found: Map | None = None
    for x in stmts:
        for read in x.reads:
            for name in producers:
                cells = access.accessed(program, program.stmt(name), read.array, "writes")
                if cells is None:
                    continue
                wanted = access_map(x, read, sizes).apply_range(cells.reverse())
                points = wanted.apply_range(ordered(program, name, outer))
                m = access_map(x, x.writes[0], sizes).reverse().apply_range(points)
                found = m if found is None else found.union(m)
    if found is None:
        return None
    found = found.intersect_params(context_set(program)).coalesce()
    if found.is_single_valued():
        return found, False
    return found.lexmax().coalesce(), True


def instances_at(program: Program, stmt: Statement, cells: Map) -> Map:
    """Instances to the outer points of the cells that they write."""
    m = access_map(stmt, stmt.writes[0], program.sizes).apply_range(cells)
    return m.intersect_params(context_set(program)).coalesce()


def homeless(program: Program, stmt: Statement, at: Map) -> Set | None:
    """The instances that have no outer point; None where all have one."""
    domain = domain_set(stmt, program.sizes).intersect_params(context_set(program))
    left = domain.subtract(at.domain())
    return None if left.is_empty() else left


def elsewhere(program: Program, stmt: Statement, at: Map, outer: Sequence[Axis]) -> Axis | None:
    """The first of the `outer` loops around a statement that runs it elsewhere than `at` says.

    None: in the loops that are around it already it stays in its iterations.
    """
    around = set(tree.axes_of(program.tree, stmt.name))
    for k, a in enumerate(outer):
        if a not in around:
            continue
        now = ordered(program, stmt.name, (a,)).intersect_params(context_set(program))
        if not isl.select(at, [k]).is_subset(now):
            return a
    return None


def pieces(program: Program, stmt: Statement, at: Map) -> list[Map]:
    """`at` in disjoint parts, each one affine function; the one for large sizes first."""
    parts = without_domain(program, stmt, at).get_basic_maps()
    if len(parts) < 2:
        return [at]
    found: list[Map] = []
    left = at
    for part in parts:
        found.append(left.intersect_domain(part.to_map().domain()).coalesce())
        left = left.subtract(found[-1])
    large = isl.params(program.sizes, tuple(("ge", Lin({v: 1}, -_LARGE)) for v in program.sizes))
    told = [m for m in found if not m.is_empty()]
    return sorted(told, key=lambda m: bool(m.intersect_params(large).is_empty()))


def without_domain(program: Program, stmt: Statement, at: Map) -> Map:
    """`at` less what the domain of the statement says already."""
    domain = domain_set(stmt, program.sizes).intersect_params(context_set(program))
    return at.gist_domain(domain).coalesce()


def written_into(program: Program, arrays: Sequence[Array], names: Sequence[str]) -> list[str]:
    """The statements among `names` that write one of `arrays`, in order."""
    wanted = set(arrays)
    return [n for n in names if any(w.array in wanted for w in program.stmt(n).writes)]
