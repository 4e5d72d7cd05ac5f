"""Passes 4 and 5: allocations are rounded up to whole tiles, then needless guards go.

"The full body serves the edge": a condition that is decided by the cell that an instance writes
may be dropped where that cell is private and lies in the allocation. Then the extra instances
write extra cells only, which nothing reads. Conditions on a reduction axis fail that test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorir.ir.affine import Atom, Lin, floormod
from tensorir.ir.expr import Axis, Const, Expr, Op, Var, children
from tensorir.ir.statement import Access, Array, Statement
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run, Storage
from tensorir.lower.boxes import Box, runs, span, touches, uses
from tensorir.lower.cells import Cells, shape_of
from tensorir.lower.layout import Writer

# Operations that may stop the program on operands that the declaration never gives them.
_TRAPS = ("floordiv", "floormod", "truncdiv", "truncmod")


def round_up(
    node: Node, storages: Mapping[Array, Storage], box: Box, lanes: Mapping[Axis, int]
) -> dict[Array, Storage]:
    """Storages that hold the constant box of every guarded statement that writes them."""
    out = dict(storages)
    cells = Cells(out, box)
    for run in runs(node):
        for access in run.statement.writes:
            storage = out.get(access.array)
            index = cells.index(access, run)
            if storage is None or index is None or not run.conds:
                continue
            extent = list(storage.extent)
            for d, e in enumerate(cells.local(storage, index)):
                s = span(e, box)
                if s is not None and s[0] >= 0 and extent[d].is_const:
                    extent[d] = Lin({}, max(extent[d].const, s[1] + 1))
            if tuple(extent) != storage.extent:
                own = {a: lanes[a] for a in storage.lanes}
                shape = shape_of(tuple(extent), storage.dims, own)
                out[access.array] = replace(storage, extent=tuple(extent), shape=shape)
    return out


def squeezed(node: Node, storages: Mapping[Array, Storage]) -> dict[Array, Storage]:
    """Storages without dimensions of extent 1: neighbours along others are then neighbours.

    An array with a loaded index keeps all, for it is addressed as declared.
    """
    loaded = {
        a.array
        for r in runs(node)
        for a in (*r.statement.writes, *r.statement.reads)
        if not a.exact
    }
    out: dict[Array, Storage] = {}
    for array, s in storages.items():
        if array in loaded:
            out[array] = s
            continue
        kept = [k for k, (d, op, _) in enumerate(s.dims) if op is not None or not _one(s.extent[d])]
        lanes = s.shape[len(s.dims) :]
        shape = (*(s.shape[k] for k in kept), *lanes)
        out[array] = replace(s, dims=tuple(s.dims[k] for k in kept), shape=shape)
    return out


def with_rows(storages: Mapping[Array, Storage]) -> dict[Array, Storage]:
    """Storages whose rows lie as far apart as was asked for."""
    out = dict(storages)
    for array, s in storages.items():
        if s.rows is not None and s.shape and s.shape[-1].is_const and not s.lanes:
            last = Lin({}, s.rows.room(s.shape[-1].const))
            out[array] = replace(s, shape=(*s.shape[:-1], last))
    return out


def tightened(node: Node, storages: Mapping[Array, Storage], box: Box) -> dict[Array, Storage]:
    """Storages in registers without the part of a tile that a thread has no cells in.

    As of the accumulators of a matrix tile: one row in eight, two columns in eight.
    """
    cells = Cells(storages, box)
    last: dict[Array, list[int]] = {
        a: [0] * len(s.dims) for a, s in storages.items()
        if s.scope == "local" and not s.lanes and any(op == "%" for _, op, _ in s.dims)
    }  # fmt: skip
    for run in runs(node):
        for access in (*run.statement.writes, *run.statement.reads):
            if access.array not in last:
                continue
            spans = [span(e, box) for e in cells.place(access, run) or ()]
            if not spans or any(x is None or x[0] < 0 for x in spans):
                del last[access.array]
                continue
            mine = last[access.array]
            last[access.array] = [max(m, x[1]) for m, x in zip(mine, spans, strict=True) if x]
    out = dict(storages)
    for array, ends in last.items():
        s = storages[array]
        room = [
            min(e.const, n + 1) if e.is_const else n + 1 for e, n in zip(s.shape, ends, strict=True)
        ]
        kept = [k for k, n in enumerate(room) if n > 1]
        shape = tuple(Lin({}, room[k]) for k in kept)
        out[array] = replace(s, dims=tuple(s.dims[k] for k in kept), shape=shape)
    return out


def _one(extent: Lin) -> bool:
    return extent.is_const and extent.const == 1


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Loops without needless guards; `dropped` keeps what each instance lost."""

    node: Node
    dropped: dict[Run, tuple[Lin, ...]]


