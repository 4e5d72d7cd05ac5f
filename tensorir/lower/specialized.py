"""Lowered copies of one program, for some sizes each, joined behind tests of those sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import Conj
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Access, Array, Statement
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run, Storage
from tensorir.lower.cells import Cells
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop

if TYPE_CHECKING:
    from tensorir.lower.pipeline import Lowered


def joined(program: Program, special: Sequence[tuple[Conj, Lowered]], general: Lowered) -> Lowered:
    """One `Lowered` that runs the first copy whose condition holds, else the general one.

    A temporary array means another storage in each copy, so each copy gets arrays of its own.
    """
    body, storages = general.body, dict(general.cells.storages)
    arrays: list[Array] = []
    marks: dict[Axis, Loop] = dict(general.marks)
    ranges: dict[Axis, int] = dict(general.ranges)
    versions: list[If] = []
    for conj, lowered in reversed(special):
        own = {a: replace(a) for a in lowered.cells.storages}
        turned = _Turned(own)
        node = turned.node(lowered.body)
        body = If(conj, node, body)
        versions.append(body)
        storages |= {own[a]: turned.storage(s) for a, s in lowered.cells.storages.items()}
        arrays += own.values()
        marks |= lowered.marks
        ranges |= lowered.ranges
    notes = dict.fromkeys(n for x in (*(v for _, v in special), general) for n in x.notes)
    return replace(
        general,
        body=body,
        storages=tuple(storages.values()),
        program=program.change(arrays=(*program.arrays, *arrays)),
        notes=tuple(notes),
        marks=marks,
        ranges=ranges,
        cells=Cells(storages, ranges),
        versions=frozenset(versions),
    )


class _Turned:
    """Loops over arrays of their own."""

    def __init__(self, own: Mapping[Array, Array]) -> None:
        self.own = own
        self.statements: dict[Statement, Statement] = {}
        self.storages: dict[Storage, Storage] = {}

    def node(self, n: Node) -> Node:
        if isinstance(n, Block):
            return Block(tuple(map(self.node, n.items)))
        if isinstance(n, Run):
            return replace(n, statement=self.statement(n.statement))
        if isinstance(n, Alloc):
            return Alloc(self.storage(n.buffer), self.node(n.body))
        if isinstance(n, For):
            return replace(n, body=self.node(n.body))
        other = None if n.other is None else self.node(n.other)
        return replace(n, body=self.node(n.body), other=other)

    def storage(self, s: Storage) -> Storage:
        found = self.storages.get(s)
        if found is None:
            found = self.storages[s] = replace(s, array=self.own[s.array])
        return found

    def statement(self, s: Statement) -> Statement:
        found = self.statements.get(s)
        if found is None:
            found = self.statements[s] = replace(
                s, writes=tuple(map(self.access, s.writes)), reads=tuple(map(self.access, s.reads))
            )
        return found

    def access(self, a: Access) -> Access:
        return replace(a, array=self.own[a.array]) if a.array in self.own else a
