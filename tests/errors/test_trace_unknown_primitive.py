"""A trace that names no primitive."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import said

TEXT = """\
ArgumentError: this is no trace: step 1: there is no primitive 'exec'

  script.py:1:  tir.Trace.from_json(text)
"""


def test_trace_unknown_primitive() -> None:
    text = '{"format": 1, "steps": [{"primitive": "exec", "args": [], "kwargs": {}}]}'
    with pytest.raises(tir.ArgumentError) as refused:
        tir.Trace.from_json(text)
    assert said(refused.value) == TEXT
