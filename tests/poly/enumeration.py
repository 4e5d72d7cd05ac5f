"""Instances, cells and orders by enumeration, with no code shared with the prover."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

from tensorir.ir.affine import Lin, Region
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array, May, Statement
from tensorir.poly import tree
from tensorir.poly.model import Program

Env = dict[Axis | Var, int]
Forward = dict[Axis, Callable[[Env], int]]
# Source statement and instance, sink statement and instance, array, kinds.
Pair = tuple[str, tuple[int, ...], str, tuple[int, ...], Array, set[str]]


def holds(region: Region, env: Env) -> bool:
    return any(
        all((e.evaluate(env) >= 0) if k == "ge" else (e.evaluate(env) == 0) for k, e in conj)
        for conj in region
    )


@dataclass
class World:
    """A program at given sizes. `forward` computes made axes from a statement's root axes."""

    program: Program
    sizes: dict[Var, int]
    forward: dict[str, Forward] = field(default_factory=dict)
    points: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.points:
            self.points = {s.name: list(self._instances(s)) for s in self.program.statements}

    def only(self, *instances: tuple[str, tuple[int, ...]]) -> World:
        """The same with nothing but these instances, which must be of their domains."""
        points: dict[str, list[tuple[int, ...]]] = {}
        for name, x in instances:
            s = self.program.stmt(name)
            assert holds(s.domain, {**self.sizes, **dict(zip(s.iters, x))})
            points.setdefault(name, []).append(x)
        return World(self.program, self.sizes, self.forward, points)

    def _instances(self, s: Statement) -> Iterator[tuple[int, ...]]:
        for x in product(range(-1, max((3, *self.sizes.values())) + 2), repeat=len(s.iters)):
            env: Env = {**self.sizes, **dict(zip(s.iters, x))}
            if holds(s.domain, env):
                yield x

    def axes(self, name: str, point: tuple[int, ...]) -> Env:
        """The value of every loop axis around an instance."""
        p = self.program.placements[name]
        env: Env = {p.roots[it]: v for it, v in zip(p.stmt.iters, point)}
        for axis, f in self.forward.get(name, {}).items():
            env[axis] = f(env)
        return env

    def time(self, name: str, point: tuple[int, ...]) -> tuple[int, ...]:
        env = self.axes(name, point)
        steps = tree.path(self.program.tree, name) or []
        return tuple(x if isinstance(x, int) else env[x.axis] for x in steps)

    def cells(self, s: Statement, a: Access, point: tuple[int, ...]) -> set[tuple[int, ...]]:
        env: Env = {**self.sizes, **dict(zip(s.iters, point))}
        if not holds(a.guard, env):
            return set()
        dims: list[list[int]] = []
        for index, extent in zip(a.index, a.array.shape):
            if isinstance(index, Lin):
                dims.append([index.evaluate(env)])
                continue
            assert isinstance(index, May)
            low = max(0, index.lower.evaluate(env)) if index.lower is not None else 0
            high = extent.evaluate(env) - 1
            if index.upper is not None:
                high = min(high, index.upper.evaluate(env))
            dims.append(list(range(low, high + 1)))
        return set(product(*dims))

    def kinds(
        self, a: str, x: tuple[int, ...], b: str, y: tuple[int, ...], array: Array
    ) -> set[str]:
        """How two instances conflict in `array`, the first being the source."""
        p, q = self.program.stmt(a), self.program.stmt(b)
        out: set[str] = set()
        for kind, us, vs in (
            ("flow", p.writes, q.reads),
            ("anti", p.reads, q.writes),
            ("output", p.writes, q.writes),
        ):
            for u in us:
                for v in vs:
                    if u.array is array and v.array is array:
                        if self.cells(p, u, x) & self.cells(q, v, y):
                            out.add(kind)
        return out

    def conflicts(self) -> Iterator[Pair]:
        """Ordered pairs of distinct instances, the source first in time, that conflict."""
        arrays = self.program.arrays
        for a, b in product(self.points, repeat=2):
            for x in self.points[a]:
                for y in self.points[b]:
                    if self.time(a, x) < self.time(b, y):
                        for array in arrays:
                            kinds = self.kinds(a, x, b, y, array)
                            if kinds and self.same_copy(a, x, b, y, array):
                                yield a, x, b, y, array, kinds

    def same_copy(
        self, a: str, x: tuple[int, ...], b: str, y: tuple[int, ...], array: Array
    ) -> bool:
        """Whether both instances see one copy of a buffer."""
        buffer = self.program.buffers.get(array)
        if buffer is None:
            return True
        common = set(tree.common(self.program.tree, a, b)[0])
        u, v = self.axes(a, x), self.axes(b, y)
        return all(u[k] == v[k] for k in buffer.outside if k in common)


def exempt(p: Program, a: str, b: str, array: Array) -> bool:
    """What order does not matter to: both only accumulate into `array` with one reducer."""
    s, t = p.stmt(a), p.stmt(b)
    if s.role != "update" or t.role != "update" or s.combiner is not t.combiner:
        return False
    if s.stage != t.stage or not s.combiner.commutative or not s.combiner.associative:
        return False
    return all(
        u.writes[0].array is array and not any(r.array is array for r in u.reads[1:])
        for u in (s, t)
    )


def turned(old: World, new: World) -> list[Pair]:
    """Conflicting pairs that run one way in `old` and not in `new`, exempt ones left out."""
    return [
        c for c in old.conflicts()
        if not exempt(old.program, c[0], c[2], c[4])
        and not new.time(c[0], c[1]) < new.time(c[2], c[3])
    ]  # fmt: skip


def carried(w: World, axis: Axis, lanes: bool) -> list[Pair]:
    """Conflicts between iterations of a loop, what is outside it being equal."""
    out = []
    for a, x, b, y, array, kinds in w.conflicts():
        common = tree.common(w.program.tree, a, b)[0]
        if not any(c is axis for c in common):
            continue
        n = next(k for k, c in enumerate(common) if c is axis)
        u, v = w.axes(a, x), w.axes(b, y)
        if any(u[c] != v[c] for c in common[:n]) or u[axis] == v[axis]:
            continue
        if lanes and a == b and kinds == {"anti"}:
            inner = common[n + 1 :]
            if [u[c] for c in inner] <= [v[c] for c in inner]:
                continue
        out.append((a, x, b, y, array, kinds))
    return out
