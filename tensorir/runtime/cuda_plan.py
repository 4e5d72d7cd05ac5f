"""A kernel on a CUDA device: its module there, and its launches made ready for some sizes."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tensorir.codegen.source import Argument, KernelSource, LaunchSource
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.runtime import cuda_device, ptxas
from tensorir.runtime.cuda_device import Device
from tensorir.support import reproducer
from tensorir.support.errors import (
    ArgumentError,
    CompileError,
    TensorIRError,
    UnsupportedError,
)

__all__ = ["Loaded", "Plan", "extents", "grid_of"]

_STATUS = 5  # of a failed check: its number and four values


class Loaded:
    """A kernel's module on one device, and the functions of its launches."""

    def __init__(self, source: KernelSource, ptx: str, device: Device) -> None:
        self.device = device
        self.module: Any = None
        with device.current():
            self.module = _module(source, ptx, device)
            self.functions = [
                device.function(self.module, x.name, x.shared_bytes) for x in source.launches
            ]

    def __del__(self) -> None:
        if self.module is None or self.device.driver.ended:
            return
        try:
            with self.device.current():
                self.device.driver.call("cuCtxSynchronize")
                self.device.driver.call("cuModuleUnload", self.module)
        except TensorIRError:
            pass  # the process ends, or the context is lost


def _module(source: KernelSource, ptx: str, device: Device) -> Any:
    """The code in the device's own language where there is an assembler, else the driver's."""
    arch = _require_arch(source, device)
    what = f"the code of {source.name}"
    if ptxas.find("ptxas") is not None:
        try:
            return device.load(ptxas.assemble(ptx, arch).cubin, what)
        except CompileError as problem:
            if not str(problem).startswith("the driver refuses"):
                raise
            # a driver older than the assembler: it compiles the text by itself
    try:
        return device.load(ptx.encode(), what)
    except CompileError as problem:
        path = reproducer.save(str(problem), state=ptx)
        if path is not None:
            problem.add_note(f"  saved  {path}")
        raise


def _require_arch(source: KernelSource, device: Device) -> str:
    wanted = source.target.cpu
    exact = wanted.endswith("a")
    number = int(wanted.removeprefix("sm_").rstrip("a"))
    have = 10 * device.capability[0] + device.capability[1]
    if number > have or (exact and number != have):
        only = "only " if exact else ""
        raise UnsupportedError(
            f"code for {source.target} needs {only}{wanted}{'' if exact else ' or newer'}; "
            f"cuda:{device.ordinal} ({device.name}) is {device.arch}",
            details='  try  target="cuda:sm_80", which newer devices run too' if have >= 80 else "",
        )
    return wanted if exact else device.arch


