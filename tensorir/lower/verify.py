"""Rules that loops must keep between passes. A broken one is a fault of the library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Array
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run, Storage
from tensorir.lower.boxes import uses
from tensorir.support.errors import internal


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is around a node."""

    axes: Mapping[Axis, For]
    lanes: Mapping[Axis, None]
    allocated: frozenset[Array]


def verify(node: Node, storages: Mapping[Array, Storage], *, after: str) -> None:
    """Check loops: bound names, one vector loop at a time, tests free of lanes, buffers alive.

    Parameters
    ----------
    after
        The pass that made them; buffers must be allocated only after "place".

    Raises
    ------
    InternalError
        A rule is broken; the message names the pass and the rule.
    """
    _check(node, _Scope({}, {}, frozenset()), storages, after)


def _check(n: Node, at: _Scope, storages: Mapping[Array, Storage], after: str) -> None:
    if isinstance(n, Block):
        for i in n.items:
            _check(i, at, storages, after)
    elif isinstance(n, If):
        for _, e in n.conds:
            _bound(e, at, after, "a test")
            if uses(e, at.lanes):
                raise _broken(after, f"the test {e} depends on a lane")
        for body in (n.body, *((n.other,) if n.other is not None else ())):
            _check(body, at, storages, after)
    elif isinstance(n, Alloc):
        inner = _Scope(at.axes, at.lanes, at.allocated | {n.buffer.array})
        _check(n.body, inner, storages, after)
    elif isinstance(n, For):
        _check(n.body, _loop(n, at, after), storages, after)
    else:
        _run(n, at, storages, after)


def _loop(n: For, at: _Scope, after: str) -> _Scope:
    name = n.axis.name
    if n.axis in at.axes:
        raise _broken(after, f"loop {name} is inside itself")
    if not n.lower or not n.upper:
        raise _broken(after, f"loop {name} has no bound")
    for _, e in (*n.lower, *n.upper):
        _bound(e, at, after, f"a bound of loop {name}")
        if uses(e, at.lanes):
            raise _broken(after, f"the bound {e} of loop {name} depends on a lane")
    if n.kind in ("unroll", "vectorize") and n.extent is None:
        raise _broken(after, f"{n.kind} loop {name} has no constant extent")
    lanes = at.lanes
    if n.kind == "vectorize":
        if at.lanes:
            raise _broken(after, f"vector loop {name} is inside another one")
        if not n.width or (n.extent or 0) % n.width:
            raise _broken(after, f"vector loop {name}: extent {n.extent}, width {n.width}")
        lanes = {n.axis: None}
    return _Scope({**at.axes, n.axis: n}, lanes, at.allocated)


def _run(n: Run, at: _Scope, storages: Mapping[Array, Storage], after: str) -> None:
    s = n.statement
    if len(n.args) != len(s.iters):
        raise _broken(after, f"{s.name} runs with {len(n.args)} of {len(s.iters)} iterators")
    for e in (*n.args, *n.conds, *n.read_conds):
        _bound(e, at, after, s.name)
    if after != "place":
        return
    for access in (*s.writes, *s.reads):
        storage = storages.get(access.array)
        if storage is None:
            continue
        if access.array not in at.allocated:
            raise _broken(after, f"{s.name} uses {access.array.name}, which is not allocated there")
        for o in storage.origin:
            _bound(o, at, after, f"the origin of {access.array.name}")


def _bound(e: Lin, at: _Scope, after: str, what: str) -> None:
    missing = [a.name for a in _axes(e) if a not in at.axes]
    if missing:
        raise _broken(after, f"{what} names {missing[0]}, which no loop around it is over: {e}")


def _axes(e: Lin) -> Iterable[Axis]:
    return (a for a in e.atoms() if not isinstance(a, Var))


def _broken(after: str, what: str) -> Exception:
    return internal(f"loops after pass {after!r}: {what}")
