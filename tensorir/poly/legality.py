"""Does a step turn a conflict around, does a loop carry one, and the smallest instance of it.

Every schedule is legal by induction, so a step is judged against the order before it. What a
reducer exempts (`conflict.Conflict.exempt`) may be turned; it is never free to race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array
from tensorir.poly import isl, tree
from tensorir.poly.conflict import Conflict, Kind, Part, conflicts
from tensorir.poly.isl import Map
from tensorir.poly.model import Program
from tensorir.poly.relation import access_map, context_set, ordered, point_map
from tensorir.poly.tree import Loop

RACING = ("parallel", "vectorize", "bind")


@dataclass(frozen=True, slots=True, eq=False)
class Violation:
    """Pairs of instances that a request would run in the wrong order, or at once.

    Parameters
    ----------
    source, sink
        Names of the statements; the source must run first.
    relation
        Source instances to sink instances, not empty.
    array
        What they fight over.
    axes
        The loops around both, outer to inner, in `program`.
    program
        The program in which distances are measured: the new one of a step.
    parts
        The same pairs by kind of conflict.
    exempt
        Whether all are of a declared reduction: refused only because they would race.
    """

    source: str
    sink: str
    relation: Map
    array: Array
    axes: tuple[Axis, ...]
    program: Program = field(repr=False)
    parts: tuple[Part, ...] = field(repr=False)
    exempt: bool

    @property
    def kind(self) -> Kind:
        """The kind of the first conflict found: flow, then anti, then output."""
        for p in self.parts:
            if not p.relation.intersect(self.relation).is_empty():
                return p.kind
        return "output"


class Instance(NamedTuple):
    """A statement's name, and the value of each of its iterators by name."""

    stmt: str
    at: dict[str, int]


@dataclass(frozen=True, slots=True)
class Witness:
    """The smallest instance of a violation: smallest sizes, earliest source, earliest sink.

    `cell` is the index in `array` that both touch; `distance` is sink minus source for each loop
    around both.
    """

    sizes: dict[str, int]
    source: Instance
    sink: Instance
    array: Array
    cell: tuple[int, ...]
    kind: Kind
    distance: dict[str, int]


# -- does a step turn a conflict around
def turned(old: Program, new: Program, names: Iterable[str]) -> Violation | None:
    """A conflict that runs one way in `old` and not in `new`; None: the step keeps the meaning.

    Conflicts of a declared reduction, whose reducer is associative and commutative, are left out.

    Parameters
    ----------
    old, new
        Before and after the step. Statements that are not in both are not judged.
    names
        Statements under the loops that the step changed.

    Raises
    ------
    BudgetExceeded
        It could not be decided.
    """
    with isl.budget():
        for found in _turned(old, new, names):
            if not (found.exempt and _whole(found, old, new)):
                return found
    return None


def reassociates(old: Program, new: Program, names: Iterable[str]) -> bool:
    """Whether the step turns a conflict that the algebra of an inexact reduction exempts.

    Results may then differ in their last bits. An exact reducer's (integer sums, min, max) do not.
    """
    with isl.budget():
        for found in _turned(old, new, names, exempt_only=True):
            reducer = old.stmt(found.source).combiner
            if found.exempt and reducer is not None and not reducer.exact:
                return True
    return False


def _turned(
    old: Program, new: Program, names: Iterable[str], *, exempt_only: bool = False
) -> Iterator[Violation]:
    both = [n for n in dict.fromkeys(names) if n in old.placements and n in new.placements]
    for a, b, conflict in conflicts(old, both):
        exempt = _is_exempt(old, a, b, conflict)
        if exempt_only and not exempt:
            continue
        for source, sink in ((a, b), (b, a)) if a != b else ((a, b),):
            wrong = _turned_times(old, new, source, sink, conflict.array)
            if wrong is None:
                continue
            here = conflict if source == a else conflict.reverse()
            relation = wrong.pairs(here.relation)
            if relation is not None:
                axes, array = tree.common(new.tree, source, sink)[0], conflict.array
                yield Violation(source, sink, relation, array, axes, new, here.parts, exempt)


@dataclass(frozen=True, slots=True, eq=False)
class _Wrong:
    """Instances of two statements to loop points, and the pairs of points that are wrong."""

    source: Map
    sink: Map
    order: Map

    def pairs(self, relation: Map) -> Map | None:
        """The pairs of `relation` at wrong points; None where there are none."""
        times = relation.apply_domain(self.source).apply_range(self.sink)
        if times.intersect(self.order).is_empty():
            return None
        back = self.source.apply_range(self.order).apply_range(self.sink.reverse())
        return back.intersect(relation)


