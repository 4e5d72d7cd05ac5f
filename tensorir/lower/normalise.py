"""Passes 2 and 3: marked loops keep their constant extent, every loop starts at 0.

One-iteration loops vanish. A loop marked unroll or vectorize keeps the pair of bounds whose
difference is constant; every other bound becomes a condition of the instances. A renumbered loop
gets an axis of its own: origins of buffers and everything else that named the old one follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tensorir.ir.affine import ZERO, Conj, Lin, subst_facts
from tensorir.ir.dtype import DType
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Array
from tensorir.ir.stmt import Block, Bound, For, If, LoopKind, Node, Run, Storage
from tensorir.ir.target import Target
from tensorir.lower.automatic import Automatic, automatic
from tensorir.lower.boxes import at_least, block, extreme, loops, runs, uses
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop
from tensorir.poly.tree import loops as tree_loops
from tensorir.support.errors import UnsupportedError

Env = Mapping[Axis | Var, Lin]
# A vector of this many lanes is never wanted; copies of a body beyond this take too long.
MAX_COPIES = 65_536


@dataclass(slots=True)
class Normal:
    """Loops from 0 and what is known of them.

    `values` gives each axis of the tree over the loop axes now; `marks` the tree's loop that each
    loop axis came from; `firsts` the loop axis of one of the tree, and its value at 0.
    Conditions in `plain` come from a split that asked never to be versioned.
    """

    node: Node
    values: dict[Axis | Var, Lin] = field(default_factory=dict)
    marks: dict[Axis, Loop] = field(default_factory=dict)
    firsts: dict[Axis, tuple[Axis, Lin]] = field(default_factory=dict)
    lanes: dict[Axis, int] = field(default_factory=dict)
    plain: set[Lin] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def _unversioned(program: Program) -> set[Axis]:
    """The point loops of splits that asked for guards alone, and the copies of those."""
    every = list(tree_loops(program.tree))
    points = {x.cut[0] for x in every if x.cut is not None and x.tail == "guard"}
    return points | {x.axis for x in every if x.like in points}


def normalise(
    node: Node, program: Program, storages: Mapping[Array, Storage], target: Target
) -> Normal:
    """Loops over new axes that start at 0, with marked loops of constant extent."""
    work = _Work(
        {x.axis: x for x in tree_loops(program.tree)},
        _unversioned(program),
        automatic(program, storages, target),
        target,
        {a for a, k in Counter(x.axis for x in loops(node)).items() if k > 1},
        frozenset(a for a, x in storages.items() if x.scope == "shared"),
        Normal(Block(())),
    )
    made = work.go(node, _constants(program), (), _Open())
    work.out.node = made if made is not None else Block(())
    return work.out


def _constants(program: Program) -> dict[Axis | Var, Lin]:
    """Sizes that the context fixes."""
    out: dict[Axis | Var, Lin] = {}
    for kind, e in program.context:
        if kind == "eq" and len(e.terms) == 1:
            ((a, c),) = e.terms.items()
            if isinstance(a, Var) and e.const % c == 0:
                out[a] = Lin({}, -e.const // c)
    return out


@dataclass(frozen=True, slots=True)
class _Open:
    """Loops of constant extent around a node: the lanes open (at most one axis), and all.

    `box` has the last value of every loop around that starts at 0 and has a constant one.
    `widened` says that a loop around runs further for some lane than its instances need.
    """

    lanes: Mapping[Axis, int] = field(default_factory=dict)
    fixed: Mapping[Axis, int] = field(default_factory=dict)
    box: Mapping[Axis, int] = field(default_factory=dict)
    widened: bool = False


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A constant range: its first value, and how many."""

    first: Lin
    extent: int


