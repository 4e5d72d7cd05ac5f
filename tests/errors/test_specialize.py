"""What specialize refuses, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import chain, said, without_place

Refused = Callable[[], tir.Schedule]


def sized() -> tir.Schedule:
    """`B = 2 * A` over symbolic sizes `m` and `n`."""
    n, m = tir.var("n"), tir.var("m")
    A = tir.placeholder((m, n), name="A")
    return tir.schedule(tir.compute((m, n), lambda i, j: A[i, j] * 2.0, name="B"))


CASES: dict[str, tuple[Refused, str]] = {
    "specialize_nothing": (
        lambda: sized().specialize(),
        """\
ScheduleError: specialize: give it at least one condition, as in n % 16 == 0
""",
    ),
    "specialize_number": (
        lambda: sized().specialize(3),
        """\
ArgumentTypeError: specialize: a condition compares sizes, as in n % 16 == 0, and is not 3
""",
    ),
    "specialize_unknown": (
        lambda: sized().specialize("k == 3"),
        """\
ScheduleError: specialize: 'k' is no size of this schedule

  why  the symbolic sizes are m, n.
""",
    ),
    "specialize_other_size": (
        lambda: sized().specialize(tir.var("n") == 3),
        """\
ScheduleError: specialize: this size 'n' is another one than the schedule's

  why  two calls of tir.var make two sizes, whatever their names; use the one that the computation
       was declared with, or the text of the condition.
""",
    ),
    "specialize_not_affine": (
        lambda: sized().specialize("n * m == 4"),
        """\
UnsupportedError: specialize: the condition n * m == 4 is not affine

  why  it must compare sums of sizes and constants, also with // and % by a constant, joined by &.
""",
    ),
    "specialize_cases": (
        lambda: sized().specialize("n != 4"),
        """\
UnsupportedError: specialize: the condition n != 4 holds in 2 separate cases

  why  each condition is one copy of the nest, for one case.
  try  s.specialize("n >= 5", "n <= 3") names the cases
""",
    ),
    "specialize_axis": (
        lambda: sized().specialize(sized().axes[0] == 3),
        """\
ScheduleError: specialize: the condition names the axis 'i'

  why  a version of the nest is chosen once for a call, by its sizes alone.
""",
    ),
    "specialize_text": (
        lambda: sized().specialize("n == open(3)"),
        """\
ScheduleError: specialize: cannot read 'open(3)' in a condition

  why  it is written with sizes, whole numbers, + - * // %, comparisons and &.
""",
    ),
    "specialize_syntax": (
        lambda: sized().specialize("n == "),
        """\
ScheduleError: specialize: cannot read the condition 'n == ': invalid syntax
""",
    ),
    "specialize_too_many": (
        lambda: sized().specialize(*(f"n == {k}" for k in range(9))),
        """\
ScheduleError: specialize: 9 conditions; at most 8 are taken

  why  each is a copy of the whole nest, compiled with it.
""",
    ),
    "specialize_no_sizes": (
        lambda: chain().specialize("n == 3"),
        """\
ScheduleError: specialize: 'n' is no size of this schedule

  why  this schedule has no symbolic size.
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str) -> None:
    ask, text = CASES[name]
    with pytest.raises(tir.TensorIRError) as refused:
        ask()
    assert without_place(said(refused.value)).rstrip("\n") == text.rstrip("\n")
