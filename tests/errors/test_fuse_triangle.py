"""Loops to fuse of which one range depends on the other."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import said, triangle

TEXT = """\
ScheduleError: fuse: the range of 'j' depends on 'i'

  script.py:1:  s.fuse("i", "j")

  why  only loops whose extents do not depend on each other become one.
"""


def test_fuse_triangle() -> None:
    s = triangle()
    with pytest.raises(tir.ScheduleError) as refused:
        s.fuse("i", "j")
    assert said(refused.value) == TEXT
