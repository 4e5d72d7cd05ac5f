"""Calls of a kernel on a CUDA device: arrays in and out, and what is wrong with them.

What a call needs besides its pointers is made once for each combination of shapes and stream, a
`Plan`. The quick way reads pointers, looks the plan up, and launches. All that is not plain goes
the careful way, which finds each mistake and says it.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NoReturn

from tensorir.codegen.source import Argument, KernelSource
from tensorir.runtime import cuda_device
from tensorir.runtime.arguments import (
    Where,
    bind,
    failure,
    require_rank,
    result_of,
    sizes_by_shape,
)
from tensorir.runtime.cuda_device import LEGACY, Device
from tensorir.runtime.cuda_plan import Loaded, Plan, extents
from tensorir.runtime.device_arrays import (
    DeviceArray,
    Place,
    is_on_device,
    make_like,
    place_of,
    torch_stream,
)
from tensorir.support.errors import CallTypeError, CallValueError

__all__ = ["Runner"]

ALIGNMENT = 16
_PLANS = 64


class Runner:
    """The calls of one kernel: its modules by device, its plans by shapes and stream."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = weakref.proxy(kernel)  # which has this one: without a cycle both go at once
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
