from __future__ import annotations

import subprocess
import sys

HEAVY = ("sympy", "matplotlib", "cuda", "torch", "onnx", "IPython", "rich", "xgboost")
CODE = f"""
import time
start = time.perf_counter()
import tensorir
took = time.perf_counter() - start
import sys
print(took, *[name for name in {HEAVY} if name in sys.modules])
"""


def fresh_import() -> tuple[float, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    took, *loaded = done.stdout.split()
    return float(took), loaded


def test_import_is_quick_and_light() -> None:
    # The best of a few: the other test processes share the processors.
    runs = [fresh_import() for _ in range(5)]
    assert [loaded for _, loaded in runs] == [[]] * 5
    assert min(took for took, _ in runs) < 0.6


def test_import_leaves_the_process_alone() -> None:
    code = (
        "import locale, signal, sys, threading, warnings, numpy\n"
        "def state():\n"
        "    return (signal.getsignal(signal.SIGINT), locale.setlocale(locale.LC_ALL),\n"
        "            numpy.geterr(), numpy.get_printoptions(), sys.getrecursionlimit(),\n"
        "            threading.active_count(), sys.excepthook, list(sys.path_hooks),\n"
        "            list(warnings.filters))\n"
        "before = state()\n"
        "import tensorir\n"
        "assert state() == before, (before, state())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
