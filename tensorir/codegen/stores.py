"""Writing an array: contiguous, masked, interleaved or transposed in registers, or scattered.

Vectors whose lanes lie apart wait until the unrolled group around them ends. If their
neighbours were written too, shuffles turn them into whole vectors: `s` vectors of stride `s`, or
as many rows as lanes, transposed. Every path takes the mask; in a partial tile the lanes alive
become rows, and the rows alive lanes.
"""

from __future__ import annotations

from typing import NamedTuple

from tensorir.codegen.address import Flat, Home, Spot, gep, pointer_of, register_of
from tensorir.codegen.alignment import WIDEST, of_vector, within
from tensorir.codegen.loads import pointers, reverse
from tensorir.codegen.shuffles import interleave, transpose
from tensorir.codegen.streaming import hint
from tensorir.codegen.types import BITS, suffix, vector
from tensorir.codegen.values import Emitter, Int, Val
from tensorir.ir.affine import Lin

LINE = 64


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
    if home.value == "half":
        return em.op(f"bitcast {vector('half', width)} {{0}} to {vector('i16', width)}", text)
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
    em.emit(f"store {home.memory} {raw}, ptr {at}, align {within(em, home, at, WIDEST)}")
    em.forget(home.key)
    if home.key is home.array:
        em.known[home.key] = {(at, None): (text, False)}


def _store_lanes(em: Emitter, home: Home, spot: Spot, text: str, mask: str | None) -> None:
    plain = spot.lanes is None
    if plain and em.pending is not None and _waits(em, spot):
        _wait(em, home, spot, text, mask)
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
        if mask in em.lanes_on:
            backwards = f"{em.lanes_on[mask]:0{em.width}b}"[::-1]
            em.lanes_on[str(turned)] = int(backwards, 2)
        first = gep(em, home.memory, at, 1 - em.width)
        _write(em, home, first, reverse(em, home.memory, raw), turned)
    else:
        _scatter(em, home, at, spot, raw, mask)


def _write(em: Emitter, home: Home, at: str, raw: str, mask: str | None) -> None:
    ty = f"<{em.width} x {home.memory}>"
    if mask is None:
        how = hint(em, home, at) or f"align {of_vector(em, home, at)}"
        em.emit(f"store {ty} {raw}, ptr {at}, {how}")
        return
    lanes = em.lanes_on.get(mask, 0)
    if lanes.bit_count() == 1 and home.memory.startswith("i"):
        # LLVM 22.1 writes the one lane of a constant mask in the type that `raw` was cut down from
        k = lanes.bit_length() - 1
        one = em.op(f"extractelement {ty} {{0}}, i64 {k}", raw)
        to = gep(em, home.memory, at, k)
        em.emit(f"store {home.memory} {one}, ptr {to}, align {home.align}")
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


class Tail(NamedTuple):
    """Why a row of a partial tile runs: conditions that its lanes share, and a mask of lanes.

    A condition is an integer of at least 0, kept as what is known when the code runs, plus a
    constant that unrolled axes decide.
    """

    shared: tuple[tuple[str, int], ...]
    lanes: str | None


class Part(NamedTuple):
    """A vector that waits: its text, the mask under which it is written, and what that is of."""

    text: str
    mask: str | None
    tail: Tail | None


def _waits(em: Emitter, spot: Spot) -> bool:
    if em.width & (em.width - 1):
        return False
    return isinstance(spot.lane, str) or spot.lane > 1


def may_turn(em: Emitter, flat: Flat, spot: Spot) -> bool:
    """Whether a store of lanes may become one of a group that is written through shuffles."""
    if em.pending is None or flat.home.register is not None or flat.mays or spot.lanes is not None:
        return False
    ones = (a for a, v, stride in flat.terms if v == 1 and stride == 1)
    unrolled = (not isinstance(a, tuple) and isinstance(em.env.get(a), int) for a in ones)
    return _waits(em, spot) and any(unrolled)


def tail_of(em: Emitter, conds: tuple[Lin, ...]) -> Tail:
    """The conditions of a row: what all lanes share, and the mask for the rest."""
    shared = []
    lanes = tuple(e for e in conds if em.along_lanes(e) != 0)
    for e in conds:
        if e in lanes:
            continue
        const, rest = e.const, {}
        for a, v in e.terms.items():
            x = None if isinstance(a, tuple) else em.env.get(a)
            if isinstance(x, int):
                const += v * x
            else:
                rest[a] = v
        value = em.lin(Lin(rest))
        if isinstance(value, str):
            shared.append((value, const))
    return Tail(tuple(shared), em.conditions(lanes)[1])


def _wait(em: Emitter, home: Home, spot: Spot, text: str, mask: str | None) -> None:
    assert em.pending is not None
    base = gep(em, home.memory, spot.pointer, spot.offset)
    key = (base, spot.lane, home.key, em.width)
    mine = em.pending.get(key)
    if mine is None:
        # of two addresses that are not compared, only a statement that never writes a cell twice
        # says that they do not meet
        if em.writer is None or em.pending_writers.get(home.key) is not em.writer:
            flush_key(em, home.key)
        mine = em.pending.setdefault(key, {})
    elif any(_meet(c - spot.const, spot.lane, em.width) for c in mine):
        flush_key(em, home.key)
        mine = em.pending.setdefault(key, {})
    mine[spot.const] = Part(text, mask, em.tail)
    em.pending_writers[home.key] = em.writer
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
        raw = {c: x._replace(text=to_memory(em, home, x.text, em.width)) for c, x in parts.items()}
        em.forget(home.key)
        _write_group(em, home, base, stride, raw)
    em.width = width


