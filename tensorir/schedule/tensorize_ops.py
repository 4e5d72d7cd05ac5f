"""A loop nest replaced by a declared instruction, where both mean the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, zip_longest
from typing import TYPE_CHECKING, NoReturn

from tensorir.ir.expr import Axis
from tensorir.ir.intrinsic import Intrinsic, Operand, builtin, named, names
from tensorir.ir.matrix import matrix_intrinsics
from tensorir.ir.printer import statement_text
from tensorir.ir.statement import Access
from tensorir.poly import instruction, isl, legality, ranges, tree
from tensorir.poly.isl import dt
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import At, Loop
from tensorir.schedule import matrix_tiles, resolve
from tensorir.schedule.explain import accepted, fix, refuse
from tensorir.schedule.parallel_ops import twins
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import ArgumentTypeError, ScheduleError
from tensorir.support.names import hint

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["tensorize"]

WIDTH = 96


@primitive
def tensorize(s: Schedule, axis: str | Axis, intrinsic: str | Intrinsic) -> Draft:
    """A nest of constant extents computed by one declared instruction.

    Needs a nest whose meaning is that of the instruction: the same expression up to the order of
    what commutes, loops of the tile's extents with the lanes outermost, operands that lie as they
    are declared, and no partial tile along what is summed; pad first (`pad_reduction`). A partial
    tile along the lanes is computed whole where the result is in a buffer of its own. The nest
    stays one statement with the accesses of all its instances; its init stays where it is. The
    target is asked for the instruction when code is made. Others call it `tensorize` (TVM).

    Parameters
    ----------
    axis : str or Axis
        The outermost loop of the nest.
    intrinsic : str or Intrinsic
        An instruction of the library, `avx512vnni.vpdpbusd.512`, or one of `tir.intrinsic`. On a
        GPU `mma.m16n8k16.f16`, `.bf16`, `mma.m16n8k8.tf32` or `mma.m16n8k32.s8`, made by a warp:
        the 32 lanes are a loop around, bound to `threadIdx.x`; `axis` are the two rows of a lane,
        around its two columns and the sum; row `8*r + lane//4`, column `2*(lane%4) + c`.

    Raises
    ------
    ScheduleError
        Another meaning, with both side by side; a loop that the instruction does not have, or
        that is not whole; an operand that lies otherwise.
    IllegalSchedule
        Lanes would race, as `vectorize`.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4,), "uint8", name="A")
    >>> B = tir.placeholder((32, 4), "int8", name="B")
    >>> k = tir.reduce_axis(4, name="k")
    >>> C = tir.compute((32,), lambda i: tir.sum(
    ...     tir.cast(A[k], "int32") * tir.cast(B[i, k], "int32"), axis=k, dtype="int32"), name="C")
    >>> s = tir.schedule(C).decompose_reduction("C", "i").split("i", 16)
    >>> print(s.loops())
    for C.init.i in 0..32
      C[C.init.i] = 0
    for io in 0..2
      for ii in 0..16
        for k in 0..4
          C[16*io + ii] = C[16*io + ii] + int32(A[k]) * int32(B[16*io + ii, k])
    >>> print(s.tensorize("ii", "avx512vnni.vpdpbusd.512").loops())
    for C.init.i in 0..32
      C[C.init.i] = 0
    for io in 0..2
      for ii in 0..16  # tensorize avx512vnni.vpdpbusd.512
        for k in 0..4  # unroll
          C[16*io + ii] = C[16*io + ii] + int32(A[k]) * int32(B[16*io + ii, k])
    """
    tile = matrix_intrinsics().get(intrinsic) if isinstance(intrinsic, str) else None
    if tile is not None:
        return matrix_tiles.tensorized(s, axis, tile)
    what = _declared(intrinsic)
    loop = resolve.axis(s, axis, primitive="tensorize")
    nest = _nest(s, what, loop)
    _require_outside(s, loop)
    slots = list(instruction.matches(what, nest.placement.stmt))
    if not slots:
        _other(s, nest, "the expressions differ, or the types of what they read (see retype).")
    axes = _axes(s, nest)
    _require_lying(s, nest, slots, axes)
    _require_whole(s, nest, axes[0])
    program = _marked(s.program, nest)
    violation = legality.carried(program, loop.axis, lanes=True) if what.lanes else None
    if violation is not None:
        refuse(
            s, "tensorize", None, violation, new=program, marked=loop,
            asked=[(loop, f"asked to be lanes of {what.name}")],
        )  # fmt: skip
    loose = not what.numerics.exact
    notes = (f"{what.name}: {what.numerics.text}",) if loose else ()
    return Draft(
        program, loose, notes, record=((resolve.reference(s.program, loop.axis), what.name), {})
    )


@dataclass(frozen=True, slots=True)
class _Nest:
    """Loops around one statement, and the instruction that is to replace them."""

    intrinsic: Intrinsic
    loops: tuple[Loop, ...]
    placement: Placement

    @property
    def name(self) -> str:
        return self.placement.stmt.name


def _declared(intrinsic: object) -> Intrinsic:
    if isinstance(intrinsic, Intrinsic):
        if named(intrinsic.name) is not intrinsic:
            resolve.fail(
                f"tensorize: {intrinsic.name!r} was declared again since; say its name",
            )
        return intrinsic
    if not isinstance(intrinsic, str):
        resolve.fail(
            f"tensorize: an instruction is named by a string, not {intrinsic!r:.60}",
            cls=ArgumentTypeError,
        )
    found = named(intrinsic)
    if found is None:
        resolve.fail(
            f"tensorize: no instruction {intrinsic!r}{hint(intrinsic, names())}",
            why=f"there are {', '.join(builtin())}, and those that tir.intrinsic declared.",
        )
    return found


def _nest(s: Schedule, what: Intrinsic, loop: Loop) -> _Nest:
    """The loops from `loop` down to the one statement under them."""
    found = [loop]
    body = loop.body
    while isinstance(body, Loop):
        found.append(body)
        body = body.body
    if not isinstance(body, At):
        resolve.fail(
            f"tensorize: {loop.axis.name!r} is around several statements: "
            f"{', '.join(tree.stmts(loop))}",
            why="an instruction replaces one; decompose_reduction takes an init out.",
        )
    placement = s.program.placements[body.stmt]
    for x in found:
        if x.kind != "serial":
            resolve.fail(f"tensorize: {x.axis.name!r} is marked already: {x.kind}")
    return _Nest(what, tuple(found), placement)


def _require_outside(s: Schedule, loop: Loop) -> None:
    for y in tree.loops_of(s.program.tree, tree.stmts(loop)[0]):
        if y.axis is loop.axis:
            return
        if y.kind == "vectorize":
            resolve.fail(f"tensorize: {loop.axis.name!r} is inside {y.axis.name!r}, a vector loop")


# -- the meaning
def _meaning(what: Intrinsic) -> list[str]:
    """The declaration as a nest."""
    stmt = instruction.meaning(what)
    lines = [
        f"{'  ' * k}for {a.name} in 0..{what.extent(a)}" for k, a in enumerate(what.axes)
    ]  # fmt: skip
    lines.append("  " * len(what.axes) + statement_text(stmt))
    kinds = dict.fromkeys(
        f"{o.tensor.name}: {o.tensor.dtype}{_shape(o)}"
        for o in (*what.operands, *([] if what.accumulates else [_result(what)]))
    )
    return [*lines, ", ".join(kinds)]


def _result(what: Intrinsic) -> Operand:
    return Operand(what.tensor, what.lanes, {})


def _shape(o: Operand) -> str:
    return f"[{', '.join(str(e) for e in o.tensor.extents)}]"


def _written(s: Schedule, nest: _Nest) -> list[str]:
    """The nest as it stands, with the types of what it touches."""
    from tensorir.schedule.text import range_text

    spans = ranges.nest_bounds(s.program).loops
    lines = []
    for k, x in enumerate(nest.loops):
        span = spans.get(x.axis)
        said = range_text(span) if span is not None else "0..0"
        lines.append(f"{'  ' * k}for {x.axis.name} in {said}")
    p = nest.placement
    lines.append("  " * len(nest.loops) + statement_text(p.stmt, p.index))
    arrays = dict.fromkeys(a.array for a in (*p.stmt.writes, *p.stmt.reads))
    return [*lines, ", ".join(f"{a.name}: {a.dtype}" for a in arrays)]


def _other(s: Schedule, nest: _Nest, why: str) -> NoReturn:
    """Refuse: the nest and the declaration side by side."""
    what = nest.intrinsic
    left = ["the nest", *_written(s, nest)]
    right = [what.name, *_meaning(what)]
    wide = max(map(len, left))
    if wide + max(map(len, right)) + 3 <= WIDTH:
        table = [f"{a:<{wide}}   {b}".rstrip() for a, b in zip_longest(left, right, fillvalue="")]
    else:
        table = [*left, "", *right]
    raise Message(
        f"tensorize: the nest under {nest.loops[0].axis.name!r} is not what {what.name} computes",
        caller(),
        nest_lines=table,
        why=why,
    ).error(ScheduleError)


# -- the loops
def _axes(s: Schedule, nest: _Nest) -> list[dict[Axis, Loop]]:
    """Every way in which the loops may be the axes of the tile."""
    what = nest.intrinsic
    extents = []
    for x in nest.loops:
        extent = ranges.constant_extent(s.program, x.axis)
        if extent is None:
            name = resolve.reference(s.program, x.axis)
            tries = [fix("tiles of it", ("split", (name, what.extent(a)), {})) for a in what.axes]
            resolve.fail(
                f"tensorize: the extent of {x.axis.name!r} is not a constant",
                why=f"{what.name} takes a tile of {_extents(what)}.",
                tries=[(f.code, f.effect) for f in accepted(s, tries)],
            )
        extents.append(extent)
    moved = {
        x.axis
        for x in nest.loops
        if any(
            e.subst(dict(nest.placement.index.items())).involves(x.axis)
            for w in nest.placement.stmt.writes
            for e in w.affine
        )
    }
    private = _private(nest)
    found = []
    if len(nest.loops) == len(what.axes):
        for order in permutations(what.axes):
            fits = all(
                (what.extent(a) == n or (private and a in set(what.lanes) and n < what.extent(a)))
                and (a in set(what.lanes)) == (x.axis in moved)
                for a, n, x in zip(order, extents, nest.loops, strict=True)
            )
            outside = all(a in set(what.lanes) for a in order[: len(what.lanes)])
            if fits and outside:
                found.append(dict(zip(order, nest.loops, strict=True)))
    if not found:
        _other(s, nest, f"the tile is {_extents(what)}, the lanes outside what is summed.")
    return found


def _extents(what: Intrinsic) -> str:
    return " x ".join(f"{what.extent(a)}" for a in what.axes)


def _require_lying(
    s: Schedule, nest: _Nest, slots: Sequence[dict[int, int]], axes: Sequence[dict[Axis, Loop]]
) -> None:
    """Refuse where no way to match has every operand lie as it is declared."""
    first: str | None = None
    for by_slot in slots:
        for by_axis in axes:
            wrong = next(_lying_otherwise(s.program, nest, by_slot, by_axis), None)
            if wrong is None:
                return
            first = first or wrong
    assert first is not None
    _other(s, nest, first)


def _lying_otherwise(
    program: Program, nest: _Nest, slots: dict[int, int], axes: dict[Axis, Loop]
) -> Iterator[str]:
    what, p = nest.intrinsic, nest.placement
    for declared, slot in slots.items():
        operand = instruction.operand_of(what, declared)
        access: Access = p.stmt.reads[slot]
        for a, loop in axes.items():
            if what.extent(a) == 1:
                continue
            moves = instruction.step(program, p, access, loop.axis)
            wanted = operand.map[a] if operand is not None else (1 if a in set(what.lanes) else 0)
            if moves == wanted:
                continue
            by = "an unknown number of elements" if moves is None else _elements(moves)
            own = operand.tensor.name if operand is not None else what.tensor.name
            yield (
                f"{access.array.name} moves by {by} along {loop.axis.name!r}, "
                f"{own} by {wanted}: transform_layout gives a buffer another layout."
            )


def _elements(count: int) -> str:
    return "one element" if count == 1 else f"{count} elements"


def _require_whole(s: Schedule, nest: _Nest, axes: dict[Axis, Loop]) -> None:
    """Refuse a tile that is not full somewhere, along what is summed or into shared memory."""
    program = s.program
    around = tree.axes_of(program.tree, nest.name)
    n = len(around) - len(nest.loops)
    private = _private(nest)
    with isl.budget():
        points = ranges.points(program, nest.name, around)
        prefix = points.project_out(dt.set, n, len(nest.loops))
        for k, x in enumerate(nest.loops):
            declared = next(a for a, y in axes.items() if y.axis is x.axis)
            if declared in set(nest.intrinsic.lanes) and private:
                continue
            # along this axis alone, for any point of the others
            mine = points.project_out(dt.set, n + k + 1, len(nest.loops) - k - 1)
            mine = mine.project_out(dt.set, n, k)
            full = prefix.add_dims(dt.set, 1)
            box = isl.to_set(
                (*around[:n], x.axis), program.sizes,
                (ranges.within(x.axis, nest.intrinsic.extent(declared)),),
            )  # fmt: skip
            if not full.intersect(box).is_subset(mine):
                _remainder(s, nest, x, summed=declared not in set(nest.intrinsic.lanes))


def _private(nest: _Nest) -> bool:
    """Whether the result is in a buffer, where lanes past the end write cells that nobody reads."""
    return all(a.array.role == "temp" for a in nest.placement.stmt.writes)


def _remainder(s: Schedule, nest: _Nest, x: Loop, *, summed: bool) -> NoReturn:
    extent = ranges.constant_extent(s.program, x.axis)
    why = (
        "the instruction takes whole groups: pad_reduction, before the split, fills the last one "
        "with zeros."
        if summed
        else "its lanes past the end would write cells that others own: cache_write first keeps "
        "the tile in a buffer."
    )
    resolve.fail(
        f"tensorize: the last tile is not full along {x.axis.name!r}, "
        f"which has fewer than {extent} points there",
        why=why,
    )


def _marked(program: Program, nest: _Nest) -> Program:
    """The nest marked: lanes as a vector loop, the rest as copies, the outermost by name."""
    order = program.tree
    for k, x in enumerate(nest.loops):
        lane = k == 0 and bool(nest.intrinsic.lanes)
        width = nest.intrinsic.extent(nest.intrinsic.lanes[0]) if lane else None
        order = tree.rewrite(
            order,
            x.axis,
            lambda y, lane=lane, width=width, k=k: replace(  # type: ignore[misc]
                y,
                kind="vectorize" if lane else "unroll",
                width=width,
                intrinsic=nest.intrinsic if k == 0 else None,
            ),
        )
    lanes = nest.loops[0]
    if nest.intrinsic.lanes:
        for x in twins(program, lanes):
            if x.kind == "serial" and not _holds_lanes(program, x):
                width = nest.intrinsic.extent(nest.intrinsic.lanes[0])
                order = tree.rewrite(
                    order,
                    x.axis,
                    lambda y, width=width: replace(  # type: ignore[misc]
                        y, kind="vectorize", width=width
                    ),
                )
    return program.change(tree=order)


def _holds_lanes(program: Program, x: Loop) -> bool:
    """Whether a copy of the lane loop has vector loops around or inside it."""
    around = tree.loops_of(program.tree, tree.stmts(x)[0])
    return any(y.kind == "vectorize" for y in (*around, *tree.loops(x.body)))
