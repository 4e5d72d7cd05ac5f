"""Parallel loops: the body becomes a function that each thread runs for its share.

Pointers, sizes, outer axes and bounds travel in a block on the stack; everything else is worked
out again in the function. Shares are fixed by the number of the thread, so that results do not
depend on timing. A region that is small, or that another Python thread is ahead of, runs here.
"""

from __future__ import annotations

from dataclasses import replace

from tensorir.codegen.address import home
from tensorir.codegen.emit import bounds, counted
from tensorir.codegen.function import allocate, assemble, release
from tensorir.codegen.maths import COSTLY
from tensorir.codegen.stores import flush
from tensorir.codegen.streaming import arms
from tensorir.codegen.values import Emitter, Int
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Expr, Op, Var
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run
from tensorir.support.knobs import knobs


def region(em: Emitter, loop: For, first: Int, last: Int) -> None:
    """A parallel loop from `first` to `last`."""
    module = em.module
    flush(em)
    module.parallel = True
    module.serial += 1
    name = f"{module.name}.region{module.serial}"
    slots: list[tuple[str, Int]] = [("ptr", em.status), ("ptr", em.info)]
    slots += [("i64", first), ("i64", last)]
    inner = Emitter(module)
    inner.outlined = True
    inner.limits = dict(em.limits)
    inner.status, inner.info = "%status", "%info"
    names = ["%status", "%info", "%first", "%last"]
    for key, x in em.env.items():
        if isinstance(x, str):
            slots.append(("i64", x))
            inner.env[key] = f"%in{len(slots)}"
            names.append(f"%in{len(slots)}")
        else:
            inner.env[key] = x
    shared = [h for h in em.homes.values() if h.register is None]
    for h in shared:
        slots.append(("ptr", h.pointer))
        names.append(f"%in{len(slots)}")
    entry = inner.levels[0].entry
    for k, ((ty, _), to) in enumerate(zip(slots, names, strict=True)):
        entry.append(f"  %q{k} = getelementptr i64, ptr %context, i64 {k}")
        entry.append(f"  {to} = load {ty}, ptr %q{k}, align 8")
    for h, to in zip(shared, names[len(names) - len(shared) :], strict=True):
        inner.homes[h.array] = home(inner, h.array, to, h.storage)
    _body(inner, loop, name)
    _start(em, loop, name, slots, first, last)


_SHARE = """\
  %count0 = sub i64 %last, %first
  %count = add i64 %count0, 1
  %before = mul i64 %thread, %count
  %skip = sdiv i64 %before, %threads
  %next = add i64 %thread, 1
  %until = mul i64 %next, %count
  %stop = sdiv i64 %until, %threads
  %from = add i64 %first, %skip
  %end0 = add i64 %first, %stop
  %to = sub i64 %end0, 1"""

_ENTER = """\
define internal void @{name}(ptr %context) #0 {{
entry:
  %thread32 = call i32 @omp_get_thread_num()
  %threads32 = call i32 @omp_get_num_threads()
  %thread = sext i32 %thread32 to i64
  %threads = sext i32 %threads32 to i64
  call void @{name}.share(ptr %context, i64 %thread, i64 %threads)
  ret void
}}"""


def _body(inner: Emitter, loop: For, name: str) -> None:
    module = inner.module
    inner.levels[0].entry.extend(_SHARE.splitlines())
    arena = allocate(inner, loop.body)
    arms(inner, loop, lambda: counted(inner, replace(loop, kind="serial"), "%from", "%to"))
    lines = release(inner, arena)
    head = f"internal void @{name}.share(ptr %context, i64 %thread, i64 %threads)"
    module.functions += assemble(head, inner, [*lines, "  ret void"])
    module.functions.append(_ENTER.format(name=name))


