"""Pass 0: loops from the tree. Projections give the bounds, an exact test at the leaf the rest.

`enforced` (C) is what the loops and conditions so far guarantee. Exactness never depends on tight
bounds: at a leaf everything that C does not imply becomes a condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tensorir.ir.affine import Conj, Fact, Lin
from tensorir.ir.expr import Axis
from tensorir.ir.stmt import Block, Bound, For, If, Node, Run
from tensorir.poly import isl
from tensorir.poly.isl import BasicSet, Set, dt
from tensorir.poly.model import Placement, Program
from tensorir.poly.relation import context_set, ordered
from tensorir.poly.tree import At, Loop, Seq, Tree, axes_of, stmts
from tensorir.support.errors import UnsupportedError

# How often a nest may be split by tests of sizes.
_SPLITS = 2

_Key = tuple[tuple[Axis, ...], tuple[object, ...], Conj]
_projections: WeakKeyDictionary[Placement, dict[_Key, tuple[Set, ...]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class _Range:
    """Bounds of a loop, and conditions that do not mention its axis."""

    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]
    conds: Conj


def build(program: Program, *, split: bool = False) -> Node:
    """The exact guarded loops of a program, over the axes of its tree.

    `Run.corner` says here that the loops around it reach only prefixes under which the statement
    has an instance.

    Parameters
    ----------
    split
        Whether a nest whose ranges join only for some sizes (an empty reduction leaves just its
        init) becomes two, each behind a test of sizes, instead of one with loose bounds.

    Raises
    ------
    UnsupportedError
        A loop has no bounds that can be written down.
    """
    items = program.tree.items if isinstance(program.tree, Seq) else (program.tree,)
    with isl.budget():
        made = [x for t in items for x in _nests(program, t, _SPLITS if split else 0)]
    return made[0] if len(made) == 1 else Block(tuple(made))


def _nests(program: Program, t: Tree, splits: int) -> list[Node]:
    """A nest of the program, once, or once for each side of a test of sizes."""
    projected = {n: _project(program, n) for n in stmts(t)}
    everywhere = isl.universe(program.sizes, 0).intersect_params(context_set(program))
    walk = _Walk(program, projected, split=splits > 0)
    exact = frozenset(x for x, p in projected.items() if p[0].is_equal(everywhere))
    try:
        node = walk.go(t, (), everywhere, exact)
    except _Uneven as uneven:
        out: list[Node] = []
        for e in (uneven.test, -uneven.test - 1):
            fact: Fact = ("ge", e)
            there = program.change(context=(*program.context, fact))
            inside = _nests(there, t, splits - 1)
            if inside:
                out.append(If((fact,), inside[0] if len(inside) == 1 else Block(tuple(inside))))
        return out
    return [] if node is None else [node]


class _Uneven(Exception):
    """Ranges that do not join, but do so for the sizes where `test` is at least 0."""

    def __init__(self, test: Lin) -> None:
        super().__init__(test)
        self.test = test


def _project(program: Program, name: str) -> tuple[Set, ...]:
    """P_0 .. P_D: the values of the outermost d loops for which there is an instance."""
    placement = program.placements[name]
    axes = axes_of(program.tree, name)
    known = _projections.setdefault(placement, {})
    key: _Key = (axes, program.sizes, program.context)
    if key not in known:
        points = ordered(program, name, axes).range().intersect_params(context_set(program))
        if points.is_empty():
            empty = (isl.empty(program.sizes, k) for k in range(len(axes) + 1))
            known[key] = tuple(empty)
            return known[key]
        out = [_plain(points)]
        for k in range(len(axes) - 1, -1, -1):
            out.append(_plain(out[-1].project_out(dt.set, k, 1)))
        known[key] = tuple(reversed(out))
    return known[key]


def _plain(s: Set) -> Set:
    """The set with as few pieces and existentials as isl finds at once."""
    pieces = s.get_basic_sets()
    if any(b.dim(dt.div) for b in pieces):
        s = s.compute_divs()
    return s.coalesce() if s.n_basic_set() > 1 else s


@dataclass(frozen=True, slots=True)
class _Walk:
    program: Program
    projected: dict[str, tuple[Set, ...]]
    split: bool

    def go(
        self, t: Tree, axes: tuple[Axis, ...], enforced: Set, exact: frozenset[str]
    ) -> Node | None:
        """Loops of `t`. `exact` are the statements whose projection is what C enforces."""
        if isinstance(t, Seq):
            made = (self.go(i, axes, enforced, exact) for i in t.items)
            items = tuple(x for x in made if x is not None)
            return None if not items else items[0] if len(items) == 1 else Block(items)
        if isinstance(t, At):
            return self.leaf(t, axes, enforced, exact)
        return self.loop(t, axes, enforced, exact)

    def leaf(
        self, t: At, axes: tuple[Axis, ...], enforced: Set, exact: frozenset[str]
    ) -> Node | None:
        placement = self.program.placements[t.stmt]
        args = tuple(placement.index[i] for i in placement.stmt.iters)
        run = Run(placement.stmt, args, corner=t.stmt in exact)
        wanted = self.projected[t.stmt][len(axes)].intersect(enforced)
        if wanted.is_empty():
            return None
        rest = wanted.gist(enforced)
        if rest.plain_is_universe():
            return run
        pieces = isl.from_set(rest, axes, self.program.sizes, disjoint=True)
        if pieces == ((),):
            return run
        if len(pieces) > 1:
            run = Run(placement.stmt, args, part=True)
        guarded = tuple(If(conj, run) for conj in pieces)
        return guarded[0] if len(guarded) == 1 else Block(guarded)

    def loop(
        self, t: Loop, axes: tuple[Axis, ...], enforced: Set, exact: frozenset[str]
    ) -> Node | None:
        outer = enforced.add_dims(dt.set, 1)
        active: dict[str, Set] = {}
        for x in stmts(t):
            p = self.projected[x][len(axes) + 1].intersect(outer)
            if not p.is_empty():
                active[x] = p
        if not active:
            return None
        inner = (*axes, t.axis)
        whole, same = _join(active)
        if whole.n_basic_set() > 1:
            if self.split:
                self.look_for_test(list(active), whole)
            return self.hull(t, inner, outer, list(active.values()))
        piece = whole.get_basic_sets()[0]
        known = all(x in exact for x in active) and len(same) == len(active)
        if known and not piece.dim(dt.div):
            # C is exact already: constraints on outer axes alone cannot be news.
            piece = piece.drop_constraints_not_involving_dims(dt.set, len(axes), 1)
        found = isl.facts(piece.gist(_only(outer)), inner, self.program.sizes)
        if found is None or _floors_over(found, t.axis):
            # Strides and floors of the axis: bounds without them, and the test at the leaf.
            same = frozenset()
            piece = whole.remove_divs().get_basic_sets()[0]
            found = isl.facts(piece.gist(_only(outer)), inner, self.program.sizes)
            if found is None:
                found = isl.facts(piece, inner, self.program.sizes)
            assert found is not None
        r = _sides(found, t.axis)
        if not r.lower or not r.upper:
            raise _unbounded(t)
        body = self.go(t.body, inner, outer.intersect(piece.to_set()), same)
        return _wrap(t, r, body)

    def look_for_test(self, names: list[str], whole: Set) -> None:
        """Raise `_Uneven` if some statement's condition on sizes makes the ranges join."""
        program = self.program
        known = isl.universe(program.sizes, 0).intersect_params(context_set(program))
        seen: set[Lin] = set()
        for x in names:
            for piece in self.projected[x][0].gist(known).get_basic_sets():
                for kind, e in isl.facts(piece, (), program.sizes) or ():
                    if kind != "ge" or e in seen or any(isinstance(a, tuple) for a in e.terms):
                        continue
                    seen.add(e)
                    there = isl.params(program.sizes, (("ge", e),))
                    if whole.intersect_params(there).coalesce().n_basic_set() == 1:
                        raise _Uneven(e)

    def hull(self, t: Loop, inner: tuple[Axis, ...], outer: Set, ranges: list[Set]) -> Node | None:
        """Ranges that do not join: every constraint that all of them share, else their hull."""
        sizes, d = self.program.sizes, len(inner) - 1
        pieces = [b for p in ranges for b in p.compute_divs().get_basic_sets()]
        loose = [b.remove_divs().drop_constraints_not_involving_dims(dt.set, d, 1) for b in pieces]
        union = loose[0].to_set()
        for b in loose[1:]:
            union = union.union(b.to_set())
        shared = union.simple_hull().drop_constraints_not_involving_dims(dt.set, d, 1)
        found = isl.facts(shared.gist(_only(outer)), inner, sizes)
        if found is not None and not _floors_over(found, t.axis):
            r = _sides(found, t.axis)
            if r.lower and r.upper:
                body = self.go(t.body, inner, outer.intersect(shared.to_set()), frozenset())
                return _wrap(t, r, body)
        lowers: dict[Bound, None] = {}
        uppers: dict[Bound, None] = {}
        for b in loose:
            found = isl.facts(b, inner, sizes)
            r = _sides(found or (), t.axis)
            if not r.lower or not r.upper:
                raise _unbounded(t)
            lowers[_telling(r.lower)] = None
            uppers[_telling(r.upper)] = None
        body = self.go(t.body, inner, outer, frozenset())
        if body is None:
            return None
        return For(t.axis, tuple(lowers), tuple(uppers), body, t.kind, width=t.width,
                   hull=len(lowers) > 1 or len(uppers) > 1, bind=t.bind,
                   intrinsic=t.intrinsic)  # fmt: skip


