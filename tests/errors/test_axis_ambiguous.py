"""A name that two stages have."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import chain, said

TEXT = """\
ScheduleError: split: 'i' names 2 loops: X.i and Y.i

  script.py:1:  s.split("i", 4)

  why  say which of them.
"""


def test_axis_ambiguous() -> None:
    s = chain()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 4)
    assert said(refused.value) == TEXT
