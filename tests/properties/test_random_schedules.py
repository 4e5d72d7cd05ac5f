"""R1 and R6: random declarations under random accepted schedules, between unreadable pages."""

from __future__ import annotations

import pytest

from tests.properties.check import run

# 2,000 pairs in parts, so that workers share them; each failure names the seed that shows it
PARTS = 20
EACH = 100


@pytest.mark.parametrize("part", range(PARTS))
def test_accepted_schedules_compute_what_the_declaration_means(part: int) -> None:
    counts = run(seed=100_000 * part, pairs=EACH)
    assert counts["pairs"] >= EACH
    assert sum(n for name, n in counts.items() if name.endswith("done")) > EACH
