"""A factor that is a bool."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ArgumentTypeError: split: factor must be a positive integer, not True

  script.py:1:  s.split("i", True)
"""


def test_factor_bool() -> None:
    s = matmul()
    with pytest.raises(tir.ArgumentTypeError) as refused:
        s.split("i", True)
    assert said(refused.value) == TEXT
