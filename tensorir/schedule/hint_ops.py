"""Primitives that tell how memory is used and change no result: streaming stores, prefetches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array
from tensorir.poly import hints, tree
from tensorir.poly.model import Prefetch, Program
from tensorir.poly.tree import Loop
from tensorir.schedule import resolve
from tensorir.schedule.explain import Fix, accepted, fix
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["non_temporal", "prefetch"]


@primitive
def non_temporal(s: Schedule, stage: object, *, above: int = 0) -> Draft:
    """What a stage writes goes to memory past the caches, by streaming stores.

    Needs an output, or a stage kept whole in global memory, that is not read again inside the
    loops that write it. Saves reading each line before it is written, and leaves the caches to
    what is read: worth it where the output exceeds the last cache, a loss where it does not. Whole
    vectors stream where rows begin at multiples of 16 bytes, which is tested in each call; the
    rest is stored plainly. Others call it `non_temporal`, streaming stores,
    `__builtin_nontemporal_store` (Clang), `store_in` (Halide).

    Parameters
    ----------
    stage : str or Tensor
        What is written.
    above : int
        Only in calls in which it holds more than so many bytes.

    Raises
    ------
    ScheduleError
        An input, a buffer kept inside a loop, or a stage that is read again where it is written.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4096, 4096), name="A")
    >>> B = tir.compute((4096, 4096), lambda i, j: A[i, j] * 2.0, name="B")
    >>> s = tir.schedule(B).vectorize("j", 16)
    >>> print(s.loops())
    for i in 0..4096
      for j in 0..256
        for j.v in 0..16  # vectorize 16
          B[i, 16*j + j.v] = A[i, 16*j + j.v] * 2.0
    >>> print(s.non_temporal("B").loops())
    for i in 0..4096
      for j in 0..256
        for j.v in 0..16  # vectorize 16
          B[i, 16*j + j.v] = A[i, 16*j + j.v] * 2.0  # streaming
    """
    what = "non_temporal"
    array = resolve.array(s, stage, primitive=what)
    program = s.program
    if array.role == "input":
        resolve.fail(f"{what}: {array.name!r} is an input, nothing computes it")
    _require_memory(program, array)
    reader = hints.reader_near(program, array)
    if reader is not None:
        updates = any(w.array is array for w in program.stmt(reader).writes)
        instead = "; an accumulation is kept in a buffer, whose end result streams"
        resolve.fail(
            f"{what}: {reader} reads {array.name} again inside the loops that write it",
            why="what streams past the caches would have to come back from memory"
            f"{instead if updates else ''}.",
            tries=[(f.code, f.effect) for f in accepted(s, _kept_fixes(s, array, reader))],
        )
    least = resolve.positive(above, "above", primitive=what) if above != 0 else 0
    if any(a is array for a, _ in program.streaming):
        return Draft(program, idle=f"{array.name} streams already")
    size = hints.known_bytes(array)
    if size is not None and size <= least:
        return Draft(program, idle=f"{array.name} has {size:,} bytes")
    return Draft(program.change(streaming=(*program.streaming, (array, least))))


def _require_memory(program: Program, array: Array) -> None:
    """Refuse what does not lie in memory as a whole."""
    buffer = program.buffers.get(array)
    if buffer is None or (buffer.scope == "global" and not buffer.outside):
        return
    inside = f"inside {resolve.reference(program, buffer.outside[-1])!r}" if buffer.outside else ""
    where = f"kept {inside}" if inside else "in local memory"
    resolve.fail(
        f"non_temporal: {array.name} is {where}",
        why="a small buffer that is used again and again belongs in the caches.",
    )


def _kept_fixes(s: Schedule, array: Array, reader: str) -> list[Fix]:
    """Accumulate in a buffer, in the innermost loop that is no reduction, then stream."""
    axes = [a for a in tree.axes_of(s.program.tree, reader) if not a.reduce]
    found = []
    for a in reversed(axes):
        ref = resolve.reference(s.program, a)
        kept = ("cache_write", (array.name,), {"at": ref})
        found.append(fix("accumulates in a buffer", kept, ("non_temporal", (array.name,), {})))
    return found


@primitive
def prefetch(
    s: Schedule,
    tensor: object,
    axis: str | Axis,
    distance: int = 1,
    *,
    reader: object = None,
) -> Draft:
    """What a later iteration of a loop reads is asked of memory now.

    Needs a loop that moves what is read by a constant. Each vector that the reader loads goes
    with a request for the line that it loads `distance` iterations of the loop later; beyond the
    end the request is void. Pays where the processor does not see what comes: the next row while
    this one is computed with. Others call it `prefetch` (Halide), `cache_read` into nothing,
    `__builtin_prefetch` (C).

    Parameters
    ----------
    tensor : str or Tensor
        What is read.
    axis : str or Axis
        The loop.
    distance : int
        How many iterations later.
    reader : str or Tensor
        The stage whose loads the requests go with; by default the last one in the loop that reads
        the tensor.

    Raises
    ------
    ScheduleError
        Nothing inside the loop reads the tensor, it is kept inside a loop, or the loop does not
        move what is read by a constant.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((64, 4096), name="A")
    >>> B = tir.compute((64, 4096), lambda i, j: tir.exp(A[i, j]), name="B")
    >>> s = tir.schedule(B).vectorize("j", 16)
    >>> print(s.loops())
    for i in 0..64
      for j in 0..256
        for j.v in 0..16  # vectorize 16
          B[i, 16*j + j.v] = exp(A[i, 16*j + j.v])
    >>> print(s.prefetch("A", "i", 1).loops())
    for i in 0..64
      for j in 0..256
        for j.v in 0..16  # vectorize 16
          B[i, 16*j + j.v] = exp(A[i, 16*j + j.v])  # prefetch A[i + 1, 16*j + j.v]
    """
    what = "prefetch"
    array = resolve.array(s, tensor, primitive=what)
    loop = resolve.axis(s, axis, primitive=what)
    far = resolve.positive(distance, "distance", primitive=what)
    program = s.program
    buffer = program.buffers.get(array)
    if buffer is not None and (buffer.outside or buffer.scope != "global"):
        resolve.fail(
            f"{what}: {array.name} is kept inside a loop",
            why="it is small and in the caches already.",
        )
    name = _reader(s, array, loop, reader)
    placed = program.placements[name]
    shift = []
    for it, e in placed.index.items():
        if any(isinstance(a, tuple) and a[1].involves(loop.axis) for a in e.terms):
            ref = resolve.reference(program, loop.axis)
            resolve.fail(
                f"{what}: {ref!r} does not move {it.name!r} by a constant",
                why=f"the index of {name} is {e.text()} there.",
                cls=UnsupportedError,
            )
        if e.coef(loop.axis):
            shift.append((it, e.coef(loop.axis) * far))
    made = Prefetch(name, array, tuple(shift))
    moved = hints.ahead(program, made)
    now = [r.index for r in program.stmt(name).reads if r.array is array and r.exact]
    if not moved:
        resolve.fail(
            f"{what}: {name} reads {array.name} through an index that is not affine",
            why="what it reads later is not known ahead of time.",
            cls=UnsupportedError,
        )
    if [x.index for x in moved] == now:
        ref = resolve.reference(program, loop.axis)
        resolve.fail(
            f"{what}: {name} reads the same cells of {array.name} in every iteration of {ref!r}",
            why="nothing has to be asked for.",
        )
    return Draft(program.change(prefetches=(*program.prefetches, made)))


def _reader(s: Schedule, array: Array, loop: Loop, reader: object) -> str:
    """The statement in a loop whose loads carry the requests."""
    what = "prefetch"
    names = [n for n in tree.stmts(loop) if any(r.array is array for r in s.program.stmt(n).reads)]
    ref = resolve.reference(s.program, loop.axis)
    if reader is not None:
        stage = resolve.stage(s, reader, primitive=what)
        names = [n for n in names if s.program.stmt(n).stage == stage]
        if not names:
            resolve.fail(f"{what}: {stage} does not read {array.name} inside {ref!r}")
    if not names:
        resolve.fail(f"{what}: nothing inside {ref!r} reads {array.name}")
    return names[-1]
