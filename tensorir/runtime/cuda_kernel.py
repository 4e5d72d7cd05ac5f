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
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.runtime import timer
from tensorir.runtime.arguments import Copies
from tensorir.runtime.kernel import PlainKernel
from tensorir.support import display
from tensorir.support.cache import digest, shared
from tensorir.support.errors import ArgumentError, UnsupportedError
from tensorir.support.tracebacks import user_api

if TYPE_CHECKING:
    from tensorir.emulator.ptx import Report

__all__ = ["CudaKernel", "make_cuda_kernel"]


class CudaKernel(PlainKernel):
    """A kernel compiled for CUDA.

    Call it as any kernel. With target `emulator` it runs in the PTX emulator: every call is
    checked for races and the like, and leaves its `reports`.

    Attributes
    ----------
    ptx : str
        The code; `asm` is the same.
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

    @user_api
    def time(self, *inputs: Any, repeat: int | None = None, flush: bool = False) -> timer.Timing:
        """Measure calls on a GPU; the emulator's time says nothing of one.

        Raises
        ------
        UnsupportedError
            The kernel runs in the emulator.
        """
        raise UnsupportedError("the time that the emulator takes says nothing of a GPU's")

    @user_api
    def save(self, path: str | os.PathLike[str]) -> None:
        """Refused: the PTX is text, to be kept as such."""
        raise UnsupportedError("a CUDA kernel has no file of its own yet; keep its text, k.ptx")

    def run(self, pointers: list[int], sizes: list[int]) -> tuple[int, list[int]]:
        """Run all launches on arrays at addresses of this machine, in the emulator."""
        if not self.source.target.name.startswith("emulator"):
            raise UnsupportedError(
                f"code for {self.source.target} can be built and read here, but not run",
                details='  try  target="emulator", which runs the same PTX',
            )
        from tensorir.emulator.ptx import run  # large, and only called here

        values = dict(zip(self.source.sizes, sizes, strict=True))
        arrays = [_at(p, a, values) for p, a in zip(pointers, self.source.arguments, strict=True)]
        first = len(arrays)
        arrays += [np.zeros(_shape(a, values), a.dtype.numpy) for a in self.source.scratch]
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


def grid_of(launch: LaunchSource, sizes: Mapping[Var, int]) -> tuple[int, int, int]:
    """Blocks along x, y and z for some sizes.

    Raises
    ------
    ArgumentError
        More than a GPU has.
    """
    env = dict(sizes)
    found = []
    for loops in launch.grid:
        ends = [min(_value(e, env) // c for c, e in bounds) + 1 for bounds in loops]
        found.append(max(ends, default=1))
    x, y, z = (max(n, 0) for n in found)
    if x >= 1 << 31 or y > 65_535 or z > 65_535:
        raise ArgumentError(
            f"a grid of {x:,} by {y:,} by {z:,} blocks; at most 2,147,483,647 by 65,535 by 65,535"
        )
    return x, y, z


def _value(e: Lin, env: Mapping[Var, int]) -> int:
    table: dict[Axis | Var, Lin] = {v: Lin({}, n) for v, n in env.items()}
    return e.subst(table).const


def _shape(a: Argument, sizes: Mapping[Var, int]) -> tuple[int, ...]:
    return tuple(max(_value(e, sizes), 0) for e in a.shape)


def _at(pointer: int, a: Argument, sizes: Mapping[Var, int]) -> np.ndarray[Any, Any]:
    """The array at an address."""
    shape = _shape(a, sizes)
    dtype = np.dtype(a.dtype.numpy)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not count:
        return np.zeros(shape, dtype)
    memory = (ctypes.c_uint8 * count).from_address(pointer)
    whole: np.ndarray[Any, Any] = np.ctypeslib.as_array(memory)
    return whole.view(dtype).reshape(shape)
