"""Compiling and calling kernels below the runtime, with guard bytes around every array."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorir.codegen import cpu, llvm
from tensorir.codegen.emit import emit
from tensorir.codegen.source import KernelSource
from tensorir.lower.pipeline import lower
from tensorir.runtime import cpu_device
from tensorir.schedule.schedule import Schedule, schedule

GUARD = 256
_FILL = 0xCD


def source_of(what: Any, target: str = "native", **options: Any) -> KernelSource:
    """The text of a schedule, or of a tensor or tensors as declared."""
    if not isinstance(what, Schedule):
        what = schedule(*what) if isinstance(what, tuple) else schedule(what)
    where = cpu.target(target)
    return emit(lower(what.program, where), where, **options)


def object_of(source: KernelSource) -> bytes:
    return llvm.compile_object(cpu.module(source.llvm, source.target), source.target)


def assembly_of(source: KernelSource) -> str:
    return llvm.assembly(cpu.module(source.llvm, source.target), source.target)


class Guarded:
    """An array whose neighbours in memory are known."""

    def __init__(self, like: np.ndarray) -> None:
        self.raw = np.full(like.nbytes + 2 * GUARD, _FILL, np.uint8)
        inner = self.raw[GUARD : GUARD + like.nbytes]
        self.array = inner.view(like.dtype).reshape(like.shape)
        self.array[...] = like

    def intact(self) -> bool:
        end = len(self.raw) - GUARD
        return bool((self.raw[:GUARD] == _FILL).all() and (self.raw[end:] == _FILL).all())


class Called:
    """What came back: `outputs`, `status` and `info`."""

    def __init__(self, outputs: list[np.ndarray], status: int, info: list[int]) -> None:
        self.outputs, self.status, self.info = outputs, status, info

    @property
    def out(self) -> np.ndarray:
        (one,) = self.outputs
        return one


def link(source: KernelSource) -> Callable[..., Any]:
    """The kernel as a ctypes function; keeps its code alive."""
    loaded = cpu_device.load(object_of(source), source)
    loaded.function.library = loaded  # type: ignore[attr-defined]
    return loaded.function


def call(
    source: KernelSource,
    inputs: Sequence[np.ndarray],
    sizes: Sequence[int] = (),
    *,
    start: float | None = None,
) -> Called:
    """Run a kernel on copies; checks that nothing around the arrays was touched.

    Outputs start as bytes 0xCD, or as `start`.
    """
    env = dict(zip(source.sizes, sizes, strict=True))
    given = iter(inputs)
    arrays: list[Guarded] = []
    outputs: list[np.ndarray] = []
    kept: list[np.ndarray] = []
    for a in source.arguments:
        shape = tuple(e.evaluate(env) for e in a.shape)
        if a.role == "input":
            x = np.ascontiguousarray(next(given))
            assert x.shape == shape and x.dtype == a.dtype.numpy, (x.shape, shape, x.dtype)
        else:
            bytes_ = np.full(int(np.prod(shape)) * a.dtype.bytes, _FILL, np.uint8)
            x = bytes_.view(a.dtype.numpy).reshape(shape)
            if start is not None:
                x[...] = start
        g = Guarded(x)
        arrays.append(g)
        if a.role == "output":
            outputs.append(g.array)
        else:
            kept.append(x)
    info = (ctypes.c_int64 * 4)()
    run = link(source)
    pointers = [g.array.ctypes.data for g in arrays]
    status = run(*pointers, *sizes, ctypes.addressof(info))
    assert all(g.intact() for g in arrays), "memory around an array was written"
    ins = [g.array for g, a in zip(arrays, source.arguments, strict=True) if a.role == "input"]
    for before, after in zip(kept, ins, strict=True):
        assert before.tobytes() == after.tobytes(), "an input was written"
    return Called(outputs, status, list(info))


def run(what: Any, *inputs: np.ndarray, sizes: Sequence[int] = (), **options: Any) -> np.ndarray:
    """The only output of a schedule or tensor."""
    found = call(source_of(what, **options), inputs, sizes)
    assert found.status == 0
    return found.out