def _start(
    em: Emitter, loop: For, name: str, slots: list[tuple[str, Int]], first: Int, last: Int
) -> None:
    """Hand out the shares, or do all of them here."""
    module = em.module
    context = em.alloca("i64", "context", 8, len(slots))
    for k, (ty, x) in enumerate(slots):
        at = em.op("getelementptr i64, ptr {0}, i64 {1}", context, k, hint="p") if k else context
        em.emit(f"store {ty} {x}, ptr {at}, align 8")
    for symbol in ("tir_threads", "tir_region_busy"):
        module.globals[symbol] = f"@{symbol} = external global i32"
        module.imports[symbol] = None
    module.call_outside("GOMP_parallel", "void", "ptr, ptr, i32, i32")
    module.call_outside("omp_get_thread_num", "i32", "")
    module.call_outside("omp_get_num_threads", "i32", "")
    units = _cost(em, loop.body, {})
    units = em.mul(units, em.add(em.sub(last, first), 1))
    if isinstance(units, int):
        worth = "true" if units >= knobs.parallel_threshold else "false"
        if worth == "false":
            module.note(
                f"{loop.axis.name}: runs in one thread: its {units:,} operations are under the "
                f"knob parallel_threshold, {knobs.parallel_threshold:,}"
            )
    else:
        worth = em.op("icmp sge i64 {0}, {1}", units, knobs.parallel_threshold)
    threads = em.now("load i32, ptr @tir_threads, align 4")
    several = em.now(f"icmp sgt i32 {threads}, 1")
    asked = em.now(f"and i1 {several}, {worth}")
    em.serial += 1
    k = em.serial
    em.emit(f"br i1 {asked}, label %try{k}, label %alone{k}")
    em.start(f"try{k}")
    pair = em.now("cmpxchg ptr @tir_region_busy, i32 0, i32 1 acq_rel monotonic")
    free = em.now(f"extractvalue {{ i32, i1 }} {pair}, 1")
    em.emit(f"br i1 {free}, label %fork{k}, label %alone{k}")
    em.start(f"fork{k}")
    em.emit(f"call void @GOMP_parallel(ptr @{name}, ptr {context}, i32 {threads}, i32 0)")
    em.emit("store atomic i32 0, ptr @tir_region_busy release, align 4")
    em.emit(f"br label %joined{k}")
    em.start(f"alone{k}")
    em.emit(f"call void @{name}.share(ptr {context}, i64 0, i64 1)")
    em.emit(f"br label %joined{k}")
    em.start(f"joined{k}")


# -- how much work there is


def _cost(em: Emitter, node: Node, tops: dict[Axis, Int]) -> Int:
    """Instructions in one execution of `node`, at most; inner axes count as their largest."""
    if isinstance(node, Run):
        reads = len(node.statement.reads)
        return 1 + reads + sum(_operations(b) for b in node.statement.bodies)
    if isinstance(node, Block):
        total: Int = 0
        for item in node.items:
            total = em.add(total, _cost(em, item, tops))
        return total
    if isinstance(node, If):
        total = _cost(em, node.body, tops)
        if node.other is None:
            return total
        return em.greatest(total, _cost(em, node.other, tops))
    if isinstance(node, Alloc):
        return _cost(em, node.body, tops)
    trips, top = _trips(em, node, tops)
    inner = _cost(em, node.body, {**tops, node.axis: top})
    return em.mul(inner, trips)


def _operations(e: Expr) -> int:
    """Operations in an expression, a maths function counted as several."""
    if not isinstance(e, Op):
        return 0
    own = 20 if e.name in COSTLY else 1
    return own + sum(_operations(a) for a in e.args)


def _trips(em: Emitter, loop: For, tops: dict[Axis, Int]) -> tuple[Int, Int]:
    if loop.extent is not None:
        lanes = loop.width or 1 if loop.kind == "vectorize" else 1
        return max(1, loop.extent // lanes), loop.extent - 1
    result: Int | None = None
    for c, e in loop.upper:
        x = em.floor_div(_largest(em, e, tops), c)
        if result is None:
            result = x
        else:
            result = em.greatest(result, x) if loop.hull else em.least(result, x)
    assert result is not None
    return em.greatest(em.add(result, 1), 0), result


def _largest(em: Emitter, e: Lin, tops: dict[Axis, Int]) -> Int:
    """An upper bound of `e` where inner axes lie between 0 and `tops`."""
    total: Int = e.const
    for a, v in e.terms.items():
        x: Int
        if isinstance(a, tuple):
            inner = _largest(em, a[1], tops)
            x = em.floor_div(inner, a[2]) if a[0] == "//" else a[2] - 1
            if v < 0:
                continue
        elif isinstance(a, Var) or a in em.env:
            x = em.lin(Lin({a: 1}))
        elif v < 0:
            continue
        else:
            x = tops.get(a, 0)
        total = em.add(total, em.mul(x, v))
    return total


__all__ = ["bounds", "region"]
