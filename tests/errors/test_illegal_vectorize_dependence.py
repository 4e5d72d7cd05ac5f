"""Lanes that need the value of another lane."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.nests import recurrence
from tests.errors.saying import said

TEXT = """\
IllegalSchedule: vectorize("i", 4) would run S[1] and S[2] in one vector: the first writes the A[1] that the other reads.

  script.py:1:  s.vectorize("i", 4)

  for i in 1..N                     <- asked to be vector lanes
    S: A[i] = A[i - 1] * 0.5
              ^^^^^^^^ flow dependence, distance (i: +1), first seen at N = 3

  why  lanes go in lock step: nothing orders two points of 'i.v'.
  more tir.help("illegal-schedule")
"""


def test_illegal_vectorize_dependence() -> None:
    s = recurrence()
    with pytest.raises(tir.IllegalSchedule) as refused:
        s.vectorize("i", 4)
    assert said(refused.value) == TEXT
