"""A question that its budget of integer set operations does not answer: a refusal."""

from __future__ import annotations

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

TEXT = """\
IllegalSchedule: parallel("ij") could not be proved to keep the result: 1,000 isl operations were not enough to decide this

  script.py:1:  s.parallel("ij")

  why  what is not proved is not done.
  try  tir.knobs.isl_operations = 10_000 allows ten times as many
  more tir.help("could-not-prove")
"""


def test_could_not_prove() -> None:
    s = matmul(13, 17, 19).fuse("i", "j", into="ij")  # indices alone do not tell
    with tir.knobs.override(isl_operations=1_000), pytest.raises(tir.IllegalSchedule) as refused:
        s.parallel("ij")
    assert said(refused.value) == TEXT
    assert refused.value.witness is None
    assert s.parallel("ij").axes
