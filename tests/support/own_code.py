"""Run source as if it stood in the library, for tests of what its frames look like."""

from __future__ import annotations

import textwrap
from typing import Any


def as_own(source: str) -> dict[str, Any]:
    """Return the names that source text defines when it is a module ``tensorir.example``."""
    names: dict[str, Any] = {"__name__": "tensorir.example"}
    exec(compile(textwrap.dedent(source), "tensorir/example.py", "exec"), names)
    return names
