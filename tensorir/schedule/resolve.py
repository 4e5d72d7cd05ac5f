"""From what a user names to what a schedule holds: axes, stages, arrays, new names.

An axis is named `"i"`, `"C.i"`, `"C.init.i"`, or given as the axis object. A bare name means the
loop around an update (or a plain computation) where several loops have it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array
from tensorir.poly import tree
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import ArgumentTypeError, ScheduleError, TensorIRError
from tensorir.support.names import check_name, fresh, hint

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

_MAIN = ("update", "compute")


def fail(
    headline: str,
    *,
    why: str = "",
    tries: Iterable[tuple[str, str]] = (),
    cls: type[TensorIRError] = ScheduleError,
) -> NoReturn:
    """Raise `cls` with the user's call site, the reason, and what to try (accepted before)."""
    raise Message(headline, caller(), why=why, tries=tuple(tries)).error(cls)


# -- axes


def axis(s: Schedule, ref: object, *, primitive: str) -> Loop:
    """The loop that `ref` names.

    Raises
    ------
    ScheduleError
        No loop, or several, have that name; tells what was meant and which step removed it.
    """
    if isinstance(ref, Axis):
        found = meant(s.program, ref)
        if found is not None:
            return found
        declared = [x for x in tree.loops(s.program.tree) if x.axis.name == ref.name]
        if declared:
            fail(
                f"{primitive}: this axis {ref.name!r} is not one of this schedule's",
                why=f"another axis of that name is; say {ref.name!r} for it.",
            )
        _unknown_axis(s, ref.name, primitive)
    if not isinstance(ref, str):
        fail(
            f"{primitive}: an axis is named by a string or an axis object, not {ref!r:.60}",
            cls=ArgumentTypeError,
        )
    found_all = candidates(s.program, ref)
    if not found_all:
        _unknown_axis(s, ref, primitive)
    if len(found_all) > 1:
        names = [reference(s.program, x.axis) for x in found_all]
        fail(
            f"{primitive}: {ref!r} names {len(found_all)} loops: {_and(names)}",
            why="say which of them.",
        )
    return found_all[0]


def meant(program: Program, a: Axis) -> Loop | None:
    """The loop over an axis; that over a declared axis where no step has changed it."""
    found = tree.find(program.tree, a)
    if found is not None:
        return found
    for p in program.placements.values():
        for it in p.stmt.iters:
            root = p.roots.get(it)
            if it is a and root is not None:
                found = tree.find(program.tree, root)
                if found is not None:
                    return found
    return None


def candidates(program: Program, ref: str) -> list[Loop]:
    """The loops that a name may mean, the preferred ones where some are preferred."""
    every = list(tree.loops(program.tree))
    exact = [x for x in every if x.axis.name == ref]
    if len(exact) == 1:
        return exact
    if exact:
        return _preferred(program, exact) or exact
    prefix, dot, name = ref.rpartition(".")
    while dot:
        hits = [x for x in every if x.axis.name == name and _belongs(program, x, prefix)]
        if len(hits) > 1:
            hits = _preferred(program, hits) or hits
        if hits:
            return hits
        prefix, dot, rest = prefix.rpartition(".")
        name = f"{rest}.{name}"
    return []


def _belongs(program: Program, x: Loop, owner: str) -> bool:
    return any(n == owner or program.stmt(n).stage == owner for n in tree.stmts(x))


def _preferred(program: Program, among: list[Loop]) -> list[Loop]:
    """Loops around an update or a plain computation."""
    return [x for x in among if any(program.stmt(n).role in _MAIN for n in tree.stmts(x))]


def reference(program: Program, a: Axis) -> str:
    """The shortest name by which `axis` finds this axis; its bare name if it is gone."""
    x = meant(program, a)
    if x is None:
        return a.name
    a = x.axis
    names = tree.stmts(x)
    owners = [a.name, *(f"{program.stmt(n).stage}.{a.name}" for n in names)]
    owners += [f"{n}.{a.name}" for n in names]
    for ref in owners:
        found = candidates(program, ref)
        if len(found) == 1 and found[0].axis is a:
            return ref
    return a.name


def loop(s: Schedule, a: Axis) -> Loop:
    """The loop over an axis that is known to be there."""
    found = tree.find(s.program.tree, a)
    assert found is not None, a.name
    return found


def axis_names(program: Program) -> list[str]:
    """The names of all loops, outer before inner; each once."""
    return list(dict.fromkeys(x.axis.name for x in tree.loops(program.tree)))


def _unknown_axis(s: Schedule, name: str, primitive: str) -> NoReturn:
    gone = removed_by(s, name)
    if gone is not None:
        step, became = gone
        into = f" and made {_and([repr(n) for n in became])}" if became else ""
        fail(f"{primitive}: no axis {name!r}: step {step.number}, {step.text}, removed it{into}")
    names = axis_names(s.program)
    fail(
        f"{primitive}: no axis {name!r}{hint(name, names)}",
        why=_which("axes", "axis", names),
    )


def removed_by(s: Schedule, name: str) -> tuple[Any, list[str]] | None:
    """The latest step after which no loop had that name any more, and the names it made."""
    now: Schedule | None = s
    while now is not None and now.parent is not None:
        before = axis_names(now.parent.program)
        if name in before:
            after = axis_names(now.program)
            return now.step, [n for n in after if n not in before]
        now = now.parent
    return None


