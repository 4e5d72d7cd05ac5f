"""LLVM: from text to an object, from an object to addresses. The only importer of llvmlite.

llvmlite is loaded at first use. Everything here is safe to call from several threads, one of
which compiles at a time. A fork waits until no thread is inside, so that a child can compile.
"""

from __future__ import annotations

import atexit
import itertools
import os
import re
import threading
import time
from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tensorir.support.errors import UnsupportedError, internal

if TYPE_CHECKING:
    from tensorir.ir.target import Target

__all__ = [
    "PIPELINE",
    "Host",
    "Library",
    "assembly",
    "compile_object",
    "data_layout",
    "host",
    "link",
    "require_runs_here",
    "runs_here",
    "version",
]

# Our own lowering vectorises, unrolls and hoists; what is left for LLVM is to put the
# accumulators, written as allocas, into registers. More passes cost time and gain nothing.
PIPELINE = ("sroa",)
_CODEGEN_LEVEL = 3
_LIBRARIES_A_LINKER = 64

_lock = threading.RLock()
_serial = itertools.count()
_discarded: deque[Any] = deque()
_exiting: list[bool] = []
atexit.register(_exiting.append, True)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


class Host(NamedTuple):
    """This machine, in LLVM's words."""

    triple: str
    cpu: str
    features: str


@cache
def _binding() -> Any:
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    return binding


@cache
def _every_target() -> None:
    binding = _binding()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


@cache
def host() -> Host:
    """The triple, processor name and feature list of this machine."""
    with _lock:
        binding = _binding()
        features = binding.get_host_cpu_features().flatten()
        return Host(binding.get_process_triple(), binding.get_host_cpu_name(), features)


@cache
def version() -> str:
    """Versions of llvmlite and of its LLVM: part of the key of every cached object."""
    with _lock:
        binding = _binding()
        import llvmlite

        llvm = ".".join(map(str, binding.llvm_version_info))
        return f"llvmlite {llvmlite.__version__}, LLVM {llvm}"


@cache
def _machine(triple: str, cpu: str, features: str) -> Any:
    binding = _binding()
    if triple.split("-")[0] != host().triple.split("-")[0]:
        _every_target()
    return binding.Target.from_triple(triple).create_target_machine(
        cpu=cpu,
        features=features,
        opt=_CODEGEN_LEVEL,
        reloc="pic",
        codemodel="default",
        jit=False,
    )


def _machine_of(target: Target) -> Any:
    return _machine(target.triple, target.cpu, target.features)


@cache
def data_layout(triple: str, cpu: str, features: str) -> str:
    """LLVM's description of sizes and alignments on a target."""
    with _lock:
        return str(_machine(triple, cpu, features).target_data)


def runs_here(target: Target) -> str | None:
    """Why code for `target` cannot run on this machine, or None if it can."""
    here = host()
    if target.triple.split("-")[0] != here.triple.split("-")[0]:
        return f"it is for {target.triple}, this machine is {here.triple}"
    have = frozenset(here.features.split(","))
    missing = [
        word[1:] for word in target.features.split(",") if word.startswith("+") and word not in have
    ]
    return f"this machine ({here.cpu}) lacks {', '.join(missing)}" if missing else None


def compile_object(
    text: str,
    target: Target,
    *,
    passes: Sequence[str] = PIPELINE,
    timings: MutableMapping[str, float] | None = None,
) -> bytes:
    """Compile a whole module of LLVM text to an object file.

    Parameters
    ----------
    text
        LLVM assembly with header and attributes, as :func:`tensorir.codegen.cpu.module` gives.
    target
        What to compile for; need not be this machine.
    passes
        llvmlite's names of the passes to run before code generation.
    timings
        Gets the milliseconds of each phase: parse, verify, optimize, codegen.

    Raises
    ------
    InternalError
        If LLVM refuses the text, which is then saved.
    """
    result: bytes = _compile(text, target, passes, "emit_object", timings)
    return result


