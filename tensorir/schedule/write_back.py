"""What `cache_write` keeps: which arrays, which cells, what enters from outside, and the copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorir.ir.expr import Ref
from tensorir.ir.reducer import Reducer
from tensorir.ir.statement import Array, Region, Statement
from tensorir.poly import access, regions, tree
from tensorir.poly.isl import Map
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop
from tensorir.schedule import copies, resolve, rewrite
from tensorir.schedule.copies import Window
from tensorir.support.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What is kept: arrays written together, by whom, and who else uses them there."""

    arrays: tuple[Array, ...]
    writers: list[str]
    users: list[str]
    stage: str
    reducer: Reducer | None


def under(program: Program, loop: Loop | None) -> list[str]:
    """The statements inside a loop, or all."""
    return tree.stmts(program.tree if loop is None else loop)


def where(s: Schedule, loop: Loop | None) -> str:
    """`inside 'i'`, for a message."""
    return f" inside {resolve.reference(s.program, loop.axis)!r}" if loop is not None else ""


def kept_of(s: Schedule, array: Array, loop: Loop | None) -> Kept:
    """What `cache_write` keeps: the arrays of the statement that writes `array` under the loop."""
    what = "cache_write"
    program = s.program
    if array.role == "input":
        resolve.fail(f"{what}: {array.name} is an input, nothing writes it")
    names = under(program, loop)
    stage = program.stmt(rewrite.writers(program, array)[0]).stage
    array = _accumulator(program, array, stage, names)
    writers = rewrite.writers(program, array, names)
    if not writers:
        there = rewrite.writers(program, array)
        resolve.fail(
            f"{what}: nothing{where(s, loop)} writes {array.name}",
            why=f"{' and '.join(there)} {'writes' if len(there) == 1 else 'write'} it, in other "
            "loops.",
        )
    arrays = tuple(w.array for w in program.stmt(writers[-1]).writes)
    for n in writers:
        stmt = program.stmt(n)
        if any(not w.exact for w in stmt.writes):
            resolve.fail(
                f"{what}: {n} writes {array.name} through an index that is not affine",
                why="which cells to write back is then known only when it runs.",
                cls=UnsupportedError,
            )
        if stmt.role == "copy" and stmt.combiner is None and array.role == "temp":
            resolve.fail(
                f"{what}: {array.name} is a copy of {stmt.reads[0].array.name}, made by {n}",
                why="a copy is kept where it was made.",
            )
    rewrite.require_unshared(s, writers, what)
    users = [n for n in names if any(rewrite.touches(program.stmt(n), a) for a in arrays)]
    reducers = [program.stmt(n).combiner for n in users]
    reducer = next((r for r in reducers if r is not None), None)
    return Kept(arrays, writers, users, stage, reducer)


def _accumulator(program: Program, array: Array, stage: str, under: list[str]) -> Array:
    """What accumulates for `array`: itself, or the wider accumulator that a finish casts."""
    names = [n for n in resolve.statements(program, stage) if n in under]
    direct = rewrite.writers(program, array, names)
    if any(program.stmt(n).role != "finish" for n in direct):
        return array
    updates = [n for n in names if program.stmt(n).role in ("update", "init")]
    if not updates:
        return array
    finish = [n for n in resolve.statements(program, stage) if program.stmt(n).role == "finish"]
    if not finish:
        return array
    wide = [
        r.array for r in program.stmt(finish[0]).reads if rewrite.writers(program, r.array, updates)
    ]
    return wide[0] if wide else array


def regions_of(s: Schedule, kept: Kept, loop: Loop | None) -> tuple[Map, Map | None]:
    """Cells written in one iteration, and those whose value enters from outside (or None)."""
    program, at = s.program, loop.axis if loop else None
    array = kept.arrays[0]
    written = access.footprint(program, array, at, kept.writers, "writes")[0]
    readers = rewrite.readers(program, array, kept.users)
    if not readers:
        return written, None
    read = access.footprint(program, array, at, readers, "reads")[0]
    if not regions.inside(read, written, program):
        other = next((n for n in readers if n not in kept.writers), readers[0])
        resolve.fail(
            f"cache_write: {other} reads cells of {array.name} that are not written"
            f"{where(s, loop)}",
            why="the buffer would not hold them; choose a loop further out.",
        )
    inner = any(program.stmt(n).role == "copy" for n in readers)
    if inner and access.covered(program, array, at, kept.users) is None:
        return written, None  # what an inner buffer loads was stored in this iteration
    first = kept.users.index(readers[0])
    plain = [n for n in kept.writers if n not in readers and kept.users.index(n) < first]
    if not plain:
        return written, read
    ready = access.footprint(program, array, at, plain, "writes")[0]
    if regions.inside(read, ready, program):
        return written, None
    return written, read.subtract(ready).coalesce()


