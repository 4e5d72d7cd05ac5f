"""From lowered launches to LLVM text for CUDA: one entry for each.

The statements are written by the same emitter as for a processor, over generic pointers that are
cast from their spaces on entry; LLVM finds the spaces again. What is left to do here is what the
loops do not have: the numbers of threads and blocks, barriers, shared memory.
"""

from __future__ import annotations

from tensorir.codegen import work
from tensorir.codegen.address import home
from tensorir.codegen.emit import function_body
from tensorir.codegen.function import METADATA, assemble
from tensorir.codegen.module import IndexCheck, Module
from tensorir.codegen.source import Argument, Check, KernelSource, LaunchSource
from tensorir.codegen.values import Device, Emitter, Int
from tensorir.ir.printer import loops_text
from tensorir.ir.statement import Array
from tensorir.ir.stmt import Block, Bound
from tensorir.ir.target import Target
from tensorir.lower.launches import LoweredLaunch, axes_of
from tensorir.poly.launches import BLOCK_INDICES, THREAD_INDICES
from tensorir.poly.model import Program
from tensorir.support.errors import UnsupportedError

_SPECIAL = {
    i: f"llvm.nvvm.read.ptx.sreg.{name}.{i[-1]}"
    for name, indices in (("ctaid", BLOCK_INDICES), ("tid", THREAD_INDICES))
    for i in indices
}
_REPORT = """\
  %failed = load i32, ptr %status, align 4
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %tell, label %done
tell:
  %number = sext i32 %failed to i64
  %pair = cmpxchg ptr %report, i64 0, i64 %number monotonic monotonic
  %first = extractvalue { i64, i1 } %pair, 1
  br i1 %first, label %fill, label %done
fill:
  %values = load <4 x i64>, ptr %info, align 8
  %rest = getelementptr i64, ptr %report, i64 1
  store <4 x i64> %values, ptr %rest, align 8
  br label %done
done:
  ret void"""


def emit_launches(
    program: Program,
    launches: tuple[LoweredLaunch, ...],
    scratch: tuple[Array, ...],
    arguments: tuple[Array, ...],
    target: Target,
    *,
    name: str,
    checked: bool,
    index_check: IndexCheck,
) -> KernelSource:
    """The LLVM text of all launches of a kernel, and what a call must know about them."""
    checks: list[Check] = []
    modules: list[Module] = []
    sources: list[LaunchSource] = []
    every = (*arguments, *scratch)
    for k, launch in enumerate(launches):
        own = name if len(launches) == 1 else f"{name}_{k}"
        module = Module(launch.lowered, target, own, checked=checked, index_check=index_check)
        module.checks = checks
        for note in launch.lowered.notes:
            module.note(note)
        modules.append(module)
        sources.append(_entry(module, launch, every))
    declarations: dict[str, str] = {}
    globals_: dict[str, str] = {}
    for module in modules:
        declarations |= module.declarations
        globals_ |= module.globals
    functions = [line for module in modules for line in module.functions]
    text = "\n".join([*declarations.values(), *globals_.values(), *functions, METADATA, ""])
    return KernelSource(
        name=name,
        llvm=text,
        arguments=tuple(_argument(program, a) for a in arguments),
        sizes=tuple(program.sizes),
        target=target,
        checks=tuple(checks),
        operations=work.operations(program),
        bytes_moved=work.bytes_moved(arguments),
        loops=loops_text(_joined(launches)),
        launches=tuple(sources),
        scratch=tuple(_argument(program, a) for a in scratch),
        notes=tuple(dict.fromkeys(n for module in modules for n in module.notes)),
    )


def _joined(launches: tuple[LoweredLaunch, ...]) -> Block:
    return Block(tuple(x.lowered.body for x in launches))


def _argument(program: Program, a: Array) -> Argument:
    return Argument(
        a.name,
        a.dtype,
        a.shape,
        "input" if a.role == "input" else "output",
        (),
        a.role == "output" and not work.covered(program, a),
    )


