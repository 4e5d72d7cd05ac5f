"""Declared instructions as calls: operands as vectors, from registers or as they lie in memory.

A tile whose instances are all there is one call. Where a condition is left on it, where an operand
does not lie as declared, or where a later step changed the nest, its loops are written as loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

from tensorir.codegen import matrix
from tensorir.codegen.address import Flat, flat_of, locate, pointer_of
from tensorir.codegen.loads import Instance, flush_of, load
from tensorir.codegen.stores import flush, store
from tensorir.codegen.types import BITS, VALUE, vector
from tensorir.codegen.values import Emitter, Lane
from tensorir.ir.expr import Axis
from tensorir.ir.intrinsic import Intrinsic, Operand
from tensorir.ir.matrix import MatrixIntrinsic
from tensorir.ir.stmt import For, Node, Run
from tensorir.poly.instruction import matches, operand_of
from tensorir.support.errors import UnsupportedError

__all__ = ["call"]


@dataclass(frozen=True, slots=True)
class _Tile:
    """A nest that stands for one call: its loops by the declaration's axes, its instance."""

    intrinsic: Intrinsic
    axes: dict[Axis, Axis]
    run: Run


def call(em: Emitter, loop: For) -> bool:
    """Write the tile under `loop` as one call; False, with a note, where it must stay loops.

    The lane axis is in `em.env` already, as the vector loop left it.
    """
    intrinsic = loop.intrinsic
    assert intrinsic is not None
    if isinstance(intrinsic, MatrixIntrinsic):
        return matrix.call(em, loop, intrinsic)
    _require(em, intrinsic)
    if em.guarded is not None:
        flush(em)
        em.unguard()
    chain, run = _nest(loop)
    why = "its loops are not as they were" if run is None else ""
    if run is not None and (run.conds or run.read_conds):
        why = "partial tiles"
    if run is not None and not why:
        inner = [x.axis for x in chain if x.axis not in em.env]
        for axis in inner:
            em.env[axis] = 0
        try:
            text = _written(em, intrinsic, chain, run)
        finally:
            for axis in inner:
                del em.env[axis]
        if text:
            return True
        why = "an operand does not lie as it is declared"
    em.module.note(f"{loop.axis.name}: loops in place of {intrinsic.name}: {why}")
    return False


def _require(em: Emitter, intrinsic: Intrinsic) -> None:
    sets = intrinsic.features
    if any(all(map(em.target.has, x)) for x in sets):
        return
    wanted = " or ".join(" and ".join(x) for x in sets)
    raise UnsupportedError(
        f"tensorize: {intrinsic.name} needs {wanted}, which target {em.target} does not have",
        details="  try  a schedule for this target, without that instruction",
    )


def _nest(loop: For) -> tuple[list[For], Run | None]:
    """The loops down to the one instance, all of constant extent; None where they are otherwise."""
    chain: list[For] = []
    n: Node = loop
    while isinstance(n, For) and n.extent is not None and n.kind in ("unroll", "vectorize"):
        chain.append(n)
        n = n.body
    return chain, n if isinstance(n, Run) else None


def _written(em: Emitter, intrinsic: Intrinsic, chain: list[For], run: Run) -> bool:
    """Write the call where some way to match the operands fits how they lie."""
    inst = Instance(run, run.statement, ())
    for slots in matches(intrinsic, run.statement):
        for axes in _orders(intrinsic, chain):
            tile = _Tile(intrinsic, axes, run)
            if all(_fits(em, tile, operand_of(intrinsic, p), s) for p, s in slots.items()):
                _emit(em, tile, inst, slots)
                return True
    return False


def _orders(intrinsic: Intrinsic, chain: list[For]) -> list[dict[Axis, Axis]]:
    """The loops of a nest as the axes of the tile: lanes outside, each of its extent."""
    long = [a for a in intrinsic.axes if intrinsic.extent(a) > 1]  # a loop of one point is gone
    if len(chain) != len(long):
        return []
    return [
        dict(zip(axes, (x.axis for x in chain), strict=True))
        for axes in permutations(long)
        if all(intrinsic.extent(a) == x.extent for a, x in zip(axes, chain, strict=True))
    ]


def _fits(em: Emitter, tile: _Tile, operand: Operand | None, slot: int) -> bool:
    """Whether a read moves along the tile's axes as the operand is declared."""
    access = tile.run.statement.reads[slot]
    flat = flat_of(em, access, tile.run)
    if flat.mays:
        return False
    of = operand.map if operand is not None else _result_map(tile.intrinsic)
    if flat.home.register is not None:
        used = flat.axes
        vector_of = operand is None or len(operand.over) == len(tile.intrinsic.lanes)
        return vector_of and all((axis in used) == bool(of[a]) for a, axis in tile.axes.items())
    at = locate(em, flat)
    for a, axis in tile.axes.items():
        if isinstance(em.env[axis], Lane):
            if at.lanes is not None or at.lane != of[a]:
                return False
            continue
        for point in range(1, tile.intrinsic.extent(a)):
            em.env[axis] = point
            there = locate(em, flat)
            em.env[axis] = 0
            same = there.pointer == at.pointer and there.offset == at.offset
            if not same or there.const - at.const != point * of[a]:
                return False
    return operand is None or _aligned(flat, operand.align)


