"""Instances of statements listed one by one, and a program run in the order of its declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from zlib import crc32

from tensorir.emulator.hashed import Env, Value, evaluator, fit, mix
from tensorir.ir.affine import Conj, Fact, Lin, Region
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array, May, Statement
from tensorir.poly.model import Program
from tensorir.poly.tree import At, Loop, Tree

Cell = tuple[int, ...]
Sizes = Mapping[Axis | Var, int]


class TooMany(Exception):
    """There are more instances than were asked for."""


def holds(conj: Conj, env: Env) -> bool:
    """Whether every fact is true."""
    return all(e.evaluate(env) >= 0 if kind == "ge" else e.evaluate(env) == 0 for kind, e in conj)


def somewhere(region: Region, env: Env) -> bool:
    """Whether a conjunction of the region is true."""
    return any(holds(conj, env) for conj in region)


def points(iters: tuple[Axis, ...], region: Region, sizes: Sizes, most: int) -> set[Cell]:
    """The integer points of a union of conjunctions.

    Raises
    ------
    TooMany
        There are more than `most`.
    """
    found: set[Cell] = set()
    for conj in region:
        for p in _conjunction(iters, conj, sizes):
            found.add(p)
            if len(found) > most:
                raise TooMany
    return found


def _conjunction(iters: tuple[Axis, ...], conj: Conj, sizes: Sizes) -> Iterator[Cell]:
    rows = [(e if s > 0 else -e) for k, e in conj for s in ((1, -1) if k == "eq" else (1,))]
    env: dict[Axis | Var, int] = dict(sizes)
    position: dict[Axis | Var, int] = {a: n for n, a in enumerate(iters)}
    # each bound is used at the last iterator that it names; a floor waits until all are known
    at: list[list[tuple[int, Lin]]] = [[] for _ in iters]
    late: list[list[Fact]] = [[] for _ in range(len(iters) + 1)]
    for e in rows:
        names = [position[a] for a in e.atoms() if a in position]
        last = max(names, default=-1)
        c = e.coef(iters[last]) if last >= 0 else 0
        plain = last >= 0 and not any(
            isinstance(a, tuple) and a[1].involves(iters[last]) for a in e.terms
        )
        if c and plain:
            at[last].append((c, e.without(iters[last])))
        else:
            late[last + 1].append(("ge", e))
    box = _box(iters, rows, sizes)
    if box is None:
        return

    def go(k: int) -> Iterator[Cell]:
        if not holds(tuple(late[k]), env):
            return
        if k == len(iters):
            yield tuple(env[a] for a in iters)
            return
        low, high = box[iters[k]]
        for c, rest in at[k]:
            x = rest.evaluate(env)
            if c > 0:
                low = max(low, -(x // c))
            else:
                high = min(high, x // -c)
        for v in range(low, high + 1):
            env[iters[k]] = v
            yield from go(k + 1)

    yield from go(0)


def _box(
    iters: tuple[Axis, ...], rows: list[Lin], sizes: Sizes
) -> dict[Axis, tuple[int, int]] | None:
    """Ranges of the iterators, by narrowing intervals; None if the conjunction is empty."""
    box: dict[Axis, tuple[int, int]] = dict.fromkeys(iters, (-_WIDE, _WIDE))
    for _ in range(2 * len(iters) + 2):
        before = dict(box)
        for e in rows:
            if any(isinstance(a, tuple) for a in e.terms):
                continue
            tops = {
                a: _top(a, c, box, sizes) for a, c in e.terms.items() if not isinstance(a, tuple)
            }
            total = e.const + sum(tops.values())
            if total < 0:
                return None
            for a, c in e.terms.items():
                if not isinstance(a, Axis):
                    continue
                low, high = box[a]
                rest = total - tops[a]
                if c > 0:
                    low = max(low, -(rest // c))
                else:
                    high = min(high, rest // -c)
                if low > high:
                    return None
                box[a] = low, high
                tops[a] = _top(a, c, box, sizes)
                total = rest + tops[a]
        if box == before:
            break
    return box


_WIDE = 1 << 40


def _top(a: Axis | Var, c: int, box: Mapping[Axis, tuple[int, int]], sizes: Sizes) -> int:
    if isinstance(a, Axis):
        return c * box[a][1] if c > 0 else c * box[a][0]
    return c * sizes[a]


def input_value(array: Array, cell: Cell) -> int:
    """What an input holds: a hash of the place, the same for every program over it."""
    return fit(mix(crc32(array.name.encode()), *cell), array.dtype)


def index_of(access: Access, env: Env, refs: list[Value], shape: tuple[int, ...]) -> Cell | None:
    """The cell of an access; a loaded index that is outside is moved inside. None: unknown, or
    nowhere."""
    cell: list[int] = []
    for d, i in enumerate(access.index):
        if isinstance(i, Lin):
            cell.append(i.evaluate(env))
            continue
        x = evaluator(i.value, regroup=False)(env, refs)
        if x is None or shape[d] <= 0 or (i.skip and not 0 <= x < shape[d]):
            return None
        cell.append(x if 0 <= x < shape[d] else x % shape[d])
    return tuple(cell)


def nowhere(access: Access, env: Env, refs: list[Value], shape: tuple[int, ...]) -> bool:
    """Whether an index that is loaded lies outside and nothing is to happen there."""
    for d, i in enumerate(access.index):
        if isinstance(i, May) and i.skip:
            x = evaluator(i.value, regroup=False)(env, refs)
            if x is not None and not 0 <= x < shape[d]:
                return True
    return False


def ordered(
    program: Program, sizes: Sizes, most: int
) -> list[tuple[tuple[int, ...], Statement, Cell]]:
    """Every instance of an unscheduled program with its time, in order."""
    out: list[tuple[tuple[int, ...], Statement, Cell]] = []
    for p in program.placements.values():
        s = p.stmt
        steps = _path(program.tree, s.name)
        here = {p.roots[i]: k for k, i in enumerate(s.iters)}
        for c in points(s.iters, s.domain, sizes, most - len(out)):
            time = tuple(x if isinstance(x, int) else c[here[x]] for x in steps)
            out.append((time, s, c))
    out.sort(key=lambda x: x[0])
    return out


def _path(t: Tree, name: str) -> list[int | Axis]:
    """Axes, and positions in sequences, on the way to a statement."""
    if isinstance(t, At):
        return []
    if isinstance(t, Loop):
        return [t.axis, *_path(t.body, name)]
    k, item = next((k, i) for k, i in enumerate(t.items) if _holds(i, name))
    return [k, *_path(item, name)]


def _holds(t: Tree, name: str) -> bool:
    if isinstance(t, At):
        return t.stmt == name
    return any(_holds(i, name) for i in ((t.body,) if isinstance(t, Loop) else t.items))


def declared_outputs(
    program: Program, sizes: Sizes, most: int, *, regroup: bool
) -> dict[str, dict[Cell, tuple[Value, str]]]:
    """What an unscheduled program writes: by output and cell, the value and the last writer."""
    memory: dict[Array, dict[Cell, Value]] = {a: {} for a in program.arrays}
    writer: dict[Array, dict[Cell, str]] = {a: {} for a in program.arrays if a.role == "output"}
    shapes = {a: tuple(e.evaluate(dict(sizes)) for e in a.shape) for a in program.arrays}
    bodies = {s.name: [evaluator(b, regroup=regroup) for b in s.bodies] for s in program.statements}
    for _, s, point in ordered(program, sizes, most):
        env: Env = {**sizes, **dict(zip(s.iters, point, strict=True))}
        refs: list[Value] = []
        for a in s.reads:
            cell = index_of(a, env, refs, shapes[a.array]) if somewhere(a.guard, env) else None
            if cell is None:
                refs.append(None)
            elif a.array.role == "input":
                refs.append(input_value(a.array, cell))
            else:
                refs.append(memory[a.array].get(cell))
        results = [b(env, refs) for b in bodies[s.name]]
        for a, v in zip(s.writes, results, strict=True):
            cell = index_of(a, env, refs, shapes[a.array])
            assert cell is not None
            memory[a.array][cell] = v
            if a.array in writer:
                writer[a.array][cell] = f"{s.name}({', '.join(map(str, point))})"
    return {
        a.name: {c: (v, writer[a][c]) for c, v in memory[a].items()}
        for a in program.arrays
        if a.role == "output"
    }
