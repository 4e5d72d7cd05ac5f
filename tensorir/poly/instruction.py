"""What a declared instruction means as a statement, and how an access moves along a tile's axis."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.intrinsic import Intrinsic, Operand
from tensorir.ir.statement import Access, Statement
from tensorir.ir.tensor import Tensor
from tensorir.ir.unify import unify
from tensorir.poly import declare, ranges
from tensorir.poly.model import Placement, Program

__all__ = ["matches", "meaning", "operand_of", "step"]

_meanings: WeakKeyDictionary[Tensor, Statement] = WeakKeyDictionary()


def meaning(intrinsic: Intrinsic) -> Statement:
    """The declaration as a statement: the update of its reduction, or what computes it."""
    known = _meanings.get(intrinsic.tensor)
    if known is None:
        made = declare.program((intrinsic.tensor,))
        known = next(x for x in made.statements if x.role in ("update", "compute"))
        _meanings[intrinsic.tensor] = known
    return known


def matches(intrinsic: Intrinsic, stmt: Statement) -> Iterator[dict[int, int]]:
    """Every way to take the reads of a statement for those of the declaration, by slot."""
    wanted = meaning(intrinsic)
    if len(stmt.bodies) != 1 or stmt.role != wanted.role or not all(a.exact for a in stmt.reads):
        return
    if wanted.role == "update":
        if stmt.combiner is None or wanted.combiner is None:
            return
        if stmt.combiner.name != wanted.combiner.name:
            return
    start = {0: 0} if wanted.role == "update" else {}
    for found in unify(wanted.bodies[0], stmt.bodies[0], start):
        if set(found) == set(range(len(wanted.reads))):
            yield found


def operand_of(intrinsic: Intrinsic, slot: int) -> Operand | None:
    """The operand that read number `slot` of the declaration is; None for what is added to."""
    name = meaning(intrinsic).reads[slot].array.name
    return next((o for o in intrinsic.operands if o.tensor.name == name), None)


def step(program: Program, p: Placement, access: Access, axis: Axis) -> int | None:
    """How many elements an access moves in memory along a loop; None where that is not known.

    Of a buffer with a layout the index counts from where the buffer begins.
    """
    buffer = program.buffers.get(access.array)
    env: dict[Axis | Var, Lin] = dict(p.index.items())
    index = [e.subst(env) for e in access.affine]
    if not any(e.involves(axis) for e in index):
        return 0
    layout = buffer.layout if buffer is not None else None
    dims = layout or tuple((d, None, 1) for d in range(len(index)))
    outside = {} if buffer is None else dict.fromkeys(buffer.outside)
    inner = [_inside(e, outside) for e in index]
    total, room = 0, 1
    for d, op, tile in reversed(dims):
        moves = _part(program, inner[d], op, tile, axis)
        if moves is None or (moves and room == 0):
            return None
        total += moves * room
        if op == "%":
            room *= tile
        else:
            whole = access.array.shape[d] if buffer is None or not buffer.outside else None
            fixed = op is None and whole is not None and whole.is_const
            room = room * whole.const if fixed and whole is not None else 0
    return total


def _inside(e: Lin, outside: dict[Axis, None]) -> Lin:
    """An index less the terms of the loops around the buffer."""
    kept = {a: v for a, v in e.terms.items() if isinstance(a, tuple) or a not in outside}
    return Lin(kept, e.const)


def _part(program: Program, e: Lin, op: str | None, tile: int, axis: Axis) -> int | None:
    """How a storage index moves along a loop: of `e`, `e // tile` or `e % tile`."""
    if any(isinstance(a, tuple) and a[1].involves(axis) for a in e.terms):
        return None
    along = e.coef(axis)
    if op is None or not along:
        return along
    if along % tile == 0:
        return along // tile if op == "//" else 0
    rest = Lin({a: v for a, v in e.terms.items() if v % tile}, e.const % tile)
    low = high = rest.const
    for a, v in rest.terms.items():
        found = ranges.constant_range(program, a) if isinstance(a, Axis) else None
        if found is None:
            return None
        low += min(v * found[0], v * found[1])
        high += max(v * found[0], v * found[1])
    if low < 0 or high >= tile:
        return None
    return 0 if op == "//" else along
