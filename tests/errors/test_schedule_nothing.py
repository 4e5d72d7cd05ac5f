"""Nothing to schedule."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import said

TEXT = """\
ArgumentError: schedule: give it at least one tensor to compute

  script.py:1:  tir.schedule()
"""


def test_schedule_nothing() -> None:
    with pytest.raises(tir.ArgumentError) as refused:
        tir.schedule()
    assert said(refused.value) == TEXT
