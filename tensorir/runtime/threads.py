"""Threads: the OpenMP runtime of this process, and how many threads a parallel loop uses.

What emitted code relies on, all of them symbols that are given to the linker:

``@tir_threads``, i32
    How many threads a parallel region is to use now. Loaded once at the start of each region.
``@tir_region_busy``, i32
    0, or 1 while some region runs. A region starts with an atomic compare-and-exchange 0 -> 1 and
    stores 0 (release) when it is over.
``GOMP_parallel(ptr body, ptr context, i32 threads, i32 0)``
    Runs `body(context)` in each thread. The body reads its share off `omp_get_thread_num()` and
    `omp_get_num_threads()`.

Where `@tir_threads` is 1 or less, where the exchange fails (another Python thread is in a
region), or where the work is below the threshold, the code calls `body(context)` itself: outside
a region the two functions return 0 and 1, so the body then does the whole work.

We bring no pool of our own: one more pool would fight with those of BLAS and torch for the
cores. The runtime is, in this order, one that is already mapped in the process, `libgomp.so.1`,
LLVM's from the extra ``openmp``, or none, and then loops run in one thread. GNU's pool does not
survive a fork, so in a child of a process that had it, loops run in one thread as well.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from tensorir.support.errors import warn
from tensorir.support.knobs import knobs
from tensorir.support.tracebacks import user_api

__all__ = ["Runtime", "num_threads", "runtime", "set_num_threads", "symbols"]

_NEEDED = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_STATE = ("tir_threads", "tir_region_busy")
SYMBOLS = (*_NEEDED, *_STATE)
_LIBRARY = re.compile(r"/lib(gomp|omp|iomp5)(-[0-9a-f]+)?\.so[.0-9]*$")

_threads = ctypes.c_int32(1)
_busy = ctypes.c_int32(0)
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Runtime:
    """The OpenMP runtime in use.

    Attributes
    ----------
    kind
        "gnu", "llvm", "intel", or "none" for loops in one thread.
    path
        The library, or "" where there is none.
    found
        How it was found, in a few words.
    addresses
        Of the three functions that parallel code calls.
    """

    kind: str
    path: str
    found: str
    addresses: dict[str, int]


_runtime: Runtime | None = None
_poisoned = False  # a forked child of a process whose GNU pool may have been running
_is_child = False


def runtime() -> Runtime:
    """The OpenMP runtime, searched for at the first call; warns once if there is none."""
    global _runtime, _poisoned
    with _lock:
        if _runtime is None:
            _runtime, mapped = _search()
            if _is_child and mapped and _runtime.kind == "gnu":
                _poisoned = True
            _refresh()
        return _runtime


def symbols() -> dict[str, int]:
    """Addresses of everything that parallel code imports, by name."""
    state = {"tir_threads": ctypes.addressof(_threads), "tir_region_busy": ctypes.addressof(_busy)}
    return {**runtime().addresses, **state}


@user_api
def num_threads(n: int | None = None) -> int:
    """How many threads a parallel loop uses; with `n`, set it first.

    Parameters
    ----------
    n
        At least 1. The default is what the process may run on, or what OMP_NUM_THREADS says.

    Returns
    -------
    int
        The number in force: 1 where there is no OpenMP runtime, or in a child after a fork.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        If `n` is no integer from 1 to 4096.

    Examples
    --------
    >>> with knobs.override():
    ...     num_threads(1)
    1
    """
    if n is not None:
        set_num_threads(n)
    runtime()
    return _threads.value


def set_num_threads(n: int) -> None:
    """Set how many threads a parallel loop uses: the knob `num_threads`."""
    knobs.num_threads = n


def _wanted() -> int:
    if knobs.num_threads is not None:
        return knobs.num_threads
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if given.isdigit() and int(given) > 0:
        return min(int(given), 4096)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _refresh() -> None:
    serial = _runtime is None or _runtime.kind == "none" or _poisoned
    _threads.value = 1 if serial else _wanted()


knobs.watch("num_threads", _refresh)


def _after_fork_in_child() -> None:
    global _lock, _poisoned, _is_child
    _lock = threading.Lock()
    _is_child = True
    _busy.value = 0
    if _runtime is not None and _runtime.kind == "gnu":
        _poisoned = True
        _refresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _search() -> tuple[Runtime, bool]:
    """The runtime, and whether it was mapped before we looked."""
    for path in _mapped():
        found = _open(path, "already loaded in this process")
        if found is not None:
            return found, True
    for path, how in (("libgomp.so.1", "of the system"), *_wheels()):
        found = _open(path, how)
        if found is not None:
            return found, False
    warn(
        "serial",
        "no OpenMP runtime was found, so parallel loops run in one thread; "
        "install libgomp1, or the extra openmp (pip install 'tensorir[openmp]')",
    )
    return _serial(), False


def _mapped() -> list[str]:
    try:
        maps = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return []
    paths = (line[line.index("/") :] for line in maps.splitlines() if "/" in line)
    return [path for path in dict.fromkeys(paths) if _LIBRARY.search(path)]


def _wheels() -> list[tuple[str, str]]:
    """LLVM's runtime as the extra `openmp` installs it."""
    places = (Path(entry or ".") / "cmeel.prefix" / "lib" for entry in sys.path)
    files = (place / name for place in places for name in ("libomp.so", "libomp.dylib"))
    return [(str(file), "of the extra openmp") for file in files if file.is_file()]


def _open(path: str, found: str) -> Runtime | None:
    try:
        library = ctypes.CDLL(path)
        functions = {name: getattr(library, name) for name in _NEEDED}
    except (OSError, AttributeError):
        return None
    addresses = {name: _address(function) for name, function in functions.items()}
    if hasattr(library, "__kmpc_fork_call"):
        kind = "intel" if "iomp5" in path else "llvm"
    else:
        kind = "gnu"
    return Runtime(kind, path, found, addresses)


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


_STAND_IN = """
define void @GOMP_parallel(ptr %body, ptr %context, i32 %threads, i32 %flags) #0 {
  call void %body(ptr %context)
  ret void
}
define i32 @omp_get_thread_num() #0 {
  ret i32 0
}
define i32 @omp_get_num_threads() #0 {
  ret i32 1
}
"""
_kept: list[object] = []


def _serial() -> Runtime:
    """The same three functions for one thread."""
    from tensorir.codegen import cpu, llvm

    here = cpu.target("native")
    code = llvm.link(llvm.compile_object(cpu.module(_STAND_IN, here), here), _NEEDED, {})
    _kept.append(code)
    return Runtime("none", "", "not found", {name: code[name] for name in _NEEDED})
