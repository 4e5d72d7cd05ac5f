"""An input to schedule."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import said

TEXT = """\
ArgumentError: schedule: 'A' is an input, nothing computes it

  script.py:1:  tir.schedule(A)
"""


def test_schedule_input() -> None:
    A = tir.placeholder((8,), name="A")
    with pytest.raises(tir.ArgumentError) as refused:
        tir.schedule(A)
    assert said(refused.value) == TEXT
