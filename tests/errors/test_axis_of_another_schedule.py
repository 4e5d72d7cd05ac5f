"""An axis object of another schedule."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: this axis 'i' is not one of this schedule's

  script.py:1:  s.split(other, 4)

  why  another axis of that name is; say 'i' for it.
"""


def test_axis_of_another_schedule() -> None:
    s = matmul()
    other = matmul().axes[0]
    with pytest.raises(tir.ScheduleError) as refused:
        s.split(other, 4)
    assert said(refused.value) == TEXT