def _turned_times(
    old: Program, new: Program, source: str, sink: str, array: Array
) -> _Wrong | None:
    """Where the source is first in `old` and not in `new`; None: nowhere.

    An axis that is in both programs has one value for an instance, so the order relation is over
    the distinct axes of both.
    """
    before, order_before = tree.common(old.tree, source, sink)
    after, order_after = tree.common(new.tree, source, sink)
    axes = tuple(dict.fromkeys((*before, *after)))
    place = {a: k for k, a in enumerate(axes)}
    wrong = _turned_order(
        len(axes),
        tuple(place[a] for a in before),
        order_before,
        tuple(place[a] for a in after),
        order_after,
    )
    if wrong is None:
        return None
    buffer = old.buffers.get(array)
    if buffer is not None:
        common = set(before)
        kept = tuple(place[a] for a in buffer.outside if a in common)
        wrong = _and_equal(wrong, kept, len(axes))
    return _Wrong(_both(old, new, source, axes), _both(old, new, sink, axes), wrong)


def _both(old: Program, new: Program, name: str, axes: tuple[Axis, ...]) -> Map:
    """Instances to `axes`, each taken from the program that has it around the statement."""
    here = set(new.placements[name].axes)
    if all(a in here for a in axes):
        return ordered(new, name, axes)
    there = set(old.placements[name].axes)
    if all(a in there for a in axes):
        return ordered(old, name, axes)
    late = tuple(a for a in axes if a not in there)
    early = tuple(a for a in axes if a in there)
    m = ordered(old, name, early).flat_range_product(ordered(new, name, late))
    place = {a: k for k, a in enumerate((*early, *late))}
    return isl.select(m, [place[a] for a in axes])


# -- exempt pairs
def _is_exempt(program: Program, a: str, b: str, conflict: Conflict) -> bool:
    if conflict.exempt != "copy":
        return conflict.exempt == "update"
    return all(_outer_end(program, n, conflict.array) for n in (a, b))


def _outer_end(program: Program, name: str, array: Array) -> bool:
    """Of the load or write back of an accumulator: whether `array` is what it is kept for."""
    stmt = program.stmt(name)
    if stmt.role != "copy":
        return True
    other = next(x.array for x in (*stmt.writes, *stmt.reads) if x.array is not array)
    return _depth(program, other) > _depth(program, array)


def _depth(program: Program, array: Array) -> int:
    buffer = program.buffers.get(array)
    return len(buffer.outside) if buffer is not None else 0


def _whole(found: Violation, old: Program, new: Program) -> bool:
    """Whether loads and write backs of accumulators moved together.

    A load, its updates and its write back are one update of the cell between them. Turning two of
    these is the reducer's right; letting one run inside the other loses a value. So where a load
    is turned against a write back, the write back must be turned against the load.
    """
    source, sink = _partner(old, found.source), _partner(old, found.sink)
    if source is None or sink is None:
        return False
    if (source, sink) == (found.source, found.sink):
        return True
    wrong = _turned_times(old, new, source, sink, found.array)
    other = wrong.pairs(found.relation) if wrong is not None else None
    return other is not None and found.relation.is_subset(other)


def _partner(program: Program, name: str) -> str | None:
    """The write back of a load and the load of a write back; itself for any other statement."""
    stmt = program.stmt(name)
    if stmt.role != "copy":
        return name
    for other in program.statements:
        back = other.role == "copy" and other.combiner is stmt.combiner
        if back and other.stage == stmt.stage and len(other.iters) == len(stmt.iters):
            reads, writes = other.reads[0].array, other.writes[0].array
            if reads is stmt.writes[0].array and writes is stmt.reads[0].array:
                return other.name
    return None


# -- does a loop carry a conflict
def carried(program: Program, axis: Axis, *, lanes: bool = False) -> Violation | None:
    """A conflict between two iterations of the loop over `axis`, the loops outside being equal.

    Reductions are not exempt: iterations that run at once race. A buffer that exists once for
    each iteration has no conflict between them.

    Parameters
    ----------
    lanes
        Iterations go in lock step, one instruction at a time: a cell that a statement reads
        before a later iteration of the same statement writes it is then safe.
    """
    loop = tree.find(program.tree, axis)
    if loop is None:
        return None
    with isl.budget():
        for a, b, conflict in conflicts(program, tree.stmts(loop)):
            found = _carried_pair(program, axis, a, b, conflict, lanes=lanes)
            if found is not None:
                return found
    return None


