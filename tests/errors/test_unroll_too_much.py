"""More copies than may be."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: unroll: 'j' would make 2,097,152 copies; the limit is 65,536

  script.py:1:  s.unroll("j")

  why  each copy is code; unroll by a factor, or fewer loops.
"""


def test_unroll_too_much() -> None:
    s = matmul(1024, 1024, 4).unroll("i")
    with pytest.raises(tir.ScheduleError) as refused:
        s.unroll("j")
    assert said(refused.value) == TEXT
