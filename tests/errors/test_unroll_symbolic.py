"""Copies of a loop whose extent is symbolic."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import said, scaled

TEXT = """\
ScheduleError: unroll: the extent of 'i' is not a constant

  script.py:1:  s.unroll("i")

  why  only a constant number of copies can be written out.
  try  s.unroll("i", 4)             unrolls blocks of 4
"""


def test_unroll_symbolic() -> None:
    s = scaled(tir.var("n"))
    with pytest.raises(tir.ScheduleError) as refused:
        s.unroll("i")
    assert said(refused.value) == TEXT
