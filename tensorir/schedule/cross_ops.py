"""The primitive `cross_thread`: a reduction over what the threads of a block have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.expr import Axis
from tensorir.ir.updates import combined
from tensorir.poly import tree
from tensorir.poly.tree import At
from tensorir.schedule import bind_ops, partial, resolve
from tensorir.schedule.parallel_ops import mark, require_unmarked
from tensorir.schedule.primitive import Draft, primitive

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["cross_thread"]

INDEX = "threadIdx.x"
WHAT = "cross_thread"


@primitive
def cross_thread(s: Schedule, axis: str | Axis) -> Draft:
    """The iterations of a reduction loop are threads, whose values are combined across them.

    Needs the innermost loop of one update whose reducer is associative, commutative and has an
    identity; by then its values come from the threads themselves, as after `rfactor` and `bind` of
    the partial results. The loop is bound to `threadIdx.x`. The values of a warp are combined by
    shuffles, those of several warps through shared memory; the first thread then updates the cell,
    which is in shared or global memory. A block has 1, 2, 4, .. 32 or a multiple of 32 threads
    along x, and other thread indices only where those are 32. It regroups the reduction. Others
    call it cross-thread reduction (TVM), a warp or block reduce (CUB).

    Parameters
    ----------
    axis : str or Axis
        The reduction loop.

    Raises
    ------
    ScheduleError
        Not the innermost loop of one reduction, an extent that is not constant or too large.
    IllegalSchedule
        A reducer that may not be regrouped.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 128), name="A")
    >>> k = tir.reduce_axis(128, name="k")
    >>> C = tir.compute((4,), lambda i: tir.sum(A[i, k], axis=k), name="C")
    >>> s = tir.schedule(C).split("k", 32).rfactor("ki", into="P", at="i").bind("ki", "threadIdx.x")
    >>> print(s.loops())
    for i in 0..4
      alloc P: float32 in global
      C[i] = 0.0
      for P.init.ki in 0..32  # bind threadIdx.x
        P[P.init.ki, i] = 0.0
      for ko in 0..4
        for ki in 0..32  # bind threadIdx.x
          P[ki%32, i] = P[ki%32, i] + A[i, 32*ko + ki]
      for C.ki in 0..32
        C[i] = C[i] + P[C.ki, i]
    >>> print(s.cross_thread("C.ki").loops())
    for i in 0..4
      alloc P: float32 in global
      C[i] = 0.0
      for P.init.ki in 0..32  # bind threadIdx.x
        P[P.init.ki, i] = 0.0
      for ko in 0..4
        for ki in 0..32  # bind threadIdx.x
          P[ki%32, i] = P[ki%32, i] + A[i, 32*ko + ki]
      for C.ki in 0..32  # bind threadIdx.x, combined
        C[i] = C[i] + P[C.ki, i]
    """
    loop = resolve.axis(s, axis, primitive=WHAT)
    program = s.program
    name = resolve.reference(program, loop.axis)
    if not isinstance(loop.body, At) or program.stmt(loop.body.stmt).role != "update":
        resolve.fail(
            f"{WHAT}: {name!r} is not the innermost loop of one reduction",
            why="what each thread has is combined in one step: rfactor makes partial results.",
        )
    update = program.stmt(loop.body.stmt)
    reducing = [x.axis for x in partial.reduction_loops(program, update.name)]
    if not any(a is loop.axis for a in reducing):
        resolve.fail(f"{WHAT}: {name!r} is not a loop over a reduction")
    require_unmarked(s, loop, WHAT)
    partial.require_algebra(s, update.name, loop, WHAT, regroups=True)
    exact = len(update.writes) == 1 and all(w.exact for w in update.writes)
    if not exact or combined(update.bodies[0]) is None:
        resolve.fail(
            f"{WHAT}: {update.name} does more than combine one cell with a value",
            why="there are shuffles for sums, products, min, max and bits of single numbers.",
        )
    bind_ops.require_place(s, program, loop, INDEX)
    marked = mark(program, loop.axis, "bind", index=INDEX)
    marked = marked.change(tree=tree.rewrite(marked.tree, loop.axis, lambda x: replace(x, width=1)))
    reducer = update.combiner
    assert reducer is not None
    return Draft(marked, reassociates=not reducer.exact)
