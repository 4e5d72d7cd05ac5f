"""What decompose_reduction, init_at, rfactor and vector_reduce refuse, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said, scaled
from tests.errors.stages import difference, first, left

Refused = Callable[[], tir.Schedule]

CASES: dict[str, tuple[Refused, str]] = {
    "decompose_no_reduction": (
        lambda: scaled().decompose_reduction("B", "i"),
        """\
ScheduleError: decompose_reduction: B is not a reduction
""",
    ),
    "decompose_inside": (
        lambda: matmul(8, 8, 8).split("k", 2).decompose_reduction("C", "ki"),
        """\
ScheduleError: decompose_reduction: 'ki' is inside the reduction loop 'ko'

  why  the initial value would be set again in each of its iterations.
""",
    ),
    "decompose_twice": (
        lambda: matmul(8, 8, 8).decompose_reduction("C", "i").decompose_reduction("C", "i"),
        """\
ScheduleError: decompose_reduction: the initial value of C is set before 'i' already
""",
    ),
    "init_at_not_outermost": (
        lambda: matmul(8, 8, 8).split("k", 2).init_at("C", "ki"),
        """\
ScheduleError: init_at: 'ki' is not the outermost reduction loop of C; 'ko' is

  try  s.init_at("C", "ko")         is the outermost
""",
    ),
    "init_at_spatial": (
        lambda: matmul(8, 8, 8).init_at("C", "i"),
        """\
ScheduleError: init_at: 'i' is not a reduction loop of C

  try  s.init_at("C", "k")          is the outermost
""",
    ),
    "init_at_after_cache_write": (
        lambda: matmul(8, 8, 8).reorder("k", "i", "j").cache_write("C", at="k").init_at("C", "k"),
        """\
ScheduleError: init_at: C accumulates into C_local, and C.init does not write that

  why  init_at comes before cache_write.
""",
    ),
    "rfactor_spatial": (
        lambda: matmul(8, 8, 8).rfactor("i"),
        """\
ScheduleError: rfactor: 'i' is not a loop over a reduction

  why  the reduction loops inside it are k.
""",
    ),
    "rfactor_not_associative": (
        lambda: difference().rfactor("k"),
        """\
IllegalSchedule: rfactor would regroup B, and its reducer 'sub' is not associative

  why  (a + b) + c must equal a + (b + c).
""",
    ),
    "rfactor_at_inside": (
        lambda: matmul(8, 8, 8).split("k", 2).rfactor("ki", at="ko"),
        """\
ScheduleError: rfactor: at='ko' is a reduction loop itself

  why  the results would be combined before they are whole.
""",
    ),
    "rfactor_no_identity": (
        lambda: first().rfactor("k"),
        """\
IllegalSchedule: rfactor would regroup B, and its reducer 'first' has no identity

  why  partial results must start from a neutral value.
""",
    ),
    "vector_reduce_not_commutative": (
        lambda: left().vector_reduce("k", 4),
        """\
IllegalSchedule: vector_reduce would change the order of B, and its reducer 'left' is not commutative

  why  only the outermost reduction loop, 'k', keeps the order.
""",
    ),
}


def without_place(text: str) -> str:
    """What is said, less the line of the test that asked for it."""
    parts = text.split("\n\n")
    return "\n\n".join(p for p in parts if not p.lstrip().startswith("script.py:"))


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str) -> None:
    ask, text = CASES[name]
    with pytest.raises(tir.TensorIRError) as refused:
        ask()
    assert without_place(said(refused.value)).rstrip("\n") == text.rstrip("\n")
