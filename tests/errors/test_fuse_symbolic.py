"""Loops to fuse with a symbolic inner extent."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
UnsupportedError: fuse: the extent of the inner loop 'j' is symbolic; a flat loop over symbolic extents is not supported

  script.py:1:  s.fuse("i", "j")

  why  only constant inner extents make affine indices; split the loop and fuse blocks.
"""


def test_fuse_symbolic() -> None:
    s = matmul(tir.var("m"), tir.var("n"), 8)
    with pytest.raises(tir.UnsupportedError) as refused:
        s.fuse("i", "j")
    assert said(refused.value) == TEXT
