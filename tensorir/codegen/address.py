"""Where an access lies: pointer, constant displacement, and how it moves from lane to lane.

An index is a sum over axes, times strides. One `getelementptr` for each axis that is a name,
outermost first, so that each stands in its own loop; then one for what depends on symbolic
strides and unrolled axes; constants are displacements. Nothing is `inbounds`: partial sums may
leave the object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import NamedTuple

from tensorir.codegen.types import BITS, MEMORY, VALUE
from tensorir.codegen.values import Emitter, Int, Lane
from tensorir.ir.affine import Atom, Lin, rejoin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array, May
from tensorir.ir.stmt import Run, Storage, Swizzle


@dataclass(slots=True, eq=False)
class Home:
    """Where an array lives in the function being written.

    `key` names the memory: arrays that may overlap share it. `register` is as in `Storage`.
    """

    array: Array
    pointer: str
    strides: tuple[Int, ...]
    key: object
    storage: Storage | None = None
    register: int | None = None
    memory: str = field(init=False)
    value: str = field(init=False)
    align: int = field(init=False)

    def __post_init__(self) -> None:
        self.memory, self.value = MEMORY[self.array.dtype.name], VALUE[self.array.dtype.name]
        self.align = max(1, BITS[self.memory] // 8)


def home(em: Emitter, array: Array, pointer: str, storage: Storage | None = None) -> Home:
    """`array` at `pointer`, its strides worked out."""
    shape = array.shape if storage is None else storage.shape
    extents = tuple(em.lin(e) for e in shape)
    strides: list[Int] = [1] * len(extents)
    for d in range(len(extents) - 2, -1, -1):
        strides[d] = em.mul(strides[d + 1], extents[d + 1])
    register = storage.register if storage is not None and storage.scope == "register" else None
    key = em.module.shared.get(array, array)
    return Home(array, pointer, tuple(strides), key, storage, register)


@dataclass(slots=True, eq=False)
class Flat:
    """The linear form of an access, and what of it is fixed while no name in `env` changes."""

    home: Home
    terms: list[tuple[Atom, int, Int]]
    const: int
    params: list[tuple[Int, int]]
    axes: frozenset[Axis | Var]
    inside: bool
    mays: tuple[tuple[int, May], ...]
    keep: tuple[Access, tuple[Lin, ...]]
    epoch: int = -1
    pointer: str = ""
    turned: Int = 0
    unit: int = 0
    varying: list[tuple[Atom, int, Int]] = field(default_factory=list)


class Spot(NamedTuple):
    """An address: `pointer`, plus `offset` elements that are a name or 0, plus `const`.

    From lane to lane it moves by `lane` elements; `lanes` is a vector of further offsets where
    that is no constant. Lane 0 lies at a multiple of `unit` elements, which may be 0.
    """

    pointer: str
    offset: Int
    const: int
    lane: Int
    lanes: str | None
    unit: int = 1


def flat_of(em: Emitter, access: Access, run: Run) -> Flat:
    """The linear form of `access` in `run`, worked out once for all unrolled copies."""
    key = (id(access), id(run.args))
    found = em.flats.get(key)
    if found is None:
        found = em.flats[key] = _flatten(em, access, run)
    return found


def _flatten(em: Emitter, access: Access, run: Run) -> Flat:
    at = em.homes.get(access.array)
    if at is None:
        raise em.impossible(f"{access.array.name} is used outside its allocation")
    lowered = em.module.lowered
    cells = lowered.cell(access, run)
    mays: list[tuple[int, May]] = []
    if cells is None:
        env: dict[Axis | Var, Lin] = dict(zip(run.statement.iters, run.args, strict=True))
        plain: list[Lin] = []
        for d, i in enumerate(access.index):
            if isinstance(i, May):
                mays.append((d, i))
                plain.append(Lin())
            else:
                plain.append(i.subst(env))
        if at.storage is not None:
            plain += (Lin({a: 1}) for a in at.storage.lanes)
        cells = tuple(plain)
    const = 0
    params: list[tuple[Int, int]] = []
    terms: list[tuple[Atom, int, Int]] = []
    for e, stride in zip(cells, at.strides, strict=True):
        if isinstance(stride, int):
            const += e.const * stride
        elif e.const:
            params.append((stride, e.const))
        terms.extend((a, v, stride) for a, v in e.terms.items())
    if any(isinstance(a, tuple) and a[0] == "%" for a, _, _ in terms):
        terms, more = _rejoined(terms)
        const += more
    axes = frozenset(a for e in cells for a in e.atoms())
    inside = lowered.cells.inside(access, run)
    return Flat(at, terms, const, params, axes, inside, tuple(mays), (access, run.args))


def _rejoined(terms: list[tuple[Atom, int, Int]]) -> tuple[list[tuple[Atom, int, Int]], int]:
    """The terms, and a constant, with quotients and remainders of one index as that index again:
    fused axes of neighbouring dimensions walk through memory in one step."""
    fixed = Lin()
    for a, v, stride in terms:
        if isinstance(stride, int):
            fixed = fixed + Lin({a: v * stride})
    whole = rejoin(fixed)
    if whole == fixed:
        return terms, 0
    kept = [t for t in terms if not isinstance(t[2], int)]
    return [*((a, v, 1) for a, v in whole.terms.items()), *kept], whole.const


def _varies(em: Emitter, a: Atom) -> bool:
    """Whether an atom depends on an unrolled axis or on the lane."""
    if isinstance(a, tuple):
        return any(not isinstance(em.env[x], str) for x in a[1].atoms())
    return not isinstance(em.env[a], str)


def _fix(em: Emitter, flat: Flat) -> None:
    """Work out the pointer for the names that `env` holds now."""
    by_name: dict[str, list[tuple[Int, int]]] = {}
    varying = []
    for a, v, stride in flat.terms:
        if _varies(em, a):
            varying.append((a, v, stride))
            continue
        x = em.lin(Lin({a: 1}))
        assert isinstance(x, str)
        by_name.setdefault(x, []).append((stride, v))
    p = flat.home.pointer
    order = sorted(by_name, key=lambda x: em.depth.get(x, 0))
    storage = flat.home.storage
    swizzle = storage.swizzle if storage is not None else None
    flat.turned, flat.unit = 0, 0
    for x in order:
        step: Int = 0
        for stride, v in by_name[x]:
            step = em.add(step, em.mul(stride, v))
        flat.unit = gcd(flat.unit, step) if isinstance(step, int) else 1
        if swizzle is not None and (isinstance(step, str) or step % swizzle.span):
            flat.turned = em.add(flat.turned, em.mul(x, step))
        else:
            p = gep(em, flat.home.memory, p, em.mul(x, step))
    flat.pointer, flat.varying, flat.epoch = p, varying, em.epoch


def locate(em: Emitter, flat: Flat) -> Spot:
    """The address for the values that `env` holds now, May indices left out."""
    if flat.epoch != em.epoch:
        _fix(em, flat)
    const = flat.const
    lane: Int = 0
    lanes: str | None = None
    params = flat.params
    unit = flat.unit
    offset: Int = 0
    env = em.env
    for a, v, stride in flat.varying:
        x: int | str | Lane
        if isinstance(a, tuple):
            step = em.along_lanes(Lin({a: 1}))
            if step is None:
                more = em.lanes_of(Lin({a: 1}))
                scale = em.spread(em.mul(stride, v), "i64")
                ty = f"<{em.width} x i64>"
                more = em.op(f"mul {ty} {{0}}, {{1}}", more, scale)
                lanes = more if lanes is None else em.op(f"add {ty} {{0}}, {{1}}", lanes, more)
                continue
            if step:
                lane = em.add(lane, em.mul(stride, v * step))
            x = em.lin(Lin({a: 1}))
        else:
            x = env[a]
            if isinstance(x, Lane):
                lane = em.add(lane, em.mul(stride, v))
                x = x.base
        if isinstance(x, str):
            unit = gcd(unit, v * stride) if isinstance(stride, int) else 1
            offset = em.add(offset, em.mul(x, em.mul(stride, v)))
        elif isinstance(stride, int):
            const += v * x * stride
        elif x:
            params = [*params, (stride, v * x)]
    if params:
        unit = 1
        total: dict[Int, int] = {}
        for s, k in params:
            total[s] = total.get(s, 0) + k
        for s, k in total.items():
            offset = em.add(offset, em.mul(s, k))
    if isinstance(offset, int):
        const, offset = const + offset, 0
    spot = Spot(flat.pointer, offset, const, lane, lanes, gcd(unit, const))
    storage = flat.home.storage
    if storage is not None and storage.swizzle is not None:
        return _turned(em, flat, storage.swizzle, spot)
    return spot


def _turned(em: Emitter, flat: Flat, w: Swizzle, spot: Spot) -> Spot:
    """The place of an address in storage whose pieces are turned; whole turns stay outside."""
    low = spot.const % w.span
    at = em.add(em.add(flat.turned, spot.offset), low)
    place = w.place(at) if isinstance(at, int) else _xored(em, w, at, "i64")
    still = spot.lanes is None and (spot.lane == 0 or em.lane is None)
    if spot.lane == 1 and spot.lanes is None and em.width <= 1 << w.base:
        # a vector within one piece
        still = still or spot.unit % em.width == 0
    lanes = None
    if not still:
        ty = f"<{em.width} x i64>"
        apart = em.ramp(0, spot.lane)
        if spot.lanes is not None:
            apart = em.op(f"add {ty} {{0}}, {{1}}", spot.lanes, apart)
        every = em.op(f"add {ty} {{0}}, {{1}}", em.spread(at, "i64"), apart)
        every = _xored(em, w, every, ty)
        lanes = em.op(f"sub {ty} {{0}}, {{1}}", every, em.spread(place, "i64"))
    whole = spot.const - low
    if isinstance(place, int):
        whole, place = whole + place, 0
    unit = gcd(spot.unit, 1 << w.base)
    return Spot(spot.pointer, place, whole, spot.lane if still else 0, lanes, unit)


def _xored(em: Emitter, w: Swizzle, at: str, ty: str) -> str:
    def const(x: int) -> str:
        return str(x) if ty == "i64" else f"splat (i64 {x})"

    bits = em.op(f"lshr {ty} {{0}}, {const(w.base + w.shift)}", at)
    bits = em.op(f"and {ty} {{0}}, {const((1 << w.bits) - 1)}", bits)
    bits = em.op(f"shl {ty} {{0}}, {const(w.base)}", bits)
    return em.op(f"xor {ty} {{0}}, {{1}}", at, bits)


def gep(em: Emitter, ty: str, pointer: str, by: Int) -> str:
    """`pointer` moved by some elements."""
    if by == 0:
        return pointer
    return em.op(f"getelementptr {ty}, ptr {{0}}, i64 {{1}}", pointer, by, hint="p")


def pointer_of(em: Emitter, ty: str, spot: Spot) -> str:
    """The address of lane 0."""
    return gep(em, ty, gep(em, ty, spot.pointer, spot.offset), spot.const)


def register_of(em: Emitter, flat: Flat) -> tuple[str, int | None, int]:
    """The register of a promoted cell: its alloca, the lane of the cell if that is one lane of a
    vector, and how the cell moves along the lanes of the loop."""
    spot = locate(em, flat)
    home = flat.home
    if spot.pointer != home.pointer or spot.offset != 0 or spot.lanes is not None:
        raise em.impossible(f"{home.array.name} is in registers, but an index is not constant")
    width = home.register or 0
    step = spot.lane
    cell = spot.const
    single = None
    if width and not (step == 1 and em.width == width and cell % width == 0):
        single, cell = cell % width, cell - cell % width
        if step != 0:
            raise em.impossible(f"{home.array.name}: lanes do not match its registers")
    key = (home.array, cell)
    name = em.registers.get(key)
    if name is None:
        ty = f"<{width} x {home.value}>" if width else home.value
        name = em.registers[key] = em.alloca(ty, "acc")
    assert isinstance(step, int)
    return name, single, step
