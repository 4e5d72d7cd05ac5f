"""An exact split of a symbolic size: the sizes are named."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: tail="exact", but 'i' is not always a multiple of 8: m = 1, block 0 holds 1 of 8 points

  script.py:1:  s.split("i", 8, tail="exact")

  why  an exact split has no partial block; the others guard, mask or cut it.
"""


def test_factor_does_not_divide_size() -> None:
    s = matmul(tir.var("m"), 8, 8)
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 8, tail="exact")
    assert said(refused.value) == TEXT
