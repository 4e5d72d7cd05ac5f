"""R15: compiling and running schedules leaves the process as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import ctypes, decimal, locale, os, random, signal, sys, threading, warnings
import numpy as np

def state():
    environment = (ctypes.c_uint32 * 8)()
    ctypes.CDLL(None).fegetenv(environment)  # x87 control word first, MXCSR last
    raw = [line for line in open("/proc/self/status") if line.startswith(("SigCgt", "SigIgn"))]
    return {
        "x87": environment[0] & 0xFFFF, "mxcsr": environment[7] & ~0x3F,
        "handlers": [signal.getsignal(s) for s in signal.valid_signals()], "raw": raw,
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "locale": locale.setlocale(locale.LC_ALL), "errstate": np.geterr(),
        "print": np.get_printoptions(), "folder": os.getcwd(), "variables": dict(os.environ),
        "recursion": sys.getrecursionlimit(), "switch": sys.getswitchinterval(),
        "numpy random": str(np.random.get_state()), "random": random.getstate(),
        "excepthook": sys.excepthook is sys.__excepthook__, "displayhook": sys.displayhook,
        "threads": threading.active_count(), "trace": sys.gettrace(), "umask": mask(),
        "decimal": str(decimal.getcontext()),
    }

def mask():
    m = os.umask(0o77)
    os.umask(m)
    return m

np.ones((64, 64)) @ np.ones((64, 64))
before = state()

def changed(after):
    return [k for k in before if before[k] != after[k]]

import tensorir as tir
assert changed(state()) == [], ("import", changed(state()))
n = 64
A, B = tir.placeholder((n, n), name="A"), tir.placeholder((n, n), name="B")
k = tir.reduce_axis(n, name="k")
C = tir.compute((n, n), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
D = tir.compute((n, n), lambda i, j: tir.exp(C[i, j] * 1e-3) / (A[i, j] - A[i, j]), name="D")
s = tir.schedule(D).split("C.i", 8).parallel("C.io").vectorize("D.j", width=8)
kernel = tir.build(s, validate=True)
assert changed(state()) == [], ("build", changed(state()))
with np.errstate(all="raise"):
    got = kernel(np.ones((n, n), "f4"), np.ones((n, n), "f4"))
assert np.isinf(got).all()
assert changed(state()) == [], ("run", changed(state()))
tir.evaluate(D, np.ones((n, n), "f4"), np.ones((n, n), "f4"))
try:
    s.reorder("k", "q")
except tir.ScheduleError:
    pass
assert changed(state()) == [], ("errors", changed(state()))
# subnormal numbers are kept before and after, in this library and beside it
tiny = np.full(8, 1e-42, "f4")
E = tir.compute((8,), lambda i: tir.placeholder((8,), name="T")[i] * 2, name="E")
assert (tir.build(tir.schedule(E).vectorize("i", width=8))(tiny) == tiny * 2).all()
assert (tiny * 2)[0] > 0
print("the same")
"""


def test_the_process_is_left_as_it_was(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "TENSORIR_CACHE_DIR": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the same\n"
    assert done.stderr == ""
