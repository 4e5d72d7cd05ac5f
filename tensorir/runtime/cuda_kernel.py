"""Kernels for CUDA: their PTX, and calls that run it in the emulator or on a GPU."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorir.codegen import cuda, worker
from tensorir.codegen.source import Argument, KernelSource, LaunchSource
from tensorir.ir.expr import Var
from tensorir.runtime import cuda_device, ptxas, timer
from tensorir.runtime.arguments import Copies, slow_call
from tensorir.runtime.cuda_call import Runner
from tensorir.runtime.cuda_plan import extents, grid_of
from tensorir.runtime.cuda_timer import measure
from tensorir.runtime.device_arrays import is_on_device
from tensorir.runtime.kernel import PlainKernel
from tensorir.support import display
from tensorir.support.cache import digest, shared
from tensorir.support.errors import UnsupportedError
from tensorir.support.tracebacks import user_api

if TYPE_CHECKING:
    from tensorir.emulator.ptx import Report

__all__ = ["CudaKernel", "make_cuda_kernel"]


class CudaKernel(PlainKernel):
    """A kernel compiled for CUDA.

    Call it as any kernel: with numpy's arrays, which are copied to the device and back, or with
    arrays on a device (torch, CuPy, JAX, `tir.to_device`), which are not; the call then returns
    before the kernel ends, as their libraries' own calls do, and runs on their current stream.
    With target `emulator` it runs in the PTX emulator: every call is checked for races and the
    like, and leaves its `reports`.

    Attributes
    ----------
    ptx : str
        The code; `asm` is the same.
    sass : str
        The code of the device itself, where ptxas and nvdisasm are found.
    resources : tuple of Resources
        Registers, shared memory, spills and occupancy of each launch, where ptxas is found.
    launches : tuple of LaunchSource
        Name, grid, threads and shared memory of each launch.
    reports : tuple of Report
        What the emulator counted in the last call, one for each launch.
    checks : bool
        Whether the emulator looks for races and counts; bounds it always checks.
    seed : int
        Draws the interleaving of threads in the emulator.
    """

    def __init__(
        self, source: KernelSource, ptx: str, timings: dict[str, float], schedule: Any
    ) -> None:
        self.source, self.schedule, self.timings = source, schedule, timings
        self.copies = Copies()
        self.reports: tuple[Report, ...] = ()
        self.checks = True
        self.seed = 0
        self._ptx = ptx
        self._runner = Runner(self)

    @property
    def launches(self) -> tuple[LaunchSource, ...]:
        return self.source.launches

    @property
    def llvm(self) -> str:
        return display.Text(cuda.module(self.source.llvm, self.source.target))

    @property
    def ptx(self) -> str:
        return display.Text(self._ptx)

    @property
    def asm(self) -> str:
        return self.ptx

    @property
    def emulated(self) -> bool:
        return self.source.target.name.startswith("emulator")

    @property
    @user_api
    def sass(self) -> str:
        return display.Text(ptxas.sass(self._assembled().cubin))

    @property
    @user_api
    def resources(self) -> tuple[ptxas.Resources, ...]:
        arch = self.source.target.cpu
        return tuple(ptxas.resources(self._assembled(), self.launches, arch))

    def _assembled(self) -> ptxas.Assembled:
        return ptxas.assemble(self._ptx, self.source.target.cpu)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._runner.quick and not kwargs:
            done = self._runner.call(args)
            if done is not None:
                return done
        return self._call(*args, **kwargs)

    @user_api
    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """A call of which nothing is known."""
        out = kwargs.get("out", ())
        every = (*args, *(out if isinstance(out, tuple | list) else (out,)))
        if self.emulated or not any(is_on_device(x) for x in every):
            return slow_call(self, *args, **kwargs)
        self._require_driver()
        return self._runner.careful(args, kwargs)

    @user_api
    def time(self, *inputs: Any, repeat: int | None = None, flush: bool = False) -> timer.Timing:
        """Measure the kernel on a GPU by its events, copies of numpy's arrays aside.

        Parameters
        ----------
        *inputs
            As in a call; numpy's arrays are copied to the device once, before.
        repeat
            Number of measurements; each lasts about 10 ms. Default: 15, fewer for slow kernels.
        flush
            Whether to empty the cache before each call.

        Raises
        ------
        UnsupportedError
            The kernel runs in the emulator, or there is no driver.
        """
        if self.emulated:
            raise UnsupportedError("the time that the emulator takes says nothing of a GPU's")
        self._require_driver()
        return measure(self, inputs, repeat=repeat, flush=flush)

    @user_api
    def wait(self) -> None:
        """Wait until all that was asked of the devices is done; a failed kernel is told here."""
        for loaded in self._runner.loaded.values():
            loaded.device.wait()

    @user_api
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the kernel to a file that `tir.load` reads: PTX, LLVM text, and a manifest."""
        from tensorir.runtime.files import save

        save(path, self.source, self._ptx.encode())

    def _require_driver(self) -> None:
        why = cuda_device.absence()
        if why:
            raise UnsupportedError(
                f"code for {self.source.target} can be built and read here, but not run: {why}",
                details='  try  target="emulator", which runs the same PTX on this machine',
            )

    def run(self, pointers: list[int], sizes: list[int]) -> tuple[int, list[int]]:
        """Run all launches on arrays at addresses of this machine."""
        if not self.emulated:
            self._require_driver()
            return self._runner.run_host(pointers, sizes)
        from tensorir.emulator.ptx import run  # large, and only called here

        values = dict(zip(self.source.sizes, sizes, strict=True))
        arrays = [_at(p, a, values) for p, a in zip(pointers, self.source.arguments, strict=True)]
        first = len(arrays)
        arrays += [np.zeros(extents(a, values), a.dtype.numpy) for a in self.source.scratch]
        told = np.zeros(5, np.int64)
        reports = []
        fresh = {
            k for k, a in enumerate((*self.source.arguments, *self.source.scratch))
            if k >= first or a.role == "output"
        }  # fmt: skip
        for launch in self.source.launches:
            grid = grid_of(launch, values)
            if 0 in grid:
                continue
            args: list[Any] = [arrays[k] for k in launch.arrays]
            unwritten = [p for p, k in enumerate(launch.arrays) if k in fresh]
            fresh -= set(launch.arrays)
            args += [np.int64(s) for s in sizes]
            if launch.reports:
                args.append(told)
            reports.append(
                run(
                    self._ptx, launch.name, grid, launch.threads, args,
                    shared=launch.shared_bytes, checks=self.checks, seed=self.seed,
                    unwritten=unwritten,
                )
            )  # fmt: skip
        self.reports = tuple(reports)
        return int(told[0]), [int(x) for x in told[1:]]


