"""Lanes that would update one cell."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
IllegalSchedule: vectorize("k") would run C[0, 0, 0] and C[0, 0, 1] in one vector: both accumulate into C[0, 0].

  script.py:1:  s.vectorize("k")

  for i in 0..64
    for j in 0..64
      C[i, j] = 0.0
      for k in 0..64                <- asked to be vector lanes
        C: C[i, j] = fma(A[i, k], B[k, j], C[i, j])
           ^^^^^^^ accumulates, distance (i: 0, j: 0, k: +1)

  why  the order of a reduction is free, but two points must not update one cell at the same time.
  try  s.vector_reduce("k", 16)     reduces in lanes, combined at the end (changes rounding)
       s.vectorize("j")             carries nothing
       s.vectorize("i")             carries nothing
  more tir.help("illegal-schedule")
"""


def test_illegal_vectorize_reduction() -> None:
    s = matmul()
    with pytest.raises(tir.IllegalSchedule) as refused:
        s.vectorize("k")
    assert said(refused.value) == TEXT
