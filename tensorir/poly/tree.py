"""The loop tree that holds the order of a program, and walks over it. Three nodes, immutable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from tensorir.ir.expr import Axis
from tensorir.ir.intrinsic import Intrinsic
from tensorir.ir.stmt import LoopKind


@dataclass(frozen=True, slots=True, eq=False)
class At:
    """A leaf: the statement of that name."""

    stmt: str


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop over `axis` around `body`.

    `width` are the lanes of a vector loop; `bind` the hardware index of a bound one, or `reduce`
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
    intrinsic: Intrinsic | None = None


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
    if isinstance(t, At):
        return [t.stmt]
    if isinstance(t, Loop):
        return stmts(t.body)
    return [x for i in t.items for x in stmts(i)]


def loops(t: Tree) -> Iterator[Loop]:
    """Every loop, outer before inner, in textual order."""
    todo = [t]
    while todo:
        x = todo.pop()
        if isinstance(x, Loop):
            yield x
            todo.append(x.body)
        elif isinstance(x, Seq):
            todo.extend(reversed(x.items))


def find(t: Tree, axis: Axis) -> Loop | None:
    """The loop over `axis`."""
    return next((x for x in loops(t) if x.axis is axis), None)


def path(t: Tree, stmt: str) -> list[Loop | int] | None:
    """Loops and positions in Seqs on the way to a statement; None if it is not there."""
    if isinstance(t, At):
        return [] if t.stmt == stmt else None
    if isinstance(t, Loop):
        p = path(t.body, stmt)
        return None if p is None else [t, *p]
    for k, i in enumerate(t.items):
        p = path(i, stmt)
        if p is not None:
            return [k, *p]
    return None


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
        return t if body is t.body else replace(t, body=body)
    items = tuple(rewrite(i, axis, change) for i in t.items)
    return t if all(a is b for a, b in zip(items, t.items, strict=True)) else seq(items)


def insert(t: Tree, at: Axis | None, item: Tree, *, first: bool) -> Tree:
    """`item` put first or last in the body of the loop over `at` (None: of the whole tree)."""
    if at is None:
        return seq([item, t] if first else [t, item])
    return rewrite(t, at, lambda x: replace(x, body=insert(x.body, None, item, first=first)))


def remove(t: Tree, stmt: str) -> Tree | None:
    """The tree without a statement and without loops left empty; None if nothing is left."""
    if isinstance(t, At):
        return None if t.stmt == stmt else t
    if isinstance(t, Loop):
        b = remove(t.body, stmt)
        return None if b is None else replace(t, body=b)
    items = [x for x in (remove(i, stmt) for i in t.items) if x is not None]
    return seq(items) if items else None


def nest(axes: tuple[Axis, ...] | list[Axis], inner: Tree, *, step: int = 0) -> Tree:
    """Serial loops over `axes`, outer to inner, around `inner`."""
    for a in reversed(axes):
        inner = Loop(a, inner, step=step)
    return inner


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
