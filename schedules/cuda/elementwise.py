"""Elementwise chains: all stages in one pass, 16 bytes at a time where rows begin at such."""

from __future__ import annotations

from schedules.cpu import structure
from schedules.cpu.elementwise import chain
from schedules.cuda import steps
from schedules.fusion import inline_elementwise
from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import cuda
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The one parameter of :func:`elementwise`: the threads of a block."""
    del target, itemsize
    return (Param("threads", (64, 128, 256, 512), 256),)


def elementwise(s: Schedule, target: Target | None = None, **given: int) -> Schedule:
    """Schedule stages each of whose elements comes from single elements of others.

    Parameters
    ----------
    s
        The schedule of such stages, as declared. Inputs may be broadcast; along the last axis they
        are read in order or not at all.
    target
        The GPU; the schedule is the same for all of them.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is no such chain.

    Examples
    --------
    >>> import tensorir as tir
    >>> x = tir.placeholder((1_000_000,), name="x")
    >>> t = tir.compute((1_000_000,), lambda i: 2.0 * x[i] + 1.0, name="t")
    >>> y = tir.compute((1_000_000,), lambda i: tir.maximum(t[i], 0.0), name="y")
    >>> print(elementwise(tir.schedule(y)).loops())
    for io in 0..977  # bind blockIdx.x
      for it in 0..min(256, 250000 - 256*io)  # bind threadIdx.x
        for iv in 0..4  # vectorize 4
          y[1024*io + 4*it + iv] = max(2.0 * x[1024*io + 4*it + iv] + 1.0, 0.0)
    """
    if not chain(s):
        raise ArgumentError(
            "elementwise: expected stages that each read single elements of others, in order "
            "along the last axis"
        )
    where = cuda.target("cuda") if target is None else target
    count = resolve_params(params(where), given)["threads"]
    s = inline_elementwise(s)
    for x in s.program.statements:
        s, first = structure.flat(s, x, 0)
        s = _flat(s, x, count) if first == 0 else _rows(s, x, first, count)
    return s


def _flat(s: Schedule, x: Statement, count: int) -> Schedule:
    """All elements in one row."""
    each = steps.vector(0, x)
    n = structure.points(x)
    while n is not None and count > steps.WARP and (count // 2) * each >= n:
        count //= 2
    (name,) = structure.loops_of(s, x)
    s, block, thread, own = steps.dealt(s, name, count, each)
    s = s.bind(block, "blockIdx.x").bind(thread, "threadIdx.x")
    return s.vectorize(own) if each > 1 else s


def _rows(s: Schedule, x: Statement, first: int, count: int) -> Schedule:
    """Rows that are no piece of one array: several in a block where they are short."""
    n = structure.points(x, first)
    each = steps.vector(n, x)
    along = steps.WARP
    while along < count and (n is None or along * each < n):
        along *= 2
    *rows, column = structure.loops_of(s, x)
    high = count // along
    (outer, inner) = free_names(s, f"{rows[-1].rpartition('.')[2]}o", "row")
    s = s.split(rows[-1], high, into=(outer, inner))
    s, block, thread, own = steps.dealt(s, column, along, each)
    lead = rows[:-1]
    s = s.reorder(*lead, outer, block, inner, thread, own)
    # of rows there may be any number
    s = s.bind(thread, "threadIdx.x").bind(inner, "threadIdx.y")
    if len(lead) == 1 and _few(x.iters[0]):
        s = s.bind(lead[0], "blockIdx.z")
    elif lead:
        s = s.reorder(outer, block, *lead, inner, thread, own)
    s = s.bind(outer, "blockIdx.x").bind(block, "blockIdx.y")
    return s.vectorize(own) if each > 1 else s


def _few(axis: Axis) -> bool:
    n = structure.extent(axis)
    return n is not None and n <= steps.MOST_BLOCKS


@register("elementwise", chain, kind="cuda")
def _elementwise_for(s: Schedule, target: Target) -> Schedule:
    return elementwise(s, target)
