"""What a program says of memory without changing what is computed."""

from __future__ import annotations

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array
from tensorir.poly import tree
from tensorir.poly.model import Prefetch, Program


def reader_near(program: Program, array: Array) -> str | None:
    """A statement that reads an array soon after it is written: in one of the loops that write it.

    Streaming stores would make it wait for memory.
    """
    writers = [s.name for s in program.statements if any(w.array is array for w in s.writes)]
    for s in program.statements:
        if not any(r.array is array for r in s.reads):
            continue
        if any(w == s.name or tree.common(program.tree, w, s.name)[0] for w in writers):
            return s.name
    return None


def known_bytes(array: Array) -> int | None:
    """How many bytes an array has, where that does not depend on sizes."""
    total = array.dtype.bytes
    for e in array.shape:
        if not e.is_const:
            return None
        total *= max(0, e.const)
    return total


def ahead(program: Program, hint: Prefetch) -> tuple[Access, ...]:
    """What a prefetch asks for, over the iterators of its statement; nothing if that is gone."""
    placed = program.placements.get(hint.stmt)
    if placed is None:
        return ()
    stmt = placed.stmt
    own = set(stmt.iters)
    later: dict[Axis | Var, Lin] = {i: Lin({i: 1}, n) for i, n in hint.shift if i in own}
    reads = [r for r in stmt.reads if r.array is hint.array and r.exact]
    return tuple(Access(r.array, tuple(e.subst(later) for e in r.affine)) for r in reads)
