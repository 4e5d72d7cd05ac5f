"""What this machine has and what it lacks: the facts behind `tensorir doctor`.

Nothing here needs a GPU, a driver or a network, and no probe waits for long: the CUDA driver is
asked in a process of its own, which is given up after some seconds.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tensorir.codegen import cpu, llvm
from tensorir.ir.language import compute, placeholder
from tensorir.runtime import layout, ptxas, threads
from tensorir.runtime.build import build
from tensorir.schedule.schedule import schedule
from tensorir.support import cache
from tensorir.support.errors import TensorIRError
from tensorir.support.knobs import knobs

__all__ = ["Fact", "Missing", "Report", "report"]

_PATIENCE = 10.0  # seconds for a foreign program or driver to answer
_CORE = ("numpy", "ml_dtypes", "islpy", "llvmlite", "cuda-python", "sympy", "platformdirs",
         "filelock")  # fmt: skip
# extra, package, what goes without it
_EXTRAS = (
    ("notebook", "ipykernel", "notebooks do not run here"),
    ("dev", "pytest", "the test suite does not run"),
)
_WORTH_TELLING = ("avx512f", "avx512bf16", "avx512fp16", "avx512vnni", "amx-tile", "avx2", "fma",
                  "f16c", "neon", "sve")  # fmt: skip
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of a report: under which heading, what it is about, and what was found."""

    heading: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that is not there: what, what that costs, and how to get it."""

    name: str
    cost: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All of it. `works` says whether a kernel was compiled, run, and gave the right numbers."""

    facts: tuple[Fact, ...]
    missing: tuple[Missing, ...]
    works: bool


def report() -> Report:
    """Look at this machine. Takes a second or two; raises nothing."""
    facts: list[Fact] = []
    missing: list[Missing] = []
    works = False
    for part in (_python, _libraries, _processor, _openmp, _cache, _cuda, _self_test, _emulator):
        for found in part():
            if isinstance(found, Missing):
                missing.append(found)
            else:
                facts.append(found)
                works = works or (found.heading == "kernels" and found.name == "test")
    return Report(tuple(facts), tuple(missing), works)


_Found = Iterable[Fact | Missing]


def _python() -> _Found:
    yield Fact("python", "version", f"{platform.python_version()} ({sys.implementation.name})")
    yield Fact("python", "system", f"{platform.platform()}, {platform.machine()}")
    first, last = (3, 11), (3, 13)
    if not first <= sys.version_info[:2] <= last:
        yield Missing("a tested Python", "3.11 to 3.13 are tested; this one may work")


def _libraries() -> _Found:
    for name in _CORE:
        version = _version(name)
        if version is not None:
            yield Fact("libraries", name, version)
        elif name == "cuda-python" and sys.platform == "darwin":
            yield Fact("libraries", name, "has no macOS version")
        else:
            cost = "no kernels for GPUs" if name == "cuda-python" else "parts of the library fail"
            yield Missing(name, cost, f"pip install {name}")
    yield Fact("libraries", "LLVM", llvm.version().rpartition("LLVM ")[2])
    for extra, name, cost in _EXTRAS:
        if _version(name) is None:
            yield Missing(name, cost, f"pip install 'tensorir[{extra}]'")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> _Found:
    here = cpu.target("native")
    features = [f for f in _WORTH_TELLING if here.has(f)]
    yield Fact("processor", "name", _model() or here.cpu)
    yield Fact("processor", "LLVM's name", here.cpu)
    yield Fact("processor", "features", " ".join(features) or "none of the usual ones")
    registers = f"{here.vector_registers} of {here.vector_bytes} bytes"
    yield Fact("processor", "vector registers", registers)
    sizes = ", ".join(
        f"{n} {_size(b)}" for n, b in (("L1", here.l1), ("L2", here.l2), ("L3", here.l3))
    )
    yield Fact("processor", "caches", sizes)
    yield Fact("processor", "for this process", f"{here.threads} of {os.cpu_count()} processors")
    if not (sys.platform == "linux" and here.is_x86):
        yield Missing("Linux on x86-64", "the library runs, but is tuned and tested only there")
    elif not here.has("avx2") or not here.has_fma:
        yield Missing("AVX2 and FMA", "vectors of 16 bytes, and fma in software: slow")


def _model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor()


def _size(n: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (_MIB, "MiB")):
        if n >= unit:
            return f"{n / unit:.3g} {name}"
    return f"{n / 1024:.3g} KiB"


def _openmp() -> _Found:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = threads.runtime()
        count = threads.num_threads()
    if found.kind == "none":
        remedy = "install libgomp1, or pip install 'tensorir[openmp]'"
        yield Missing("OpenMP", "parallel loops run in one thread", remedy)
        return
    yield Fact("threads", "OpenMP", f"{found.kind}, {found.path} ({found.found})")
    yield Fact("threads", "a parallel loop uses", f"{count}")


