"""A loop that is marked already: the step is named."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: vectorize: 'i' is parallel already, since step 1, parallel("i")

  script.py:1:  s.vectorize("i")
"""


def test_marked_twice() -> None:
    s = matmul().parallel("i")
    with pytest.raises(tir.ScheduleError) as refused:
        s.vectorize("i")
    assert said(refused.value) == TEXT
