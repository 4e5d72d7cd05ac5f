"""Products of matrix tiles: operands by `ldmatrix` or by loads, one `mma` of the warp.

The lane of a warp that is asked for a row of an operand finds where it lies by the statement's own
access, for other values of the tile's loops than its own. Where a tile is not whole, or not all
lanes are sure to come here, its loops are written as loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tensorir.codegen.address import Flat, flat_of, locate, pointer_of
from tensorir.codegen.alignment import within
from tensorir.codegen.loads import Instance, flush_of, load
from tensorir.codegen.stores import flush, store
from tensorir.codegen.types import BITS, VALUE
from tensorir.codegen.values import Emitter, Int, Lane
from tensorir.ir.affine import Atom, Lin
from tensorir.ir.expr import Axis
from tensorir.ir.matrix import LANES, MatrixIntrinsic
from tensorir.ir.statement import Access
from tensorir.ir.stmt import For, Run
from tensorir.poly.matrix_tile import TileAxes, reads_of
from tensorir.support.errors import UnsupportedError

__all__ = ["call"]

_PIECE = 16  # bytes of a row of one of the matrices that ldmatrix loads


@dataclass(frozen=True, slots=True)
class _Tile:
    """What is being written: the instruction, its loops, the instance, and the lane's number."""

    what: MatrixIntrinsic
    axes: TileAxes
    run: Run
    lane: Int


def call(em: Emitter, loop: For, what: MatrixIntrinsic) -> bool:
    """Write the tile under `loop` as one instruction; False, with a note, where it stays loops."""
    if not any(all(map(em.target.has, x)) for x in what.features):
        wanted = " or ".join(" and ".join(x) for x in what.features)
        raise UnsupportedError(
            f"tensorize: {what.name} needs {wanted}, which target {em.target} does not have",
            details="  try  a schedule for this target, without that instruction",
        )
    tile = _tile(em, loop, what)
    if isinstance(tile, str):
        return _loops(em, loop, what, tile)
    slots = reads_of(what, tile.run.statement, _index(tile.run), tile.axes)
    if isinstance(slots, str):
        return _loops(em, loop, what, slots)
    if em.guarded is not None:
        flush(em)
        em.unguard()
    left = _operand(em, tile, slots.left, 4)
    right = _operand(em, tile, slots.right, 2)
    _multiply(em, tile, left, right)
    return True


def _loops(em: Emitter, loop: For, what: MatrixIntrinsic, why: str) -> bool:
    em.module.note(f"{loop.axis.name}: loops in place of {what.name}: {why}")
    inner = loop
    while isinstance(inner.body, For):
        inner = inner.body
    em.rolled[inner.axis] = None
    return False


def _index(run: Run) -> dict[Axis, Lin]:
    return dict(zip(run.statement.iters, run.args, strict=True))


def _tile(em: Emitter, loop: For, what: MatrixIntrinsic) -> _Tile | str:
    chain = [loop]
    while isinstance(chain[-1].body, For) and chain[-1].body.kind == "unroll":
        chain.append(chain[-1].body)
    run = chain[-1].body
    if [x.extent for x in chain] != [2, 2, what.depth] or not isinstance(run, Run):
        return "its loops are not as they were"
    if run.conds or run.read_conds:
        return "partial tiles"
    device = em.device
    lane = next((a for a, n in device.extents.items() if n == LANES and a.name == "threadIdx.x"),
                None) if device is not None else None  # fmt: skip
    if device is None or lane is None:
        return "the lanes of a warp are not the threads of threadIdx.x"
    if em.apart:
        return "some lanes may not come there"
    return _Tile(what, TileAxes(lane, *(x.axis for x in chain)), run, device.values[lane])


@contextmanager
def _at(em: Emitter, values: Mapping[Axis, Int]) -> Iterator[None]:
    """Addresses for other values of some axes."""
    old: dict[Axis, int | str | Lane | None] = {a: em.env.get(a) for a in values}
    for a, value in values.items():
        em.env[a] = value
    em.epoch += 1
    try:
        yield
    finally:
        for a, x in old.items():
            if x is None:
                del em.env[a]
            else:
                em.env[a] = x
        em.epoch += 1


# -- operands
def _operand(em: Emitter, tile: _Tile, slot: int, count: int) -> list[str]:
    """The registers of an operand: 4 of the left tile, 2 of the right one."""
    access = tile.run.statement.reads[slot]
    flat = flat_of(em, access, tile.run)
    if em.pending:
        flush_of(em, flat.home.key)
    storage = flat.home.storage
    if storage is not None and storage.scope == "shared" and not flat.params:
        for turned in (False, True):
            made = _matrices(em, tile, flat, count, turned)
            if made is not None:
                return made
    return [_register(em, tile, access, flat, k, count) for k in range(count)]


