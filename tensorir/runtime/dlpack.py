"""DLPack's structures, read and written through ctypes: arrays of a device, without a copy.

https://dmlc.github.io/dlpack/latest/c_api.html; the version without flags, which all libraries
take and give.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from tensorir.ir import dtype as dtypes
from tensorir.ir.dtype import DType

__all__ = ["CUDA", "MANAGED", "Seen", "export", "read"]

CUDA, MANAGED = 2, 13
_NAME = b"dltensor"
_KINDS = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("ordinal", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (
    ("tensor", _Tensor),
    ("context", ctypes.c_void_p),
    ("deleter", ctypes.c_void_p),
)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_python = ctypes.pythonapi
_get = _python.PyCapsule_GetPointer
_get.restype, _get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_get_raw = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)
_valid_raw = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _python)
)

# what is exported lives here, by the address of its structure, until its deleter is called
_held: dict[int, tuple[_Managed, Any, Any]] = {}


@dataclass(frozen=True, slots=True)
class Seen:
    """What a capsule says: `strides` in elements, None where it is C contiguous."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: DType | None
    device: int
    ordinal: int


def read(capsule: Any) -> Seen:
    """What a capsule says. It stays valid, and the memory lives as long as the capsule does.

    Raises
    ------
    ValueError
        It is no unused capsule of DLPack.
    """
    told = ctypes.cast(_get(capsule, _NAME), ctypes.POINTER(_Managed)).contents.tensor
    shape = tuple(told.shape[k] for k in range(told.ndim))
    strides = tuple(told.strides[k] for k in range(told.ndim)) if told.strides else None
    kind = next((name for name, code in _KINDS.items() if code == told.code), "")
    known = None
    if told.lanes == 1:
        name = "bool" if kind == "bool" else f"{kind}{told.bits}"
        known = next((d for d in dtypes.ALL if d.name == name), None)
    pointer = int(told.data or 0) + int(told.offset)
    return Seen(pointer, shape, strides, known, int(told.device), int(told.ordinal))


def _delete(managed: Any) -> None:
    _held.pop(ctypes.addressof(managed.contents), None)


def _destroy(capsule: int) -> None:
    """A capsule that nobody took; one that was taken has another name."""
    if _valid_raw(capsule, _NAME):
        _held.pop(int(_get_raw(capsule, _NAME)), None)


_deleter, _destructor = _Deleter(_delete), _Destructor(_destroy)


def export(owner: Any, pointer: int, shape: tuple[int, ...], dtype: DType, ordinal: int) -> Any:
    """A capsule on memory of a CUDA device that keeps `owner` alive."""
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    kind = dtype.name.rstrip("0123456789")
    managed = _Managed()
    t = managed.tensor
    t.data, t.device, t.ordinal, t.ndim = pointer or None, CUDA, ordinal, len(shape)
    t.code, t.bits, t.lanes = _KINDS[kind], 8 * dtype.bytes, 1
    t.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p)
    address = ctypes.addressof(managed)
    _held[address] = (managed, owner, extents)
    return _new(address, _NAME, ctypes.cast(_destructor, ctypes.c_void_p))
