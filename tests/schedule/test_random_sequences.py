"""Random accepted sequences of primitives, run instance by instance against the declared order."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.properties.moves import random_schedule
from tests.schedule.interpret import Fault, same
from tests.schedule.small import CASES

SEED = 20261
STEPS = 6


def check(seed: int, counts: Counter[str]) -> None:
    rng = Random(seed)
    make = rng.choice(CASES)
    s0, sizes = make(rng)
    s = random_schedule(s0, rng, rng.randint(1, STEPS), counts)
    for z in sizes:
        try:
            same(s0.program, s.program, z)
        except Fault as fault:
            raise AssertionError(
                f"seed {seed}, {make.__name__}, sizes {z}: {fault}\n{s.trace.to_python()}\n{s}"
            ) from None


@pytest.mark.parametrize("part", range(4))
def test_random_sequences_keep_the_result(part: int) -> None:
    for n in range(25):
        check(SEED + 1000 * part + n, Counter())