# -- stages and arrays


def stage(s: Schedule, ref: object, *, primitive: str) -> str:
    """The name of the stage that `ref` (a tensor or a name) means."""
    name = _name_of(ref, primitive, "stage")
    names = stages(s.program)
    if name not in names:
        if any(a.name == name and a.role == "input" for a in s.program.arrays):
            fail(f"{primitive}: {name!r} is an input, nothing computes it")
        _unknown_stage(s, name, names, primitive)
    return name


def _unknown_stage(s: Schedule, name: str, names: list[str], primitive: str) -> NoReturn:
    now: Schedule | None = s
    while now is not None and now.parent is not None:
        if name in stages(now.parent.program) and now.step is not None:
            gone = f"step {now.step.number}, {now.step.text}, removed it"
            fail(f"{primitive}: no stage {name!r}: {gone}")
        now = now.parent
    fail(f"{primitive}: no stage {name!r}{hint(name, names)}", why=_which("stages", "stage", names))


def stages(program: Program) -> list[str]:
    """The names of all stages, in textual order."""
    names = tree.stmts(program.tree)
    return list(dict.fromkeys(program.stmt(n).stage for n in names))


def statements(program: Program, stage: str) -> list[str]:
    """The statements of a stage, in textual order."""
    return [n for n in tree.stmts(program.tree) if program.stmt(n).stage == stage]


def array(s: Schedule, ref: object, *, primitive: str) -> Array:
    """The array that `ref` (a tensor or a name) means."""
    name = _name_of(ref, primitive, "tensor")
    for a in s.program.arrays:
        if a.name == name:
            return a
    names = [a.name for a in s.program.arrays]
    fail(
        f"{primitive}: no tensor {name!r}{hint(name, names)}",
        why=_which("tensors", "tensor", names),
    )


def _name_of(ref: object, primitive: str, what: str) -> str:
    if isinstance(ref, str):
        return ref
    name = getattr(ref, "name", None)
    if isinstance(name, str) and not isinstance(ref, Axis):
        return name
    fail(
        f"{primitive}: a {what} is named by a string or the tensor, not {ref!r:.60}",
        cls=ArgumentTypeError,
    )


# -- new names and numbers


def taken(program: Program) -> Iterator[str]:
    """Every name in use: axes, statements, stages, arrays, sizes."""
    for x in tree.loops(program.tree):
        yield x.axis.name
    for n, p in program.placements.items():
        yield n
        yield p.stmt.stage
    for a in program.arrays:
        yield a.name
    for v in program.sizes:
        yield v.name


def new_name(
    s: Schedule,
    name: object,
    *,
    primitive: str,
    what: str = "axis name",
    gone: Iterable[str] = (),
) -> str:
    """A name that the user gives to something new: an identifier that is not in use.

    Names in `gone` are those of loops that the step takes away.
    """
    try:
        checked = check_name(name, what)
    except TensorIRError as error:
        fail(f"{primitive}: {error}", cls=type(error))
    if checked not in gone and checked in set(taken(s.program)):
        now = next((x for x in tree.loops(s.program.tree) if x.axis.name == checked), None)
        kind = "a loop has" if now is not None else "something else has"
        step = f", made by step {now.step}" if now is not None and now.step else ""
        fail(f"{primitive}: the name {checked!r} is in use: {kind} it already{step}")
    return checked


def free_name(s: Schedule, name: str, also: Iterable[str] = ()) -> str:
    """`name`, or with a number that makes it free."""
    return fresh(name, {*taken(s.program), *also})


def free_names(s: Schedule, *names: str) -> tuple[str, ...]:
    """The names, or with numbers that make them free, and different from each other."""
    out: list[str] = []
    for n in names:
        out.append(free_name(s, n, out))
    return tuple(out)


def new_names(
    s: Schedule,
    names: object,
    default: tuple[str, ...],
    *,
    primitive: str,
    gone: Iterable[str] = (),
) -> tuple[str, ...]:
    """The names given as `into=`, as many as `default`; those of `default` where None is given."""
    if names is None:
        return free_names(s, *default)
    given = [names] if isinstance(names, str) else names
    if not isinstance(given, tuple | list):
        fail(f"{primitive}: into takes names, not {names!r:.60}", cls=ArgumentTypeError)
    if len(given) != len(default):
        fail(f"{primitive}: into takes {len(default)} names, not {len(given)}")
    checked = tuple(new_name(s, n, primitive=primitive, gone=gone) for n in given)
    for k, n in enumerate(checked):
        if n in checked[:k]:
            fail(f"{primitive}: the new name {n!r} is given twice")
    return checked


MOST = 2**31 - 1


def positive(value: object, what: str, *, primitive: str) -> int:
    """A positive integer of at most 2**31 - 1, of any integer type but bool."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        fail(
            f"{primitive}: {what} must be a positive integer, not {value!r:.60}",
            cls=ArgumentTypeError,
        )
    if number < 1:
        fail(f"{primitive}: {what} must be positive, not {number}")
    if number > MOST:
        fail(f"{primitive}: {what} is {number}; the largest is {MOST}")
    return number


def _which(many: str, one: str, names: list[str]) -> str:
    if not names:
        return f"this schedule has no {many}."
    return f"the {many} are {_and(names)}." if len(names) > 1 else f"the only {one} is {names[0]}."


def _and(names: list[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
