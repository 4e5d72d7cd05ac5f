"""Pass 7: which buffers become registers, which live on the stack, which in the arena."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Array
from tensorir.ir.stmt import Block, For, If, Node, Run, Storage
from tensorir.lower.boxes import below
from tensorir.lower.cells import Cells

STACK_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class _Use:
    """How one access reaches a buffer: lanes along it (0: none), and why it needs memory."""

    width: int
    why: str


def promote(node: Node, cells: Cells, most: int) -> tuple[dict[Array, Storage], list[str]]:
    """Scope of every storage, and notes on `local` buffers that did not become registers.

    Parameters
    ----------
    most
        Registers that one buffer may take before it goes to memory.
    """
    uses: dict[Array, list[_Use]] = {a: [] for a in cells.storages}
    for array, use in _uses(node, cells, {}, None, None):
        uses[array].append(use)
    out: dict[Array, Storage] = {}
    notes: list[str] = []
    for array, storage in cells.storages.items():
        if storage.scope == "shared":
            out[array] = storage
            continue
        why = _reason(storage, uses[array], most)
        if storage.scope == "local" and not why:
            out[array] = _registers(storage, uses[array][0].width)
            continue
        size = _bytes(storage)
        scope = "stack" if size is not None and size <= STACK_BYTES else "arena"
        out[array] = replace(storage, scope=scope)  # type: ignore[arg-type]
        if storage.scope == "local":
            where = "on the stack" if scope == "stack" else "in the arena"
            notes.append(f"{array.name} is {where}, not in registers: {why}")
            out[array] = replace(out[array], notes=(notes[-1],))
    return out, notes


def _registers(storage: Storage, width: int) -> Storage:
    """A storage in registers of `width` lanes; its rows hold whole ones."""
    shape = storage.shape
    if width and shape:
        shape = (*shape[:-1], Lin({}, -(-shape[-1].const // width) * width))
    return replace(storage, scope="register", register=width, shape=shape)


def _reason(storage: Storage, uses: list[_Use], most: int) -> str:
    """Why a buffer cannot be registers; empty if it can."""
    for use in uses:
        if use.why:
            return use.why
    if not uses:
        return "nothing uses it"
    size = _count(storage)
    if size is None:
        return "its size is not constant"
    widths = sorted({u.width for u in uses})
    if len(widths) > 1:
        return f"it is accessed in pieces of {' and '.join(str(max(w, 1)) for w in widths)}"
    registers = -(-size // max(widths[0], 1))
    if registers > most:
        return f"it would take {registers} registers, more than {most}"
    return ""


def _uses(
    n: Node, cells: Cells, fixed: Mapping[Axis, None], lane: For | None, threads: For | None
) -> Iterator[tuple[Array, _Use]]:
    if isinstance(n, For):
        if n.kind == "parallel" and threads is None:
            threads = n  # its body is a function of its own; parallel loops inside are serial there
        if n.kind in ("unroll", "vectorize"):
            fixed = {**fixed, n.axis: None}
        if n.kind == "vectorize":
            lane = n
    if isinstance(n, Run):
        for access in (*n.statement.writes, *n.statement.reads):
            if access.array in cells.storages:
                use = _use(access.array, cells.place(access, n), fixed, lane)
                if n.statement.atomic and access is n.statement.writes[0]:
                    use = _Use(0, "updates of it are atomic")
                own = dict.fromkeys(cells.storages[access.array].outside)
                if threads is not None and threads.axis not in own:
                    use = _Use(0, f"threads of {threads.axis.name} share it")
                yield access.array, use
        return
    assert isinstance(n, (Block, If, For))
    for i in below(n):
        yield from _uses(i, cells, fixed, lane, threads)


def _use(
    array: Array,
    place: tuple[Lin, ...] | None,
    fixed: Mapping[Axis, None],
    lane: For | None,
) -> _Use:
    if place is None:
        return _Use(0, "an index of it is loaded")
    width = 0
    for d, e in enumerate(place):
        for a in e.terms:
            if isinstance(a, tuple):
                return _Use(0, f"its index {e} holds a division")
            if isinstance(a, Var) or a not in fixed:
                return _Use(0, f"its index {e} changes with {a.name}, which is not unrolled")
        along = e.coef(lane.axis) if lane is not None else 0
        if not along:
            continue
        last = d == len(place) - 1
        if not last or along != 1 or width:
            return _Use(0, f"lanes of {array.name} are not neighbours")
        assert lane is not None and lane.width is not None
        width = lane.width
        if any(v % width for v in (*e.without(lane.axis).terms.values(), e.const)):
            return _Use(0, f"its index {e} does not begin at a whole vector")
    return _Use(width, "")


def _count(storage: Storage) -> int | None:
    size = 1
    for e in storage.shape:
        if not e.is_const:
            return None
        size *= e.const
    return size


def _bytes(storage: Storage) -> int | None:
    size = _count(storage)
    return None if size is None else size * storage.array.dtype.bytes
