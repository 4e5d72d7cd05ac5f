"""Which axes and reductions may stand where in a declaration."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tensorir.ir.expr import Axis, Expr, Reduce, children
from tensorir.ir.tensor import Compute
from tensorir.ir.visit import nodes
from tensorir.support.errors import ArgumentError, UnsupportedError

MAX_DEPTH = 150


def check_call(fn: Callable[..., Any], count: int, what: str) -> None:
    """Refuse a function that cannot be called with `count` arguments."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * count)
    except TypeError:
        raise ArgumentError(
            f"{what} is called with {count} {'argument' if count == 1 else 'arguments'}, but its "
            f"parameters are {signature}"
        ) from None


def contains_reduce(e: Expr) -> bool:
    """Whether a reduction is in `e`."""
    return any(isinstance(x, Reduce) for x in nodes(e))


def check_depth(e: Expr, name: str) -> None:
    """Refuse an expression so deep that walks over it would exhaust Python's stack."""
    depth: dict[int, int] = {}
    stack = [e]
    while stack:
        x = stack[-1]
        inner = children(x)
        todo = [c for c in inner if id(c) not in depth]
        if todo:
            stack += todo
            continue
        stack.pop()
        depth[id(x)] = 1 + max((depth[id(c)] for c in inner), default=0)
    if depth[id(e)] > MAX_DEPTH:
        raise UnsupportedError(
            f"the expression of {name} is {depth[id(e)]} operations deep, and at most {MAX_DEPTH} "
            "are supported: group a long sum as a tree, or make a part of it a tensor of its own"
        )


def check_bodies(op: Compute) -> None:
    """Refuse a computation whose axes or reductions are out of place."""
    for b in op.bodies:
        check_depth(b, op.name)
    found = [e for b in op.bodies for e in nodes(b) if isinstance(e, Reduce)]
    for r in found:
        _check_one_reduction(op, found[0], r)
    own = (*op.axes, *(found[0].axes if found else ()))
    if found:
        _check_bounds(op, found[0])
    for b in op.bodies:
        _check_outside(b, op, found)
    for r in found:
        inside = (*r.sources, *((r.where,) if r.where is not None else ()))
        _check_axes(inside, own, op.name)
        _check_axes(r.init or (), op.axes, op.name, reduced=found)


def _check_one_reduction(op: Compute, first: Reduce, r: Reduce) -> None:
    same = (
        r.reducer is first.reducer
        and len(r.axes) == len(first.axes)
        and all(a is b for a, b in zip(r.axes, first.axes, strict=True))
        and len(r.sources) == len(first.sources)
        and all(a is b for a, b in zip(r.sources, first.sources, strict=True))
        and r.where is first.where
    )
    if not same:
        raise ArgumentError(
            f"{op.name} holds two different reductions, {first} and {r}: compute one of them in a "
            "tensor of its own with tir.compute, and read it here"
        )
    if (r.init is None) != (first.init is None) or any(
        a is not b for a, b in zip(r.init or (), first.init or (), strict=True)
    ):
        raise ArgumentError(f"{op.name} holds one reduction with two different init=")


def _check_bounds(op: Compute, r: Reduce) -> None:
    """Bounds may use the axes of the computation, and axes of the reduction outside their own."""
    known: list[Axis] = list(op.axes)
    for a in r.axes:
        assert a.lower is not None and a.upper is not None
        for used in (*a.lower.atoms(), *a.upper.atoms()):
            if isinstance(used, Axis) and not any(used is k for k in known):
                raise ArgumentError(
                    f"the bounds of {a.name} in {op.name}, {a.lower}..{a.upper}, use {used.name}, "
                    "which is no axis of this computation nor a reduce axis outside it: make the "
                    "reduce axis inside the function, and list axes outer to inner"
                )
        known.append(a)


def _check_outside(e: Expr, op: Compute, found: list[Reduce]) -> None:
    """Axes used outside the reductions must be the computation's."""
    stack, seen = [e], {id(e)}
    while stack:
        x = stack.pop()
        if isinstance(x, Axis):
            _check_axes((x,), op.axes, op.name, reduced=found)
        if isinstance(x, Reduce):
            continue
        for c in children(x):
            if id(c) not in seen:
                seen.add(id(c))
                stack.append(c)


def _check_axes(
    roots: tuple[Expr, ...],
    known: tuple[Axis, ...],
    name: str,
    *,
    reduced: list[Reduce] | None = None,
) -> None:
    for x in nodes(*roots):
        if not isinstance(x, Axis) or any(x is k for k in known):
            continue
        if x.reduce:
            over = reduced[0].reducer.name if reduced else None
            inside = f" and {over} reduces over it elsewhere" if over else ""
            raise ArgumentError(
                f"{name} uses the reduce axis {x.name} where nothing reduces over it{inside}: a "
                f"reduce axis has a meaning only inside tir.sum(..., axis={x.name}) and its kin"
            )
        raise ArgumentError(
            f"{name} uses the axis {x.name}, which belongs to another computation: use the axes "
            "that the function is given"
        )


def check_condition(e: Expr, axes: tuple[Axis, ...], name: str) -> None:
    """Refuse a domain condition that uses anything but the computation's axes and sizes."""
    if contains_reduce(e):
        raise ArgumentError(f"where= of {name} holds a reduction")
    _check_axes((e,), axes, f"where= of {name}")
