"""Loops to fuse, inner first."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: fuse: 'j' is inside 'i'; name the outer loop first

  script.py:1:  s.fuse("j", "i")
"""


def test_fuse_inside_out() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.fuse("j", "i")
    assert said(refused.value) == TEXT
