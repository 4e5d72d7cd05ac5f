"""Measuring kernels on a CUDA device, by its own events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorir.runtime import cuda_device
from tensorir.runtime.cuda_device import Device
from tensorir.runtime.device_arrays import DeviceArray, is_on_device, place_of, to_device
from tensorir.runtime.timer import Timing, evaluate
from tensorir.support.errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from tensorir.runtime.cuda_kernel import CudaKernel

__all__ = ["Stopwatch", "measure"]

_ROUND = 10.0  # milliseconds that one measurement lasts
_TOTAL = 1500.0
_REPEAT, _LEAST = 15, 5
_MOST_CALLS = 1000
_MiB = 1 << 20


class Stopwatch:
    """Milliseconds between two places of a stream."""

    def __init__(self, device: Device, stream: int) -> None:
        self.device, self.stream = device, stream
        with device.current():
            self.marks = device.event(), device.event()

    def __call__(self, work: Callable[[], object]) -> float:
        """What `work` put on the stream, once it is done."""
        call = self.device.driver.call
        first, last = self.marks
        with self.device.current():
            call("cuEventRecord", first, self.stream)
            work()
            call("cuEventRecord", last, self.stream)
            call("cuEventSynchronize", last)
            return float(call("cuEventElapsedTime", first, last))

    def close(self) -> None:
        for mark in self.marks:
            self.device.driver.call("cuEventDestroy", mark)


def measure(
    kernel: CudaKernel, inputs: Sequence[Any], *, repeat: int | None = None, flush: bool = False
) -> Timing:
    """Measure one kernel; see `CudaKernel.time`."""
    if repeat is not None and (isinstance(repeat, bool) or not isinstance(repeat, int)):
        raise ArgumentTypeError(f"repeat={repeat!r}: expected an integer")
    if repeat is not None and repeat < 1:
        raise ArgumentError(f"repeat={repeat}: expected at least 1")
    if not isinstance(flush, bool):
        raise ArgumentTypeError(f"flush={flush!r}: expected True or False")
    there = [x if is_on_device(x) else to_device(np.asarray(x)) for x in inputs]
    arguments = kernel.source.arguments
    if len(there) < len(arguments):
        made = kernel(*there)
        outputs = iter(made if isinstance(made, tuple) else (made,))
        given = iter(there)
        there = [next(given if a.role == "input" else outputs) for a in arguments]
    kernel(*there)
    first = place_of(there[0], "an argument")
    device, stream = cuda_device.device(first.ordinal), first.stream or cuda_device.LEGACY
    watch = Stopwatch(device, stream)
    emptied = _Emptier(device, stream) if flush else None

    def once() -> float:
        if emptied is not None:
            emptied()
        return watch(lambda: kernel(*there))

    def several(count: int) -> float:
        if emptied is not None:
            return sum(once() for _ in range(count)) / count
        return watch(lambda: [kernel(*there) for _ in range(count)]) / count

    each = max(several(3), 1e-4)
    count = min(max(1, round(_ROUND / each)), _MOST_CALLS)
    times: list[float] = []
    for number in range(repeat or _REPEAT):
        if repeat is None and number >= _LEAST and sum(times) * count > _TOTAL:
            break
        times.append(several(count))
    watch.close()
    return _timing(kernel, there, times, count)


def _timing(
    kernel: CudaKernel, arrays: Sequence[Any], times: Sequence[float], count: int
) -> Timing:
    from tensorir.runtime.arguments import sizes_by_shape

    source = kernel.source
    sizes = sizes_by_shape(source, arrays, kernel.name)
    seconds = [t / 1e3 for t in times]
    middle = median(seconds)
    spread = 0.0
    if len(times) > 1 and middle > 0:
        low, _, high = quantiles(seconds, n=4, method="inclusive")
        spread = (high - low) / middle
    work, moved = (evaluate(p, sizes) for p in (source.operations, source.bytes_moved))
    return Timing(kernel.name, middle, min(seconds), spread, len(times), count, work, moved)


class _Emptier:
    """Writes more memory than the device's cache holds."""

    def __init__(self, device: Device, stream: int) -> None:
        from tensorir.ir.dtype import dtype

        size = 2 * max(device.l2, _MiB)
        self.device, self.stream = device, stream
        self.memory = DeviceArray(device, (size,), dtype("uint8"), stream)

    def __call__(self) -> None:
        with self.device.current():
            self.device.clear(self.memory.pointer, self.memory.nbytes, self.stream)
