"""A factor past every extent."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: factor is 1180591620717411303424; the largest is 2147483647

  script.py:1:  s.split("i", 2**70)
"""


def test_factor_huge() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 2**70)
    assert said(refused.value) == TEXT
