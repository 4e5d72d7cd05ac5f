"""Lowered loops run instance by instance in plain Python, every rule of the loops checked.

Vector lanes go in lock step, reads before writes. Iterations of a parallel loop run backwards,
and no two of them may touch one cell that either writes. A buffer forgets what it holds when a
loop outside it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tensorir.emulator.hashed import Evaluator, Value, evaluator
from tensorir.emulator.points import (
    Cell,
    Sizes,
    holds,
    index_of,
    input_value,
    nowhere,
    points,
    somewhere,
)
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array, Statement
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run, Storage
from tensorir.lower.pipeline import Lowered

Env = dict[Axis | Var, int]
Lanes = Sequence[Env]


class Fault(Exception):
    """A rule that the loops break, with the instance that shows it."""


@dataclass(slots=True, eq=False)
class _Memory:
    """Cells of an array or of one allocation of a buffer."""

    storage: Storage | None
    shape: tuple[int, ...]
    cells: dict[Cell, Value] = field(default_factory=dict)
    at: tuple[int, ...] = ()  # the point of the loops outside a buffer that its cells belong to


@dataclass(slots=True, eq=False)
class _Shared:
    """Who touched what in a parallel loop."""

    task: int
    memories: set[int]
    wrote: dict[tuple[int, Cell], int] = field(default_factory=dict)
    read: dict[tuple[int, Cell], int | None] = field(default_factory=dict)
    updated: dict[tuple[int, Cell], int | None] = field(default_factory=dict)  # by atomic ones


@dataclass(slots=True, eq=False)
class _Plan:
    """What a run needs, worked out once."""

    args: list[Callable[[Env], int]]
    conds: list[Callable[[Env], int]]
    read_conds: list[Callable[[Env], int]]
    bodies: list[Evaluator]
    places: dict[Access, list[Callable[[Env], int]] | None]
    indices: dict[Access, list[Callable[[Env], int]] | None]
    guarded: dict[Access, bool]


class Machine:
    """One run at given sizes; `outputs` holds what was written."""

    def __init__(self, lowered: Lowered, sizes: Sizes, *, most: int, regroup: bool) -> None:
        self.lowered, self.sizes, self.regroup = lowered, sizes, regroup
        program = lowered.program
        self.expected = {s.name: points(s.iters, s.domain, sizes, most) for s in program.statements}
        self.ran: dict[str, set[Cell]] = {name: set() for name in self.expected}
        self.memory: dict[Array, _Memory] = {}
        env: Env = dict(sizes)
        for a in program.arrays:
            self.memory[a] = _Memory(None, tuple(e.evaluate(env) for e in a.shape))
        self.declared = {a: m.shape for a, m in self.memory.items()}
        self.writer: dict[tuple[str, Cell], str] = {}
        self.shared: _Shared | None = None
        self.plans: dict[Run, _Plan] = {}
        self.go(lowered.body, [env])
        self._all_ran()

    # -- loops

    def go(self, n: Node, lanes: Lanes) -> None:
        if isinstance(n, Block):
            for i in n.items:
                self.go(i, lanes)
        elif isinstance(n, Run):
            self.run(n, lanes)
        elif isinstance(n, For):
            self.loop(n, lanes)
        elif isinstance(n, If):
            body = n.body if holds(n.conds, lanes[0]) else n.other
            if body is not None:
                self.go(body, lanes)
        else:
            self.allocate(n, lanes)

    def loop(self, n: For, lanes: Lanes) -> None:
        first, last = self.range(n, lanes[0])
        if n.kind == "vectorize":
            width = n.width or 1
            for base in range(first, last + 1, width):
                (env,) = lanes
                if self._in_order(n):
                    for k in range(width):
                        self.go(n.body, [{**env, n.axis: base + k}])
                else:
                    self.go(n.body, [{**env, n.axis: base + k} for k in range(width)])
            return
        outer = n.kind == "parallel" and self.shared is None
        values = range(first, last + 1)
        for v in reversed(values) if outer else values:
            if outer and self.shared is None:
                self.shared = _Shared(v, {id(m) for m in self.memory.values()})
            if outer and self.shared is not None:
                self.shared.task = v
            for env in lanes:
                env[n.axis] = v
            self.go(n.body, lanes)
        for env in lanes:
            env.pop(n.axis, None)
        if outer:
            self.shared = None

    def _in_order(self, n: For) -> bool:
        """Whether the lanes are combined into one cell."""
        mark = self.lowered.marks.get(n.axis)
        return mark is not None and mark.bind == "reduce"

    def range(self, n: For, env: Env) -> tuple[int, int]:
        lows = [-(-e.evaluate(env) // c) for c, e in n.lower]
        highs = [e.evaluate(env) // c for c, e in n.upper]
        first = min(lows) if n.hull else max(lows)
        last = max(highs) if n.hull else min(highs)
        if n.extent is not None and (first, last) != (0, n.extent - 1):
            raise Fault(f"loop {n.axis.name} runs {first}..{last}, but says {n.extent} from 0")
        top = self.lowered.ranges.get(n.axis)
        if first <= last and top is not None and (first < 0 or last > top):
            raise Fault(f"loop {n.axis.name} runs {first}..{last}, outside 0..{top}")
        return first, last

    def allocate(self, n: Alloc, lanes: Lanes) -> None:
        array = n.buffer.array
        before = self.memory[array]
        shape = tuple(e.evaluate(lanes[0]) for e in n.buffer.shape)
        self.memory[array] = _Memory(n.buffer, shape)
        self.go(n.body, lanes)
        self.memory[array] = before

    # -- instances

    def plan(self, n: Run) -> _Plan:
        found = self.plans.get(n)
        if found is not None:
            return found
        s = n.statement
        places: dict[Access, list[Callable[[Env], int]] | None] = {}
        for a in (*s.writes, *s.reads):
            cell = self.lowered.cell(a, n)
            places[a] = None if cell is None else [_affine(e) for e in cell]
        made = self.plans[n] = _Plan(
            [_affine(e) for e in n.args],
            [_affine(e) for e in n.conds],
            [_affine(e) for e in n.read_conds],
            [evaluator(b, regroup=self.regroup) for b in s.bodies],
            places,
            {a: [_affine(e) for e in a.affine] if a.exact else None for a in places},
            {a: a.guard != ((),) for a in places},
        )
        return made

    def run(self, n: Run, lanes: Lanes) -> None:
        """Every lane reads, then every lane writes."""
        plan, s = self.plan(n), n.statement
        waiting: list[tuple[Env, Env, tuple[int, ...], bool, list[Value], list[Value]]] = []
        for env in lanes:
            if any(c(env) < 0 for c in plan.conds):
                continue
            args = tuple(f(env) for f in plan.args)
            loads = all(c(env) >= 0 for c in plan.read_conds)
            real = args in self.expected[s.name]
            if not loads and all(a.array.role == "temp" for a in s.writes):
                real = False  # padding that bears the name of an instance
            own: Env = {**self.sizes, **dict(zip(s.iters, args, strict=True))}
            if real:
                self._once(s, args, loads=loads)
            refs: list[Value] = [None] * len(s.reads)
            for k in s.read_order if loads else ():
                refs[k] = self.load(plan, n, s.reads[k], own, env, refs, args)
            values = [b(own, refs) if loads else None for b in plan.bodies]
            waiting.append((env, own, args, real, refs, values))
        for env, own, args, real, refs, values in waiting:
            for a, v in zip(s.writes, values, strict=True):
                self.store(plan, n, a, own, env, refs, args, v if real else None, real=real)

    def _once(self, s: Statement, args: tuple[int, ...], *, loads: bool) -> None:
        if not loads:
            raise Fault(f"{_name(s, args)} runs without its loads")
        # padding of a private buffer may repeat what another point of the loops outside computes;
        # were it more than padding, the values would tell
        if args in self.ran[s.name] and any(a.array.role != "temp" for a in s.writes):
            raise Fault(f"{_name(s, args)} runs twice")
        self.ran[s.name].add(args)

    def _all_ran(self) -> None:
        for s in self.lowered.program.statements:
            missing = self.expected[s.name] - self.ran[s.name]
            if missing:
                raise Fault(f"{_name(s, min(missing))} never runs")

    # -- memory

    def place(
        self, plan: _Plan, n: Run, a: Access, own: Env, env: Env, refs: list[Value],
        args: tuple[int, ...],
    ) -> tuple[_Memory, Cell] | None:  # fmt: skip
        """Where an access goes; None for a loaded index that is not known."""
        memory = self.memory[a.array]
        written = plan.indices[a]
        if written is not None:
            index: Cell | None = tuple([f(own) for f in written])
        else:
            index = index_of(a, own, refs, self.declared[a.array])
        if index is None:
            return None
        storage = memory.storage
        cell = index
        if storage is not None:
            local = [x - o.evaluate(env) for x, o in zip(index, storage.origin, strict=True)]
            parts = [
                local[d] if op is None else local[d] // t if op == "//" else local[d] % t
                for d, op, t in storage.dims
            ]
            cell = (*parts, *(env[x] for x in storage.lanes))
            lanes = dict.fromkeys(storage.lanes)
            point = tuple(env.get(x, -1) for x in storage.outside if x not in lanes)
            if point != memory.at:
                memory.cells.clear()
                memory.at = point
        computed = plan.places[a]
        got = cell if computed is None else tuple([f(env) for f in computed])
        if got != cell:
            raise Fault(f"{_name(n.statement, args)}: {a.array.name}{cell} is addressed as {got}")
        if any(x < 0 or x >= m for x, m in zip(cell, memory.shape, strict=True)):
            raise Fault(
                f"{_name(n.statement, args)} touches {a.array.name}{cell}, outside {memory.shape}"
            )
        return memory, cell

    def load(
        self, plan: _Plan, n: Run, a: Access, own: Env, env: Env, refs: list[Value],
        args: tuple[int, ...],
    ) -> Value:  # fmt: skip
        if plan.guarded[a] and not somewhere(a.guard, own):
            return None
        found = self.place(plan, n, a, own, env, refs, args)
        if found is None:
            return None
        memory, cell = found
        if a.array.role == "input":
            return input_value(a.array, cell)
        shared = self.shared
        if shared is not None and id(memory) in shared.memories:
            key = id(memory), cell
            if n.statement.atomic and a is n.statement.reads[0]:
                return memory.cells.get(cell)  # `store` looks for races with other statements
            for other in (shared.wrote.get(key, shared.task), shared.updated.get(key, shared.task)):
                if other != shared.task:
                    raise self._race(n, args, a, cell, other)
            known = shared.read.setdefault(key, shared.task)
            if known != shared.task:
                shared.read[key] = None
        return memory.cells.get(cell)

    def store(
        self, plan: _Plan, n: Run, a: Access, own: Env, env: Env, refs: list[Value],
        args: tuple[int, ...], v: Value, *, real: bool,
    ) -> None:  # fmt: skip
        s = n.statement
        if not real and a.array.role != "temp":
            raise Fault(f"{_name(s, args)} is no instance, but writes {a.array.name}")
        found = self.place(plan, n, a, own, env, refs, args)
        if found is None:
            if nowhere(a, own, refs, self.declared[a.array]):
                return
            raise Fault(f"{_name(s, args)} writes {a.array.name} at an unknown index")
        memory, cell = found
        shared = self.shared
        if shared is not None and id(memory) in shared.memories:
            key = id(memory), cell
            others = [shared.wrote.get(key, shared.task), shared.read.get(key, shared.task)]
            if not s.atomic:
                others.append(shared.updated.get(key, shared.task))
            for other in others:
                if other != shared.task:
                    raise self._race(n, args, a, cell, other)
            if not s.atomic:
                shared.wrote[key] = shared.task
            elif shared.updated.setdefault(key, shared.task) != shared.task:
                shared.updated[key] = None
        memory.cells[cell] = v
        if a.array.role == "output":
            self.writer[a.array.name, cell] = _name(s, args)

    def _race(
        self, n: Run, args: tuple[int, ...], a: Access, cell: Cell, other: int | None
    ) -> Fault:
        assert self.shared is not None
        who = "several" if other is None else str(other)
        return Fault(
            f"{_name(n.statement, args)} in iteration {self.shared.task} of a parallel loop "
            f"touches {a.array.name}{cell}, which iteration {who} touches too"
        )

    @property
    def outputs(self) -> Mapping[str, dict[Cell, Value]]:
        """What each output holds."""
        arrays = self.lowered.program.arrays
        return {a.name: self.memory[a].cells for a in arrays if a.role == "output"}


def _name(s: Statement, args: tuple[int, ...]) -> str:
    return f"{s.name}({', '.join(map(str, args))})"


def _affine(e: Lin) -> Callable[[Env], int]:
    """`e.evaluate`, with the common forms made quick."""
    terms = list(e.terms.items())
    const = e.const
    if not terms:
        return lambda env: const
    if any(isinstance(a, tuple) for a, _ in terms):
        return lambda env: e.evaluate(env)
    plain = [(a, v) for a, v in terms if not isinstance(a, tuple)]
    if len(plain) == 1:
        a, v = plain[0]
        return lambda env: const + v * env[a]
    return lambda env: const + sum(v * env[a] for a, v in plain)
