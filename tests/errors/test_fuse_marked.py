"""Loops to fuse that run differently."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: fuse: 'i' is marked parallel; fuse first, then mark

  script.py:1:  s.fuse("i", "j")
"""


def test_fuse_marked() -> None:
    s = matmul().parallel("i")
    with pytest.raises(tir.ScheduleError) as refused:
        s.fuse("i", "j")
    assert said(refused.value) == TEXT
