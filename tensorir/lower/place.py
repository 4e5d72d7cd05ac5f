"""Where buffers are allocated: at the top, or in the innermost parallel loop that owns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Storage
from tensorir.lower.boxes import loops, runs

# A buffer still to be placed, with the parallel axes that own it and were not yet entered.
_Waiting = Mapping[Storage, frozenset[Axis]]


def place(node: Node, storages: Mapping[Array, Storage]) -> Node:
    """`node` with an `Alloc` for each storage that it uses.

    A serial loop outside a buffer runs one iteration at a time, so all may share the memory; the
    iterations of a parallel one may not.
    """
    parallel = frozenset(x.axis for x in loops(node) if x.kind == "parallel")
    waiting = {s: parallel & frozenset(s.outside) for s in storages.values()}
    ready = [s for s, axes in waiting.items() if not axes]
    return _alloc(ready, _go(node, {s: a for s, a in waiting.items() if a}))


def _go(n: Node, waiting: _Waiting) -> Node:
    if not waiting:
        return n
    if isinstance(n, Block):
        return Block(tuple(_go(i, waiting) for i in n.items))
    if isinstance(n, If):
        other = _go(n.other, waiting) if n.other is not None else None
        return replace(n, body=_go(n.body, waiting), other=other)
    if not isinstance(n, For):
        return n
    left = {s: axes - {n.axis} for s, axes in waiting.items()}
    ready = [s for s, axes in left.items() if not axes]
    body = _go(n.body, {s: a for s, a in left.items() if a})
    return replace(n, body=_alloc(ready, body))


def _alloc(ready: list[Storage], body: Node) -> Node:
    used = {a.array for r in runs(body) for a in (*r.statement.writes, *r.statement.reads)}
    for s in reversed(ready):
        if s.array in used:
            body = Alloc(s, body)
    return body
