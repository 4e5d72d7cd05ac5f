"""A schedule where a tensor is wanted: what is quoted of it stays on the first line."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ArgumentTypeError: schedule: expected tensors, not Schedule for i in 0..64 for j in 0..64 C[i, j] = 0.0 for k

  script.py:1:  tir.schedule(s)
"""


def test_schedule_of_a_schedule() -> None:
    s = matmul()
    with pytest.raises(tir.ArgumentTypeError) as refused:
        tir.schedule(s)
    assert said(refused.value) == TEXT
