"""One new name for two loops."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: the new name 'x' is given twice

  script.py:1:  s.split("i", 8, into=("x", "x"))
"""


def test_name_twice() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 8, into=("x", "x"))
    assert said(refused.value) == TEXT
