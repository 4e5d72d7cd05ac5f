"""Measuring kernels: warm-up, medians and spread of interleaved rounds, rates; never one number."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import repeat, starmap
from math import prod
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorir.codegen import cpu
from tensorir.codegen.source import Argument
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.runtime.arguments import sizes_of
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.tracebacks import theirs, user_api

if TYPE_CHECKING:
    from tensorir.runtime.kernel import PlainKernel

__all__ = ["Timing", "Timings", "compare", "measure"]

_ROUND = 0.01  # seconds that one measurement lasts, so that the clock's resolution is nothing
_WARM = 0.02
_TOTAL = 1.5  # seconds after which no further measurement of one kernel begins
_REPEAT, _LEAST = 15, 5


@dataclass(frozen=True, slots=True)
class Timing:
    """What was measured of one kernel. Times are in seconds a call.

    Attributes
    ----------
    name
        Of the kernel.
    median, best, spread
        Median and smallest of the measurements, and the range of their middle half relative to
        the median.
    repeats, calls
        Number of measurements, and calls in each.
    operations, bytes
        Floating operations and bytes of arrays of one call; 0 where unknown.
    """

    name: str
    median: float
    best: float
    spread: float
    repeats: int
    calls: int
    operations: int = 0
    bytes: int = 0

    @property
    def gflops(self) -> float:
        """Billions of the declared operations a second, by the median.

        A schedule that computes cells again does no more of them; of a domain that is no box, those
        of the box around it are counted.
        """
        return self.operations / self.median / 1e9 if self.median else 0.0

    @property
    def gbytes(self) -> float:
        """Billions of bytes of arrays a second, by the median."""
        return self.bytes / self.median / 1e9 if self.median else 0.0

    def __str__(self) -> str:
        parts = [f"{_time(self.median)} median (best {_time(self.best)}, ±{self.spread / 2:.0%})"]
        if self.operations:
            parts.append(f"{self.gflops:.3g} GFLOP/s")
        if self.bytes:
            parts.append(f"{self.gbytes:.3g} GB/s")
        return f"{self.name}: {', '.join(parts)}; {self.repeats} x {_calls(self.calls)}"

    __repr__ = __str__


class Timings(tuple[Timing, ...]):
    """Timings of several kernels, measured in turns; prints as a table, fastest first."""

    __slots__ = ()

    def __str__(self) -> str:
        if not self:
            return "(nothing was measured)"
        ranked = sorted(self, key=lambda t: t.median)
        width = max(len(t.name) for t in ranked)
        lines = []
        for t in ranked:
            rate = f"{t.gflops:8.3g} GFLOP/s" if t.operations else ""
            ratio = t.median / ranked[0].median if ranked[0].median else 1.0
            line = f"{t.name:{width}}  {_time(t.median):>10} ±{t.spread / 2:<4.0%} {ratio:6.2f}x"
            lines.append(f"{line} {rate}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__


def _time(seconds: float) -> str:
    """
    >>> _time(3.2e-08), _time(0.0123), _time(2.5)
    ('32 ns', '12.3 ms', '2.5 s')
    """
    for unit, scale in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def _calls(n: int) -> str:
    return "1 call" if n == 1 else f"{n} calls"


def measure(
    kernel: PlainKernel, inputs: Sequence[Any], *, repeat: int | None = None, flush: bool = False
) -> Timing:
    """Measure one kernel; see `Kernel.time`."""
    return _measure([kernel], inputs, repeat, flush)[0]


@user_api
def compare(
    *kernels: Callable[..., Any],
    inputs: Sequence[Any],
    repeat: int | None = None,
    flush: bool = False,
) -> Timings:
    """Measure several kernels, or other functions of the same inputs, in turns.

    What disturbs the machine then disturbs all of them alike.

    Parameters
    ----------
    *kernels
        Kernels, or functions such as `numpy.matmul`.
    inputs
        The arrays that each is called with.
    repeat
        Number of rounds. Default: 15, fewer for slow kernels.
    flush
        Whether to empty the caches before each call.

    Returns
    -------
    Timings
        One for each, in the order given; prints as a table.
    """
    for kernel in kernels:
        if not callable(kernel):
            raise ArgumentTypeError(f"compare: expected kernels, got {kernel!r:.60}")
    if not isinstance(inputs, tuple | list):
        raise ArgumentTypeError(f"inputs={inputs!r:.60}: expected a tuple of arrays")
    return Timings(_measure(list(kernels), inputs, repeat, flush))


def _measure(
    functions: Sequence[Callable[..., Any]],
    inputs: Sequence[Any],
    repeats: int | None,
    flush: bool,
) -> list[Timing]:
    if repeats is not None and (isinstance(repeats, bool) or not isinstance(repeats, int)):
        raise ArgumentTypeError(f"repeat={repeats!r}: expected an integer")
    if repeats is not None and repeats < 1:
        raise ArgumentError(f"repeat={repeats}: expected at least 1")
    if not isinstance(flush, bool):
        raise ArgumentTypeError(f"flush={flush!r}: expected True or False")
    calls = [_Call(function, inputs) for function in functions]
    flusher = _Flusher() if flush else None
    counts = [1 if flush else one.count() for one in calls]
    rounds: list[list[float]] = [[] for _ in calls]
    rounds_wanted = _REPEAT if repeats is None else repeats
    start = time.perf_counter()
    for number in range(rounds_wanted):
        late = time.perf_counter() - start > _TOTAL * len(calls)
        if repeats is None and number >= _LEAST and late:
            break
        for one, count, times in zip(calls, counts, rounds, strict=True):
            if flusher is not None:
                flusher()
            times.append(one.run(count))
    return [
        _timing(function, inputs, times, count)
        for function, times, count in zip(functions, rounds, counts, strict=True)
    ]


class _Call:
    """One call, to be repeated with as little Python around it as there can be."""

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Any]) -> None:
        self.function = function
        self.args = tuple(inputs)
        source = getattr(function, "source", None)
        self.guard: Callable[[], AbstractContextManager[None]]
        self.guard = theirs if source is None else nullcontext
        # a call of a kernel on a device returns before the kernel ends
        self.finish: Callable[[], object] = getattr(function, "wait", _nothing)
        if source is not None and len(inputs) < len(source.arguments):
            self.args = self._with_outputs(source.arguments)

    def _with_outputs(self, arguments: Sequence[Argument]) -> tuple[Any, ...]:
        """Outputs are made once: fresh memory costs more than many kernels."""
        made = self.function(*self.args)
        outputs = iter(made if isinstance(made, tuple) else (made,))
        inputs = iter(self.args)
        return tuple(next(inputs if a.role == "input" else outputs) for a in arguments)

    def run(self, count: int) -> float:
        """Seconds a call, over `count` calls."""
        calls = starmap(self.function, repeat(self.args, count))
        with self.guard():
            start = time.perf_counter()
            deque(calls, maxlen=0)
            self.finish()
            return (time.perf_counter() - start) / count

    def count(self) -> int:
        """Warm up, and find how many calls last long enough to be measured."""
        start = time.perf_counter()
        count = 1
        while True:
            each = self.run(count)
            if each * count >= _ROUND or time.perf_counter() - start > _WARM:
                return max(1, round(_ROUND / max(each, 1e-9)))
            count *= 4


def _nothing() -> None:
    pass


class _Flusher:
    """Writes more memory than the last cache holds."""

    def __init__(self) -> None:
        size = 2 * cpu.target("native").l3
        self.memory = np.ones(max(size, 1 << 20) // 8, np.float64)

    def __call__(self) -> None:
        self.memory += 1.0


def _timing(
    function: Callable[..., Any], inputs: Sequence[Any], times: list[float], count: int
) -> Timing:
    middle = median(times)
    spread = 0.0
    if len(times) > 1 and middle > 0:
        low, _, high = quantiles(times, n=4, method="inclusive")
        spread = (high - low) / middle
    operations = moved = 0
    source = getattr(function, "source", None)
    if source is not None:
        sizes = sizes_of(source, inputs, source.name)
        operations = evaluate(source.operations, sizes)
        moved = evaluate(source.bytes_moved, sizes)
    name = getattr(function, "name", None) or getattr(function, "__name__", "function")
    return Timing(str(name), middle, min(times), spread, len(times), count, operations, moved)


def evaluate(
    polynomial: tuple[tuple[int, tuple[Lin, ...]], ...], sizes: dict[Axis | Var, int]
) -> int:
    """A sum of products of affine terms at some sizes."""
    return sum(c * prod(max(0, f.evaluate(sizes)) for f in factors) for c, factors in polynomial)
