"""CUDA devices through their driver: contexts, modules, memory, streams, events.

The one importer of cuda-python, and only when a device is first asked for. It speaks to the
driver through `cuda.bindings.driver`, whose functions return their status first; here each status
is checked, and a bad one becomes an error of ours. A kernel that fails takes its context along, so
that every later call of the process on that device fails too, those of other libraries included:
such a failure is remembered, and told each time.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from tensorir.support.errors import (
    CompileError,
    KernelError,
    TensorIRError,
    UnsupportedError,
)

__all__ = ["Device", "Driver", "absence", "device", "driver", "reset"]

LEGACY = 1
"""The handle of the default stream, which waits for all others and they for it."""
LEAST_VERSION = 12_000
_KEPT_BLOCKS = 32
_PIECE = 512
_LOG = 8192
# after these every call on the context fails
_STICKY = frozenset((4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999))
CONTEXT = frozenset((201, 400))
_OUT_OF_MEMORY = 2
_EMULATE = '  try  target="emulator", which runs the same PTX on this machine'


class Driver:
    """The driver's functions, each status checked.

    Attributes
    ----------
    version : int
        Of CUDA, as 12080 for 12.8.
    lost : str
        What ended the context, once something did.
    """

    def __init__(self, api: Any) -> None:
        self.api = api
        self.lost = ""
        self.recent: deque[str] = deque(maxlen=4)
        self.version = int(self.call("cuDriverGetVersion"))
        if self.version < LEAST_VERSION:
            raise UnsupportedError(
                f"the CUDA driver is for CUDA {_release(self.version)}; at least "
                f"{_release(LEAST_VERSION)} is needed",
                details="  try  a newer NVIDIA driver\n" + _EMULATE,
            )
        self.call("cuInit", 0)
        self.count = int(self.call("cuDeviceGetCount"))
        self._devices: dict[int, Device] = {}

    def call(self, function: str, *args: Any) -> Any:
        """What a function returns besides its status: a value, a tuple, or nothing."""
        if self.lost:
            raise self.gone()
        status, *values = getattr(self.api, function)(*args)
        if int(status):
            raise self.failure(function, int(status))
        return values[0] if len(values) == 1 else tuple(values) or None

    def failure(self, function: str, status: int) -> TensorIRError:
        """The error for a status; one that ends the context is remembered."""
        said = f"{function}: {self._words(status)}"
        if status in _STICKY:
            since = f" after {', '.join(dict.fromkeys(self.recent))}" if self.recent else ""
            self.lost = f"{said}{since}"
            return self.gone()
        if function == "cuInit":
            return UnsupportedError(f"the CUDA driver does not start: {said}", details=_EMULATE)
        return _Failed(said, status)

    def gone(self) -> KernelError:
        """The error after a failure that ended the context."""
        return KernelError(
            f"CUDA is lost to this process: {self.lost}",
            details="  why  a kernel that fails takes its context along: every later call on the "
            "device fails,\n       those of other libraries too. Other targets still run.\n"
            '  try  a new process; and target="emulator", which finds out what the kernel did',
        )

    def _words(self, status: int) -> str:
        if self.lost:
            return str(status)
        name, text = (
            self.api.cuGetErrorName(status_of(self.api, status))[1],
            self.api.cuGetErrorString(status_of(self.api, status))[1],
        )
        shown = [x.decode() if isinstance(x, bytes) else str(x or "") for x in (name, text)]
        return f"{shown[0] or 'error'} ({status}), {shown[1] or 'unknown'}"

    @property
    def ended(self) -> bool:
        """Whether nothing can be given back any more: the context is lost, or Python ends."""
        return bool(self.lost) or sys.is_finalizing()

    def device(self, ordinal: int) -> Device:
        """A device by its number; its context is kept from then on."""
        found = self._devices.get(ordinal)
        if found is None:
            if not 0 <= ordinal < self.count:
                raise UnsupportedError(
                    f"there is no device cuda:{ordinal}; the driver has {self.count}",
                    details=_EMULATE,
                )
            found = self._devices[ordinal] = Device(self, ordinal)
        return found


class _Failed(KernelError):
    """A call of the driver that failed and left the context alive; `status` is its number."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


