"""A schedule that is assigned to."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ArgumentError: a schedule cannot be changed: 'program' was assigned to

  script.py:1:  s.program = None

  why  each primitive returns a new schedule, as in s = s.split('i', 8).
"""


def test_schedule_assigned() -> None:
    s = matmul()
    with pytest.raises(tir.ArgumentError) as refused:
        s.program = None
    assert said(refused.value) == TEXT
