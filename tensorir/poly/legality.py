"""Does a step turn a conflict around, does a loop carry one, and where first (`witness`).

Every schedule is legal by induction, so a step is judged against the order before it. What a
reducer exempts (`conflict.Conflict.exempt`) may be turned; it is never free to race.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from tensorir.ir.affine import Atom, Conj, Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Array
from tensorir.poly import isl, tree
from tensorir.poly.conflict import Conflict, Part, conflicts
from tensorir.poly.isl import Map, Sizes
from tensorir.poly.model import Placement, Program
from tensorir.poly.relation import allowed, ordered, placed
from tensorir.poly.tree import Loop
from tensorir.poly.witness import Instance, Violation, Witness, distance, witness

RACING = ("parallel", "vectorize", "bind")


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
        found = _turned(old, new, names, lambda c: c.exempt != "update")
        return _smallest([v for v in found if not (v.exempt and _whole(v, old, new))])


def reassociates(old: Program, new: Program, names: Iterable[str]) -> bool:
    """Whether the step turns a conflict that the algebra of an inexact reduction exempts.

    Results may then differ in their last bits. An exact reducer's (integer sums, min, max) do not.
    """
    with isl.budget():
        found = _turned(old, new, names, lambda c: c.exempt is not None)
        return any(v.exempt and not _exact(old, v.source) for v in found)


def _exact(program: Program, name: str) -> bool:
    reducer = program.stmt(name).combiner
    return reducer is not None and reducer.exact


def _turned(
    old: Program, new: Program, names: Iterable[str], wanted: Callable[[Conflict], bool]
) -> Iterator[Violation]:
    both = [n for n in dict.fromkeys(names) if n in old.placements and n in new.placements]
    fine = lambda a, b: _in_step(old, new, a, b)  # noqa: E731
    for a, b, conflict in conflicts(old, both, but=fine):
        if not wanted(conflict):
            continue
        exempt = _is_exempt(old, a, b, conflict)
        for source, sink in ((a, b), (b, a)) if a != b else ((a, b),):
            here = conflict if source == a else conflict.reverse()
            allowing = (new.sizes, new.context)
            for wrong in (
                _turned_times(old, new, source, sink, conflict.array),
                _parted(old, new, source, sink, conflict.array),
            ):
                relation = None if wrong is None else wrong.pairs(here.relation, allowing)
                if relation is None:
                    continue
                axes, array = tree.common(new.tree, source, sink)[0], conflict.array
                yield Violation(source, sink, relation, array, axes, new, here.parts, exempt)
                break


def _parted(old: Program, new: Program, source: str, sink: str, array: Array) -> _Wrong | None:
    """Where both instances were of one copy of a buffer, and are of two; None: nowhere."""
    was, now = old.buffers.get(array), new.buffers.get(array)
    if was is None or now is None or now.outside == was.outside:
        return None
    known = set(was.outside)
    added = tuple(a for a in now.outside if a not in known)
    there = set(new.placements[source].axes) & set(new.placements[sink].axes)
    before = set(old.placements[source].axes) & set(old.placements[sink].axes)
    kept = tuple(a for a in was.outside if a in before)
    if not added or any(a not in there for a in added):
        return None
    axes = (*kept, *added)
    apart: Map | None = None
    for k in range(len(kept), len(axes)):
        for sign in ("lt", "gt"):
            signs = (*_equal_signs(range(len(kept))), (sign, k))
            piece = _pieces(len(axes), signs)
            apart = piece if apart is None else apart.union(piece)
    assert apart is not None
    return _Wrong(_both(old, new, source, axes), _both(old, new, sink, axes), apart)


def _in_step(old: Program, new: Program, a: str, b: str) -> bool:
    """Whether indices alone tell that two orders agree on instances that share a cell.

    Where the outermost loops of both orders differ, so do both. These being equal, an index that
    is the same expression of one other loop makes that equal too; what is left must be in the
    same order.
    """
    before, order_before = tree.common(old.tree, a, b)
    after, order_after = tree.common(new.tree, a, b)
    if order_before != order_after:
        return False
    if _alike(before, after):
        return True
    pairs = enumerate(zip(before, after, strict=False))
    same = next((k for k, (x, y) in pairs if x is not y), min(len(before), len(after)))
    axes = {*before, *after}
    one, other = _indices(old.placements[a]), _indices(old.placements[b])
    written = {w.array for n in (a, b) for w in old.stmt(n).writes}
    for array in one:
        if array not in written or array not in other:
            continue
        equal: set[Atom] = {*before[:same], *old.sizes}
        cells = [e.terms for _, e in one[array] & other[array]]
        while True:
            unknown = [[x for x in terms if x not in equal] for terms in cells]
            told = {x[0] for x in unknown if len(x) == 1 and x[0] in axes}
            if not told:
                break
            equal |= told
        left = ([x for x in axes if x not in equal] for axes in (before, after))
        if not _alike(*left):
            return False
    return True


def _alike(some: Sequence[Axis], others: Sequence[Axis]) -> bool:
    """Whether these are the same axes."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _smallest(found: list[Violation]) -> Violation | None:
    """The violation that shows at the smallest sizes; of equals the first."""
    if len(found) < 2:
        return found[0] if found else None
    sizes = found[0].program.sizes
    shown = [isl.first_point(isl.Set.from_params(v.relation.params()), sizes) for v in found]
    values = [[*x[0].values()] if x is not None else [] for x in shown]
    return found[min(range(len(found)), key=lambda k: (not values[k], values[k], k))]