def _carried_pair(
    program: Program, axis: Axis, a: str, b: str, conflict: Conflict, *, lanes: bool
) -> Violation | None:
    buffer = program.buffers.get(conflict.array)
    outside = set(buffer.outside) if buffer is not None else set()
    if axis in outside:
        return None
    common, _ = tree.common(program.tree, a, b)
    n = next(k for k, x in enumerate(common) if x is axis)
    deeper = tuple(x for x in common[n + 1 :] if x in outside)
    if lanes and a == b:
        return _carried_lanes(program, common, n, a, conflict, outside)
    axes = (*common[: n + 1], *deeper)
    equal = tuple(("eq", k) for k in (*range(n), *range(n + 1, len(axes))))
    later = _pieces(len(axes), (("lt", n), *equal))
    first, second = ordered(program, a, axes), ordered(program, b, axes)
    for source, sink in ((a, b), (b, a)) if a != b else ((a, b),):
        here = conflict if source == a else conflict.reverse()
        x, y = (first, second) if source == a else (second, first)
        pairs = _Wrong(x, y, later).pairs(here.relation)
        if pairs is not None:
            exempt = _is_exempt(program, a, b, conflict)
            return Violation(source, sink, pairs, here.array, common, program, here.parts, exempt)
    return None


def _carried_lanes(
    program: Program, axes: tuple[Axis, ...], n: int, name: str, conflict: Conflict, outside: set[Axis]
) -> Violation | None:
    """Conflicts within one statement whose order lanes in lock step do not keep."""
    time = ordered(program, name, axes)
    same = tuple(k for k, x in enumerate(axes) if k < n or x in outside)
    outer = tuple(("eq", k) for k in same)
    later = _pieces(len(axes), (("lt", n), *outer))
    # In lock step the whole body runs for all lanes before its next inner iteration, and each
    # read of an instruction before each write: a read stays first unless its inner iteration is
    # later than the write's.
    crossed = isl.empty_map((), len(axes), len(axes))
    for k in range(n + 1, len(axes)):
        between = tuple(("eq", x) for x in range(n + 1, k))
        crossed = crossed.union(_pieces(len(axes), (("lt", n), *outer, *between, ("gt", k))))
    for part in conflict.parts:
        wrong = _Wrong(time, time, crossed if part.kind == "anti" else later)
        pairs = wrong.pairs(part.relation)
        if pairs is not None:
            exempt = _is_exempt(program, name, name, conflict)
            return Violation(name, name, pairs, conflict.array, axes, program, (part,), exempt)
    return None


def check_marks(program: Program, names: Iterable[str]) -> tuple[Loop, Violation] | None:
    """The first parallel, vector or bound loop around one of `names` that carries a conflict.

    Every primitive ends with this, so that an answer given early stays true.
    """
    touched = set(names)
    for loop in tree.loops(program.tree):
        if loop.kind in RACING and not touched.isdisjoint(tree.stmts(loop)):
            found = carried(program, loop.axis, lanes=loop.kind == "vectorize")
            if found is not None:
                return loop, found
    return None


# -- order relations, over loop axes, without sizes
Sign: TypeAlias = Literal["eq", "lt", "gt"]


@lru_cache(maxsize=4096)
def _pieces(n: int, signs: tuple[tuple[Sign, int], ...]) -> Map:
    """Pairs of points of `n` axes, the first equal to, before, or after the second in each."""
    rows = isl.Rows({}, 1 + 2 * n)
    for s, k in signs:
        a, b = 1 + k, 1 + n + k
        if s == "eq":
            rows.eq.append({a: 1, b: -1})
        else:
            sign = 1 if s == "lt" else -1
            rows.ge.append({0: -1, a: -sign, b: sign})
    return rows.to_map(isl.map_space((), n, n))


@lru_cache(maxsize=4096)
def _turned_order(
    n: int, before: tuple[int, ...], order_before: int, after: tuple[int, ...], order_after: int
) -> Map | None:
    """Pairs of points of `n` axes: the first comes first by `before`, and does not by `after`.

    `before` and `after` list the axes of each order, outer to inner; `order_*` is the textual
    order below them (-1: the source first). None: there are no such pairs.
    """
    out: Map | None = None
    for x in _lexicographic(before, "lt", order_before < 0):
        for y in _lexicographic(after, "gt", order_after >= 0):
            signs = dict(x)
            if all(signs.setdefault(k, s) == s for k, s in y.items()):
                piece = _pieces(n, tuple((s, k) for k, s in signs.items()))
                out = piece if out is None else out.union(piece)
    return out


