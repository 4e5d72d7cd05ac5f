"""Loops checked against the declaration, instance by instance, with code of its own.

The proofs of a schedule come from isl and from the passes; this knows neither. It enumerates the
final loops and asks of them: every instance once, no access outside its array, no race, and the
same values as the declaration in its own order. Entry point: `require_valid`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from math import prod

from tensorir.emulator.hashed import regroupable
from tensorir.emulator.machine import Fault, Machine
from tensorir.emulator.points import Sizes, TooMany, declared_outputs, holds
from tensorir.emulator.shrink import shrunk
from tensorir.ir.expr import Axis, Var
from tensorir.ir.target import Target
from tensorir.lower.pipeline import Lowered, lower
from tensorir.poly.model import Program
from tensorir.poly.tree import loops
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import InternalError, internal, warn

MOST = 200_000
# symbolic sizes, and constant ones too large, are tried at this many assignments of so many
# instances
TRIES, FEW = 2, 20_000
COMBINATIONS = 4096


def require_valid(schedule: Schedule, lowered: Lowered, target: Target) -> None:
    """Check that loops do what the declaration says.

    Parameters
    ----------
    schedule
        The schedule that was lowered; its trace leads back to the declaration.
    lowered
        The loops. Checked at their own size up to 200,000 instances. Above that the trace is
        replayed on the declaration at two small sizes; with symbolic sizes, two of these are
        chosen so that full and partial tiles occur.
    target
        What they were lowered for.

    Raises
    ------
    InternalError
        An instance that does not run once, a dependence that is not kept, an access outside an
        array, or a race of a parallel loop.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((10,), name="A")
    >>> B = tir.compute((10,), lambda i: A[i] * 2.0, name="B")
    >>> tir.build(tir.schedule(B).vectorize("i", width=4), validate=True).name
    'B'
    """
    checked = 0
    most = FEW if schedule.program.sizes else MOST
    for sizes in choices(schedule.program):
        try:
            check(schedule, lowered, sizes, most)
        except TooMany:
            continue
        checked += 1
        if checked == TRIES + len(schedule.program.specializations):
            return
    if checked:
        return
    for small in shrunk(schedule):
        try:
            check(small.schedule, lower(small.schedule.program, target), {}, FEW)
        except TooMany:
            continue
        checked += 1
        if checked == TRIES:
            return
    if not checked:
        warn(
            "validate-skipped",
            f"validate: the loops of {schedule.outputs[0].name} have more than {MOST:,} instances, "
            "and the schedule does not apply at a smaller size; they were not enumerated",
        )


def check(schedule: Schedule, lowered: Lowered, sizes: Sizes, most: int = MOST) -> None:
    """Check loops at one assignment of the symbolic sizes.

    Raises
    ------
    InternalError
        A rule is broken.
    TooMany
        There are more than `most` instances.
    """
    declared = schedule.at(0).program
    # a scatter leaves out sums with 0, which are nothing only in a field
    loose = any(x.reassociates or x.primitive == "scatter" for x in schedule.trace)
    meant = declared_outputs(declared, sizes, most, regroup=loose)
    try:
        machine = Machine(lowered, sizes, most=most, regroup=loose)
    except Fault as fault:
        raise _invalid(schedule, sizes, str(fault)) from None
    for name, cells in meant.items():
        got = machine.outputs[name]
        extra = sorted(set(got) - set(cells))
        if extra:
            who = machine.writer[name, extra[0]]
            raise _invalid(schedule, sizes, f"{who} writes {name}{extra[0]}, which is not its own")
        for cell, (value, who) in sorted(cells.items()):
            if cell not in got:
                raise _invalid(schedule, sizes, f"{name}{cell} of {who} is never written")
            if got[cell] != value and not (loose and not _algebraic(declared)):
                raise _invalid(
                    schedule, sizes,
                    f"{name}{cell} is not what {who} computes in the order of the declaration; "
                    f"it was last written by {machine.writer[name, cell]}",
                )  # fmt: skip


def choices(program: Program) -> Iterator[Sizes]:
    """Assignments of the symbolic sizes, the most telling first; the empty one if there is none.

    Those come first with the most tiles that occur both whole and in part, for fewer instances
    than `FEW` if each size is an extent. Before them one for each condition of `specialize`.
    """
    names = program.sizes
    if not names:
        yield {}
        return
    yield from _special(program)
    tiles = sorted({x.cut[1] for x in loops(program.tree) if x.cut is not None})
    tiles += [w for w in sorted({x.width or 1 for x in loops(program.tree)}) if w not in tiles]
    values = sorted({2 * t + 1 for t in tiles} | {t + t // 2 + 1 for t in tiles} | {1, 3, 5})

    def score(v: tuple[int, ...]) -> tuple[int, int, int]:
        met = [sum(n > t and n % t > 0 for t in tiles) for n in v]
        return min(met), sum(met), -prod(v)

    while len(values) > 2 and len(values) ** len(names) > COMBINATIONS:
        values = values[1::2] if len(values) > 4 else values[1:]
    telling = [v for v in product(values, repeat=len(names)) if prod(v) <= FEW]
    telling.sort(key=score, reverse=True)
    rest = product((17, 9, 4, 1, 0), repeat=len(names))
    for v in dict.fromkeys([*telling[:12], *islice(rest, COMBINATIONS)]):
        sizes: dict[Axis | Var, int] = dict(zip(names, v, strict=True))
        if _allowed(program, sizes):
            yield sizes


def _special(program: Program) -> Iterator[Sizes]:
    """For each version of the nest sizes that it is for, near those that its condition names."""
    numbers = {abs(e.const) for conj in program.specializations for _, e in conj}
    steps = {a[2] for conj in program.specializations for _, e in conj for a in e.terms
             if isinstance(a, tuple)}  # fmt: skip
    near = [n + d for n in numbers for d in (0, 1, -1)]
    values = sorted({v for v in (*near, *(2 * t for t in steps), 1, 5, 9) if 0 < v <= FEW})[:32]
    for conj in program.specializations:
        tried = product(values, repeat=len(program.sizes))
        for v in islice(tried, COMBINATIONS):
            sizes: dict[Axis | Var, int] = dict(zip(program.sizes, v, strict=True))
            if holds(conj, sizes) and _allowed(program, sizes):
                yield sizes
                break


def _allowed(program: Program, sizes: Sizes) -> bool:
    if not holds(program.context, sizes):
        return False
    if any(holds(r.refused, sizes) for r in program.requirements):
        return False
    return all(e.evaluate(sizes) >= 0 for a in program.arrays for e in a.shape)


def _algebraic(declared: Program) -> bool:
    """Whether every reduction can be computed in a field, where grouping does not matter."""
    return all(
        regroupable(b, len(s.writes))
        for s in declared.statements
        if s.role == "update"
        for b in s.bodies
    )


def _invalid(schedule: Schedule, sizes: Sizes, what: str) -> InternalError:
    at = ", ".join(f"{v.name}={n}" for v, n in sizes.items())
    return internal(
        f"validation: {what}{f' at {at}' if at else ''}",
        state=f"{schedule.trace.to_python()}\n\n{schedule.loops()}",
    )


__all__ = ["MOST", "check", "choices", "require_valid"]
