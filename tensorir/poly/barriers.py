"""Where the threads of a block must wait for each other, and for what.

Two accesses to one cell of shared or global memory by different threads of a block, one of them
writing, need a barrier between them. Barriers stand between the items of a sequence that no thread
loop holds, where control is the same for all threads of the block. A dependence between two items
asks for one of the gaps between them; one that a serial loop carries, for one of the gaps from the
source to the end of the body, or from its beginning to the sink. Inner sequences come first, and
each gets the fewest gaps that serve all that is asked of it.

What asynchronous copies bring is there once the thread that issued them waited for it: each
iteration that may issue some ends their group, and a barrier that stands for what they bring has a
wait before it. Where every iteration of a loop makes one group, a wait leaves as many of them in
flight as the distance between a copy and its use allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from tensorir.ir.affine import ZERO, Lin
from tensorir.ir.expr import Axis
from tensorir.ir.matrix import MatrixIntrinsic
from tensorir.ir.statement import Array, Statement, StatementRole
from tensorir.poly import groups, isl, tree
from tensorir.poly.conflict import Conflict, between
from tensorir.poly.isl import Map
from tensorir.poly.model import Placement, Program
from tensorir.poly.relation import context_set, ordered
from tensorir.poly.tree import At, Loop, Seq, Tree
from tensorir.support.errors import UnsupportedError


@dataclass(slots=True)
class _Need:
    """A dependence that needs a barrier in one of some gaps, and what it is."""

    gaps: frozenset[int]
    text: str
    ends: tuple[str, str]


@dataclass(slots=True)
class _Work:
    program: Program
    threads: tuple[Axis, ...]
    blocks: frozenset[Axis]
    placements: dict[str, Placement]
    ahead: frozenset[str]
    warp: frozenset[str]
    ended: dict[str, None] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def with_barriers(
    program: Program, indices: Mapping[str, Axis], *, asynchronous: bool = False
) -> tuple[Program, Mapping[str, str]]:
    """The program with barrier statements, and the dependences that each is for.

    `asynchronous` says that the target has copies that run on their own.
    """
    threads = tuple(a for i, a in indices.items() if i.startswith("threadIdx"))
    ahead = groups.copies(program) if asynchronous else frozenset()
    if not threads and not ahead:
        return program, {}
    blocks = frozenset(a for i, a in indices.items() if i.startswith("blockIdx"))
    warp = frozenset(
        n for x in tree.loops(program.tree) if isinstance(x.intrinsic, MatrixIntrinsic)
        for n in tree.stmts(x)
    )  # fmt: skip
    work = _Work(program, threads, blocks, dict(program.placements), ahead, warp)
    order = _go(work, program.tree, (), ())
    return program.change(tree=order, placements=work.placements), work.reasons


def _go(work: _Work, t: Tree, axes: tuple[Axis, ...], serial: tuple[Axis, ...]) -> Tree:
    """`t` with barriers in its sequences; `axes` are around it, `serial` those that repeat."""
    if isinstance(t, At):
        return t
    if isinstance(t, Loop):
        if t.axis in set(work.threads):
            _require_apart(work, t, axes)
            return t
        inner = (*axes, t.axis)
        repeats = serial if t.axis in work.blocks else (*serial, t.axis)
        body = _go(work, t.body, inner, repeats)
        if not isinstance(t.body, Seq) and t.axis not in work.blocks:
            # a body of one item may still hand something to its next iteration
            body = _gaps(work, (body,), inner, repeats)
        return replace(t, body=body)
    items = tuple(_go(work, i, axes, serial) for i in t.items)
    return _gaps(work, items, axes, serial)


def _gaps(
    work: _Work, items: Sequence[Tree], axes: tuple[Axis, ...], serial: tuple[Axis, ...]
) -> Tree:
    needs = list(_needs(work, items, axes, serial))
    loop = axes[-1] if serial and serial[-1] is axes[-1] else None
    ends = _group(work, items, loop, not serial)
    if not needs and ends is None:
        return tree.seq(list(items))
    chosen = _fewest(needs, len(items))
    out: list[Tree] = []
    for k, item in enumerate(items):
        out.append(item)
        if k == ends:
            inside = [n for i in items for n in tree.stmts(i) if n in work.program.placements]
            own = inside if loop is not None else [n for n in tree.stmts(item) if n in inside]
            out.append(_marker(work, axes, own, "commit"))
        if k in chosen:
            served = [n for n in needs if k in n.gaps]
            waited = [n.ends for n in served if n.ends[0] in work.ahead]
            if waited:
                left = 0
                if ends is not None and loop is not None:
                    left = groups.in_flight(work.program, items, axes, k, ends, waited)
                names = [n for pair in waited for n in pair]
                out.append(_marker(work, axes, names, "wait", left))
            out += _barriers(work, axes, served)
    return tree.seq(out)


def _group(work: _Work, items: Sequence[Tree], loop: Axis | None, outermost: bool) -> int | None:
    """The item after which a group of copies ends, in each iteration of their loop; where that
    loop is not to be seen, after all of them."""
    mine = [
        (k, n) for k, i in enumerate(items) for n in tree.stmts(i)
        if n in work.ahead and n not in work.ended
    ]  # fmt: skip
    if not mine:
        return None
    names = [n for _, n in mine]
    if not outermost and loop not in groups.turns(work.program, names):
        return None
    work.ended.update(dict.fromkeys(names))
    return max(k for k, _ in mine)


def _fewest(needs: list[_Need], count: int) -> frozenset[int]:
    """The fewest gaps that meet every need; of equals the earliest."""
    if not needs:
        return frozenset()
    asked = sorted({g for n in needs for g in n.gaps})
    for size in range(1, min(len(asked), 4) + 1):
        for chosen in combinations(asked, size):
            if all(not n.gaps.isdisjoint(chosen) for n in needs):
                return frozenset(chosen)
    return frozenset(range(count))


def _needs(
    work: _Work, items: Sequence[Tree], axes: tuple[Axis, ...], serial: tuple[Axis, ...]
) -> list[_Need]:
    """What items hand from one thread to another, in one iteration and to the next one."""
    program, found = work.program, list(_reused(work, items, axes, serial))
    last = len(items) - 1

    def met(x: str, y: str, c: Conflict, loop: Axis | None) -> bool:
        # even the thread that issued a copy must wait for it, and lanes load for each other
        alone = (x in work.ahead and y not in work.ahead) or x in work.warp or y in work.warp
        return crosses(program, x, y, c, axes, work.threads, loop, alone=alone)

    names = [[n for n in tree.stmts(i) if n in program.placements] for i in items]
    for a, mine in enumerate(names):
        for b in range(a, len(names)):
            for x in mine:
                for y in names[b]:
                    for c in between(program.stmt(x), program.stmt(y), program.sizes):
                        if not meets(program, x, y, c):
                            continue
                        if a < b and met(x, y, c, None):
                            gaps = frozenset(range(a, b))
                            found.append(_Need(gaps, _text(x, y, c.array), (x, y)))
                        loop = serial[-1] if serial and serial[-1] is axes[-1] else None
                        if loop is None:
                            continue
                        if met(y, x, c.reverse(), loop):
                            gaps = frozenset((*range(b, last + 1), *range(a)))
                            text = f"{_text(y, x, c.array)} of the next {loop.name}"
                            found.append(_Need(gaps, text, (y, x)))
                        if a != b and met(x, y, c, loop):
                            # from the first item on there is a gap before the loop comes round
                            gaps = frozenset(range(last + 1))
                            text = f"{_text(x, y, c.array)} of the next {loop.name}"
                            found.append(_Need(gaps, text, (x, y)))
    return found


def _reused(
    work: _Work, items: Sequence[Tree], axes: tuple[Axis, ...], serial: tuple[Axis, ...]
) -> list[_Need]:
    """Shared buffers that exist once for each iteration of the loop lie in one place: all that
    touch one must be done before the next iteration writes it. So must what reads a tile of one
    that a pipeline fills, for a copy may fill more of a tile than there is to read."""
    if not serial or serial[-1] is not axes[-1]:
        return []
    program, loop, found = work.program, serial[-1], []
    last = len(items) - 1
    for array, buffer in program.buffers.items():
        turns = loop in set(buffer.turns)
        if buffer.scope != "shared" or not (turns or loop in set(buffer.outside)):
            continue
        users = [
            (k, n)
            for k, i in enumerate(items)
            for n in tree.stmts(i)
            if n in program.placements and _touches(program.stmt(n), array)
        ]
        for a, x in users:
            if turns and groups.brings(program, x, array):
                continue
            for b, y in users:
                if groups.brings(program, y, array):
                    gaps = frozenset((*range(a, last + 1), *range(b)))
                    text = f"{array.name} of {x} is used again by {y} of the next {loop.name}"
                    found.append(_Need(gaps, text, (x, y)))
    return found


def _touches(s: Statement, array: Array) -> bool:
    return any(a.array is array for a in (*s.reads, *s.writes))


def _text(source: str, sink: str, array: Array) -> str:
    return f"{array.name} from {source} to {sink}"


def _require_apart(work: _Work, loop: Loop, axes: tuple[Axis, ...]) -> None:
    """Refuse threads that hand something to each other inside a loop over threads, where a barrier
    would not be reached by all."""
    program, names = work.program, tree.stmts(loop)
    if not _branches(loop.body, set(work.threads)):
        return
    for k, x in enumerate(names):
        for y in names[k:]:
            for c in between(program.stmt(x), program.stmt(y), program.sizes):
                if meets(program, x, y, c) and crosses(program, x, y, c, axes, work.threads):
                    raise UnsupportedError(
                        f"{y} uses {c.array.name} of {x} in another thread, inside a loop over "
                        f"{loop.axis.name}: no barrier can stand there",
                        details="  try  putting the loops that they share outside those of threads",
                    )


def _branches(t: Tree, threads: set[Axis]) -> bool:
    """Whether statements stand side by side, or a loop that repeats holds threads."""
    if isinstance(t, At):
        return False
    if isinstance(t, Seq):
        return True
    holds = t.axis not in threads and any(x.axis in threads for x in tree.loops(t.body))
    return holds or _branches(t.body, threads)


def meets(program: Program, x: str, y: str, c: Conflict) -> bool:
    """Whether threads can meet in the array: it is not kept by each for itself."""
    buffer = program.buffers.get(c.array)
    if buffer is not None and buffer.scope == "local":
        return False
    return not (program.stmt(x).atomic and program.stmt(y).atomic and c.exempt is not None)


def crosses(
    program: Program,
    x: str,
    y: str,
    c: Conflict,
    axes: tuple[Axis, ...],
    threads: tuple[Axis, ...],
    loop: Axis | None = None,
    *,
    alone: bool = False,
) -> bool:
    """Whether instances of two threads (or blocks) meet: in one iteration of `axes`, or in a later
    one of `loop` among them. With `alone` one thread counts as well."""
    over = (*axes, *threads)
    n, first = len(over), len(axes)
    source, sink = (_by_threads(program, n, c.array, over) for n in (x, y))
    times = c.relation.apply_domain(source).apply_range(sink)
    times = times.intersect_params(context_set(program))
    for k, a in enumerate(axes):
        times = times.intersect(_compare(n, k, "lt" if a is loop else "eq"))
    if alone:
        return not times.is_empty()
    return any(
        not times.intersect(_compare(n, k, sign)).is_empty()
        for k in range(first, n)
        for sign in ("lt", "gt")
    )


def _by_threads(program: Program, name: str, array: Array, over: tuple[Axis, ...]) -> Map:
    """The time of a statement's instances; where threads are combined, the first one writes."""
    time = ordered(program, name, over)
    if not any(w.array is array for w in program.stmt(name).writes):
        return time
    for x in tree.loops_of(program.tree, name):
        at = next((k for k, a in enumerate(over) if a is x.axis), None)
        if x.kind == "bind" and x.width is not None and at is not None:
            first = isl.Rows({}, 1 + len(over))
            first.eq.append({1 + at: 1})
            time = time.intersect_range(first.to_set(isl.set_space((), len(over))))
    return time


