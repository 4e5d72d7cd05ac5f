"""Which unmarked loops are unrolled or vectorised so that `local` buffers can be registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array
from tensorir.ir.stmt import Storage
from tensorir.ir.target import Target
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import Loop
from tensorir.poly.tree import loops as tree_loops


def automatic(
    program: Program, storages: Mapping[Array, Storage], target: Target
) -> dict[Axis, int | None]:
    """Axes of small `local` buffers, other than those outside: to be unrolled.

    Returns
    -------
    dict
        The width for a loop that only copies such a buffer along its last dimension, where the
        computation uses vectors of that width; None for a loop to be unrolled.
    """
    marks = {x.axis: x for x in tree_loops(program.tree)}
    small = {
        a: s
        for a, s in storages.items()
        if s.scope == "local" and _fits(s, target.vector_bytes * target.vector_registers * 2)
    }
    widths = _widths(program, small, marks, target)
    out: dict[Axis, int | None] = {}
    for p, access, s in _accesses(program, small):
        outside = dict.fromkeys(s.outside)
        index = _over_axes(p, access)
        for d, e in enumerate(index):
            inner = [a for a in e.atoms() if isinstance(a, Axis) and a not in outside]
            for a in inner:
                out.setdefault(a, None)
            alone = len(inner) == 1 and e.coef(inner[0]) == 1 and d == s.dims[-1][0]
            if p.stmt.role == "copy" and alone:
                out[inner[0]] = widths.get(s.array)
    return out


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


def _widths(
    program: Program, small: Mapping[Array, Storage], marks: Mapping[Axis, Loop], target: Target
) -> dict[Array, int]:
    """The one width in which marked loops run along the last dimension of each buffer."""
    found: dict[Array, set[int]] = {}
    for p, access, s in _accesses(program, small):
        e = _over_axes(p, access)[s.dims[-1][0]]
        for a in e.terms:
            mark = marks.get(a) if isinstance(a, Axis) else None
            if mark is not None and mark.kind == "vectorize" and e.coef(a) == 1:
                width = mark.width or target.lanes(s.array.dtype)
                found.setdefault(s.array, set()).add(width)
    return {a: next(iter(w)) for a, w in found.items() if len(w) == 1}


def _fits(s: Storage, limit: int) -> bool:
    size = s.array.dtype.bytes
    for e in s.extent:
        if not e.is_const:
            return False
        size *= max(e.const, 1)
    return size <= limit
