"""Kernels: what `tir.build` returns. Made here from an emitter's `KernelSource`."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from tensorir.codegen import cpu, llvm
from tensorir.codegen.source import Argument, KernelSource
from tensorir.runtime import call, compare, cpu_device, heap_type, layout, timer
from tensorir.runtime.arguments import Copies, raise_failed, signature_text, slow_call
from tensorir.support import display
from tensorir.support.cache import digest, shared
from tensorir.support.errors import UnsupportedError
from tensorir.support.tracebacks import user_api

__all__ = ["ABI_VERSION", "Kernel", "make_kernel"]

# Part of every cache key and saved file: raise it when what text or wrappers rely on changes.
ABI_VERSION = 3
# A wrapper is branches and loads: these make it shorter, and it is compiled once a signature.
_WRAPPER_PASSES = ("sroa", "simplify_cfg")


class PlainKernel:
    """A compiled kernel.

    Call it with its inputs, and if wanted with its outputs after them or as `out=`. Arrays are
    numpy's, or those of any library with DLPack; outputs that are not given are made, in the
    library of the first argument. What it returns is its output, or a tuple of them.

    Attributes
    ----------
    name : str
        Of the first output that it computes.
    arguments : tuple of Argument
        Name, element type, shape and role of each array, in the order of a call.
    loops : str
        The loop nest that was compiled.
    llvm, asm : str
        The code, as LLVM text and as assembly.
    notes : tuple of str
        What the compiler has to say: directives that became something else, and why.
    timings : dict of str to float
        Milliseconds of each phase of compilation.
    copies : Copies
        How often calls copied an array that was not plain.
    schedule : Schedule or None
        What it was built from; None after `load`.
    source : KernelSource
        The emitter's text and signature.
    """

    def __init__(
        self, source: KernelSource, object_code: bytes, timings: dict[str, float], schedule: Any
    ) -> None:
        _fill(self, source, object_code, timings, schedule)

    source: KernelSource
    schedule: Any
    timings: dict[str, float]
    copies: Copies
    _object: bytes
    _asm: str | None
    _loaded: cpu_device.Loaded | None
    _wrapper: llvm.Library

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return slow_call(self, *args, **kwargs)

    @property
    def name(self) -> str:
        return self.source.name.removeprefix("tir_")

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.source.arguments

    @property
    def target(self) -> Any:
        return self.source.target

    @property
    def loops(self) -> str:
        return display.Text(self.source.loops)

    @property
    def notes(self) -> tuple[str, ...]:
        return self.source.notes

    @property
    def llvm(self) -> str:
        return display.Text(cpu.module(self.source.llvm, self.source.target))

    @property
    def asm(self) -> str:
        if self._asm is None:
            self._asm = display.Text(llvm.assembly(self.llvm, self.source.target))
        return self._asm

    @user_api
    def check(
        self, *inputs: Any, against: Callable[..., Any], tol: float | None = None
    ) -> compare.Comparison:
        """Run on `inputs` and compare with what `against(*inputs)` gives.

        Parameters
        ----------
        *inputs
            The input arrays, as in a call.
        against
            A function of the same inputs that returns the output, or a tuple of them.
        tol
            Largest relative difference allowed; 0 for exact. Default: by element type and
            length of the reduction, 0 for integers and bool.

        Returns
        -------
        Comparison
            The largest differences found, all within the tolerance.

        Raises
        ------
        KernelError
            If a result differs; the message names the worst element and both values.
        """
        return compare.check(self, inputs, against, tol)

    @user_api
    def time(self, *inputs: Any, repeat: int | None = None, flush: bool = False) -> timer.Timing:
        """Measure calls on `inputs` (and outputs, if given).

        Parameters
        ----------
        *inputs
            As in a call. Without outputs, one set of outputs is made and used throughout.
        repeat
            Number of measurements; each lasts about 10 ms. Default: 15, fewer for slow kernels.
        flush
            Whether to empty the caches before each call.

        Returns
        -------
        Timing
            Median, spread, GFLOP/s and GB/s; prints as one line.
        """
        return timer.measure(self, inputs, repeat=repeat, flush=flush)

    @user_api
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the kernel to a file that `tir.load` reads: code, text, and a manifest."""
        from tensorir.runtime.files import save

        save(path, self.source, self._object)

    def run(self, pointers: list[int], sizes: list[int]) -> tuple[int, list[int]]:
        """Call the code on addresses; returns its status and the four values of a failed check."""
        if self._loaded is None:
            llvm.require_runs_here(self.source.target)
            self._loaded = cpu_device.load(self._object, self.source)
        info = (ctypes.c_int64 * 4)()
        status = self._loaded.function(*pointers, *sizes, ctypes.addressof(info))
        return status, list(info)

    def __repr__(self) -> str:
        return f"<kernel {signature_text(self.source, self.name)} for {self.source.target}>"

    def _repr_html_(self) -> str:
        return display.html(self)

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            "kernels are not pickled, as that would run code from a file; use k.save(path) and "
            "tir.load(path)"
        )

    def __copy__(self) -> PlainKernel:
        return self

    def __deepcopy__(self, memo: object) -> PlainKernel:
        return self

    def _reproducer_(self) -> str:
        return self.source.llvm


