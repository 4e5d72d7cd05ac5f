"""A trace that is no JSON."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import said

TEXT = """\
ArgumentError: this is no trace: not JSON: Expecting value: line 1 column 1 (char 0)

  script.py:1:  tir.Trace.from_json("steps")
"""


def test_trace_not_json() -> None:
    with pytest.raises(tir.ArgumentError) as refused:
        tir.Trace.from_json("steps")
    assert said(refused.value) == TEXT
