"""An axis that was fused: the step is named."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ScheduleError: unroll: no axis 'j': step 1, fuse("i", "j", into="f"), removed it and made 'f'

  script.py:1:  s.unroll("j")
"""


def test_axis_fused_already() -> None:
    s = matmul().fuse("i", "j", into="f")
    with pytest.raises(tir.ScheduleError) as refused:
        s.unroll("j")
    assert said(refused.value) == TEXT
