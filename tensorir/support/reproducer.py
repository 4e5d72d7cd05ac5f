"""The file that is saved when this library is at fault: enough to see the fault again."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from importlib import metadata

__all__ = ["folder", "save"]

_KEPT = 50
_PACKAGES = ("tensorir", "numpy", "ml_dtypes", "islpy", "llvmlite", "cuda-python", "sympy")


def folder() -> str:
    """Return where reproducers go: a folder ``reproducers`` beside the cache."""
    from tensorir.support.cache import root

    return os.path.join(root(), "reproducers")


def save(message: str, *, state: str = "", cause: BaseException | None = None) -> str | None:
    """Write a report and return its path, or None where no folder can be written.

    Parameters
    ----------
    message : str
        What was found to be wrong.
    state : str
        The text of the program, its trace, or its loops.
    cause : BaseException or None
        The exception behind it.
    """
    text = _report(message, state, cause)
    for place in (folder(), os.path.join(tempfile.gettempdir(), "tensorir-reproducers")):
        try:
            return _write(place, text)
        except (OSError, ValueError):
            continue
    return None


def _report(message: str, state: str, cause: BaseException | None) -> str:
    lines = [f"tensorir reproducer: {message}", "", "versions:"]
    lines += [f"  python {sys.version.split()[0]} on {platform.platform()}"]
    lines += [f"  {name} {_version(name)}" for name in _PACKAGES]
    lines += ["", "settings:"]
    settings = sorted(item for item in os.environ.items() if item[0].startswith("TENSORIR_"))
    lines += [f"  {name}={value}" for name, value in settings]
    lines += ["", "traceback:"]
    lines += traceback.format_exception(cause) if cause is not None else traceback.format_stack()
    lines += ["", "state:", state or "(none)", ""]
    return "\n".join(line.rstrip("\n") for line in lines)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _write(place: str, text: str) -> str:
    os.makedirs(place, mode=0o700, exist_ok=True)
    handle, path = tempfile.mkstemp(prefix="fault-", suffix=".txt", dir=place)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    _forget_oldest(place)
    return path


def _forget_oldest(place: str) -> None:
    with os.scandir(place) as entries:
        files = [entry for entry in entries if entry.name.startswith("fault-")]
    files.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    for entry in files[_KEPT:]:
        os.unlink(entry.path)
