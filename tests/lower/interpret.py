"""Runs lowered loops in plain Python, and the declaration's order for comparison.

Values are integers modulo a prime, so that sums do not depend on their order; memory nobody wrote
holds None, which spreads through every operation and must never reach an output.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tensorir.ir.affine import Atom, Conj, Lin, Region
from tensorir.ir.expr import Axis, Const, Expr, Op, Ref, Var
from tensorir.ir.statement import Access, Array, Statement
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run, Storage
from tensorir.lower.pipeline import Lowered
from tensorir.poly.model import Program
from tensorir.poly.tree import At, Loop, Tree

Env = dict[Axis | Var, int]
PRIME = (1 << 61) - 1
_TESTS: dict[str, Callable[..., object]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "and": operator.and_, "or": operator.or_,
    "not": operator.not_,
}  # fmt: skip
Cell = tuple[int, ...]


def holds(region: Region, env: Env) -> bool:
    return any(
        all((e.evaluate(env) >= 0) if k == "ge" else (e.evaluate(env) == 0) for k, e in conj)
        for conj in region
    )


@dataclass
class Memory:
    """Values of arguments and of buffers that are alive."""

    arrays: dict[Array, dict[Cell, int | None]] = field(default_factory=dict)

    def fill(self, program: Program, sizes: Env) -> None:
        for a in program.arrays:
            if a.role == "input":
                shape = [e.evaluate(sizes) for e in a.shape]
                cells: dict[Cell, int | None] = {}
                for k, c in enumerate(points(shape)):
                    cells[c] = zlib.crc32(f"{a.name}{k}".encode()) * 2654435761 % PRIME
                self.arrays[a] = cells
            else:
                self.arrays[a] = {}


def points(shape: list[int]) -> Iterator[Cell]:
    if not shape:
        yield ()
        return
    for x in range(shape[0]):
        for rest in points(shape[1:]):
            yield (x, *rest)


def value(e: Expr, env: Env, refs: list[int | None]) -> int | None:
    if isinstance(e, Ref):
        return refs[e.slot]
    if isinstance(e, Const):
        if e.value in (math.inf, -math.inf):
            return PRIME if e.value > 0 else -1
        return int(e.value) % PRIME
    if isinstance(e, (Axis, Var)):
        return env[e] % PRIME
    assert isinstance(e, Op), e
    xs = [value(a, env, refs) for a in e.args]
    if any(x is None for x in xs):
        return None
    x = [y for y in xs if y is not None]
    if e.name == "fma":
        return (x[0] * x[1] + x[2]) % PRIME
    if e.name in ("add", "sub", "mul"):
        return {"add": x[0] + x[1], "sub": x[0] - x[1], "mul": x[0] * x[1]}[e.name] % PRIME
    if e.name in ("max", "min"):
        return max(x) if e.name == "max" else min(x)
    if e.name == "cast":
        return x[0]
    if e.name in ("select", "if_then_else"):
        return x[1] if x[0] else x[2]
    if e.name == "isnan":
        return 0
    if e.name in _TESTS:
        return int(bool(_TESTS[e.name](*x)))
    return zlib.crc32(repr((e.name, *x)).encode())


@dataclass
class Machine:
    """One run of lowered loops at given sizes."""

    lowered: Lowered
    sizes: Env
    memory: Memory = field(default_factory=Memory)
    ran: Counter[tuple[str, Cell]] = field(default_factory=Counter)
    extra: int = 0
    # unrolled and vector axes around what runs now
    fixed: list[Axis] = field(default_factory=list)
    buffers: dict[Array, tuple[Storage, dict[Cell, int | None]]] = field(default_factory=dict)

    def start(self) -> Machine:
        self.memory.fill(self.lowered.program, self.sizes)
        self.go(self.lowered.body, dict(self.sizes))
        return self

    def go(self, n: Node, env: Env) -> None:
        if isinstance(n, Block):
            for i in n.items:
                self.go(i, env)
        elif isinstance(n, If):
            body = n.body if holds((n.conds,), env) else n.other
            if body is not None:
                self.go(body, env)
        elif isinstance(n, Alloc):
            before = self.buffers.get(n.buffer.array)
            self.buffers[n.buffer.array] = (n.buffer, {})
            self.go(n.body, env)
            del self.buffers[n.buffer.array]
            if before is not None:
                self.buffers[n.buffer.array] = before
        elif isinstance(n, For):
            self.loop(n, env)
        else:
            self.run(n, env)

    def loop(self, n: For, env: Env) -> None:
        lows = [-(-e.evaluate(env) // c) for c, e in n.lower]
        highs = [e.evaluate(env) // c for c, e in n.upper]
        low = min(lows) if n.hull else max(lows)
        high = max(highs) if n.hull else min(highs)
        if n.extent is not None:
            assert (low, high) == (0, n.extent - 1), n
        values = range(low, high + 1)
        for v in reversed(values) if n.kind == "parallel" else values:
            top = self.lowered.ranges.get(n.axis)
            assert top is None or 0 <= v <= top, (n.axis, v, top)
            if n.kind in ("unroll", "vectorize"):
                self.fixed.append(n.axis)
            self.go(n.body, {**env, n.axis: v})
            if n.kind in ("unroll", "vectorize"):
                self.fixed.pop()

    def run(self, n: Run, env: Env) -> None:
        if n.corner:
            first = {**env, **dict.fromkeys(self.fixed, 0)}
            assert all(c.evaluate(first) >= 0 for c in (*n.conds, *n.read_conds)), n
        if any(c.evaluate(env) < 0 for c in n.conds):
            return
        s = n.statement
        args = tuple(e.evaluate(env) for e in n.args)
        inner: Env = {**self.sizes, **dict(zip(s.iters, args, strict=True))}
        loads = all(c.evaluate(env) >= 0 for c in n.read_conds)
        # An extra instance may look like a real one of another outer point.
        real = loads and holds(s.domain, inner)
        if real:
            self.ran[s.name, args] += 1
        else:
            self.extra += 1
        refs = [self.load(a, n, inner, env, real) if loads else 0 for a in s.reads]
        results = [value(b, inner, refs) for b in s.bodies]
        for access, v in zip(s.writes, results, strict=True):
            self.store(access, n, inner, env, v, real)

    def place(
        self, access: Access, n: Run, env: Env
    ) -> tuple[Storage, dict[Cell, int | None], Cell]:
        storage, cells = self.buffers[access.array]
        index = self.lowered.cell(access, n)
        assert index is not None
        at = tuple(e.evaluate(env) for e in index)
        shape = [e.evaluate(env) for e in storage.shape]
        assert all(0 <= x < m for x, m in zip(at, shape, strict=True)), (
            f"{n.statement.name} reaches {access.array.name}{at} of {shape}"
        )
        return storage, cells, at

    def load(self, access: Access, n: Run, inner: Env, env: Env, real: bool) -> int | None:
        if not holds(access.guard, inner):
            return 0
        if access.array in self.lowered.cells.storages:
            return self.place(access, n, env)[1].get(self.place(access, n, env)[2])
        at = tuple(e.evaluate(inner) for e in access.affine)
        cells = self.memory.arrays[access.array]
        if access.array.role == "input":
            assert at in cells, f"{n.statement.name} reads {access.array.name}{at}"
        return cells.get(at)

    def store(
        self, access: Access, n: Run, inner: Env, env: Env, v: int | None, real: bool
    ) -> None:
        if access.array in self.lowered.cells.storages:
            _, cells, at = self.place(access, n, env)
            cells[at] = v
            return
        assert real, f"{n.statement.name} writes {access.array.name} outside its domain"
        at = tuple(e.evaluate(inner) for e in access.affine)
        shape = [e.evaluate(self.sizes) for e in access.array.shape]
        assert all(0 <= x < m for x, m in zip(at, shape, strict=True))
        self.memory.arrays[access.array][at] = v


def instances(program: Program, sizes: Env) -> Counter[tuple[str, Cell]]:
    """Every instance of every statement, from the domains alone."""
    return Counter((s.name, c) for s in program.statements for c in _domain(s, sizes))


def _domain(s: Statement, sizes: Env) -> Iterator[Cell]:
    reach = max([8, *sizes.values()]) * 40
    seen: set[Cell] = set()
    for conj in s.domain:
        for c in _solve(s.iters, conj, dict.fromkeys(s.iters, (-8, reach)), sizes):
            if c not in seen:
                seen.add(c)
                yield c


def _solve(
    iters: tuple[Axis, ...], conj: Conj, box: dict[Axis, tuple[int, int]], sizes: Env
) -> Iterator[Cell]:
    """Integer points of a conjunction: intervals are narrowed before each choice."""
    narrowed = _narrow(conj, box, sizes)
    if narrowed is None:
        return
    free = next((i for i in iters if narrowed[i][0] < narrowed[i][1]), None)
    if free is None:
        env = {**sizes, **{i: narrowed[i][0] for i in iters}}
        if holds((conj,), env):
            yield tuple(narrowed[i][0] for i in iters)
        return
    for v in range(narrowed[free][0], narrowed[free][1] + 1):
        yield from _solve(iters, conj, {**narrowed, free: (v, v)}, sizes)


def _narrow(
    conj: Conj, box: dict[Axis, tuple[int, int]], sizes: Env
) -> dict[Axis, tuple[int, int]] | None:
    """Intervals of the iterators outside which a fact fails; None if there is nothing inside."""
    box = dict(box)
    work = [e * sign for kind, e in conj for sign in ((1, -1) if kind == "eq" else (1,))]
    changed = True
    while changed:
        changed = False
        for e in work:
            new = _tighten(e, box, sizes)
            if new is None:
                return None
            if new != box:
                box, changed = new, True
    return box


def _tighten(
    e: Lin, box: dict[Axis, tuple[int, int]], sizes: Env
) -> dict[Axis, tuple[int, int]] | None:
    """Intervals narrowed by e >= 0."""
    out = dict(box)
    top = e.const + sum(_most(a, c, box, sizes) for a, c in e.terms.items())
    if top < 0:
        return None
    for a, c in e.terms.items():
        rest = top - _most(a, c, box, sizes)
        if isinstance(a, tuple):
            if a[0] == "//":
                # c*q + rest >= 0 bounds q, and q bounds what is divided.
                most = (rest // -c) * a[2] + a[2] - 1 - a[1]
                inner = a[1] + (rest // c) * a[2] if c > 0 else most
                new = _tighten(inner, out, sizes)
                if new is None:
                    return None
                out = new
            continue
        if a not in out:
            continue
        low, high = out[a]
        out[a] = (max(low, -(rest // c)), high) if c > 0 else (low, min(high, rest // -c))
        if out[a][0] > out[a][1]:
            return None
    return out


def _most(a: Atom, c: int, box: dict[Axis, tuple[int, int]], sizes: Env) -> int:
    low, high = _interval(a, box, sizes)
    return max(c * low, c * high)


def _interval(a: Atom, box: dict[Axis, tuple[int, int]], sizes: Env) -> tuple[int, int]:
    if not isinstance(a, tuple):
        return box[a] if a in box else (sizes[a], sizes[a])  # type: ignore[index]
    if a[0] == "%":
        return 0, a[2] - 1
    parts = [(c, _interval(x, box, sizes)) for x, c in a[1].terms.items()]
    low = a[1].const + sum(min(c * x, c * y) for c, (x, y) in parts)
    high = a[1].const + sum(max(c * x, c * y) for c, (x, y) in parts)
    return low // a[2], high // a[2]


def reference(program: Program, sizes: Env) -> dict[str, dict[Cell, int | None]]:
    """Outputs of a program run in the order of its own tree, by brute force over its loops."""
    memory = Memory()
    memory.fill(program, sizes)
    order = sorted(_timed(program, sizes), key=lambda x: x[0])
    for _, s, point in order:
        env: Env = {**sizes, **dict(zip(s.iters, point, strict=True))}
        refs = []
        for a in s.reads:
            at = tuple(e.evaluate(env) for e in a.affine)
            refs.append(memory.arrays[a.array].get(at) if holds(a.guard, env) else 0)
        results = [value(b, env, refs) for b in s.bodies]
        for access, v in zip(s.writes, results, strict=True):
            at = tuple(e.evaluate(env) for e in access.affine)
            memory.arrays[access.array][at] = v
    return outputs(program, memory)


def _timed(program: Program, sizes: Env) -> Iterator[tuple[tuple[int, ...], Statement, Cell]]:
    """Instances with their time in an unscheduled tree, whose axes are the iterators."""
    for s in program.statements:
        steps = _path(program.tree, s.name)
        for c in _domain(s, sizes):
            env = dict(zip(s.iters, c, strict=True))
            p = program.placements[s.name]
            by_axis = {p.roots[i]: v for i, v in env.items()}
            time = tuple(x if isinstance(x, int) else by_axis[x] for x in steps)
            yield time, s, c


def _path(t: Tree, name: str) -> list[int | Axis]:
    if isinstance(t, At):
        return []
    if isinstance(t, Loop):
        return [t.axis, *_path(t.body, name)]
    for k, i in enumerate(t.items):
        if name in _names(i):
            return [k, *_path(i, name)]
    raise AssertionError(name)


def _names(t: Tree) -> list[str]:
    if isinstance(t, At):
        return [t.stmt]
    if isinstance(t, Loop):
        return _names(t.body)
    return [x for i in t.items for x in _names(i)]


def outputs(program: Program, memory: Memory) -> dict[str, dict[Cell, int | None]]:
    return {a.name: memory.arrays[a] for a in program.arrays if a.role == "output"}


def check(
    before: Program, lowered: Lowered, sizes: Mapping[Var, int], *, counts: bool = True
) -> Machine:
    """Run lowered loops; instances exactly once, outputs as `before`, no stray access."""
    env: Env = dict(sizes)
    machine = Machine(lowered, env).start()
    if counts:
        wanted = instances(lowered.program, env)
        private = {p.name for p in lowered.program.statements if p.writes[0].array.role == "temp"}
        ran = Counter({x: 1 if x[0] in private else n for x, n in machine.ran.items()})
        assert ran == wanted, f"at {sizes}: {str(dict((ran - wanted) or (wanted - ran)))[:400]}"
    want = reference(before, env)
    got = outputs(lowered.program, machine.memory)
    assert got == want, f"at {sizes}"
    assert all(v is not None for cells in got.values() for v in cells.values())
    return machine


__all__ = ["Lin", "Machine", "check", "holds", "instances", "reference"]
