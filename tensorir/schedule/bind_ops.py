"""The primitive `bind`: loops that are the blocks of a grid, or the threads of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tensorir.ir.expr import Axis
from tensorir.poly import legality, ranges, tree
from tensorir.poly.launches import BLOCK_INDICES, THREAD_INDICES
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop
from tensorir.schedule import resolve
from tensorir.schedule.explain import Fix, accepted, fix, refuse
from tensorir.schedule.parallel_ops import (
    also_marked,
    mark,
    require_unmarked,
    rounding,
    with_twins,
)
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.errors import UnsupportedError
from tensorir.support.names import hint

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["BLOCKS", "INDICES", "THREADS", "bind", "require_place"]

BLOCKS, THREADS = BLOCK_INDICES, THREAD_INDICES
INDICES = (*BLOCKS, *THREADS)
_LATER = ("vthread",)
MOST_THREADS = 1024
_MOST = {"threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64}


@primitive
def bind(s: Schedule, axis: str | Axis, index: str) -> Draft:
    """The iterations of a loop are the blocks of a CUDA grid, or the threads of a block.

    Needs a loop that carries nothing: iterations run at once. Loops of one nest that are bound to
    one thread index run on the same threads, one after the other: where one reads what another
    wrote through shared or global memory, a barrier is placed between them. Blocks stand outside
    all other loops. The threads of an index have a constant extent, at most 1024 in all; a loop
    with fewer points uses the first of them. What stands beside thread loops is done by the first
    thread. Applies to the init's own copy of the loop too. Others call it `bind` (TVM),
    `gpu_blocks` and `gpu_threads` (Halide), `tag_inames` (loopy).

    Parameters
    ----------
    axis : str or Axis
        The loop.
    index : str
        `blockIdx.x`, `.y`, `.z`, or `threadIdx.x`, `.y`, `.z`.

    Raises
    ------
    IllegalSchedule
        Two iterations would race; carries both.
    ScheduleError
        An index that there is not, or that a loop around has; an extent that is not constant, or
        too large; a block loop inside another loop; the loop is marked already.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((1024,), name="A")
    >>> B = tir.compute((1024,), lambda i: A[i] * 2.0, name="B")
    >>> s = tir.schedule(B).split("i", 128)
    >>> print(s.loops())
    for io in 0..8
      for ii in 0..128
        B[128*io + ii] = A[128*io + ii] * 2.0
    >>> print(s.bind("io", "blockIdx.x").bind("ii", "threadIdx.x").loops())
    for io in 0..8  # bind blockIdx.x
      for ii in 0..128  # bind threadIdx.x
        B[128*io + ii] = A[128*io + ii] * 2.0
    """
    loop = resolve.axis(s, axis, primitive="bind")
    if index in _LATER:
        raise UnsupportedError(f"bind: {index!r} is not there yet; unroll the loop instead")
    if not isinstance(index, str) or index not in INDICES:
        near = hint(index, INDICES) if isinstance(index, str) else ""
        resolve.fail(f"bind: no index {index!r:.40}{near}; there are {', '.join(INDICES)}")
    program = s.program
    for x in with_twins(s, loop):
        require_unmarked(s, x, "bind")
        violation = legality.carried(program, x.axis)
        if violation is None:
            require_place(s, program, x, index)
            program = mark(program, x.axis, "bind", index=index)
        elif x is loop:
            asked = [(x, f"asked to be {index}")]
            refuse(s, "bind", None, violation, asked=asked, marked=x, fixes=_fixes(s, x, index))
    return Draft(program, notes=also_marked(s, loop))


def _fixes(s: Schedule, x: Loop, index: str) -> list[Fix]:
    name = resolve.reference(s.program, x.axis)
    partial = fix(
        f"partial results, combined at the end{rounding(s, x)}",
        ("rfactor", (name,), {}),
        ("bind", (name, index), {}),
    )
    last = tree.stmts(x)[-1]
    others = [a for a in tree.axes_of(s.program.tree, last) if a is not x.axis]
    return [
        partial,
        *(
            fix("carries nothing", ("bind", (resolve.reference(s.program, a), index), {}))
            for a in others
        ),
    ]


def require_place(s: Schedule, program: Program, x: Loop, index: str) -> None:
    """The loops around and inside, and the extent."""
    name = x.axis.name
    around: list[Loop] = []
    for y in tree.loops_of(program.tree, tree.stmts(x)[0]):
        if y.axis is x.axis:
            break
        around.append(y)
    inside = [y for y in tree.loops(x.body) if y.kind == "bind"]
    for y in (*around, *inside):
        if y.bind == index:
            resolve.fail(f"bind: {y.axis.name!r} in the same nest is bound to {index} already")
    for y in around:
        if y.kind in ("vectorize", "unroll", "parallel"):
            resolve.fail(f"bind: {name!r} is inside {y.axis.name!r}, which is {y.kind}")
    if index in BLOCKS:
        _require_outermost(s, x, around)
        return
    block = next((y for y in inside if y.bind in BLOCKS), None)
    if block is not None:
        resolve.fail(f"bind: {block.axis.name!r} inside {name!r} is bound to {block.bind}")
    _require_fits(s, program, x, index)


def _require_outermost(s: Schedule, x: Loop, around: list[Loop]) -> None:
    inner = next((y for y in around if y.bind not in BLOCKS), None)
    if inner is None:
        return
    a, b = (resolve.reference(s.program, y.axis) for y in (x, inner))
    move = fix("puts the blocks outside", ("reorder", (a, b), {}))
    resolve.fail(
        f"bind: {x.axis.name!r} is inside {inner.axis.name!r}, which is not a block",
        why="blocks run in no order, so no other loop stands around them.",
        tries=[(f.code, f.effect) for f in accepted(s, [move])],
    )


def _require_fits(s: Schedule, program: Program, x: Loop, index: str) -> None:
    """As many threads as the loop has points, with those of the other indices."""
    name = x.axis.name
    found = ranges.constant_range(program, x.axis)
    if found is None or found[0] < 0:
        blocks = fix(
            "threads for blocks of 128", ("split", (resolve.reference(s.program, x.axis), 128), {})
        )
        resolve.fail(
            f"bind: the extent of {name!r} is not a constant",
            why=f"{index} needs a number of threads that is fixed when the kernel is made.",
            tries=[(f.code, f.effect) for f in accepted(s, [blocks])],
        )
    extent = found[1] + 1
    if extent > _MOST[index]:
        _too_many(f"bind: {name!r} has {extent:,} points; {index} has at most {_MOST[index]:,}")
    total, seen = extent, {index}
    for y in _nest(program, x):
        if y.kind == "bind" and y.bind in THREADS and y.bind not in seen:
            seen.add(y.bind)
            total *= (ranges.constant_range(program, y.axis) or (0, 0))[1] + 1
    if total > MOST_THREADS:
        _too_many(f"bind: {name!r} would make {total:,} threads in a block, of {MOST_THREADS:,}")


def _too_many(message: str) -> NoReturn:
    resolve.fail(message, why="split the loop, and bind the inner part.")


def _nest(program: Program, x: Loop) -> list[Loop]:
    """All loops of the outermost nest that holds `x`: what one launch runs."""
    items = program.tree.items if isinstance(program.tree, tree.Seq) else (program.tree,)
    own = next(t for t in items if any(y.axis is x.axis for y in tree.loops(t)))
    return [y for y in tree.loops(own) if y.axis is not x.axis]
