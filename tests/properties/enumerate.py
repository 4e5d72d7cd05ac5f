"""Legality by brute force: instances listed one by one, conflicts found cell by cell.

Shares no code with the library's proofs: it knows the text of a nest and what a request means.
A nest is legal to transform if that turns no conflicting pair around, at each of several sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from tests.conformance.nests import Nest

Point = dict[str, int]
Value = Callable[[Point], int]
Cell = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Pair:
    """Two instances, the first before the second as declared, and what they share."""

    first: Point
    second: Point
    cell: Cell
    kinds: frozenset[str]  # flow, anti, output
    exempt: bool


@dataclass(frozen=True)
class Loop:
    """A loop of the nest as it is now: its name, its value at a point, how it runs."""

    name: str
    value: Value
    kind: str = "serial"


def code(text: str) -> Value:
    """An index or bound as a function of a point."""
    compiled = compile(text, text, "eval")
    return lambda p: int(eval(compiled, {}, p))


def references(nest: Nest) -> tuple[tuple[str, list[Value]], list[tuple[str, list[Value]]]]:
    """The cell written, and those read."""

    def one(text: str) -> tuple[str, list[Value]]:
        name, index = text[:-1].split("[")
        return name, [code(e) for e in index.split(",")]

    return one(nest.write), [one(r) for r in nest.reads]


def points(nest: Nest, n: int) -> list[Point]:
    """Every instance, in order."""
    names = nest.loops.split(",")
    bounds = [tuple(code(b) for b in nest.bounds[x]) for x in names]

    def go(k: int, p: Point) -> Iterator[Point]:
        if k == len(names):
            yield {x: p[x] for x in names}
            return
        low, high = bounds[k]
        for v in range(low(p), high(p)):
            yield from go(k + 1, {**p, names[k]: v})

    return list(go(0, {"N": n}))


def pairs(nest: Nest, n: int) -> list[Pair]:
    """Every two instances of which one writes a cell that the other touches."""
    write, reads = references(nest)
    wrote: dict[Cell, list[int]] = {}
    touched: dict[Cell, list[int]] = {}
    listed = points(nest, n)
    cells: list[tuple[Cell, list[Cell]]] = []
    for k, p in enumerate(listed):
        env = {**p, "N": n}
        w = (write[0], tuple(e(env) for e in write[1]))
        rs = [(name, tuple(e(env) for e in index)) for name, index in reads]
        cells.append((w, rs))
        wrote.setdefault(w, []).append(k)
        for r in rs:
            touched.setdefault(r, []).append(k)
    # an accumulator that is read in another way too is none
    algebra = nest.reduction and not any(r[0] == write[0] for r in reads[1:])
    out: list[Pair] = []
    for cell, writers in wrote.items():
        everyone = sorted(set(writers) | set(touched.get(cell, [])))
        for a in everyone:
            for b in everyone:
                if a >= b:
                    continue
                (wa, ra), (wb, rb) = cells[a], cells[b]
                kinds = set()
                if wa == cell and cell in rb:
                    kinds.add("flow")
                if cell in ra and wb == cell:
                    kinds.add("anti")
                if wa == cell and wb == cell:
                    kinds.add("output")
                if kinds:
                    out.append(Pair(listed[a], listed[b], cell, frozenset(kinds), algebra))
    return out


@dataclass
class World:
    """A nest with its conflicts at several sizes, and the loops as accepted requests left them."""

    nest: Nest
    sizes: tuple[int, ...]
    loops: list[Loop] = field(default_factory=list)
    conflicts: dict[int, list[Pair]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loops = [Loop(x, code(x)) for x in self.nest.loops.split(",")]
        self.conflicts = {n: pairs(self.nest, n) for n in self.sizes}

    def names(self) -> list[str]:
        return [x.name for x in self.loops]

    def after(self, request: tuple[str, tuple[object, ...]]) -> list[Loop]:
        """The loops that a request asks for."""
        what, args = request
        loops = list(self.loops)
        if what == "reorder":
            names = [str(a) for a in args]
            places = sorted(self.names().index(x) for x in names)
            for place, name in zip(places, names, strict=True):
                loops[place] = self.loops[self.names().index(name)]
            return loops
        if what == "parallel":
            return [_as(x, "parallel") if x.name == args[0] else x for x in loops]
        name, factor = str(args[0]), int(str(args[1]))
        k = self.names().index(name)
        if what == "vectorize":
            outer, inner = _split(loops[k], factor, (name, f"{name}.v"))
            return [*loops[:k], outer, _as(inner, "vectorize"), *loops[k + 1 :]]
        assert what == "split", what
        outer, inner = _split(loops[k], factor, (f"{name}o", f"{name}i"))
        return [*loops[:k], outer, inner, *loops[k + 1 :]]

    def violations(self, loops: list[Loop]) -> Iterator[tuple[int, Pair, Loop | None]]:
        """Conflicts that these loops break: by size, with the loop that races (None: turned)."""
        for n, found in self.conflicts.items():
            for c in found:
                first = [x.value(c.first) for x in loops]
                second = [x.value(c.second) for x in loops]
                if not c.exempt and not first < second:
                    yield n, c, None
                for k, x in enumerate(loops):
                    if x.kind == "serial":
                        continue
                    if first[:k] != second[:k] or first[k] == second[k]:
                        continue
                    if x.kind == "vectorize" and c.kinds == {"anti"}:
                        if first[k + 1 :] <= second[k + 1 :]:
                            continue
                    yield n, c, x

    def confirms(self, loops: list[Loop], n: int, a: Point, b: Point, cell: Cell) -> bool:
        """Whether these two instances are a pair that these loops break."""
        if n not in self.conflicts:
            self.conflicts = {**self.conflicts, n: pairs(self.nest, n)}
        return any(
            m == n and c.cell == cell and [c.first, c.second] in ([a, b], [b, a])
            for m, c, _ in self.violations(loops)
        )


def _as(x: Loop, kind: str) -> Loop:
    return Loop(x.name, x.value, kind)


def _split(x: Loop, factor: int, names: tuple[str, str]) -> tuple[Loop, Loop]:
    return (
        Loop(
            names[0], lambda p: x.value(p) // factor, x.kind if x.kind == "parallel" else "serial"
        ),
        Loop(names[1], lambda p: x.value(p) % factor),
    )


def merged(loops: list[Loop], name: str) -> list[Loop]:
    """Loops in which all of `name` is one vector: there was nothing to split."""
    lanes = next(x for x in loops if x.name == f"{name}.v")
    return [
        Loop(name, lanes.value, "vectorize") if x is lanes else x for x in loops if x.name != name
    ]


# -- random nests and requests

_BOUNDS = [("0", "N"), ("0", "N"), ("1", "N"), ("1", "N-1"), ("0", "4")]


def draw(rng: Random) -> Nest:
    """A random small nest that works in place."""
    names = ["i", "j", "k"][: rng.choice([1, 2, 2, 2, 3])]
    bounds = {x: rng.choice(_BOUNDS) for x in names}
    if len(names) > 1 and rng.random() < 0.3:
        bounds["j"] = rng.choice([("0", "i+1"), ("0", "i"), ("i", "N")])
    used = names if rng.random() < 0.8 else names[:-1] or names
    dims = rng.choice([1, 2]) if len(used) > 1 else 1

    def term(x: str) -> str:
        return rng.choice([x, x, x, x, f"{x}+1", f"{x}-1", f"2*{x}"])

    def index() -> str:
        if dims == 1:
            return rng.choice([term(used[0]), "+".join(used), term(used[-1])])
        picked = used[:2] if rng.random() < 0.8 else used[:2][::-1]
        return ",".join(term(x) for x in picked)

    write = "a[" + (",".join(used[:2]) if dims == 2 and rng.random() < 0.7 else index()) + "]"
    if rng.random() < 0.2:
        return Nest(",".join(names), bounds, write, (write, f"b[{names[-1]}]"), True)
    reads = [f"a[{index()}]" for _ in range(rng.randint(0, 2))]
    return Nest(",".join(names), bounds, write, (*reads, f"b[{names[-1]}]"))


def ask(world: World, rng: Random) -> tuple[str, tuple[object, ...]]:
    """A random request that is well formed."""
    serial = [x.name for x in world.loops if x.kind == "serial"]
    if not serial:
        return "split", (world.loops[0].name, 2)
    what = rng.choice(["reorder"] * 3 + ["split"] * 2 + ["parallel"] * 2 + ["vectorize"] * 2)
    name = rng.choice(serial)
    if what == "reorder":
        if len(world.loops) < 2:
            return "split", (name, rng.choice([2, 3]))
        names = world.names()
        rng.shuffle(names)
        return what, tuple(names[: rng.randint(2, len(names))])
    if what == "parallel":
        return what, (name,)
    return what, (name, rng.choice([2, 3]) if what == "split" else rng.choice([2, 4]))
