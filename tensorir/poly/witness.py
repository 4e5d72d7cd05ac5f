"""What a refusal shows: which instances clash, in which cell, at the smallest sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array
from tensorir.poly import isl, tree
from tensorir.poly.conflict import Kind, Part
from tensorir.poly.isl import Map, Set
from tensorir.poly.model import Program
from tensorir.poly.relation import access_map, context_set, ordered, point_map


@dataclass(frozen=True, slots=True, eq=False)
class Violation:
    """Pairs of instances that a request would run in the wrong order, or at once.

    Parameters
    ----------
    source, sink
        Names of the statements; the source must run first.
    relation
        Source instances to sink instances, not empty.
    array
        What they fight over.
    axes
        The loops around both, outer to inner, in `program`.
    program
        The program in which distances are measured: the new one of a step.
    parts
        The same pairs by kind of conflict.
    exempt
        Whether all are of a declared reduction: refused only because they would race.
    """

    source: str
    sink: str
    relation: Map
    array: Array
    axes: tuple[Axis, ...]
    program: Program = field(repr=False)
    parts: tuple[Part, ...] = field(repr=False)
    exempt: bool

    @property
    def kind(self) -> Kind:
        """The kind of the first conflict found: flow, then anti, then output."""
        for p in self.parts:
            if not p.relation.intersect(self.relation).is_empty():
                return p.kind
        return "output"


class Instance(NamedTuple):
    """A statement's name, and the value of each of its iterators by name."""

    stmt: str
    at: dict[str, int]


@dataclass(frozen=True, slots=True)
class Witness:
    """The smallest instance of a violation: smallest sizes, earliest source, earliest sink.

    `cell` is the index in `array` that both touch; `distance` is sink minus source for each loop
    around both.
    """

    sizes: dict[str, int]
    source: Instance
    sink: Instance
    array: Array
    cell: tuple[int, ...]
    kind: Kind
    distance: dict[str, int]


def witness(program: Program, violation: Violation) -> Witness | None:
    """The smallest instance of a violation at sizes that the program allows.

    Instances of copies are named by the loops around them, others by the statement's iterators.

    Returns
    -------
    Witness or None
        None where no allowed sizes show it.
    """
    v = violation
    source, sink = v.program.stmt(v.source), v.program.stmt(v.sink)
    sizes = program.sizes
    with isl.budget():
        pairs = v.relation.intersect_params(context_set(program))
        found = isl.first_point(pairs.wrap().flatten(), sizes)
        if found is None:
            return None
        size, point = found
        n = len(source.iters)
        at = dict(zip(source.iters, point[:n], strict=True))
        to = dict(zip(sink.iters, point[n:], strict=True))
        first = _loops(v.program, v.source, at, size)
        second = _loops(v.program, v.sink, to, size)
        kind, cell = _cell(v, at, to, size)
    return Witness(
        size,
        Instance(v.source, _named(v.program, v.source, at, first)),
        Instance(v.sink, _named(v.program, v.sink, to, second)),
        v.array,
        cell,
        kind,
        _by_name({a: second[a] - first[a] for a in v.axes}),
    )


def _loops(
    program: Program, name: str, at: dict[Axis, int], size: dict[str, int]
) -> dict[Axis, int]:
    values: dict[Axis | Var, int] = {s: size[s.name] for s in program.sizes}
    values.update((a, x) for a, x in at.items())
    return point_map(program.placements[name], values, program.sizes)


def _named(
    program: Program, name: str, at: dict[Axis, int], point: dict[Axis, int]
) -> dict[str, int]:
    if program.stmt(name).role == "copy":
        return _by_name({a: point[a] for a in tree.axes_of(program.tree, name)})
    return _by_name(at)


def _by_name(values: dict[Axis, int]) -> dict[str, int]:
    """Values by name; of axes that share a name, the inner ones get a prime."""
    out: dict[str, int] = {}
    for a, x in values.items():
        name = a.name
        while name in out:
            name += "'"
        out[name] = x
    return out


def _cell(
    v: Violation, at: dict[Axis, int], to: dict[Axis, int], size: dict[str, int]
) -> tuple[Kind, tuple[int, ...]]:
    """The kind of the conflict between two instances, and the first cell that both touch."""
    source, sink = v.program.stmt(v.source), v.program.stmt(v.sink)
    kinds = {p.kind for p in v.parts}
    pairs: tuple[tuple[Kind, tuple[Access, ...], tuple[Access, ...]], ...] = (
        ("flow", source.writes, sink.reads),
        ("anti", source.reads, sink.writes),
        ("output", source.writes, sink.writes),
    )
    for kind, xs, ys in pairs:
        for x in xs:
            for y in ys:
                if kind not in kinds or x.array is not v.array or y.array is not v.array:
                    continue
                first = _touched(v.program, v.source, x, at, size)
                cells = first.intersect(_touched(v.program, v.sink, y, to, size))
                cell = isl.least(cells)
                if cell is not None:
                    return kind, tuple(cell)
    return v.kind, ()


def _touched(
    program: Program, name: str, access: Access, at: dict[Axis, int], size: dict[str, int]
) -> Set:
    stmt = program.stmt(name)
    m = access_map(stmt, access, program.sizes)
    for k, it in enumerate(stmt.iters):
        m = m.fix_val(isl.dt.in_, k, isl.val(at[it]))
    cells: Set = isl.at_sizes(m.range(), program.sizes, size)
    return cells


def distance(violation: Violation) -> dict[Axis, int | None]:
    """Sink minus source for each loop around both, where it is one constant; else None."""
    v = violation
    with isl.budget():
        first, second = ordered(v.program, v.source, v.axes), ordered(v.program, v.sink, v.axes)
        deltas = v.relation.apply_domain(first).apply_range(second).deltas()
        out: dict[Axis, int | None] = {}
        for k, a in enumerate(v.axes):
            value = deltas.plain_get_val_if_fixed(isl.dt.set, k)
            out[a] = isl.number(value) if value.is_int() else None
    return out