def _lexicographic(axes: tuple[int, ...], sign: Sign, equal: bool) -> Iterator[dict[int, Sign]]:
    for k, a in enumerate(axes):
        yield {**{x: "eq" for x in axes[:k]}, a: sign}
    if equal:
        yield {x: "eq" for x in axes}


@lru_cache(maxsize=1024)
def _equal(kept: tuple[int, ...], n: int) -> Map:
    return isl.equal_dims((), [(k, k) for k in kept], n, n)


def _and_equal(m: Map, kept: tuple[int, ...], n: int) -> Map:
    return m.intersect(_equal(kept, n)) if kept else m


# -- the smallest instance
def witness(program: Program, violation: Violation) -> Witness | None:
    """The smallest instance of a violation at sizes that the program allows.

    Instances of copies are named by the loops around them, others by the statement's iterators.

    Returns
    -------
    Witness or None
        None where no allowed sizes show it.
    """
    v = violation
    source, sink = v.program.stmt(v.source), v.program.stmt(v.sink)
    sizes = program.sizes
    with isl.budget():
        pairs = v.relation.intersect_params(context_set(program))
        found = isl.first_point(pairs.wrap().flatten(), sizes)
        if found is None:
            return None
        size, point = found
        n = len(source.iters)
        at = dict(zip(source.iters, point[:n], strict=True))
        to = dict(zip(sink.iters, point[n:], strict=True))
        values: dict[Var, int] = {s: size[s.name] for s in sizes}
        first = point_map(v.program.placements[v.source], {**values, **at}, sizes)
        second = point_map(v.program.placements[v.sink], {**values, **to}, sizes)
        kind, cell = _cell(v, {**values, **at}, {**values, **to}, size)
    return Witness(
        size,
        Instance(v.source, _named(v.program, v.source, at, first)),
        Instance(v.sink, _named(v.program, v.sink, to, second)),
        v.array,
        cell,
        kind,
        _by_name({a: second[a] - first[a] for a in v.axes}),
    )


def _named(
    program: Program, name: str, at: dict[Axis, int], point: dict[Axis, int]
) -> dict[str, int]:
    if program.stmt(name).role == "copy":
        return _by_name({a: point[a] for a in tree.axes_of(program.tree, name)})
    return _by_name(at)


def _by_name(values: dict[Axis, int]) -> dict[str, int]:
    """Values by name; of axes that share a name, the inner ones get a prime."""
    out: dict[str, int] = {}
    for a, x in values.items():
        name = a.name
        while name in out:
            name += "'"
        out[name] = x
    return out


def _cell(
    v: Violation, at: dict[Any, int], to: dict[Any, int], size: dict[str, int]
) -> tuple[Kind, tuple[int, ...]]:
    """The kind of the conflict between two instances, and the first cell that both touch."""
    source, sink = v.program.stmt(v.source), v.program.stmt(v.sink)
    kinds = {p.kind for p in v.parts}
    pairs: tuple[tuple[Kind, tuple[Access, ...], tuple[Access, ...]], ...] = (
        ("flow", source.writes, sink.reads),
        ("anti", source.reads, sink.writes),
        ("output", source.writes, sink.writes),
    )
    for kind, xs, ys in pairs:
        for x in xs:
            for y in ys:
                if kind not in kinds or x.array is not v.array or y.array is not v.array:
                    continue
                first = _touched(v.program, v.source, x, at, size)
                cells = first.intersect(_touched(v.program, v.sink, y, to, size))
                if not cells.is_empty():
                    return kind, tuple(isl.coordinates(cells.lexmin().sample_point()))
    return v.kind, ()


def _touched(
    program: Program, name: str, access: Access, at: dict[Any, int], size: dict[str, int]
) -> isl.Set:
    stmt = program.stmt(name)
    m = access_map(stmt, access, program.sizes)
    for k, it in enumerate(stmt.iters):
        m = m.fix_val(isl.dt.in_, k, isl.val(at[it]))
    return isl.at_sizes(m.range(), program.sizes, size)


def distance(violation: Violation) -> dict[Axis, int | None]:
    """Sink minus source for each loop around both, where it is one constant; else None."""
    v = violation
    with isl.budget():
        first, second = ordered(v.program, v.source, v.axes), ordered(v.program, v.sink, v.axes)
        deltas = v.relation.apply_domain(first).apply_range(second).deltas()
        out: dict[Axis, int | None] = {}
        for k, a in enumerate(v.axes):
            value = deltas.plain_get_val_if_fixed(isl.dt.set, k)
            out[a] = value.to_python() if value.is_int() else None
    return out
