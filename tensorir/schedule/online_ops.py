"""The primitive `online`: reductions that depend on one another in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from tensorir.ir.expr import Axis
from tensorir.ir.printer import expr_text
from tensorir.ir.statement import Array, Statement
from tensorir.poly import tree
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop, Seq, Tree
from tensorir.schedule import partial, resolve, rewrite
from tensorir.schedule.explain import Call, accepted, fix, require_marks, require_order
from tensorir.schedule.online_build import Builder, Stage
from tensorir.schedule.online_cells import same_keys
from tensorir.schedule.online_factor import Factor, Finder, First, first_of, refs, terms_of
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import ArgumentTypeError, IllegalSchedule

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["online"]

WHAT = "online"


@primitive
def online(s: Schedule, axis: str | Axis, stages: Sequence[object]) -> Draft:
    """Reductions of which later ones use the first's result, in one pass over their keys.

    Needs a max (or min) `m` first, then sums of products `h * exp(x - m)` of what `m` compares
    (`exp2` too; a stage that computes the power alone may stand between, and moves along). The
    outermost reduction loops of all stages, side by side in one body, become one. In each of its
    iterations `m` grows first, then the sums so far are multiplied by `exp(m_old - m)`, then they
    go on with the new `m`. It changes rounding. Split the loops before, and the sums are rescaled
    once for a tile of keys. Others call it online softmax (Milakov and Gimelshein), the rescaling
    of FlashAttention.

    Parameters
    ----------
    axis : str or Axis
        The outermost reduction loop of one of the stages. The one loop gets the last one's name.
    stages : sequence of str or Tensor
        The reductions, the max first.

    Raises
    ------
    ScheduleError
        Stages that are no reductions, or loops that are not side by side.
    IllegalSchedule
        A body that does not factor, and which part of it does not.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 64), name="A")
    >>> k, j = tir.reduce_axis(64, name="k"), tir.reduce_axis(64, name="j")
    >>> m = tir.compute((4,), lambda i: tir.max(A[i, k], axis=k), name="m")
    >>> l = tir.compute((4,), lambda i: tir.sum(tir.exp(A[i, j] - m[i]), axis=j), name="l")
    >>> B = tir.compute((4,), lambda i: m[i] + tir.log(l[i]), name="B")
    >>> s = tir.schedule(B).compute_at("l", "B.i").compute_at("m", "B.i")
    >>> s = s.split("k", 16).split("j", 16)
    >>> print(s.loops())
    for i in 0..4
      alloc m: float32 in global
      alloc l: float32 in global
      l[i] = 0.0
      m[i] = -inf
      for ko in 0..4
        for ki in 0..16
          m[i] = max(m[i], A[i, 16*ko + ki])
      for jo in 0..4
        for ji in 0..16
          l[i] = l[i] + exp(A[i, 16*jo + ji] - m[i])
      B[i] = m[i] + log(l[i])
    >>> print(s.online("jo", ("m", "l")).loops())
    for i in 0..4
      alloc m: float32 in global
      alloc l: float32 in global
      l[i] = 0.0
      m[i] = -inf
      for jo in 0..4
        alloc m_old: float32 in global
        alloc m_factor: float32 in global
        m_old[i] = m[i]
        for ki in 0..16
          m[i] = max(m[i], A[i, 16*jo + ki])
        m_factor[i] = select(m_old[i] == m[i], 1.0, exp(m_old[i] - m[i]))
        l[i] = l[i] * m_factor[i]
        for ji in 0..16
          l[i] = l[i] + select(m[i] == -inf, 0.0, exp(A[i, 16*jo + ji] - m[i]))
      l[i] = select(m[i] == -inf, nan, l[i])
      B[i] = m[i] + log(l[i])
    """
    found = _stages(s, axis, stages)
    first = first_of(found[0].update, found[0].init)
    found, body = _side_by_side(s, found)
    links = _links(s.program, first, found, body)
    factors = _factors(s, first, found, links)
    _require_same_power(first, found, factors)
    outer = rewrite.path_axes(s.program, found[0].loop.axis)[:-1]
    _require_same_keys(s, first, found, factors, outer)
    before, after = _beside(s, found, links, body)
    builder = Builder(s, first, found, factors)
    new = builder.program(before, after)
    moved = [n for x in (*before, *after) for n in tree.stmts(x)]
    if any(s.program.stmt(n).role != "init" for n in moved):
        require_order(s, new, [*moved, first.stmt.name], WHAT)
    rewrite.require_reach(s, new, builder.names, WHAT)
    require_marks(s, new, builder.names, WHAT)
    return Draft(new, reassociates=True, notes=_notes(first, found, factors))


# -- what takes part
def _stages(s: Schedule, axis: str | Axis, stages: Sequence[object]) -> list[Stage]:
    loop = resolve.axis(s, axis, primitive=WHAT)
    if isinstance(stages, str) or not isinstance(stages, Sequence):
        resolve.fail(
            f"{WHAT}: stages is a sequence of stages, not {stages!r:.60}", cls=ArgumentTypeError
        )
    names = [resolve.stage(s, x, primitive=WHAT) for x in stages]
    if len(names) < 2:
        resolve.fail(
            f"{WHAT}: at least two stages are needed, not {len(names)}",
            why="a max, and the sums that use it.",
        )
    for k, n in enumerate(names):
        if n in names[:k]:
            resolve.fail(f"{WHAT}: {n} is given twice")
    found = [_stage(s, n) for n in names]
    if not any(x.loop.axis is loop.axis for x in found):
        wanted = [resolve.reference(s.program, x.loop.axis) for x in found]
        calls = [fix("is one", (WHAT, (w, tuple(names)), {})) for w in reversed(wanted)]
        resolve.fail(
            f"{WHAT}: {loop.axis.name!r} is not the outermost reduction loop of "
            f"{' or '.join(names)}",
            tries=[(f.code, f.effect) for f in accepted(s, calls[:1])],
        )
    return found


def _stage(s: Schedule, name: str) -> Stage:
    program = s.program
    mine = [program.stmt(n) for n in resolve.statements(program, name)]
    updates = [x for x in mine if x.role == "update"]
    inits = [x for x in mine if x.role == "init"]
    if not updates or not inits:
        resolve.fail(f"{WHAT}: {name} is not a reduction")
    update = updates[0]
    loops = partial.reduction_loops(program, update.name)
    kept = {w.array for w in update.writes} == {w.array for w in inits[0].writes}
    if len(updates) > 1 or len(inits) > 1 or len(update.writes) > 1 or not kept or not loops:
        resolve.fail(
            f"{WHAT}: {name} was rewritten: it is not one init and one update of one cell",
            why="online comes before cache_write, rfactor and other steps that divide a reduction.",
        )
    return Stage(name, update, inits[0], loops[0])


def _side_by_side(s: Schedule, found: list[Stage]) -> tuple[list[Stage], list[Tree]]:
    """The stages in the order in which they run, and the body in which all their loops stand."""
    body = _body_of(s.program.tree, found[0].loop)
    places = [next((k for k, x in enumerate(body) if x is y.loop), None) for y in found]
    for x, k in zip(found, places, strict=True):
        if k is None:
            _apart(s, found, x)
    for x in found:
        if x.loop.kind != "serial":
            resolve.fail(
                f"{WHAT}: {x.loop.axis.name!r} is marked {x.loop.kind}",
                why="what one iteration rescales comes from the one before it.",
            )
        _require_alone(s, x, found)
    later = sorted(zip(places[1:], found[1:], strict=True), key=lambda p: p[0] or 0)
    return [found[0], *(x for _, x in later)], body


def _require_alone(s: Schedule, x: Stage, found: list[Stage]) -> None:
    """Refuse where the loop of a stage does more with results than update its own."""
    arrays = [w.array for y in found for w in y.update.writes]
    for n in tree.stmts(x.loop):
        hit = next((a for a in arrays if rewrite.touches(s.program.stmt(n), a)), None)
        if hit is not None and n != x.update.name:
            resolve.fail(
                f"{WHAT}: {n} uses {hit.name} inside {resolve.reference(s.program, x.loop.axis)!r}",
                why="what a loop has so far is used by nothing but its own update.",
            )


def _body_of(t: Tree, loop: Loop) -> list[Tree]:
    items: list[Tree] = list(t.items) if isinstance(t, Seq) else [t]
    for x in items:
        if x is loop:
            return items
        if isinstance(x, Loop) and tree.find(x, loop.axis) is not None:
            return _body_of(x.body, loop)
    raise AssertionError(loop.axis.name)


def _apart(s: Schedule, found: list[Stage], x: Stage) -> NoReturn:
    first, other = found[0], x
    a, b = (resolve.reference(s.program, y.loop.axis) for y in (first, other))
    own = {n for y in found for n in resolve.statements(s.program, y.name)}
    tries = []
    for y in tree.loops(s.program.tree):
        if y.axis.reduce or own.issuperset(tree.stmts(y)):
            continue
        at = resolve.reference(s.program, y.axis)
        calls: list[Call] = [("compute_at", (z.name, at), {}) for z in reversed(found)]
        tries.append(fix("computes them in one loop", *calls))
    resolve.fail(
        f"{WHAT}: {a!r} of {first.name} and {b!r} of {other.name} are not side by side",
        why="only reduction loops in one body become one: place the stages at one loop, and move "
        "the reduction loops outside the others there.",
        tries=[(f.code, f.effect) for f in accepted(s, tries)],
    )


# -- the proof
def _links(
    program: Program, first: First, found: list[Stage], body: list[Tree]
) -> dict[Array, Statement]:
    """Stages that compute a power of the first's result for later reductions, by their array."""
    own = {x.update.name for x in found}
    later = [x.update for x in found[1:]]
    links: dict[Array, Statement] = {}
    for n in (n for x in body for n in tree.stmts(x)):
        stmt = program.stmt(n)
        reads = any(r.array is first.array for r in stmt.reads)
        if n in own or stmt.role != "compute" or not reads or len(stmt.writes) != 1:
            continue
        array = stmt.writes[0].array
        if any(r.array is array for x in later for r in x.reads) and stmt.writes[0].exact:
            links[array] = stmt
    return links


