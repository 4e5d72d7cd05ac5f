"""Something else to schedule."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import said

TEXT = """\
ArgumentTypeError: schedule: expected tensors, not str 'C'

  script.py:1:  tir.schedule("C")
"""


def test_schedule_not_a_tensor() -> None:
    with pytest.raises(tir.ArgumentTypeError) as refused:
        tir.schedule("C")
    assert said(refused.value) == TEXT
