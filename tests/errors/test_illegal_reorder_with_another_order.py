"""A refused order where others are allowed."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.nests import diagonal
from tests.errors.saying import said

TEXT = """\
IllegalSchedule: reorder("j", "i", "b") would run S[2, 0, 0] before S[1, 1, 0], which writes the A[1, 1, 0] it reads.

  script.py:1:  s.reorder("j", "i", "b")

  for i in 1..N
    for j in 0..(N - 1)             <- asked to go outside i
      for b in 0..N
        S: A[i, j, b] = A[i - 1, j + 1, b] * 0.5
                        ^^^^^^^^^^^^^^^^^^ flow dependence, distance (i: +1, j: -1, b: 0), first seen at N = 3

  why  after the change the first distance is j: -1: the reader would come before the writer.
  try  s.reorder("i", "b", "j")     keeps every dependence
       s.reorder("b", "i", "j")     keeps every dependence
  more tir.help("illegal-schedule")
"""


def test_illegal_reorder_with_another_order() -> None:
    s = diagonal(3)
    with pytest.raises(tir.IllegalSchedule) as refused:
        s.reorder("j", "i", "b")
    assert said(refused.value) == TEXT