def _entry(module: Module, launch: LoweredLaunch, every: tuple[Array, ...]) -> LaunchSource:
    lowered = launch.lowered
    em = Emitter(module)
    params: list[str] = []
    casts: list[str] = []
    numbers = []
    for k, array in enumerate(lowered.arguments):
        reads = " readonly" if array.role == "input" else ""
        params.append(f"ptr addrspace(1) noalias{reads} align 16 %g{k}")
        casts.append(f"  %a{k} = addrspacecast ptr addrspace(1) %g{k} to ptr")
        numbers.append(every.index(array))
    for k, size in enumerate(lowered.program.sizes):
        params.append(f"i64 %n{k}")
        em.env[size] = f"%n{k}"
    entry = em.levels[0].entry
    entry += casts
    for k, array in enumerate(lowered.arguments):
        em.homes[array] = home(em, array, f"%a{k}")
    em.device = _device(em, launch)
    if launch.shared:
        _shared(em, launch)
    em.allocas += ["  %status = alloca i32, align 4", "  store i32 0, ptr %status, align 4"]
    em.allocas += ["  %info = alloca [4 x i64], align 8"]
    body = function_body(em, lowered.body)
    if module.imports:
        raise UnsupportedError(
            f"{', '.join(module.imports)}: there is no such function on a GPU",
            details="  why  it is computed lane by lane with the C library on a processor",
        )
    tail = ["  ret void"]
    if em.fails:
        params.append("ptr addrspace(1) %told")
        em.allocas.append("  %report = addrspacecast ptr addrspace(1) %told to ptr")
        tail = _REPORT.splitlines()
    x, y, z = launch.threads
    head = f'ptx_kernel void @{module.name}({", ".join(params)}) "nvvm.reqntid"="{x},{y},{z}"'
    module.functions += assemble(head, em, [*body, *tail])
    return LaunchSource(
        module.name,
        tuple(numbers),
        launch.grid,
        launch.threads,
        launch.shared_bytes,
        bool(em.fails),
        tuple(launch.reasons.values()),
    )


def _device(em: Emitter, launch: LoweredLaunch) -> Device:
    """The number of the thread and the block along each index, as 64 bits."""
    known: dict[str, Int] = {}
    axes = axes_of(launch.lowered)
    for index in dict.fromkeys(axes.values()):
        if index in THREAD_INDICES and launch.threads[THREAD_INDICES.index(index)] == 1:
            known[index] = 0
            continue
        function = _SPECIAL[index]
        em.module.declare(function, "i32", "")
        small = em.op(f"call range(i32 0, 2147483647) i32 @{function}()", hint=index[0])
        known[index] = em.op("zext nneg i32 {0} to i64", small, hint=index[0])
    whole = (a for a, i in axes.items() if i in BLOCK_INDICES and len(_loops(launch, i)) == 1)
    extents = {
        a: launch.threads[THREAD_INDICES.index(i)] for a, i in axes.items() if i in THREAD_INDICES
    }
    return Device({a: known[i] for a, i in axes.items()}, extents, frozenset(whole))


def _loops(launch: LoweredLaunch, index: str) -> tuple[tuple[Bound, ...], ...]:
    return launch.grid[BLOCK_INDICES.index(index)]


def _shared(em: Emitter, launch: LoweredLaunch) -> None:
    """One arena of dynamic shared memory, in which each buffer has its place."""
    name = f"{em.module.name}_shared"  # ptxas takes no dot in a name
    em.module.globals[name] = f"@{name} = external addrspace(3) global [0 x i8], align 128"
    cast = f"addrspacecast (ptr addrspace(3) @{name} to ptr)"
    base = em.op(f"getelementptr i8, ptr {cast}, i64 0", hint="shared")
    for s in launch.lowered.storages:
        if s.array in launch.shared:
            at = em.op("getelementptr i8, ptr {0}, i64 {1}", base, launch.shared[s.array], hint="s")
            em.homes[s.array] = home(em, s.array, at, s)
