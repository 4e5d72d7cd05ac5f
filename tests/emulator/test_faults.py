"""A share of `python -m tests.emulator.faults`: every way of making faults, in one place each."""

from __future__ import annotations

import pytest

from tests.emulator import faults
from tests.emulator.faulty import Case, cases


@pytest.fixture(scope="module")
def every() -> list[Case]:
    return cases()


def test_unmodified_kernels(every: list[Case]) -> None:
    for case in every:
        faults.clean(case, seeds=3)


def test_every_fault_is_found(every: list[Case]) -> None:
    rows = faults.survey(every, places=1, kernels=1)
    assert not [m for r in rows for m in r.missed]
    assert sum(1 for r in rows if r.made) >= 40


def test_a_fault_that_is_missed_is_said() -> None:
    row = faults.Row("nothing")
    row.found["missed"] += 1
    row.missed.append("a kernel: line 3: a became b")
    assert faults.table([row]).splitlines()[1:] == [
        f"{'nothing':50} {1:5} {0:6}  ",
        "    missed: a kernel: line 3: a became b",
        "1 kinds of faults, 1 texts, 0 found, 1 missed",
    ]
