"""Comparing fairly: the same threads for everybody, everybody in turns."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping

_LONG = 1.0  # seconds
# Variables that force another kernel or cache size on numpy's OpenBLAS than it would choose.
_FORCING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    """The variables of a process in which numpy uses that many threads and its own kernels."""
    kept = {k: v for k, v in os.environ.items() if k not in _FORCING}
    return kept | dict.fromkeys(_THREADS, str(threads))


def medians(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 9,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Seconds of each call: medians of rounds in which all take turns.

    A round runs each for some hundredths of a second. One that takes longer is left out of later
    rounds when it has had a second; then its first call, which warms up, may be all there is.
    """
    counts: dict[str, int] = {}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in calls.items():
        start = clock()
        call()
        first = clock() - start
        counts[name] = max(1, int(0.03 / max(first, 1e-9)))
        if first > _LONG:
            taken[name].append(first)
    for _ in range(rounds):
        for name, call in calls.items():
            if sum(taken[name]) * counts[name] > _LONG:
                continue
            start = clock()
            for _ in range(counts[name]):
                call()
            taken[name].append((clock() - start) / counts[name])
    return {name: statistics.median(t) for name, t in taken.items()}
