"""Pairs of instances that touch one cell, at least one writing it. Free of any order.

The pairs depend on the two statements alone, which no primitive that moves loops changes, so they
are computed once and remembered on the statements. The order is the tree's; `legality` asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Expr, Ref, children
from tensorir.ir.statement import Access, Array, May, Statement
from tensorir.poly import isl, tree
from tensorir.poly.isl import Map, Sizes
from tensorir.poly.model import Program
from tensorir.poly.relation import access_map

Kind: TypeAlias = Literal["flow", "anti", "output"]
_REVERSED: dict[Kind, Kind] = {"flow": "anti", "anti": "flow", "output": "output"}


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Pairs through one pair of accesses; `kind` is theirs where the first instance runs first."""

    kind: Kind
    relation: Map

    def reverse(self) -> Part:
        """The same pairs seen from the other side."""
        return Part(_REVERSED[self.kind], self.relation.reverse())


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """What two statements have to fight over in one array.

    Parameters
    ----------
    array
        The array.
    relation
        Instances of the first statement to those of the second, all pairs.
    parts
        The same pairs kept apart by kind.
    exempt
        `"update"`: both only accumulate into it with one reducer that may be reordered.
        `"copy"`: so it may be, where one is the load or the write back of an accumulator; the
        program says whether `array` is what is accumulated into. `None`: never.
    """

    array: Array
    relation: Map
    parts: tuple[Part, ...]
    exempt: Literal["update", "copy"] | None

    def reverse(self) -> Conflict:
        """The same pairs, from the second statement to the first."""
        parts = tuple(p.reverse() for p in self.parts)
        return Conflict(self.array, self.relation.reverse(), parts, self.exempt)


_Pairs: TypeAlias = dict[Sizes, tuple[Conflict, ...]]
_memo: WeakKeyDictionary[Statement, WeakKeyDictionary[Statement, _Pairs]] = WeakKeyDictionary()


def conflicts(
    program: Program, names: Iterable[str], *, but: Callable[[str, str], bool] = lambda a, b: False
) -> Iterator[tuple[str, str, Conflict]]:
    """Conflicts among the statements `names`, each unordered pair once, in textual order.

    Pairs for which `but` holds are left out.
    """
    wanted = set(names)
    order = [n for n in tree.stmts(program.tree) if n in wanted]
    for k, a in enumerate(order):
        for b in order[k:]:
            if but(a, b):
                continue
            for c in between(program.stmt(a), program.stmt(b), program.sizes):
                yield a, b, c


def between(a: Statement, b: Statement, sizes: Sizes) -> tuple[Conflict, ...]:
    """Conflicts between instances of `a` and of `b` (two distinct instances where `a` is `b`)."""
    row = _memo.get(a)
    if row is None:
        row = _memo[a] = WeakKeyDictionary()
    known = row.get(b)
    if known is None:
        known = row[b] = {}
    if sizes not in known:
        known[sizes] = tuple(_between(a, b, sizes))
    return known[sizes]


def _between(a: Statement, b: Statement, sizes: Sizes) -> Iterator[Conflict]:
    parts: dict[Array, list[Part]] = {}
    for kind, x, y in _access_pairs(a, b):
        if x.array is not y.array or (a is b and _own_cells(a, x, y)):
            continue
        relation = access_map(a, x, sizes).apply_range(access_map(b, y, sizes).reverse())
        known = parts.setdefault(x.array, [])
        relation = next((p.relation for p in known if p.relation.is_equal(relation)), relation)
        if not any(p.relation is relation and p.kind == kind for p in known):
            known.append(Part(kind, relation))
    for array, found in parts.items():
        if a is b:
            found = [p for p in found if _leaves(p.relation, sizes, len(a.iters))]
        else:
            found = [p for p in found if not p.relation.is_empty()]
        if found:
            yield Conflict(array, _union(found), tuple(found), _exempt(a, b, array))


def _leaves(relation: Map, sizes: Sizes, n: int) -> bool:
    """Whether a relation among instances has pairs of two different ones."""
    if n and not relation.intersect(_greater(n)).is_empty():
        return True  # the cheap way to find some: the last iterator is that of a reduction
    return not relation.is_subset(isl.identity(sizes, n))


@lru_cache(maxsize=64)
def _greater(n: int) -> Map:
    """Pairs of points of `n` dimensions, the last one of the second greater."""
    rows = isl.Rows({}, 1 + 2 * n)
    rows.ge.append({0: -1, n: -1, 2 * n: 1})
    return rows.to_map(isl.map_space((), n, n))


def _own_cells(stmt: Statement, x: Access, y: Access) -> bool:
    """Whether two accesses of a statement meet in one instance only: each iterator is an index."""
    if not (x.exact and y.exact) or x.index != y.index:
        return False
    return all(Lin({i: 1}) in x.index for i in stmt.iters)


def _access_pairs(a: Statement, b: Statement) -> Iterator[tuple[Kind, Access, Access]]:
    yield from (("flow", w, r) for w in a.writes for r in b.reads)
    yield from (("anti", r, w) for r in a.reads for w in b.writes)
    yield from (("output", v, w) for v in a.writes for w in b.writes)


def _union(parts: list[Part]) -> Map:
    distinct: list[Map] = []
    for p in parts:
        if not any(p.relation is m for m in distinct):
            distinct.append(p.relation)
    out = distinct[0]
    for m in distinct[1:]:
        out = out.union(m)
    return out.coalesce() if len(distinct) > 1 else out


# -- what the algebra of a reduction exempts from order
def _exempt(a: Statement, b: Statement, array: Array) -> Literal["update", "copy"] | None:
    reducer = a.combiner
    if reducer is None or reducer is not b.combiner or a.stage != b.stage:
        return None
    if not (reducer.associative and reducer.commutative):
        return None
    if not (accumulates(a, array) and accumulates(b, array)):
        return None
    return "copy" if "copy" in (a.role, b.role) else "update"


def accumulates(stmt: Statement, array: Array) -> bool:
    """Whether all that `stmt` does to `array` is to combine a value into its own cell.

    True of an update with a reducer that reads `array` only as its accumulator; and, as far as
    the statement alone can tell, of a copy that keeps the reducer.
    """
    if stmt.combiner is None:
        return False
    if stmt.role == "copy":
        touched = [x.array for x in (*stmt.writes, *stmt.reads)]
        return touched.count(array) == 1
    if stmt.role != "update":
        return False
    n = len(stmt.writes)
    own = stmt.reads[:n]
    if len(own) < n or any(r.array is array for r in stmt.reads[n:]):
        return False
    if not all(_same_cell(w, r) for w, r in zip(stmt.writes, own, strict=True)):
        return False
    return any(w.array is array for w in stmt.writes) and not _steered(stmt, n)


def _same_cell(w: Access, r: Access) -> bool:
    if w.array is not r.array:
        return False
    return all(
        x is y if isinstance(x, May) or isinstance(y, May) else x == y
        for x, y in zip(w.index, r.index, strict=True)
    )


def _steered(stmt: Statement, n: int) -> bool:
    """Whether an accumulator decides which cell is touched."""
    for access in (*stmt.writes, *stmt.reads):
        for index in access.index:
            if isinstance(index, May) and any(s < n for s in _slots(index.value)):
                return True
    return False


def _slots(e: Expr) -> Iterator[int]:
    if isinstance(e, Ref):
        yield e.slot
    for c in children(e):
        yield from _slots(c)
