"""Every operator as the library schedules it, at a few of the sizes, types and targets it takes.

`python -m tests.kernels.sweep` draws as many as you like.
"""

from __future__ import annotations

import pytest

from tensorir.ops import operators
from tests.kernels.sweep import trials
from tests.kernels.trials import attempt

SEED, EACH, PARTS = 3, 2, 10
DRAWN = trials(SEED, EACH * len(operators()), operators())


@pytest.mark.parametrize("part", range(PARTS))
def test_drawn(part: int) -> None:
    compared = 0
    mine = DRAWN[part::PARTS]
    for trial in mine:
        print(f"python -m tests.kernels.sweep --again {trial.line()!r}")
        compared += attempt(trial) is None
    assert compared > 0.7 * len(mine)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_many_more(seed: int) -> None:
    for trial in trials(seed, len(operators()), operators()):
        print(f"python -m tests.kernels.sweep --again {trial.line()!r}")
        attempt(trial)
