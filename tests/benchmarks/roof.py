"""The roofs, measured in the same rounds as what is compared with them.

Arithmetic: `tensorir.runtime.peak`. Memory: `tensorir.runtime.bandwidth`, a loop that reads and
writes as many arrays as the workload, once with plain and once with non-temporal stores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorir.ir.dtype import FLOAT32, FLOAT64
from tensorir.runtime.bandwidth import streams
from tensorir.runtime.peak import fma_peak
from tests.benchmarks.work import Work


@dataclass(frozen=True, slots=True)
class Roof:
    """Operations of a call of `fma`, and how often a call of `stream` goes over its arrays."""

    operations: float
    passes: int


def roofs(work: Work) -> tuple[dict[str, Callable[[], object]], Roof]:
    """Calls to time, and what one of them does.

    The names are `fma`, and, where there is traffic, `stream` and `stream nt`.
    """
    run, operations = fma_peak(dtype=FLOAT64 if work.dtype == "float64" else FLOAT32)
    calls: dict[str, Callable[[], object]] = {"fma": run}
    if work.traffic is None:
        return calls, Roof(float(operations), 1)
    found, passes = streams(work.traffic.size, work.traffic.reads, work.traffic.writes)
    return calls | found, Roof(float(operations), passes)


def least_time(work: Work, times: dict[str, float], one: Roof, threads: int) -> float:
    """The time below which no kernel of this workload can come, in seconds."""
    peak = one.operations / times["fma"] * work.rate * threads
    memory = [times[x] / one.passes for x in ("stream", "stream nt") if x in times]
    return max(work.operations / peak, min(memory, default=0.0))
