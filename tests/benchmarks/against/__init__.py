"""Everybody else: a module for each library, imported only when its turn comes.

A module holds `KINDS`: from the kind of a workload to a function that takes the workload, its
inputs and a number of threads and returns candidates by name; and `use_threads`, where the library
has one switch for the whole process. Whoever is not installed, does not know a kind, or fails, is
named in the table and does not stop it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType

from tests.benchmarks.work import Array, Candidate, Work

LIBRARIES = ("numpy", "torch", "onnxruntime", "numba", "tvm", "halide")
_MODULES = {"onnxruntime": "onnx_"}


def load(library: str) -> ModuleType | str:
    """The module for a library, or why there is none."""
    try:
        return importlib.import_module(
            f"tests.benchmarks.against.{_MODULES.get(library, library + '_')}"
        )
    except ImportError as error:
        return f"not installed ({error.name or error})"
    except Exception as error:  # a broken installation is theirs, the table goes on
        return f"cannot be imported: {_line(error)}"


def candidates(
    library: str, work: Work, arrays: tuple[Array, ...], threads: int
) -> dict[str, Candidate] | str:
    """How a library computes a workload, by name; or why it does not."""
    module = load(library)
    if isinstance(module, str):
        return module
    make = module.KINDS.get(work.kind)
    if make is None:
        return {}
    try:
        found: dict[str, Candidate] = make(work, arrays, threads)
    except Exception as error:  # theirs, not ours: the table goes on
        return f"failed: {_line(error)}"
    return found


def use_threads(threads: int, libraries: Sequence[str]) -> None:
    """Set the switches for the whole process of those libraries that have one."""
    for library in libraries:
        module = load(library)
        if not isinstance(module, str) and hasattr(module, "use_threads"):
            module.use_threads(threads)


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:120]
