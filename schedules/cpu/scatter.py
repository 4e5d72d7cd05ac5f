"""Sums over what has this index: each thing is added to the one cell that its index names.

Declared, every cell asks every index whether it is its own: cells times indices. Scattered, each
index is looked at once, in the order of the declaration, so that sums round as declared. Slices
(`out[index[k], :] += x[k, :]`) go in vectors.
"""

from __future__ import annotations

from schedules.params import Param
from schedules.registry import register
from tensorir.codegen import cpu
from tensorir.ir.expr import Op
from tensorir.ir.target import Target
from tensorir.ir.updates import combined
from tensorir.poly import tree
from tensorir.schedule.resolve import reference
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """:func:`scatter` has nothing to choose."""
    return ()


def scatter(s: Schedule, target: str | Target | None = None, *, parallel: bool = True) -> Schedule:
    """Schedule `out[i, ...] = sum over k of select(index[k] == i, x[k, ...], 0)`, a histogram too.

    Parameters
    ----------
    s
        The schedule of the one stage, as declared.
    target
        The processor; this one by default.
    parallel
        Whether cells get their initial and their final value on all threads.

    Raises
    ------
    ArgumentError
        If `s` is no such sum.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((1000,), "int64", name="A")
    >>> k = tir.reduce_axis(1000, name="k")
    >>> H = tir.compute((8,), lambda b: tir.sum(tir.select(A[k] == b, 1, 0), axis=k), name="H")
    >>> [step.primitive for step in scatter(tir.schedule(H), parallel=False).trace]
    ['scatter']
    """
    name = _scattered(s)
    if name is None:
        raise ArgumentError(
            "scatter: expected one stage, out[i] = sum over k of select(index[k] == i, x[k], 0)"
        )
    where = cpu.target("native" if target is None else target)
    s = s.scatter(name)
    update = next(x for x in s.program.statements if x.role == "update")
    inner = tree.axes_of(s.program.tree, update.name)[-1]
    if not inner.reduce:
        width = where.lanes(update.writes[0].array.dtype)
        s = s.vectorize(reference(s.program, inner), width=width)
    if not parallel:
        return s
    for x in s.program.statements:
        loops = tree.loops_of(s.program.tree, x.name)
        if x.role in ("init", "finish") and loops and loops[0].kind == "serial":
            s = s.parallel(reference(s.program, loops[0].axis))
    return s


def _scattered(s: Schedule) -> str | None:
    """The stage that :func:`scatter` is for, or None."""
    stages = {x.stage for x in s.program.statements}
    update = next((x for x in s.program.statements if x.role == "update"), None)
    if len(stages) != 1 or update is None or s.step is not None:
        return None
    found = combined(update.bodies[0])
    other = found[1][0] if found is not None else None
    while isinstance(other, Op) and other.name == "cast":
        other = other.args[0]
    if not (isinstance(other, Op) and other.name in ("select", "if_then_else")):
        return None
    return update.stage if s.check("scatter", update.stage) else None


@register("scatter", lambda s: _scattered(s) is not None)
def _scatter_for(s: Schedule, target: Target) -> Schedule:
    return scatter(s, target)
