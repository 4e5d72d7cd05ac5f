"""How CPython and numpy lay out objects in memory, and where their C functions are.

`call.wrapper_text` reads these fields and calls these functions. `holds` tries all of it once:
on an interpreter where anything differs, kernels are called through ctypes instead.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from tensorir.ir.dtype import DType

# CPython objects: reference count, type. Checked by `layout_holds` before any of it is used.
TYPE, HEADER = 8, 16
TUPLE_SIZE, TUPLE_ITEMS = 16, 24
VECTORCALL, FUNCTION = HEADER, HEADER + 8  # of a Kernel object
# https://numpy.org/doc/stable/reference/c-api/types-and-structures.html#c.PyArrayObject
DATA, RANK, DIMS, DESCR, FLAGS = (HEADER + k for k in (0, 8, 16, 40, 48))
C_ORDER, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
_API_ZEROS, _API_EMPTY = 183, 184  # of numpy's table of C functions; fixed for all of numpy 2

FUNCTIONS = {
    "PyObject_Vectorcall": "ptr (ptr, ptr, i64, ptr)",
    "PyEval_SaveThread": "ptr ()",
    "PyEval_RestoreThread": "void (ptr)",
    "PyTuple_New": "ptr (i64)",
    "PyErr_Clear": "void ()",
    "PyLong_FromLong": "ptr (i64)",
    "PyLong_FromVoidPtr": "ptr (ptr)",
    "Py_IncRef": "void (ptr)",
    "Py_DecRef": "void (ptr)",
}
ALLOCATORS = ("PyArray_Empty", "PyArray_Zeros")
LARGE = 1 << 20
"""Outputs of that many bytes are made to begin at a cache line, which numpy's own do not."""


@cache
def _keep(dtype_name: str, numpy_dtype: np.dtype[Any]) -> np.dtype[Any]:
    return numpy_dtype


def _api(index: int) -> int:
    """The address of a function in numpy's table."""
    umath = import_module("numpy._core._multiarray_umath")  # the table is public, its home is not
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = get(umath._ARRAY_API, None)
    return int(ctypes.c_void_p.from_address(table + 8 * index).value or 0)


@cache
def _fixed_imports() -> dict[str, int]:
    addresses = {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
        for name in FUNCTIONS
    }
    addresses |= {"PyArray_Empty": _api(_API_EMPTY), "PyArray_Zeros": _api(_API_ZEROS)}
    addresses |= {"PyArray_Type": id(np.ndarray), "PyTuple_Type": id(tuple)}
    return addresses | {"tir_out": id(sys.intern("out"))}


def imports(
    dtypes: Iterable[DType], slow: Callable[..., Any], failed: Callable[..., Any]
) -> dict[str, int]:
    """Addresses of all that a wrapper refers to. `slow` and `failed` must live on."""
    described = {f"descr_{d.name}": id(_keep(d.name, d.numpy)) for d in dtypes}
    return {**_fixed_imports(), **described, "tir_slow": id(slow), "tir_failed": id(failed)}


@cache
def holds() -> bool:
    """Whether this interpreter and this numpy lay objects out as the wrapper assumes."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8 or object.__basicsize__ != HEADER:
        return False
    if sys.byteorder != "little" or not sys.platform.startswith("linux"):
        return False
    try:
        return _array_fields_hold() and _tuple_fields_hold() and _api_holds()
    except Exception:
        return False


def _read(kind: Any, address: int) -> int:
    return int(kind.from_address(address).value or 0)


def _array_fields_hold() -> bool:
    word, small = ctypes.c_uint64, ctypes.c_int32
    probe = np.zeros((3, 5), np.float32)
    sample = probe[1:]
    at = id(sample)
    dims = _read(word, at + DIMS)
    flags = _read(small, at + FLAGS)
    return (
        _read(word, at + TYPE) == id(np.ndarray)
        and _read(word, at + DATA) == sample.ctypes.data
        and _read(small, at + RANK) == 2
        and (_read(word, dims), _read(word, dims + 8)) == (2, 5)
        and _read(word, at + DESCR) == id(np.dtype(np.float32))
        and flags == sample.flags.num
        and flags & (C_ORDER | ALIGNED | WRITEABLE) == C_ORDER | ALIGNED | WRITEABLE
    )


def _tuple_fields_hold() -> bool:
    word, items = ctypes.c_uint64, (object(), object())
    at = id(items)
    first = (_read(word, at + TUPLE_SIZE), _read(word, at + TUPLE_ITEMS))
    return first == (2, id(items[0])) and _read(word, at + TUPLE_ITEMS + 8) == id(items[1])


def _api_holds() -> bool:
    """Try the two allocators once: a number in the table that has moved must not be called."""
    if np.lib.NumpyVersion(np.__version__).major != 2:
        return False
    for index in (_API_EMPTY, _API_ZEROS):
        maker = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int
        )(_api(index))
        descriptor, shape = np.dtype(np.int16), (ctypes.c_int64 * 2)(2, 3)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(descriptor))
        made = maker(2, ctypes.addressof(shape), descriptor, 0)
        if type(made) is not np.ndarray or made.shape != (2, 3) or made.dtype != descriptor:
            return False
    return True
