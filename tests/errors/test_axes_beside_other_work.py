"""Loops that would cross the work of another stage."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import blurred, said

TEXT = """\
ScheduleError: reorder: X runs in 'y' beside 'x', so that loops cannot cross

  script.py:1:  s.reorder("x", "y")

  why  only the init and the finish of a reduction get loops of their own.
"""


def test_axes_beside_other_work() -> None:
    s = blurred()
    with pytest.raises(tir.ScheduleError) as refused:
        s.reorder("x", "y")
    assert said(refused.value) == TEXT
