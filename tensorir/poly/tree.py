"""The loop tree that holds the order of a program, and walks over it. Three nodes, immutable.

A tree is asked the same things again and again, by each check of each step: walks are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from tensorir.ir.expr import Axis
from tensorir.ir.intrinsic import Intrinsic
from tensorir.ir.matrix import MatrixIntrinsic
from tensorir.ir.stmt import LoopKind


@dataclass(frozen=True, slots=True, eq=False)
class At:
    """A leaf: the statement of that name."""

    stmt: str


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop over `axis` around `body`.

    `width` are the lanes of a vector loop, and is 1 for a bound loop whose threads are combined
    into the cell that they all update; `bind` the hardware index of a bound one, or `reduce`
    for a vector loop whose lanes are combined into the cell that they all update; `tail` what
    `split` asked for on the outer loop (`auto`, `cut`, `guard`), with `cut` = (point axis, extent);
    `like` the axis of the loop that this one is a copy of, for the init of a reduction. `step` is
    the number of the trace step that made the loop. `intrinsic` is the instruction that stands for
    the loop and those inside it.
    """

    axis: Axis
    body: Tree
    kind: LoopKind = "serial"
    width: int | None = None
    bind: str | None = None
    tail: str = "auto"
    cut: tuple[Axis, int] | None = None
    like: Axis | None = None
    step: int = 0
    intrinsic: Intrinsic | MatrixIntrinsic | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Seq:
    """Items in textual order; never holds a Seq, never fewer than two items."""

    items: tuple[Tree, ...]


Tree: TypeAlias = At | Loop | Seq


def seq(items: list[Tree] | tuple[Tree, ...]) -> Tree:
    """Items in order, nested Seqs flattened; a single item stands alone."""
    out: list[Tree] = []
    for i in items:
        out.extend(i.items if isinstance(i, Seq) else [i])
    return out[0] if len(out) == 1 else Seq(tuple(out))


def stmts(t: Tree) -> list[str]:
    """Statements under `t` in textual order."""
    return list(_stmts(t))


@lru_cache(maxsize=8192)
def _stmts(t: Tree) -> tuple[str, ...]:
    if isinstance(t, At):
        return (t.stmt,)
    if isinstance(t, Loop):
        return _stmts(t.body)
    return tuple(x for i in t.items for x in _stmts(i))


def loops(t: Tree) -> Iterator[Loop]:
    """Every loop, outer before inner, in textual order."""
    return iter(_loops(t))


@lru_cache(maxsize=1024)
def _loops(t: Tree) -> tuple[Loop, ...]:
    out: list[Loop] = []
    todo = [t]
    while todo:
        x = todo.pop()
        if isinstance(x, Loop):
            out.append(x)
            todo.append(x.body)
        elif isinstance(x, Seq):
            todo.extend(reversed(x.items))
    return tuple(out)


def find(t: Tree, axis: Axis) -> Loop | None:
    """The loop over `axis`."""
    return _by_axis(t).get(axis)


@lru_cache(maxsize=1024)
def _by_axis(t: Tree) -> dict[Axis, Loop]:
    found: dict[Axis, Loop] = {}
    for x in _loops(t):
        found.setdefault(x.axis, x)
    return found


Path: TypeAlias = tuple[Loop | int, ...]


def path(t: Tree, stmt: str) -> Path | None:
    """Loops and positions in Seqs on the way to a statement; None if it is not there."""
    return _paths(t).get(stmt)


@lru_cache(maxsize=1024)
def _paths(t: Tree) -> dict[str, Path]:
    found: dict[str, Path] = {}

    def walk(x: Tree, before: Path) -> None:
        if isinstance(x, At):
            found.setdefault(x.stmt, before)
        elif isinstance(x, Loop):
            walk(x.body, (*before, x))
        else:
            for k, i in enumerate(x.items):
                walk(i, (*before, k))

    walk(t, ())
    return found


def loops_of(t: Tree, stmt: str) -> list[Loop]:
    """The loops around a statement, outer to inner."""
    return [x for x in path(t, stmt) or () if isinstance(x, Loop)]


def axes_of(t: Tree, stmt: str) -> tuple[Axis, ...]:
    """The axes of the loops around a statement, outer to inner."""
    return tuple(x.axis for x in loops_of(t, stmt))


def rewrite(t: Tree, axis: Axis, change: Callable[[Loop], Tree]) -> Tree:
    """The tree with the loop over `axis` replaced by `change(loop)`."""
    if isinstance(t, At):
        return t
    if isinstance(t, Loop):
        if t.axis is axis:
            return change(t)
        body = rewrite(t.body, axis, change)
        return t if body is t.body else with_body(t, body)
    items = [rewrite(i, axis, change) for i in t.items]
    for new, old in zip(items, t.items, strict=True):
        if new is not old:
            return seq(items)
    return t


def with_body(x: Loop, body: Tree) -> Loop:
    """The same loop around another body."""
    return Loop(x.axis, body, x.kind, x.width, x.bind, x.tail, x.cut, x.like, x.step, x.intrinsic)


def insert(t: Tree, at: Axis | None, item: Tree, *, first: bool) -> Tree:
    """`item` put first or last in the body of the loop over `at` (None: of the whole tree)."""
    if at is None:
        return seq([item, t] if first else [t, item])
    return rewrite(t, at, lambda x: with_body(x, insert(x.body, None, item, first=first)))


def remove(t: Tree, stmt: str) -> Tree | None:
    """The tree without a statement and without loops left empty; None if nothing is left."""
    if isinstance(t, At):
        return None if t.stmt == stmt else t
    if isinstance(t, Loop):
        b = remove(t.body, stmt)
        return None if b is None else with_body(t, b)
    items = [x for x in (remove(i, stmt) for i in t.items) if x is not None]
    return seq(items) if items else None


def nest(axes: tuple[Axis, ...] | list[Axis], inner: Tree, *, step: int = 0) -> Tree:
    """Serial loops over `axes`, outer to inner, around `inner`."""
    for a in reversed(axes):
        inner = Loop(a, inner, step=step)
    return inner


@lru_cache(maxsize=4096)
def common(t: Tree, a: str, b: str) -> tuple[tuple[Axis, ...], int]:
    """The loops around both statements, and their textual order below (-1: a first, 0: same)."""
    axes: list[Axis] = []
    for x, y in zip(path(t, a) or (), path(t, b) or (), strict=False):
        if isinstance(x, Loop) and isinstance(y, Loop) and x.axis is y.axis:
            axes.append(x.axis)
        elif isinstance(x, int) and isinstance(y, int):
            if x != y:
                return tuple(axes), -1 if x < y else 1
        else:
            break
    return tuple(axes), 0
