"""A reduction over the threads of a block: shuffles within a warp, shared memory between warps.

Every thread computes its value, or what changes nothing where it has none; the first one has the
total and updates the cell. All threads of a warp take part in its shuffles, all of the block where
there are several warps, so that nothing here is under a condition of theirs.
"""

from __future__ import annotations

from tensorir.codegen import arithmetic
from tensorir.codegen.address import flat_of, locate
from tensorir.codegen.expressions import value
from tensorir.codegen.lanes import neutral_of
from tensorir.codegen.loads import Instance, load
from tensorir.codegen.stores import store
from tensorir.codegen.types import BITS, VALUE, literal
from tensorir.codegen.values import Emitter
from tensorir.ir.affine import Fact, Lin
from tensorir.ir.expr import Expr, Op
from tensorir.ir.stmt import For, If, Node, Run
from tensorir.ir.updates import combined
from tensorir.support.errors import UnsupportedError

WARP = 32
_BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"


def across(em: Emitter, loop: For, facts: list[Fact]) -> None:
    """A bound loop whose threads are combined; `facts` say which threads have a point."""
    run, conds = _instance(em, loop.body, facts)
    threads = _threads(em, loop)
    stmt = run.statement
    found = combined(stmt.bodies[0])
    if found is None:
        raise em.impossible(f"{stmt.name} does more than combine a cell with a value")
    name, parts = found
    d = stmt.bodies[0].dtype
    other: Expr = parts[0] if len(parts) == 1 else Op("mul", parts, d)
    inst = Instance(run, stmt, (*run.read_conds, *conds))
    text, _ = value(em, inst, other)
    alive, _ = em.conditions(conds)
    ty = VALUE[d.name]
    neutral = literal(neutral_of(name, d), d)
    if alive is not None:
        text = em.op(f"select i1 {{0}}, {ty} {{1}}, {ty} {neutral}", alive, text)
    op = Op(name, (other, other), d)

    def both(a: str, b: str) -> str:
        return arithmetic.compute(em, inst, op, [a, b], [d, d], 0)

    def folded(x: str, lanes: int) -> str:
        while lanes > 1:
            lanes //= 2
            x = both(x, _exchanged(em, x, ty, lanes, (1 << min(threads, WARP)) - 1))
        return x

    thread = str(em.device.values[loop.axis]) if em.device is not None else "0"
    text = folded(text, min(threads, WARP))
    if threads > WARP:
        warps = threads // WARP
        text = _of_warps(em, text, ty, neutral, thread, warps)
        text = folded(text, 1 << (warps - 1).bit_length())
    uniform, _ = em.conditions(tuple(c for c in conds if not c.involves(loop.axis)))
    first = em.op("icmp eq i64 {0}, 0", thread)
    em.guard(first if uniform is None else em.op("and i1 {0}, {1}", first, uniform))
    old, _ = load(em, Instance(run, stmt, run.read_conds), 0)
    flat = flat_of(em, stmt.writes[0], run)
    store(em, flat, locate(em, flat), (both(old, text), False), None)
    em.unguard()


def _instance(em: Emitter, node: Node, facts: list[Fact]) -> tuple[Run, tuple[Lin, ...]]:
    """The instance of a body, and all conditions on it."""
    every = list(facts)
    while isinstance(node, If) and node.other is None:
        every += node.conds
        node = node.body
    if not isinstance(node, Run):
        raise em.impossible("threads are combined by more than one update")
    conds = []
    for kind, e in every:
        conds += [e] if kind == "ge" else [e, e * -1]
    return node, (*conds, *node.conds)


def _threads(em: Emitter, loop: For) -> int:
    """How many threads are combined: those of a block along x."""
    device = em.device
    assert device is not None
    n = device.extents[loop.axis]
    others = 1
    for axis, extent in device.extents.items():
        others *= 1 if axis is loop.axis else extent
    within = n <= WARP and n & (n - 1) == 0
    if not within and n % WARP:
        raise UnsupportedError(
            f"cross_thread: {n} threads along x",
            details="  why  shuffles go between 2, 4, 8, 16 or 32 threads, or whole warps of 32\n"
            f"  try  splitting the loop by {WARP}, or a multiple of it",
        )
    if others > 1 and n != WARP:
        raise UnsupportedError(
            f"cross_thread: {n} threads along x, and {others} along y and z",
            details=f"  why  with other threads beside them, those along x are one warp, {WARP}",
        )
    return n


