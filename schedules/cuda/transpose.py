"""Copies whose last axis changes: tiles that are read along one and written along the other.

A tile passes through shared memory, whose rows are one element longer than they are wide, so that
a column lies in as many banks as it has elements.
"""

from __future__ import annotations

from schedules.cpu import structure
from schedules.cpu.transpose import Turn, turn_of
from schedules.cuda import steps
from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import cuda
from tensorir.ir.affine import Lin
from tensorir.ir.statement import Array
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

TILE = 32
BANK = 4  # bytes


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The one parameter of :func:`transpose`: rows of a tile that its threads take at a time."""
    del target, itemsize
    return (Param("high", (4, 8, 16, 32), 8),)


def transpose(s: Schedule, target: Target | None = None, **given: int) -> Schedule:
    """Schedule `B[i, j] = A[j, i]`, with any other axes, in any order.

    Parameters
    ----------
    s
        The schedule of the one stage, as declared.
    target
        The GPU; the schedule is the same for all of them.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is no such copy.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((64, 32), name="A")
    >>> B = tir.compute((32, 64), lambda i, j: A[j, i], name="B")
    >>> s = transpose(tir.schedule(B))
    >>> [step.text for step in s.trace.steps if step.primitive in ("cache_read", "pad")]
    ['cache_read("A", "shared", at="jo", name="A_tile")', 'pad("A_tile", 1)']
    """
    turn = _fits(s)
    if turn is None:
        raise ArgumentError("transpose: expected one stage that is read along another axis")
    where = cuda.target("cuda") if target is None else target
    high = resolve_params(params(where), given)["high"]
    x, a, b = turn.stmt, turn.along.name, turn.across.name
    ao, ai, bo, bi, ar, at = free_names(s, f"{a}o", f"{a}i", f"{b}o", f"{b}i", "rows", "row")
    s = s.split(a, TILE, into=(ao, ai)).split(b, TILE, into=(bo, bi)).split(ai, high, into=(ar, at))
    rest = [i.name for i in x.iters if i is not turn.along and i is not turn.across]
    few = (structure.extent(i) for i in x.iters if i.name in rest)
    lead = next((r for r, n in zip(rest, few, strict=True) if n and n <= steps.MOST_BLOCKS), None)
    inner = [r for r in rest if r != lead]
    outer = [ao, bo] if lead is None else [ao, bo, lead]
    s = s.reorder(*outer, *inner, ar, at, bi)
    s = steps.blocks(s, outer)
    for array in _turned(turn):
        s = _staged(s, array, (*outer, *inner)[-1], high)
    s = s.bind(at, "threadIdx.y").bind(bi, "threadIdx.x")
    return structure.attempt(s, "unroll", ar)


def _staged(s: Schedule, array: Array, at: str, high: int) -> Schedule:
    """A tile of an array, read along its rows."""
    (name,) = free_names(s, f"{array.name}_tile")
    s = s.cache_read(array.name, "shared", at=at, name=name)
    copy = next(x for x in s.program.statements if x.stage == name)
    loops = structure.loops_of(s, copy)
    below = loops[loops.index(at) + 1 :]
    rows, row = free_names(s, f"{name}_rows", f"{name}_row")
    *others, last = below
    wide = [n for n in others if (steps.extent_of(s, n) or 2) > 1]
    s = s.split(wide[-1], high, into=(rows, row))
    s = s.bind(row, "threadIdx.y").bind(last, "threadIdx.x")
    s = structure.attempt(s, "unroll", rows)
    return structure.attempt(s, "pad", name, max(1, BANK // array.dtype.bytes))


def _turned(turn: Turn) -> list[Array]:
    """The arrays that are read along the axis that is not the last one written."""
    found = {
        r.array: None
        for r in turn.stmt.reads
        if r.exact and r.affine and r.affine[-1] == Lin({turn.along: 1})
    }
    return list(found)


def _fits(s: Schedule) -> Turn | None:
    """What is turned, where tiles of it are rectangles of arrays."""
    turn = turn_of(s)
    if turn is None or not _turned(turn) or not structure.plain(turn.stmt):
        return None
    for r in turn.stmt.reads:
        across = [e for e in r.affine if e.involves(turn.across)]
        if r.array in _turned(turn) and across != [Lin({turn.across: 1})]:
            return None
    n = structure.extent(turn.across)
    return turn if n is None or n <= TILE * steps.MOST_BLOCKS else None


@register("transpose", lambda s: _fits(s) is not None, kind="cuda")
def _transpose_for(s: Schedule, target: Target) -> Schedule:
    return transpose(s, target)
