"""A keyword that a primitive does not take."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ArgumentTypeError: split(axis, factor=None, *, parts=None, into=None, tail='auto') has no argument 'facto'; did you mean 'factor'?

  script.py:1:  s.split("i", facto=8)
"""


def test_argument_unknown() -> None:
    s = matmul()
    with pytest.raises(tir.ArgumentTypeError) as refused:
        s.split("i", facto=8)
    assert said(refused.value) == TEXT
