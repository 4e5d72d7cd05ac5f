"""Copies from global to shared memory that run on their own: `cp.async`, zeros where nothing is."""

from __future__ import annotations

from tensorir.codegen.address import Flat, Spot, flat_of, gep, locate, pointer_of
from tensorir.codegen.alignment import WIDEST, within
from tensorir.codegen.loads import Instance
from tensorir.codegen.stores import flush
from tensorir.codegen.types import BITS
from tensorir.codegen.values import Emitter, Int
from tensorir.ir.affine import Lin
from tensorir.poly import groups

__all__ = ["copy"]

_SIZES = (16, 8, 4)


def copy(em: Emitter, inst: Instance, target: Flat, to: Spot) -> bool:
    """Write an instance as asynchronous copies; False where loads and stores must do it.

    They must where elements do not lie side by side in groups of 4, 8 or 16 aligned bytes, or
    where lanes in the middle are left out.
    """
    program = em.module.lowered.program
    buffer = program.buffers.get(target.home.array)
    if em.device is None or buffer is None or buffer.engine != "cp_async":
        return False
    stmt = inst.stmt
    if not em.target.has("sm_80") or not groups.plain(program, stmt) or inst.alive is not None:
        return False
    guard = stmt.reads[0].guard
    if not stmt.reads[0].exact or len(guard) != 1 or any(kind != "ge" for kind, _ in guard[0]):
        return False
    source = flat_of(em, stmt.reads[0], inst.run)
    at = locate(em, source)
    width = em.width if em.lane is not None else 1
    if em.lane is not None and any(s.lane != 1 or s.lanes is not None for s in (at, to)):
        return False
    element = BITS[source.home.memory] // 8
    ends = [(f.home, pointer_of(em, f.home.memory, x)) for f, x in ((source, at), (target, to))]
    aligned = min(within(em, home, pointer, WIDEST) for home, pointer in ends)
    size = next((n for n in _SIZES if width * element % n == 0 and aligned % n == 0), None)
    needs = () if source.inside else inst.needs
    needs = (*needs, *(e.subst(inst.env()) for _, e in guard[0]))
    count = _there(em, needs, width) if size is not None else None
    if size is None or count is None:
        em.module.note(f"{target.home.array.name}: copied by loads and stores")
        return False
    flush(em)
    each = size // element
    for k in range(width // each):
        present = _bytes(em, count, k * each, each, element)
        _issue(em, target, to, source, at, k * each, size, present)
    em.forget(target.home.key)
    return True


def _issue(
    em: Emitter, target: Flat, to: Spot, source: Flat, at: Spot, by: int, size: int, present: Int
) -> None:
    ends = []
    for flat, spot, space in ((target, to, 3), (source, at, 1)):
        pointer = gep(em, flat.home.memory, pointer_of(em, flat.home.memory, spot), by)
        ends.append(em.op(f"addrspacecast ptr {{0}} to ptr addrspace({space})", pointer))
    cache = "cg" if size == 16 else "ca"
    name = f"llvm.nvvm.cp.async.{cache}.shared.global.{size}"
    kinds = "ptr addrspace(3), ptr addrspace(1)"
    given = f"ptr addrspace(3) {ends[0]}, ptr addrspace(1) {ends[1]}"
    if present != size:
        name, kinds = f"{name}.s", f"{kinds}, i32"
        small = em.op("trunc i64 {0} to i32", present) if isinstance(present, str) else present
        given = f"{given}, i32 {small}"
    em.module.declare(name, "void", kinds)
    em.emit(f"call void @{name}({given})")


def _there(em: Emitter, needs: tuple[Lin, ...], width: int) -> Int | None:
    """How many of the first lanes are there; None where it is not the first that are."""
    count: Int = width
    shared: str | None = None
    for e in needs:
        step = em.along_lanes(e)
        if step == 0 or (step is not None and step < 0 and _alike(em, e, -step * width)):
            shared = em.both(shared, em.holds(e))
            continue
        if step is None or step > 0:
            return None
        first = em.add(em.floor_div(em.lin(e), -step), 1)
        count = em.least(count, em.greatest(first, 0))
    if shared is None:
        return count
    if shared == "false":
        return 0
    return em.op("select i1 {0}, i64 {1}, i64 {2}", shared, count, 0)


def _alike(em: Emitter, e: Lin, span: int) -> bool:
    """Whether a condition that falls along the lanes holds in all or in none of them."""
    others = [v for a, v in e.terms.items() if a is not em.lane]
    return (e.const + 1) % span == 0 and all(v % span == 0 for v in others)


def _bytes(em: Emitter, count: Int, first: int, each: int, element: int) -> Int:
    """Bytes that are there of the `each` elements from `first` on."""
    if isinstance(count, int):
        return min(max(count - first, 0), each) * element
    if first or each < em.width:
        count = em.least(em.greatest(em.add(count, -first), 0), each)
    return em.mul(count, element)