def assembly(text: str, target: Target, *, passes: Sequence[str] = PIPELINE) -> str:
    """The assembly of a module that `compile_object` would make; any target."""
    result: str = _compile(text, target, passes, "emit_assembly", None)
    return result


def ptx(text: str, target: Target) -> str:
    """The PTX of a module for CUDA, by LLVM's own pipeline less its vectorisers.

    LLVM ends the process where it has no code for an instruction: call it through
    `codegen.worker`.

    Raises
    ------
    RuntimeError
        LLVM refuses the text.
    """
    with _lock:
        binding = _binding()
        machine = _machine_of(target)
        context = binding.create_context()
        module = binding.parse_assembly(text, context)
        try:
            module.verify()
            options = binding.create_pipeline_tuning_options(speed_level=3)
            options.slp_vectorization = options.loop_vectorization = False
            options.loop_unrolling = False
            builder = binding.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
            return str(machine.emit_assembly(module))
        finally:
            module.close()
            context.close()


# LLVM 22.1 turns a mask made from sign bits (vpmovq2m and kin) and moved to a general register into
# vmovmskpd and kin, which cannot name registers 16 to 31: the code then reads another register
# (llvm/llvm-project#191304). Only masks moved that way are concerned; where the assembly shows the
# impossible instruction, the module is compiled again without what makes such masks. Where it does
# not, that assembly becomes the object, which takes a tenth of compiling the module again.
_MOVES_MASKS = re.compile(
    r"bitcast <\d+ x i1>|masked\.(gather|scatter)|masked\.(load|store)\.v\d+(i8|i16|f16)"
)
_IMPOSSIBLE = re.compile(r"v?(movmskp[sd]|pmovmskb)\t%[xyz]mm(1[6-9]|2\d|3[01])\b")
_MASK_MAKERS = ("avx512dq", "avx512bw")


def _compile(
    text: str,
    target: Target,
    passes: Sequence[str],
    emit: str,
    timings: MutableMapping[str, float] | None,
) -> Any:
    if target.has("avx512f") and _MOVES_MASKS.search(text):
        shown = _compile_once(text, target, passes, "emit_assembly", timings)
        if not _IMPOSSIBLE.search(shown):
            if emit == "emit_assembly":
                return shown
            if _reads_assembly(target):
                return _assemble(shown, text, target, timings)
        else:
            text, target = _without(text, target, _MASK_MAKERS)
    return _compile_once(text, target, passes, emit, timings)


_ASM_ESCAPES = str.maketrans({c: f"\\{ord(c):02X}" for c in '\\"\n\t'})


def _assemble(
    shown: str, text: str, target: Target, timings: MutableMapping[str, float] | None
) -> Any:
    """The object of a module from its assembly, as a module that holds nothing else."""
    header = [line for line in text.splitlines() if line.startswith("target ")]
    module = "\n".join((*header, f'module asm "{shown.translate(_ASM_ESCAPES)}"', ""))
    spent: dict[str, float] = {}
    made = _compile_once(module, target, (), "emit_object", spent)
    if timings is not None:
        timings["codegen"] += sum(spent.values())
    return made


def _reads_assembly(target: Target) -> bool:
    """Whether LLVM is there to read its assembly: llvmlite has it for this machine's kind only."""
    return target.triple.split("-")[0] == host().triple.split("-")[0]


def _without(text: str, target: Target, features: Sequence[str]) -> tuple[str, Target]:
    """The module and the target less some features, and less what needs those."""
    off = "".join(f",-{f}" for f in features)
    text = re.sub(r'("target-features"="[^"]*)', lambda m: m[1] + off, text)
    return text, replace(target, features=target.features + off)


