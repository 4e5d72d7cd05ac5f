"""Streaming stores: past the caches, where a schedule asked for it and the address allows it.

The processor wants them at multiples of their size; where an array begins is known only in a call.
So a nest whose stores may stream is written twice, and a test in front of it takes the plain one
where rows do not begin at a multiple of 16 bytes. Within the other a store streams if its address
is provably such a multiple then; the rest, masked ones among it, is stored plainly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd

from tensorir.codegen.address import Home, flat_of
from tensorir.codegen.alignment import multiple
from tensorir.codegen.module import Module
from tensorir.codegen.values import Emitter, Int
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Access, Array
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run
from tensorir.lower.pipeline import Lowered
from tensorir.poly import hints

UNIT = 16
"""Streaming stores of wider vectors are made of parts of so many bytes."""
LINE = 64
"""Where vectors are transposed first, those that begin at a line are worth an arm of their own."""
_FENCE = "llvm.x86.sse.sfence"
_MARK = "!93"


def wanted(module: Module, lowered: Lowered) -> dict[Array, int]:
    """The arrays whose stores are asked to stream, and can; each where it has more bytes."""
    found: dict[Array, int] = {}
    for array, above in lowered.program.streaming:
        why = _against(module, lowered, array)
        if why is None:
            found[array] = above
        else:
            module.note(f"{array.name}: plain stores: {why}")
    return found


def _against(module: Module, lowered: Lowered, array: Array) -> str | None:
    if not module.target.is_x86:
        return f"no streaming ones for {module.target.name}"
    storage = lowered.storage(array)
    if storage is not None and storage.outside:
        return "it is kept inside a loop"
    reader = hints.reader_near(lowered.program, array)
    return None if reader is None else f"{reader} reads it again"


def report(module: Module) -> None:
    """Tell which arrays were to stream, and of which no store could."""
    for array in module.streams:
        if array not in module.streamed:
            module.note(
                f"{array.name}: plain stores: none of whole vectors at multiples of {UNIT} bytes"
            )


# -- a nest, twice


def arms(em: Emitter, loop: For, write: Callable[[], None]) -> None:
    """Write a loop; twice if stores in it may stream, with a test of where rows begin."""
    found = _streamed(em, loop)
    if not found:
        write()
        return
    from tensorir.codegen.stores import flush

    flush(em)
    em.unguard()
    em.serial += 1
    k = em.serial
    for unit in (LINE, UNIT) if _turned(em, loop, None) else (UNIT,):
        test = _test(em, found, unit)
        em.streaming, em.unit = found, unit if test is not None else UNIT
        if test is not None:
            em.emit(f"br i1 {test}, label %stream{unit}.{k}, label %less{unit}.{k}")
            em.start(f"stream{unit}.{k}")
        write()
        flush(em)
        em.unguard()
        if test is None:
            break
        em.emit(f"br label %stored{k}")
        em.start(f"less{unit}.{k}")
    else:
        em.streaming = ()
        write()
        flush(em)
        em.unguard()
    if test is not None:
        em.emit(f"br label %stored{k}")
        em.start(f"stored{k}")
    em.streaming = None


def _turned(em: Emitter, node: Node, lanes: For | None) -> bool:
    """Whether lanes of some store that may stream lie apart, so that shuffles turn them."""
    if isinstance(node, Run):
        for w in node.statement.writes:
            if w.array in em.module.streams and lanes is not None:
                terms = flat_of(em, w, node).terms
                return not any(a is lanes.axis and (v, s) == (1, 1) for a, v, s in terms)
        return False
    if isinstance(node, For) and node.kind == "vectorize":
        lanes = node
    return any(_turned(em, x, lanes) for x in _inside(node))


def _streamed(em: Emitter, loop: For) -> tuple[Array, ...]:
    """The arrays for which `loop` is the nest to write twice."""
    arrays = em.module.streams
    if not arrays or em.streaming is not None or not _one_nest(loop):
        return ()
    if loop.kind == "parallel" and not em.outlined:
        return ()
    stored = set(_stored(em, loop, None, frozenset()))
    return tuple(a for a in arrays if a in stored)


def _one_nest(node: Node) -> bool:
    """Whether there are no loops one after the other in it, but for lanes and copies."""
    if isinstance(node, Block):
        return all(_one_nest(x) for x in node.items) and not any(map(_counts, node.items))
    return all(map(_one_nest, _inside(node)))


def _counts(node: Node) -> bool:
    if isinstance(node, For) and node.kind not in ("unroll", "vectorize"):
        return True
    return any(map(_counts, _inside(node)))


def _inside(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Block):
        return node.items
    if isinstance(node, If):
        return (node.body,) if node.other is None else (node.body, node.other)
    return (node.body,) if isinstance(node, For | Alloc) else ()


def _stored(em: Emitter, node: Node, lanes: For | None, fixed: frozenset[Axis]) -> Iterator[Array]:
    """Arrays that get whole vectors which may begin at multiples of UNIT; of `fixed` axes each
    value is known."""
    if isinstance(node, Run):
        masked = lanes is None or any(c.involves(lanes.axis) for c in node.conds)
        for w in () if masked else node.statement.writes:
            if w.array in em.module.streams and _may_begin(em, w, node, fixed):
                yield w.array
        return
    if isinstance(node, For) and node.kind in ("vectorize", "unroll"):
        fixed |= {node.axis}
        lanes = node if node.kind == "vectorize" else lanes
    for x in _inside(node):
        yield from _stored(em, x, lanes, fixed)


def _may_begin(em: Emitter, access: Access, run: Run, fixed: frozenset[Axis]) -> bool:
    flat = flat_of(em, access, run)
    size = flat.home.align
    return not flat.mays and all(
        isinstance(stride, str) or v * stride * size % UNIT == 0 or a in fixed
        for a, v, stride in flat.terms
    )


def _test(em: Emitter, arrays: tuple[Array, ...], unit: int) -> str | None:
    """Whether all arrays are large, with rows at multiples of a unit; None: that is certain."""
    bits: str | None = None
    large: str | None = None
    for array in arrays:
        above = em.module.streams[array]
        if above and hints.known_bytes(array) is None:
            size: Int = array.dtype.bytes
            for e in array.shape:
                size = em.mul(em.lin(e), size)
            large = em.both(large, em.op("icmp sgt i64 {0}, {1}", size, above))
        home = em.homes[array]
        parts = [] if home.storage is not None else [em.op("ptrtoint ptr {0} to i64", home.pointer)]
        if len(home.strides) > 1 and isinstance(home.strides[-2], str):
            parts.append(em.op("mul i64 {0}, {1}", home.strides[-2], home.align))
        for x in parts:
            bits = x if bits is None else em.op("or i64 {0}, {1}", bits, x)
    if bits is None:
        return large
    return em.both(large, em.op("icmp eq i64 {0}, 0", em.op("and i64 {0}, {1}", bits, unit - 1)))


# -- a store


def hint(em: Emitter, home: Home, at: str) -> str | None:
    """What marks a store of a vector at `at` as streaming, its alignment with it; None: plain."""
    if not em.streaming or home.array not in em.streaming:
        return None
    # where rows begin at multiples of the unit
    unit = em.unit // gcd(home.align, em.unit)
    rows = {s: unit for s in home.strides[:-1] if isinstance(s, str)}
    align = gcd(em.width * home.align, multiple(em, home, at, rows), em.unit)
    if align % UNIT:
        return None
    em.streamed = True
    em.module.streamed[home.array] = None
    em.module.globals[_MARK] = f"{_MARK} = !{{i32 1}}"
    return f"align {align}, !nontemporal {_MARK}"


def fence(em: Emitter) -> None:
    """Streaming stores of this function are seen by other threads from here on."""
    if em.streamed:
        em.module.declare(_FENCE, "void", "")
        em.emit(f"call void @{_FENCE}()")