def _write_group(em: Emitter, home: Home, base: str, stride: Int, parts: dict[int, Part]) -> None:
    w = em.width
    narrow = isinstance(stride, int) and stride < w
    # rows of squares that share a line are written one after the other, if registers hold them
    together = max(1, min(em.target.vector_registers, LINE * 8 // BITS[home.memory]) // w)
    squares: dict[int, list[Part | None]] = {}
    while parts:
        first = min(parts)
        group = [parts.get(first + k) for k in range(int(stride) if narrow else w)]
        here = [x for x in group if x is not None]
        square = not narrow or len(here) < len(group)
        if len(here) < 2:
            at = gep(em, home.memory, base, first)
            one = parts.pop(first)
            _scatter(em, home, at, Spot(base, 0, first, stride, None), one.text, one.mask)
            continue
        for k in range(len(group)):
            parts.pop(first + k, None)
        if square:
            squares[first] = group + [None] * (w - len(group))
            if len(squares) == together:
                _write_squares(em, home, base, stride, squares)
                squares = {}
        else:
            whole: list[str | None] = [None] * len(here)
            if any(x.mask is not None for x in here):
                whole = [*interleave(em, "i1", [x.mask or "splat (i1 true)" for x in here])]
            for k, row in enumerate(interleave(em, home.memory, [x.text for x in here])):
                _write(em, home, gep(em, home.memory, base, first + k * w), row, whole[k])
    _write_squares(em, home, base, stride, squares)


def _write_squares(
    em: Emitter, home: Home, base: str, stride: Int, squares: dict[int, list[Part | None]]
) -> None:
    """Squares by where they begin in a row: transposed, then written row by row."""
    turned = []
    for first, group in squares.items():
        rows = transpose(em, home.memory, ["poison" if x is None else x.text for x in group])
        present = [x is not None for x in group]
        turned.append((first, rows, _turned_masks(em, group), present))
    for k in range(em.width):
        at = gep(em, home.memory, base, em.mul(stride, k))
        for first, rows, masks, present in turned:
            to = gep(em, home.memory, at, first)
            _write_lanes(em, home, to, rows[k], masks[k], present)


def _write_lanes(
    em: Emitter, home: Home, at: str, row: str, mask: str | None, present: list[bool]
) -> None:
    """Those lanes of a vector that are present, where `mask` holds."""
    w = em.width
    if all(present):
        _write(em, home, at, row, mask)
        return
    known = "<" + ", ".join(f"i1 {str(x).lower()}" for x in present) + ">"
    if mask is not None or em.target.vector_bytes >= 64 or present != sorted(present, reverse=True):
        _write(em, home, at, row, em.both(mask, known, w))
        return
    # without mask registers a few whole stores are quicker
    start, left = 0, sum(present)
    while left:
        size = 1 << (left.bit_length() - 1)
        lanes = ", ".join(f"i32 {start + k}" for k in range(size))
        v = f"<{w} x {home.memory}>"
        form = f"shufflevector {v} {{0}}, {v} poison, <{size} x i32> <{lanes}>"
        piece = em.op(form, row)
        to = gep(em, home.memory, at, start)
        em.emit(f"store <{size} x {home.memory}> {piece}, ptr {to}, align {home.align}")
        start, left = start + size, left - size


def _turned_masks(em: Emitter, group: list[Part | None]) -> list[str | None]:
    """The masks of a square after its transpose, one for each row."""
    w = em.width
    here = [x for x in group if x is not None]
    if all(x.mask is None for x in here):
        return [None] * w
    found = _mask_of_columns(em, group)
    if found is None:
        columns = ["zeroinitializer" if x is None else x.mask or "splat (i1 true)" for x in group]
        return [*transpose(em, "i1", columns)]
    columns_alive, lanes = found
    if lanes is None:
        return [columns_alive] * w
    bits = (em.op(f"extractelement <{w} x i1> {{0}}, i64 {k}", lanes) for k in range(w))
    return [em.mask_of(bit, columns_alive) for bit in bits]


def _mask_of_columns(em: Emitter, group: list[Part | None]) -> tuple[str | None, str | None] | None:
    """Which columns of a square are alive, and which lanes of all; None if they are not alike.

    They are where each condition falls or grows by one step from a column to the next.
    """
    here = [(k, x.tail) for k, x in enumerate(group) if x is not None]
    (first, tail), (second, other) = here[0], here[1]
    if tail is None or other is None or len(tail.shared) != len(other.shared):
        return None
    alive: str | None = None
    for n, (name, const) in enumerate(tail.shared):
        step, rest = divmod(other.shared[n][1] - const, second - first)
        start = const - step * first
        for k, x in here:
            if rest or x is None or x.lanes != tail.lanes or len(x.shared) != len(tail.shared):
                return None
            if x.shared[n] != (name, start + step * k):
                return None
        value = em.add(name, start)
        if step == 0:
            test = em.op("icmp sge i64 {0}, 0", value)
            alive = em.both(alive, em.spread(test, "i1"), em.width)
        else:
            alive = em.both(alive, em.reached(value, step), em.width)
    if any(x is None or x.lanes != tail.lanes for _, x in here):
        return None
    return alive, tail.lanes


__all__ = ["Tail", "flush", "flush_key", "may_turn", "store", "tail_of", "to_memory"]
