"""How a stage is rebuilt in the loops of others: what is needed there, and loops for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array, Statement
from tensorir.poly import access, regions, tree
from tensorir.poly.isl import Map
from tensorir.poly.model import Placement, Program
from tensorir.poly.relation import access_map, domain_set
from tensorir.schedule import copies, resolve, rewrite

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule


def need_of(
    s: Schedule,
    name: str,
    stmts: Sequence[Statement],
    arrays: Sequence[Array],
    consumers: Sequence[str],
    at: Axis,
) -> tuple[dict[str, Map], bool]:
    """The instances of each statement that one iteration needs, and whether a few more come in."""
    program, sizes = s.program, s.program.sizes
    cells: dict[Array, Map] = {}
    for a in arrays:
        if rewrite.readers(program, a, consumers):
            cells[a] = access.footprint(program, a, at, consumers, "reads")[0]
    need: dict[str, Map] = {}
    more = False
    for x in reversed(stmts):
        wanted = regions.needed(x, cells, sizes)
        if wanted is None:
            continue
        wanted, wider = regions.simplest(wanted, domain_set(x, sizes), sizes)
        more = more or wider
        need[x.name] = wanted
        if wider:
            for w in x.writes:
                cells[w.array] = regions.union(
                    cells.get(w.array), wanted.apply_range(access_map(x, w, sizes))
                )
        own = {w.array for w in x.writes}
        for r in x.reads:
            if r.array not in arrays:
                continue
            used = wanted.apply_range(access_map(x, r, sizes))
            if r.array not in own:
                cells[r.array] = regions.union(cells.get(r.array), used)
            elif not regions.inside(used, cells[r.array], program):
                resolve.fail(
                    f"compute_at: {x.name} reads other cells of {r.array.name} than it writes",
                    why="a recurrence needs all that came before; it cannot be computed in parts.",
                )
    return need, more


def lifted(
    program: Program, stmts: Sequence[Statement], need: dict[str, Map], outer: tuple[Axis, ...]
) -> list[Statement]:
    """Statements with the outer loops as first iterators, restricted to what is needed there."""
    iters = tuple(Axis(a.name) for a in outer)
    out = []
    for x in stmts:
        domain = regions.region(need[x.name], iters, x.iters, program.sizes)
        out.append(replace(x, iters=(*iters, *x.iters), domain=domain))
    return out


def names_gone(s: Schedule, kept: tree.Tree) -> list[str]:
    """Names of loops that moving a stage leaves free."""
    left = {x.axis.name for x in tree.loops(kept)}
    return [n for n in resolve.axis_names(s.program) if n not in left]


def named_axes(s: Schedule, owner: str, iters: Sequence[Axis]) -> dict[Axis, Axis]:
    """A new loop axis for each iterator, called after its owner."""
    taken = set(resolve.taken(s.program))
    made: dict[Axis, Axis] = {}
    for it in dict.fromkeys(iters):
        full = f"{owner}.{it.name}"
        while full in taken:
            full += "_"
        taken.add(full)
        made[it] = Axis(full, it.lower, it.upper, reduce=it.reduce)
    return made


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the loop over an iterator begins, and whether it has one value only."""

    at: Lin
    point: bool


def beginnings(
    program: Program,
    stmts: Sequence[Statement],
    need: dict[str, Map],
    arrays: Sequence[Array],
    consumers: Sequence[str],
    outer: tuple[Axis, ...],
    *,
    sliding: bool,
) -> dict[Axis, Beginning]:
    """Where what is needed begins, for the iterators that choose the cell.

    So that a moved loop counts from 0, as a loop over the points of a tile does. What a window
    takes in (`sliding`) may be one cell although the consumers read several.
    """
    out: dict[Axis, Beginning] = {}
    for x in stmts:
        for d, index in enumerate(x.writes[0].index):
            it = next(iter(index.terms), None) if isinstance(index, Lin) else None
            if not isinstance(it, Axis) or it in out or index != Lin({it: 1}):
                continue
            proposed = [
                b for a in arrays for b in copies.candidates(program, outer, a, consumers, d)
            ]
            found = [(need[y.name], k) for y in stmts for k, i in enumerate(y.iters) if i is it]
            if sliding:  # what is new begins where the window ends
                told = regions.lower_bounds(*found[0], outer, program.sizes)
                proposed = [*told, *proposed]
            begin = copies.beginning(program, found[0][0], found[0][1], outer, proposed)
            if begin is None or not all(
                regions.is_lower(m, k, begin, outer, program) for m, k in found[1:]
            ):
                continue
            read = [a for a in arrays if rewrite.readers(program, a, consumers)]
            alike = all(copies.fixed(program, outer, a, consumers, d) for a in read)
            moves = sliding and any(isinstance(a, Axis) for a in begin.atoms())
            point = (alike or moves) and all(
                regions.is_upper(m, k, begin, outer, program) for m, k in found
            )
            out[it] = Beginning(begin, point)
    return out


