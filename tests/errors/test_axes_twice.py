"""One loop twice."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: reorder: 'i' is given twice

  script.py:1:  s.reorder("i", "j", "i")
"""


def test_axes_twice() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.reorder("i", "j", "i")
    assert said(refused.value) == TEXT
