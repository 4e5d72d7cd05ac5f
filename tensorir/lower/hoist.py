"""Conditions that a serial loop does not change stand around it, not in every instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.stmt import Block, For, If, Node, Run
from tensorir.lower.boxes import block, loops, runs, uses


def hoist(n: Node, lanes: Mapping[Axis, None] | None = None) -> Node:
    """`n` with the guards that all instances under a serial loop share moved around the loop.

    A guard that mentions a lane, or an axis at or below the loop, stays where it is.
    """
    lanes = lanes or {}
    if isinstance(n, Block):
        return block(hoist(i, lanes) for i in n.items)
    if isinstance(n, If):
        other = hoist(n.other, lanes) if n.other is not None else None
        return replace(n, body=hoist(n.body, lanes), other=other)
    if not isinstance(n, For):
        return n
    if n.kind == "vectorize":
        return replace(n, body=hoist(n.body, {**lanes, n.axis: None}))
    if n.kind == "unroll":
        return replace(n, body=hoist(n.body, lanes))
    shared = _shared(n, lanes)
    body = hoist(_without(n.body, shared) if shared else n.body, lanes)
    loop = replace(n, body=body)
    return If(tuple(("ge", c) for c in shared), loop) if shared else loop


def _shared(n: For, lanes: Mapping[Axis, None]) -> tuple[Lin, ...]:
    all_runs = list(runs(n))
    if not all(r.conds for r in all_runs):
        return ()
    inside = {x.axis: None for x in loops(n)} | dict(lanes)
    return tuple(
        c
        for c in all_runs[0].conds
        if not uses(c, inside) and all(c in r.conds for r in all_runs[1:])
    )


def _without(n: Node, dropped: tuple[Lin, ...]) -> Node:
    if isinstance(n, Run):
        return replace(n, conds=tuple(c for c in n.conds if c not in dropped))
    if isinstance(n, Block):
        return Block(tuple(_without(i, dropped) for i in n.items))
    if isinstance(n, For):
        return replace(n, body=_without(n.body, dropped))
    assert isinstance(n, If)
    other = _without(n.other, dropped) if n.other is not None else None
    return replace(n, body=_without(n.body, dropped), other=other)
