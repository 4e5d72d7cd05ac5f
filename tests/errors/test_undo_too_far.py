"""More steps back than there were."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: undo: cannot go back by 2: steps made: 1

  script.py:1:  s.undo(2)
"""


def test_undo_too_far() -> None:
    s = matmul().split("i", 8)
    with pytest.raises(tir.ScheduleError) as refused:
        s.undo(2)
    assert said(refused.value) == TEXT
