"""A factor that is not positive."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: factor must be positive, not 0

  script.py:1:  s.split("i", 0)
"""


def test_factor_zero() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 0)
    assert said(refused.value) == TEXT
