"""Writing an array: contiguous, masked, interleaved or transposed in registers, or scattered.

Vectors whose lanes lie apart wait until the unrolled group around them ends. If their
neighbours were written too, shuffles turn them into whole vectors: `s` vectors of stride `s`, or
as many rows as lanes, transposed. Every path takes the mask.
"""

from __future__ import annotations

from tensorir.codegen.address import Flat, Home, Spot, gep, pointer_of, register_of
from tensorir.codegen.loads import contiguous, from_memory, pointers, reverse
from tensorir.codegen.types import suffix
from tensorir.codegen.values import Emitter, Int, Val, iota


def store(em: Emitter, flat: Flat, spot: Spot | None, value: Val, mask: str | None) -> None:
    """Write a value, one for each lane where there are lanes, where `mask` holds.

    `spot` is None for a register. Without lanes there is no mask: the caller branches.
    """
    home = flat.home
    if home.register is not None:
        _store_register(em, flat, value, mask)
        return
    assert spot is not None
    if em.lane is None or (spot.lane == 0 and spot.lanes is None):
        _store_one(em, home, spot, value[0])
        return
    text = value[0] if value[1] else em.spread(value[0], home.value)
    _store_lanes(em, home, spot, text, mask)


def _store_register(em: Emitter, flat: Flat, value: Val, mask: str | None) -> None:
    name, single, _ = register_of(em, flat)
    home, width = flat.home, flat.home.register or 0
    ty = f"<{width} x {home.value}>" if width else home.value
    text, is_vector = value
    if width and single is None and not is_vector:
        text = em.spread(text, home.value)
    known = em.known.setdefault(name, {})
    if (mask is not None and width) or single is not None:
        old = known.get("value") or (em.now(f"load {ty}, ptr {name}, align 64"), bool(width))
        if single is not None:
            form = f"insertelement {ty} {{0}}, {home.value} {{1}}, i64 {single}"
            text = em.op(form, old[0], text)
        else:
            assert mask is not None
            text = em.op(f"select <{width} x i1> {{0}}, {ty} {{1}}, {ty} {{2}}", mask, text, old[0])
    em.emit(f"store {ty} {text}, ptr {name}, align 64")
    known["value"] = (text, bool(width))


def to_memory(em: Emitter, home: Home, text: str, width: int) -> str:
    """A value as it lies in memory."""
    if home.memory == home.value:
        return text
    if text in ("true", "false"):
        return "1" if text == "true" else "0"
    if width:
        return em.op(f"zext <{width} x i1> {{0}} to <{width} x i8>", text)
    return em.op("zext i1 {0} to i8", text)


def _store_one(em: Emitter, home: Home, spot: Spot, text: str) -> None:
    if em.pending:
        flush_key(em, home.key)
    raw = to_memory(em, home, text, 0)
    at = pointer_of(em, home.memory, spot)
    em.emit(f"store {home.memory} {raw}, ptr {at}, align {home.align}")
    em.forget(home.key)
    if home.key is home.array:
        em.known[home.key] = {(at, None): (text, False)}


def _store_lanes(em: Emitter, home: Home, spot: Spot, text: str, mask: str | None) -> None:
    plain = spot.lanes is None
    if plain and mask is None and em.pending is not None and _waits(em, spot):
        _wait(em, home, spot, text)
        return
    if em.pending:
        flush_key(em, home.key)
    raw = to_memory(em, home, text, em.width)
    at = pointer_of(em, home.memory, spot)
    em.forget(home.key)
    if plain and spot.lane == 1:
        _write(em, home, at, raw, mask)
        if mask is None and home.key is home.array:
            em.known[home.key] = {(at, 1, None, None, em.width): (text, True)}
    elif plain and spot.lane == -1:
        turned = None if mask is None else reverse(em, "i1", mask)
        first = gep(em, home.memory, at, 1 - em.width)
        _write(em, home, first, reverse(em, home.memory, raw), turned)
    else:
        _scatter(em, home, at, spot, raw, mask)


def _write(em: Emitter, home: Home, at: str, raw: str, mask: str | None) -> None:
    ty = f"<{em.width} x {home.memory}>"
    if mask is None:
        em.emit(f"store {ty} {raw}, ptr {at}, align {home.align}")
        return
    name = f"llvm.masked.store.{suffix(home.memory, em.width)}.p0"
    em.module.declare(name, "void", f"{ty}, ptr, <{em.width} x i1>")
    em.emit(f"call void @{name}({ty} {raw}, ptr align {home.align} {at}, <{em.width} x i1> {mask})")


def _scatter(em: Emitter, home: Home, at: str, spot: Spot, raw: str, mask: str | None) -> None:
    w, ty = em.width, f"<{em.width} x {home.memory}>"
    said = spot.lane if isinstance(spot.lane, int) and spot.lanes is None else "not constant"
    em.module.note(f"scatter to {home.array.name}, stride {said}")
    if mask is not None or spot.lanes is not None:
        name = f"llvm.masked.scatter.{suffix(home.memory, w)}.v{w}p0"
        em.module.declare(name, "void", f"{ty}, <{w} x ptr>, <{w} x i1>")
        em.emit(
            f"call void @{name}({ty} {raw}, <{w} x ptr> align {home.align} "
            f"{pointers(em, home, at, spot)}, <{w} x i1> {mask or 'splat (i1 true)'})"
        )
        return
    for k in range(w):
        one = em.op(f"extractelement {ty} {{0}}, i64 {k}", raw)
        to = gep(em, home.memory, at, em.mul(spot.lane, k))
        em.emit(f"store {home.memory} {one}, ptr {to}, align {home.align}")


