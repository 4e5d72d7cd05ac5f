"""Functions and their private buffers: allocated on entry, checked, freed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tensorir.codegen.address import home
from tensorir.codegen.module import Module
from tensorir.codegen.streaming import fence
from tensorir.codegen.types import BITS, MEMORY
from tensorir.codegen.values import Emitter, Int, Level, Lines
from tensorir.ir.statement import Array
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run, Storage
from tensorir.support.errors import UnsupportedError

# loops that LLVM must not unroll again, and branches that are hardly ever taken
METADATA = """\
!90 = distinct !{!90, !91}
!91 = !{!"llvm.loop.unroll.disable"}
!92 = !{!"branch_weights", i32 1, i32 2000}"""


def text_of(module: Module) -> str:
    """Everything that was written, declarations first."""
    return "\n".join(
        [*module.declarations.values(), *module.globals.values(), *module.functions, METADATA, ""]
    )


def assemble(head: str, em: Emitter, body: list[str]) -> list[str]:
    """The lines of a function."""
    return [f"define {head} #0 {{", "entry:", *em.allocas, *body, "}"]


def flat_lines(lines: Lines) -> list[str]:
    """Instructions in order, those moved to the entry of a loop where that entry is."""
    out: list[str] = []
    stack: list[Iterator[str | Lines]] = [iter(lines)]
    while stack:
        for x in stack[-1]:
            if isinstance(x, str):
                out.append(x)
            else:
                stack.append(iter(x))
                break
        else:
            stack.pop()
    return out


def _buffers(node: Node, outlined: bool) -> Iterator[Storage]:
    """Buffers that this function allocates; those under a parallel loop belong to its body."""
    if isinstance(node, Block):
        for item in node.items:
            yield from _buffers(item, outlined)
    elif isinstance(node, For):
        if node.kind != "parallel" or outlined:
            yield from _buffers(node.body, outlined)
    elif isinstance(node, If):
        yield from _buffers(node.body, outlined)
        if node.other is not None:
            yield from _buffers(node.other, outlined)
    elif isinstance(node, Alloc):
        yield node.buffer
        yield from _buffers(node.body, outlined)


def allocate(em: Emitter, node: Node) -> list[str]:
    """Allocate on entry what has a size that is known there; returns what to free."""
    arena: list[str] = []
    versioned = isinstance(node, If) and node in em.module.lowered.versions
    lent = frozenset() if em.outlined else _lent(node)
    for buffer in dict.fromkeys(_buffers(node, em.outlined)):
        in_registers = buffer.scope == "register"
        if in_registers and buffer.array in lent:
            em.module.note(f"{buffer.array.name}: in memory, for a parallel loop reads it")
            buffer = replace(buffer, scope="stack", register=None)
            em.demoted[buffer.array] = buffer
        elif in_registers or not _known_on_entry(em, buffer):
            continue
        if buffer.scope == "shared":
            continue  # a part of the block's arena, in its place already
        if buffer.scope == "stack":
            em.homes[buffer.array] = home(em, buffer.array, _on_stack(em, buffer), buffer)
            continue
        if versioned:
            continue  # of one version of the nest: taken where that runs
        if em.device is not None:
            raise too_large(buffer)
        pointer = _request(em, buffer)
        arena.append(pointer)
        em.homes[buffer.array] = home(em, buffer.array, pointer, buffer)
    if arena:
        granted = tuple(arena)
        _check(em, arena)
        _enter(em, granted)
    return arena


def _lent(node: Node) -> frozenset[Array]:
    """Private arrays that a parallel loop uses and this function allocates."""
    if isinstance(node, For) and node.kind == "parallel":
        return _touched(node.body)
    return frozenset[Array]().union(*map(_lent, _inside(node)))


def _touched(node: Node) -> frozenset[Array]:
    """Arrays that `node` uses and does not allocate."""
    if isinstance(node, Run):
        s = node.statement
        return frozenset(a.array for a in (*s.reads, *s.writes))
    found = frozenset[Array]().union(*map(_touched, _inside(node)))
    return found - {node.buffer.array} if isinstance(node, Alloc) else found


def _inside(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Block):
        return node.items
    if isinstance(node, If):
        return (node.body,) if node.other is None else (node.body, node.other)
    return () if isinstance(node, Run) else (node.body,)


def _enter(em: Emitter, granted: tuple[str, ...]) -> None:
    """What depends on buffers stands no further out than here."""
    level = Level()
    em.levels.append(level)
    em.out.append(level.entry)
    for pointer in granted:
        em.depth[pointer] = len(em.levels) - 1
    em.epoch += 1


def release(em: Emitter, arena: list[str]) -> list[str]:
    """Close a function body whose buffers `allocate` made; its lines."""
    fence(em)
    if arena:
        _free(em, arena)
    return flat_lines(em.out)


def _known_on_entry(em: Emitter, buffer: Storage) -> bool:
    """Whether the size depends on nothing but sizes, and axes outside this function."""
    return all(a in em.env for e in buffer.shape for a in e.atoms())


def _on_stack(em: Emitter, buffer: Storage) -> str:
    count = 1
    for e in buffer.shape:
        if not e.is_const:
            raise em.impossible(f"{buffer.array.name} on the stack has no constant size")
        count *= max(0, e.const)
    return em.alloca(MEMORY[buffer.array.dtype.name], "buf", count=max(1, count))


def _request(em: Emitter, buffer: Storage, *, here: bool = False) -> str:
    """Call the allocator, on entry or `here`; a size that overflows asks for more than there is."""
    size: Int = max(1, BITS[MEMORY[buffer.array.dtype.name]] // 8)
    overflow: str | None = None
    for e in buffer.shape:
        n = em.greatest(em.lin(e), 0)
        if isinstance(size, int) and isinstance(n, int):
            size *= n
            continue
        em.module.declare("llvm.umul.with.overflow.i64", "{ i64, i1 }", "i64, i64")
        form = "call { i64, i1 } @llvm.umul.with.overflow.i64(i64 {0}, i64 {1})"
        form = form.replace("{ i64", "{{ i64").replace("i1 }", "i1 }}")
        pair = em.op(form, size, n)
        size = em.op("extractvalue {{ i64, i1 }} {0}, 0", pair)
        bad = em.op("extractvalue {{ i64, i1 }} {0}, 1", pair)
        overflow = bad if overflow is None else em.op("or i1 {0}, {1}", overflow, bad)
    padded: Int
    if isinstance(size, int):
        padded = max(64, -(-size // 64) * 64)
    else:
        padded = em.op("and i64 {0}, -64", em.add(size, 127))
        if overflow is not None:
            padded = em.op("select i1 {0}, i64 -64, i64 {1}", overflow, padded)
    em.module.call_outside("tir_scratch_take", "ptr", "i64")
    em.module.call_outside("tir_scratch_give", "void", "ptr")
    if here:
        return em.now(f"call ptr @tir_scratch_take(i64 {padded})", hint="buf")
    em.serial += 1
    # the number makes each call its own
    return em.op(f"call ptr @tir_scratch_take(i64 {{0}}) ; {em.serial}", padded, hint="buf")


def too_large(buffer: Storage) -> UnsupportedError:
    """A buffer that a thread of a GPU cannot keep: `_request` has no allocator there."""
    shape = " by ".join(str(e) for e in buffer.shape)
    return UnsupportedError(
        f"{buffer.array.name} would need {shape} elements in each thread of the GPU",
        details=f'  try  s.set_scope("{buffer.array.name}", "shared"), or a smaller tile',
    )


def _check(em: Emitter, arena: list[str]) -> None:
    """Go on only if every buffer was granted."""
    ok: str | None = None
    for pointer in arena:
        ok = em.both(ok, em.op("icmp ne ptr {0}, null", pointer))
    status = em.module.check(
        f"out of memory: {em.module.name.removeprefix('tir_')} could not allocate its private "
        "buffers"
    )
    em.serial += 1
    k = em.serial
    em.emit(f"br i1 {ok}, label %granted{k}, label %refused{k}")
    em.start(f"refused{k}")
    em.fail(status)
    em.emit(f"br label %freed{k}")
    em.start(f"granted{k}")
    arena.append(f"freed{k}")


def _free(em: Emitter, arena: list[str]) -> None:
    label = arena[-1]
    em.emit(f"br label %{label}")
    em.start(label)
    for pointer in arena[:-1]:
        em.emit(f"call void @tir_scratch_give(ptr {pointer})")


def allocate_here(em: Emitter, buffer: Storage, body: Callable[[], None]) -> None:
    """A buffer whose size depends on the loops around it, for one execution of `body`."""
    from tensorir.codegen.stores import flush

    flush(em)
    before = em.flats
    em.flats = {k: f for k, f in before.items() if f.home.array is not buffer.array}
    stack = buffer.scope == "stack"
    if em.device is not None and not stack:
        raise too_large(buffer)
    arena = [_on_stack(em, buffer) if stack else _request(em, buffer, here=True)]
    if not stack:
        _check(em, arena)
    _enter(em, (arena[0],))
    em.homes[buffer.array] = home(em, buffer.array, arena[0], buffer)
    body()
    flush(em)
    em.levels.pop()
    em.epoch += 1
    if not stack:
        _free(em, arena)
    del em.homes[buffer.array]
    em.flats = {k: f for k, f in em.flats.items() if f.home.array is not buffer.array}
