"""Our candidate, as a user gets it: one call of `schedules.build`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import schedules
from tensorir.codegen import cpu
from tensorir.lower.pipeline import lower
from tensorir.runtime.build import source_of
from tensorir.runtime.kernel import make_kernel
from tests.benchmarks.work import Array, Candidate, Work, empty


def ours(work: Work, arrays: tuple[Array, ...]) -> tuple[Any, Candidate]:
    """The kernel, and the candidate that calls it with an output made before."""
    kernel = schedules.build(work.op, *arrays)
    fresh = kernel(*arrays)
    out = empty(fresh.shape, fresh.dtype)
    return kernel, Candidate(_call(kernel, arrays, out), lambda: out)


def _call(kernel: Any, arrays: tuple[Array, ...], out: Array) -> Callable[[], object]:
    """The call as one writes it: to unpack a tuple costs as much as a small kernel."""
    if len(arrays) == 1:
        (a,) = arrays
        return lambda: kernel(a, out=out)
    if len(arrays) == 2:
        a, b = arrays
        return lambda: kernel(a, b, out=out)
    return lambda: kernel(*arrays, out=out)


def compile_ms(kernel: Any, repeats: int = 3) -> float:
    """From its schedule to a callable, warm, the object cache off; a median, in milliseconds.

    Of this thread's time: other work on the machine does not count.
    """
    target = cpu.target("native")
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        make_kernel(source_of(lower(kernel.schedule.program, target), target), use_cache=False)
        times.append(1e3 * (time.thread_time() - start))
    return statistics.median(times)
