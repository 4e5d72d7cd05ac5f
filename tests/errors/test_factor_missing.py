"""Neither a factor nor parts."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: give either factor=, the inner extent, or parts=, the outer extent

  script.py:1:  s.split("i")
"""


def test_factor_missing() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i")
    assert said(refused.value) == TEXT
