"""An axis that an earlier step removed: the step is named."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: no axis 'i': step 1, split("i", 8), removed it and made 'io' and 'ii'

  script.py:1:  s.split("i", 4)
"""


def test_axis_split_already() -> None:
    s = matmul().split("i", 8).parallel("io")
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 4)
    assert said(refused.value) == TEXT
