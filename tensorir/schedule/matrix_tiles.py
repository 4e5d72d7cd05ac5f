"""A nest of loops under the lanes of a warp replaced by an instruction for matrix tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.expr import Axis
from tensorir.ir.matrix import LANES, MatrixIntrinsic
from tensorir.poly import isl, matrix_tile, ranges, tree
from tensorir.poly.isl import dt
from tensorir.poly.matrix_tile import TileAxes
from tensorir.poly.tree import At, Loop
from tensorir.schedule import resolve
from tensorir.schedule.primitive import Draft
from tensorir.support.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["tensorized"]


def tensorized(s: Schedule, axis: str | Axis, what: MatrixIntrinsic) -> Draft:
    """The loop `axis` over the rows of a lane, and those inside, as one instruction."""
    loop = resolve.axis(s, axis, primitive="tensorize")
    nest = _nest(s, loop, what)
    name = tree.stmts(loop)[0]
    lane = _lane(s, loop, name, what)
    axes = TileAxes(lane.axis, *(x.axis for x in nest))
    p = s.program.placements[name]
    found = matrix_tile.reads_of(what, p.stmt, p.index, axes)
    if isinstance(found, str):
        resolve.fail(
            f"tensorize: the nest under {loop.axis.name!r} is not what {what.name} computes: "
            f"{found}",
            why=_expected(what),
        )
    buffers = s.program.buffers
    for k in (found.left, found.right):
        kept = buffers.get(p.stmt.reads[k].array)
        if kept is not None and kept.scope == "local":
            resolve.fail(
                f"tensorize: {p.stmt.reads[k].array.name} is kept by each thread for itself",
                why="a warp loads its operands together, from shared or global memory.",
            )
    result = buffers.get(p.stmt.writes[0].array)
    if result is None or result.scope != "local":
        resolve.fail(
            f"tensorize: {p.stmt.writes[0].array.name} is not in registers",
            why='cache_write(..., "local") keeps the tile of each lane there.',
        )
    _require_whole(s, name, nest[2], what)
    order = s.program.tree
    for k, x in enumerate(nest):
        asked = what if k == 0 else None
        order = tree.rewrite(
            order,
            x.axis,
            lambda y, asked=asked: replace(y, kind="unroll", intrinsic=asked),  # type: ignore[misc]
        )
    loose = not what.numerics.exact
    notes = (f"{what.name}: {what.numerics.text}",) if loose else ()
    record: tuple[tuple[str, ...], dict[str, str]] = (
        (resolve.reference(s.program, loop.axis), what.name),
        {},
    )
    return Draft(s.program.change(tree=order), loose, notes, record=record)


def _expected(what: MatrixIntrinsic) -> str:
    return (
        f"row 8*r + lane//4, column 2*(lane%4) + c, for lane in 0..{LANES} around r in 0..2, "
        f"c in 0..2, k in 0..{what.depth}: C: {what.result}, A and B: {what.operand}."
    )


def _nest(s: Schedule, loop: Loop, what: MatrixIntrinsic) -> tuple[Loop, Loop, Loop]:
    found = [loop]
    while isinstance(found[-1].body, Loop):
        found.append(found[-1].body)
    extents = [ranges.constant_extent(s.program, x.axis) for x in found]
    if not isinstance(found[-1].body, At) or extents != [2, 2, what.depth]:
        said = " x ".join("?" if n is None else str(n) for n in extents)
        resolve.fail(
            f"tensorize: the loops from {loop.axis.name!r} on are {said}, around "
            f"{', '.join(tree.stmts(loop))}; {what.name} takes 2 x 2 x {what.depth}, around one",
            why=_expected(what),
        )
    for x in found:
        if x.kind != "serial":
            resolve.fail(f"tensorize: {x.axis.name!r} is marked already: {x.kind}")
    return found[0], found[1], found[2]


def _lane(s: Schedule, loop: Loop, name: str, what: MatrixIntrinsic) -> Loop:
    for x in tree.loops_of(s.program.tree, name):
        if x.axis is loop.axis:
            break
        if x.kind == "vectorize":
            resolve.fail(f"tensorize: {loop.axis.name!r} is inside {x.axis.name!r}, a vector loop")
        if x.bind == "threadIdx.x" and ranges.constant_extent(s.program, x.axis) == LANES:
            return x
    resolve.fail(
        f"tensorize: {loop.axis.name!r} is in no loop of {LANES} that is bound to threadIdx.x",
        why=f"{what.name} is made by the {LANES} lanes of a warp.",
    )


def _require_whole(s: Schedule, name: str, depth: Loop, what: MatrixIntrinsic) -> None:
    """Refuse a sum that is not whole somewhere."""
    program = s.program
    around = tree.axes_of(program.tree, name)
    n = len(around) - 1
    with isl.budget():
        points = ranges.points(program, name, around)
        full = points.project_out(dt.set, n, 1).add_dims(dt.set, 1)
        facts = (ranges.within(depth.axis, what.depth),)
        box = isl.to_set(around, program.sizes, facts)
        whole = bool(full.intersect(box).is_subset(points))
    if not whole:
        resolve.fail(
            f"tensorize: the last tile is not full along {depth.axis.name!r}, which has fewer "
            f"than {what.depth} points there",
            why="pad_reduction, before the split, fills the last one with zeros.",
            cls=UnsupportedError,
        )
