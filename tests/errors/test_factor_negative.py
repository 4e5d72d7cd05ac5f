"""A negative factor."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: factor must be positive, not -4

  script.py:1:  s.split("i", -4)
"""


def test_factor_negative() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", -4)
    assert said(refused.value) == TEXT
