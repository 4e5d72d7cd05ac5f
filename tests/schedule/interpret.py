"""Runs a program instance by instance, without isl and without the lowering, at small sizes.

Every statement's instances and the loop points that run them are found from its facts by interval
propagation; they run in the order of the tree. Values are integers modulo a prime, so that a
regrouped sum is equal and anything else almost surely is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tensorir.ir.affine import Conj, Lin
from tensorir.ir.expr import Axis, Const, Expr, Op, Ref, Var
from tensorir.ir.statement import Access, Array, Statement
from tensorir.poly import tree
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import Loop

PRIME = (1 << 61) - 1
FAR = 96

Env = dict[Any, int]
Memory = dict[tuple[Array, tuple[int, ...], tuple[int, ...]], Any]


class Fault(AssertionError):
    """The program does what no program may do."""


# -- which points satisfy facts
def solutions(conj: Conj, unknown: Sequence[Any], known: Env) -> Iterator[Env]:
    """Every assignment of integers to `unknown` for which all facts hold."""
    values: dict[Any, Lin] = {v: Lin(const=x) for v, x in known.items()}
    linear = _Linear()
    facts = [(kind, linear.of(e.subst(values))) for kind, e in conj]
    facts += linear.facts
    order = [*unknown, *linear.floors.values()]
    for env in _search(facts, order, dict.fromkeys(order, (-FAR, FAR))):
        yield {a: env[a] for a in unknown}


class _Linear:
    """Facts without floors: each `e // n` is a number `q` with `n*q <= e <= n*q + n - 1`."""

    def __init__(self) -> None:
        self.floors: dict[tuple[Lin, int], Axis] = {}
        self.facts: list[Any] = []

    def of(self, e: Lin) -> Lin:
        out = Lin(const=e.const)
        for a, v in e.terms.items():
            if not isinstance(a, tuple):
                out = out + Lin({a: v})
                continue
            kind, inside, n = a
            inner = self.of(inside)
            q = self.floors.get((inner, n))
            if q is None:
                q = self.floors[inner, n] = Axis("q")
                self.facts += [
                    ("ge", inner - Lin({q: n})), ("ge", Lin({q: n}, n - 1) - inner)
                ]  # fmt: skip
            out = out + (Lin({q: v}) if kind == "//" else (inner - Lin({q: n})) * v)
        return out


def _search(facts: list[Any], order: list[Any], box: dict[Any, tuple[int, int]]) -> Iterator[Env]:
    narrowed = _narrow(facts, box)
    if narrowed is None:
        return
    free = next((a for a in order if narrowed[a][0] < narrowed[a][1]), None)
    if free is None:
        env = {a: narrowed[a][0] for a in order}
        if all(_holds(kind, e.evaluate(env)) for kind, e in facts):
            yield env
        return
    low, high = narrowed[free]
    if high - low > FAR:
        raise Fault(f"{free.name} is not bounded by {facts}")
    for x in range(low, high + 1):
        yield from _search(facts, order, {**narrowed, free: (x, x)})


def _holds(kind: str, value: int) -> bool:
    return value >= 0 if kind == "ge" else value == 0


def _narrow(facts: list[Any], box: dict[Any, tuple[int, int]]) -> dict[Any, tuple[int, int]] | None:
    box = dict(box)
    changed = True
    while changed:
        changed = False
        for kind, e in facts:
            spans = {a: box[a] for a in e.terms}
            low = e.const + sum(min(v * spans[a][0], v * spans[a][1]) for a, v in e.terms.items())
            high = e.const + sum(max(v * spans[a][0], v * spans[a][1]) for a, v in e.terms.items())
            if high < 0 or (kind == "eq" and low > 0):
                return None
            for a, v in e.terms.items():
                lo, hi = spans[a]
                most = high - max(v * lo, v * hi)
                lo, hi = _tighter(lo, hi, v, most)
                if kind == "eq":
                    least = low - min(v * spans[a][0], v * spans[a][1])
                    lo, hi = _tighter(lo, hi, -v, -least)
                if lo > hi:
                    return None
                if (lo, hi) != box[a]:
                    box[a] = (lo, hi)
                    changed = True
                    break
            if changed:
                break
    return box


def _tighter(lo: int, hi: int, v: int, rest: int) -> tuple[int, int]:
    """`v * a + rest >= 0`."""
    if v > 0:
        return max(lo, -(rest // v)), hi
    return lo, min(hi, rest // -v)


# -- what runs, in which order
def instances(p: Placement, axes: Sequence[Axis], sizes: Env) -> Iterator[tuple[Env, Env]]:
    """Each instance and the loop point that runs it, as (iterators, axes)."""
    place = tuple(("eq", Lin({p.roots[i]: 1}) - Lin({_mark(p, i): 1})) for i in p.stmt.iters)
    seen = set()
    for conj in p.stmt.domain:
        named = {i: Lin({_mark(p, i): 1}) for i in p.stmt.iters}
        domain = tuple((kind, e.subst(named)) for kind, e in conj)
        iters = [_mark(p, i) for i in p.stmt.iters]
        unknown = [*iters, *p.axes, *p.retired]
        for env in solutions((*domain, *place, *p.facts), unknown, sizes):
            at = {i: env[_mark(p, i)] for i in p.stmt.iters}
            point = {a: env[a] for a in axes}
            key = (tuple(at.values()), tuple(point.values()))
            if key not in seen:
                seen.add(key)
                yield at, point


_marks: dict[tuple[int, int], Axis] = {}


def _mark(p: Placement, i: Axis) -> Axis:
    """A stand-in for an iterator, which may be the same object as a loop axis."""
    key = (id(p), id(i))
    if key not in _marks:
        _marks[key] = Axis(f"{i.name}'")
    return _marks[key]


def schedule_of(program: Program, sizes: Env, *, backwards: bool) -> list[tuple[Any, ...]]:
    """All executions, sorted: (key, statement, iterators, axes)."""
    runs = []
    for name, p in program.placements.items():
        path = tree.path(program.tree, name)
        assert path is not None
        loops = [x for x in path if isinstance(x, Loop)]
        axes = [x.axis for x in loops]
        once = set()
        for at, point in instances(p, axes, sizes):
            if tuple(at.values()) in once:
                raise Fault(f"{name}{tuple(at.values())} runs more than once")
            once.add(tuple(at.values()))
            for i, e in p.index.items():
                if e.evaluate({**point, **sizes}) != at[i]:
                    raise Fault(f"{name}: index of {i.name} is {e}, not {at[i]} at {point}")
            key = tuple(
                x if not isinstance(x, Loop) else _turned(x, point[x.axis], backwards) for x in path
            )
            runs.append((key, len(runs), p.stmt, at, point))
    return sorted(runs, key=lambda r: r[:2])


def _turned(x: Loop, value: int, backwards: bool) -> int:
    return -value if backwards and x.kind == "parallel" else value


# -- values
def run(program: Program, sizes: Mapping[str, int], *, backwards: bool = False) -> dict[Any, Any]:
    """The outputs: (name, cell) to value."""
    known: Env = {v: sizes[v.name] for v in program.sizes}
    memory: Memory = {}
    for _, _, stmt, at, point in schedule_of(program, known, backwards=backwards):
        env = {**known, **at}
        values: list[Any] = []
        for r in stmt.reads:
            values.append(_load(program, memory, stmt, r, env, point, values))
        results = [evaluate(b, env, values) for b in stmt.bodies]
        for w, x in zip(stmt.writes, results, strict=True):
            memory[_place(program, stmt, w, env, point, values)] = x
    return {(a.name, cell): x for (a, _, cell), x in memory.items() if a.role == "output"}


def _load(
    program: Program, memory: Memory, stmt: Statement, r: Access, env: Env, point: Env, values: Any
) -> Any:
    if not any(all(_holds(k, e.evaluate(env)) for k, e in c) for c in r.guard):
        return None
    key = _place(program, stmt, r, env, point, values)
    if key not in memory:
        if r.array.role != "input":
            raise Fault(f"{stmt.name} reads {r.array.name}{key[2]}, which nothing has written")
        memory[key] = hash(("in", r.array.name, key[2])) % PRIME
    return memory[key]


def _place(
    program: Program, stmt: Statement, a: Access, env: Env, point: Env, values: Any
) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    buffer = program.buffers.get(a.array)
    outside = tuple(point[x] for x in buffer.outside) if buffer is not None else ()
    cell = []
    for i, extent in zip(a.index, a.array.shape, strict=True):
        n = extent.evaluate(env)
        x = i.evaluate(env) if isinstance(i, Lin) else evaluate(i.value, env, values) % max(n, 1)
        if not 0 <= x < n:
            raise Fault(f"{stmt.name} touches {a.array.name} at {x} of {n}")
        cell.append(x)
    return a.array, outside, tuple(cell)


def evaluate(e: Expr, env: Env, values: Sequence[Any]) -> Any:
    """The value of a body: sums and products modulo a prime, all else by name."""
    if isinstance(e, Const):
        finite = isinstance(e.value, float) and math.isfinite(e.value)
        return (
            (int(e.value) if e.value == int(e.value) else hash(e.value) % PRIME)
            if finite
            else e.value
        )
    if isinstance(e, Axis | Var):
        return env[e]
    if isinstance(e, Ref):
        return values[e.slot]
    assert isinstance(e, Op), e
    if e.name in ("select", "if_then_else"):
        cond, yes, no = e.args
        return evaluate(yes if evaluate(cond, env, values) else no, env, values)
    args = [evaluate(a, env, values) for a in e.args]
    if any(a is None for a in args):
        return None
    return _apply(e.name, args)


def _apply(name: str, args: list[Any]) -> Any:
    simple: dict[str, Any] = {
        "add": lambda a, b: (a + b) % PRIME if not _infinite(a, b) else a + b,
        "sub": lambda a, b: (a - b) % PRIME,
        "mul": lambda a, b: a * b % PRIME,
        "fma": lambda a, b, c: (a * b + c) % PRIME,
        "neg": lambda a: -a % PRIME,
        "max": max, "min": min, "fmax": max, "fmin": min,
        "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
        "and": lambda a, b: a and b, "or": lambda a, b: a or b, "not": lambda a: not a,
        "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b,
        "cast": lambda a: a, "isnan": lambda a: False,
    }  # fmt: skip
    if name in simple:
        return simple[name](*args)
    return hash((name, tuple(args))) % PRIME


def _infinite(*xs: Any) -> bool:
    return any(x in (float("inf"), float("-inf")) for x in xs)


def same(before: Program, after: Program, sizes: Mapping[str, int]) -> None:
    """Raise where two programs give different outputs, in either order of parallel loops."""
    want = run(before, sizes)
    for backwards in (False, True):
        got = run(after, sizes, backwards=backwards)
        if got != want:
            bad = sorted(str(k) for k in want.keys() | got.keys() if want.get(k) != got.get(k))
            raise Fault(f"sizes {dict(sizes)}: {len(bad)} cells differ, first {bad[0]}")
