"""Arrays of libraries that are not there: by interface, by DLPack, and a torch of our own."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensorir.ir.dtype import dtype
from tensorir.runtime import dlpack
from tensorir.runtime.device_arrays import DeviceArray, to_device


class Interface:
    """Memory of a device array with `__cuda_array_interface__` alone, as CuPy's and Numba's."""

    def __init__(
        self, array: Any, *, offset: int = 0, stream: int | None = None, **changes: Any
    ) -> None:
        self.owner = array if isinstance(array, DeviceArray) else to_device(array)
        told = self.owner.__cuda_array_interface__
        told["data"] = (told["data"][0] + offset, False)
        told["stream"] = stream
        self.__cuda_array_interface__ = told | changes

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.owner.numpy()


class Packed:
    """The same through DLPack alone; notes the stream that it is asked for."""

    def __init__(self, array: Any, *, strides: tuple[int, ...] | None = None) -> None:
        self.owner = array if isinstance(array, DeviceArray) else to_device(array)
        self.strides = strides
        self.asked: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.owner.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        self.asked.append(stream)
        capsule = self.owner.__dlpack__(stream=stream)
        if self.strides is not None:
            managed = dlpack._held[max(dlpack._held)][0]
            extents = (ctypes.c_int64 * len(self.strides))(*self.strides)
            self.kept = extents
            managed.tensor.strides = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
        return capsule

    @staticmethod
    def from_dlpack(array: Any) -> Packed:
        return Packed(array)

    def __array_namespace__(self) -> Any:
        return types.SimpleNamespace(from_dlpack=Packed.from_dlpack)


@contextmanager
def torch_of_ours() -> Iterator[Any]:
    """A module `torch` with as much of tensors on a device as a call looks at."""
    module: Any = types.ModuleType("torch")

    class Device:
        def __init__(self, index: int) -> None:
            self.type, self.index = "cuda", index

        def __str__(self) -> str:
            return f"cuda:{self.index}"

    class Tensor:
        is_cuda, requires_grad = True, False

        def __init__(self, array: DeviceArray) -> None:
            self.array = array
            self.shape, self.dtype = array.shape, f"torch.{array.dtype.name}"
            self.device = Device(array._device.ordinal)
            self.layout = module.strided
            self.contiguous_now = True

        def data_ptr(self) -> int:
            return self.array.pointer

        def get_device(self) -> int:
            return self.array._device.ordinal

        def is_contiguous(self) -> bool:
            return self.contiguous_now

    Tensor.__module__ = "torch"
    module.strided = "strided"
    module.Tensor = Tensor
    module.streams = {}
    module._C = types.SimpleNamespace(
        _cuda_getCurrentRawStream=lambda ordinal: module.streams.get(ordinal, 0)
    )
    for name in ("float32", "float16", "int64", "int32"):
        setattr(module, name, name)

    def empty(shape: Any, *, dtype: str, device: Device) -> Tensor:
        made = np.full(shape, 77).astype(_dtype(dtype).numpy)
        return Tensor(to_device(made, str(device)))

    def zeros(shape: Any, *, dtype: str, device: Device) -> Tensor:
        return Tensor(to_device(np.zeros(shape, _dtype(dtype).numpy), str(device)))

    module.empty, module.zeros = empty, zeros
    module.tensor = lambda array, device="cuda:0": Tensor(to_device(array, device))
    before = sys.modules.get("torch")
    sys.modules["torch"] = module
    try:
        yield module
    finally:
        if before is None:
            del sys.modules["torch"]
        else:
            sys.modules["torch"] = before


_dtype = dtype
