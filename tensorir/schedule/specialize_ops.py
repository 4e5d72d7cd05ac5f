"""Copies of the nest for some sizes: chosen once for a call, knowing what they are chosen for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorir.ir.affine import Conj
from tensorir.poly import isl
from tensorir.poly.model import Program
from tensorir.poly.relation import context_set
from tensorir.schedule import resolve, rewrite, size_conditions
from tensorir.schedule.primitive import Draft, primitive

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["specialize"]

MOST_VERSIONS = 8


@primitive
def specialize(s: Schedule, *conditions: object) -> Draft:
    """One kernel with a copy of the nest for each condition on sizes, the general one last.

    Needs affine conditions on symbolic sizes; at most 8 in all. They are tested in order, once for
    a call, and each copy is made knowing that its condition holds: guards go, a size that is given
    is a constant, a loop of constant extent is unrolled. Later steps apply to every copy.
    A condition on constant sizes does nothing. Others call it `specialize` (Halide, Exo),
    function multiversioning.

    Parameters
    ----------
    *conditions : Expr or str
        Comparisons of sizes, several joined by ``&``: ``n % 16 == 0``, ``(n == 64) & (m >= 4)``.
        A string is read in the same syntax.

    Raises
    ------
    ScheduleError
        No condition, more than 8 versions, a name that is no size of this schedule.
    UnsupportedError
        A condition that is not affine, or holds in separate cases (``n != 5``): name each.

    Examples
    --------
    >>> import tensorir as tir
    >>> n = tir.var("n")
    >>> A = tir.placeholder((n,), name="A")
    >>> B = tir.compute((n,), lambda i: A[i] * 2.0, name="B")
    >>> s = tir.schedule(B).split("i", 8)
    >>> print(s.loops())
    for io in 0..(n + 7)//8
      for ii in 0..min(8, n - 8*io)
        B[8*io + ii] = A[8*io + ii] * 2.0
    >>> print(s.specialize(n % 8 == 0).loops())
    if n%8 == 0
      for io in 0..n//8
        for ii in 0..8
          B[8*io + ii] = A[8*io + ii] * 2.0
    else
      for io in 0..(n + 7)//8
        for ii in 0..min(8, n - 8*io)
          B[8*io + ii] = A[8*io + ii] * 2.0
    """
    what = "specialize"
    if not conditions:
        resolve.fail(f"{what}: give it at least one condition, as in n % 16 == 0")
    read = [size_conditions.parse(s, c, what) for c in conditions]
    program = s.program
    idle: list[str] = []
    with rewrite.proving(s, what, "which conditions can hold"):
        for conj, text in read:
            why = _idle(program, conj)
            if why:
                idle.append(f"{text} {why}")
                continue
            assert not isinstance(conj, bool)
            program = program.change(specializations=(*program.specializations, conj))
    if len(program.specializations) > MOST_VERSIONS:
        resolve.fail(
            f"{what}: {len(program.specializations)} conditions; at most {MOST_VERSIONS} are taken",
            why="each is a copy of the whole nest, compiled with it.",
        )
    record = tuple(text for _, text in read)
    if program is s.program:
        return Draft(program, record=(record, {}), idle="; ".join(idle))
    notes = (*idle, f"{len(program.specializations) + 1} copies of the nest")
    return Draft(program, notes=notes, record=(record, {}))


def _idle(program: Program, conj: Conj | bool) -> str:
    """Why a condition makes no copy; empty if it does."""
    if isinstance(conj, bool):
        return f"is {conj} for these sizes" if not conj else "always holds"
    sizes = program.sizes
    left = context_set(program)
    for earlier in program.specializations:
        left = left.subtract(isl.params(sizes, earlier))
    here = left.intersect(isl.params(sizes, conj))
    if here.is_empty():
        known = context_set(program).intersect(isl.params(sizes, conj)).is_empty()
        return "never holds" if known else "never holds where no earlier condition does"
    if not program.specializations and left.is_subset(here):
        return "always holds"
    return ""
