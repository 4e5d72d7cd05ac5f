"""Which unmarked loops are unrolled or vectorised so that `local` buffers can be registers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array
from tensorir.ir.stmt import Storage
from tensorir.ir.target import Target
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import Loop
from tensorir.poly.tree import loops as tree_loops

ONE = Lin({}, 1)


@dataclass(frozen=True, slots=True)
class Automatic:
    """What becomes of loops over the indices of small `local` buffers.

    `loops` are unmarked ones to be unrolled, or vectorised by the width given: those that only
    copy a buffer along its last dimension, where the computation uses vectors of that width.
    `widths` replace those of marked loops where one buffer is used in vectors of several.
    """

    loops: dict[Axis, int | None]
    widths: dict[Axis, int]


def automatic(program: Program, storages: Mapping[Array, Storage], target: Target) -> Automatic:
    """The marks that let small `local` buffers be registers."""
    marks = {x.axis: x for x in tree_loops(program.tree)}
    small = {
        a: s
        for a, s in storages.items()
        if s.scope == "local" and _fits(s, target.vector_bytes * target.vector_registers * 2)
    }
    found = _vectors(program, small, marks, target)
    common = {a: min(w.values()) for a, w in found.items() if _compatible(w)}
    widths = {x: common[a] for a, w in found.items() if a in common for x in w}
    most = 2 * target.vector_registers
    few = {a: s for a, s in small.items() if _cells(s) <= most * (common.get(a) or 1)}
    out: dict[Axis, int | None] = {}
    for p, access, s in _accesses(program, few):
        outside = dict.fromkeys(s.outside)
        for d, e in enumerate(_over_axes(p, access)):
            inner = [a for a in e.atoms() if isinstance(a, Axis) and a not in outside]
            for a in inner:
                out.setdefault(a, None)
            alone = len(inner) == 1 and e.coef(inner[0]) == 1 and d == _last(s)
            if p.stmt.role == "copy" and alone:
                out[inner[0]] = common.get(s.array)
    return Automatic(out, widths)


def _compatible(widths: Mapping[Axis, int]) -> bool:
    """Whether vectors of the least width make up all others."""
    return all(w % min(widths.values()) == 0 for w in widths.values())


def _last(s: Storage) -> int:
    """The index dimension along which neighbours in storage lie."""
    long = [d for d, op, _ in s.dims if op is not None or s.extent[d] != ONE]
    return long[-1] if long else s.dims[-1][0]


def _accesses(
    program: Program, small: Mapping[Array, Storage]
) -> Iterator[tuple[Placement, Access, Storage]]:
    for p in program.placements.values():
        for access in (*p.stmt.writes, *p.stmt.reads):
            s = small.get(access.array)
            if s is not None and s.dims and access.exact:
                yield p, access, s


def _over_axes(p: Placement, access: Access) -> tuple[Lin, ...]:
    env: dict[Axis | Var, Lin] = dict(p.index.items())
    return tuple(e.subst(env) for e in access.affine)


def _vectors(
    program: Program, small: Mapping[Array, Storage], marks: Mapping[Axis, Loop], target: Target
) -> dict[Array, dict[Axis, int]]:
    """The vector loops along the last dimension of each buffer, and their widths."""
    found: dict[Array, dict[Axis, int]] = {}
    for p, access, s in _accesses(program, small):
        for a in _over_axes(p, access)[_last(s)].atoms():
            mark = marks.get(a) if isinstance(a, Axis) else None
            if mark is not None and mark.kind == "vectorize":
                width = mark.width or target.lanes(s.array.dtype)
                found.setdefault(s.array, {})[mark.axis] = width
    return found


def _fits(s: Storage, limit: int) -> bool:
    return all(e.is_const for e in s.extent) and s.array.dtype.bytes * _cells(s) <= limit


def _cells(s: Storage) -> int:
    return math.prod(max(e.const, 1) for e in s.extent)