def counted(axis: Axis, begin: Beginning | None) -> Axis | None:
    """The loop that runs an iterator: from 0 where it is known where it begins."""
    if begin is not None and begin.point:
        return None
    if begin is None or begin.at == Lin():
        return axis
    return Axis(axis.name, reduce=axis.reduce)


def placed(
    stmt: Statement,
    outer: tuple[Axis, ...],
    axes: dict[Axis, Axis],
    loops: dict[Axis, Axis | None],
    begins: dict[Axis, Beginning],
) -> Placement:
    own = stmt.iters[len(outer) :]
    p = Placement.fresh(stmt, (*outer, *(axes[i] for i in own)))
    for i in own:
        a, x = axes[i], loops[i]
        if x is a:
            continue
        value = begins[i].at if x is None else begins[i].at + Lin({x: 1})
        p = p.replace_axis(a, () if x is None else (x,), value, (("eq", Lin({a: 1}) - value),))
    return p


@dataclass(frozen=True, slots=True)
class Part:
    """Instances of a stage in loops of their own inside `outer`: statements and their nest."""

    statements: list[Statement]
    placements: dict[str, Placement]
    item: tree.Tree


def part(
    s: Schedule,
    stmts: Sequence[Statement],
    need: dict[str, Map],
    arrays: Sequence[Array],
    consumers: Sequence[str],
    outer: tuple[Axis, ...],
    axes: Callable[[Sequence[Axis]], dict[Axis, Axis]],
    *,
    suffix: str = "",
    sliding: bool = False,
) -> Part:
    """What is needed at each point of `outer`, computed there.

    Parameters
    ----------
    axes
        Gives the iterators their loop axes.
    suffix
        What is added to the names of the statements.
    """
    moved = lifted(s.program, stmts, need, outer)
    begins = beginnings(s.program, stmts, need, arrays, consumers, outer, sliding=sliding)
    made = axes([i for x in moved for i in x.iters[len(outer) :]])
    loops = {i: counted(a, begins.get(i)) for i, a in made.items()}
    named = [replace(x, name=f"{x.name}{suffix}") for x in moved]
    item = rewrite.nest_of(named, loops, len(outer), s.next_number)
    return Part(named, {x.name: placed(x, outer, made, loops, begins) for x in named}, item)


# -- as it was before it was placed
def base_statements(s: Schedule, names: Sequence[str], what: str) -> list[Statement]:
    """The statements of a stage as they were before it was placed: its own iterators, all of it."""
    program = s.program
    arrays = rewrite.written(program, names)
    if not any(rewrite.outside_of(program, a) for a in arrays):
        return [program.stmt(n) for n in names]
    then = _before_placing(s, names)
    out = []
    for n in names:
        now, old = program.stmt(n), then.stmt(n) if then is not None else None
        if old is None or not _ends_with(now.iters, old.iters):
            resolve.fail(
                f"{what}: {n} was changed after it was placed",
                why="a later step rewrote the stage; undo() to before that, place, then rewrite.",
            )
        out.append(replace(now, iters=old.iters, domain=old.domain))
    return out


def _ends_with(iters: tuple[Axis, ...], last: tuple[Axis, ...]) -> bool:
    n = len(iters) - len(last)
    return n >= 0 and all(a is b for a, b in zip(iters[n:], last, strict=True))


def _before_placing(s: Schedule, names: Sequence[str]) -> Program | None:
    """The latest program before this one in which the stage had loops of its own."""
    now: Schedule | None = s.parent
    while now is not None:
        p = now.program
        placed = not all(n in p.placements for n in names) or any(
            rewrite.outside_of(p, a) for a in rewrite.written(p, names)
        )
        if not placed:
            return p
        now = now.parent
    return None
