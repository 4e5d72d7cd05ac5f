"""Reading an array: which lanes, from where, and what must not be touched.

A load that happens only where conditions hold is masked, or reads an address that is always
safe. Two rules are for reads that always happen and need `Run.corner`, which says that the
conditions hold where unrolled and vector axes are 0: a condition on axes that the address does
not use cannot matter to it, and a row outside reads row 0 instead, by a choice of offsets that
stands outside the loops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensorir.codegen.address import (
    Flat,
    Spot,
    flat_of,
    gep,
    locate,
    pointer_of,
    register_of,
)
from tensorir.codegen.alignment import WIDEST, of_vector, within
from tensorir.codegen.types import suffix, vector
from tensorir.codegen.values import Emitter, Int, Lane, Val, iota
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Statement
from tensorir.ir.stmt import Run

if TYPE_CHECKING:
    from tensorir.codegen.address import Home


@dataclass(slots=True, eq=False)
class Instance:
    """A statement being written, for one value of the unrolled axes.

    `needs` are conditions that its loads need. `guard` and `mask` say where the arm of an
    `if_then_else` that is being written is taken: in all lanes alike, and lane by lane.
    """

    run: Run
    stmt: Statement
    needs: tuple[Lin, ...]
    alive: str | None = None
    guard: str | None = None
    mask: str | None = None
    values: dict[int, Val] = field(default_factory=dict)
    iters: dict[Axis | Var, Lin] | None = None

    def env(self) -> dict[Axis | Var, Lin]:
        """The iterators as affine expressions of loop axes."""
        if self.iters is None:
            self.iters = dict(zip(self.stmt.iters, self.run.args, strict=True))
        return self.iters


def load(em: Emitter, inst: Instance, slot: int) -> Val:
    """The value of read number `slot`."""
    access = inst.stmt.reads[slot]
    flat = flat_of(em, access, inst.run)
    home = flat.home
    if home.register is not None:
        return _load_register(em, flat)
    if em.pending:
        flush_of(em, home.key)
    spot = locate(em, flat)
    guard, mask = inst.guard, inst.mask
    if flat.mays:
        from tensorir.codegen.indirect import move

        spot, bad_guard, bad_mask = move(em, inst, access, flat, spot)
        guard = em.both(guard, bad_guard)
        mask = em.both(mask, bad_mask, em.width)
    needs = inst.needs
    uniform = em.lane is None or (spot.lane == 0 and spot.lanes is None)
    if needs and not flat.inside:
        # a read under a condition of its own need not happen at the corner
        corner = inst.run.corner and access.guard == ((),)
        if corner:
            needs = _that_matter(em, needs, flat)
        if needs:
            if uniform and corner:
                spot = _row_zero(em, needs, flat, spot)
            else:
                shared, lanes = em.conditions(needs)
                guard = em.both(guard, shared)
                mask = em.both(mask, lanes, em.width)
    if uniform:
        if mask is not None and em.lane is not None:
            guard = em.both(guard, em.any_lane(mask))
        return _load_one(em, home, spot, guard)
    whole = mask is None and (spot.lane, spot.lanes) == (1, None)
    if em.device is not None and whole and guard is not None and em.width * home.align <= WIDEST:
        return _load_whole(em, home, spot, guard)
    return _load_lanes(em, home, spot, em.mask_of(guard, mask))


def flush_of(em: Emitter, key: object) -> None:
    """Write stores that wait, if they are to the memory that is about to be touched."""
    from tensorir.codegen.stores import flush

    assert em.pending is not None
    if any(k[2] is key for k in em.pending):
        flush(em)


def _that_matter(em: Emitter, needs: tuple[Lin, ...], flat: Flat) -> tuple[Lin, ...]:
    """Conditions on unrolled axes or lanes that the address uses."""
    env, used = em.env, flat.axes
    return tuple(
        c for c in needs if any(a in used and not isinstance(env.get(a), str) for a in c.atoms())
    )


def _row_zero(em: Emitter, needs: tuple[Lin, ...], flat: Flat, spot: Spot) -> Spot:
    """The address, or where the conditions fail that of row 0, which is always safe."""
    shared: str | None = None
    for c in needs:
        # lane 0 is the most permissive: the conditions hold at the corner
        shared = em.both(shared, em.holds(c))
    if shared is None:
        return spot
    env = em.env
    rows = {a: env[a] for c in needs for a in c.atoms() if isinstance(env.get(a), int)}
    for a in rows:
        env[a] = 0
    safe = locate(em, flat)
    env.update(rows)
    here, there = em.add(spot.offset, spot.const), em.add(safe.offset, safe.const)
    if here == there:
        return spot
    if shared == "false":
        return safe
    chosen = em.op("select i1 {0}, i64 {1}, i64 {2}", shared, here, there)
    return Spot(spot.pointer, chosen, 0, spot.lane, spot.lanes)


# -- registers


def _load_register(em: Emitter, flat: Flat) -> Val:
    name, single, _ = register_of(em, flat)
    home = flat.home
    width = home.register or 0
    found = em.known.setdefault(name, {}).get("value")
    if found is None:
        ty = f"<{width} x {home.value}>" if width else home.value
        found = (em.now(f"load {ty}, ptr {name}, align 64"), bool(width))
        em.known[name]["value"] = found
    if single is None:
        return found
    ty = f"<{width} x {home.value}>"
    return em.op(f"extractelement {ty} {{0}}, i64 {single}", found[0]), False


# -- memory


def from_memory(em: Emitter, home: Home, text: str, width: int) -> str:
    """A value as it is computed with, from what was loaded."""
    if home.memory == home.value:
        return text
    if home.value == "half":
        return em.op(f"bitcast {vector('i16', width)} {{0}} to {vector('half', width)}", text)
    ty = f"<{width} x i8>" if width else "i8"
    return em.op(f"icmp ne {ty} {{0}}, {'zeroinitializer' if width else '0'}", text)


def _load_one(em: Emitter, home: Home, spot: Spot, guard: str | None) -> Val:
    at = pointer_of(em, home.memory, spot)
    key = (at, guard)
    known = em.known.setdefault(home.key, {})
    found = known.get(key)
    if found is None:
        if guard is not None:
            at = em.op("select i1 {0}, ptr {1}, ptr {2}", guard, at, em.dummy(), hint="p")
        align = within(em, home, at, WIDEST) if guard is None else home.align
        raw = em.now(f"load {home.memory}, ptr {at}, align {align}")
        found = known[key] = (from_memory(em, home, raw, 0), False)
    return found


def _load_whole(em: Emitter, home: Home, spot: Spot, guard: str) -> Val:
    """A vector of neighbours, all of it or none: on a GPU a mask would take it apart."""
    at = pointer_of(em, home.memory, spot)
    key = (at, guard, em.width)
    known = em.known.setdefault(home.key, {})
    found = known.get(key)
    if found is None:
        align = of_vector(em, home, at)
        at = em.op("select i1 {0}, ptr {1}, ptr {2}", guard, at, em.dummy(), hint="p")
        raw = em.now(f"load <{em.width} x {home.memory}>, ptr {at}, align {align}")
        found = known[key] = (from_memory(em, home, raw, em.width), True)
    return found


def _load_lanes(em: Emitter, home: Home, spot: Spot, mask: str | None) -> Val:
    w = em.width
    at = pointer_of(em, home.memory, spot)
    key = (at, spot.lane, spot.lanes, mask, w)
    known = em.known.setdefault(home.key, {})
    found = known.get(key)
    if found is None:
        if spot.lanes is None and spot.lane == 1:
            raw = contiguous(em, home, at, mask)
        elif spot.lanes is None and spot.lane == -1:
            first = gep(em, home.memory, at, 1 - w)
            raw = reverse(em, home.memory, contiguous(em, home, first, _backwards(em, mask)))
        elif _is_short(spot, w):
            raw = _interleaved(em, home, at, spot, mask)
        else:
            raw = _gather(em, home, at, spot, mask)
        found = known[key] = (from_memory(em, home, raw, w), True)
    return found


def _is_short(spot: Spot, width: int) -> bool:
    return spot.lanes is None and isinstance(spot.lane, int) and 2 <= spot.lane <= 4 < width


def contiguous(em: Emitter, home: Home, at: str, mask: str | None) -> str:
    """A vector of neighbours in memory."""
    ty = f"<{em.width} x {home.memory}>"
    if mask is None:
        return em.now(f"load {ty}, ptr {at}, align {of_vector(em, home, at)}")
    # with the alignment of a whole vector, LLVM would read all of it on a GPU, beyond the end too
    name = f"llvm.masked.load.{suffix(home.memory, em.width)}.p0"
    em.module.declare(name, ty, f"ptr, <{em.width} x i1>, {ty}")
    return em.now(
        f"call {ty} @{name}(ptr align {home.align} {at}, <{em.width} x i1> {mask}, "
        f"{ty} zeroinitializer)"
    )


def reverse(em: Emitter, ty: str, x: str) -> str:
    """The lanes of `x` from last to first."""
    w = em.width
    order = iota("i32", w, w - 1, -1)
    return em.op(f"shufflevector <{w} x {ty}> {{0}}, <{w} x {ty}> poison, <{w} x i32> {order}", x)


def _backwards(em: Emitter, mask: str | None) -> str | None:
    return None if mask is None else reverse(em, "i1", mask)


def _interleaved(em: Emitter, home: Home, at: str, spot: Spot, mask: str | None) -> str:
    """Every second, third or fourth element, from whole vectors that end with the last one.

    Under a mask only the elements of its lanes are touched.
    """
    w, step = em.width, spot.lane
    assert isinstance(step, int)
    ty = f"<{w} x {home.memory}>"
    last = (w - 1) * step + 1 - w
    starts = [*range(0, last, w), last]
    parts = []
    for start in starts:
        own = None if mask is None else _mask_of_part(em, mask, start, step)
        parts.append(contiguous(em, home, gep(em, home.memory, at, start), own))
    result, have = "poison", set[int]()
    for start, part in zip(starts, parts, strict=True):
        order = []
        for k in range(w):
            inside = 0 <= k * step - start < w and k not in have
            order.append(w + k * step - start if inside else k if k in have else -1)
        have |= {k for k in range(w) if 0 <= k * step - start < w}
        lanes = ", ".join("i32 poison" if x < 0 else f"i32 {x}" for x in order)
        form = f"shufflevector {ty} {{0}}, {ty} {{1}}, <{w} x i32> <{lanes}>"
        result = em.op(form, result, part)
    return result


def _mask_of_part(em: Emitter, mask: str, start: int, step: int) -> str:
    """Which of the elements from `start` on are those of a lane in `mask`, `step` apart."""
    w = em.width
    order = [(start + k) // step if (start + k) % step == 0 else w for k in range(w)]
    lanes = ", ".join(f"i32 {x}" for x in order)
    form = f"shufflevector <{w} x i1> {{0}}, <{w} x i1> zeroinitializer, <{w} x i32> <{lanes}>"
    return em.op(form, mask)


def offsets(em: Emitter, spot: Spot) -> str:
    """How far each lane lies from lane 0, in elements."""
    ty = f"<{em.width} x i64>"
    if spot.lanes is None:
        return em.ramp(0, spot.lane)
    if spot.lane == 0:
        return spot.lanes
    return em.op(f"add {ty} {{0}}, {{1}}", spot.lanes, em.ramp(0, spot.lane))


def pointers(em: Emitter, home: Home, at: str, spot: Spot) -> str:
    """The address of each lane."""
    form = f"getelementptr {home.memory}, ptr {{0}}, <{em.width} x i64> {{1}}"
    return em.op(form, at, offsets(em, spot))


def _gather(em: Emitter, home: Home, at: str, spot: Spot, mask: str | None) -> str:
    w, ty = em.width, f"<{em.width} x {home.memory}>"
    stride = "computed" if spot.lanes is not None else _said(spot.lane)
    em.module.note(f"gather from {home.array.name}, stride {stride}")
    name = f"llvm.masked.gather.{suffix(home.memory, w)}.v{w}p0"
    em.module.declare(name, ty, f"<{w} x ptr>, <{w} x i1>, {ty}")
    return em.now(
        f"call {ty} @{name}(<{w} x ptr> align {home.align} {pointers(em, home, at, spot)}, "
        f"<{w} x i1> {mask or 'splat (i1 true)'}, {ty} zeroinitializer)"
    )


def _said(stride: Int) -> str:
    return str(stride) if isinstance(stride, int) else "symbolic"


def lanes_alive(em: Emitter, inst: Instance) -> str | None:
    """The lanes in which the code being written counts, all conditions together."""
    if em.lane is None:
        return em.both(inst.guard, None)
    return em.mask_of(inst.guard, em.both(inst.mask, inst.alive, em.width))


__all__ = [
    "Instance", "Lane", "contiguous", "flush_of", "from_memory", "lanes_alive", "load", "offsets",
    "pointers", "reverse",
]  # fmt: skip
