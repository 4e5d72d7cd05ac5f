"""Cells that get another place in memory: does each read still find what was written for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Access, Array
from tensorir.poly import isl, tree
from tensorir.poly.access import earlier
from tensorir.poly.isl import Map
from tensorir.poly.legality import Instance
from tensorir.poly.model import Program
from tensorir.poly.relation import access_map, context_set


@dataclass(frozen=True, slots=True)
class Lost:
    """A value that is overwritten before it is read: `reader` wants it, `writer` was there first.

    `reader` is None for what a call returns.
    """

    sizes: dict[str, int]
    reader: Instance | None
    writer: Instance
    array: Array


@dataclass(frozen=True, slots=True)
class _Use:
    """One access of a statement, before and after."""

    stmt: str
    old: Access
    new: Access


def _uses(old: Program, new: Program, array: Array, kind: str) -> Iterator[_Use]:
    for name in tree.stmts(new.tree):
        a, b = old.stmt(name), new.stmt(name)
        pairs = zip(getattr(a, kind), getattr(b, kind), strict=True)
        yield from (_Use(name, x, y) for x, y in pairs if y.array is array)


def lost(old: Program, new: Program, array: Array, outside: tuple[Axis, ...]) -> Lost | None:
    """The first value that `new` loses in `array`, where `old` kept it in a cell of its own.

    Both programs run the same instances in the same order; accesses of `new` to `array` may have
    been to other arrays and cells in `old`. A value that is written once more by the same cell
    before it is read counts as read.
    """
    writes = list(_uses(old, new, array, "writes"))
    with isl.budget():
        for read in _uses(old, new, array, "reads"):
            for w2 in writes:
                found = _between(old, new, read, w2, writes, outside)
                if found is not None:
                    sizes, reader, writer = found
                    return Lost(sizes, reader, writer, read.old.array)
        if array.role == "output":
            return _returned(old, new, array, writes)
    return None


def _same(program: Program, a: _Use, b: _Use, *, new: bool) -> Map | None:
    """Instances of `a`'s statement to those of `b`'s that touch the same cell."""
    x, y = (a.new, b.new) if new else (a.old, b.old)
    if x.array is not y.array:
        return None
    first = access_map(program.stmt(a.stmt), x, program.sizes)
    return first.apply_range(access_map(program.stmt(b.stmt), y, program.sizes).reverse())


def _clash(old: Program, new: Program, a: _Use, b: _Use) -> Map:
    """Instances of `a` to those of `b` that share a place in `new`, and none in `old`."""
    clash = _same(new, a, b, new=True)
    assert clash is not None
    own = _same(old, a, b, new=False)
    clash = clash if own is None else clash.subtract(own)
    return clash.intersect_params(context_set(old)).coalesce()


_Found = tuple[dict[str, int], Instance, Instance]


def _between(
    old: Program, new: Program, read: _Use, w2: _Use, writes: Sequence[_Use],
    outside: tuple[Axis, ...],
) -> _Found | None:  # fmt: skip
    """A read whose value `w2` overwrites after some write made it."""
    clash = _clash(old, new, read, w2)
    if clash.is_empty():
        return None
    before = earlier(old, w2.stmt, read.stmt, outside)
    if before is None:
        return None
    clash = clash.intersect(before)
    if clash.is_empty():
        return None
    for w in writes:
        flow = _same(old, read, w, new=False)
        after = earlier(old, w.stmt, w2.stmt, outside)
        if flow is None or after is None:
            continue
        # reader to the writes of its value, and from there to what comes after them
        bad = flow.apply_range(after.reverse()).intersect(clash)
        found = _first(old, bad, read.stmt, w2.stmt)
        if found is not None:
            return found
    return None


def _returned(
    old: Program, new: Program, array: Array, writes: Sequence[_Use]
) -> Lost | None:  # fmt: skip
    """A cell of an output that holds something else at the end, or that nothing should write."""
    final = [w for w in writes if w.old.array is array]
    for w2 in writes:
        if w2.old.array is array:
            continue
        left = access_map(new.stmt(w2.stmt), w2.new, new.sizes)
        left = left.intersect_params(context_set(new))
        for w in final:
            # a write of the output itself that comes later puts things right
            before = earlier(old, w2.stmt, w.stmt, ())
            if before is None:
                continue
            cell = access_map(new.stmt(w.stmt), w.new, new.sizes)
            left = left.subtract(before.reverse().apply_range(cell))
        if left.is_empty():
            continue
        found = isl.first_point(left.domain(), old.sizes, old.context)
        if found is not None:
            sizes, point = found
            return Lost(sizes, None, _instance(old, w2.stmt, point), array)
    return None


def _first(program: Program, bad: Map, reader: str, writer: str) -> _Found | None:
    if bad.is_empty():
        return None
    found = isl.first_point(bad.wrap().flatten(), program.sizes, program.context)
    if found is None:
        return None
    sizes, point = found
    n = len(program.stmt(reader).iters)
    first, second = _instance(program, reader, point[:n]), _instance(program, writer, point[n:])
    return sizes, first, second


def _instance(program: Program, name: str, point: Sequence[int]) -> Instance:
    iters = program.stmt(name).iters
    return Instance(name, {a.name: x for a, x in zip(iters, point, strict=True)})
