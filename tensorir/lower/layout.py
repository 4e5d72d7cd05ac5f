"""Pass 1: where each temporary array begins, and how large it is.

An origin is proposed from the accesses (their index with the axes inside the buffer at 0) and
verified against the footprint by isl; else it is read off the footprint's bounds. The whole
declared extent is always right, and is what remains where nothing smaller is constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tensorir.ir.affine import ZERO, Conj, Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array, Statement
from tensorir.ir.stmt import Scope, Storage
from tensorir.lower.cells import shape_of
from tensorir.poly import isl
from tensorir.poly.isl import Map, Set, dt
from tensorir.poly.model import Buffer, Placement, Program, ScopeName
from tensorir.poly.relation import access_map, context_set, ordered
from tensorir.poly.tree import loops, stmts

# where a buffer begins its way; `promote` may find something nearer
_SCOPES: dict[ScopeName, Scope] = {"global": "arena", "local": "local", "shared": "shared"}


@dataclass(frozen=True, slots=True)
class Writer:
    """How a statement shares an array with others that write it.

    `clean`: no other one touches, under the same outer point, a cell that this one does not
    write. `only`: there is no other one, or none under a point where this one has no instance.
    """

    clean: bool
    only: bool


@dataclass(frozen=True, slots=True)
class Layouts:
    """Storage of each temporary array over the tree's axes, and which writers may be relaxed.

    `private` has an entry for each (array, statement) that was looked at; no entry: the
    statement is the only writer.
    """

    storages: dict[Array, Storage]
    private: dict[tuple[Array, Statement], Writer]
    notes: tuple[str, ...]


def layouts(program: Program) -> Layouts:
    """Origin, extent and layout of every temporary array of a program."""
    out: dict[Array, Storage] = {}
    private: dict[tuple[Array, Statement], Writer] = {}
    notes: list[str] = []
    users = _users(program)
    threads = any(x.kind == "bind" for x in loops(program.tree))
    for array, buffer in program.buffers.items():
        mine = users.get(array, [])
        if not mine:
            continue
        with isl.budget():
            writers = _writers(program, array, buffer, mine)
            out[array] = _storage(program, array, buffer, mine, list(writers.values()), notes)
            if buffer.told:
                # which thread a cell is of need not be asked
                less = tuple(a for a in buffer.outside if a not in set(buffer.told))
                writers = _writers(program, array, replace(buffer, outside=less), mine)
        private |= {(array, p): ok for p, ok in _alone(writers, threads).items()}
    return Layouts(out, private, tuple(notes))


def _users(program: Program) -> dict[Array, list[tuple[Placement, Access, bool]]]:
    """Accesses to each array: placement, access, whether it writes."""
    out: dict[Array, list[tuple[Placement, Access, bool]]] = {}
    for name in stmts(program.tree):
        p = program.placements[name]
        for a in p.stmt.writes:
            out.setdefault(a.array, []).append((p, a, True))
        for a in p.stmt.reads:
            out.setdefault(a.array, []).append((p, a, False))
    return out


def _writers(
    program: Program,
    array: Array,
    buffer: Buffer,
    users: list[tuple[Placement, Access, bool]],
) -> dict[Statement, Map]:
    """The cells that each statement writes, for each point of the outer axes."""
    out: dict[Statement, Map] = {}
    several = len({p.stmt.name for p, _, w in users if w}) > 1
    if not buffer.outside and not several:
        return {}
    for p, access, writes in users:
        if not writes:
            continue
        cells = access_map(p.stmt, access, program.sizes)
        m = ordered(program, p.stmt.name, buffer.outside).reverse().apply_range(cells)
        m = m.intersect_params(context_set(program))
        out[p.stmt] = out[p.stmt].union(m) if p.stmt in out else m
    return out


def _alone(writers: dict[Statement, Map], threads: bool) -> dict[Statement, Writer]:
    """How statements share an array; `threads` of a GPU come to points that have no instance."""
    out: dict[Statement, Writer] = {}
    for s, mine in writers.items():
        others = [m for o, m in writers.items() if o is not s]
        try:
            with isl.budget():
                everywhere = threads and all(m.is_subset(mine) for m in others)
                clean = everywhere or _clean(mine, others)
        except isl.BudgetExceeded:
            everywhere = clean = False
        out[s] = Writer(clean, not others or everywhere)
    return out


def _clean(mine: Map, others: list[Map]) -> bool:
    where = mine.domain()
    return all(m.intersect_domain(where).is_subset(mine) for m in others)


def _storage(
    program: Program,
    array: Array,
    buffer: Buffer,
    users: list[tuple[Placement, Access, bool]],
    writers: list[Map],
    notes: list[str],
) -> Storage:
    n = len(array.shape)
    dims = buffer.layout or tuple((d, None, 1) for d in range(n))
    origin, extent = [ZERO] * n, list(array.shape)
    exact = all(a.exact for _, a, _ in users)
    if not exact and buffer.layout is not None:
        dims = tuple((d, None, 1) for d in range(n))
        notes.append(f"{array.name}: read through a loaded index, so its layout stays row-major")
    if buffer.outside and exact and writers:
        footprint = writers[0]
        for m in writers[1:]:
            footprint = footprint.union(m)
        footprint = footprint.coalesce()
        for d in range(1 if buffer.turns else 0, n):  # tiles that come in turn have all places
            found = _extent(program, buffer.outside, footprint, d, list(_origins(buffer, users, d)))
            if found is None:
                notes.append(f"{array.name}: dimension {d} keeps its whole extent")
            else:
                origin[d], extent[d] = found
    return Storage(
        array, tuple(origin), tuple(extent), dims, shape_of(tuple(extent), dims, {}),
        buffer.outside, scope=_SCOPES[buffer.scope], turns=buffer.turns,
        rows=buffer.rows, swizzle=buffer.swizzle,
    )  # fmt: skip


def _origins(buffer: Buffer, users: list[tuple[Placement, Access, bool]], d: int) -> Iterator[Lin]:
    """Where the dimension may begin: each access with the axes inside the buffer at 0."""
    seen: set[Lin] = set()
    outside = dict.fromkeys(buffer.outside)
    for p, access, _ in users:
        over_axes: dict[Axis | Var, Lin] = dict(p.index.items())
        inner: dict[Axis | Var, Lin] = {a: ZERO for a in p.axes if a not in outside}
        e = access.affine[d].subst(over_axes).subst(inner)
        if e not in seen:
            seen.add(e)
            yield e


def _extent(
    program: Program, outer: tuple[Axis, ...], footprint: Map, d: int, proposed: list[Lin]
) -> tuple[Lin, Lin] | None:
    """Origin and extent of dimension `d`; None if no smaller extent than the whole is known."""
    n = footprint.dim(dt.out)
    m = footprint.project_out(dt.out, d + 1, n - d - 1).project_out(dt.out, 0, d)
    cells = m.wrap().flatten()
    cell = Axis("cell")
    hull = cells.simple_hull().remove_divs()
    found = isl.facts(hull, (*outer, cell), program.sizes) or ()
    lows, highs = _bounds(found, cell)
    best = _least([(o, h) for o in proposed if o in lows for h in highs])
    if best is None:
        best = _verified(program, outer, cells, proposed)
    if best is None:
        best = _least([(o, h) for o in lows for h in highs])
    if best is None:
        best = _symbolic([(o, h) for o in lows for h in highs])
    return best


def _bounds(found: Conj, cell: Axis) -> tuple[list[Lin], list[Lin]]:
    lows: list[Lin] = []
    highs: list[Lin] = []
    for kind, e in found:
        c = e.coef(cell)
        rest = e.without(cell) * (-1 if c > 0 else 1)
        if c == 1 or (kind == "eq" and c == -1):
            lows.append(rest)
        if c == -1 or (kind == "eq" and c == 1):
            highs.append(rest)
    return lows, highs


def _least(pairs: list[tuple[Lin, Lin]]) -> tuple[Lin, Lin] | None:
    """The pair of bounds with the smallest constant difference."""
    sized = [(o, h - o + 1) for o, h in pairs]
    constant = [x for x in sized if x[1].is_const]
    return min(constant, key=lambda x: x[1].const, default=None)


def _verified(
    program: Program, outer: tuple[Axis, ...], cells: Set, proposed: list[Lin]
) -> tuple[Lin, Lin] | None:
    """The proposed origin with the smallest constant extent that isl finds to hold."""
    best: tuple[Lin, Lin] | None = None
    for o in proposed:
        span = cells.apply(_distance(program, outer, o))
        low, high = span.dim_min_val(0), span.dim_max_val(0)
        if not (low.is_int() and high.is_int()):
            continue
        first, last = isl.number(low), isl.number(high)
        if best is None or last - first + 1 < best[1].const:
            best = o + first, Lin({}, last - first + 1)
    return best


def _distance(program: Program, outer: tuple[Axis, ...], origin: Lin) -> Map:
    """(outer axes, cell) -> cell - origin."""
    cell = Axis("cell")
    n = len(outer) + 1
    first = 1 + len(program.sizes) + n
    rows = isl.Rows(isl.columns(program.sizes, (*outer, cell)), first + 1)
    rows.equal(first, Lin({cell: 1}) - origin)
    return rows.to_map(isl.map_space(program.sizes, n, 1))


def _symbolic(pairs: list[tuple[Lin, Lin]]) -> tuple[Lin, Lin] | None:
    """A pair whose difference is affine in the sizes alone; the shortest expression wins."""
    sized = [(o, h - o + 1) for o, h in pairs]
    open_ = [x for x in sized if all(isinstance(a, Var) for a in x[1].terms)]
    return min(open_, key=lambda x: (len(x[1].terms), sum(map(abs, x[1].terms.values()))),
               default=None)  # fmt: skip
