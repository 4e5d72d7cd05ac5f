"""Loops to fuse with an init between them."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: fuse: C.init runs in 'j' beside 'k'; they are not perfectly nested

  script.py:1:  s.fuse("j", "k")

  try  s.decompose_reduction("C", "j").fuse("j", "k") gives the init loops of its own
"""


def test_fuse_not_perfect() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.fuse("j", "k")
    assert said(refused.value) == TEXT