def _factors(
    s: Schedule, first: First, found: list[Stage], links: dict[Array, Statement]
) -> list[Factor]:
    finder = Finder(first, links)
    for array in links:
        _require_own(s, array, links[array], found)
    sums = {x.update.writes[0].array: x for x in found[1:]}
    out = []
    for x in found[1:]:
        for r in (*x.update.reads[1:], *(r for y in links.values() for r in y.reads)):
            if r.array in sums:
                _no(
                    f"{WHAT}: {x.name} uses {r.array.name}, which changes with it",
                    "only the first of the stages may be used by the others.",
                )
        out.append(finder.factor(x.update, terms_of(x.update, x.init)))
    return out


def _require_own(s: Schedule, array: Array, link: Statement, found: list[Stage]) -> None:
    """What a power is stored in belongs to the later stages alone."""
    among = {x.update.name for x in found}
    others = [n for n in rewrite.readers(s.program, array) if n not in among]
    if array.role == "output" or others:
        who = f"{others[0]} uses it too" if others else "it is an output"
        _no(
            f"{WHAT}: {array.name} depends on {found[0].name} while that changes, and {who}",
            "its cells never hold the final value; compute them again from the final one.",
        )


def _require_same_power(first: First, found: list[Stage], factors: list[Factor]) -> None:
    """One factor rescales all sums of an iteration."""
    powers = [f"{f.power}({expr_text(f.scale) if f.scale is not None else 1})" for f in factors]
    for x, p, f in zip(found[2:], powers[1:], factors[1:], strict=True):
        if p != powers[0]:
            a, b = (expr_text(y.node, refs=refs(y.stmt)) for y in (factors[0], f))
            _no(
                f"{WHAT}: {found[1].name} and {x.name} use different powers of "
                f"{first.array.name}: {a} and {b}",
                "one factor rescales all of them.",
            )


