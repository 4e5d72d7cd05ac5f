"""Something else to replay."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
ArgumentTypeError: replay: a trace is needed, as s.trace gives it, not 'split'

  script.py:1:  tir.replay(s, "split")
"""


def test_replay_not_a_trace() -> None:
    s = matmul()
    with pytest.raises(tir.ArgumentTypeError) as refused:
        tir.replay(s, "split")
    assert said(refused.value) == TEXT
