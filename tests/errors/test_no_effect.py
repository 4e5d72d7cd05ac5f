"""Steps that change nothing: each warns where it was asked for, and the trace says so."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import chain, matmul, scaled

CASES: dict[str, tuple[Callable[[], tir.Schedule], str]] = {
    "order": (
        lambda: matmul().reorder("i", "j"),
        'reorder("i", "j") has no effect: the loops are in that order already',
    ),
    "one_thread": (
        lambda: scaled(1).parallel("i"),
        "parallel(\"i\") has no effect: 'i' has one point",
    ),
    "one_lane": (
        lambda: scaled().vectorize("i", 1),
        'vectorize("i", 1) has no effect: a block of one point is the point itself',
    ),
    "one_copy": (
        lambda: scaled().unroll("i", 1),
        'unroll("i", 1) has no effect: a block of one point is the point itself',
    ),
    "scope": (
        lambda: chain().set_scope("X", "global"),
        'set_scope("X", "global") has no effect: X is in global memory already',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(case: str) -> None:
    step, text = CASES[case]
    with pytest.warns(tir.TensorIRWarning) as caught:
        s = step()
    (warning,) = caught
    assert str(warning.message) == f'{text} [silence("no-effect")]'
    assert warning.filename == __file__
    assert text.partition(": ")[2] in str(s.trace)


def test_questions_and_own_schedules_do_not_warn() -> None:
    s = scaled(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert s.check("parallel", "i")
        assert "no effect: 'i' has one point" in s.explain("parallel", "i")
        matmul().vector_reduce("k", 1, 1)


def test_a_step_with_an_effect_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        matmul().reorder("k", "i", "j").vectorize("j", 16).parallel("C.init.i")
