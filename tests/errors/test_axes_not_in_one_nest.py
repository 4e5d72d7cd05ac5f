"""Loops of two nests."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import chain, said

TEXT = """\
ScheduleError: reorder: 'X.i' and 'Y.i' are not in one nest

  script.py:1:  s.reorder("X.i", "Y.i")

  why  neither of the two loops is inside the other.
"""


def test_axes_not_in_one_nest() -> None:
    s = chain()
    with pytest.raises(tir.ScheduleError) as refused:
        s.reorder("X.i", "Y.i")
    assert said(refused.value) == TEXT