def _exchanged(em: Emitter, x: str, ty: str, apart: int, mask: int) -> str:
    """The value of the thread whose number differs in one bit; `mask` are those that there are."""
    name = "llvm.nvvm.shfl.sync.bfly.i32"
    em.module.declare(name, "i32", "i32, i32, i32, i32")

    def word(w: str) -> str:
        return em.now(f"call i32 @{name}(i32 {mask}, i32 {w}, i32 {apart}, i32 31)")

    bits = BITS[ty]
    whole = em.op(f"bitcast {ty} {{0}} to i{bits}", x)
    if bits < 32:
        got = word(em.op(f"zext i{bits} {{0}} to i32", whole))
        got = em.op(f"trunc i32 {{0}} to i{bits}", got)
    elif bits == 32:
        got = word(whole)
    else:
        low = word(em.op("trunc i64 {0} to i32", whole))
        high = word(em.op("trunc i64 {0} to i32", em.op("lshr i64 {0}, 32", whole)))
        wide = em.op("shl i64 {0}, 32", em.op("zext i32 {0} to i64", high))
        got = em.op("or i64 {0}, {1}", wide, em.op("zext i32 {0} to i64", low))
    return em.op(f"bitcast i{bits} {{0}} to {ty}", got)


def _of_warps(em: Emitter, x: str, ty: str, neutral: str, thread: str, warps: int) -> str:
    """The totals of all warps, one in each of the first threads of every warp."""
    bits = max(8, BITS[ty])
    held = f"i{bits}"
    em.serial += 1
    name = f"{em.module.name}.crossing{em.serial}"
    em.module.globals[name] = (
        f"@{name} = internal addrspace(3) global [{warps} x {held}] undef, align {bits // 8}"
    )
    base = em.op(f"getelementptr i8, ptr addrspacecast (ptr addrspace(3) @{name} to ptr), i64 0")
    if len(em.levels) > 1:
        _barrier(em)  # the last totals were read
    lane = em.op("and i64 {0}, 31", thread)
    em.guard(em.op("icmp eq i64 {0}, 0", lane))
    raw = em.op(f"bitcast {ty} {{0}} to i{BITS[ty]}", x)
    if bits != BITS[ty]:
        raw = em.op(f"zext i{BITS[ty]} {{0}} to {held}", raw)
    to = em.op(f"getelementptr {held}, ptr {{0}}, i64 {{1}}", base, em.floor_div(thread, WARP))
    em.emit(f"store {held} {raw}, ptr {to}, align {bits // 8}")
    em.unguard()
    _barrier(em)
    some = em.op("icmp slt i64 {0}, {1}", lane, warps)
    at = em.op("select i1 {0}, i64 {1}, i64 0", some, lane)
    source = em.op(f"getelementptr {held}, ptr {{0}}, i64 {{1}}", base, at)
    got = em.now(f"load {held}, ptr {source}, align {bits // 8}")
    if bits != BITS[ty]:
        got = em.op(f"trunc {held} {{0}} to i{BITS[ty]}", got)
    got = em.op(f"bitcast i{BITS[ty]} {{0}} to {ty}", got)
    return em.op(f"select i1 {{0}}, {ty} {{1}}, {ty} {neutral}", some, got)


def _barrier(em: Emitter) -> None:
    em.module.declare(_BARRIER, "void", "i32")
    em.emit(f"call void @{_BARRIER}(i32 0)")
    em.known.clear()


def crossed(loop: For) -> bool:
    """Whether a loop is one whose threads are combined."""
    return loop.kind == "bind" and loop.width is not None


__all__ = ["across", "crossed"]
