"""Prefetches: cache lines that later instances of a statement will read, asked for ahead of time.

Only an address is computed, which may lie anywhere: a processor ignores those it cannot fetch.
"""

from __future__ import annotations

from tensorir.codegen.address import flat_of, locate, pointer_of
from tensorir.codegen.loads import Instance
from tensorir.codegen.module import Module
from tensorir.codegen.values import Emitter
from tensorir.ir.statement import Access, Statement
from tensorir.lower.pipeline import Lowered
from tensorir.poly import hints

LINE = 64
_NAME = "llvm.prefetch.p0"


def wanted(module: Module, lowered: Lowered) -> dict[Statement, tuple[Access, ...]]:
    """For each statement the accesses whose lines it asks for."""
    found: dict[Statement, tuple[Access, ...]] = {}
    for p in lowered.program.prefetches:
        lines = hints.ahead(lowered.program, p)
        if not lines:
            module.note(f"{p.array.name}: no prefetch: {p.stmt} does not read it any more")
            continue
        stmt = lowered.program.stmt(p.stmt)
        found[stmt] = (*found.get(stmt, ()), *lines)
    return found


def prefetch(em: Emitter, inst: Instance) -> None:
    """Ask for the lines that an instance's hint names, each once."""
    for access in em.module.prefetches[inst.stmt]:
        flat = flat_of(em, access, inst.run)
        if flat.home.register is not None:
            continue
        spot = locate(em, flat)
        if spot.lanes is not None or spot.lane not in (0, 1):
            continue
        size = flat.home.align
        held = size * (em.width if spot.lane == 1 else 1)
        # unrolled neighbours share a line: the first of them asks for it
        if spot.const * size % LINE >= max(held, 1):
            continue
        em.module.declare(_NAME, "void", "ptr, i32, i32, i32")
        for k in range(max(1, held // LINE)):
            ahead = spot._replace(const=spot.const + k * LINE // size)
            at = pointer_of(em, flat.home.memory, ahead)
            em.emit(f"call void @{_NAME}(ptr {at}, i32 0, i32 3, i32 1)")


__all__ = ["prefetch", "wanted"]
