"""A new name that is no identifier."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ArgumentError: split: axis name '2i' is not an identifier, such as 'io' or 'A_packed'

  script.py:1:  s.split("i", 8, into=("io", "2i"))
"""


def test_name_not_identifier() -> None:
    s = matmul()
    with pytest.raises(tir.ArgumentError) as refused:
        s.split("i", 8, into=("io", "2i"))
    assert said(refused.value) == TEXT
