"""Programs rebuilt: statements added, moved and taken out; and what must hold of the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Access, Array, Statement
from tensorir.poly import isl, tree
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.tree import At, Loop, Seq, Tree
from tensorir.schedule import resolve
from tensorir.schedule.explain import unproved

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule


@contextmanager
def proving(s: Schedule, primitive: str, what: str) -> Iterator[None]:
    """Ask isl inside the block; where it runs out of its budget the step is refused."""
    try:
        with isl.budget():
            yield
    except isl.BudgetExceeded:
        unproved(s, primitive, what)


# -- the program
def assemble(
    program: Program,
    order: Tree,
    placements: Mapping[str, Placement],
    buffers: Mapping[Array, Buffer],
    new: Sequence[Array] = (),
) -> Program:
    """The program of `order`, without what it does not run and arrays that nothing uses."""
    kept = {n: placements[n] for n in tree.stmts(order)}
    used = {x.array for p in kept.values() for x in (*p.stmt.writes, *p.stmt.reads)}
    arrays = tuple(a for a in (*program.arrays, *new) if a.role != "temp" or a in used)
    return program.change(
        tree=order,
        placements=kept,
        buffers={a: b for a, b in buffers.items() if a in used},
        arrays=arrays,
    )


def touches(stmt: Statement, array: Array) -> bool:
    """Whether a statement reads or writes an array."""
    return any(x.array is array for x in (*stmt.writes, *stmt.reads))


def readers(program: Program, array: Array, names: Iterable[str] | None = None) -> list[str]:
    """Statements that read `array`, in textual order."""
    among = tree.stmts(program.tree) if names is None else names
    return [n for n in among if any(r.array is array for r in program.stmt(n).reads)]


def writers(program: Program, array: Array, names: Iterable[str] | None = None) -> list[str]:
    """Statements that write `array`, in textual order."""
    among = tree.stmts(program.tree) if names is None else names
    return [n for n in among if any(w.array is array for w in program.stmt(n).writes)]


def written(program: Program, names: Iterable[str]) -> list[Array]:
    """Arrays that statements write, each once."""
    return list(dict.fromkeys(w.array for n in names for w in program.stmt(n).writes))


def outside_of(program: Program, array: Array) -> tuple[Axis, ...]:
    """The loops inside which an array exists; none for inputs, outputs and whole arrays."""
    buffer = program.buffers.get(array)
    return buffer.outside if buffer is not None else ()


def path_axes(program: Program, at: Axis | None) -> tuple[Axis, ...]:
    """The axes of the loops down to `at` and with it."""
    if at is None:
        return ()
    loop = tree.find(program.tree, at)
    assert loop is not None, at.name
    axes = tree.axes_of(program.tree, tree.stmts(loop)[0])
    last = next(k for k, a in enumerate(axes) if a is at)
    return axes[: last + 1]


def has(axes: Iterable[Axis], axis: Axis) -> bool:
    """Whether `axis` is among `axes`: an axis is an expression, whose `==` builds another."""
    return any(a is axis for a in axes)


# -- the tree
def before(t: Tree, at: Axis | None, users: Iterable[str], item: Tree) -> Tree:
    """`item` put in the body of the loop over `at` (None: of all), before what runs `users`."""
    return _beside(t, at, set(users), item, first=True)


def after(t: Tree, at: Axis | None, users: Iterable[str], item: Tree) -> Tree:
    """`item` put in the body of the loop over `at`, after the last that runs one of `users`."""
    return _beside(t, at, set(users), item, first=False)


def _beside(t: Tree, at: Axis | None, users: set[str], item: Tree, *, first: bool) -> Tree:
    def place(body: Tree) -> Tree:
        items = list(body.items) if isinstance(body, Seq) else [body]
        hits = [k for k, x in enumerate(items) if not users.isdisjoint(tree.stmts(x))]
        k = hits[0] if first else hits[-1] + 1
        return tree.seq([*items[:k], item, *items[k:]])

    if at is None:
        return place(t)
    return tree.rewrite(t, at, lambda x: replace(x, body=place(x.body)))


def leaf(t: Tree, name: str, item: Tree) -> Tree:
    """The tree with the leaf of a statement replaced."""
    if isinstance(t, At):
        return item if t.stmt == name else t
    if isinstance(t, Loop):
        return replace(t, body=leaf(t.body, name, item))
    return tree.seq([leaf(i, name, item) for i in t.items])


def without(t: Tree, names: Iterable[str]) -> Tree | None:
    """The tree less some statements and the loops that they leave empty."""
    left: Tree | None = t
    for n in names:
        left = tree.remove(left, n) if left is not None else None
    return left


def nest_of(
    stmts: Sequence[Statement], axes: Mapping[Axis, Axis | None], n_outer: int, step: int
) -> Tree:
    """Loops over the own iterators of statements, shared as in a declaration.

    The loops of reduction iterators, and those from the first that differs, are not shared.
    `axes` gives the loop of each iterator, None where it has one value and needs none; the first
    `n_outer` iterators have theirs already.
    """
    own = [(x.name, [axes[i] for i in x.iters[n_outer:]]) for x in stmts]
    return _share([(n, [a for a in loops if a is not None]) for n, loops in own], step)


def _share(rest: list[tuple[str, list[Axis]]], step: int) -> Tree:
    items: list[Tree] = []
    while rest:
        name, loops = rest[0]
        if not loops:
            items.append(At(name))
            rest = rest[1:]
            continue
        n = 1
        while not loops[0].reduce and n < len(rest) and rest[n][1] and rest[n][1][0] is loops[0]:
            n += 1
        inner = _share([(x, its[1:]) for x, its in rest[:n]], step)
        items.append(Loop(loops[0], inner, step=step))
        rest = rest[n:]
    return tree.seq(items)


def fresh_axes(
    s: Schedule, iters: Iterable[Axis], owner: str, gone: Iterable[str] = ()
) -> dict[Axis, Axis]:
    """A new loop axis for each iterator: of its name if that is free, else `owner.name`."""
    taken = set(resolve.taken(s.program)) - set(gone)
    made: dict[Axis, Axis] = {}
    for it in iters:
        if it in made:
            continue
        name = it.name
        while name in taken:
            name = f"{owner}.{it.name}" if name == it.name else name + "_"
        taken.add(name)
        made[it] = Axis(name, it.lower, it.upper, reduce=it.reduce)
    return made


# -- statements
def redirect(stmt: Statement, by: Mapping[Array, Array], *, writes: bool = False) -> Statement:
    """The statement with reads (and writes) of some arrays going to others, cell by cell."""

    def turn(a: Access) -> Access:
        return replace(a, array=by[a.array]) if a.array in by else a

    return replace(
        stmt,
        reads=tuple(map(turn, stmt.reads)),
        writes=tuple(map(turn, stmt.writes)) if writes else stmt.writes,
    )


# -- conditions
def is_shared(program: Program, array: Array) -> bool:
    """Whether cells of an array hold several values one after the other: folded, or reused."""
    buffer = program.buffers.get(array)
    if buffer is not None:
        return buffer.shared
    return len({program.stmt(n).stage for n in writers(program, array)}) > 1


def require_unshared(s: Schedule, names: Iterable[str], primitive: str) -> None:
    """Refuse to rebuild statements that touch storage which holds several values in turn."""
    program = s.program
    for n in names:
        stmt = program.stmt(n)
        for array in dict.fromkeys(x.array for x in (*stmt.writes, *stmt.reads)):
            if array.role != "input" and is_shared(program, array):
                resolve.fail(
                    f"{primitive}: {n} touches {array.name}, whose cells hold several values in "
                    "turn",
                    why="it is folded, or shared with another stage; do that last, after the steps "
                    "that place and cache.",
                )


def require_complete(s: Schedule, new: Program, names: Sequence[str], primitive: str) -> None:
    """Refuse where statements `names` would read an array of another stage before it is whole."""
    own = {new.stmt(n).stage for n in names}
    for n in names:
        for array in dict.fromkeys(r.array for r in new.stmt(n).reads):
            if array.role == "input":
                continue
            outside = outside_of(new, array)
            for w in writers(new, array):
                if w == n or new.stmt(w).stage in own:
                    continue
                shared, order = tree.common(new.tree, w, n)
                inner = next((a for a in shared if not has(outside, a)), None)
                if order < 0 and inner is None:
                    continue
                where = f"{inner.name!r} is not through" if inner else f"{w} has run"
                resolve.fail(
                    f"{primitive}: {n} would read {array.name} before {where}, and {w} writes it",
                    why=f"{array.name} must be whole before {n} runs.",
                )


def require_one_piece(s: Schedule, name: str, names: Iterable[str], primitive: str) -> None:
    """Refuse a stage of which `partition` or `peel` made several pieces."""
    seen: dict[tuple[str, frozenset[Axis]], str] = {}
    for n in names:
        stmt = s.program.stmt(n)
        # pieces have the same iterators, and nothing else does
        other = seen.setdefault((stmt.role, frozenset(stmt.iters)), n)
        if other != n and stmt.iters:
            resolve.fail(
                f"{primitive}: {name} is in pieces, {other} and {n}",
                why="a stage is moved whole; place it first, then cut its loops.",
            )


def require_reach(s: Schedule, new: Program, names: Iterable[str], primitive: str) -> None:
    """Refuse where statements `names` would leave the loops in which a buffer of theirs exists."""
    for n in names:
        around = set(tree.axes_of(new.tree, n))
        for array in dict.fromkeys(x.array for x in (*new.stmt(n).writes, *new.stmt(n).reads)):
            left = next((a for a in outside_of(new, array) if not has(around, a)), None)
            if left is not None:
                resolve.fail(
                    f"{primitive}: {n} uses {array.name}, which is kept inside {left.name!r}",
                    why=f"{n} would leave that loop; move it first, then cache.",
                )
