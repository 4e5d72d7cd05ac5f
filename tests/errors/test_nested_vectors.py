"""A vector loop inside another."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
UnsupportedError: vectorize: 'j' inside 'i' is a vector loop already

  script.py:1:  s.vectorize("i")
"""


def test_nested_vectors() -> None:
    s = matmul().vectorize("j")
    with pytest.raises(tir.UnsupportedError) as refused:
        s.vectorize("i")
    assert said(refused.value) == TEXT