def _compile_once(
    text: str,
    target: Target,
    passes: Sequence[str],
    emit: str,
    timings: MutableMapping[str, float] | None,
) -> Any:
    clock = time.perf_counter
    with _lock:
        _drain()
        binding = _binding()
        machine = _machine_of(target)
        context = binding.create_context()
        module = None
        try:
            t0 = clock()
            module = binding.parse_assembly(text, context)
            t1 = clock()
            module.verify()
            t2 = clock()
            _optimize(module, machine, passes)
            t3 = clock()
            result = getattr(machine, emit)(module)
            t4 = clock()
        except RuntimeError as problem:
            first = str(problem).strip().splitlines()
            message = f"LLVM refused the generated code: {' '.join(first)[:300]}"
            raise internal(message, state=text, cause=problem) from problem
        finally:
            if module is not None:
                module.close()
            context.close()
    if timings is not None:
        ends = {"parse": t1, "verify": t2, "optimize": t3, "codegen": t4}
        starts = (t0, t1, t2, t3)
        for (phase, end), start in zip(ends.items(), starts, strict=True):
            timings[phase] = 1e3 * (end - start)
    return result


def _optimize(module: Any, machine: Any, passes: Sequence[str]) -> None:
    if not passes:
        return
    binding = _binding()
    options = binding.create_pipeline_tuning_options(speed_level=0)
    options.slp_vectorization = options.loop_vectorization = options.loop_interleaving = False
    builder = binding.create_pass_builder(machine, options)
    manager = binding.create_new_module_pass_manager()
    for name in passes:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)


class _Linkers:
    """The linker in use. ORC keeps some kilobytes for each library that was ever linked, until it
    goes itself: so a new one takes over now and then, and an old one goes with its last library."""

    current: Any = None
    left = 0

    @classmethod
    def take(cls) -> Any:
        if not cls.left:
            here = host()
            machine = _machine(here.triple, here.cpu, here.features)
            cls.current = _binding().create_lljit_compiler(
                machine, use_jit_link=True, suppress_errors=True
            )
            cls.left = _LIBRARIES_A_LINKER
        cls.left -= 1
        return cls.current


class Library:
    """Code linked into this process; unloaded when the object is dropped.

    `library[name]` is the address of an exported symbol.
    """

    __slots__ = ("__weakref__", "_addresses", "_linker", "_tracker")

    def __init__(self, tracker: Any, linker: Any, exports: Sequence[str]) -> None:
        self._tracker = tracker
        self._linker = linker
        self._addresses = {name: int(tracker[name]) for name in exports}

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]

    def __del__(self, _exiting: list[bool] = _exiting) -> None:
        if _exiting:
            return  # the system takes everything back; LLVM may be half gone already
        # the collector may come while some thread is inside LLVM: never wait for a lock here
        _discarded.append((self._tracker, self._linker))
        if _lock.acquire(blocking=False):
            try:
                _drain()
            finally:
                _lock.release()


def _drain() -> None:
    while True:
        try:
            tracker, _linker = _discarded.popleft()
        except IndexError:
            return
        tracker.close()


def link(object_code: bytes, exports: Sequence[str], imports: Mapping[str, int]) -> Library:
    """Load an object into this process.

    Parameters
    ----------
    object_code
        An object file for this machine.
    exports
        Symbols whose addresses are wanted.
    imports
        Addresses of all symbols that it needs.

    Raises
    ------
    InternalError
        If a symbol is missing or the object is malformed.
    """
    with _lock:
        _drain()
        builder = _binding().JITLibraryBuilder()
        builder.add_object_img(object_code)
        for name, address in imports.items():
            builder.import_symbol(name, address)
        for name in exports:
            builder.export_symbol(name)
        try:
            linker = _Linkers.take()
            tracker = builder.link(linker, f"tensorir-{next(_serial)}")
        except RuntimeError as problem:
            needs = f"exports {list(exports)}, imports {list(imports)}"
            message = f"compiled code could not be linked: {' '.join(str(problem).split())[:300]}"
            raise internal(message, state=needs, cause=problem) from problem
        return Library(tracker, linker, exports)


def require_runs_here(target: Target) -> None:
    """Raise `UnsupportedError` if code for `target` cannot run on this machine."""
    why = runs_here(target)
    if why is not None:
        raise UnsupportedError(
            f"code for {target} can be built and read here, but not run: {why}",
            details='  try  target="native", or run it on such a machine',
        )
