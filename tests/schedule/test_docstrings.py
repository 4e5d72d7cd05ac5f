"""What each primitive tells of itself: one sentence, what it needs, the loops before and after."""

from __future__ import annotations

import inspect

import pytest

from tensorir.schedule.primitive import PRIMITIVES


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_docstring_has_every_part(name: str) -> None:
    text = inspect.getdoc(PRIMITIVES[name]) or ""
    first, _, rest = text.partition("\n\n")
    assert first.endswith(".") and "\n" not in first
    assert rest.startswith("Needs ")
    assert "Others" in rest
    for heading in ("Parameters", "Raises", "Examples"):
        assert f"\n{heading}\n{'-' * len(heading)}\n" in rest
    assert rest.count(">>> print(s") >= 2  # run by tests/repo/test_doctests.py
