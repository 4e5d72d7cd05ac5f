"""Tiles that turn a dependence around."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.nests import diagonal
from tests.errors.saying import said

TEXT = """\
IllegalSchedule: tile("i", "j", 4, 4) would run S[2, 3] before S[1, 4], which writes the A[1, 4] it reads.

  script.py:1:  s.tile("i", "j", 4, 4)

  for i in 1..N
    for j in 0..(N - 1)             <- its blocks would go outside the points of i
      S: A[i, j] = A[i - 1, j + 1] * 0.5
                   ^^^^^^^^^^^^^^^ flow dependence, distance (i: +1, j: -1), first seen at N = 6

  why  after the change the first distance is jo: -1: the reader would come before the writer.
  more tir.help("illegal-schedule")
"""


def test_illegal_tile() -> None:
    s = diagonal()
    with pytest.raises(tir.IllegalSchedule) as refused:
        s.tile("i", "j", 4, 4)
    assert said(refused.value) == TEXT
