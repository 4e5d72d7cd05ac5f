"""An argument that is needed."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ArgumentTypeError: tile(i, j, fi, fj, *, into=None, tail='auto'): missing a required argument: 'fj'

  script.py:1:  s.tile("i", "j", 8)
"""


def test_argument_missing() -> None:
    s = matmul()
    with pytest.raises(tir.ArgumentTypeError) as refused:
        s.tile("i", "j", 8)
    assert said(refused.value) == TEXT
