"""An exact split with a tail: the block that is not full is named."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: tail="exact", but 'i' is not always a multiple of 6: block 10 holds 4 of 6 points

  script.py:1:  s.split("i", 6, tail="exact")

  why  an exact split has no partial block; the others guard, mask or cut it.
"""


def test_factor_does_not_divide() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 6, tail="exact")
    assert said(refused.value) == TEXT
