"""One axis to put in order."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: reorder: at least two axes are needed, not 1

  script.py:1:  s.reorder("i")
"""


def test_axes_too_few() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.reorder("i")
    assert said(refused.value) == TEXT
