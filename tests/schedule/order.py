"""The order in which a program runs its instances, by enumeration, and what that computes.

Shares nothing with the prover: axis values are solved from the facts of a placement by hand, and
values are numbers that tell which statement made them from what.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Statement
from tensorir.poly import tree
from tensorir.poly.model import Placement, Program

Env = dict[Axis | Var, int]
Instance = tuple[str, tuple[int, ...]]
PRIME = (1 << 61) - 1


def instances(program: Program, sizes: dict[Var, int], extent: int) -> list[Instance]:
    """Every instance, in the order in which the tree runs them; parallel loops run backwards."""
    timed = []
    for name, p in program.placements.items():
        for x in _domain(p.stmt, sizes, extent):
            env: Env = {**sizes, **dict(zip(p.stmt.iters, x, strict=True))}
            timed.append((_time(program, name, _solved(p, env)), (name, x)))
    timed.sort(key=lambda t: t[0])
    return [x for _, x in timed]


def _domain(stmt: Statement, sizes: dict[Var, int], extent: int) -> Iterator[tuple[int, ...]]:
    for x in product(range(extent), repeat=len(stmt.iters)):
        env: Env = {**sizes, **dict(zip(stmt.iters, x, strict=True))}
        if any(
            all((e.evaluate(env) >= 0) if k == "ge" else (e.evaluate(env) == 0) for k, e in conj)
            for conj in stmt.domain
        ):
            yield x


def _solved(p: Placement, env: Env) -> Env:
    """`env` with every axis: each equality gives the axes that a step made, in order."""
    env = env | {root: env[it] for it, root in p.roots.items()}
    for kind, e in p.facts:
        if kind != "eq":
            continue
        unknown = [a for a in dict.fromkeys(e.atoms()) if a not in env]
        if len(unknown) == 1:
            rest = e.without(unknown[0]).evaluate(env)
            env[unknown[0]] = -rest // e.coef(unknown[0])
        elif unknown:
            big, small = sorted(unknown, key=lambda a: -abs(e.coef(a)))
            factor = abs(e.coef(big))
            rest = e.without(big).without(small).evaluate(env) * (-1 if e.coef(small) > 0 else 1)
            env[small], env[big] = rest % factor, rest // factor
    for kind, e in p.facts:
        assert (e.evaluate(env) >= 0) if kind == "ge" else (e.evaluate(env) == 0), (p.stmt, e)
    for it, e in p.index.items():
        assert e.evaluate(env) == env[p.roots[it]], (p.stmt, it, e)
    return env


def _time(program: Program, name: str, env: Env) -> tuple[int, ...]:
    steps = tree.path(program.tree, name)
    assert steps is not None
    out = []
    for x in steps:
        if isinstance(x, int):
            out.append(x)
        else:
            out.append(-env[x.axis] if x.kind == "parallel" else env[x.axis])
    return tuple(out)


def memory(program: Program, sizes: dict[Var, int], extent: int) -> dict[tuple[str, ...], int]:
    """What the arrays hold in the end, where reductions may be regrouped."""
    cells: dict[tuple[str, ...], int] = {}
    numbers = {n: k + 2 for k, n in enumerate(sorted(program.placements))}
    for name, x in instances(program, sizes, extent):
        stmt = program.stmt(name)
        env: Env = {**sizes, **dict(zip(stmt.iters, x, strict=True))}
        own = len(stmt.writes) if stmt.role == "update" else 0
        value = numbers[name]
        for r in stmt.reads[own:]:
            value = (value * 1_000_003 + cells.get(_cell(r, env), hash(_cell(r, env)))) % PRIME
        for w in stmt.writes:
            at = _cell(w, env)
            cells[at] = (cells[at] + value * value) % PRIME if own else value
    return cells


def _cell(access: Access, env: Env) -> tuple[str, ...]:
    def value(e: object) -> str:
        assert isinstance(e, Lin)
        return str(e.evaluate(env))

    return (access.array.name, *(value(e) for e in access.index))
