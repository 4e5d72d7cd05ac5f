"""From a program to the loops that the emitters read: the passes in order.

What an emitter may rely on (also checked by `lower.verify`):

Nodes
    `lower` returns `For`, `If`, `Block`, `Run`, `Alloc` of `ir.stmt`. Loop axes are the axes of
    `For` nodes; sizes are `Var`. An axis may head several sibling loops (a split prefix and
    suffix, two versions), never two nested ones.
For
    `kind` is "serial", "parallel", "unroll" or "vectorize" ("bind" is kept for other targets).
    `unroll` and `vectorize` always have `extent` (an int >= 1), run from 0, and are to be
    replicated; all other loops run from max(lower) to min(upper) inclusive (`hull`: from
    min(lower) to max(upper)); they may be empty, and may start elsewhere than at 0. `extent` is
    also set for a serial or parallel loop of constant extent from 0. `vectorize` has `width`;
    `extent` is a multiple of it: the loop is extent/width vectors, all unrolled, lane axis value
    = j + lane. There is never a vector loop inside a vector loop; serial and unrolled loops may be
    inside one, and their bounds never depend on the lanes. A parallel loop may stand inside
    another (run the inner serially).
If
    Its facts ("ge", e): e >= 0, ("eq", e): e == 0 never depend on an axis of an enclosing vector
    loop; they may depend on unrolled axes. `other` may be None.
Run
    `args` give the statement's iterators over loop axes and sizes. `conds` and `read_conds` are
    e >= 0, may depend on lanes (a mask) and on unrolled axes, may hold floor atoms. An equality
    comes as two. Reads' own guards (`Access.guard`) are over the statement's iterators: substitute
    `args`. `corner` is what rules R1 and R2 of loads need: only if it is True may a load ignore
    conds on axes that its address does not use, or read row 0 instead of a row outside.
Storage
    One for each temporary array (`Lowered.storages`), and each is the `buffer` of at least one
    `Alloc`; of several where versions duplicate a nest with the parallel loop around it. `Alloc`
    stands at the top, or directly in the body of the innermost parallel loop for whose iterations
    the buffer is private; it may be allocated on entry of that function: contents never survive
    from one point of `outside` to the next. `scope` is "register" (then `register` is 0 or the
    width, and every index in it is constant once unrolled), "stack" (constant size, at most 16
    KiB) or "arena". `shape` is the storage shape, row-major, lanes of vector axes innermost.
    What cells beyond the footprint hold does not matter; a masked load may write zeros there.
Cells
    `Lowered.cell(access, run)` gives the storage index of an access, simplified, one Lin for
    each dimension of `shape` of its array or Storage (lanes included), or None where an index is
    a May (then subtract nothing: such arrays have origin 0 and no layout; index them as declared).
    `Lowered.ranges[axis]` is the inclusive maximum of a loop axis that never goes below 0, if it
    has a constant one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Access, Array
from tensorir.ir.stmt import If, Node, Run, Storage
from tensorir.ir.target import Target
from tensorir.lower import loops
from tensorir.lower.boxes import ranges
from tensorir.lower.cells import Cells, shape_of
from tensorir.lower.hoist import hoist
from tensorir.lower.layout import layouts
from tensorir.lower.normalise import Normal, normalise
from tensorir.lower.place import place
from tensorir.lower.promote import promote
from tensorir.lower.relax import relax, round_up, squeezed, tightened, with_rows
from tensorir.lower.specialized import joined
from tensorir.lower.verify import verify
from tensorir.lower.versions import Versions
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """Loops ready to become code, and all that an emitter needs with them.

    Parameters
    ----------
    body
        The loops.
    storages
        One for each temporary array that they use.
    arguments
        The arrays of a call, inputs first.
    notes
        What became of marks and buffers where it is not what was asked for.
    marks
        The loop of the schedule's tree that each loop axis comes from.
    ranges
        The inclusive maximum of each loop axis that starts at 0 or above and has one.
    versions
        The tests at the top that choose a copy of the nest by sizes, as `specialize` asked.
    """

    body: Node
    storages: tuple[Storage, ...]
    program: Program
    arguments: tuple[Array, ...]
    notes: tuple[str, ...]
    marks: Mapping[Axis, Loop]
    ranges: Mapping[Axis, int]
    cells: Cells
    versions: frozenset[If] = frozenset()

    def storage(self, array: Array) -> Storage | None:
        """Storage of a temporary array; None for an argument."""
        return self.cells.storages.get(array)

    def cell(self, access: Access, run: Run) -> tuple[Lin, ...] | None:
        """The storage index of an access over loop axes; None where an index is loaded."""
        return self.cells.place(access, run)


def lower(
    program: Program, target: Target, *, arguments: tuple[Array, ...] | None = None
) -> Lowered:
    """Loops of a program with marks, guards and storage settled for a target.

    Parameters
    ----------
    arguments
        The arrays of a call; the inputs and outputs of the program if not given.

    Raises
    ------
    UnsupportedError
        A loop has no bounds, or would need too many copies.
    """
    if arguments is None:
        arguments = tuple(a for a in program.arrays if a.role != "temp")
    general = program.change(specializations=())
    made = _lower(general if program.specializations else program, target, arguments)
    if not program.specializations:
        return made
    special = [
        (conj, _lower(general.change(context=(*program.context, *conj)), target, arguments))
        for conj in program.specializations
    ]
    return joined(program, special, made)


def _lower(program: Program, target: Target, arguments: tuple[Array, ...]) -> Lowered:
    chosen = layouts(program)
    normal = normalise(loops.build(program, split=True), program, chosen.storages, target)
    verify(normal.node, {}, after="normalise")
    storages = _renamed(chosen.storages, normal)
    box = ranges(normal.node)
    storages = round_up(normal.node, storages, box, normal.lanes)
    storages = with_rows(squeezed(normal.node, storages))
    if target.kind == "cuda":
        storages = tightened(normal.node, storages, box)
    cells = Cells(storages, box)
    relaxed = relax(normal.node, cells, chosen.private)
    versions = Versions(storages, relaxed.dropped, frozenset(normal.plain), normal.marks)
    node = hoist(versions.go(relaxed.node, {}))
    storages, reasons = promote(node, cells, 2 * target.vector_registers)
    node = place(node, storages)
    verify(node, storages, after="place")
    return Lowered(
        node, tuple(storages.values()), program, arguments,
        (*chosen.notes, *normal.notes, *reasons), normal.marks, box, Cells(storages, box),
    )  # fmt: skip


def loops_only(program: Program) -> Node:
    """The exact guarded nest of a program over the axes of its tree, for printing and checks."""
    return loops.build(program)


def _renamed(storages: Mapping[Array, Storage], normal: Normal) -> dict[Array, Storage]:
    """Storages over the loop axes now, with a dimension for each vector axis outside."""
    now: dict[Axis, list[Axis]] = {}
    for axis, mark in normal.marks.items():
        now.setdefault(mark.axis, []).append(axis)
    out: dict[Array, Storage] = {}
    for array, s in storages.items():
        outside = tuple(a for old in s.outside for a in now.get(old, ()))
        lanes = tuple(a for a in outside if a in normal.lanes)
        extents = {a: normal.lanes[a] for a in lanes}
        out[array] = replace(
            s,
            origin=tuple(o.subst(normal.values) for o in s.origin),
            outside=outside,
            turns=tuple(a for old in s.turns for a in now.get(old, ())),
            lanes=lanes,
            shape=shape_of(s.extent, s.dims, extents),
        )
    return out
