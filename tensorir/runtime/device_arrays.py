"""Arrays in the memory of a CUDA device: those of other libraries, and a plain one of ours.

torch tensors are read through their methods, everything else through `__cuda_array_interface__`
or DLPack; nothing is copied. Work goes to the stream that is current where the arrays come from:
torch's current stream, the stream that an interface names, else the default one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tensorir.ir import dtype as dtypes
from tensorir.ir.dtype import DType, dtype
from tensorir.runtime import cuda_device, dlpack
from tensorir.runtime.cuda_device import LEGACY, Device
from tensorir.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    CallTypeError,
    CallValueError,
    TensorIRError,
)
from tensorir.support.tracebacks import user_api

__all__ = ["DeviceArray", "Place", "is_on_device", "make_like", "place_of", "to_device"]


class Place(NamedTuple):
    """Where an array lies and what it is; `stream` is None where its library names none."""

    pointer: int
    shape: tuple[int, ...]
    contiguous: bool
    dtype: DType | None
    ordinal: int
    stream: int | None
    writable: bool
    owner: Any


class DeviceArray:
    """A C contiguous array in the memory of a CUDA device, for use without another library.

    torch, CuPy and JAX take it through `from_dlpack` without a copy; `numpy()` copies it back.
    `to_device` makes one, and kernels do that are called with one.

    Attributes
    ----------
    shape, dtype
        As numpy's.
    device : str
        As "cuda:0".
    """

    __slots__ = ("__weakref__", "_device", "dtype", "key", "pointer", "shape", "stream")

    def __init__(
        self, device: Device, shape: Sequence[int], dtype: DType, stream: int = LEGACY
    ) -> None:
        self._device, self.shape, self.dtype, self.stream = device, tuple(shape), dtype, stream
        self.pointer = 0
        with device.current():
            self.pointer = device.allocate(max(self.nbytes, 1))
        self.key = (self.shape, dtype.name, device.ordinal)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.bytes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def device(self) -> str:
        return f"cuda:{self._device.ordinal}"

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the contents, once all work on them is done."""
        out = np.empty(self.shape, self.dtype.numpy)
        with self._device.current():
            self._device.download(out.ctypes.data, self.pointer, out.nbytes, self.stream)
            self._device.wait(self.stream)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array on a device is copied to become numpy's")
        return np.asarray(self.numpy(), dtype=dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "data": (self.pointer, False),
            "shape": self.shape,
            "strides": None,
            "typestr": np.dtype(self.dtype.numpy).str,
            "stream": self.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._device.ordinal

    def __dlpack__(self, *, stream: int | None = None, **_options: Any) -> Any:
        if stream != -1:
            self._device.order(self.stream, LEGACY if stream is None else stream)
        return dlpack.export(self, self.pointer, self.shape, self.dtype, self._device.ordinal)

    def __repr__(self) -> str:
        extents = ", ".join(map(str, self.shape))
        return f"<{self.dtype}[{extents}] on {self.device}>"

    def __del__(self) -> None:
        pointer, self.pointer = getattr(self, "pointer", 0), 0
        driver = self._device.driver
        if not pointer or driver.ended:
            return
        try:
            # the driver waits for what still uses it, which a list of free blocks would not
            with self._device.current():
                driver.call("cuMemFree", pointer)
        except TensorIRError:
            pass  # the process ends, or the context is lost: the memory goes with it


@user_api
def to_device(array: Any, device: str = "cuda:0") -> DeviceArray:
    """Copy an array to the memory of a CUDA device.

    Parameters
    ----------
    array
        Whatever `numpy.asarray` takes.
    device
        `"cuda:0"`, or another by its number.

    Returns
    -------
    DeviceArray
        Kernels for CUDA take it, and so do torch, CuPy and JAX through `from_dlpack`.

    Raises
    ------
    UnsupportedError
        There is no driver, or no such device.
    ArgumentError, ArgumentTypeError
        That is not the name of a device, or an array of a type that there is not here.
    """
    if not isinstance(device, str):
        raise ArgumentTypeError(f"device={device!r:.60}: expected the name of a device")
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdecimal():
        raise ArgumentError(f'device={device!r:.60}: expected "cuda:0", or another number')
    host = np.ascontiguousarray(array)
    where = cuda_device.device(int(number or 0))
    made = DeviceArray(where, np.shape(array), dtype(host.dtype))
    with where.current():
        where.upload(made.pointer, host.ctypes.data, made.nbytes)
        where.wait(LEGACY)
    return made


# -- reading


def is_on_device(value: Any) -> bool:
    """Whether an array lies in the memory of a CUDA device."""
    if isinstance(value, np.ndarray):
        return False
    if isinstance(value, DeviceArray):
        return True
    if _library(value) == "torch" and hasattr(value, "data_ptr"):
        return bool(value.is_cuda)
    if hasattr(value, "__cuda_array_interface__"):
        return True
    try:
        code = int(value.__dlpack_device__()[0])
    except Exception:  # whatever a foreign method raises, it is no array of a device
        return False
    return code in (dlpack.CUDA, dlpack.MANAGED)


def place_of(value: Any, what: object) -> Place:
    """Where an array on a device lies.

    Raises
    ------
    CallTypeError, CallValueError
        It cannot be read, or a kernel may not have it.
    """
    if isinstance(value, DeviceArray):
        ordinal = value._device.ordinal
        return Place(
            value.pointer, value.shape, True, value.dtype, ordinal, value.stream, True, value
        )
    if _library(value) == "torch" and hasattr(value, "data_ptr"):
        return _torch_place(value, what)
    if hasattr(value, "__cuda_array_interface__"):
        return _interface_place(value, what)
    return _dlpack_place(value, what)


def _library(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _torch_place(value: Any, what: object) -> Place:
    if value.layout != sys.modules["torch"].strided:
        raise CallTypeError(f"{what} is a {value.layout} tensor", details="  try  x.to_dense()")
    if value.requires_grad:
        raise CallValueError(
            f"{what} requires grad, and kernels are not differentiated",
            details="  try  x.detach()",
        )
    if hasattr(value, "is_neg") and (value.is_conj() or value.is_neg()):
        raise CallValueError(
            f"{what} is lazily conjugated or negated",
            details="  try  x.resolve_conj().resolve_neg()",
        )
    ordinal = int(value.get_device())
    stream = torch_stream(ordinal) or LEGACY
    known = torch_dtype(value.dtype)
    shape, contiguous = tuple(value.shape), bool(value.is_contiguous())
    return Place(int(value.data_ptr()), shape, contiguous, known, ordinal, stream, True, value)


def torch_dtype(given: Any) -> DType | None:
    """
    >>> torch_dtype("torch.bfloat16"), torch_dtype("torch.complex64")
    (bfloat16, None)
    """
    name = str(given).removeprefix("torch.")
    return next((d for d in dtypes.ALL if d.name == name), None)


def torch_stream(ordinal: int) -> int:
    """The handle of torch's current stream on a device."""
    raw: Callable[[int], int] = sys.modules["torch"]._C._cuda_getCurrentRawStream
    return raw(ordinal)


def _interface_place(value: Any, what: object) -> Place:
    try:
        told = value.__cuda_array_interface__
        pointer, read_only = told["data"]
        shape = tuple(map(int, told["shape"]))
        raw = np.dtype(told["typestr"])
        strides, stream = told.get("strides"), told.get("stream")
    except Exception as problem:
        raise CallTypeError(
            f"{what}, a {type(value).__name__}, has a CUDA array interface that cannot be read: "
            f"{type(problem).__name__}: {problem}"
        ) from problem
    if told.get("mask") is not None:
        raise CallTypeError(f"{what} is a masked array, whose mask would be lost")
    if stream == 0:
        raise CallValueError(f"{what} names the stream 0, which its interface forbids")
    known = next((d for d in dtypes.ALL if d != dtypes.BFLOAT16 and d.numpy == raw), None)
    if strides is not None:
        strides = tuple(s // raw.itemsize for s in strides)
    ordinal = _ordinal_of(int(pointer)) if pointer else _device_attribute(value)
    stream = None if stream is None else int(stream)
    contiguous = strides is None or _contiguous(shape, strides)
    return Place(int(pointer), shape, contiguous, known, ordinal, stream, not read_only, value)


def _device_attribute(value: Any) -> int:
    """The device of an array without memory, where it says so."""
    return int(getattr(getattr(value, "device", None), "id", 0))


def _ordinal_of(pointer: int) -> int:
    driver = cuda_device.driver()
    if driver.count == 1:
        return 0
    kinds = driver.api.CUpointer_attribute
    return int(
        driver.call("cuPointerGetAttribute", kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer)
    )


def _dlpack_place(value: Any, what: object) -> Place:
    try:
        capsule = value.__dlpack__(stream=LEGACY)
        seen = dlpack.read(capsule)
    except Exception as problem:
        text = (str(problem).strip() or type(problem).__name__).splitlines()[0][:200]
        raise CallTypeError(
            f"{what}, a {type(value).__name__}, cannot be read through DLPack: {text}"
        ) from problem
    contiguous = seen.strides is None or _contiguous(seen.shape, seen.strides)
    owner = (value, capsule)
    return Place(seen.pointer, seen.shape, contiguous, seen.dtype, seen.ordinal, None, True, owner)


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the cells lie in C order, one after the other.

    >>> _contiguous((2, 3), (3, 1)), _contiguous((2, 3), (1, 2)), _contiguous((1, 3), (7, 1))
    (True, False, True)
    """
    if 0 in shape:
        return True
    step = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and s != step:
            return False
        step *= n
    return True


# -- making


def make_like(
    like: Any, place: Place, shape: tuple[int, ...], element: DType, stream: int, *, zero: bool
) -> tuple[Any, Callable[[], Any]]:
    """A new array on the device of `place`, and what makes it one of the library of `like`."""
    if _library(like) == "torch":
        torch = sys.modules["torch"]
        make = torch.zeros if zero else torch.empty
        made = make(shape, dtype=getattr(torch, element.name), device=like.device)
        return made, lambda: made
    device = cuda_device.device(place.ordinal)
    ours = DeviceArray(device, shape, element, stream)
    if zero:
        with device.current():
            device.clear(ours.pointer, ours.nbytes, stream)
    return ours, lambda: _theirs(ours, like)


def _theirs(ours: DeviceArray, like: Any) -> Any:
    if isinstance(like, DeviceArray):
        return ours
    if hasattr(like, "__array_namespace__"):
        take = like.__array_namespace__().from_dlpack
    else:
        take = getattr(sys.modules.get(_library(like)), "from_dlpack", None)
    return ours if take is None else take(ours)
