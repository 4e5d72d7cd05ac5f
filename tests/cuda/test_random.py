"""Random schedules under random bindings; `python -m tests.cuda.random` runs many."""

from __future__ import annotations

import pytest

from tests.cuda import random


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [1000, 5037, 20069, 20098])
def test_random_bindings(seed: int) -> None:
    counts = random.run(seed, 6)
    assert counts["pairs"] >= 6 and counts["bind"] > 6
