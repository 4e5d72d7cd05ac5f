"""Which cells are touched, what must run for them, and whether each read finds a write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Access, Array, Statement
from tensorir.poly import isl, tree
from tensorir.poly.isl import Map
from tensorir.poly.legality import Instance
from tensorir.poly.model import Program
from tensorir.poly.relation import access_map, context_set, domain_set, ordered

AccessKind: TypeAlias = Literal["reads", "writes"]


def outer_axes(program: Program, at: Axis | None, names: Sequence[str]) -> tuple[Axis, ...]:
    """The loops around `names` down to `at` and with it; none where `at` is None."""
    if at is None:
        return ()
    out: list[Axis] = []
    for a in tree.axes_of(program.tree, names[0]):
        out.append(a)
        if a is at:
            break
    return tuple(out)


def footprint(
    program: Program, array: Array, at: Axis | None, names: Sequence[str], kind: AccessKind
) -> tuple[Map, tuple[Axis, ...]]:
    """Cells of `array` that statements touch in one iteration of the loop over `at`.

    Parameters
    ----------
    at
        A loop around all of `names`; None: the whole program.
    names
        Statements. Those that do not touch `array` add nothing.
    kind
        Which of their accesses count.

    Returns
    -------
    map, axes
        Outer loop axes -> cells, and those axes, outer to inner.
    """
    outer = outer_axes(program, at, names)
    out: Map | None = None
    with isl.budget():
        for name in names:
            stmt = program.stmt(name)
            cells = accessed(program, stmt, array, kind)
            if cells is None:
                continue
            piece = ordered(program, name, outer).reverse().apply_range(cells)
            out = piece if out is None else out.union(piece)
        if out is None:
            return isl.empty_map(program.sizes, len(outer), len(array.shape)), outer
        return out.coalesce(), outer


def accessed(program: Program, stmt: Statement, array: Array, kind: AccessKind) -> Map | None:
    """Instances of `stmt` to the cells of `array` that they read or write; None: it does not."""
    out: Map | None = None
    for access in accesses(stmt, kind):
        if access.array is array:
            piece = access_map(stmt, access, program.sizes)
            out = piece if out is None else out.union(piece)
    return out


def accesses(stmt: Statement, kind: AccessKind) -> tuple[Access, ...]:
    """The reads or the writes of a statement."""
    return stmt.reads if kind == "reads" else stmt.writes


# -- is each read covered by a write
@dataclass(frozen=True, slots=True)
class Uncovered:
    """The first read of a cell that nothing has written: sizes, the reading instance, the cell."""

    sizes: dict[str, int]
    reader: Instance
    array: Array
    cell: tuple[int, ...]


def covered(
    program: Program, array: Array, at: Axis | None, names: Iterable[str] | None = None
) -> Uncovered | None:
    """The first read of `array` that no earlier write under the same outer point covers.

    Parameters
    ----------
    array
        A temporary array, or one that is cached.
    at
        Reads and writes count within one iteration of this loop; None: in the whole program.
    names
        The statements that count; those under `at` by default.

    Returns
    -------
    Uncovered or None
        None where each read finds a value. A write through an index that is not affine proves
        nothing.
    """
    if names is None:
        loop = tree.find(program.tree, at) if at is not None else None
        names = tree.stmts(loop if loop is not None else program.tree)
    order = list(dict.fromkeys(names))
    readers = [n for n in order if any(r.array is array for r in program.stmt(n).reads)]
    writers = [n for n in order if any(w.array is array for w in program.stmt(n).writes)]
    with isl.budget():
        for reader in readers:
            outer = outer_axes(program, at, [reader])
            missing = _missing(program, array, outer, reader, writers)
            if missing is not None:
                found = _first_missing(program, array, reader, missing)
                if found is not None:
                    return found
    return None


def _missing(
    program: Program, array: Array, outer: tuple[Axis, ...], reader: str, writers: list[str]
) -> Map | None:
    """Instances of `reader` to cells that they read and no earlier instance wrote."""
    stmt = program.stmt(reader)
    reads = accessed(program, stmt, array, "reads")
    assert reads is not None
    reads = reads.intersect_params(context_set(program))
    if reads.is_empty():
        return None
    for writer in writers:
        writes = _surely_written(program, program.stmt(writer), array)
        if writes is None:
            continue
        before = earlier(program, writer, reader, outer)
        if before is None:
            continue
        # Reads without those of cells that an instance before them, at the same outer point, wrote.
        reads = reads.subtract(before.apply_range(writes))
        if reads.is_empty():
            return None
    return reads


def _surely_written(program: Program, stmt: Statement, array: Array) -> Map | None:
    out: Map | None = None
    for access in stmt.writes:
        if access.array is array and access.exact:
            piece = access_map(stmt, access, program.sizes)
            out = piece if out is None else out.union(piece)
    return out


def earlier(program: Program, writer: str, reader: str, outer: tuple[Axis, ...]) -> Map | None:
    """Instances of `reader` to those of `writer` that run before, at the same outer point."""
    common, order = tree.common(program.tree, writer, reader)
    sizes, n = program.sizes, len(common)
    k = len(outer)
    if k > n:
        return None
    r, w = ordered(program, reader, common), ordered(program, writer, common)
    before = isl.empty_map((), n, n)
    for d in range(k, n):
        rows = isl.Rows({}, 1 + 2 * n)
        rows.eq += [{1 + x: 1, 1 + n + x: -1} for x in range(d)]
        rows.ge.append({0: -1, 1 + d: 1, 1 + n + d: -1})
        before = before.union(rows.to_map(isl.map_space((), n, n)))
    if order < 0:
        before = before.union(isl.identity((), n))
    if before.is_empty():
        return None
    if n == 0:
        read, write = (domain_set(program.stmt(x), sizes) for x in (reader, writer))
        return isl.Map.from_domain_and_range(read, write)
    return r.apply_range(before).apply_range(w.reverse())


def _first_missing(program: Program, array: Array, reader: str, missing: Map) -> Uncovered | None:
    found = isl.first_point(missing.wrap().flatten(), program.sizes)
    if found is None:
        return None
    sizes, point = found
    stmt = program.stmt(reader)
    n = len(stmt.iters)
    at = {a.name: x for a, x in zip(stmt.iters, point[:n], strict=True)}
    return Uncovered(sizes, Instance(reader, at), array, tuple(point[n:]))
