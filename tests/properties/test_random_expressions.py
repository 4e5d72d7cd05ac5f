"""R1 again, over declarations drawn term by term."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.properties import moves, wild
from tests.properties.check import check_case

PARTS, CASES = 8, 6


@pytest.mark.parametrize("part", range(PARTS))
def test_accepted_schedules_of_random_expressions(part: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(1000 * part, 1000 * part + CASES):
        check_case(seed, counts, guard_pages=1.0, draw=wild.draw, schedule=moves.stubborn_schedule)
    assert counts["pairs"] >= CASES


@pytest.mark.parametrize("part", range(PARTS))
def test_every_primitive_on_known_computations(part: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(1000 * part, 1000 * part + 2 * CASES):
        check_case(seed, counts, guard_pages=1.0, schedule=moves.stubborn_schedule)
    used = {name.split()[0] for name in counts if name.endswith(" done")}
    assert len(used) >= 12, used


def test_declarations_are_various() -> None:
    cases = [wild.draw(Random(seed)) for seed in range(40)]
    assert len({c.name for c in cases}) >= 6
    assert any(len(c.outputs) > 1 for c in cases)
    assert any(len(c.sizes) > 1 for c in cases)
