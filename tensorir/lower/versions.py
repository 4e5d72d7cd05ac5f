"""Pass 6: full and guarded copies around the smallest nest that still has guards.

Point axes at their worst corner turn each guard into a fact of the outer loops. Where all facts
hold the nest runs without guards. If the one fact is affine in the enclosing serial loop, that
loop is split instead: same code, no test. A relaxed nest of several vectors also gets narrower
copies, for a last panel that has fewer live vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tensorir.ir.affine import ZERO, Conj, Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Array
from tensorir.ir.stmt import Block, Bound, For, If, Node, Run, Storage
from tensorir.lower.boxes import block, extreme, loops, runs, uses
from tensorir.lower.narrow import narrow
from tensorir.poly.tree import Loop

_FIXED = ("unroll", "vectorize")
# A nest that is emitted as more instances than this is not duplicated.
MOST = 512


@dataclass(frozen=True, slots=True)
class Versions:
    """What the pass reads: storage, what relaxing dropped, guards never to be versioned."""

    storages: Mapping[Array, Storage]
    dropped: Mapping[Run, tuple[Lin, ...]]
    plain: frozenset[Lin]
    marks: Mapping[Axis, Loop]

    def go(self, n: Node, open_: Mapping[Axis, int]) -> Node:
        """`open_` are the vector loops entered, with their last lane: no test depends on them."""
        if isinstance(n, Block):
            return _join(tuple(self.go(i, open_) for i in n.items))
        if isinstance(n, If):
            if any(kind == "ge" and _small(e) for kind, e in n.conds):
                return n
            return replace(n, body=self.go(n.body, open_))
        if isinstance(n, For):
            return self.loop(n, open_)
        return n

    def loop(self, n: For, open_: Mapping[Axis, int]) -> Node:
        mark = self.marks.get(n.axis)
        cut = mark is not None and mark.cut is not None and mark.tail == "cut"
        cut = cut and n.kind not in _FIXED
        guards = list(self.guards(n, {}))
        if guards and not self.only_masks(n):
            done = self.whole(n, guards, open_)
            if done is not None:
                return done
        slim = narrow(n, self.dropped, n, n)
        if slim is not None:
            return slim
        inner = {**open_, n.axis: n.extent - 1} if n.kind == "vectorize" and n.extent else open_
        body = self.cut(n, open_) if cut else self.go(n.body, inner)
        return _split(replace(n, body=body), cut=cut)

    def whole(
        self, n: For, guards: list[tuple[Lin, dict[Axis, int | None]]], open_: Mapping[Axis, int]
    ) -> Node | None:
        """The nest in versions if the test is invariant in it; None to look further in."""
        facts = self.facts(guards, open_)
        if facts is None or _copies(n) > MOST:
            return None
        wanted = [c for c in facts if not c.is_const or c.const < 0]
        if any(c.is_const for c in wanted):
            return n
        full = self.strip(n)
        nest, out = (n, If(tuple(("ge", c) for c in wanted), full, n)) if wanted else (full, full)
        slim = narrow(n, self.dropped, nest, out)
        return out if slim is None else slim

    def facts(
        self, guards: list[tuple[Lin, dict[Axis, int | None]]], open_: Mapping[Axis, int]
    ) -> list[Lin] | None:
        """Each guard at the worst corner of its point axes; None if one varies in the nest."""
        out: dict[Lin, None] = {}
        for c, path in guards:
            box = {a: x for a, x in path.items() if x is not None}
            worst = extreme(c, {**open_, **box}, -1)
            if uses(worst, path):
                return None
            out[worst] = None
        return list(out)

    def guards(
        self, n: Node, path: dict[Axis, int | None]
    ) -> Iterator[tuple[Lin, dict[Axis, int | None]]]:
        """Guards in a nest, with the axes of the loops between; none where it is not one nest."""
        if isinstance(n, Run):
            for c in (*n.conds, *n.read_conds):
                if c not in self.plain:
                    yield c, path
        elif isinstance(n, For):
            last = n.extent - 1 if n.extent is not None and n.kind in _FIXED else None
            yield from self.guards(n.body, {**path, n.axis: last})
        elif isinstance(n, Block) and any(x is not None for x in path.values()):
            for i in n.items:
                yield from self.guards(i, path)

    def only_masks(self, n: Node) -> bool:
        """Whether all that is left are masks of loads into buffers in memory: as fast as none."""
        return all(
            not r.conds
            and all(
                w.array in self.storages and self.storages[w.array].scope != "local"
                for w in r.statement.writes
            )
            for r in runs(n)
        )

    def strip(self, n: Node) -> Node:
        if isinstance(n, Run):
            conds = tuple(c for c in n.conds if c in self.plain)
            read_conds = tuple(c for c in n.read_conds if c in self.plain)
            return replace(n, conds=conds, read_conds=read_conds)
        if isinstance(n, Block):
            return Block(tuple(self.strip(i) for i in n.items))
        if isinstance(n, If):
            return n  # `guards` did not look inside
        assert isinstance(n, For)
        return replace(n, body=self.strip(n.body))

    def cut(self, n: For, open_: Mapping[Axis, int]) -> Node:
        """`tail="cut"`: the body in two copies, full and partial, whatever its size."""
        mark = self.marks[n.axis]
        assert mark.cut is not None
        point = mark.cut[0]
        needed: dict[Lin, None] = {}
        own: dict[Lin, Lin] = {}
        for x in loops(n.body):
            found = self.marks.get(x.axis)
            if found is None or not _is(found, point) or x.kind in _FIXED:
                continue
            last = max((e.const // c for c, e in x.upper if e.is_const), default=None)
            for c, e in x.upper:
                if last is not None and not e.is_const:
                    needed[e - c * last] = None
        for guard, path in _all_guards(n.body):
            if any(a in self.marks and _is(self.marks[a], point) for a in path):
                box = {a: x for a, x in path.items() if x is not None}
                own[guard] = extreme(guard, {**open_, **box}, -1)
                needed[own[guard]] = None
        inside = {x.axis: None for x in loops(n.body)}
        wanted = [c for c in needed if not c.is_const and not uses(c, inside)]
        if not wanted:
            return self.go(n.body, open_)
        full = self.go(_prune(n.body, wanted, {}), open_)
        never = frozenset(g for g, worst in own.items() if wanted == [worst])
        partial = replace(self, plain=self.plain | never).go(n.body, open_)
        return If(tuple(("ge", c) for c in wanted), full, partial)


def _is(mark: Loop, point: Axis) -> bool:
    """Whether a loop is the one over `point`, or a copy of it."""
    return mark.axis is point or mark.like is point


def _small(e: Lin) -> bool:
    """Whether e >= 0 bounds a size from above: not worth a second copy of anything."""
    return all(isinstance(a, Var) and v < 0 for a, v in e.terms.items())


def _all_guards(
    n: Node, path: dict[Axis, int | None] | None = None
) -> Iterator[tuple[Lin, dict[Axis, int | None]]]:
    path = path or {}
    if isinstance(n, Run):
        for c in (*n.conds, *n.read_conds):
            yield c, path
    elif isinstance(n, For):
        last = n.extent - 1 if n.extent is not None and n.kind in _FIXED else None
        yield from _all_guards(n.body, {**path, n.axis: last})
    elif isinstance(n, (Block, If)):
        for i in n.items if isinstance(n, Block) else (n.body,):
            yield from _all_guards(i, path)


def _prune(n: Node, known: list[Lin], box: Mapping[Axis, int]) -> Node:
    """`n` without the guards and bounds that `known` facts imply."""
    if isinstance(n, Block):
        return Block(tuple(_prune(i, known, box) for i in n.items))
    if isinstance(n, If):
        return replace(n, body=_prune(n.body, known, box))
    if isinstance(n, Run):
        conds = tuple(c for c in n.conds if not _implied(c, known, box))
        read_conds = tuple(c for c in n.read_conds if not _implied(c, known, box))
        return replace(n, conds=conds, read_conds=read_conds)
    assert isinstance(n, For)
    if n.extent is not None:
        return replace(n, body=_prune(n.body, known, {**box, n.axis: n.extent - 1}))
    tops = [e.const // c for c, e in n.upper if e.is_const]
    upper = n.upper
    if tops and not n.hull:
        last = min(tops)
        kept = tuple(
            (c, e) for c, e in upper if not e.is_const and not _implied(e - c * last, known, box)
        )
        upper = (*kept, (1, Lin({}, last)))
    alone = upper == ((1, upper[-1][1]),) and upper[-1][1].is_const and n.lower == ((1, ZERO),)
    extent = upper[-1][1].const + 1 if alone else None
    inner = {**box, n.axis: extent - 1} if extent is not None else box
    return replace(n, upper=upper, extent=extent, body=_prune(n.body, known, inner))


def _implied(c: Lin, known: list[Lin], box: Mapping[Axis, int]) -> bool:
    worst = extreme(c, box, -1)
    return any((worst - k).is_const and (worst - k).const >= 0 for k in (*known, ZERO))


def _copies(n: Node) -> int:
    """Vectors or scalars of statements that a nest is emitted as."""
    if isinstance(n, For):
        each = _copies(n.body)
        return each if n.kind not in _FIXED else each * ((n.extent or 1) // (n.width or 1))
    if isinstance(n, Block):
        return sum(map(_copies, n.items))
    if isinstance(n, If):
        return _copies(n.body) + (_copies(n.other) if n.other is not None else 0)
    return 1


def _join(items: tuple[Node, ...]) -> Node:
    """Items in order; neighbours under one test share it."""
    if not items:
        return block(())  # of a computation without elements
    first = items[0]
    if all(isinstance(i, If) and i.other is not None for i in items) and len(items) > 1:
        ifs = [i for i in items if isinstance(i, If)]
        if all(i.conds == ifs[0].conds for i in ifs) and isinstance(first, If):
            others = [i.other for i in ifs if i.other is not None]
            return If(first.conds, block(i.body for i in ifs), block(others))
    return block(items)


def _split(n: For, *, cut: bool) -> Node:
    """A serial loop whose body is one test of its own axis becomes two loops."""
    body = n.body
    if not isinstance(body, If) or body.other is None or n.kind in _FIXED or n.hull:
        return n
    if n.kind == "bind" or (n.kind == "parallel" and not cut):
        return n
    conds: Conj = body.conds
    if len(conds) != 1 or conds[0][0] != "ge":
        return n
    e = conds[0][1]
    a = e.coef(n.axis)
    rest = e.without(n.axis)
    if not a or rest.involves(n.axis):
        return n
    if a < 0:
        parts = (
            replace(n, upper=(*n.upper, (-a, rest)), body=body.body, extent=None),
            replace(n, lower=(*n.lower, (-a, rest + 1)), body=body.other, extent=None),
        )
    else:
        parts = (
            replace(n, upper=(*n.upper, (a, -rest - 1)), body=body.other, extent=None),
            replace(n, lower=(*n.lower, (a, -rest)), body=body.body, extent=None),
        )
    made = [x for x in map(_constant, parts) if x is not None]
    return block(made)


def _tightest(upper: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """Upper bounds less those that another one implies by a constant."""

    def weaker(a: Bound, b: Bound) -> bool:
        apart = a[1] - b[1]
        return a[0] == b[0] and apart.is_const and apart.const > 0

    return tuple(dict.fromkeys(a for a in upper if not any(weaker(a, b) for b in upper)))


def _constant(n: For) -> For | None:
    """Constant bounds gathered into one each, a constant extent from 0 noted; None if empty."""
    lows = [-(-e.const // c) for c, e in n.lower if e.is_const]
    highs = [e.const // c for c, e in n.upper if e.is_const]
    lower = tuple(b for b in n.lower if not b[1].is_const)
    upper = _tightest(tuple(b for b in n.upper if not b[1].is_const))
    if lows:
        lower = ((1, Lin({}, max(lows))), *lower)
    if highs:
        upper = (*upper, (1, Lin({}, min(highs))))
    if lows and highs and max(lows) > min(highs):
        return None
    whole = lower == ((1, ZERO),) and len(upper) == 1 and bool(highs)
    return replace(n, lower=lower, upper=upper, extent=min(highs) + 1 if whole else None)