def require_init(
    s: Schedule,
    kept: Kept,
    written: Map,
    entering: Map | None,
    init: str | None,
    loop: Loop | None,
) -> None:
    """Refuse an `init=` that has no meaning, or that the reducer does not allow."""
    name = kept.arrays[0].name
    ref = resolve.reference(s.program, loop.axis) if loop is not None else ""
    if init is not None and entering is None:
        resolve.fail(
            f"cache_write: init={init!r} means nothing here: no value of {name} comes from "
            f"outside{' of ' + repr(ref) if ref else ''}",
            why="its initial value and all updates are inside, and the buffer takes them over.",
        )
    if init != "identity":
        return
    reducer = kept.reducer
    if reducer is None:
        resolve.fail(f'cache_write: init="identity" needs a declared reduction; {name} is none')
    if reducer.identity is None or not reducer.associative:
        lack = "has no identity" if reducer.identity is None else "is not associative"
        resolve.fail(
            f'cache_write: init="identity" regroups {name}, but its reducer {reducer.name} {lack}',
            why='init="load" keeps the order.',
        )
    for other in kept.users:
        stmt = s.program.stmt(other)
        if stmt.role == "init" or (stmt.combiner is reducer and other in kept.writers):
            continue
        if stmt.role == "copy" and stmt.combiner is reducer:
            continue
        resolve.fail(
            f'cache_write: init="identity" would hide from {other} what {name} has so far',
            why=f'{other} uses all of it, inside the same loop. init="load" keeps it.',
        )
    if entering is not None and not regions.inside(written, entering, s.program):
        resolve.fail(
            f'cache_write: init="identity" after init_at is not supported for {name}',
            why='the first iteration starts it, later ones may load: init="load".',
            cls=UnsupportedError,
        )


def only_there(program: Program, kept: Kept, loop: Loop | None) -> bool:
    """Whether nothing outside the loop uses the arrays, so that they need no copy at all."""
    if any(a.role == "output" for a in kept.arrays):
        return False
    users = [n for n in program.placements if any(
        rewrite.touches(program.stmt(n), a) for a in kept.arrays
    )]  # fmt: skip
    return set(users) <= set(under(program, loop))


def caches_of(s: Schedule, arrays: tuple[Array, ...], asked: Array, made: str) -> tuple[Array, ...]:
    """A buffer for each array; those of a tuple after the first add a number."""
    if len(arrays) == 1:
        return (copies.buffer_like(arrays[0], made),)
    names: list[str] = []
    for k, a in enumerate(arrays):
        whole = asked not in arrays
        default = f"{made}{k}" if whole else made if a is asked else f"{made}_{a.name}"
        names.append(default if default == made else resolve.free_name(s, default, names))
    return tuple(copies.buffer_like(a, n) for a, n in zip(arrays, names, strict=True))


def around(
    kept: Kept,
    made: str,
    at: Window,
    stored: Region,
    loaded: Region | None,
    caches: tuple[Array, ...],
    *,
    identity: bool,
) -> tuple[list[Statement], Statement]:
    """What runs before the body and after it: loads or identities, and the write back."""
    n = len(caches)
    if identity:
        assert loaded is not None and kept.reducer is not None
        assert kept.reducer.identity is not None
        dtypes = tuple(a.dtype for a in caches)
        start = tuple(kept.reducer.identity(dtypes))
        empty = copies.statement(
            f"{made}.init", kept.stage, at, loaded, caches, (), role="init", bodies=start
        )
        whole = tuple(Ref(k, a.dtype) for k, a in enumerate(kept.arrays))
        part = tuple(Ref(n + k, a.dtype) for k, a in enumerate(caches))
        back = copies.statement(
            f"{made}.store", kept.stage, at, stored, kept.arrays, (*kept.arrays, *caches),
            combiner=kept.reducer, role="update", bodies=tuple(kept.reducer.combine(whole, part)),
        )  # fmt: skip
        return [empty], back
    reducer = kept.reducer if loaded is not None else None
    back = copies.statement(
        f"{made}.store", kept.stage, at, stored, kept.arrays, caches, combiner=reducer
    )
    if loaded is None:
        return [], back
    load = copies.statement(
        f"{made}.load", kept.stage, at, loaded, caches, kept.arrays, combiner=reducer
    )
    return [load], back
