"""A new name that a loop has."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: split: the name 'j' is in use: a loop has it already

  script.py:1:  s.split("i", 8, into=("j", "ii"))
"""


def test_name_in_use() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.split("i", 8, into=("j", "ii"))
    assert said(refused.value) == TEXT
