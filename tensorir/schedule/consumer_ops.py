"""A consumer computed inside a loop of what it consumes: where its inputs have just been made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import Conj, Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array, Statement
from tensorir.poly import access, isl, legality, placing, regions, tree
from tensorir.poly.isl import Map
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import Loop
from tensorir.schedule import copies, keeping, resolve, rewrite
from tensorir.schedule.explain import accepted, fix, refuse, require_marks
from tensorir.schedule.placed import Beginning, counted, named_axes, names_gone
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["reverse_compute_at"]

EDGE = ".edge"
_MOST_CASES = 3


@primitive
def reverse_compute_at(s: Schedule, stage: object, axis: str | Axis) -> Draft:
    """A consumer computed inside a loop of its producer, as soon as what it reads is there.

    Needs a stage in loops of its own, each of whose cells reads something that the loop computes;
    nothing that it reads may come later. Each cell is computed once, in the iteration that
    completes what it reads. Where that was kept in a buffer and copied out, it is read from the
    buffer, and an intermediate that nothing else reads is not stored at all: so a bias and an
    activation are done on the tile that was just computed. Others call it `reverse_compute_at`
    (TVM), epilogue fusion.

    Parameters
    ----------
    stage : str or Tensor
        The consumer.
    axis : str or Axis
        A loop around what it consumes.

    Raises
    ------
    IllegalSchedule
        A cell would be computed before something that it reads, or after something reads it; tells
        both instances.
    ScheduleError
        Nothing inside the loop writes what the stage reads, or a cell of it reads nothing there.
    UnsupportedError
        The iterations that complete its cells are no affine function of them.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((16, 16), name="A")
    >>> k = tir.reduce_axis(16, name="k")
    >>> S = tir.compute((16,), lambda i: tir.sum(A[i, k], axis=k), name="S")
    >>> R = tir.compute((16,), lambda x: tir.maximum(S[x] + 1.0, 0.0), name="R")
    >>> s = tir.schedule(R).split("i", 4)
    >>> print(s.loops())
    for io in 0..4
      for ii in 0..4
        S[4*io + ii] = 0.0
        for k in 0..16
          S[4*io + ii] = S[4*io + ii] + A[4*io + ii, k]
    for x in 0..16
      R[x] = max(S[x] + 1.0, 0.0)
    >>> print(s.reverse_compute_at("R", "io").loops())
    for io in 0..4
      alloc S: float32 in global
      for ii in 0..4
        S[4*io + ii] = 0.0
        for k in 0..16
          S[4*io + ii] = S[4*io + ii] + A[4*io + ii, k]
      for x in 0..4
        R[4*io + x] = max(S[4*io + x] + 1.0, 0.0)
    """
    what = "reverse_compute_at"
    name = resolve.stage(s, stage, primitive=what)
    loop = resolve.axis(s, axis, primitive=what)
    program = s.program
    names = _movable(s, name, loop)
    producers = _producers(s, name, names, loop)
    stmts = [program.stmt(n) for n in names]
    outer = rewrite.path_axes(program, loop.axis)
    with rewrite.proving(s, what, f"where what {name} reads is complete"):
        found = placing.completed(program, stmts, producers, outer)
        assert found is not None
        at = {x.name: placing.instances_at(program, x, found[0]) for x in stmts}
        _require_homes(s, name, stmts, at, loop)
        _require_same(s, name, stmts, at, outer)
        base, cases = _in_cases(program, stmts, at)
        names = [x.name for case in cases for x in case.statements]
        kept = rewrite.without(base.tree, names)
        assert kept is not None
        gone = names_gone(s, kept)
        order, placements = kept, dict(base.placements)
        for case in cases:
            item, placed = _nest(s, base, case, producers, outer, name, gone)
            order = rewrite.after(order, loop.axis, producers, item)
            placements |= placed
    new = base.change(tree=order, placements=placements)
    touched = _touching(new, names)
    violation = legality.turned(base, new, touched)
    if violation is not None:
        refuse(s, what, None, violation, new=new)
    reassociates = legality.reassociates(base, new, touched)
    notes = []
    if found[1]:
        notes.append(f"each cell of {name} in the last iteration that it waits for")
    if len(cases) > 1:
        notes.append(f"{name} is cut into {len(cases)} cases, for where that is")
    with rewrite.proving(s, what, f"what {name} reads"):
        new, told = _from_buffers(new, names, loop, outer)
        new, shrunk = _shrunk(new, names, outer)
    rewrite.require_reach(s, new, names, what)
    require_marks(s, new, _touching(new, names), what)
    return Draft(new, reassociates, (*notes, *told, *shrunk))


# -- what may be moved, and where to
def _movable(s: Schedule, name: str, loop: Loop) -> list[str]:
    what = "reverse_compute_at"
    program = s.program
    names = resolve.statements(program, name)
    keeping.require_not_kept(s, name, what)
    rewrite.require_one_piece(s, name, names, what)
    at = resolve.reference(program, loop.axis)
    inside = set(tree.stmts(loop))
    if any(n in inside for n in names):
        own = inside <= set(names)
        resolve.fail(
            f"{what}: {at!r} is a loop of {name} itself" if own
            else f"{what}: {name} is computed inside {at!r} already",
            why=f"give a loop of a stage that {name} reads." if own else "",
        )  # fmt: skip
    if any(rewrite.outside_of(program, a) for a in rewrite.written(program, names)):
        resolve.fail(
            f"{what}: {name} is computed for its consumers already",
            why=f"compute_root({name!r}) gives it loops of its own.",
        )
    if any(program.stmt(n).role == "copy" for n in names):
        resolve.fail(
            f"{what}: {name} is kept in a buffer",
            why="place the stage first, then cache.",
        )
    for n in names:
        if not program.stmt(n).writes[0].exact:
            resolve.fail(
                f"{what}: {n} writes through an index that is not affine", cls=UnsupportedError
            )
    return names


def _producers(s: Schedule, name: str, names: list[str], loop: Loop) -> list[str]:
    """The statements inside the loop that write what the stage reads."""
    program = s.program
    own = rewrite.written(program, names)
    reads = [a for a in dict.fromkeys(r.array for n in names for r in program.stmt(n).reads)
             if a not in own]  # fmt: skip
    found = placing.written_into(program, reads, tree.stmts(loop))
    if found:
        return found
    elsewhere = placing.written_into(program, reads, tree.stmts(program.tree))
    wanted = [
        fix("is around what it reads",
            ("reverse_compute_at", (name, resolve.reference(program, a)), {}))
        for n in elsewhere[-1:] for a in reversed(tree.axes_of(program.tree, n))
    ]  # fmt: skip
    at = resolve.reference(program, loop.axis)
    resolve.fail(
        f"reverse_compute_at: nothing inside {at!r} writes what {name} reads",
        why=f"it reads what {' and '.join(dict.fromkeys(elsewhere))} computes."
        if elsewhere
        else "it reads inputs alone.",
        tries=[(f.code, f.effect) for f in accepted(s, wanted)],
    )


def _require_homes(
    s: Schedule, name: str, stmts: Sequence[Statement], at: dict[str, Map], loop: Loop
) -> None:
    for x in stmts:
        left = placing.homeless(s.program, x, at[x.name])
        if left is None:
            continue
        first = isl.first_point(left, s.program.sizes, s.program.context)
        if first is None:
            continue
        sizes, point = first
        shown = "".join(f", with {v} = {n}" for v, n in sizes.items())
        ref = resolve.reference(s.program, loop.axis)
        resolve.fail(
            f"reverse_compute_at: {x.name}[{', '.join(map(str, point))}] reads nothing that "
            f"{ref!r} computes{shown}",
            why=f"so no iteration of {ref!r} is the one to compute it in.",
        )


def _require_same(
    s: Schedule, name: str, stmts: Sequence[Statement], at: dict[str, Map], outer: tuple[Axis, ...]
) -> None:
    for x in stmts:
        moves = placing.elsewhere(s.program, x, at[x.name], outer)
        if moves is not None:
            ref = resolve.reference(s.program, moves)
            resolve.fail(
                f"reverse_compute_at: {name} is inside {ref!r} already, and what its cells read is "
                f"complete in other iterations of it",
                why="a stage moves from loops of its own, or within one iteration.",
            )


def _touching(program: Program, names: Sequence[str]) -> list[str]:
    """Statements that share an array with those of `names`, these included."""
    mine = {x.array for n in names for x in (*program.stmt(n).reads, *program.stmt(n).writes)}
    return [
        n
        for n in tree.stmts(program.tree)
        if any(x.array in mine for x in (*program.stmt(n).reads, *program.stmt(n).writes))
    ]


# -- its loops
def _beginnings(
    program: Program,
    stmts: Sequence[Statement],
    at: dict[str, Map],
    producers: Sequence[str],
    outer: tuple[Axis, ...],
) -> dict[Axis, Beginning]:
    """Where the loop over each iterator begins in one iteration, as far as that is known."""
    out: dict[Axis, Beginning] = {}
    made = set(rewrite.written(program, producers))
    for it in dict.fromkeys(i for x in stmts for i in x.iters):
        proposed: list[Lin] = []
        alike = True
        for x in stmts:
            for r in x.reads:
                for d, index in enumerate(r.index if r.array in made else ()):
                    if not isinstance(index, Lin) or index.coef(it) != 1:
                        continue
                    if index.without(it).terms:
                        continue
                    found = copies.candidates(program, outer, r.array, producers, d)
                    proposed += [b - index.const for b in found]
                    alike = alike and copies.fixed(program, outer, r.array, producers, d)
        where = [(at[x.name].reverse(), k) for x in stmts for k, i in enumerate(x.iters) if i is it]
        begin = copies.beginning(program, where[0][0], where[0][1], outer, proposed)
        if begin is None or not all(
            regions.is_lower(m, k, begin, outer, program) for m, k in where[1:]
        ):
            continue
        point = bool(proposed) and alike and all(
            regions.is_upper(m, k, begin, outer, program) for m, k in where
        )  # fmt: skip
        out[it] = Beginning(begin, point)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """Instances of the stage whose iteration is one affine function of them."""

    statements: list[Statement]
    at: dict[str, Map]
    suffix: str = ""


def _in_cases(
    program: Program, stmts: Sequence[Statement], at: dict[str, Map]
) -> tuple[Program, list[_Case]]:
    """The stage, cut into cases where one function does not tell where its cells are complete.

    As where the last panel of a reduction is the first one if there is nothing to reduce.
    """
    whole = _Case(list(stmts), at)
    parts = {x.name: placing.pieces(program, x, at[x.name]) for x in stmts}
    most = max(map(len, parts.values()))
    if most == 1:
        return program, [whole]
    if most > _MOST_CASES or len(stmts) > 1:
        resolve.fail(
            f"reverse_compute_at: the iterations in which cells of {stmts[0].stage} become "
            "computable are no affine function of them",
            why=f"they fall into {most} cases.",
            cls=UnsupportedError,
        )
    x = stmts[0]
    out: list[_Case] = []
    for k, m in enumerate(parts[x.name]):
        suffix = "" if not k else EDGE if k == 1 else f"{EDGE}{k}"
        domain = isl.from_set(m.domain(), x.iters, program.sizes)
        stmt = replace(x, name=f"{x.name}{suffix}", domain=domain)
        out.append(_Case([stmt], {stmt.name: m}, suffix))
    now = program.placements[x.name]
    cut = {c.statements[0].name: now.with_stmt(c.statements[0]) for c in out}
    leaves = tree.seq([tree.At(n) for n in cut])
    order = rewrite.leaf(program.tree, x.name, leaves)
    return program.change(tree=order, placements={**program.placements, **cut}), out


def _nest(
    s: Schedule,
    program: Program,
    case: _Case,
    producers: Sequence[str],
    outer: tuple[Axis, ...],
    name: str,
    gone: Sequence[str],
) -> tuple[tree.Tree, dict[str, Placement]]:
    """The loops of a case inside the outer ones."""
    iters = [i for x in case.statements for i in x.iters]
    if case.suffix:
        axes = named_axes(s, f"{name}{case.suffix}", iters)
    else:
        axes = rewrite.fresh_axes(s, iters, name, gone)
    begins = _beginnings(program, case.statements, case.at, producers, outer)
    loops: dict[Axis, Axis | None] = {i: counted(a, begins.get(i)) for i, a in axes.items()}
    placed = {
        x.name: _placed(program, x, case.at[x.name], outer, axes, loops, begins)
        for x in case.statements
    }
    return rewrite.nest_of(case.statements, loops, 0, s.next_number), placed


def _placed(
    program: Program,
    stmt: Statement,
    at: Map,
    outer: tuple[Axis, ...],
    axes: dict[Axis, Axis],
    loops: dict[Axis, Axis | None],
    begins: dict[Axis, Beginning],
) -> Placement:
    """Loops outside, where each instance belongs, and loops of its own inside."""
    own = tuple(axes[i] for i in stmt.iters)
    facts = regions.region(placing.without_domain(program, stmt, at), own, outer, program.sizes)
    roots = {i: axes[i] for i in stmt.iters}
    index = {i: Lin({a: 1}) for i, a in roots.items()}
    p = Placement(stmt, (*outer, *own), index, facts[0] if facts else (), (), roots)
    for i, a in roots.items():
        loop = loops[i]
        if loop is a:
            continue
        value = begins[i].at if loop is None else begins[i].at + Lin({loop: 1})
        fact: Conj = (("eq", Lin({a: 1}) - value),)
        p = p.replace_axis(a, () if loop is None else (loop,), value, fact)
    return p


# -- what it reads
def _from_buffers(
    program: Program, names: Sequence[str], loop: Loop, outer: tuple[Axis, ...]
) -> tuple[Program, list[str]]:
    """Reads of what a copy has just stored turned to the buffer that it was copied from.

    A copy that nothing reads any more goes.
    """
    notes: list[str] = []
    under = tree.stmts(tree.find(program.tree, loop.axis) or program.tree)
    before = under[: min(under.index(n) for n in names)]
    for back in [n for n in before if program.stmt(n).role == "copy"]:
        stmt = program.stmt(back)
        stored, buffer = stmt.writes[0].array, stmt.reads[0].array
        users = [n for n in names if n in rewrite.readers(program, stored)]
        if len(stmt.writes) > 1 or stored.role == "input" or not users:
            continue
        if rewrite.is_shared(program, stored) or rewrite.is_shared(program, buffer):
            continue
        if not _holds(program, back, stored, buffer, users, loop, outer, before):
            continue
        placements = dict(program.placements)
        for n in users:
            turned = rewrite.redirect(program.stmt(n), {stored: buffer})
            placements[n] = placements[n].with_stmt(turned)
        program = program.change(placements=placements)
        if stored.role == "temp" and not rewrite.readers(program, stored):
            order = tree.remove(program.tree, back)
            assert order is not None
            program = rewrite.assemble(program, order, program.placements, program.buffers)
            notes.append(f"read from {buffer.name}; {stored.name} is not stored at all")
        else:
            notes.append(f"{stored.name} is read from {buffer.name}")
    return program, notes


def _holds(
    program: Program,
    back: str,
    stored: Array,
    buffer: Array,
    users: Sequence[str],
    loop: Loop,
    outer: tuple[Axis, ...],
    before: Sequence[str],
) -> bool:
    """Whether a buffer still holds, for all that users read, what `back` copied from it."""
    outside = rewrite.outside_of(program, buffer)
    if len(outside) != len(outer) or any(a is not b for a, b in zip(outside, outer, strict=True)):
        return False
    after_it = before[before.index(back) + 1 :]
    if rewrite.writers(program, buffer, after_it) or rewrite.writers(program, stored, after_it):
        return False
    if any(not r.exact for n in users for r in program.stmt(n).reads if r.array is stored):
        return False
    wanted = access.footprint(program, stored, loop.axis, users, "reads")[0]
    kept = access.footprint(program, stored, loop.axis, [back], "writes")[0]
    return regions.inside(wanted, kept, program)


def _shrunk(
    program: Program, names: Sequence[str], outer: tuple[Axis, ...]
) -> tuple[Program, list[str]]:
    """Intermediates that one iteration writes before it reads them exist once for each."""
    buffers = dict(program.buffers)
    notes: list[str] = []
    for array in dict.fromkeys(r.array for n in names for r in program.stmt(n).reads):
        if array.role != "temp" or rewrite.is_shared(program, array):
            continue
        users = [n for n in tree.stmts(program.tree) if rewrite.touches(program.stmt(n), array)]
        now = rewrite.outside_of(program, array)
        for k in range(len(outer), len(now), -1):
            around = tree.find(program.tree, outer[k - 1])
            assert around is not None
            if not set(users) <= set(tree.stmts(around)):
                continue
            if access.covered(program, array, outer[k - 1]) is None:
                buffers[array] = replace(buffers[array], outside=outer[:k])
                notes.append(f"{array.name} exists once for each iteration of {outer[k - 1].name}")
                break
    return program.change(buffers=buffers), notes
