"""Import, compile and run leave the process as it was (R15), and import little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import ctypes, locale, os, signal, sys
import numpy as np

def state():
    control = ctypes.CDLL(None)
    word = ctypes.c_uint32()
    environment = (ctypes.c_uint32 * 8)()
    control.fegetenv(environment)  # x87 control word first, MXCSR last
    handlers = [signal.getsignal(s) for s in signal.valid_signals()]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    raw = [line for line in open("/proc/self/status") if line.startswith(("SigCgt", "SigIgn"))]
    return (environment[0] & 0xFFFF, environment[7] & ~0x3F, handlers, mask, raw,
            locale.setlocale(locale.LC_ALL), np.geterr(), np.get_printoptions(), os.getcwd(),
            sorted(os.environ.items()), sys.getrecursionlimit(), sys.getswitchinterval())

def pools():
    import threadpoolctl
    return [(p["internal_api"], p["num_threads"]) for p in threadpoolctl.threadpool_info()
            if p["user_api"] == "blas"]

np.ones((64, 64)) @ np.ones((64, 64))
blas, before = pools(), state()

def changed():
    return [k for k, (a, b) in enumerate(zip(before, state())) if a != b]

import tensorir
from tensorir.runtime.kernel import make_kernel
from tests.runtime import handmade
a = np.arange(1 << 12)
make_kernel(handmade.add())(np.ones(8, "f4"), np.full(8, 1e-42, "f4"))
assert changed() == [], changed()
make_kernel(handmade.parallel())(a)
assert changed() == [], changed()
assert pools() == blas
tiny = make_kernel(handmade.scale())(np.full(4, 1e-42, "f4"))
assert (tiny == np.full(4, 1e-42, "f4") * 2).all() and tiny[0] > 0
print("the same")
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_process_is_left_as_it_was() -> None:
    assert run(PROGRAM) == "the same\n"


def test_llvm_is_loaded_at_first_use() -> None:
    program = "import sys, tensorir.runtime.kernel; print('llvmlite.binding' in sys.modules)"
    assert run(program) == "False\n"


def test_a_process_ends_well_with_kernels_alive() -> None:
    program = """
import numpy as np
from tensorir.runtime.kernel import make_kernel
from tests.runtime import handmade
kernels = [make_kernel(handmade.add(n)) for n in range(1, 80)]
del kernels[::3]
cycle = [kernels]
cycle.append(cycle)
del kernels, cycle
kept = make_kernel(handmade.add())
print(kept(np.ones(8, "f4"), np.ones(8, "f4")).sum())
"""
    assert run(program) == "16.0\n"


def test_eight_cold_processes_share_one_cache(tmp_path: Path) -> None:
    """R10: all compile the same kernel at once into an empty folder; each gets the right answer."""
    program = """
import warnings
import numpy as np
from tensorir.runtime.kernel import make_kernel
from tests.runtime import handmade
warnings.simplefilter("error")
print(make_kernel(handmade.add(77))(np.ones(77, "f4"), np.ones(77, "f4")).sum())
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TENSORIR_CACHE_DIR": str(tmp_path / "cache"),
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for _ in range(8)
    ]
    results = [process.communicate(timeout=120) for process in started]
    assert [(out, err) for out, err in results] == [("154.0\n", "")] * 8
    assert len(list((tmp_path / "cache" / "objects").glob("*.object"))) == 2
