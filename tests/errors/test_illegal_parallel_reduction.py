"""Threads that would update one cell: the racing pair and the remedies."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
IllegalSchedule: parallel("k") would let C[0, 0, 0] and C[0, 0, 1] race: both accumulate into C[0, 0].

  script.py:1:  s.parallel("k")

  for i in 0..64
    for j in 0..64
      C[i, j] = 0.0
      for k in 0..64                <- asked to be parallel
        C: C[i, j] = fma(A[i, k], B[k, j], C[i, j])
           ^^^^^^^ accumulates, distance (i: 0, j: 0, k: +1)

  why  the order of a reduction is free, but two points must not update one cell at the same time.
  try  s.rfactor("k").parallel("k") partial results, combined at the end (changes rounding)
       s.parallel("i")              carries nothing
       s.parallel("j")              carries nothing
  more tir.help("illegal-schedule")
"""


def test_illegal_parallel_reduction() -> None:
    s = matmul()
    with pytest.raises(tir.IllegalSchedule) as refused:
        s.parallel("k")
    assert said(refused.value) == TEXT
