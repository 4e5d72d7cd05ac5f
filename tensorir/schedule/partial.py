"""Partial results of a reduction: which loops reduce, what an axis is of an instance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import Conj, Fact, Lin, Region, floordiv, floormod
from tensorir.ir.expr import Axis, Ref, Var
from tensorir.ir.reducer import Reducer
from tensorir.ir.statement import Access, Array, Statement
from tensorir.poly import access, isl, ranges, tree
from tensorir.poly.conflict import accumulates
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.tree import At, Loop
from tensorir.schedule import copies, resolve, rewrite
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import IllegalSchedule, UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule


# -- which loops reduce
def reduction_iters(stmt: Statement) -> list[Axis]:
    """Iterators of an update over which it accumulates: those that do not choose the cell."""
    chosen = {a for w in stmt.writes for i in w.index if isinstance(i, Lin) for a in i.atoms()}
    return [i for i in stmt.iters if i not in chosen and (i.reduce or i.lower is not None)]


def reduction_loops(program: Program, update: str) -> tuple[Loop, ...]:
    """Loops around an update that reduce, outer to inner."""
    p = program.placements[update]
    axes = {a for it in reduction_iters(p.stmt) for a in p.index[it].atoms()}
    return tuple(x for x in tree.loops_of(program.tree, update) if x.axis in axes)


def spatial_placement(p: Placement, init: Statement, what: str) -> Placement:
    """How the loops around an update enumerate the instances of its init: no reduction loops."""
    reducing = set(reduction_iters(p.stmt))
    missing = [i for i in init.iters if i not in p.index or i in reducing]
    if missing:
        resolve.fail(
            f"{what}: {init.name} was rewritten; its iterators are no longer the update's",
            cls=UnsupportedError,
        )
    red = joined(p, [p.roots[i] for i in reducing if i in p.roots])
    space = joined(p, [p.roots[i] for i in init.iters if i in p.roots])
    require_apart(red, space, what)
    facts = tuple(f for f in p.facts if not any(a in red for a in f[1].atoms()))
    index = {i: p.index[i] for i in init.iters}
    used = {a for e in index.values() for a in e.atoms()}
    return Placement(
        init,
        tuple(a for a in p.axes if a not in red or a in used),
        index,
        facts,
        tuple(a for a in p.retired if a not in red),
        {i: p.roots[i] for i in init.iters},
    )


def require_apart(reducing: set[Axis], fixing: set[Axis | Var] | set[Axis], what: str) -> None:
    """No axis that runs over a reduction also tells which cell is reduced, as a fused one does."""
    both = reducing & fixing
    if both:
        resolve.fail(
            f"{what}: {min(a.name for a in both)!r} runs over a reduction and another axis at once",
            cls=UnsupportedError,
        )


def less(p: Placement, axes: set[Axis]) -> Placement:
    """A placement without axes that fix nothing of its instances, and what is tied to them.

    An equation may give such an axis by axes that do fix instances, `k = j`; those stay.
    """
    without = tuple(f for f in p.facts if not any(a in axes for a in f[1].atoms()))
    fixing = [
        *p.roots.values(),
        *(a for e in p.index.values() for a in e.atoms() if isinstance(a, Axis)),
    ]
    gone = joined(p, axes) - joined(replace(p, facts=without), fixing)
    return replace(
        p,
        axes=tuple(a for a in p.axes if a not in gone),
        facts=tuple(f for f in p.facts if not any(a in gone for a in f[1].atoms())),
        retired=tuple(a for a in p.retired if a not in gone),
    )


def joined(p: Placement, start: Iterable[Axis]) -> set[Axis]:
    """Axes that equations tie to those in `start`."""
    found = set(start)
    grew = True
    while grew:
        grew = False
        for kind, e in p.facts:
            axes = {a for a in e.atoms() if isinstance(a, Axis)}
            if kind == "eq" and axes & found and not axes <= found:
                found |= axes
                grew = True
    return found


# -- what an axis is of an instance
def axis_value(p: Placement, axis: Axis) -> Lin | None:
    """The value of a loop axis as an affine form of the iterators; None where it has none."""
    known: dict[Axis, Lin] = {root: Lin({it: 1}) for it, root in p.roots.items()}
    bounded = _bounded(p.facts)
    todo = [e for kind, e in p.facts if kind == "eq"]
    while axis not in known:
        left = [e for e in todo if not _solve(e, known, bounded)]
        if len(left) == len(todo):
            return None
        todo = left
    return known[axis]


def _bounded(facts: Conj) -> dict[Axis, int]:
    """Axes with facts `0 <= a` and `a <= f - 1`: their f."""
    singles = [(_only(e), e) for kind, e in facts if kind == "ge"]
    low = {a for a, e in singles if a is not None and e.coef(a) == 1 and not e.const}
    return {a: e.const + 1 for a, e in singles if a is not None and a in low and e.coef(a) == -1}


def _only(e: Lin) -> Axis | None:
    first = next(iter(e.terms), None)
    return first if len(e.terms) == 1 and isinstance(first, Axis) else None


def _solve(e: Lin, known: dict[Axis, Lin], bounded: Mapping[Axis, int]) -> bool:
    """Learn from `e == 0` what the axes in it are, if that is to be had now."""
    unknown = [a for a in e.terms if isinstance(a, Axis) and a not in known]
    if not unknown:
        return True
    if len(unknown) > 2 or any(isinstance(a, Axis) and a in unknown for t in e.terms
                               if isinstance(t, tuple) for a in t[1].atoms()):  # fmt: skip
        return False
    rest = e
    for a in unknown:
        rest = rest.without(a)
    env: dict[Axis | Var, Lin] = dict(known.items())
    value = rest.subst(env)
    if len(unknown) == 1:
        a = unknown[0]
        if abs(e.coef(a)) != 1:
            return False
        known[a] = value * -e.coef(a)
        return True
    # value + f*s*block + s*point == 0 with 0 <= point < f
    for block, point in (unknown, unknown[::-1]):
        f, sign = e.coef(block), e.coef(point)
        size = bounded.get(point)
        if abs(sign) == 1 and size is not None and f == size * sign:
            whole = value * -sign
            known[block], known[point] = floordiv(whole, size), floormod(whole, size)
            return True
    return False


# -- conditions
def require_algebra(
    s: Schedule, update: str, loop: Loop, what: str, *, regroups: bool = False
) -> None:
    """Refuse to regroup a reduction whose reducer does not allow it."""
    program = s.program
    stmt = program.stmt(update)
    reducer = stmt.combiner
    name = stmt.writes[0].array.name
    if reducer is None or not all(accumulates(stmt, w.array) for w in stmt.writes):
        _no(what, f"{update} is not a declared reduction", "it reads what it writes in other ways.")
    assert reducer is not None
    head = f"{what} would regroup {name}, and its reducer {reducer.name!r}"
    if not reducer.associative:
        _no(what, f"{head} is not associative", "(a + b) + c must equal a + (b + c).")
    if reducer.identity is None:
        _no(what, f"{head} has no identity", "partial results must start from a neutral value.")
    first = reduction_loops(program, update)[0]
    if not reducer.commutative and (regroups or first.axis is not loop.axis):
        _no(
            what,
            f"{what} would change the order of {name}, and its reducer {reducer.name!r} is not "
            "commutative",
            f"only the outermost reduction loop, {first.axis.name!r}, keeps the order.",
        )


def _no(what: str, headline: str, why: str) -> None:
    raise Message(headline, caller(), why=why).error(IllegalSchedule, primitive=what)


def place_of(s: Schedule, update: str, at: Loop | None, what: str) -> Axis | None:
    """The loop in whose body partials are started and combined."""
    program = s.program
    around = tree.loops_of(program.tree, update)
    first = reduction_loops(program, update)[0]
    depth = next(k for k, x in enumerate(around) if x.axis is first.axis)
    if at is not None:
        if not any(x.axis is at.axis for x in around):
            resolve.fail(f"{what}: {at.axis.name!r} is not a loop around {update}")
        if not any(x.axis is at.axis for x in around[:depth]):
            inside = f"is inside the reduction loop {first.axis.name!r}"
            resolve.fail(
                f"{what}: at={at.axis.name!r} "
                + ("is a reduction loop itself" if at.axis is first.axis else inside),
                why="the results would be combined before they are whole.",
            )
        return at.axis
    kept = {a for w in program.stmt(update).writes for a in rewrite.outside_of(program, w.array)}
    stage = program.stmt(update).stage
    after = [n for n in resolve.statements(program, stage) if program.stmt(n).role == "finish"]
    for n in after:
        kept |= set(tree.common(program.tree, update, n)[0])
    inner = [x.axis for x in around[:depth] if x.axis in kept]
    return inner[-1] if inner else None


def innermost_shared(s: Schedule, update: str) -> Axis | None:
    """The innermost loop outside every reduction loop of an update."""
    around = tree.loops_of(s.program.tree, update)
    first = reduction_loops(s.program, update)[0]
    depth = next(k for k, x in enumerate(around) if x.axis is first.axis)
    return around[depth - 1].axis if depth else None


def require_between(s: Schedule, new: Program, update: str, made: str, what: str) -> None:
    """Refuse where something would use the result before partials are combined."""
    stmt = new.stmt(update)
    for array in dict.fromkeys(w.array for w in stmt.writes):
        outside = rewrite.outside_of(new, array)
        for n in new.placements:
            if n == update or not rewrite.touches(new.stmt(n), array):
                continue
            shared, order = tree.common(new.tree, n, update)
            first = _starts(new.stmt(n), array) or _loads(new.stmt(n), array)
            if (order < 0) == first and all(_fixed(new, n, update, a, outside) for a in shared):
                continue
            resolve.fail(
                f"{what}: {n} uses {array.name} before the partial results are combined",
                why="give at= a loop inside which both happen.",
            )


def _starts(stmt: Statement, array: Array) -> bool:
    """Whether a statement is the init of the reduction into an array."""
    return stmt.role == "init" and any(w.array is array for w in stmt.writes)


def _loads(stmt: Statement, array: Array) -> bool:
    """Whether a statement sets the array that is accumulated into, before it is."""
    return stmt.role == "copy" and any(w.array is array for w in stmt.writes)


def _fixed(new: Program, a: str, b: str, axis: Axis, outside: tuple[Axis, ...]) -> bool:
    """Whether each cell is touched in one iteration of a shared loop, or exists once for each."""
    if rewrite.has(outside, axis):
        return True
    for n in (a, b):
        p = new.placements[n]
        cell = {x for w in p.stmt.writes for i in w.index if isinstance(i, Lin) for x in i.atoms()}
        if not any(x in p.index and p.index[x].involves(axis) for x in cell if isinstance(x, Axis)):
            return False
    return True


# -- the rewrite
def factored(
    s: Schedule,
    update: str,
    loop: Loop,
    at: Axis | None,
    made: str,
    lanes: int | None,
    what: str,
) -> tuple[Program, list[str]]:
    """The program with partial results of `update` for each point of `loop`; new statements."""
    program = s.program
    p = program.placements[update]
    stmt = p.stmt
    reducer = stmt.combiner
    assert reducer is not None and reducer.identity is not None
    value, extent, low = _points(s, p, loop, what)
    parts = _arrays(stmt, made, extent)
    writes = tuple(
        Access(a, (value - low, *w.index)) for a, w in zip(parts, stmt.writes, strict=True)
    )
    n = len(writes)
    work = replace(stmt, name=made, stage=made, writes=writes, reads=(*writes, *stmt.reads[n:]))
    order = _renamed(program.tree, update, made)
    placements = dict(program.placements)
    del placements[update]
    placements[made] = p.with_stmt(work)
    outer = rewrite.path_axes(program, at)
    buffers = {**program.buffers, **{a: Buffer("global", outer) for a in parts}}
    middle = rewrite.assemble(program, order, placements, buffers, parts)
    init, final = _ends(s, middle, stmt, work, parts, at, outer, loop)
    names = [made]
    for x, first in ((init, True), (final, False)):
        place, item = copies.place(s, x[0], x[1])
        placements[x[0].name] = place
        if not first and lanes is not None:
            item = _in_lanes(item, lanes)
        put = rewrite.before if first else rewrite.after
        order = put(order, at, names, item)
        names.append(x[0].name)
    new = rewrite.assemble(program, order, placements, buffers, parts)
    return new, names


def _points(s: Schedule, p: Placement, loop: Loop, what: str) -> tuple[Lin, Lin, int]:
    """The value of the axis, how many there are, and the first."""
    value = axis_value(p, loop.axis)
    if value is None:
        resolve.fail(
            f"{what}: {loop.axis.name!r} is not an affine function of the declared axes",
            cls=UnsupportedError,
        )
    found = ranges.constant_range(s.program, loop.axis)
    if found is not None:
        return value, Lin(const=max(0, found[1] - found[0] + 1)), found[0]
    upper = _upper(value)
    if upper is None or any(isinstance(a, Axis) for a in upper.atoms()):
        resolve.fail(
            f"{what}: how many points {loop.axis.name!r} has depends on other axes",
            why="partial results need an extent in constants and sizes.",
            cls=UnsupportedError,
        )
    return value, upper, 0


def _upper(value: Lin) -> Lin | None:
    """One past the largest value, where it is an iterator or blocks of one."""
    atom = next(iter(value.terms), None)
    if len(value.terms) != 1 or value.coef(atom) != 1 or value.const:  # type: ignore[arg-type]
        return None
    if isinstance(atom, Axis):
        return atom.upper
    if isinstance(atom, tuple) and atom[0] == "//":
        inner = _upper(atom[1])
        return None if inner is None else floordiv(inner - 1, atom[2]) + 1
    return None


def _arrays(stmt: Statement, made: str, extent: Lin) -> tuple[Array, ...]:
    many = len(stmt.writes) > 1
    return tuple(
        Array(f"{made}.{k}" if many else made, w.array.dtype, (extent, *w.array.shape), "temp")
        for k, w in enumerate(stmt.writes)
    )


def _renamed(t: tree.Tree, old: str, new: str) -> tree.Tree:
    if isinstance(t, At):
        return At(new) if t.stmt == old else t
    if isinstance(t, Loop):
        return replace(t, body=_renamed(t.body, old, new))
    return tree.Seq(tuple(_renamed(x, old, new) for x in t.items))


def _ends(
    s: Schedule,
    program: Program,
    stmt: Statement,
    work: Statement,
    parts: tuple[Array, ...],
    at: Axis | None,
    outer: tuple[Axis, ...],
    loop: Loop,
) -> tuple[tuple[Statement, copies.Window], tuple[Statement, copies.Window]]:
    """What starts partial results, and what combines them."""
    reducer = stmt.combiner
    assert isinstance(reducer, Reducer) and reducer.identity is not None
    cells = access.footprint(program, parts[0], at, [work.name], "writes")[0]
    view = copies.window(program, cells, outer, parts[0], [work.name])
    # the partial results go innermost, so that lanes over them are one vector
    view = replace(view, names=(loop.axis.name, *view.names[1:]))
    over = Axis(loop.axis.name, reduce=True)
    count = ranges.constant_range(s.program, loop.axis)
    if count is None:
        domain = replace(view, own=(over, *view.own[1:])).domain(cells, program)
        origin = view.origin[0]
    else:
        rest = isl.select(cells, range(1, cells.dim(isl.dt.out)))
        others = replace(view, own=view.own[1:], origin=view.origin[1:], names=view.names[1:])
        last = count[1] - count[0]
        every: tuple[Fact, ...] = (("ge", Lin({over: 1})), ("ge", Lin({over: -1}, last)))
        domain = tuple((*c, *every) for c in others.domain(rest, program))
        origin = Lin()
    view = replace(view, own=(over, *view.own[1:]), origin=(origin, *view.origin[1:]))
    index = view.index
    inner = (*view.inner[1:], over)
    iters = (*view.iters, *inner)
    place = replace(view, own=inner, origin=tuple(Lin() for _ in inner), names=_names(view))
    start = tuple(reducer.identity(tuple(a.dtype for a in parts)))
    partial = tuple(Access(a, index) for a in parts)
    init = Statement(f"{work.name}.init", work.name, iters, domain, partial, (), start, "init")
    whole = tuple(Access(w.array, index[1:]) for w in stmt.writes)
    fresh = _again(init.iters, domain, (*partial, *whole))
    iters2, domain2, both = fresh
    n = len(parts)
    a = tuple(Ref(k, x.array.dtype) for k, x in enumerate(whole))
    b = tuple(Ref(n + k, x.array.dtype) for k, x in enumerate(partial))
    final = Statement(
        stmt.name, stmt.stage, iters2, domain2, both[n:], (*both[n:], *both[:n]),
        tuple(reducer.combine(a, b)), "update", reducer,
    )  # fmt: skip
    return (init, place), (final, place)


def _names(view: copies.Window) -> tuple[str, ...]:
    kept = [n for n, a in zip(view.names[1:], view.own[1:], strict=True) if a is not None]
    return (*kept, view.names[0])


def _again(
    iters: tuple[Axis, ...], domain: Region, accesses: tuple[Access, ...]
) -> tuple[tuple[Axis, ...], Region, tuple[Access, ...]]:
    """The same with iterators of its own."""
    new = tuple(Axis(a.name, a.lower, a.upper, reduce=a.reduce) for a in iters)
    env: dict[Axis | Var, Lin] = {a: Lin({b: 1}) for a, b in zip(iters, new, strict=True)}
    region: Region = tuple(tuple((k, e.subst(env)) for k, e in c) for c in domain)
    moved = tuple(replace(x, index=tuple(i.subst(env) for i in x.affine)) for x in accesses)
    return new, region, moved


def _in_lanes(item: tree.Tree, lanes: int) -> tree.Tree:
    """The innermost loop in vector lanes that are combined at the end."""
    innermost = list(tree.loops(item))[-1]
    return tree.rewrite(
        item, innermost.axis, lambda x: replace(x, kind="vectorize", width=lanes, bind="reduce")
    )
