"""A trace whose step is refused elsewhere: the step is named."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said, scaled

TEXT = """\
ScheduleError: split: no axis 'k'

  script.py:1:  tir.replay(scaled(), trace)

  why  the only axis is i.
  while replaying step 1: split("k", 8)
"""


def test_replay_refused() -> None:
    trace = matmul().split("k", 8).trace
    with pytest.raises(tir.ScheduleError) as refused:
        tir.replay(scaled(), trace)
    assert said(refused.value) == TEXT
