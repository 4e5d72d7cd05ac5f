"""From lowered loops to LLVM text.

`emit` walks the loops once. Unrolled loops are written out, a vector loop becomes vectors,
every other loop a counted one; lanes, masks and addresses exist only here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorir.codegen import async_copies, atomics, crossing, intrinsics, prefetch, streaming, work
from tensorir.codegen.address import Flat, Spot, flat_of, home, locate
from tensorir.codegen.expressions import value
from tensorir.codegen.function import allocate, assemble, release, text_of
from tensorir.codegen.indirect import move
from tensorir.codegen.lanes import into_one, one_by_one, settle
from tensorir.codegen.loads import Instance
from tensorir.codegen.module import IndexCheck, Module
from tensorir.codegen.requirements import guarded_entry
from tensorir.codegen.source import Argument, KernelSource
from tensorir.codegen.stores import flush, may_turn, store, tail_of
from tensorir.codegen.types import BITS, MEMORY
from tensorir.codegen.values import Emitter, Int, Lane, Level
from tensorir.ir.affine import Fact, Lin
from tensorir.ir.expr import Var
from tensorir.ir.printer import loops_text
from tensorir.ir.statement import May, Statement
from tensorir.ir.stmt import Alloc, Block, Bound, For, If, Node, Run
from tensorir.support.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorir.ir.target import Target
    from tensorir.lower.pipeline import Lowered


def emit(
    lowered: Lowered,
    target: Target,
    *,
    name: str = "kernel",
    checked: bool = False,
    index_check: IndexCheck = "raise",
) -> KernelSource:
    """The LLVM text of a kernel, and what a call must know about it.

    Parameters
    ----------
    lowered
        Loops, storage and arguments, as `lower.pipeline.lower` gives them.
    target
        The processor; decides which instructions are at hand, not how wide the vectors are.
    name
        The symbol.
    checked
        Report integer division by zero and shifts by the width or more.
    index_check
        For an index that is loaded: `raise` reports one that is outside, `clamp` moves it
        inside, `off` trusts it.

    Returns
    -------
    KernelSource
        The same text in every process for the same input.

    Raises
    ------
    UnsupportedError
        A type that the target has no instructions for, or a loop bound to other hardware.
    """
    module = Module(lowered, target, name, checked=checked, index_check=index_check)
    for note in lowered.notes:
        module.note(note)
    module.streams = streaming.wanted(module, lowered)
    module.prefetches = prefetch.wanted(module, lowered)
    in_place = work.in_place(lowered.program)
    for output, inputs in in_place.items():
        for array in (output, *inputs):
            module.shared[array] = "shared"
    em = Emitter(module)
    params = []
    for k, array in enumerate(lowered.arguments):
        alone = "" if array in module.shared else " noalias"
        reads = " readonly" if array.role == "input" and array not in module.shared else ""
        align = max(1, BITS[MEMORY[array.dtype.name]] // 8)
        params.append(f"ptr{alone}{reads} align {align} %a{k}")
    sizes = lowered.program.sizes
    for k, size in enumerate(sizes):
        params.append(f"i64 %n{k}")
        em.env[size] = f"%n{k}"
    for k, array in enumerate(lowered.arguments):
        em.homes[array] = home(em, array, f"%a{k}")
    params.append("ptr %info")
    em.allocas += ["  %status = alloca i32, align 4", "  store i32 0, ptr %status, align 4"]
    body = function_body(em, lowered.body)
    requirements = lowered.program.requirements
    head = f"internal i32 @{name}.run" if requirements else f"i32 @{name}"
    em.module.functions += assemble(
        f"{head}({', '.join(params)})",
        em,
        [*body, "  %result = load i32, ptr %status, align 4", "  ret i32 %result"],
    )
    if requirements:
        em.module.functions += guarded_entry(module, name, params, sizes, requirements)
    streaming.report(module)
    arguments = tuple(
        Argument(
            a.name,
            a.dtype,
            a.shape,
            "input" if a.role == "input" else "output",
            tuple(x.name for x in in_place.get(a, ())),
            a.role == "output" and not work.covered(lowered.program, a),
        )
        for a in lowered.arguments
    )
    return KernelSource(
        name=name,
        llvm=text_of(module),
        arguments=arguments,
        sizes=tuple(sizes),
        target=target,
        checks=tuple(module.checks),
        imports=tuple(module.imports),
        parallel=module.parallel,
        operations=work.operations(lowered.program),
        bytes_moved=work.bytes_moved(lowered.arguments),
        loops=loops_text(lowered.body),
        notes=tuple(module.notes),
    )


def function_body(em: Emitter, node: Node) -> list[str]:
    """The lines of a function that runs `node`, after its allocas and before its return."""
    frees = allocate(em, node)
    go(em, node)
    leave(em)
    return release(em, frees)


# -- the walk


def go(em: Emitter, node: Node) -> None:
    """Write `node` here."""
    if isinstance(node, Run):
        run(em, node)
    elif isinstance(node, For):
        streaming.arms(em, node, lambda: _for(em, node))
    elif isinstance(node, Block):
        for item in node.items:
            go(em, item)
    elif isinstance(node, If):
        _if(em, node)
    else:
        _alloc(em, node)


def _for(em: Emitter, loop: For) -> None:
    if loop.kind == "bind":
        _bound(em, loop)
        return
    if loop.kind == "vectorize" and loop.extent is not None:
        _vector(em, loop, loop.extent, loop.width or loop.extent)
    elif loop.kind == "unroll" and loop.extent is not None:
        if loop.intrinsic is not None and em.lane is None and intrinsics.call(em, loop):
            return
        if loop.axis in em.rolled:
            _counted(em, loop)
            return
        outer = _open(em)
        for k in range(loop.extent):
            em.env[loop.axis] = k
            go(em, loop.body)
        _close(em, outer)
        del em.env[loop.axis]
    else:
        _counted(em, loop)


def _bound(em: Emitter, loop: For) -> None:
    """The points of a loop that this thread or block of a GPU runs: its number, if in bounds."""
    device = em.device
    if device is None:
        raise UnsupportedError(
            f"loop {loop.axis.name} is bound to {loop.bind}, which a CPU does not have",
            details='  try  target="cuda", or "emulator"',
        )
    axis = Lin({loop.axis: 1})
    last = device.extents.get(loop.axis)
    facts: list[Fact] = []
    if not loop.hull:  # what is in a hull has guards of its own
        facts += [("ge", axis * c - e) for c, e in loop.lower if not (e.is_const and e.const <= 0)]
        for c, e in loop.upper:
            beyond = last is not None and e.is_const and e.const // c >= last - 1
            sizes = all(isinstance(a, Var) for a in e.atoms())
            if not beyond and not (loop.axis in device.whole and sizes):
                facts.append(("ge", e - axis * c))
    em.env[loop.axis] = device.values[loop.axis]
    em.epoch += 1
    if crossing.crossed(loop):
        leave(em)
        flush(em)
        crossing.across(em, loop, facts)
    else:
        go(em, If(tuple(facts), loop.body) if facts else loop.body)
    em.epoch += 1
    del em.env[loop.axis]


def _open(em: Emitter) -> bool:
    """Begin a group of unrolled copies, in which strided stores wait for each other."""
    outer = em.pending is None
    if outer:
        em.pending = {}
    return outer


def _close(em: Emitter, outer: bool) -> None:
    if outer:
        leave(em)
        flush(em)
        em.pending = None


def _vector(em: Emitter, loop: For, extent: int, width: int) -> None:
    if em.lane is not None or extent % width:
        raise em.impossible(f"vector loop {loop.axis.name} of {extent} in vectors of {width}")
    outer = _open(em)
    em.folds = [] if isinstance(loop.body, Run) else None
    for base in range(0, extent, width):
        em.lane, em.width = loop.axis, width
        em.env[loop.axis] = Lane(base)
        if loop.intrinsic is None or not intrinsics.call(em, loop):
            go(em, loop.body)
        if base + width == extent:
            settle(em)
        em.lane, em.width = None, 0
    _close(em, outer)
    del em.env[loop.axis]


def bounds(em: Emitter, loop: For) -> tuple[Int, Int]:
    """The first and the last value of the axis of a loop."""

    def ends(found: tuple[Bound, ...], lower: bool) -> Int:
        result: Int | None = None
        for c, e in found:
            x = em.lin(e)
            x = em.ceil_div(x, c) if lower else em.floor_div(x, c)
            if result is None:
                result = x
            else:
                result = (em.greatest if lower != loop.hull else em.least)(result, x)
        assert result is not None
        return result

    return ends(loop.lower, True), ends(loop.upper, False)


def _counted(em: Emitter, loop: For) -> None:
    first, last = (0, loop.extent - 1) if loop.extent is not None else bounds(em, loop)
    if isinstance(first, int) and isinstance(last, int):
        if last < first:
            return
        if last == first:
            em.env[loop.axis] = first
            go(em, loop.body)
            del em.env[loop.axis]
            return
        em.limits[loop.axis] = first, last
    if loop.kind == "parallel" and not em.outlined and em.lane is None:
        from tensorir.codegen.parallel import region

        leave(em)
        region(em, loop, first, last)
    else:
        apart = em.lanes_apart(e for _, e in (*loop.lower, *loop.upper))
        em.apart += apart
        counted(em, loop, first, last)
        em.apart -= apart
    em.limits.pop(loop.axis, None)


def counted(em: Emitter, loop: For, first: Int, last: Int) -> None:
    """A loop from `first` to `last`, both inclusive; runs not at all if last < first."""
    leave(em)
    flush(em)
    pending, em.pending = em.pending, None
    em.serial += 1
    k = em.serial
    i, before = f"%i{k}", em.label
    if isinstance(first, int) and isinstance(last, int):
        em.emit(f"br label %b{k}")
    else:
        some = em.op("icmp sle i64 {0}, {1}", first, last)
        em.emit(f"br i1 {some}, label %b{k}, label %x{k}")
    em.start(f"b{k}")
    at = len(em.out)
    em.out.append("")
    level = Level()
    em.levels.append(level)
    em.out.append(level.entry)
    em.depth[i] = len(em.levels) - 1
    em.env[loop.axis] = i
    em.epoch += 1
    go(em, loop.body)
    leave(em)
    following = em.now(f"add nsw i64 {i}, 1", "nx")
    more = em.now(f"icmp sle i64 {following}, {last}", "c")
    em.out[at] = f"  {i} = phi i64 [ {first}, %{before} ], [ {following}, %{em.label} ]"
    em.emit(f"br i1 {more}, label %b{k}, label %x{k}, !llvm.loop !90")
    em.start(f"x{k}")
    em.levels.pop()
    em.epoch += 1
    del em.env[loop.axis]
    em.pending = pending


def _if(em: Emitter, node: If) -> None:
    apart = em.lanes_apart(e for _, e in node.conds)
    em.apart += apart
    _branches(em, node)
    em.apart -= apart


def _branches(em: Emitter, node: If) -> None:
    condition = em.all_hold(node.conds)
    if condition == "false":
        if node.other is not None:
            go(em, node.other)
        return
    if condition is None:
        go(em, node.body)
        return
    leave(em)
    flush(em)
    em.serial += 1
    k = em.serial
    otherwise = "else" if node.other is not None else "end"
    em.emit(f"br i1 {condition}, label %then{k}, label %{otherwise}{k}")
    em.start(f"then{k}")
    if node in em.module.lowered.versions:
        _version(em, node)
    else:
        go(em, node.body)
    leave(em)
    flush(em)
    em.emit(f"br label %end{k}")
    if node.other is not None:
        em.start(f"else{k}")
        go(em, node.other)
        leave(em)
        flush(em)
        em.emit(f"br label %end{k}")
    em.start(f"end{k}")


def _version(em: Emitter, node: If) -> None:
    """A copy of the nest for some sizes; those that its test fixes are constants in it."""
    sizes, homes = dict(em.env), dict(em.homes)
    for kind, e in node.conds:
        size = next(iter(e.terms), None)
        if kind == "eq" and len(e.terms) == 1 and isinstance(size, Var):
            em.env[size] = -e.const // e.coef(size)
    if em.env != sizes:
        for array, at in homes.items():
            em.homes[array] = home(em, array, at.pointer, at.storage)
    em.epoch += 1
    go(em, node.body)
    leave(em)
    flush(em)
    em.epoch += 1
    em.env, em.homes = sizes, homes


def _alloc(em: Emitter, node: Alloc) -> None:
    leave(em)
    buffer = em.demoted.get(node.buffer.array, node.buffer)
    if buffer.scope == "register":
        em.homes[buffer.array] = home(em, buffer.array, f"%register.{buffer.array.name}", buffer)
        go(em, node.body)
        return
    if buffer.array in em.homes and em.homes[buffer.array].storage is buffer:
        go(em, node.body)  # on entry of the function
        return
    from tensorir.codegen.function import allocate_here

    def body() -> None:
        go(em, node.body)
        leave(em)

    allocate_here(em, buffer, body)


# -- instances


def run(em: Emitter, node: Run) -> None:
    """One instance of a statement, or one for each lane."""
    if node.statement.synchronises:
        _synchronise(em, node.statement)
        return
    shared, mask = em.conditions(node.conds) if node.conds else (None, None)
    if shared == "false":
        return
    if shared is not None and _turns(em, node):
        # a branch would part it from its neighbours
        leave(em)
        em.tail = tail_of(em, node.conds)
        alive = em.mask_of(shared, mask)
        instance(em, Instance(node, node.statement, (*node.read_conds, *node.conds), alive))
        em.tail = None
        return
    if em.guarded is None or em.guarded[0] != shared:
        leave(em)
        if shared is not None:
            flush(em)
            em.guard(shared)
    needs = node.read_conds
    if mask is not None:
        needs = (*needs, *(c for c in node.conds if em.along_lanes(c) != 0))
    instance(em, Instance(node, node.statement, needs, mask))


def _synchronise(em: Emitter, stmt: Statement) -> None:
    """All threads of the block meet, or copies are waited for: what was read may have changed."""
    leave(em)
    flush(em)
    if stmt.role == "commit":
        em.module.declare("llvm.nvvm.cp.async.commit.group", "void", "")
        em.emit("call void @llvm.nvvm.cp.async.commit.group()")
        return
    waits = stmt.role == "wait"
    name = "cp.async.wait.group" if waits else "barrier.cta.sync.aligned.all"
    em.module.declare(f"llvm.nvvm.{name}", "void", "i32 immarg" if waits else "i32")
    em.emit(f"call void @llvm.nvvm.{name}(i32 {stmt.in_flight if waits else 0})")
    em.known.clear()


def _turns(em: Emitter, node: Run) -> bool:
    """Whether all that an instance writes are vectors that may be transposed with others."""
    stmt = node.statement
    if em.lane is None or em.pending is None or not all(r.exact for r in stmt.reads):
        return False
    flats = [flat_of(em, w, node) for w in stmt.writes]
    return all(may_turn(em, flat, locate(em, flat)) for flat in flats)


def leave(em: Emitter) -> None:
    """End a condition that the last instances shared: neighbours under one condition are written
    under one branch."""
    if em.guarded is not None:
        flush(em)
        em.unguard()


def instance(em: Emitter, inst: Instance) -> None:
    """Evaluate all bodies, then store all of them."""
    if inst.stmt in em.module.prefetches:
        prefetch.prefetch(em, inst)
    places: list[tuple[Flat, Spot, str | None, str | None]] = []
    for access in inst.stmt.writes:
        flat = flat_of(em, access, inst.run)
        spot = locate(em, flat)
        guard: str | None = None
        mask: str | None = None
        if flat.mays:
            spot, guard, mask = move(em, inst, access, flat, spot)
        places.append((flat, spot, guard, mask))
    if em.lane is not None and any(s.lane == 0 and s.lanes is None for _, s, _, _ in places):
        into_one(em, inst)
        return
    if _may_meet(em, [s for _, s, _, _ in places]):
        one_by_one(em, inst)
        return
    if skips(inst.stmt) and places[0][2] not in (None, "true"):
        _where_it_lies_inside(em, inst, str(places[0][2]))
        return
    if inst.stmt.atomic:
        if em.lane is not None:
            one_by_one(em, inst)
        else:
            atomics.update(em, inst, places[0][0], places[0][1])
        return
    if len(places) == 1 and async_copies.copy(em, inst, places[0][0], places[0][1]):
        return
    values = [value(em, inst, body) for body in inst.stmt.bodies]
    em.writer = inst.stmt if em.pending is not None and _writes_once(inst.stmt) else None
    for (flat, spot, guard, mask), v in zip(places, values, strict=True):
        mask = em.both(mask, inst.alive, em.width)
        if guard is None or guard == "true":
            store(em, flat, spot, v, mask)
        elif em.lane is not None:
            store(em, flat, spot, v, em.mask_of(guard, mask))
        else:
            _store_if(em, guard, flat, spot, v[0])


def _writes_once(stmt: Statement) -> bool:
    """Whether no two instances write one cell: the index tells all iterators."""
    if len(stmt.writes) != 1 or not stmt.writes[0].exact:
        return False
    index = stmt.writes[0].affine
    told = {a for e in index for a in e.terms if len(e.terms) == 1}
    return all(i in told for i in stmt.iters)


def _where_it_lies_inside(em: Emitter, inst: Instance, inside: str) -> None:
    """An instance whose cell may be nowhere, in which case it does nothing."""
    flush(em)
    em.serial += 1
    k = em.serial
    em.emit(f"br i1 {inside}, label %then{k}, label %end{k}")
    em.start(f"then{k}")
    mays = [i for w in inst.stmt.writes for i in w.index if isinstance(i, May)]
    em.reached_mays = frozenset(mays)
    instance(em, inst)
    em.reached_mays = frozenset()
    flush(em)
    em.emit(f"br label %end{k}")
    em.start(f"end{k}")


def skips(stmt: Statement) -> bool:
    """Whether an instance does nothing where an index of what it writes lies outside."""
    return any(isinstance(i, May) and i.skip for w in stmt.writes for i in w.index)


def _may_meet(em: Emitter, spots: list[Spot]) -> bool:
    """Whether lanes that reduce may share cells, some of them but not all: `C[k//3]`."""
    mark = em.module.lowered.marks.get(em.lane) if em.lane is not None else None
    if mark is None or mark.bind != "reduce":
        return False
    return any(s.lanes is not None or not isinstance(s.lane, int) for s in spots)


def _store_if(em: Emitter, guard: str, flat: Flat, spot: Spot, text: str) -> None:
    flush(em)
    em.serial += 1
    k = em.serial
    em.emit(f"br i1 {guard}, label %then{k}, label %end{k}")
    em.start(f"then{k}")
    store(em, flat, spot, (text, False), None)
    em.emit(f"br label %end{k}")
    em.start(f"end{k}")


__all__ = ["bounds", "counted", "emit", "function_body", "go", "instance", "run"]
