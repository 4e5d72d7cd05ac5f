"""What arrays share, and updates that several threads may make at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from tensorir.ir import updates
from tensorir.ir.statement import Array
from tensorir.poly import isl, sharing
from tensorir.poly.sharing import Lost
from tensorir.schedule import resolve, rewrite, storing
from tensorir.schedule.explain import require_marks
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import IllegalSchedule, UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["atomic", "reuse"]


@primitive
def reuse(s: Schedule, tensor: object, other: object) -> Draft:
    """An intermediate kept in the storage of another tensor, cell for cell, which it needs later.

    Needs an intermediate that fits into an intermediate or an output of the same element type, and
    live ranges that do not meet: each value is read for the last time before the other tensor
    writes that cell, and the other way round. Do it last: what is shared is not placed or cached
    any more. Others call it storage sharing, buffer reuse, `inplace_update` (Halide).

    Parameters
    ----------
    tensor : str or Tensor
        The intermediate; its own storage goes.
    other : str or Tensor
        Where it is kept: an intermediate, or an output.

    Raises
    ------
    IllegalSchedule
        A value would be overwritten before it is read; tells by whom.
    ScheduleError
        An input, another element type or rank, a tensor that does not fit, or storage that exists
        inside other loops.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((16,), name="A")
    >>> B = tir.compute((16,), lambda x: A[x] + 1.0, name="B")
    >>> C = tir.compute((16,), lambda i: B[i] * 2.0, name="C")
    >>> s = tir.schedule(C)
    >>> print(s.loops())
    for x in 0..16
      B[x] = A[x] + 1.0
    for i in 0..16
      C[i] = B[i] * 2.0
    >>> print(s.reuse("B", "C").loops())
    for x in 0..16
      C[x] = A[x] + 1.0
    for i in 0..16
      C[i] = C[i] * 2.0
    """
    what = "reuse"
    array = resolve.array(s, tensor, primitive=what)
    to = resolve.array(s, other, primitive=what)
    program = s.program
    _require_fit(s, array, to)
    new = storing.moved(program, array, to, lambda index: index)
    if new is None:
        resolve.fail(
            f"{what}: {array.name} is accessed through an index that is loaded",
            why="which cells are in use is then known only when it runs.",
            cls=UnsupportedError,
        )
    if any(not x.exact for p in new.placements.values() for x in (*p.stmt.writes, *p.stmt.reads)
           if x.array is to):  # fmt: skip
        resolve.fail(
            f"{what}: {to.name} is accessed through an index that is loaded",
            why="which cells are in use is then known only when it runs.",
            cls=UnsupportedError,
        )
    with rewrite.proving(s, what, f"that {array.name} and {to.name} are not in use at once"):
        found = sharing.lost(program, new, to, rewrite.outside_of(program, to))
    if found is not None:
        _refuse(s, array, to, found)
    users = [n for n, p in new.placements.items() if rewrite.touches(p.stmt, to)]
    require_marks(s, new, users, what)
    return Draft(new, notes=(f"{array.name} has no storage of its own",))


def _require_fit(s: Schedule, array: Array, to: Array) -> None:
    what = "reuse"
    if array.role != "temp":
        kind = "an input" if array.role == "input" else "an output"
        resolve.fail(f"{what}: {array.name} is {kind}; it lives in the caller's memory")
    if to.role == "input":
        resolve.fail(
            f"{what}: {to.name} is an input, which is not written to",
            why="an intermediate is kept in another one, or in an output.",
        )
    if array is to:
        resolve.fail(f"{what}: {array.name} is both tensors")
    if array.dtype != to.dtype:
        resolve.fail(f"{what}: {array.name} holds {array.dtype} and {to.name} {to.dtype}")
    if len(array.shape) != len(to.shape):
        resolve.fail(
            f"{what}: {array.name} has {len(array.shape)} dimensions and {to.name} {len(to.shape)}"
        )
    program = s.program
    for d, (own, room) in enumerate(zip(array.shape, to.shape, strict=True)):
        lacks = isl.params(program.sizes, (*program.context, ("ge", own - room - 1)))
        if not lacks.is_empty():
            resolve.fail(
                f"{what}: {array.name} does not fit into {to.name}: dimension {d} is {own} of "
                f"{room}"
            )
    mine, its = (rewrite.outside_of(program, a) for a in (array, to))
    if len(mine) != len(its) or any(a is not b for a, b in zip(mine, its, strict=True)):
        where = [f"inside {o[-1].name!r}" if o else "outside all loops" for o in (mine, its)]
        resolve.fail(
            f"{what}: {array.name} exists {where[0]}, {to.name} {where[1]}",
            why="they must exist in the same loops.",
        )
    for a in (array, to):
        buffer = program.buffers.get(a)
        if buffer is not None and buffer.layout is not None:
            resolve.fail(
                f"{what}: {a.name} has a layout of its own", why="cells are shared as declared."
            )


def _refuse(s: Schedule, array: Array, to: Array, found: Lost) -> NoReturn:
    sizes = "".join(f", {k} = {v}" for k, v in found.sizes.items())
    writer = f"{found.writer.stmt}[{_at(found.writer.at)}]"
    if found.reader is None:
        line = f"{writer} would leave its value in a cell of {to.name} that is returned"
        why = f"{to.name} does not write that cell afterwards."
    else:
        line = (
            f"{writer} would overwrite a value of {found.array.name} that "
            f"{found.reader.stmt}[{_at(found.reader.at)}] still reads"
        )
        why = "both are in use at once."
    raise Message(f"reuse: {line}{sizes}", caller(), why=why).error(
        IllegalSchedule, primitive="reuse", witness=found
    )


def _at(point: dict[str, int]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in point.items())


# -- updates at once
@primitive
def atomic(s: Schedule, stage: object) -> Draft:
    """The updates of a reduction made so that several threads may make them at once.

    Needs a reduction whose state is one number, and a combination that the target does in one step:
    sums, minima, maxima, and, or. A loop over the reduction may then be parallel; what its threads
    add comes in any order, so that float sums round differently from run to run. Each update is
    slow: accumulate in a `cache_write(..., init="identity")` first where several go to one cell.
    Others call it `atomic` (Halide), `omp atomic`, `atomicAdd`.

    Parameters
    ----------
    stage : str or Tensor
        The reduction.

    Raises
    ------
    ScheduleError
        The stage is no reduction.
    UnsupportedError
        A product, a reducer of your own, several numbers in the state, or 16-bit floats.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((64,), "int64", name="A")
    >>> k = tir.reduce_axis(64, name="k")
    >>> H = tir.compute((8,), lambda b: tir.sum(tir.select(A[k] == b, 1, 0), axis=k), name="H")
    >>> s = tir.schedule(H).reorder("k", "b")
    >>> print(s.loops())
    for H.init.b in 0..8
      H[H.init.b] = 0
    for k in 0..64
      for b in 0..8
        H[b] = H[b] + select(A[k] == b, 1, 0)
    >>> print(s.atomic("H").parallel("k").loops())
    for H.init.b in 0..8
      H[H.init.b] = 0
    for k in 0..64  # parallel
      for b in 0..8
        H[b] = H[b] + select(A[k] == b, 1, 0)  # atomic
    """
    what = "atomic"
    name = resolve.stage(s, stage, primitive=what)
    program = s.program
    every = [n for n in resolve.statements(program, name) if program.stmt(n).role == "update"]
    if not every:
        resolve.fail(
            f"{what}: {name} is not a reduction",
            why="only what several instances combine into one cell needs it.",
        )
    least = min(len(rewrite.outside_of(program, program.stmt(n).writes[0].array)) for n in every)
    placements = dict(program.placements)
    exact = True
    changed = False
    for n in every:
        stmt = program.stmt(n)
        array = stmt.writes[0].array
        outermost = len(rewrite.outside_of(program, array)) == least
        if outermost:
            why = updates.not_atomic(stmt)
            if why:
                resolve.fail(f"{what}: the update of {n} has no atomic form: {why}",
                             cls=UnsupportedError)  # fmt: skip
            exact = exact and stmt.combiner is not None and stmt.combiner.exact
        changed = changed or stmt.atomic != outermost
        placements[n] = placements[n].with_stmt(replace(stmt, atomic=outermost))
    idle = "" if changed else f"the updates of {name} are atomic already"
    return Draft(program.change(placements=placements), changed and not exact, idle=idle)