def _compare(n: int, k: int, sign: str) -> Map:
    rows = isl.Rows({}, 1 + 2 * n)
    a, b = 1 + k, 1 + n + k
    if sign == "eq":
        rows.eq.append({a: 1, b: -1})
    else:
        s = 1 if sign == "lt" else -1
        rows.ge.append({0: -1, a: -s, b: s})
    return rows.to_map(isl.map_space((), n, n))


def _barriers(work: _Work, axes: tuple[Axis, ...], served: list[_Need]) -> list[Tree]:
    """A barrier for some needs, that runs whenever one of their statements does."""
    program = work.program
    names = list(dict.fromkeys(n for need in served for n in need.ends))
    where = {n: ordered(program, n, axes).range() for n in names}
    text = "; ".join(dict.fromkeys(n.text for n in served))
    best = max(names, key=lambda n: sum(where[m].is_subset(where[n]) for m in names))
    if all(where[m].is_subset(where[best]) for m in names):
        return [_barrier(work, axes, best, text)]
    mark = _marker(work, axes, names, "barrier")
    work.reasons[mark.stmt] = text
    return [mark]


def _marker(
    work: _Work, axes: tuple[Axis, ...], names: Sequence[str], role: StatementRole, left: int = 0
) -> At:
    """A statement of that role in each iteration of `axes` in which one of the others runs."""
    name = f"{role}{1 + sum(p.stmt.role == role for p in work.placements.values())}"
    iters = tuple(Axis(a.name) for a in axes)
    program = work.program
    domain = isl.from_set(groups.runs(program, names, axes), iters, program.sizes)
    stage = program.stmt(names[0]).stage
    stmt = Statement(name, stage, iters, domain, (), (), (), role, in_flight=left)
    work.placements[name] = Placement.fresh(stmt, axes)
    return At(name)


def _barrier(work: _Work, axes: tuple[Axis, ...], beside: str, text: str) -> Tree:
    """A barrier for all threads in each iteration of `axes` that has an instance of a statement."""
    name = f"barrier{len(work.reasons) + 1}"
    p = work.program.placements[beside]
    s = p.stmt
    stmt = Statement(name, s.stage, s.iters, s.domain, (), (), (), "barrier")
    # the iterators have no value in code: facts alone tell which iterations there are
    stand_in = {i: Axis(i.name) for i in s.iters}
    facts = list(p.facts)
    for i, a in stand_in.items():
        root = p.roots.get(i)
        value = Lin({root: 1}) if root is not None else p.index[i]
        facts.append(("eq", Lin({a: 1}) - value))
    around = set(axes)
    inner = tuple(a for a in p.axes if a not in around)
    retired = (*p.retired, *inner, *stand_in.values())
    index = dict.fromkeys(s.iters, ZERO)
    work.placements[name] = Placement(stmt, axes, index, tuple(facts), retired, stand_in)
    work.reasons[name] = text
    return At(name)