def make_cuda_kernel(source: KernelSource, *, schedule: Any = None) -> CudaKernel:
    """Compile to PTX, or take it from the cache.

    Raises
    ------
    InternalError
        LLVM refuses the text.
    """
    from tensorir.codegen import llvm

    text = cuda.module(source.llvm, source.target)
    start = time.perf_counter()
    cache = shared()
    key = digest(text, source.target.cpu, source.target.features, llvm.version(), "ptx 1")
    found = cache.get(key) if cache is not None else None
    if found is not None:
        ptx = found.decode()
    else:
        ptx = worker.ptx_of(text, source.target)
        if cache is not None:
            cache.put(key, ptx.encode())
    timings = {"ptx": 1e3 * (time.perf_counter() - start)}
    return CudaKernel(source, ptx, timings, schedule)


def _at(pointer: int, a: Argument, sizes: Mapping[Var, int]) -> np.ndarray[Any, Any]:
    """The array at an address."""
    shape = extents(a, sizes)
    dtype = np.dtype(a.dtype.numpy)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not count:
        return np.zeros(shape, dtype)
    memory = (ctypes.c_uint8 * count).from_address(pointer)
    whole: np.ndarray[Any, Any] = np.ctypeslib.as_array(memory)
    return whole.view(dtype).reshape(shape)
