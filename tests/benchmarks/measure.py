"""Interleaved medians: candidates take turns, so that a busy moment hits all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

Clock = Callable[[], float]


def interleaved(
    candidates: dict[str, Callable[[], object]],
    *,
    rounds: int = 11,
    least: float = 0.05,
    clock: Clock = time.thread_time,
) -> dict[str, float]:
    """The median time of one call of each candidate, in seconds.

    Each of `rounds` rounds runs every candidate for about `least` seconds.
    """
    repeats: dict[str, int] = {}
    for name, call in candidates.items():
        call()
        start = clock()
        call()
        repeats[name] = max(1, int(least / max(clock() - start, 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            start = clock()
            for _ in range(repeats[name]):
                call()
            times[name].append((clock() - start) / repeats[name])
    return {name: statistics.median(t) for name, t in times.items()}