@dataclass(frozen=True, slots=True)
class _Work:
    tree: Mapping[Axis, Loop]
    unversioned: set[Axis]
    automatic: Automatic
    target: Target
    repeated: set[Axis]
    shared: frozenset[Array]
    out: Normal

    def go(self, n: Node, env: Env, conds: tuple[Lin, ...], open_: _Open) -> Node | None:
        if isinstance(n, Block):
            made = (self.go(i, env, conds, open_) for i in n.items)
            items = [x for x in made if x is not None]
            return block(items) if items else None
        if isinstance(n, If):
            return self.condition(n, env, conds, open_)
        if isinstance(n, Run):
            return self.run(n, env, conds, open_)
        assert isinstance(n, For)
        return self.loop(n, env, conds, open_)

    def run(self, n: Run, env: Env, conds: tuple[Lin, ...], open_: _Open) -> Node | None:
        if any(c.is_const and c.const < 0 for c in conds):
            return None
        kept = tuple(dict.fromkeys(c for c in conds if not c.is_const))
        args = tuple(e.subst(env) for e in n.args)
        corner = n.corner and not open_.widened
        return Run(n.statement, args, kept, corner=corner, part=n.part)

    def condition(self, n: If, env: Env, conds: tuple[Lin, ...], open_: _Open) -> Node | None:
        """Facts over lanes or unrolled axes go to the instances; the rest stays around them."""
        assert n.other is None
        outer: Conj = ()
        for kind, e in subst_facts(n.conds, env):
            if uses(e, open_.fixed):
                conds = (*conds, *at_least(((kind, e),)))
            elif e.is_const:
                if not (e.const >= 0 if kind == "ge" else e.const == 0):
                    return None
            else:
                outer = (*outer, (kind, e))
        body = self.go(n.body, env, conds, open_)
        return body if body is None or not outer else If(outer, body)

    def loop(self, n: For, env: Env, conds: tuple[Lin, ...], open_: _Open) -> Node | None:
        mark = self.tree[n.axis]
        lower = tuple((c, e.subst(env)) for c, e in n.lower)
        upper = tuple((c, e.subst(env)) for c, e in n.upper)
        kind = n.kind
        if kind == "serial" and n.axis in self.automatic.loops:
            fits = self.automatic.loops[n.axis] is not None and not open_.lanes
            kind = "vectorize" if fits and not _holds_vector(n.body) else "unroll"
        # Loops over one axis in two nests must agree on what it means: buffers name it.
        alone = n.axis not in self.repeated and n.kind != "bind"
        single = _single(lower, upper) if alone else None
        if kind in ("unroll", "vectorize") and not (kind == "unroll" and single is not None):
            fixed = _fixed(lower, upper, hull=n.hull)
            if fixed is None and not n.hull:
                wide = _widest_of(lower, open_, -1), _widest_of(upper, open_, 1)
                fixed = _fixed(*wide, hull=False)
            fixed = _from(fixed, self.out.firsts.get(n.axis))
            if fixed is not None:
                return self.marked(n, kind, fixed, lower, upper, env, conds, open_)
            if mark.kind == kind:
                self.out.notes.append(f"{n.axis.name}: no constant extent for {kind}: left serial")
            kind = "serial"
        if single is not None:
            self.out.values[n.axis] = single
            return self.go(n.body, {**env, n.axis: single}, conds, open_)
        if kind in ("bind", "serial") and self.keeps_extent(n):
            fixed = _fixed(lower, upper, hull=n.hull)
            if fixed is not None and fixed.first == ZERO:
                return self.marked(n, kind, fixed, lower, upper, env, conds, open_)
        return self.plain(n, kind, lower, upper, env, conds, open_)

    def keeps_extent(self, n: For) -> bool:
        """Whether a loop that is not written out runs in full all the same, with conditions.

        The threads of a block do, and what fills shared memory: then it is filled to the edge.
        """
        if n.kind == "bind":
            return n.bind is not None and n.bind.startswith("threadIdx")
        written = [w.array for r in runs(n) for w in r.statement.writes]
        return bool(written) and all(a in self.shared for a in written)

    def marked(
        self, n: For, kind: LoopKind, fixed: _Fixed, lower: tuple[Bound, ...],
        upper: tuple[Bound, ...], env: Env, conds: tuple[Lin, ...], open_: _Open,
    ) -> Node | None:  # fmt: skip
        """A loop that keeps its constant extent; its other bounds become conditions."""
        name, mark, extent = n.axis.name, self.tree[n.axis], fixed.extent
        width = n.width if kind == "bind" else None
        if kind == "vectorize" and (open_.lanes or _holds_vector(n.body)):
            kind = "unroll"
            self.out.notes.append(f"{name}: a vector loop around another one is unrolled")
        if kind == "vectorize":
            width = self.width(n)
            extent = -(-extent // width) * width
        if extent > MAX_COPIES and kind in ("unroll", "vectorize"):
            raise UnsupportedError(
                f"loop {name}: {extent} copies of its body are more than {MAX_COPIES}",
                details=f"  try  splitting {name} and marking the inner loop",
            )
        axis, _ = self.axis(mark, fixed.first)
        value = Lin({axis: 1}) + fixed.first
        new = [] if n.hull else _left_over(value, lower, upper, fixed, extent)
        if extent > fixed.extent:
            new.append(Lin({axis: -1}, fixed.extent - 1))
        if n.axis in self.unversioned:
            self.out.plain.update(new)
        self.out.values[n.axis] = value
        box = {**open_.box, axis: extent - 1}
        inner = replace(open_, fixed={**open_.fixed, axis: extent}, box=box)
        if kind in ("bind", "serial"):
            # what a load may skip in a corner holds for copies that are written out
            inner = replace(inner, widened=True)
        if kind == "vectorize":
            self.out.lanes[axis] = max(extent, self.out.lanes.get(axis, 0))
            inner = replace(inner, lanes={axis: extent})
        body = self.go(n.body, {**env, n.axis: value}, (*conds, *new), inner)
        if body is None:
            return None
        bounds: tuple[tuple[Bound, ...], tuple[Bound, ...]]
        bounds = ((1, ZERO),), ((1, Lin({}, extent - 1)),)
        whole = kind != "vectorize" or extent == width
        asked = n.intrinsic if kind == n.kind and whole else None
        return For(axis, *bounds, body, kind, extent, width, bind=n.bind, intrinsic=asked)

    def width(self, n: For) -> int:
        """The lanes of each vector of a vector loop."""
        marked = self.automatic.widths.get(n.axis) or self.tree[n.axis].width
        return marked or self.automatic.loops.get(n.axis) or self.target.lanes(_widest(n))

    def plain(
        self, n: For, kind: LoopKind, lower: tuple[Bound, ...], upper: tuple[Bound, ...],
        env: Env, conds: tuple[Lin, ...], open_: _Open,
    ) -> Node | None:  # fmt: skip
        """A serial or parallel loop, renumbered from 0 where it has one lower bound."""
        first = ZERO
        begins = len(lower) == 1 and lower[0][0] == 1 and kind != "bind"
        if begins and not uses(lower[0][1], open_.lanes):
            first = lower[0][1]
        axis, first = self.axis(self.tree[n.axis], first)
        value = Lin({axis: 1}) + first
        lower = tuple((c, e - first * c) for c, e in lower)
        upper = tuple((c, e - first * c) for c, e in upper)
        new: list[Lin] = []
        if any(uses(e, open_.lanes) for _, e in (*lower, *upper)):
            lower, upper, new = _over_lanes(axis, lower, upper, open_, hull=n.hull)
            open_ = replace(open_, widened=True)
        extent = None
        if lower == ((1, ZERO),) and len(upper) == 1 and upper[0][1].is_const:
            extent = upper[0][1].const // upper[0][0] + 1
            if extent <= 0:
                return None
            open_ = replace(open_, box={**open_.box, axis: extent - 1})
        self.out.values[n.axis] = value
        body = self.go(n.body, {**env, n.axis: value}, (*conds, *new), open_)
        if body is None:
            return None
        hull = n.hull and (len(lower) > 1 or len(upper) > 1)
        width = n.width if kind == "bind" else None
        return For(axis, lower, upper, body, kind, extent, width, hull=hull, bind=n.bind)

    def axis(self, mark: Loop, first: Lin) -> tuple[Axis, Lin]:
        """The axis that a loop gets, and where it begins; as before where it had one already."""
        known = self.out.firsts.get(mark.axis)
        if known is not None:
            return known
        new = Axis(mark.axis.name, reduce=mark.axis.reduce)
        self.out.marks[new] = mark
        self.out.firsts[mark.axis] = new, first
        return new, first


def _single(lower: tuple[Bound, ...], upper: tuple[Bound, ...]) -> Lin | None:
    """The only value of a loop, if its bounds say that there is just one."""
    if len(lower) == len(upper) == 1 and lower == upper and lower[0][0] == 1:
        return lower[0][1]
    return None


def _fixed(lower: tuple[Bound, ...], upper: tuple[Bound, ...], *, hull: bool) -> _Fixed | None:
    """The smallest constant range among the bounds; of a hull one that holds all of them."""
    if hull:
        base = lower[0][1]
        lows = [e - base for c, e in lower if c == 1]
        highs = [e - base for c, e in upper if c == 1]
        if len(lows) < len(lower) or len(highs) < len(upper):
            return None
        if not all(e.is_const for e in (*lows, *highs)):
            return None
        first = min(e.const for e in lows)
        return _Fixed(base + first, max(max(e.const for e in highs) - first + 1, 1))
    best: _Fixed | None = None
    for c, low in lower:
        for d, high in upper:
            distance = high - low
            if c != 1 or d != 1 or not distance.is_const or distance.const < 0:
                continue
            if best is None or distance.const + 1 < best.extent:
                best = _Fixed(low, distance.const + 1)
    return best


def _widest_of(bounds: tuple[Bound, ...], open_: _Open, sign: int) -> tuple[Bound, ...]:
    """Bounds that hold for all values of the loops around that have constant ones."""
    found: list[Bound] = []
    for c, e in bounds:
        worst = extreme(e, open_.box, sign)
        if worst.is_const:
            c, worst = 1, Lin({}, worst.const // c if sign > 0 else -(-worst.const // c))
        found.append((c, worst))
    return tuple(found)


def _from(fixed: _Fixed | None, known: tuple[Axis, Lin] | None) -> _Fixed | None:
    """The range seen from where the axis began in an earlier nest; None if that is not before."""
    if fixed is None or known is None:
        return fixed
    ahead = fixed.first - known[1]
    if not ahead.is_const or ahead.const < 0:
        return None
    return _Fixed(known[1], fixed.extent + ahead.const)


def _left_over(
    value: Lin, lower: tuple[Bound, ...], upper: tuple[Bound, ...], fixed: _Fixed, extent: int
) -> list[Lin]:
    """The bounds that the constant range does not imply, as expressions of at least 0."""
    out = [value * c - e for c, e in lower if not _holds(fixed.first * c - e)]
    last = fixed.first + (fixed.extent - 1)
    out += [e - value * c for c, e in upper if not _holds(e - last * c)]
    return out


def _holds(e: Lin) -> bool:
    return e.is_const and e.const >= 0


def _over_lanes(
    axis: Axis, lower: tuple[Bound, ...], upper: tuple[Bound, ...], open_: _Open, *, hull: bool
) -> tuple[tuple[Bound, ...], tuple[Bound, ...], list[Lin]]:
    """Bounds that depend on a lane: those that hold for all lanes, the exact ones as conditions."""
    box = {a: n - 1 for a, n in open_.lanes.items()}
    at = Lin({axis: 1})
    new = [at * c - e for c, e in lower if uses(e, box)]
    new += [e - at * c for c, e in upper if uses(e, box)]
    wide_lower = tuple((c, extreme(e, box, -1)) for c, e in lower)
    wide_upper = tuple((c, extreme(e, box, 1)) for c, e in upper)
    return wide_lower, wide_upper, [] if hull else new


def _holds_vector(node: Node) -> bool:
    return any(x.kind == "vectorize" for x in loops(node))


def _widest(node: Node) -> DType:
    """The element type of the widest array that instances under a node touch."""
    found = [a.array.dtype for r in runs(node) for a in (*r.statement.writes, *r.statement.reads)]
    return max(found, key=lambda d: d.bits)