def relax(node: Node, cells: Cells, private: Mapping[tuple[Array, Statement], Writer]) -> Relaxed:
    """Drop conditions that the written cell decides; what only loads need becomes `read_conds`.

    Also settles `Run.corner`: on entry it says that the loops are exact for the statement.
    """
    dropped: dict[Run, tuple[Lin, ...]] = {}
    work = _Work(cells, private, dropped)
    return Relaxed(work.go(node, {}, bent=False), dropped)


@dataclass(frozen=True, slots=True)
class _Work:
    cells: Cells
    private: Mapping[tuple[Array, Statement], Writer]
    dropped: dict[Run, tuple[Lin, ...]]

    def go(self, n: Node, fixed: Mapping[Axis, None], *, bent: bool) -> Node:
        """`fixed` are the unrolled and vector axes around; `bent`: a bound depends on one."""
        if isinstance(n, Block):
            return Block(tuple(self.go(i, fixed, bent=bent) for i in n.items))
        if isinstance(n, If):
            return replace(n, body=self.go(n.body, fixed, bent=bent))
        if isinstance(n, For):
            if n.kind in ("unroll", "vectorize"):
                fixed = {**fixed, n.axis: None}
            elif n.hull or any(uses(e, fixed) for _, e in (*n.lower, *n.upper)):
                bent = True
            return replace(n, body=self.go(n.body, fixed, bent=bent))
        assert not isinstance(n, Alloc)
        return self.instance(n, fixed, bent=bent)

    def instance(self, n: Run, fixed: Mapping[Axis, None], *, bent: bool) -> Run:
        s = n.statement
        n = replace(n, conds=strongest(n.conds, self.cells.box))
        move: list[Lin] = []
        if n.conds and self.may_relax(n, exact=n.corner and not bent):
            move = [c for c in n.conds if self.decided(n, c)]
        keep = tuple(c for c in n.conds if c not in move)
        padded = all(self.cells.inside(a, n) for a in s.reads)
        read_conds = () if padded else tuple(move)
        corner = n.corner and not bent and all(_falls(c, fixed) for c in n.conds)
        new = replace(n, conds=keep, read_conds=read_conds, corner=corner)
        if move:
            self.dropped[new] = tuple(move)
        return new

    def may_relax(self, n: Run, *, exact: bool) -> bool:
        """Whether extra instances of a statement are harmless where they write extra cells.

        `exact` says that the loops reach only prefixes under which the statement has an instance.
        Other prefixes matter where another statement writes the same array there.
        """
        s = n.statement
        return (
            not n.part
            and all(self.cells.inside(a, n) for a in s.writes)
            and all(self.alone(a, s, exact=exact) for a in s.writes)
            and all(a.exact for a in s.reads)
            and not any(_may_trap(b) for b in s.bodies)
        )

    def alone(self, access: Access, s: Statement, *, exact: bool) -> bool:
        """Whether no other statement writes the cells that extra instances write."""
        known = self.private.get((access.array, s))
        return known is None or (known.clean and (exact or known.only))

    def decided(self, n: Run, c: Lin) -> bool:
        """Whether the cell of each written array tells if `c` holds."""
        return all(self.decided_by(n, c, a) for a in n.statement.writes)

    def decided_by(self, n: Run, c: Lin, access: Access) -> bool:
        storage = self.cells.storages[access.array]
        index = self.cells.index(access, n)
        assert index is not None
        outside = dict.fromkeys((*storage.outside, *storage.turns))
        if storage.scope == "shared" and any(self.told_by(c, e, outside) for e in index):
            return True
        return any(self.fixed_by(c, e, outside) for e in index) or _fixed_together(
            c, index, outside
        )

    def told_by(self, c: Lin, e: Lin, outside: Mapping[Axis, None]) -> bool:
        """Whether `e` and what is outside tell if `c >= 0`, though not its value.

        They do where c is k*e, or -k*e, plus something of which only so much is inside that it
        lies between two multiples of k: `1024*b + t <= 1031` is `128*b + t//8 <= 128`.
        """
        scales = {abs(c.coef(a)) // abs(v) for a, v in e.terms.items() if not c.coef(a) % v}
        for k in sorted(scales - {0}):
            for rest in (_opened(c - e * k), _opened(c + e * k)):
                mine = {a: v for a, v in rest.terms.items() if not _outside(a, outside)}
                others = (v for a, v in rest.terms.items() if a not in mine)
                near = span(Lin(mine, rest.const), self.cells.box)
                if near and near[0] // k == near[1] // k and all(v % k == 0 for v in others):
                    return True
        return False

    def fixed_by(self, c: Lin, e: Lin, outside: Mapping[Axis, None]) -> bool:
        """Whether `e` and what is outside fix the value of `c`.

        They do where f*c differs from ±e by less than f inside: f*c is then the only multiple of f
        that is near enough. So a count of whole vectors is fixed by the cell of each lane.
        """
        scales = {1, *(abs(e.coef(a)) // abs(v) for a, v in c.terms.items())}
        for f in sorted(scales - {0}):
            for rest in (c * f - e, c * f + e):
                inner = Lin({a: v for a, v in rest.terms.items() if not _outside(a, outside)})
                near = span(inner, self.cells.box)
                if not inner.terms or (near is not None and near[1] - near[0] < f):
                    return True
        return False


def _opened(e: Lin) -> Lin:
    """`e` with each n*(x//n) as x - x%n."""
    for a, v in e.terms.items():
        if isinstance(a, tuple) and a[0] == "//" and v % a[2] == 0:
            return _opened(e.without(a) + (a[1] - floormod(a[1], a[2])) * (v // a[2]))
    return e


def _fixed_together(c: Lin, index: tuple[Lin, ...], outside: Mapping[Axis, None]) -> bool:
    """Whether `c` is a sum of indices, each so many times, and of what is outside.

    As that of a triangle is: `i - j` of the cell (i, j).
    """
    rest = c
    for e in index:
        own = [a for a in e.terms if isinstance(a, Axis) and not _outside(a, outside)]
        for a in own[:1]:
            times, left = divmod(rest.coef(a), e.coef(a))
            if not left:
                rest = rest - e * times
    return all(_outside(a, outside) for a in rest.terms)


def _outside(atom: Atom, outside: Mapping[Axis, None]) -> bool:
    return all(isinstance(a, Var) or a in outside for a in Lin({atom: 1}).atoms())


def strongest(conds: tuple[Lin, ...], box: Box) -> tuple[Lin, ...]:
    """Conditions less those that another implies, given the ranges of the axes."""
    kept = list(dict.fromkeys(conds))
    for c in tuple(kept):
        if any(other is not c and _implies(other, c, box) for other in kept):
            kept.remove(c)
    return tuple(kept)


def _implies(other: Lin, c: Lin, box: Box) -> bool:
    """Whether `other >= 0` makes `c >= 0`: k*c exceeds it by more than -k, and c is an integer."""
    for a, v in c.terms.items():
        k, rest = divmod(other.coef(a), v)
        if rest or k < 1:
            continue
        s = span(c * k - other, box)
        if s is not None and s[0] > -k:
            return True
    return False


def _falls(c: Lin, fixed: Mapping[Axis, None]) -> bool:
    """Whether `c` is largest where the axes in `fixed` are 0."""
    mine = [(a, v) for a, v in c.terms.items() if touches(a, fixed)]
    return all(v < 0 and not isinstance(a, tuple) for a, v in mine)


def _may_trap(e: Expr) -> bool:
    seen: set[int] = set()

    def look(x: Expr) -> bool:
        if id(x) in seen:
            return False
        seen.add(id(x))
        if isinstance(x, Op) and x.name in _TRAPS:
            d = x.args[1]
            if not x.dtype.is_float and not (isinstance(d, Const) and d.value not in (0, -1)):
                return True
        return any(look(y) for y in children(x))

    return look(e)
