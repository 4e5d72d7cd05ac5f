"""A primitive that there is not."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
UnknownPrimitive: a schedule has no primitive 'spilt'; did you mean 'split'?
"""


def test_primitive_unknown() -> None:
    s = matmul()
    with pytest.raises(tir.ScheduleError) as refused:
        s.spilt("i", 8)
    assert said(refused.value) == TEXT