def _join(active: dict[str, Set]) -> tuple[Set, frozenset[str]]:
    """The union of what the statements need, and the statements that need all of it."""
    ranges = list(active.values())
    whole = ranges[0]
    differ = False
    for p in ranges[1:]:
        if not p.is_equal(whole):
            whole, differ = whole.union(p), True
    if whole.n_basic_set() > 1:
        whole = whole.coalesce()
    if not differ:
        return whole, frozenset(active)
    return whole, frozenset(x for x, p in active.items() if p.is_equal(whole))


def _only(s: Set) -> BasicSet:
    pieces = s.get_basic_sets()
    return pieces[0] if len(pieces) == 1 else s.simple_hull()


def _floors_over(found: Conj, axis: Axis) -> bool:
    return any(isinstance(a, tuple) and a[1].involves(axis) for _, e in found for a in e.terms)


def _sides(found: Conj, axis: Axis) -> _Range:
    """Facts sorted into bounds of `axis` and the rest."""
    lower: list[Bound] = []
    upper: list[Bound] = []
    conds: list[Fact] = []
    for kind, e in found:
        c = e.coef(axis)
        if not c:
            conds.append((kind, e))
            continue
        rest = e.without(axis) * (-1 if c > 0 else 1)
        if c > 0 or kind == "eq":
            lower.append((abs(c), rest))
        if c < 0 or kind == "eq":
            upper.append((abs(c), rest))
    return _Range(tuple(lower), tuple(upper), tuple(conds))


def _telling(bounds: tuple[Bound, ...]) -> Bound:
    """One of several bounds of one range; that with axes or sizes says more than a constant."""
    return next((b for b in bounds if not b[1].is_const), bounds[0])


def _wrap(t: Loop, r: _Range, body: Node | None) -> Node | None:
    if body is None:
        return None
    loop = For(t.axis, r.lower, r.upper, body, t.kind, width=t.width, bind=t.bind,
               intrinsic=t.intrinsic)  # fmt: skip
    return If(r.conds, loop) if r.conds else loop


def _unbounded(t: Loop) -> UnsupportedError:
    return UnsupportedError(
        f"loop {t.axis.name}: its range has no bound that is an affine expression of outer loops "
        "and sizes",
        details="  try  undoing the step that gave this loop its shape",
    )
