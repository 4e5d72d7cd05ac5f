"""Threads inside threads."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
UnsupportedError: parallel: 'j' is inside 'i', which is parallel

  script.py:1:  s.parallel("j")
"""


def test_nested_parallel() -> None:
    s = matmul().parallel("i")
    with pytest.raises(tir.UnsupportedError) as refused:
        s.parallel("j")
    assert said(refused.value) == TEXT