@dataclass(frozen=True, slots=True, eq=False)
class _Wrong:
    """Instances of two statements to loop points, and the pairs of points that are wrong."""

    source: Map
    sink: Map
    order: Map

    def pairs(self, relation: Map, allowing: tuple[Sizes, Conj]) -> Map | None:
        """The pairs of `relation` at wrong points, at sizes for which facts hold, if any."""
        times = relation.apply_domain(self.source).apply_range(self.sink)
        if times.intersect(self.order).is_empty():
            return None
        back = self.source.apply_range(self.order).apply_range(self.sink.reverse())
        found = back.intersect(relation).intersect_params(allowed(*allowing))
        return None if found.is_empty() else found


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
    other = wrong.pairs(found.relation, (new.sizes, new.context)) if wrong is not None else None
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
def carried(
    program: Program, axis: Axis, *, lanes: bool = False, combined: bool = False
) -> Violation | None:
    """A conflict between two iterations of the loop over `axis`, the loops outside being equal.

    Reductions are not exempt: iterations that run at once race. A buffer that exists once for
    each iteration has no conflict between them.

    Parameters
    ----------
    lanes
        Iterations go in lock step, one instruction at a time: a cell that a statement reads
        before a later iteration of the same statement writes it is then safe.
    combined
        The lanes of a reduction are combined before the cell is updated: they do not race.
    """
    loop = tree.find(program.tree, axis)
    if loop is None:
        return None
    with isl.budget():
        found: list[Violation] = []
        fine = lambda a, b: _apart(program, axis, a, b)  # noqa: E731
        for a, b, conflict in conflicts(program, tree.stmts(loop), but=fine):
            pairs = _carried_pair(program, axis, a, b, conflict, lanes=lanes)
            found.extend(v for v in pairs if not (combined and _in_one_update(v)))
        return _smallest(found)


def _apart(program: Program, axis: Axis, a: str, b: str) -> bool:
    """Whether indices alone tell that two statements never meet in two iterations of a loop.

    In each array that both touch, some index is the same expression of the loop, loops outside it
    and sizes, so that one cell is of one iteration. Most loops of most programs are like that.
    """
    common, _ = tree.common(program.tree, a, b)
    n = next(k for k, x in enumerate(common) if x is axis)
    outer = set(common[:n])
    one, other = program.placements[a], program.placements[b]
    written = {w.array for p in (one, other) for w in p.stmt.writes}
    mine = _indices(one)
    for array in mine:
        if array not in written or array not in _indices(other):
            continue
        if not any(_tells(e, axis, outer) for e in mine[array] & _indices(other)[array]):
            return False
    return True


@lru_cache(maxsize=4096)
def _indices(p: Placement) -> dict[Array, frozenset[tuple[int, Lin]]]:
    """The (dimension, index over loop axes) that all accesses of a statement to an array share."""
    found: dict[Array, frozenset[tuple[int, Lin]]] = {}
    over: dict[Axis | Var, Lin] = dict(p.index.items())
    for x in (*p.stmt.writes, *p.stmt.reads):
        mine = ((d, e) for d, e in enumerate(x.index) if isinstance(e, Lin))
        cells = frozenset((d, e.subst(over)) for d, e in mine)
        found[x.array] = found[x.array] & cells if x.array in found else cells
    return found


def _tells(cell: tuple[int, Lin], axis: Axis, outer: set[Axis]) -> bool:
    """Whether an index has one value for one iteration of a loop, those outside being equal."""
    terms = cell[1].terms
    return axis in terms and all(a is axis or isinstance(a, Var) or a in outer for a in terms)


def _in_one_update(v: Violation) -> bool:
    """Whether lanes clash only in what one update accumulates, which code can combine first."""
    return v.exempt and v.source == v.sink and v.program.stmt(v.source).role == "update"


