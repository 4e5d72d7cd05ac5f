"""Loops to fuse with a loop between them."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: fuse: C.init runs in 'i' beside 'j'; they are not perfectly nested

  script.py:1:  s.fuse("i", "j")
"""


def test_fuse_not_adjacent() -> None:
    s = matmul().reorder("i", "k", "j")
    with pytest.raises(tir.ScheduleError) as refused:
        s.fuse("i", "j")
    assert said(refused.value) == TEXT
