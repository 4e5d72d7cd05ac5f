"""An axis that there is not: the nearest name is offered."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: no axis 'io'; did you mean 'i'?

  script.py:1:  s.split("io", 8)

  why  the axes are i, j and k.
"""


def test_unknown_axis() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("io", 8)
    assert said(refused.value) == TEXT