def _carried_pair(
    program: Program, axis: Axis, a: str, b: str, conflict: Conflict, *, lanes: bool
) -> Iterator[Violation]:
    buffer = program.buffers.get(conflict.array)
    outside = frozenset(buffer.outside) if buffer is not None else frozenset()
    if axis in outside:
        return
    common, _ = tree.common(program.tree, a, b)
    n = next(k for k, x in enumerate(common) if x is axis)
    exempt = _is_exempt(program, a, b, conflict)
    array = conflict.array
    if exempt and not lanes and program.stmt(a).atomic and program.stmt(b).atomic:
        return  # threads make such updates one after the other
    allowing = (program.sizes, program.context)
    if lanes and a == b:
        found = _carried_lanes(program.placements[a], common, n, conflict, outside, allowing)
        for part, pairs in found:
            yield Violation(a, a, pairs, array, common, program, (part,), exempt)
        return
    # One copy of a buffer for each point of a loop further in parts those iterations too.
    axes = (*common[: n + 1], *(x for x in common[n + 1 :] if x in outside))
    for source, sink in ((a, b), (b, a)) if a != b else ((a, b),):
        places = (program.placements[source], program.placements[sink])
        relation = _carried_from(places, axes, n, conflict, source == a, allowing)
        if relation is not None:
            parts = conflict.parts if source == a else conflict.reverse().parts
            yield Violation(source, sink, relation, array, common, program, parts, exempt)


@lru_cache(maxsize=4096)
def _carried_from(
    places: tuple[Placement, Placement],
    axes: tuple[Axis, ...],
    n: int,
    conflict: Conflict,
    straight: bool,
    allowing: tuple[Sizes, Conj],
) -> Map | None:
    """Pairs of a conflict, the source in an earlier iteration of the loop over axis `n`."""
    equal = _equal_signs(k for k in range(len(axes)) if k != n)
    later = _pieces(len(axes), (("lt", n), *equal))
    first, second = (placed(p, axes, allowing[0]) for p in places)
    relation = conflict.relation if straight else conflict.relation.reverse()
    return _Wrong(first, second, later).pairs(relation, allowing)


@lru_cache(maxsize=1024)
def _carried_lanes(
    place: Placement,
    axes: tuple[Axis, ...],
    n: int,
    conflict: Conflict,
    outside: frozenset[Axis],
    allowing: tuple[Sizes, Conj],
) -> tuple[tuple[Part, Map], ...]:
    """Conflicts within one statement whose order lanes in lock step do not keep."""
    time = placed(place, axes, allowing[0])
    outer = _equal_signs(k for k, x in enumerate(axes) if k < n or x in outside)
    later = _pieces(len(axes), (("lt", n), *outer))
    # In lock step the whole body runs for all lanes before its next inner iteration, and each
    # read of an instruction before each write: a read stays first unless its inner iteration is
    # later than the write's.
    crossed = isl.empty_map((), len(axes), len(axes))
    for k in range(n + 1, len(axes)):
        between = _equal_signs(range(n + 1, k))
        crossed = crossed.union(_pieces(len(axes), (("lt", n), *outer, *between, ("gt", k))))
    found: list[tuple[Part, Map]] = []
    for part in conflict.parts:
        wrong = _Wrong(time, time, crossed if part.kind == "anti" else later)
        pairs = wrong.pairs(part.relation, allowing)
        if pairs is not None:
            found.append((part, pairs))
    return tuple(found)


def check_marks(program: Program, names: Iterable[str]) -> tuple[Loop, Violation] | None:
    """The first parallel, vector or bound loop around one of `names` that carries a conflict.

    Every primitive ends with this, so that an answer given early stays true.
    """
    touched = set(names)
    for loop in tree.loops(program.tree):
        if loop.kind in RACING and not touched.isdisjoint(tree.stmts(loop)):
            lanes = loop.kind == "vectorize"
            combined = loop.bind == "reduce" if lanes else loop.width is not None
            found = carried(program, loop.axis, lanes=lanes, combined=combined)
            if found is not None:
                return loop, found
    return None


# -- order relations, over loop axes, without sizes
Sign: TypeAlias = Literal["eq", "lt", "gt"]
_EQ: Sign = "eq"


def _equal_signs(axes: Iterable[int]) -> tuple[tuple[Sign, int], ...]:
    return tuple((_EQ, k) for k in axes)


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
        yield {**dict.fromkeys(axes[:k], _EQ), a: sign}
    if equal:
        yield dict.fromkeys(axes, _EQ)


@lru_cache(maxsize=1024)
def _equal(kept: tuple[int, ...], n: int) -> Map:
    return isl.equal_dims((), [(k, k) for k in kept], n, n)


def _and_equal(m: Map, kept: tuple[int, ...], n: int) -> Map:
    return m.intersect(_equal(kept, n)) if kept else m


__all__ = [
    "RACING",
    "Instance",
    "Violation",
    "Witness",
    "carried",
    "check_marks",
    "distance",
    "reassociates",
    "turned",
    "witness",
]
