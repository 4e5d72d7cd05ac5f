"""A step that there was not."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: at: no step 2; the steps are 0 to 1

  script.py:1:  s.at(2)
"""


def test_at_no_step() -> None:
    s = matmul().split("i", 8)
    with pytest.raises(tir.ScheduleError) as refused:
        s.at(2)
    assert said(refused.value) == TEXT
