"""Programs whose accesses to one array go to cells of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensorir.ir.affine import Lin
from tensorir.ir.statement import Access, Array, Statement
from tensorir.poly.model import Program

_Index = Callable[[tuple[Lin, ...]], tuple[Lin, ...]]


def moved(program: Program, array: Array, to: Array, index: _Index) -> Program | None:
    """The program with cells of `array` kept in `to`; None where an index of it is loaded.

    `to` takes its place where it is new, and is used as it is where the program has it.
    """
    placements = {}
    for name, p in program.placements.items():
        stmt = p.stmt
        mine = [x for x in (*stmt.writes, *stmt.reads) if x.array is array]
        if any(not x.exact for x in mine):
            return None
        placements[name] = p.with_stmt(_turned(stmt, array, to, index)) if mine else p
    known = to in program.arrays
    arrays = tuple(
        x for a in program.arrays for x in ((a,) if a is not array else () if known else (to,))
    )
    buffers = {}
    for a, b in program.buffers.items():
        if a is not array:
            buffers[a] = replace(b, shared=True) if a is to else b
        elif not known:
            buffers[to] = replace(b, shared=True)
    return program.change(placements=placements, arrays=arrays, buffers=buffers)


def _turned(stmt: Statement, array: Array, to: Array, index: _Index) -> Statement:
    def turn(a: Access) -> Access:
        return a if a.array is not array else replace(a, array=to, index=index(a.affine))

    return replace(stmt, writes=tuple(map(turn, stmt.writes)), reads=tuple(map(turn, stmt.reads)))
