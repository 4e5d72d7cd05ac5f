"""The body of one statement put into another, in place of the cells that it would have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorir.ir.affine import Conj, Lin, Region, subst_facts
from tensorir.ir.build import cast
from tensorir.ir.expr import Axis, Expr, Op, Ref, Var
from tensorir.ir.index import from_lin
from tensorir.ir.statement import Access, Index, May, Statement
from tensorir.ir.visit import nodes, rewrite
from tensorir.schedule.resolve import fail
from tensorir.support.errors import UnsupportedError


def inlined(consumer: Statement, producer: Statement, what: str) -> Statement:
    """`consumer` with the producer's expression in place of each read of what that writes."""
    slots = {w.array: k for k, w in enumerate(producer.writes)}
    reads: list[Access] = []
    value: dict[int, Expr] = {}
    for k, r in enumerate(consumer.reads):
        if r.array not in slots:
            reads.append(r)
            value[k] = Ref(len(reads) - 1, r.array.dtype)
    apart = _branches(*consumer.bodies, *producer.bodies)
    known = {} if apart else {_key(r): n for n, r in enumerate(reads)}
    for k, r in enumerate(consumer.reads):
        if r.array not in slots:
            continue
        env = _cell(consumer, producer, r, slots[r.array], what)
        refs: dict[int, Expr] = {}
        for n, p in enumerate(producer.reads):
            moved = _composed(p, env, r.guard, refs)
            place = known.get(_key(moved), len(reads))
            if place == len(reads):
                reads.append(moved)
                if not apart:
                    known[_key(moved)] = place
            refs[n] = Ref(place, p.array.dtype)
        body = producer.bodies[slots[r.array]]
        value[k] = cast(_rewritten(body, env, refs), r.array.dtype)
    kept = sum(r.array not in slots for r in consumer.reads)
    return _in_order(_with_reads(consumer, reads, kept, value))


def _with_reads(
    consumer: Statement, reads: list[Access], n_kept: int, value: Mapping[int, Expr]
) -> Statement:
    """`consumer` with other reads; `value` says what its old ones are now."""
    kept = [replace(r, index=_indices(r.index, {}, value)) for r in reads[:n_kept]]
    return replace(
        consumer,
        reads=(*kept, *reads[n_kept:]),
        writes=tuple(replace(w, index=_indices(w.index, {}, value)) for w in consumer.writes),
        bodies=tuple(_rewritten(b, {}, value) for b in consumer.bodies),
    )


def _in_order(s: Statement) -> Statement:
    """`s` with its reads in an order in which each index refers to earlier ones only."""
    order: list[int] = []

    def add(n: int) -> None:
        if n in order:
            return
        for i in s.reads[n].index:
            if isinstance(i, May):
                for x in nodes(i.value):
                    if isinstance(x, Ref):
                        add(x.slot)
        order.append(n)

    for n in range(len(s.reads)):
        add(n)
    if order == sorted(order):
        return s
    value = {n: Ref(k, s.reads[n].array.dtype) for k, n in enumerate(order)}
    return _with_reads(s, [s.reads[n] for n in order], len(order), value)


def _key(r: Access) -> object:
    """What makes two reads one: the same cell under the same guard."""
    return (r.array, r.index, r.guard) if r.exact else r


def _cell(
    consumer: Statement, producer: Statement, r: Access, slot: int, what: str
) -> dict[Axis | Var, Lin]:
    """The producer's iterators for the cell that `r` reads."""
    env: dict[Axis | Var, Lin] = {}
    for to, at in zip(producer.writes[slot].index, r.index, strict=True):
        if isinstance(at, May):
            fail(
                f"{what}: {consumer.name} reads {r.array.name} through an index that is not "
                "affine; such a stage cannot be inlined",
                cls=UnsupportedError,
            )
        assert isinstance(to, Lin)
        it = next(iter(to.terms))
        assert isinstance(it, Axis)
        env[it] = at
    return env


def _composed(
    p: Access, env: Mapping[Axis | Var, Lin], guard: Region, refs: Mapping[int, Expr]
) -> Access:
    """A read of the producer's, made by the consumer: both guards hold where it happens."""
    inner: Region = tuple(subst_facts(c, env) for c in p.guard)
    return Access(p.array, _indices(p.index, env, refs), _both(guard, inner))


def _both(a: Region, b: Region) -> Region:
    out: list[Conj] = []
    for x in a:
        for y in b:
            joined = [f for f in dict.fromkeys((*x, *y)) if not _always(*f)]
            out.append(tuple(joined))
    return tuple(dict.fromkeys(out))


def _always(kind: str, e: Lin) -> bool:
    return e.is_const and (e.const >= 0 if kind == "ge" else e.const == 0)


def _indices(
    index: tuple[Index, ...], env: Mapping[Axis | Var, Lin], refs: Mapping[int, Expr]
) -> tuple[Index, ...]:
    return tuple(_index(i, env, refs) for i in index)


def _index(i: Index, env: Mapping[Axis | Var, Lin], refs: Mapping[int, Expr]) -> Index:
    if isinstance(i, Lin):
        return i.subst(env)
    low = i.lower.subst(env) if i.lower is not None else None
    high = i.upper.subst(env) if i.upper is not None else None
    return May(_rewritten(i.value, env, refs), low, high)


def _rewritten(e: Expr, env: Mapping[Axis | Var, Lin], refs: Mapping[int, Expr]) -> Expr:
    """`e` with iterators and reads replaced."""

    def change(x: Expr) -> Expr | None:
        if isinstance(x, Ref):
            return refs.get(x.slot)
        if isinstance(x, Axis) and x in env:
            return from_lin(env[x])
        return None

    return rewrite(e, change)


def _branches(*bodies: Expr) -> bool:
    """Whether some read may be made in one case only: then no two reads are one."""
    return any(isinstance(x, Op) and x.name == "if_then_else" for x in nodes(*bodies))
