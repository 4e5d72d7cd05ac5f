"""Interleaved medians: candidates take turns, so that a busy moment hits all of them.

Each round has an order of its own: what the caches hold is what the one before left there.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to measure: rounds, seconds of each candidate in a round, seconds of all in all."""

    rounds: int = 11
    least: float = 0.02
    budget: float = 6.0


QUICK = Pace(rounds=3, least=0.005, budget=1.0)


def interleaved(
    candidates: dict[str, Callable[[], object]],
    *,
    rounds: int = 11,
    least: float = 0.05,
    clock: Clock = time.thread_time,
    budget: float | None = None,
) -> dict[str, float]:
    """The median time of one call of each candidate, in seconds.

    Each of `rounds` rounds runs every candidate for about `least` seconds; once `budget` seconds
    have passed, the round under way is the last, and no candidate has fewer than three.
    """
    repeats: dict[str, int] = {}
    for name, call in candidates.items():
        call()
        start = clock()
        call()
        repeats[name] = max(1, int(least / max(clock() - start, 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + budget if budget is not None else float("inf")
    for done in range(rounds):
        if done > 2 and time.perf_counter() > end:
            break
        for name in random.Random(done).sample([*candidates], len(candidates)):
            call = candidates[name]
            count = range(repeats[name])
            start = clock()
            for _ in count:
                call()
            times[name].append((clock() - start) / len(count))
    return {name: statistics.median(t) for name, t in times.items()}