if TYPE_CHECKING:
    Kernel = PlainKernel
else:
    PlainKernel.__name__ = PlainKernel.__qualname__ = "Kernel"
    PlainKernel.__module__ = "tensorir"
    Kernel = heap_type.make_type(PlainKernel) if layout.holds() else PlainKernel


def make_kernel(source: KernelSource, *, use_cache: bool = True, schedule: Any = None) -> Kernel:
    """Compile, link and wrap what an emitter made.

    Parameters
    ----------
    source
        Text and signature. A target that this machine cannot run gives a kernel that can be
        read and saved.
    use_cache
        Whether objects may come from, and go to, the disk cache (if the knobs allow it).
    schedule
        Kept as the attribute of that name.

    Raises
    ------
    InternalError
        If LLVM refuses the text.
    """
    timings: dict[str, float] = {}
    text = cpu.module(source.llvm, source.target)
    object_code = _object(text, source.target, llvm.PIPELINE, use_cache, timings)
    return kernel_of(source, object_code, timings, schedule, use_cache=use_cache)


def kernel_of(
    source: KernelSource,
    object_code: bytes,
    timings: dict[str, float],
    schedule: Any = None,
    *,
    use_cache: bool = True,
) -> Kernel:
    """A kernel from its object."""
    if Kernel is PlainKernel:
        return PlainKernel(source, object_code, timings, schedule)
    kernel: Kernel = heap_type.make_instance(Kernel)
    _fill(kernel, source, object_code, timings, schedule)
    start = time.perf_counter()
    if kernel._loaded is None:
        wrapper, address = _refusing(), 0
    else:
        wrapper, address = _wrapper(source, use_cache), kernel._loaded.address
    kernel._wrapper = wrapper  # the code lives as long as something refers to it
    heap_type.set_addresses(kernel, wrapper[call.SYMBOL], address)
    timings["wrap"] = 1e3 * (time.perf_counter() - start)
    return kernel


def _fill(
    kernel: PlainKernel,
    source: KernelSource,
    object_code: bytes,
    timings: dict[str, float],
    schedule: Any,
) -> None:
    kernel.source, kernel.schedule, kernel.timings = source, schedule, timings
    kernel.copies, kernel._object, kernel._asm = Copies(), object_code, None
    kernel._loaded = None
    if llvm.runs_here(source.target) is None:
        start = time.perf_counter()
        kernel._loaded = cpu_device.load(object_code, source)
        timings["link"] = 1e3 * (time.perf_counter() - start)


def _object(
    text: str,
    target: Any,
    passes: tuple[str, ...],
    use_cache: bool,
    timings: dict[str, float] | None,
) -> bytes:
    """The object of a module, from the cache if it is there."""
    cache = shared() if use_cache else None
    if cache is None:
        return llvm.compile_object(text, target, passes=passes, timings=timings)
    start = time.perf_counter()
    words = (f"abi {ABI_VERSION}", llvm.version(), ",".join(passes))
    key = digest(*words, target.triple, target.cpu, target.tune, target.features, text)
    found = cache.get(key)
    if timings is not None:
        timings["cache"] = 1e3 * (time.perf_counter() - start)
    if found is None:
        found = llvm.compile_object(text, target, passes=passes, timings=timings)
        cache.put(key, found)
    return found


def _wrapper(source: KernelSource, use_cache: bool) -> llvm.Library:
    dtypes = tuple(dict.fromkeys(a.dtype for a in source.arguments))
    return _linked_wrapper(call.wrapper_text(source), dtypes, use_cache)


@lru_cache(maxsize=256)
def _linked_wrapper(text: str, dtypes: tuple[Any, ...], use_cache: bool) -> llvm.Library:
    """The code of a wrapper, shared by all kernels of one signature."""
    here = cpu.target("native")
    code = _object(cpu.module(text, here), here, _WRAPPER_PASSES, use_cache, None)
    return llvm.link(code, [call.SYMBOL], layout.imports(dtypes, slow_call, raise_failed))


@lru_cache(maxsize=1)
def _refusing() -> llvm.Library:
    """A wrapper that always takes the slow way, where a kernel for other machines is refused."""
    text = call.slow_text()
    here = cpu.target("native")
    code = llvm.compile_object(cpu.module(text, here), here, passes=_WRAPPER_PASSES)
    return llvm.link(code, [call.SYMBOL], layout.imports((), slow_call, raise_failed))
