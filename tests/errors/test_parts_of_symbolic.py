"""Parts of a loop whose extent is symbolic."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import said, scaled

TEXT = """\
ScheduleError: split: parts=4 needs a constant extent, and that of 'i' is not

  script.py:1:  s.split("i", parts=4)

  why  it depends on a symbolic size; give factor=, the inner extent.
"""


def test_parts_of_symbolic() -> None:
    s = scaled(tir.var("n"))
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", parts=4)
    assert said(refused.value) == TEXT