_Failed.__name__ = _Failed.__qualname__ = "KernelError"


def status_of(api: Any, status: int) -> Any:
    """A status as the bindings take it."""
    try:
        return api.CUresult(status)
    except ValueError:  # newer than the bindings
        return api.CUresult(999)


class Device:
    """One device, with its primary context, which all libraries of a process share.

    Attributes
    ----------
    ordinal : int
    name : str
    capability : tuple of int
        As (9, 0).
    shared_limit : int
        Bytes of shared memory that a block may have.
    processors, l2 : int
        Multiprocessors, and bytes of the cache that they share.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver, self.ordinal = driver, ordinal
        self.handle = driver.call("cuDeviceGet", ordinal)
        name = driver.call("cuDeviceGetName", 256, self.handle)
        raw = name if isinstance(name, bytes) else str(name).encode()
        self.name = raw.split(b"\0")[0].decode(errors="replace")
        attribute = self.attribute
        self.capability = (
            attribute("COMPUTE_CAPABILITY_MAJOR"),
            attribute("COMPUTE_CAPABILITY_MINOR"),
        )
        self.shared_limit = attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.processors = attribute("MULTIPROCESSOR_COUNT")
        self.l2 = attribute("L2_CACHE_SIZE")
        self.context = driver.call("cuDevicePrimaryCtxRetain", self.handle)
        self._free: OrderedDict[int, int] = OrderedDict()  # pointer: bytes; the oldest first
        self._lock = threading.Lock()

    def attribute(self, name: str) -> int:
        kinds = self.driver.api.CUdevice_attribute
        kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", kind, self.handle))

    @property
    def arch(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def __repr__(self) -> str:
        return f"<cuda:{self.ordinal} {self.name}, {self.arch}>"

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current for a while; what another library had comes back."""
        call = self.driver.call
        call("cuCtxPushCurrent", self.context)
        try:
            yield
        finally:
            if not self.driver.lost:
                call("cuCtxPopCurrent")

    def adopt(self) -> None:
        """Make the context this thread's own where it has none, so that launches find it."""
        if not int(self.driver.call("cuCtxGetCurrent")):
            self.driver.call("cuCtxSetCurrent", self.context)

    # memory

    def allocate(self, size: int) -> int:
        """Memory of at least `size` bytes, aligned to 256; perhaps some given back before."""
        rounded = max(-(-size // _PIECE), 1) * _PIECE
        with self._lock:
            for pointer, held in self._free.items():
                if held == rounded:
                    del self._free[pointer]
                    return pointer
        try:
            return self._new(rounded)
        except _Failed as failed:
            if failed.status != _OUT_OF_MEMORY:
                raise
        self.trim()
        try:
            return self._new(rounded)
        except _Failed as failed:
            if failed.status != _OUT_OF_MEMORY:
                raise
            free, total = self.driver.call("cuMemGetInfo")
            raise KernelError(
                f"cuda:{self.ordinal} has no {size:,} bytes left: {free:,} of {total:,} are free"
            ) from None

    def _new(self, size: int) -> int:
        return int(self.driver.call("cuMemAlloc", size))

    def give_back(self, pointer: int, size: int) -> None:
        """Keep memory that nothing uses any more, for the next who asks for as much."""
        rounded = max(-(-size // _PIECE), 1) * _PIECE
        with self._lock:
            self._free[pointer] = rounded
            extra = [self._free.popitem(last=False)[0]] if len(self._free) > _KEPT_BLOCKS else []
        for old in extra:
            self.driver.call("cuMemFree", old)

    def trim(self) -> None:
        """Give the driver all memory that is kept for later."""
        with self._lock:
            pointers, self._free = list(self._free), OrderedDict()
        if pointers:
            with self.current():
                for pointer in pointers:
                    self.driver.call("cuMemFree", pointer)

    def upload(self, to: int, host: int, size: int, stream: int = LEGACY) -> None:
        if size:
            self.driver.call("cuMemcpyHtoDAsync", to, host, size, stream)

    def download(self, host: int, source: int, size: int, stream: int = LEGACY) -> None:
        if size:
            self.driver.call("cuMemcpyDtoHAsync", host, source, size, stream)

    def clear(self, pointer: int, size: int, stream: int = LEGACY) -> None:
        if size:
            self.driver.call("cuMemsetD8Async", pointer, 0, size, stream)

    # code

    def load(self, image: bytes, what: str) -> Any:
        """A module, from a cubin or from PTX, which the driver compiles.

        Raises
        ------
        CompileError
            The driver does not take it; its words are in the details.
        """
        options = self.driver.api.CUjit_option
        log = bytearray(_LOG)
        names = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        data = image if image[:4] == b"\x7fELF" else image + b"\0"
        try:
            return self.driver.call("cuModuleLoadDataEx", data, 2, names, [log, _LOG])
        except _Failed as failed:
            said = bytes(log).split(b"\0")[0].decode(errors="replace").strip()
            told = "\n".join(f"  {x}" for x in said.splitlines()[:8])
            raise CompileError(f"the driver refuses {what}: {failed}", details=told) from None

    def function(self, module: Any, name: str, shared: int) -> Any:
        """An entry of a module, allowed so many bytes of dynamic shared memory.

        Raises
        ------
        UnsupportedError
            The device has less.
        """
        if shared > self.shared_limit:
            raise UnsupportedError(
                f"{name} needs {shared:,} bytes of shared memory; a block has at most "
                f"{self.shared_limit:,} on cuda:{self.ordinal} ({self.name}, {self.arch})"
            )
        found = self.driver.call("cuModuleGetFunction", module, name.encode())
        if shared > 48 << 10:
            kind = self.driver.api.CUfunction_attribute
            largest = kind.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.driver.call("cuFuncSetAttribute", found, largest, shared)
        return found

    # streams and events

    def wait(self, stream: int | None = None) -> None:
        """Wait for a stream, or for all of them."""
        if stream is None:
            with self.current():
                self.driver.call("cuCtxSynchronize")
        else:
            self.driver.call("cuStreamSynchronize", stream)
        self.driver.recent.clear()

    def event(self, *, timed: bool = True) -> Any:
        kinds = self.driver.api.CUevent_flags
        kind = kinds.CU_EVENT_DEFAULT if timed else kinds.CU_EVENT_DISABLE_TIMING
        return self.driver.call("cuEventCreate", int(kind))

    def order(self, before: int, after: int) -> None:
        """Let all that comes on the stream `after` wait for what is on `before` now."""
        if before == after:
            return
        with self.current():
            mark = self.event(timed=False)
            self.driver.call("cuEventRecord", mark, before)
            self.driver.call("cuStreamWaitEvent", after, mark, 0)
            self.driver.call("cuEventDestroy", mark)


# -- finding the driver


class _Found:
    """The driver of this process once it was found; guarded by `lock`."""

    lock = threading.Lock()
    driver: Driver | None = None


def driver() -> Driver:
    """The driver.

    Raises
    ------
    UnsupportedError
        There is none, it is too old, or it does not start.
    """
    with _Found.lock:
        if _Found.driver is None:
            api, why = bindings()
            if api is None:
                raise UnsupportedError(f"there is no CUDA driver: {why}", details=_EMULATE)
            _Found.driver = Driver(api)
        if not _Found.driver.count:
            raise UnsupportedError("the CUDA driver finds no device", details=_EMULATE)
        return _Found.driver


def device(ordinal: int = 0) -> Device:
    """A device of the driver."""
    return driver().device(ordinal)


def absence() -> str:
    """Why there is no device to run on; empty where there is one."""
    try:
        driver()
    except UnsupportedError as problem:
        return str(problem)
    return ""


def reset() -> None:
    """Look for the driver anew when it is next asked for."""
    with _Found.lock:
        _Found.driver = None
        bindings.cache_clear()


@lru_cache(maxsize=1)
def bindings() -> tuple[Any, str]:
    """The functions of the driver, or None and why.

    The library is looked for first: bindings that were called without it may wait for ever at the
    next call.
    """
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        return None, "cuda-python is not installed"
    try:
        load_nvidia_dynamic_lib("cuda")
    except (DynamicLibNotFoundError, OSError, RuntimeError):
        return None, "its library was not found"
    try:
        from cuda.bindings import driver as api
    except ImportError as problem:
        return None, f"cuda-python cannot be imported ({problem})"
    return api, ""


def _release(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