def _require_same_keys(
    s: Schedule,
    first: First,
    found: list[Stage],
    factors: list[Factor],
    outer: tuple[Axis, ...],
) -> None:
    for x, factor in zip(found[1:], factors, strict=True):
        with rewrite.proving(s, WHAT, f"that {x.name} takes what {found[0].name} compares"):
            axes = (found[0].loop.axis, x.loop.axis)
            fine = same_keys(s.program, first, factor, x.update.name, outer, axes)
        if not fine:
            a, b = (resolve.reference(s.program, y.loop.axis) for y in (found[0], x))
            _no(
                f"{WHAT}: an iteration of {b!r} does not take in {x.name} what one of {a!r} "
                f"compares in {found[0].name}",
                "iterations become one, and what a sum takes must be compared by then: split the "
                "loops alike, under the same conditions.",
            )


def _beside(
    s: Schedule, found: list[Stage], links: dict[Array, Statement], body: list[Tree]
) -> tuple[list[Tree], list[Tree]]:
    """What stands between the loops, to run before the one loop, and to run after it."""
    program = s.program
    loops = [x.loop for x in found]
    low = next(k for k, x in enumerate(body) if x is loops[0])
    high = next(k for k, x in enumerate(body) if x is loops[-1])
    late = {w.array for x in found for w in x.update.writes}
    powers = {x.name for x in links.values()}
    before: list[Tree] = []
    after: list[Tree] = []
    for item in body[low : high + 1]:
        if any(item is x for x in loops):
            continue
        names = tree.stmts(item)
        inside = powers.intersection(names)
        if inside and set(names) != inside:
            other = next(n for n in names if n not in inside)
            resolve.fail(
                f"{WHAT}: {min(inside)} shares a loop with {other}",
                why="a power moves into the one loop, by itself.",
            )
        if inside:
            continue
        if any(r.array in late for n in names for r in program.stmt(n).reads):
            after.append(item)
            late |= {w.array for n in names for w in program.stmt(n).writes}
        else:
            before.append(item)
    done = [n for x in after for n in tree.stmts(x)]
    shut = {w.array for n in done for w in program.stmt(n).writes}
    for n in [*(n for x in loops for n in tree.stmts(x)), *powers]:
        hit = next((r.array for r in program.stmt(n).reads if r.array in shut), None)
        if hit is not None:
            _no(
                f"{WHAT}: {n} uses {hit.name}, which comes from final results of the stages",
                "they are not known while the one loop runs.",
            )
    return before, after


def _notes(first: First, found: list[Stage], factors: list[Factor]) -> tuple[str, ...]:
    m = first.array.name
    notes = [f"{m} compares {expr_text(first.source, refs=refs(first.stmt))}"]
    for x, f in zip(found[1:], factors, strict=True):
        power, sign = expr_text(f.node, refs=refs(f.stmt)), "-" if first.is_max else ""
        times = f"*{expr_text(f.scale)}" if f.scale is not None else ""
        change = f"{m}_old - {m}" if first.is_max else f"{m} - {m}_old"
        change = f"({change}){times}" if times else change
        notes.append(
            f"{x.name} sums h * {power}, so g({m}) = {f.power}({sign}{m}{times}): what it has is "
            f"multiplied by {f.power}({change})"
        )
    return tuple(notes)


def _no(headline: str, why: str) -> NoReturn:
    raise Message(headline, caller(), why=why).error(IllegalSchedule, primitive=WHAT)
