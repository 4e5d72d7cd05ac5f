"""Elementwise chains: all stages in one pass, flat where shapes allow, streamed above the cache."""

from __future__ import annotations

from schedules.cpu import structure
from schedules.fusion import inline_elementwise
from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.affine import Lin
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

_LEAST_WORK = 1 << 18  # instructions below which a second thread costs more than it does
_MOST = 60  # instructions that unrolled copies may have together


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The one parameter of :func:`elementwise`: how many vectors are computed at a time.

    Where an element takes many instructions fewer do as well.
    """
    del target, itemsize
    return (Param("unroll", (1, 2, 4, 8), 4),)


@by_hand
def elementwise(
    s: Schedule, target: str | Target | None = None, *, parallel: bool = True, **given: int
) -> Schedule:
    """Schedule stages each of whose elements comes from single elements of others.

    Intermediate stages are computed where they are read. Last axes that every array is walked
    through in order, or not at all, become one where their extents are known.

    Parameters
    ----------
    s
        The schedule of such stages, as declared. Inputs may be broadcast; along the last axis they
        are read in order or not at all.
    target
        The processor; this one by default.
    parallel
        Whether the elements are shared out among threads.
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
    >>> s = elementwise(tir.schedule(y), "x86-64-v4", parallel=False)
    >>> print(s.loops())
    for i in 0..15625
      for i.u in 0..4  # unroll
        for i.v in 0..16  # vectorize 16
          y[64*i + 16*i.u + i.v] = max(2.0 * x[64*i + 16*i.u + i.v] + 1.0, 0.0)
    """
    if not chain(s):
        raise ArgumentError(
            "elementwise: expected stages that each read single elements of others, in order "
            "along the last axis"
        )
    where = cpu.target("native" if target is None else target)
    p = resolve_params(params(where), given)
    s = inline_elementwise(s)
    for main in s.program.statements:
        s, first = structure.flat(s, main, 0)
        *_, last = structure.loops_of(s, main)
        n = structure.points(main, first)
        unroll = p["unroll"]
        while "unroll" not in given and unroll > 1 and unroll * structure.weight(main) > _MOST:
            unroll //= 2
        s = structure.vectors_of(s, last, n, structure.lanes(where, main), unroll)
        for w in main.writes:
            s = structure.stream(s, w.array, where)
        if parallel and structure.worth((main,), _LEAST_WORK // max(1, structure.weight(main))):
            s = structure.attempt(s, "parallel", structure.loops_of(s, main)[0])
    return s


def chain(s: Schedule) -> bool:
    """Whether every stage is plain, and reads elements of the stages before at its own index."""
    if s.step is not None:
        return False
    for x in s.program.statements:
        if x.role != "compute" or not x.iters or not structure.plain(x):
            return False
        whole = tuple(Lin({i: 1}) for i in x.iters)
        if any(w.affine != whole for w in x.writes) or not structure.neighbours(x, x.iters[-1]):
            return False
        for r in x.reads:
            temp = r.array.role == "temp"
            if r.guard != ((),) or (temp and r.affine != whole) or not _broadcast(x, r.affine):
                return False
    return True


def _broadcast(x: Statement, index: tuple[Lin, ...]) -> bool:
    """Whether each index is an iterator or a constant."""
    return all(len(e.terms) <= 1 and all(v == 1 for v in e.terms.values()) for e in index)


@register("elementwise", chain)
def _elementwise_for(s: Schedule, target: Target) -> Schedule:
    return elementwise(s, target)
