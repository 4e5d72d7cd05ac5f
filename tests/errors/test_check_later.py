"""A question about a primitive that is known, but not there yet."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
UnknownPrimitive: a schedule has no primitive 'scalar_replace' yet

  script.py:1:  s.check("scalar_replace", "i")
"""


def test_check_later() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.check("scalar_replace", "i")
    assert said(refused.value) == TEXT
