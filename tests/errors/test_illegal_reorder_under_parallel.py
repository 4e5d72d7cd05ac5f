"""An order under which a parallel loop would race."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.nests import rows
from tests.errors.saying import said

TEXT = """\
IllegalSchedule: reorder("j", "i") would let S[1, 1] and S[2, 2] race in the parallel loop 'j': the first writes the A[1, 1] that the other reads.

  script.py:1:  s.reorder("j", "i")

  for i in 1..N
    for j in 1..N  # parallel       <- asked to go outside i
      S: A[i, j] = A[i - 1, j - 1] * 0.5
                   ^^^^^^^^^^^^^^^ flow dependence, distance (i: +1, j: +1), first seen at N = 3

  why  threads do not wait: nothing orders two points of 'j'.
  more tir.help("illegal-schedule")
"""


def test_illegal_reorder_under_parallel() -> None:
    s = rows().parallel("j")
    with pytest.raises(tir.IllegalSchedule) as refused:
        s.reorder("j", "i")
    assert said(refused.value) == TEXT
