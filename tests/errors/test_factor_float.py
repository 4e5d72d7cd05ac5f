"""A factor that is no integer."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ArgumentTypeError: split: factor must be a positive integer, not 8.0

  script.py:1:  s.split("i", 8.0)
"""


def test_factor_float() -> None:
    s = matmul()
    with pytest.raises(tir.ArgumentTypeError) as refused:
        s.split("i", 8.0)
    assert said(refused.value) == TEXT
