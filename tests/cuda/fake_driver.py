"""A CUDA driver of our own making: it checks every call, and runs kernels in the emulator.

It has the functions of `cuda.bindings.driver` that the library calls, over numpy memory at made-up
addresses. Work is done as late as its streams allow, so that a wait that is missing shows; handles
must be alive, the right context current, addresses inside live memory, parameters what the entry
takes, dynamic shared memory what was allowed. A kernel that does what a GPU would not forgive ends
the context, as there.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cuda.bindings import driver as real

from tensorir.emulator.ptx import EmulationError, run
from tensorir.emulator.ptx.text import Module, parse
from tensorir.runtime import cuda_device

OK = real.CUresult.CUDA_SUCCESS
_ENUMS = ("CUresult", "CUdevice_attribute", "CUfunction_attribute", "CUjit_option", "CUevent_flags",
          "CUpointer_attribute")  # fmt: skip
_FIRST = 0x7_0000_0000
_PLAIN_SHARED = 48 << 10
_INVALID_VALUE, _INVALID_CONTEXT, _INVALID_HANDLE = 1, 201, 400
_NO_BINARY, _INVALID_PTX, _NOT_FOUND, _ILLEGAL_ADDRESS = 209, 218, 500, 700


class Misuse(AssertionError):
    """A call that no driver should get."""


@dataclass
class Work:
    """Something on a stream: what must be done before, and what it does."""

    act: Callable[[], None]
    after: list[Work]
    done: bool = False


@dataclass
class Function:
    module: int
    name: str
    shared: int = _PLAIN_SHARED


@dataclass
class FakeDevice:
    name: str = "Fake GPU"
    capability: tuple[int, int] = (9, 0)
    shared_limit: int = 227 << 10
    processors: int = 2
    context: int = 0


@dataclass(repr=False)
class FakeDriver:
    """The driver; `use` puts it in place of the machine's.

    Attributes
    ----------
    calls
        How often each function was called.
    failing
        By the name of a function, the status that its next call returns.
    sticky
        The status that every call returns, once it is not 0.
    takes_cubins
        A cubin is loaded (its kernels cannot run); else it is refused as for another device.
    """

    version: int = 13000
    devices: list[FakeDevice] = field(default_factory=lambda: [FakeDevice()])
    takes_cubins: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    failing: dict[str, int] = field(default_factory=dict)
    sticky: int = 0
    seed: int = 0
    launched: list[str] = field(default_factory=list)
    findings: list[EmulationError] = field(default_factory=list)
    memory: dict[int, tuple[np.ndarray[Any, Any], int]] = field(default_factory=dict)
    modules: dict[int, tuple[int, str, Module | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._next = _FIRST
        self._handles = 1000
        self._local = threading.local()
        self._functions: dict[int, Function] = {}
        self._events: dict[int, Work | None] = {}
        self._times: dict[int, float] = {}
        self._streams: dict[int, Work] = {}
        self._waits: dict[int, list[Work]] = {}
        self.streams = {0, 1, 2}
        self.clock = 0.0
        for one in self.devices:
            one.context = self._handle()

    # what the bindings look like

    def __getattribute__(self, name: str) -> Any:
        if name in _ENUMS:
            return getattr(real, name)
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or not callable(found):
            return found

        def called(*args: Any) -> Any:
            self.calls[name] += 1
            status = self.failing.pop(name, 0) or (
                0 if name.startswith("cuGetError") else self.sticky
            )
            if status:
                return _only(status)
            result = found(*args)
            if isinstance(result, int) and not isinstance(result, bool):
                return _only(result)
            if self.sticky and not name.startswith("cuGetError"):
                return _only(self.sticky)
            return (OK,) if result is None else (OK, *result)

        return called

    def _handle(self) -> int:
        self._handles += 1
        return self._handles

    def cuGetErrorName(self, status: Any) -> Any:
        return (status.name.encode(),)

    def cuGetErrorString(self, status: Any) -> Any:
        return (b"as the fake driver says",)

    # devices and contexts

    def cuDriverGetVersion(self) -> Any:
        return (self.version,)

    def cuInit(self, flags: int) -> Any:
        assert flags == 0

    def cuDeviceGetCount(self) -> Any:
        return (len(self.devices),)

    def cuDeviceGet(self, ordinal: int) -> Any:
        assert 0 <= ordinal < len(self.devices)
        return (ordinal,)

    def cuDeviceGetName(self, size: int, device: int) -> Any:
        return (self.devices[device].name.encode().ljust(size, b"\0"),)

    def cuDeviceGetAttribute(self, kind: Any, device: int) -> Any:
        one = self.devices[device]
        values = {
            "COMPUTE_CAPABILITY_MAJOR": one.capability[0],
            "COMPUTE_CAPABILITY_MINOR": one.capability[1],
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": one.shared_limit,
            "MULTIPROCESSOR_COUNT": one.processors,
            "L2_CACHE_SIZE": 1 << 20,
        }
        return (values[kind.name.removeprefix("CU_DEVICE_ATTRIBUTE_")],)

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return (self.devices[device].context,)

    @property
    def stack(self) -> list[int]:
        """The contexts of this thread, the current one last."""
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        found: list[int] = self._local.stack
        return found

    def cuCtxPushCurrent(self, context: int) -> Any:
        if context not in [one.context for one in self.devices]:
            return _INVALID_CONTEXT
        self.stack.append(context)
        return None

    def cuCtxPopCurrent(self) -> Any:
        return (self.stack.pop(),) if self.stack else _INVALID_CONTEXT

    def cuCtxGetCurrent(self) -> Any:
        return (self.stack[-1] if self.stack else 0,)

    def cuCtxSetCurrent(self, context: int) -> Any:
        self.stack[-1:] = [context]

    def _current(self) -> int:
        """The device whose context is current, or -1."""
        if not self.stack:
            return -1
        return next(k for k, one in enumerate(self.devices) if one.context == self.stack[-1])

    # memory

    def cuMemAlloc(self, size: int) -> Any:
        if self._current() < 0:
            return _INVALID_CONTEXT
        if size <= 0:
            return _INVALID_VALUE
        address = self._next
        self._next += -(-size // 512) * 512 + 512
        self.memory[address] = (np.full(size, 0xA5, np.uint8), self._current())
        return (address,)

    def cuMemFree(self, address: int) -> Any:
        if self._current() < 0:
            return _INVALID_CONTEXT
        if address not in self.memory:
            raise Misuse(f"{address:#x} is freed, and was not allocated")
        self._all()
        del self.memory[address]

    def cuMemGetInfo(self) -> Any:
        return 1000, 2000

    def cuPointerGetAttribute(self, kind: Any, address: int) -> Any:
        assert kind.name == "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL"
        found = self._find(address)
        return _INVALID_VALUE if found is None else (found[1],)

    def _find(self, address: int) -> tuple[np.ndarray[Any, Any], int] | None:
        """The memory from an address to the end of its allocation, and its device."""
        for first, (data, device) in self.memory.items():
            if first <= address < first + data.size:
                return data[address - first :], device
        return None

    def bytes_at(self, address: int, size: int) -> np.ndarray[Any, Any]:
        found = self._find(address)
        if found is None or found[0].size < size:
            raise Misuse(f"{size} bytes at {address:#x} are not in live memory")
        return found[0][:size]

    def cuMemcpyHtoDAsync(self, to: int, host: int, size: int, stream: int) -> Any:
        data = np.frombuffer(ctypes.string_at(host, size), np.uint8)
        return self._enqueue(stream, lambda: _copy(self.bytes_at(to, size), data))

    def cuMemcpyDtoHAsync(self, host: int, source: int, size: int, stream: int) -> Any:
        def act() -> None:
            ctypes.memmove(host, self.bytes_at(source, size).tobytes(), size)

        return self._enqueue(stream, act)

    def cuMemsetD8Async(self, to: int, value: int, size: int, stream: int) -> Any:
        return self._enqueue(stream, lambda: self.bytes_at(to, size).fill(value))

    # streams: what is put on one is done as late as it may be

    def _enqueue(self, stream: int, act: Callable[[], None]) -> Any:
        if self._current() < 0:
            return _INVALID_CONTEXT
        if stream not in self.streams:
            return _INVALID_HANDLE
        legacy = stream in (0, 1)
        key = 1 if legacy else stream
        before = list(self._streams.values()) if legacy else []
        before += [w for k, w in self._streams.items() if k in (1, key)]
        self._streams[key] = Work(act, before + self._waits.pop(key, []))
        return None

    def _do(self, work: Work | None) -> None:
        if work is None or work.done:
            return
        work.done = True
        for earlier in work.after:
            self._do(earlier)
        work.after = []
        if not self.sticky:
            self.clock += 1.0
            work.act()

    def _all(self) -> None:
        for work in list(self._streams.values()):
            self._do(work)

    def cuStreamSynchronize(self, stream: int) -> Any:
        if self._current() < 0:
            return _INVALID_CONTEXT
        if stream not in self.streams:
            return _INVALID_HANDLE
        self._do(self._streams.get(1 if stream in (0, 1) else stream))
        return None

    def cuCtxSynchronize(self) -> Any:
        if self._current() < 0:
            return _INVALID_CONTEXT
        self._all()
        return None

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Any:
        assert flags == 0
        work = self._events[event]
        if work is not None:
            self._waits.setdefault(1 if stream in (0, 1) else stream, []).append(work)

    def cuEventCreate(self, flags: int) -> Any:
        assert flags in (0, 2)
        if self._current() < 0:
            return _INVALID_CONTEXT
        handle = self._handle()
        self._events[handle] = None
        return (handle,)

    def cuEventRecord(self, event: int, stream: int) -> Any:
        def act() -> None:
            self._times[event] = self.clock

        status = self._enqueue(stream, act)
        if status is None:
            self._events[event] = self._streams[1 if stream in (0, 1) else stream]
        return status

    def cuEventSynchronize(self, event: int) -> Any:
        self._do(self._events[event])

    def cuEventElapsedTime(self, first: int, last: int) -> Any:
        return (self._times[last] - self._times[first],)

    def cuEventDestroy(self, event: int) -> Any:
        del self._events[event]

    # code

    def cuModuleLoadDataEx(self, image: bytes, count: int, names: Any, values: Any) -> Any:
        assert count == len(names) == len(values)
        assert [x.name for x in names] == [
            "CU_JIT_ERROR_LOG_BUFFER", "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES",
        ]  # fmt: skip
        assert len(values[0]) == values[1]
        if self._current() < 0:
            return _INVALID_CONTEXT
        handle = self._handle()
        if image[:4] == b"\x7fELF":
            if not self.takes_cubins:
                return _NO_BINARY
            self.modules[handle] = (self._current(), "", None)
            return (handle,)
        assert image.endswith(b"\0"), "PTX ends with a zero"
        text = image[:-1].decode()
        try:
            module = parse(text)
        except Exception as problem:
            said = f"ptxas fatal: {problem}".encode()
            values[0][: len(said)] = said
            return _INVALID_PTX
        self.modules[handle] = (self._current(), text, module)
        return (handle,)

    def cuModuleUnload(self, module: int) -> Any:
        if self._current() < 0:
            return _INVALID_CONTEXT
        del self.modules[module]
        self._functions = {h: f for h, f in self._functions.items() if f.module != module}

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        assert isinstance(name, bytes)
        found = self.modules[module][2]
        if found is not None and name.decode() not in found.entries:
            return _NOT_FOUND
        handle = self._handle()
        self._functions[handle] = Function(module, name.decode())
        return (handle,)

    def cuFuncSetAttribute(self, function: int, kind: Any, value: int) -> Any:
        assert kind.name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        one = self._functions[function]
        if value > self.devices[self.modules[one.module][0]].shared_limit:
            return _INVALID_VALUE
        one.shared = value
        return None

    def cuLaunchKernel(
        self, function: int, gx: int, gy: int, gz: int, tx: int, ty: int, tz: int, shared: int,
        stream: int, parameters: int, extra: int,
    ) -> Any:  # fmt: skip
        assert extra == 0
        if self._current() < 0:
            return _INVALID_CONTEXT
        one = self._functions.get(function)
        if one is None:
            return _INVALID_HANDLE
        device, text, module = self.modules[one.module]
        if device != self._current():
            return _INVALID_HANDLE
        if min(gx, gy, gz, tx, ty, tz) < 1 or tx * ty * tz > 1024 or gy > 65535 or gz > 65535:
            return _INVALID_VALUE
        if shared > one.shared:
            return _INVALID_VALUE
        assert module is not None, "a cubin cannot run here"
        count = len(module.entries[one.name].params)
        table = (ctypes.c_void_p * max(count, 1)).from_address(parameters)
        values = [ctypes.c_uint64.from_address(table[k] or 0).value for k in range(count)]

        def act() -> None:
            self._run(text, one.name, (gx, gy, gz), (tx, ty, tz), values, shared, device)

        self.launched.append(one.name)
        return self._enqueue(stream, act)

    def _run(
        self, text: str, name: str, grid: Any, block: Any, values: list[int], shared: int,
        device: int,
    ) -> None:  # fmt: skip
        args: list[Any] = []
        for value in values:
            if value < _FIRST:
                args.append(np.int64(value))
                continue
            found = self._find(value)
            if found is None or value % 16 or found[1] != device:
                raise Misuse(f"{name} gets {value:#x}, which is no aligned live memory of its own")
            args.append(found[0])
        try:
            run(text, name, grid, block, args, shared=shared, seed=self.seed)
        except EmulationError as error:
            self.findings.append(error)
            self.sticky = _ILLEGAL_ADDRESS


def _only(status: int) -> Any:
    return (real.CUresult(status),)


def _copy(to: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> None:
    to[:] = data


@contextmanager
def use(fake: Any, why: str = "", *, ptxas: bool = False) -> Iterator[Any]:
    """The library with this driver in place of the machine's; without ptxas, unless asked."""
    from tensorir.runtime import ptxas as tools

    before = cuda_device.bindings, tools.find
    cuda_device.reset()

    def bindings() -> tuple[Any, str]:
        return fake, why

    bindings.cache_clear = lambda: None  # type: ignore[attr-defined]
    cuda_device.bindings = bindings  # type: ignore[assignment]
    if not ptxas:
        tools.find = lambda tool: None
    try:
        yield fake
    finally:
        cuda_device.bindings, tools.find = before
        cuda_device.reset()