def _matrices(em: Emitter, tile: _Tile, flat: Flat, count: int, turned: bool) -> list[str] | None:
    """An operand by `ldmatrix`: lane `8*m + r` tells where row `r` of matrix `m` lies."""
    what, axes = tile.what, tile.axes
    size = BITS[flat.home.memory] // 8
    if turned and size != 2:
        return None
    left = count == 4
    lane = Lin({axes.lane: 1})
    along: tuple[dict[Atom, int], ...]
    if left:
        along = ({axes.row: 8, ("//", lane, 4): 1}, {axes.depth: 1})
    else:
        along = ({axes.column: 1, ("%", lane, 4): 2}, {axes.depth: 1})
    if not _contiguous(flat, along[1] if not turned else along[0], axes):
        return None
    row = _and(em, tile.lane, 7)
    bit0, bit1 = (_and(em, _shift(em, tile.lane, n), 1) for n in (3, 4))
    upper = bit1 if left else bit0  # the half of the sum
    k: Int = em.mul(upper, 4 * what.per)
    values: dict[Axis, Int] = {axes.lane: 0, axes.row: 0, axes.column: 0}
    if left:
        values[axes.row] = bit0
    if turned:
        k = em.add(k, row)
    elif left:
        values[axes.lane] = em.mul(row, 4)
    else:
        values[axes.lane], values[axes.column] = _shift(em, row, 1), _and(em, row, 1)
    values[axes.depth] = k
    with _at(em, values):
        spot = locate(em, flat)
        at = pointer_of(em, flat.home.memory, spot)
    if spot.lanes is not None or within(em, flat.home, at, _PIECE) != _PIECE:
        return None
    swizzle = flat.home.storage.swizzle if flat.home.storage is not None else None
    if swizzle is not None and size << swizzle.base < _PIECE:
        return None
    key = (at, "ldmatrix", turned)
    known = em.known.setdefault(flat.home.key, {})
    if key not in known:
        form = f"x{count}{'.trans' if turned else ''}"
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.{form}.b16.p3"
        result = f"{{ {', '.join(['i32'] * count)} }}"
        em.module.declare(name, result, "ptr addrspace(3)")
        near = em.op("addrspacecast ptr {0} to ptr addrspace(3)", at)
        known[key] = em.now(f"call {result} @{name}(ptr addrspace(3) {near})"), False
    whole = known[key][0]
    result = f"{{ {', '.join(['i32'] * count)} }}"
    parts = [em.op(f"extractvalue {{0}} {{1}}, {k}", result, whole) for k in range(count)]
    return [_as_register(em, what, x) for x in parts]


def _contiguous(flat: Flat, along: dict[Atom, int], axes: TileAxes) -> bool:
    """Whether elements lie side by side along an index of the tile, and it does nothing else."""
    seen: dict[Atom, int] = {}
    inner = next(iter(along))
    assert isinstance(inner, Axis)
    for a, v, stride in flat.terms:
        if not any(Lin({a: 1}).involves(x) for b in along for x in Lin({b: 1}).atoms()):
            continue
        if a in along and isinstance(stride, int):
            seen[a] = seen.get(a, 0) + v * stride
        elif Lin({a: 1}).involves(inner):
            return False
    return all(seen.get(a) == v for a, v in along.items())


def _register(em: Emitter, tile: _Tile, access: Access, flat: Flat, k: int, count: int) -> str:
    """Register `k` of an operand by loads of its elements."""
    what, axes = tile.what, tile.axes
    per = what.per
    half = k // 2 if count == 4 else k
    t = _and(em, tile.lane, 3)
    first = em.add(em.mul(t, per), 4 * per * half)
    values: dict[Axis, Int] = {axes.column: 0, axes.row: k % 2 if count == 4 else 0}
    if count == 2:
        g = _shift(em, tile.lane, 2)
        values[axes.lane], values[axes.column] = _shift(em, g, 1), _and(em, g, 1)
    memory = flat.home.memory
    texts = []
    for e in range(per):
        with _at(em, {**values, axes.depth: em.add(first, e)}):
            at = pointer_of(em, memory, locate(em, flat))
        texts.append(em.now(f"load {memory}, ptr {at}, align {flat.home.align}"))
    if per == 1:
        return em.op(f"bitcast {memory} {{0}} to i32", texts[0])
    ty = f"<{per} x {memory}>"
    whole = "poison"
    for e, x in enumerate(texts):
        whole = em.op(f"insertelement {ty} {{0}}, {memory} {{1}}, i64 {e}", whole, x)
    return _as_register(em, what, em.op(f"bitcast {ty} {{0}} to i32", whole))


def _as_register(em: Emitter, what: MatrixIntrinsic, x: str) -> str:
    return x if what.register == "i32" else em.op(f"bitcast i32 {{0}} to {what.register}", x)


# -- the product
def _multiply(em: Emitter, tile: _Tile, left: list[str], right: list[str]) -> None:
    what, axes, run = tile.what, tile.axes, tile.run
    inst = Instance(run, run.statement, ())
    cells = [{axes.row: r, axes.column: c, axes.depth: 0} for r in range(2) for c in range(2)]
    value = VALUE[what.result]
    old = []
    for cell in cells:
        with _at(em, cell):
            old.append(load(em, inst, 0)[0])
    given = [f"{what.register} {x}" for x in (*left, *right)] + [f"{value} {x}" for x in old]
    result = f"{{ {', '.join([value] * 4)} }}"
    kinds = ", ".join([what.register] * 6 + [value] * 4)
    em.module.declare(what.llvm, result, kinds)
    made = em.now(f"call {result} @{what.llvm}({', '.join(given)})")
    for k, cell in enumerate(cells):
        one = em.op(f"extractvalue {{0}} {{1}}, {k}", result, made)
        with _at(em, cell):
            flat = flat_of(em, run.statement.writes[0], run)
            spot = None if flat.home.register is not None else locate(em, flat)
            store(em, flat, spot, (one, False), None)


def _and(em: Emitter, x: Int, mask: int) -> Int:
    return x & mask if isinstance(x, int) else em.op(f"and i64 {{0}}, {mask}", x)


def _shift(em: Emitter, x: Int, by: int) -> Int:
    return x >> by if isinstance(x, int) else em.op(f"lshr i64 {{0}}, {by}", x)