def _cache() -> _Found:
    folder = Path(cache.root()) / "objects"
    yield Fact("cache", "folder", str(folder))
    if not knobs.cache_enabled:
        yield Missing("the cache", "each kernel is compiled anew", "TENSORIR_CACHE_ENABLED=1")
        return
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        held = cache.Cache(folder)
        usable = held.usable
    if not usable:
        why = getattr(told[0].message, "text", "") if told else ""
        yield Missing("the cache", why or "each kernel is compiled anew", "TENSORIR_CACHE_DIR=...")
        return
    sizes = list(_file_sizes(folder))
    limit = _size(knobs.cache_size)
    yield Fact("cache", "holds", f"{len(sizes)} kernels, {_size(sum(sizes))} of at most {limit}")


def _file_sizes(folder: Path) -> Iterator[int]:
    for path in folder.glob("*.object"):
        try:
            yield path.stat().st_size
        except OSError:
            continue


# -- CUDA

# Asks the driver for its version and devices; attribute 75 and 76 are the compute capability.
_ASK_DRIVER = """
import ctypes, json, sys
d = ctypes.CDLL(sys.argv[1])
v = ctypes.c_int()
d.cuDriverGetVersion(ctypes.byref(v))
out = {"version": v.value, "error": d.cuInit(0), "devices": []}
n = ctypes.c_int()
if out["error"] == 0 and d.cuDeviceGetCount(ctypes.byref(n)) == 0:
    for k in range(n.value):
        name = ctypes.create_string_buffer(256)
        d.cuDeviceGetName(name, 256, k)
        a, b = ctypes.c_int(), ctypes.c_int()
        d.cuDeviceGetAttribute(ctypes.byref(a), 75, k)
        d.cuDeviceGetAttribute(ctypes.byref(b), 76, k)
        out["devices"].append([name.value.decode(errors="replace"), a.value, b.value])
print(json.dumps(out))
"""


def _cuda() -> _Found:
    if sys.platform == "darwin":
        return
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    said = _run([sys.executable, "-c", _ASK_DRIVER, library])
    yield from _driver(said)
    for tool, cost in _TOOLS:
        path = ptxas.find(tool)
        if path is None:
            yield Missing(tool, cost, "pip install 'tensorir[cuda]'")
        else:
            yield Fact("CUDA", tool, f"{ptxas.version(path)}, {path}")


_TOOLS = (
    ("ptxas", "the driver assembles code for GPUs; no Kernel.resources"),
    ("nvdisasm", "no Kernel.sass, unless cuobjdump is there"),
)


def _driver(said: str | None) -> _Found:
    if said is None:
        yield Missing("the CUDA driver", "kernels run on the CPU only")
        return
    try:
        told: dict[str, Any] = json.loads(said)
    except ValueError:
        yield Missing("a CUDA driver that answers", "kernels run on the CPU only")
        return
    major, minor = told["version"] // 1000, told["version"] % 1000 // 10
    yield Fact("CUDA", "driver", f"for CUDA {major}.{minor}")
    if told["error"]:
        cost = f"the driver does not start (error {told['error']})"
        yield Missing("a CUDA device", cost)
    for name, high, low in told["devices"]:
        yield Fact("CUDA", "device", f"{name}, compute capability {high}.{low}")


def _run(command: list[str]) -> str | None:
    """What a program prints; None where it is not there, fails, or does not end."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return done.stdout if done.returncode == 0 else None


# -- kernels


def _self_test() -> _Found:
    """Compile and run a small kernel, the object cache aside."""
    import numpy as np

    how = "machine code" if layout.holds() else "ctypes"
    if how == "ctypes":
        cost = "a call takes microseconds in place of tens of nanoseconds"
        yield Missing("a known layout of Python's objects", cost)
    yield Fact("kernels", "called through", how)
    x = np.arange(100, dtype=np.float32)
    try:
        with knobs.override(cache_enabled=False):
            a = placeholder((100,), "float32", name="a")
            start = time.perf_counter()
            f = build(compute((100,), lambda i: a[i] * 2.0 + 1.0, name="b"))
            took = 1e3 * (time.perf_counter() - start)
        right = bool(np.array_equal(f(x), x * 2 + 1))
    except (TensorIRError, ImportError, OSError) as error:
        yield Missing("a kernel that runs", f"{type(error).__name__}: {error}")
        return
    if not right:
        yield Missing("a kernel that is right", "a test kernel gave wrong numbers: report this")
        return
    yield Fact("kernels", "test", f"compiled and right, {took:.0f} ms")


def _emulator() -> _Found:
    """Compile a small kernel for CUDA, and run it in the emulator."""
    import numpy as np

    x = np.arange(100, dtype=np.float32)
    start = time.perf_counter()
    try:
        a = placeholder((100,), "float32", name="a")
        s = schedule(compute((100,), lambda i: a[i] * 2.0 + 1.0, name="b"))
        s = s.split("i", 32, into=("io", "ii")).bind("io", "blockIdx.x").bind("ii", "threadIdx.x")
        right = bool(np.array_equal(build(s, target="emulator")(x), x * 2 + 1))
    except (TensorIRError, ImportError, OSError) as error:
        yield Missing("the emulator of CUDA", f"{type(error).__name__}: {error}")
        return
    took = 1e3 * (time.perf_counter() - start)
    if not right:
        yield Missing("the emulator of CUDA", "a test kernel gave wrong numbers: report this")
        return
    yield Fact("CUDA kernels", "emulator", f"compiled, run and right, {took:.0f} ms")
