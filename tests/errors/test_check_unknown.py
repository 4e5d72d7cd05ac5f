"""A question about a primitive that there is not."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: there is no primitive 'reorde'; did you mean 'reorder'?

  script.py:1:  s.check("reorde", "j", "i")
"""


def test_check_unknown() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.check("reorde", "j", "i")
    assert said(refused.value) == TEXT