def _result_map(intrinsic: Intrinsic) -> dict[Axis, int]:
    step, out = 1, dict.fromkeys(intrinsic.axes, 0)
    for a in reversed(intrinsic.lanes):
        out[a] = step
        step *= intrinsic.extent(a)
    return out


def _aligned(flat: Flat, align: int) -> bool:
    """Whether every address of a tile is a multiple of `align` bytes."""
    size = BITS[flat.home.memory] // 8
    if align <= size:
        return True
    steps = [v * s if isinstance(s, int) else 0 for _, v, s in flat.terms]
    known = flat.home.storage is not None and not flat.params and all(steps)
    return known and all(x * size % align == 0 for x in (*steps, flat.const))


def _emit(em: Emitter, tile: _Tile, inst: Instance, slots: dict[int, int]) -> None:
    intrinsic, stmt = tile.intrinsic, tile.run.statement
    by_name = {operand_of(intrinsic, p): s for p, s in slots.items()}
    lanes = em.width if em.lane is not None else 0
    write = flat_of(em, stmt.writes[0], tile.run)
    result = vector(VALUE[stmt.writes[0].array.dtype.name], lanes)
    types, values = [], []
    for operand in intrinsic.operands:
        slot = by_name[operand]
        home = flat_of(em, stmt.reads[slot], tile.run).home
        if operand.tensor is intrinsic.tensor or home.register is not None:
            text, by_lane = load(em, inst, slot)
            ty = vector(home.value, lanes)
            if lanes and not by_lane:
                text = em.spread(text, home.value)
            if home.array.dtype.name == "bfloat16":
                real = vector("bfloat", lanes)
                ty, text = real, em.op(f"bitcast {ty} {{0}} to {real}", text)
        else:
            ty, text = _operand(em, tile, operand, slot)
        types.append(ty)
        values.append(f"{ty} {text}")
    em.module.declare(intrinsic.llvm, result, ", ".join(types))
    made = em.now(f"call {result} @{intrinsic.llvm}({', '.join(values)})")
    if not intrinsic.accumulates and stmt.role == "update":
        old, by_lane = load(em, inst, 0)
        if lanes and not by_lane:
            old = em.spread(old, write.home.value)
        add = "fadd" if stmt.writes[0].array.dtype.is_float else "add"
        made = em.op(f"{add} {result} {{0}}, {{1}}", old, made)
    store(em, write, locate(em, write), (made, bool(lanes)), None)


def _operand(em: Emitter, tile: _Tile, operand: Operand, slot: int) -> tuple[str, str]:
    """Type and value of an operand: its distinct elements in one load, repeated where it asks."""
    flat = flat_of(em, tile.run.statement.reads[slot], tile.run)
    home = flat.home
    held = 1
    for a in operand.over:
        held *= tile.intrinsic.extent(a) if operand.map[a] else 1
    real = "bfloat" if home.array.dtype.name == "bfloat16" else home.value
    ty = vector(real, operand.elements if operand.over else 0)
    if em.pending:
        flush_of(em, home.key)
    spot = locate(em, flat)
    at = pointer_of(em, home.memory, spot)
    # of a vector that is known as a value, LLVM's selection never ends repeating one group; a load
    # that must stay a load keeps a cell of the stack from becoming one
    storage = home.storage
    fixed = spot.pointer == home.pointer and spot.offset == 0
    stays = storage is not None and storage.scope == "stack" and fixed
    known = em.known.setdefault(home.key, {})
    key = (at, "tile", ty)
    found = known.get(key)
    if found is None:
        found = known[key] = _loaded(em, at, ty, real, operand, held, home.align, stays), True
    return ty, found[0]


def _loaded(
    em: Emitter, at: str, ty: str, real: str, operand: Operand, held: int, least: int, stays: bool
) -> str:
    align = max(least, operand.align)
    bits = held * BITS["i16" if real == "bfloat" else real]
    if held == operand.elements:
        return em.now(f"load {ty}, ptr {at}, align {align}")
    outer = operand.over[: len(operand.over) - _trailing(operand)]
    if all(not operand.map[a] for a in outer) and bits in (8, 16, 32, 64):
        # one group in every lane: a scalar of its size is what the processor repeats
        times = operand.elements // held
        kind = "load volatile" if stays else "load"
        one = em.now(f"{kind} i{bits}, ptr {at}, align {align}")
        many = em.spread(one, f"i{bits}", times)
        return em.op(f"bitcast <{times} x i{bits}> {{0}} to {ty}", many)
    few = em.now(
        f"{'load volatile' if stays else 'load'} <{held} x {real}>, ptr {at}, align {align}"
    )
    lanes = ", ".join(f"i32 {x}" for x in _places(operand))
    form = f"shufflevector <{held} x {real}> {{0}}, <{held} x {real}> poison"
    return em.op(f"{form}, <{operand.elements} x i32> <{lanes}>", few)


def _trailing(operand: Operand) -> int:
    """How many of the innermost axes the operand moves along."""
    count = 0
    for a in reversed(operand.over):
        if not operand.map[a]:
            break
        count += 1
    return count


def _places(operand: Operand) -> list[int]:
    """Which of the distinct elements each element of the vector is."""
    out = [0]
    for a in operand.over:
        high = a.upper
        assert high is not None
        out = [x + operand.map[a] * k for x in out for k in range(high.const)]
    return out
