"""An order that turns a dependence around, with the two instances."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.nests import diagonal
from tests.errors.saying import said

TEXT = """\
IllegalSchedule: reorder("j", "i") would run S[2, 0] before S[1, 1], which writes the A[1, 1] it reads.

  script.py:1:  s.reorder("j", "i")

  for i in 1..N
    for j in 0..(N - 1)             <- asked to go outside i
      S: A[i, j] = A[i - 1, j + 1] * 0.5
                   ^^^^^^^^^^^^^^^ flow dependence, distance (i: +1, j: -1), first seen at N = 3

  why  after the change the first distance is j: -1: the reader would come before the writer.
  more tir.help("illegal-schedule")
"""


def test_illegal_reorder() -> None:
    s = diagonal()
    with pytest.raises(tir.IllegalSchedule) as refused:
        s.reorder("j", "i")
    assert said(refused.value) == TEXT