# -- stores that wait for their neighbours


def _waits(em: Emitter, spot: Spot) -> bool:
    if em.width & (em.width - 1):
        return False
    return isinstance(spot.lane, str) or spot.lane > 1


def _wait(em: Emitter, home: Home, spot: Spot, text: str) -> None:
    assert em.pending is not None
    base = gep(em, home.memory, spot.pointer, spot.offset)
    key = (base, spot.lane, home.key, em.width)
    mine = em.pending.get(key)
    if mine is None or any(_meet(c - spot.const, spot.lane, em.width) for c in mine):
        flush_key(em, home.key)
        mine = em.pending.setdefault(key, {})
    mine[spot.const] = text
    em.pending_homes[home.key] = home
    em.forget(home.key)


def _meet(apart: int, stride: Int, width: int) -> bool:
    """Whether two vectors of one stride, `apart` elements from each other, share an element."""
    if isinstance(stride, str):
        return apart == 0
    return apart % stride == 0 and abs(apart) < stride * width


def flush_key(em: Emitter, key: object) -> None:
    """Write what waits for one memory."""
    if em.pending and any(k[2] is key for k in em.pending):
        flush(em)


def flush(em: Emitter) -> None:
    """Write everything that waits, in the order in which it came."""
    if not em.pending:
        return
    groups, em.pending = em.pending, {}
    width = em.width
    for (base, stride, key, em.width), parts in groups.items():
        home = em.pending_homes[key]
        raw = {c: to_memory(em, home, x, em.width) for c, x in parts.items()}
        em.forget(home.key)
        _write_group(em, home, base, stride, raw)
    em.width = width


def _write_group(em: Emitter, home: Home, base: str, stride: Int, parts: dict[int, str]) -> None:
    w = em.width
    square = isinstance(stride, str) or stride >= w
    need = w if square else int(stride)
    while parts:
        first = min(parts)
        group = [parts.get(first + k) for k in range(need)]
        if any(x is None for x in group):
            spot = Spot(base, 0, first, stride, None)
            at = gep(em, home.memory, base, first)
            _scatter(em, home, at, spot, parts.pop(first), None)
            continue
        for k in range(need):
            del parts[first + k]
        vectors = [x for x in group if x is not None]
        if square:
            for k, row in enumerate(transpose(em, home.memory, vectors)):
                at = gep(em, home.memory, gep(em, home.memory, base, em.mul(stride, k)), first)
                _write(em, home, at, row, None)
        else:
            for k, row in enumerate(interleave(em, home.memory, vectors)):
                _write(em, home, gep(em, home.memory, base, first + k * w), row, None)


def _shuffle(em: Emitter, ty: str, a: str, b: str, order: list[int]) -> str:
    w = em.width
    lanes = ", ".join("i32 poison" if x < 0 else f"i32 {x}" for x in order)
    v = f"<{w} x {ty}>"
    return em.op(f"shufflevector {v} {{0}}, {v} {{1}}, <{w} x i32> <{lanes}>", a, b)


def transpose(em: Emitter, ty: str, rows: list[str]) -> list[str]:
    """A square of as many vectors as lanes, rows for columns, in log2 steps."""
    w = em.width
    half = w // 2
    while half:
        out = list(rows)
        for i in range(w):
            if i & half:
                continue
            a, b = rows[i], rows[i + half]
            low = [k if not k & half else w + k - half for k in range(w)]
            high = [k + half if not k & half else w + k for k in range(w)]
            out[i], out[i + half] = _shuffle(em, ty, a, b, low), _shuffle(em, ty, a, b, high)
        rows = out
        half //= 2
    return rows


def interleave(em: Emitter, ty: str, parts: list[str]) -> list[str]:
    """`s` vectors as one sequence that takes an element of each in turn, cut into vectors."""
    w, s = em.width, len(parts)
    out = []
    for o in range(s):
        result: str | None = None
        have: set[int] = set()
        for i in range(s):
            lanes = {k: (o * w + k) // s for k in range(w) if (o * w + k) % s == i}
            if not lanes:
                continue
            if result is None:
                order = [lanes.get(k, -1) for k in range(w)]
                result = _shuffle(em, ty, parts[i], "poison", order)
            else:
                order = [k if k in have else w + lanes[k] if k in lanes else -1 for k in range(w)]
                result = _shuffle(em, ty, result, parts[i], order)
            have |= set(lanes)
        assert result is not None
        out.append(result)
    return out


__all__ = [
    "contiguous", "flush", "flush_key", "from_memory", "interleave", "iota", "store", "to_memory",
    "transpose",
]  # fmt: skip
