"""Indices that are only known when the code runs: checked, or clamped, before they are used."""

from __future__ import annotations

from tensorir.codegen.address import Flat, Spot
from tensorir.codegen.convert import convert
from tensorir.codegen.loads import Instance, lanes_alive
from tensorir.codegen.values import Emitter, Int
from tensorir.ir.dtype import INT64
from tensorir.ir.statement import Access, May


def move(
    em: Emitter, inst: Instance, access: Access, flat: Flat, spot: Spot
) -> tuple[Spot, str | None, str | None]:
    """The address with computed indices added, and where they are inside: in all lanes alike,
    and lane by lane. None stands for everywhere."""
    guard: str | None = None
    mask: str | None = None
    for d, may in flat.mays:
        text, by_lane, ok = _index(em, inst, access, d, may)
        if ok is not None and by_lane:
            mask = em.both(mask, ok, em.width)
        elif ok is not None:
            guard = em.both(guard, ok)
        stride = flat.home.strides[d]
        if not by_lane:
            more = em.mul(text if text[0] == "%" else int(text), stride)
            spot = spot._replace(offset=em.add(spot.offset, more))
            continue
        ty = f"<{em.width} x i64>"
        far = text
        if stride != 1:
            far = em.op(f"mul {ty} {{0}}, {{1}}", text, em.spread(stride, "i64"))
        lanes = far if spot.lanes is None else em.op(f"add {ty} {{0}}, {{1}}", spot.lanes, far)
        spot = spot._replace(lanes=lanes)
    if isinstance(spot.offset, int):
        spot = spot._replace(offset=0, const=spot.const + spot.offset)
    return spot, guard, mask


def _index(
    em: Emitter, inst: Instance, access: Access, d: int, may: May
) -> tuple[str, bool, str | None]:
    """The value, whether it differs by lane, and where it may be used."""
    from tensorir.codegen.expressions import value

    raw, by_lane = value(em, inst, may.value)
    w = em.width if by_lane else 0
    text = convert(em, raw, may.value.dtype, INT64, w)
    known = may in em.reached_mays or (em.module.index_check == "off" and not may.skip)
    if known or _proved(access, d, may):
        return text, by_lane, None
    # not that of the storage, which may be rounded up: cells past the end hold nothing
    extent = em.lin(access.array.shape[d])
    ty = f"<{w} x i64>" if w else "i64"
    limit = em.spread(extent, "i64") if w else extent
    if may.skip:
        return text, by_lane, em.op(f"icmp ult {ty} {{0}}, {{1}}", text, limit)
    if em.module.index_check == "clamp":
        return _clamped(em, text, extent, w), by_lane, _some(em, extent, w)
    ok = em.op(f"icmp ult {ty} {{0}}, {{1}}", text, limit)
    _raise_unless(em, inst, access, d, text, ok, extent, w)
    return text, by_lane, ok


def _proved(access: Access, d: int, may: May) -> bool:
    """Whether the range of the value lies in the dimension."""
    if may.lower is None or may.upper is None or not may.lower.is_const:
        return False
    room = access.array.shape[d] - 1 - may.upper
    return may.lower.const >= 0 and room.is_const and room.const >= 0


def _some(em: Emitter, extent: Int, w: int) -> str | None:
    """Where there is a cell to clamp to."""
    if isinstance(extent, int) and extent > 0:
        return None
    some = em.op("icmp sgt i64 {0}, 0", extent)
    return em.spread(some, "i1") if w else some


def _clamped(em: Emitter, text: str, extent: Int, w: int) -> str:
    ty, name = (f"<{w} x i64>", f"v{w}i64") if w else ("i64", "i64")
    last = em.sub(extent, 1)
    for which, bound in (("smin", last), ("smax", 0)):
        em.module.declare(f"llvm.{which}.{name}", ty, f"{ty}, {ty}")
        limit = em.spread(bound, "i64") if w else bound
        text = em.op(f"call {ty} @llvm.{which}.{name}({ty} {{0}}, {ty} {{1}})", text, limit)
    return text


def _raise_unless(
    em: Emitter,
    inst: Instance,
    access: Access,
    d: int,
    text: str,
    ok: str,
    extent: Int,
    w: int,
) -> None:
    name = access.array.name
    where = f"dimension {d} of {name}" if len(access.index) > 1 else name
    status = em.module.check(
        f"{inst.stmt.stage} indexes {where} with {{0}}, which is outside 0 to {{1}} (exclusive)"
    )
    fail_where(em, inst, status, ok, w, text, str(extent))


def fail_where(
    em: Emitter, inst: Instance, status: int, ok: str, w: int, text: str, *more: str
) -> None:
    """Fail with `text` in the first lane that is alive and not `ok`, and go on."""
    from tensorir.codegen.stores import flush

    bad = em.invert(ok, w)
    alive = lanes_alive(em, inst)
    if w:
        bad = em.both(bad, alive, w) or bad
        bits = em.op(f"bitcast <{w} x i1> {{0}} to i{w}", bad)
        found = em.op(f"icmp ne i{w} {{0}}, 0", bits)
    else:
        shared = inst.guard if em.lane is not None else None
        found = em.both(bad, shared) or bad
        if em.lane is not None and alive is not None and alive != "true":
            found = em.both(found, em.any_lane(alive)) or found
    flush(em)
    em.serial += 1
    k = em.serial
    em.emit(f"br i1 {found}, label %bad{k}, label %good{k}, !prof !92")
    kept, known = dict(em.block), {a: dict(v) for a, v in em.known.items()}
    em.start(f"bad{k}")
    if w:
        em.module.declare(f"llvm.cttz.i{w}", f"i{w}", f"i{w}, i1")
        lane = em.now(f"call i{w} @llvm.cttz.i{w}(i{w} {bits}, i1 false)")
        text = em.now(f"extractelement <{w} x i64> {text}, i{w} {lane}")
    em.fail(status, text, *more)
    em.emit(f"br label %good{k}")
    em.start(f"good{k}")
    # the way here through the failure wrote nothing
    em.block.update(kept)
    em.known.update(known)
