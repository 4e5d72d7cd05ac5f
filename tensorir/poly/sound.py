"""Whether a declaration means something: reads inside their arrays, nothing reduced over nothing.

What is wrong for every size is an error at once, with the first instance; what is wrong for some
sizes becomes a requirement that each call checks.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from tensorir.ir.affine import Conj, Lin, fact_text
from tensorir.ir.statement import Access, Statement
from tensorir.poly import bounds, isl
from tensorir.poly.access import covered
from tensorir.poly.isl import Set, dt
from tensorir.poly.model import Program, Requirement
from tensorir.poly.relation import context_set, domain_set
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import ArgumentError, BoundsError


def require_sound(program: Program, started: Container[str] = ()) -> Program:
    """The program with what its calls must refuse.

    Parameters
    ----------
    started
        Stages whose reduction was given the value it starts from: these may reduce nothing.

    Raises
    ------
    BoundsError
        A read lies outside its array, or finds a cell that nothing computes.
    ArgumentError
        A maximum, minimum, argmax or argmin has nothing to choose from.
    """
    found: list[Requirement] = []
    for stmt in program.statements:
        for access in dict.fromkeys(stmt.reads):
            found += _inside(program, stmt, access)
        reducer = stmt.combiner if stmt.role == "update" else None
        if reducer is not None and reducer.empty == "error" and stmt.stage not in started:
            found += _something(program, stmt)
    for array in program.arrays:
        if array.role == "input":
            continue
        hole = covered(program, array, None)
        if hole is not None:
            cell = ", ".join(map(str, hole.cell))
            raise Message(
                f"{hole.reader.stmt} reads {array}[{cell}], which nothing computes: the "
                f"domain of {array} leaves that cell out ({_at(hole.reader.at, hole.sizes)})",
                caller(),
            ).error(
                BoundsError,
                witness={
                    "sizes": hole.sizes,
                    "instance": hole.reader.at,
                    "index": tuple(hole.cell),
                },
            )
    return program.change(requirements=tuple(found))


def _inside(program: Program, stmt: Statement, access: Access) -> Iterator[Requirement]:
    """What the sizes must keep to for one read to stay inside its array."""
    if any(w.array is access.array for w in stmt.writes):
        return  # its own accumulator
    first = bounds.out_of_bounds(stmt, access, program.sizes, program.context)
    if first is None:
        return
    k = first["dim"]
    text = ", ".join(i.text() if isinstance(i, Lin) else "?" for i in access.index)
    index, extent = access.index[k], access.array.shape[k]
    assert isinstance(index, Lin)  # the others are not judged
    message = (
        f"{stmt.stage} reads {access.array}[{text}] outside {access.array}: index {k}, "
        f"{index.text()}, is {first['index'][k]} at {_at(first['instance'], first['sizes'])}; "
        f"allowed is 0..{(extent - 1).text()}"
    )
    outside = bounds.outside(stmt, access, program.sizes)
    outside = outside.intersect_params(context_set(program))
    if _always(program, stmt, outside):
        raise Message(
            message,
            caller(),
            why="a read must lie inside its array wherever it runs; tir.if_then_else(condition, "
            "read, other) runs it only where the condition holds.",
        ).error(
            BoundsError,
            witness={
                "sizes": first["sizes"],
                "instance": first["instance"],
                "index": tuple(first["index"]),
            },
        )
    yield from _requirements(program, outside.params(), message)


def _something(program: Program, stmt: Statement) -> Iterator[Requirement]:
    """A reduction without an identity that users would expect must have something to reduce."""
    n = len(stmt.writes[0].index)
    init = next((x for x in program.statements if x.stage == stmt.stage and x.role == "init"), None)
    if init is None or stmt.combiner is None:
        return
    some = domain_set(stmt, program.sizes)
    some = some.project_out(dt.set, n, some.dim(dt.set) - n)
    none = domain_set(init, program.sizes).subtract(some).intersect_params(context_set(program))
    if none.is_empty():
        return
    axes = ", ".join(a.name for a in stmt.iters if a.reduce)
    point = isl.first_point(none, program.sizes)
    assert point is not None
    where = _at(dict(zip((a.name for a in init.iters), point[1], strict=True)), point[0])
    message = (
        f"{stmt.stage}: {stmt.combiner} over {axes} has nothing to reduce"
        f"{' at ' + where if where else ''}; give the reduction init= for that"
    )
    if _always(program, init, none):
        raise ArgumentError(message)
    yield from _requirements(program, none.params(), message)


def _always(program: Program, stmt: Statement, wrong: Set) -> bool:
    """Whether it goes wrong for every size for which the statement runs at all."""
    runs = domain_set(stmt, program.sizes).intersect_params(context_set(program)).params()
    return bool(runs.is_subset(wrong.params()))


def _requirements(program: Program, sizes: Set, message: str) -> Iterator[Requirement]:
    refused = isl.from_set(isl.Set.from_params(sizes), (), program.sizes)
    for conj in refused:
        yield Requirement(conj, f"{message} (and wherever {_facts(conj)})")


def _facts(conj: Conj) -> str:
    return " and ".join(fact_text(f) for f in conj)


def _at(values: dict[str, int], sizes: dict[str, int]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in {**sizes, **values}.items())
