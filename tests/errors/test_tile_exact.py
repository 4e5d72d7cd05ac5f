"""An exact tile of a loop that it does not divide: the block that is not full is named."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: tile: tail="exact", but 'j' is not always a multiple of 6: block 10 holds 4 of 6 points

  script.py:1:  s.tile("i", "j", 8, 6, tail="exact")

  why  an exact split has no partial block; the others guard, mask or cut it.
"""


def test_tile_exact() -> None:
    s = matmul()
    assert s.tile("i", "j", 8, 4, tail="exact").loops() == s.tile("i", "j", 8, 4).loops()
    with pytest.raises(tir.ScheduleError) as refused:
        s.tile("i", "j", 8, 6, tail="exact")
    assert said(refused.value) == TEXT
