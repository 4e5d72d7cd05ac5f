"""What a kernel does, for those who call it: operations, bytes, and which arrays may coincide."""

from __future__ import annotations

from dataclasses import replace

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Expr, Op, Var
from tensorir.ir.statement import Array, Statement
from tensorir.poly.model import Program

Polynomial = tuple[tuple[int, tuple[Lin, ...]], ...]

_FREE = frozenset(
    {"cast", "reinterpret", "select", "if_then_else", "eq", "ne", "lt", "le", "gt", "ge", "not",
     "and", "or", "xor", "isnan", "isinf", "isfinite"}
)  # fmt: skip


def operations(program: Program) -> Polynomial:
    """Arithmetic operations, an fma counted as two, for all instances; where a domain is not
    rectangular those of the box around it."""
    out: list[tuple[int, tuple[Lin, ...]]] = []
    for s in program.statements:
        each = sum(_count(b) for b in s.bodies)
        extents = _box(s)
        if each and extents is not None:
            out.append((each, extents))
    return tuple(out)


def bytes_moved(arguments: tuple[Array, ...]) -> Polynomial:
    """Bytes of all arguments, each touched once."""
    return tuple((a.dtype.bytes, a.shape) for a in arguments)


def _count(e: Expr) -> int:
    if not isinstance(e, Op):
        return 0
    own = 0 if e.name in _FREE else 2 if e.name == "fma" else 1
    return own + sum(_count(a) for a in e.args)


def _box(s: Statement) -> tuple[Lin, ...] | None:
    """The extent of each iterator, over sizes; None if one has no bound."""
    lows: dict[Axis | Var, Lin] = {}
    highs: dict[Axis | Var, Lin] = {}
    out: list[Lin] = []
    facts = s.domain[0] if s.domain else ()
    for i in s.iters:
        low = high = None
        for kind, e in facts:
            c = e.coef(i)
            if abs(c) != 1:
                continue
            rest = e.without(i)
            if c == 1 or kind == "eq":
                low = _first(low, _extreme(rest * -c, lows, highs, -1))
            if c == -1 or kind == "eq":
                high = _first(high, _extreme(rest * -c, lows, highs, 1))
        if low is None or high is None:
            return None
        lows[i], highs[i] = low, high
        out.append(high - low + 1)
    return tuple(out)


def _first(a: Lin | None, b: Lin | None) -> Lin | None:
    return b if a is None else a


def _extreme(
    e: Lin, lows: dict[Axis | Var, Lin], highs: dict[Axis | Var, Lin], sign: int
) -> Lin | None:
    """`e` with each iterator at the end of its range that makes it least or greatest."""
    out = Lin({}, e.const)
    for a, v in e.terms.items():
        if isinstance(a, tuple):
            return None
        if isinstance(a, Var):
            out = out + Lin({a: v})
            continue
        ends = highs if (v > 0) == (sign > 0) else lows
        if a not in ends:
            return None
        out = out + ends[a] * v
    return out


def covered(program: Program, output: Array) -> bool:
    """Whether some statement is seen to write every cell of `output`."""
    writers = [s for s in program.statements if any(w.array is output for w in s.writes)]
    return any(_writes_all(s, output) for s in _whole(writers))


def _whole(stmts: list[Statement]) -> list[Statement]:
    """Statements, those that share their iterators and run where a fact holds or not as one."""
    out: list[Statement] = []
    for s in stmts:
        for k, other in enumerate(out):
            joined = _joined(other, s)
            if joined is not None:
                return _whole([*out[:k], joined, *out[k + 1 :], *stmts[len(out) + 1 :]])
        out.append(s)
    return out


def _joined(a: Statement, b: Statement) -> Statement | None:
    """One statement in place of two whose domains differ in one fact and its contrary."""
    if set(a.iters) != set(b.iters) or len(a.domain) != 1 or len(b.domain) != 1:
        return None
    ours, theirs = set(a.domain[0]) - set(b.domain[0]), set(b.domain[0]) - set(a.domain[0])
    if len(ours) != 1 or len(theirs) != 1:
        return None
    (here, x), (there, y) = ours.pop(), theirs.pop()
    if (here, there) != ("ge", "ge") or x + y != Lin({}, -1):
        return None
    kept = tuple(f for f in a.domain[0] if f != (here, x))
    return replace(a, domain=(kept,))


def _writes_all(s: Statement, output: Array) -> bool:
    """Whether a statement runs for each cell of a box, and writes that cell."""
    cell = next(w for w in s.writes if w.array is output)
    if len(s.domain) != 1 or not cell.exact:
        return False
    names: list[Axis | Var] = []
    for e in cell.affine:
        atoms = list(e.terms.items())
        if e.const or len(atoms) != 1 or atoms[0][1] != 1 or isinstance(atoms[0][0], tuple):
            return False
        names.append(atoms[0][0])
    if len(set(names)) != len(names) or set(names) != set(s.iters):
        return False
    wanted = set()
    for i, n in zip(names, output.shape, strict=True):
        wanted |= {("ge", Lin({i: 1})), ("ge", n - 1 - Lin({i: 1}))}
    return set(s.domain[0]) <= wanted


def in_place(program: Program) -> dict[Array, tuple[Array, ...]]:
    """For each output, the inputs that it may be the same array as.

    Only where one statement does everything, each instance reads such an input at the very cell
    that it writes, and no two instances write one cell.
    """
    if len(program.statements) != 1:
        return {}
    s = program.statements[0]
    found: dict[Array, tuple[Array, ...]] = {}
    for w in s.writes:
        if w.array.role != "output" or not w.exact or not _writes_all_once(s, w.affine):
            continue
        inputs = tuple(
            a
            for a in program.arrays
            if a.role == "input"
            and a.dtype == w.array.dtype
            and a.shape == w.array.shape
            and all(r.exact and r.affine == w.affine for r in s.reads if r.array is a)
        )
        if inputs:
            found[w.array] = inputs
    # two outputs over one input would each see the other's writes
    return found if len(found) == 1 and len(s.writes) == 1 else {}


def _writes_all_once(s: Statement, index: tuple[Lin, ...]) -> bool:
    """Whether the cell tells the instance."""
    alone = {
        a
        for e in index
        if len(e.terms) == 1
        for a, v in e.terms.items()
        if not isinstance(a, tuple) and abs(v) == 1
    }
    return alone >= set(s.iters)
