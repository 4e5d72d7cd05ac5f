"""Calls of a kernel on a CUDA device: its module there, launches made ready, arrays in and out.

What a call needs besides its pointers is made once for each combination of shapes and stream, a
`Plan`: grids, scratch memory, the block of parameters that all launches read. The quick way then
reads pointers, looks the plan up, and launches. All that is not plain goes the careful way, which
finds each mistake and says it.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NoReturn

from tensorir.codegen.source import Argument, KernelSource, LaunchSource
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.runtime import cuda_device, ptxas
from tensorir.runtime.arguments import (
    Where,
    bind,
    failure,
    require_rank,
    result_of,
    sizes_by_shape,
)
from tensorir.runtime.cuda_device import LEGACY, Device
from tensorir.runtime.device_arrays import (
    DeviceArray,
    Place,
    is_on_device,
    make_like,
    place_of,
    torch_stream,
)
from tensorir.support import reproducer
from tensorir.support.errors import (
    ArgumentError,
    CallTypeError,
    CallValueError,
    CompileError,
    TensorIRError,
    UnsupportedError,
)

__all__ = ["Plan", "Runner", "extents", "grid_of"]

ALIGNMENT = 16
_PLANS = 64
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
        if self.module is None or self.device.driver.lost:
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
        self.names = [x.name for x in source.launches]
        self.lock = threading.Lock()
        arrays = len(source.arguments)
        count = arrays + len(source.scratch) + len(sizes) + 1
        self.values = (ctypes.c_uint64 * count)()
        self.pack = struct.Struct(f"{arrays}Q").pack_into
        self.scratch: list[tuple[int, int]] = []
        self.report = 0
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
        if self.device.driver.lost or not (self.scratch or self.report):
            return
        with self.device.current():
            self.device.wait(self.stream)
            for pointer, size in self.scratch:
                self.device.give_back(pointer, size)
            if self.report:
                self.device.give_back(self.report, 8 * _STATUS)
        self.scratch, self.report = [], 0


class Runner:
    """The calls of one kernel: its modules by device, its plans by shapes and stream."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.source: KernelSource = kernel.source
        self.loaded: dict[int, Loaded] = {}
        self.plans: OrderedDict[Any, Plan] = OrderedDict()
        self.quick: dict[Any, _Quick] = {}
        self.count = len(self.source.arguments)
        self.outputs = [k for k, a in enumerate(self.source.arguments) if a.role == "output"]

    def call(self, args: tuple[Any, ...]) -> Any:
        """A call like one before, with arrays of one library on a device; None if it is not."""
        kind = type(args[0]) if args else None
        reader = _READERS.get(kind)
        if reader is None or len(args) != self.count:
            return None
        pointers: list[int] = []
        keys: list[Any] = []
        bits = 0
        for a in args:
            if type(a) is not kind:
                return None
            pointer, key = reader(a)
            pointers.append(pointer)
            keys.append(key)
            bits |= pointer
        if kind is not DeviceArray:
            keys.append(torch_stream(keys[0][2]))
        found = self.quick.get(tuple(keys))
        if found is None or bits % ALIGNMENT or found.clash(pointers):
            return None
        found.plan.launch(pointers)
        outputs = self.outputs
        return args[outputs[0]] if len(outputs) == 1 else tuple(args[k] for k in outputs)

    def careful(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same, with every check."""
        source, name = self.source, self.kernel.name
        values = bind(source, name, args, kwargs)
        places = self._places(values)
        known = [p for p in places if p is not None]
        stream = self._stream(places)
        sizes = sizes_by_shape(source, places, name)
        device = cuda_device.device(known[0].ordinal)
        finals: list[Callable[[], Any]] = [lambda v=v: v for v in values]  # type: ignore[misc]
        like = next(v for v in values if v is not None)
        for k, a in enumerate(source.arguments):
            if places[k] is None:
                shape = extents(a, sizes)
                made, finals[k] = make_like(like, known[0], shape, a.dtype, stream, zero=a.partial)
                places[k] = place_of(made, Where(a, name))
        full = [p for p in places if p is not None]
        self._require_apart(full)
        plan = self.plan(device, sizes, stream)
        pointers = [p.pointer for p in full]
        with device.current():
            self._order(full, values, device, stream)
            status, info = plan.checked(pointers)
        if status:
            raise failure(self.kernel, status, info)
        self._remember(args, kwargs, plan, full)
        return result_of([f() for f in finals], source)

    def plan(self, device: Device, sizes: Mapping[Any, int], stream: int) -> Plan:
        """The plan for some sizes on a stream, made at first use."""
        key = (device.ordinal, stream, *sizes.values())
        found = self.plans.get(key)
        if found is None:
            found = self.plans[key] = Plan(self.source, self.on(device), sizes, stream)
            if len(self.plans) > _PLANS:
                self.quick.clear()
                self.plans.popitem(last=False)[1].close()
        return found

    def on(self, device: Device) -> Loaded:
        """The kernel on a device, loaded at first use."""
        found = self.loaded.get(device.ordinal)
        if found is None:
            made = Loaded(self.source, self.kernel.ptx, device)
            found = self.loaded[device.ordinal] = made
        return found

    def run_host(self, pointers: Sequence[int], sizes: Sequence[int]) -> tuple[int, list[int]]:
        """The call on arrays of this machine: copied to the device, and the results back."""
        device = cuda_device.device(0)
        values = dict(zip(self.source.sizes, sizes, strict=True))
        plan = self.plan(device, values, LEGACY)
        arguments = self.source.arguments
        bytes_of = [prod(extents(a, values)) * a.dtype.bytes for a in arguments]
        with device.current():
            there = [device.allocate(n) for n in bytes_of]
            for a, host, to, n in zip(arguments, pointers, there, bytes_of, strict=True):
                if a.role == "input" or a.partial:
                    device.upload(to, host, n)
            status, info = plan.checked(there)
            for a, host, to, n in zip(arguments, pointers, there, bytes_of, strict=True):
                if a.role == "output":
                    device.download(host, to, n)
            device.wait(LEGACY)
            for to, n in zip(there, bytes_of, strict=True):
                device.give_back(to, n)
        return status, info

    # what is checked

    def _places(self, values: Sequence[Any]) -> list[Place | None]:
        found: list[Place | None] = []
        name = self.kernel.name
        first: Place | None = None
        by = ""
        for a, value in zip(self.source.arguments, values, strict=True):
            if value is None:
                found.append(None)
                continue
            what = Where(a, name)
            if not is_on_device(value):
                self._elsewhere(values, f"{what} is not on a CUDA device", value)
            place = place_of(value, what)
            if first is not None and place.ordinal != first.ordinal:
                raise CallValueError(
                    f"{what} is on cuda:{place.ordinal}, and {by} on cuda:{first.ordinal}",
                    details="  try  all arrays on one device",
                )
            if first is None:
                first, by = place, a.name
            _require_fit(a, place, name)
            found.append(place)
        return found

    def _elsewhere(self, values: Sequence[Any], what: str, value: Any) -> NoReturn:
        other = next(
            a.name
            for a, v in zip(self.source.arguments, values, strict=True)
            if v is not None and is_on_device(v)
        )
        raise CallValueError(
            f"{what} ({type(value).__name__}), and {other} is",
            details="  try  all arrays there, or none: numpy's are copied in and out",
        )

    def _stream(self, places: Sequence[Place | None]) -> int:
        """The one stream that the arrays come on; the default one where none says."""
        chosen, by = LEGACY, ""
        for a, place in zip(self.source.arguments, places, strict=True):
            if place is None or place.stream is None:
                continue
            if by and place.stream != chosen:
                raise CallValueError(
                    f"{Where(a, self.kernel.name)} comes on stream {place.stream:#x}, and {by} "
                    f"on {chosen:#x}",
                    details="  try  one stream for all arrays of a call",
                )
            chosen, by = place.stream, a.name
        return chosen

    def _require_apart(self, places: Sequence[Place]) -> None:
        clash = _Quick(None, self.source, places).clash([p.pointer for p in places])
        if clash is None:
            return
        out, other = (self.source.arguments[k] for k in clash)
        kind = "argument" if other.role == "input" else "output"
        raise CallValueError(
            f"{Where(out, self.kernel.name)} shares memory with {kind} {other.name}",
            details="  try  another array for the result",
        )

    def _order(
        self, places: Sequence[Place], values: Sequence[Any], device: Device, stream: int
    ) -> None:
        """What came through DLPack is ready on the default stream."""
        if stream != LEGACY and any(
            p.stream is None and v is not None for p, v in zip(places, values, strict=True)
        ):
            device.order(LEGACY, stream)

    def _remember(
        self, args: tuple[Any, ...], kwargs: Any, plan: Plan, places: Sequence[Place]
    ) -> None:
        """Let the next call with such arrays go the quick way."""
        if kwargs or len(args) != self.count or plan.report:
            return
        kind = type(args[0])
        reader = _reader(kind)
        if reader is None or any(type(a) is not kind for a in args):
            return
        if kind is DeviceArray and any(a.stream != LEGACY for a in args):
            return
        keys = [reader(a)[1] for a in args]
        if kind is not DeviceArray:
            keys.append(torch_stream(keys[0][2]))
        if len(self.quick) >= 4 * _PLANS:
            self.quick.clear()
        self.quick[tuple(keys)] = _Quick(plan, self.source, places)


class _Quick:
    """A plan, and which arrays of so many bytes must lie apart."""

    __slots__ = ("pairs", "plan")

    def __init__(self, plan: Plan | None, source: KernelSource, places: Sequence[Place]) -> None:
        self.plan: Any = plan
        size = [
            prod(p.shape) * a.dtype.bytes for p, a in zip(places, source.arguments, strict=True)
        ]
        roles = [a.role for a in source.arguments]
        self.pairs = [
            (k, o, size[k], size[o])
            for k in range(len(size))
            for o in range(len(size))
            if roles[k] == "output" and (roles[o] == "input" or o > k) and size[k] and size[o]
        ]

    def clash(self, pointers: Sequence[int]) -> tuple[int, int] | None:
        """An output and an array that it overlaps."""
        for k, o, n, m in self.pairs:
            if pointers[k] < pointers[o] + m and pointers[o] < pointers[k] + n:
                return k, o
        return None


def _require_fit(a: Argument, place: Place, name: str) -> None:
    what = Where(a, name)
    if place.dtype != a.dtype:
        came = place.dtype.name if place.dtype is not None else "of a type that there is not here"
        raise CallTypeError(f"{what} is {came}, expected {a.dtype.name}")
    require_rank(a, place.shape, name)
    if not place.contiguous:
        raise CallValueError(
            f"{what} is not contiguous, and arrays on a device are not copied",
            details="  try  x.contiguous(), or the library's ascontiguousarray(x)",
        )
    if place.pointer % ALIGNMENT and 0 not in place.shape:
        raise CallValueError(
            f"{what} begins at {place.pointer:#x}, which is no multiple of {ALIGNMENT} bytes",
            details="  why  threads load 16 bytes at a time; new arrays begin at such an address, "
            "views of\n       some of an array's rows may not.\n  try  a copy of it",
        )
    if a.role == "output" and not place.writable:
        raise CallValueError(f"{what} is read-only")


# -- the quick way: pointer and what must be the same, by type

_Reader = Callable[[Any], tuple[int, Any]]


def _read_own(x: Any) -> tuple[int, Any]:
    return x.pointer, x.key


def _read_torch(x: Any) -> tuple[int, Any]:
    key = (x.shape, x.dtype, x.get_device(), x.is_contiguous(), x.requires_grad)
    return x.data_ptr(), key


_READERS: dict[type | None, _Reader] = {DeviceArray: _read_own}


def _reader(kind: type) -> _Reader | None:
    """The reader of a type; torch's tensors get theirs when they are first seen."""
    if kind.__module__ == "torch" and kind.__name__ == "Tensor":
        _READERS[kind] = _read_torch
    return _READERS.get(kind)


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
