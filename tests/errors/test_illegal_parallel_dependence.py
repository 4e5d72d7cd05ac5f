"""Threads that would not wait for a value."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.nests import recurrence
from tests.errors.saying import said

TEXT = """\
IllegalSchedule: parallel("i") would let S[1] and S[2] race: the first writes the A[1] that the other reads.

  script.py:1:  s.parallel("i")

  for i in 1..N                     <- asked to be parallel
    S: A[i] = A[i - 1] * 0.5
              ^^^^^^^^ flow dependence, distance (i: +1), first seen at N = 3

  why  threads do not wait: nothing orders two points of 'i'.
  more tir.help("illegal-schedule")
"""


def test_illegal_parallel_dependence() -> None:
    s = recurrence()
    with pytest.raises(tir.IllegalSchedule) as refused:
        s.parallel("i")
    assert said(refused.value) == TEXT
