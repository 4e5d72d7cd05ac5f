"""Fewer new names than loops."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: into takes 2 names, not 1

  script.py:1:  s.split("i", 8, into=("io",))
"""


def test_names_too_few() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 8, into=("io",))
    assert said(refused.value) == TEXT
