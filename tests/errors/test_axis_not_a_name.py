"""An axis given as a number."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ArgumentTypeError: split: an axis is named by a string or an axis object, not 0

  script.py:1:  s.split(0, 4)
"""


def test_axis_not_a_name() -> None:
    s = matmul()
    with pytest.raises(tir.ArgumentTypeError) as refused:
        s.split(0, 4)
    assert said(refused.value) == TEXT
