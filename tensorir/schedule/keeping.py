"""Storage that outlives an iteration: windows that slide over a stage, folded into few cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array, Statement
from tensorir.poly import access, regions, sharing, sliding
from tensorir.poly.isl import Map
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop
from tensorir.schedule import placed, resolve, rewrite, storing
from tensorir.schedule.placed import Part
from tensorir.support.errors import UnsupportedError
from tensorir.support.names import hint

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

STORAGE = ("iteration", "sliding", "folded")
WARM = ".warm"
_DOUBLINGS = 3


@dataclass(frozen=True, slots=True)
class Held:
    """What each iteration computes, by statement: all; what each adds; what the first has more."""

    new: dict[str, Map]
    steady: dict[str, Map]
    warm: dict[str, Map]


def kept_axes(
    s: Schedule, storage: object, store_at: object, outer: tuple[Axis, ...]
) -> tuple[Axis, ...]:
    """The loops inside which the buffer exists."""
    if not isinstance(storage, str) or storage not in STORAGE:
        near = hint(storage, STORAGE) if isinstance(storage, str) else ""
        resolve.fail(
            "compute_at: storage is one of 'iteration', 'sliding', 'folded', not "
            f"{storage!r:.60}{near}"
        )
    if storage == "iteration":
        if store_at is not None:
            resolve.fail(
                "compute_at: store_at is where storage that outlives an iteration is kept",
                why="give storage='sliding' or 'folded' with it.",
            )
        return outer
    if store_at is None:
        return outer[:-1]
    at = resolve.axis(s, store_at, primitive="compute_at").axis
    for k, a in enumerate(outer[:-1]):
        if a is at:
            return outer[: k + 1]
    names = [repr(resolve.reference(s.program, a)) for a in outer[:-1]]
    resolve.fail(
        f"compute_at: {resolve.reference(s.program, at)!r} is not a loop around "
        f"{resolve.reference(s.program, outer[-1])!r}",
        why=f"storage is kept inside one of {', '.join(names)}." if names
        else "there is none; storage kept for the whole computation needs no store_at.",
    )  # fmt: skip


def held(need: dict[str, Map], kept: int) -> Held:
    """What each iteration computes where storage is kept inside the first `kept` loops."""
    new = {n: sliding.fresh_part(m, kept) for n, m in need.items()}
    steady: dict[str, Map] = {}
    warm: dict[str, Map] = {}
    for n, m in new.items():
        steady[n], first = sliding.halves(need[n], m, kept)
        if first is not None:
            warm[n] = first
    return Held(new, steady, warm)


def parts(
    s: Schedule,
    name: str,
    stmts: Sequence[Statement],
    held: Held | None,
    need: dict[str, Map],
    arrays: Sequence[Array],
    consumers: Sequence[str],
    outer: tuple[Axis, ...],
    fresh: Callable[[Sequence[Axis]], dict[Axis, Axis]],
) -> list[Part]:
    """The nests of a stage: one; with sliding storage the first iteration's before it."""
    if held is None:
        return [placed.part(s, stmts, need, arrays, consumers, outer, fresh)]
    out = []
    if held.warm:
        first = [x for x in stmts if x.name in held.warm]
        named = lambda its: placed.named_axes(s, f"{name}{WARM}", its)  # noqa: E731
        out.append(
            placed.part(
                s, first, held.warm, arrays, consumers, outer, named, suffix=WARM, sliding=True
            )
        )
    rest = placed.part(
        s, stmts, held.steady, arrays, consumers, outer, fresh, sliding=True
    )  # fmt: skip
    return [*out, rest]


def notes(name: str, loop: Loop, held: Held, need: dict[str, Map]) -> tuple[str, ...]:
    if all(held.new[n].is_equal(m) for n, m in need.items()):
        return (f"iterations of {loop.axis.name!r} share nothing of {name}: each computes its own",)
    return (f"each iteration of {loop.axis.name!r} computes what of {name} none before it needed",)


def require_not_kept(s: Schedule, name: str, what: str) -> None:
    """Refuse to place again what sliding storage spread over iterations."""
    now: Schedule | None = s
    while now is not None:
        step = now.step
        asked = (*step.args[:1], step.kwargs.get("stage")) if step is not None else ()
        if step is not None and step.primitive == "compute_at" and name in asked:
            if step.kwargs.get("storage", "iteration") != "iteration":
                resolve.fail(
                    f"{what}: {name} is kept over iterations since step {step.number}, {step.text}",
                    why="what an iteration computes of it depends on the ones before; undo() to "
                    "before that step.",
                )
            return
        now = now.parent


# -- folding
def folded(
    s: Schedule,
    program: Program,
    name: str,
    arrays: Sequence[Array],
    outer: tuple[Axis, ...],
    moved: Sequence[str],
    consumers: Sequence[str],
) -> tuple[Program, list[str]]:
    """Arrays whose dimension that slides keeps a power of two of cells, found by index modulo it.

    Proved: no cell is written over before what it holds was read for the last time.
    """
    told: list[str] = []
    for a in arrays:
        if not rewrite.readers(program, a):
            continue
        found = _folded(program, a, outer, moved, consumers)
        if found is None:
            resolve.fail(
                f"compute_at: no dimension of {a.name} can be folded",
                why="a window of constant extent must slide along one of them; storage='sliding' "
                "keeps all of it.",
                cls=UnsupportedError,
            )
        program, d, cells = found
        told.append(f"{a.name} keeps {cells} along dimension {d}, index % {cells}")
    return program, told


def _folded(
    program: Program,
    array: Array,
    outer: tuple[Axis, ...],
    moved: Sequence[str],
    consumers: Sequence[str],
) -> tuple[Program, int, int] | None:
    at = outer[-1]
    users = [*moved, *consumers]
    touched = regions.union(
        access.footprint(program, array, at, users, "reads")[0],
        access.footprint(program, array, at, users, "writes")[0],
    )
    outside = rewrite.outside_of(program, array)
    whole = access.footprint(program, array, outside[-1] if outside else None, moved, "writes")[0]
    for d in range(len(array.shape)):
        window, all_of_it = (regions.hull_extent(m, d, program) for m in (touched, whole))
        if window is None or all_of_it == window:
            continue
        cells = 1 << max(window - 1, 0).bit_length()
        for _ in range(_DOUBLINGS):
            if all_of_it is not None and cells >= all_of_it:
                break
            new = _modulo(program, array, d, cells)
            if new is None:
                return None
            small = next(b for b in new.arrays if b.name == array.name)
            if sharing.lost(program, new, small, outside) is None:
                return new, d, cells
            cells *= 2
    return None


def _modulo(program: Program, array: Array, d: int, cells: int) -> Program | None:
    def fold(index: tuple[Lin, ...]) -> tuple[Lin, ...]:
        return (*index[:d], index[d] % cells, *index[d + 1 :])

    shape = (*array.shape[:d], Lin({}, cells), *array.shape[d + 1 :])
    return storing.moved(program, array, Array(array.name, array.dtype, shape, "temp"), fold)


__all__ = ["Held", "folded", "held", "kept_axes", "notes", "parts", "require_not_kept"]