class Plan:
    """All launches of a kernel for some sizes on a stream, ready but for the arrays' addresses.

    The parameters of all launches lie in one block: arrays, scratch, sizes, the report. Each
    launch has a table of pointers into it.
    """

    def __init__(
        self, source: KernelSource, loaded: Loaded, sizes: Mapping[Any, int], stream: int
    ) -> None:
        self.device, self.stream = loaded.device, stream
        self.scratch: list[tuple[int, int]] = []
        self.report = 0
        self.names = [x.name for x in source.launches]
        self.lock = threading.Lock()
        arrays = len(source.arguments)
        count = arrays + len(source.scratch) + len(sizes) + 1
        self.values = (ctypes.c_uint64 * count)()
        self.pack = struct.Struct(f"{arrays}Q").pack_into
        self.launches: list[tuple[Any, ...]] = []
        self.tables: list[Any] = []
        with self.device.current():
            for a in source.scratch:
                size = prod(extents(a, sizes)) * a.dtype.bytes
                self.scratch.append((self.device.allocate(size), size))
            if any(x.reports for x in source.launches):
                self.report = self.device.allocate(8 * _STATUS)
        later = [p for p, _ in self.scratch] + [sizes[v] for v in source.sizes] + [self.report]
        self.values[arrays:] = [x % (1 << 64) for x in later]
        first = ctypes.addressof(self.values)
        numbers = range(arrays + len(source.scratch), count - 1)
        for function, x in zip(loaded.functions, source.launches, strict=True):
            grid = grid_of(x, sizes)
            if 0 in grid:
                continue
            slots = [*x.arrays, *numbers, *([count - 1] if x.reports else [])]
            table = (ctypes.c_void_p * max(len(slots), 1))(*(first + 8 * k for k in slots))
            self.tables.append(table)
            self.launches.append(
                (function, *grid, *x.threads, x.shared_bytes, stream, ctypes.addressof(table), 0)
            )

    def launch(self, pointers: Sequence[int]) -> None:
        """Put all launches on the stream."""
        driver = self.device.driver
        if driver.lost:
            raise driver.gone()
        run = driver.api.cuLaunchKernel
        with self.lock:
            self.pack(self.values, 0, *pointers)
            for words in self.launches:
                status = run(*words)[0]
                if status:
                    self._failed(int(status), words)
        driver.recent.extend(self.names)

    def _failed(self, status: int, words: tuple[Any, ...]) -> None:
        """Where another context was current, launch in ours; else raise."""
        driver = self.device.driver
        if status not in cuda_device.CONTEXT:
            driver.recent.extend(self.names)
            raise driver.failure("cuLaunchKernel", status)
        self.device.adopt()
        with self.device.current():
            driver.call("cuLaunchKernel", *words)

    def checked(self, pointers: Sequence[int]) -> tuple[int, list[int]]:
        """Launch; where loaded indices are checked, wait for what the checks say."""
        if not self.report:
            self.launch(pointers)
            return 0, []
        told = (ctypes.c_int64 * _STATUS)()
        with self.device.current():
            self.device.clear(self.report, 8 * _STATUS, self.stream)
            self.launch(pointers)
            size = ctypes.sizeof(told)
            self.device.download(ctypes.addressof(told), self.report, size, self.stream)
            self.device.wait(self.stream)
        return told[0], list(told)[1:]

    def close(self) -> None:
        """Give scratch memory back once nothing uses it."""
        if self.device.driver.ended or not (self.scratch or self.report):
            return
        scratch, report = self.scratch, self.report
        self.scratch, self.report = [], 0
        self.device.wait()  # for all streams: that of the plan may be gone
        with self.device.current():
            for pointer, size in scratch:
                self.device.give_back(pointer, size)
            if report:
                self.device.give_back(report, 8 * _STATUS)

    def __del__(self) -> None:
        try:
            self.close()
        except TensorIRError:
            pass  # the process ends, or the context is lost


# -- sizes


def extents(a: Argument, sizes: Mapping[Any, int]) -> tuple[int, ...]:
    """The shape of an argument."""
    return tuple(max(_value(e, sizes), 0) for e in a.shape)


def grid_of(launch: LaunchSource, sizes: Mapping[Any, int]) -> tuple[int, int, int]:
    """Blocks along x, y and z for some sizes.

    Raises
    ------
    ArgumentError
        More than a GPU has.
    """
    found = []
    for loops in launch.grid:
        ends = [min(_value(e, sizes) // c for c, e in bounds) + 1 for bounds in loops]
        found.append(max(ends, default=1))
    x, y, z = (max(n, 0) for n in found)
    if x >= 1 << 31 or y > 65_535 or z > 65_535:
        raise ArgumentError(
            f"a grid of {x:,} by {y:,} by {z:,} blocks; at most 2,147,483,647 by 65,535 by 65,535"
        )
    return x, y, z


def _value(e: Lin, sizes: Mapping[Any, int]) -> int:
    table: dict[Axis | Var, Lin] = {v: Lin({}, n) for v, n in sizes.items()}
    return e.subst(table).const
