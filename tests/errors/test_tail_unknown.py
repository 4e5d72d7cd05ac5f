"""A tail that there is not."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: tail is one of 'auto', 'cut', 'guard', 'exact', not 'gaurd'; did you mean 'guard'?

  script.py:1:  s.split("i", 8, tail="gaurd")
"""


def test_tail_unknown() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 8, tail="gaurd")
    assert said(refused.value) == TEXT
