"""What cross_thread refuses, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said, scaled, without_place

CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "spatial": (
        lambda: scaled().cross_thread("i"),
        "ScheduleError: cross_thread: 'i' is not the innermost loop of one reduction\n\n"
        "  why  what each thread has is combined in one step: rfactor makes partial results.\n",
    ),
    "outer": (
        lambda: matmul().split("k", 8).cross_thread("ko"),
        "ScheduleError: cross_thread: 'ko' is not the innermost loop of one reduction\n\n"
        "  why  what each thread has is combined in one step: rfactor makes partial results.\n",
    ),
    "kept": (
        lambda: matmul().reorder("k", "i", "j").cross_thread("j"),
        "ScheduleError: cross_thread: 'j' is not a loop over a reduction",
    ),
    "marked": (
        lambda: matmul().unroll("k").cross_thread("k"),
        "ScheduleError: cross_thread: 'k' is unrolled already, since step 1, unroll(\"k\")",
    ),
    "symbolic": (
        lambda: matmul(4, 4, tir.var("n")).cross_thread("k"),
        "ScheduleError: bind: the extent of 'k' is not a constant\n\n"
        "  why  threadIdx.x needs a number of threads that is fixed when the kernel is made.\n"
        '  try  s.split("k", 128)            threads for blocks of 128\n',
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_refused(case: str) -> None:
    call, text = CALLS[case]
    with pytest.raises(tir.TensorIRError) as refused:
        call()
    assert without_place(said(refused.value)) == text
