"""A primitive that is known, but not there yet."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
UnknownPrimitive: a schedule has no primitive 'scalar_replace' yet
"""


def test_primitive_later() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.scalar_replace("A")
    assert said(refused.value) == TEXT
