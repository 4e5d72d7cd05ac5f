"""Arrays of other libraries as numpy arrays, without a copy, and back.

numpy arrays are themselves; torch tensors are read through their pointer and strides; everything
else comes through DLPack, or, for inputs, through `__array__`.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

from tensorir.ir import dtype as dtypes
from tensorir.runtime.device import device_name, on_cpu
from tensorir.support.errors import CallTypeError, CallValueError

__all__ = ["AnyArray", "byte_range", "give_back", "is_plain", "overlaps_itself", "view"]

AnyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def is_plain(array: AnyArray) -> bool:
    """Whether a kernel can use the memory as it is, as far as reading goes."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned and array.dtype.isnative


def view(value: Any, what: object, *, output: bool = False) -> AnyArray:
    """A numpy array on the memory of `value`.

    Parameters
    ----------
    value
        An array of numpy, torch, or any library with DLPack; for inputs also anything with
        `__array__`.
    what
        How messages name it, as its `str`: "C(): argument A".
    output
        The array will be written: it must not be a copy.

    Raises
    ------
    CallTypeError
        If it is no array.
    CallValueError
        If it is an array of another device, or one that requires grad or is lazily conjugated.
    """
    if isinstance(value, np.ndarray):
        return _plain_numpy(value, what)
    if isinstance(value, type):
        raise CallTypeError(f"{what} is the class {value.__name__}, not an array")
    if _library(value) == "torch" and hasattr(value, "data_ptr"):
        return _from_torch(value, what)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, what, output)
    if hasattr(value, "__array__") and not output:
        return _from_array_method(value, what)
    raise CallTypeError(
        f"{what} is a {type(value).__name__}, not an array",
        details="" if output else '  try  np.asarray(x, dtype="float32") once, before the call',
    )


def _library(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _plain_numpy(value: AnyArray, what: object) -> AnyArray:
    if isinstance(value, np.ma.MaskedArray):
        raise CallTypeError(
            f"{what} is a masked array, whose mask would be lost",
            details="  try  x.filled(0), or x.data",
        )
    return value if type(value) is np.ndarray else value.view(np.ndarray)


class _Memory:
    """Memory that belongs to a tensor, in numpy's terms; keeps the tensor alive."""

    def __init__(self, owner: object, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def _from_torch(value: Any, what: object) -> AnyArray:
    try:
        array: AnyArray = value.numpy()
        return array
    except (RuntimeError, TypeError):
        pass  # numpy has no such type, or there is a reason, to be told below
    if value.layout != sys.modules["torch"].strided:
        raise CallTypeError(f"{what} is a {value.layout} tensor", details="  try  x.to_dense()")
    if not on_cpu(value.device.type):
        raise CallValueError(f"{what} is on {value.device}, expected cpu", details="  try  x.cpu()")
    if value.requires_grad:
        raise CallValueError(
            f"{what} requires grad, and kernels are not differentiated",
            details="  try  x.detach()",
        )
    if value.is_conj() or value.is_neg():
        raise CallValueError(
            f"{what} is lazily conjugated or negated",
            details="  try  x.resolve_conj().resolve_neg()",
        )
    name = str(value.dtype).removeprefix("torch.")
    known = next((d for d in dtypes.ALL if d.name == name), None)
    if known is None:
        raise CallTypeError(f"{what} is {name}, a type that there is not here")
    if value.numel() == 0:
        return np.empty(tuple(value.shape), known.numpy)
    raw = np.dtype(np.uint16) if known == dtypes.BFLOAT16 else known.numpy
    interface = {
        "version": 3,
        "data": (value.data_ptr(), False),
        "shape": tuple(value.shape),
        "strides": tuple(s * known.bytes for s in value.stride()),
        "typestr": raw.str,
    }
    return np.asarray(_Memory(value, interface)).view(known.numpy)


def _from_dlpack(value: Any, what: object, output: bool) -> AnyArray:
    try:
        device = device_name(value)
    except Exception as problem:
        raise CallTypeError(f"{what} does not say where it lives: {_reason(problem)}") from problem
    if not on_cpu(device):
        raise CallValueError(f"{what} is on {device}, expected cpu")
    try:
        return np.from_dlpack(value)
    except Exception as problem:
        if hasattr(value, "__array__") and not output:
            return _from_array_method(value, what)
        raise CallTypeError(
            f"{what}, a {type(value).__name__}, cannot be read through DLPack: {_reason(problem)}"
        ) from problem


def _from_array_method(value: Any, what: object) -> AnyArray:
    try:
        return np.asarray(value)
    except Exception as problem:
        raise CallTypeError(
            f"{what}, a {type(value).__name__}, cannot be made an array: {_reason(problem)}"
        ) from problem


def _reason(problem: Exception) -> str:
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0][:200]


def give_back(array: AnyArray, like: object, what: object) -> Any:
    """A fresh result as an array of the library of `like`, sharing memory."""
    if isinstance(like, np.ndarray | np.generic) or not hasattr(like, "__dlpack__"):
        return array
    try:
        if _library(like) == "torch":
            return _to_torch(array)
        if hasattr(like, "__array_namespace__"):
            return like.__array_namespace__().from_dlpack(array)
        return sys.modules[_library(like)].from_dlpack(array)
    except Exception as problem:
        raise CallTypeError(
            f"{what} cannot be handed to {_library(like)}: {_reason(problem)}",
            details="  try  out= with an array of that library",
        ) from problem


def _to_torch(array: AnyArray) -> Any:
    torch = sys.modules["torch"]
    if array.dtype == dtypes.BFLOAT16.numpy:
        return torch.from_dlpack(array.view(np.int16)).view(torch.bfloat16)
    if array.dtype in (np.uint16, np.uint32, np.uint64):
        signed = torch.from_dlpack(array.view(f"int{8 * array.itemsize}"))
        return signed.view(getattr(torch, array.dtype.name))
    return torch.from_dlpack(array)


def byte_range(array: AnyArray) -> tuple[int, int]:
    """First byte, and one past the last, that an array may touch; equal if it has no cells."""
    if array.size == 0:
        return 0, 0
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def overlaps_itself(array: AnyArray) -> bool:
    """Whether two cells may share memory, as in a broadcast view; never wrongly False."""
    reach = array.itemsize
    steps = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    for step, extent in steps:
        if step < reach:
            return array.size > 1
        reach += step * (extent - 1)
    return False
