"""A type whose instances are called through machine code: made with `PyType_FromSpec`.

An instance holds, after CPython's header, the address that a call jumps to (its vectorcall
slot), the address of the kernel, its `__dict__`, and its weak references. A Python class with
`__call__` would cost four to ten times as much a call.
"""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn

from tensorir.runtime.layout import FUNCTION, VECTORCALL
from tensorir.support.errors import ArgumentTypeError

__all__ = ["make_instance", "make_type", "set_addresses"]

_DICT, _WEAK, _SIZE = FUNCTION + 8, FUNCTION + 16, FUNCTION + 24
# flags of CPython's object.h and types of its structmember.h
_DEFAULT, _HAVE_GC, _HAVE_VECTORCALL = 1 << 18, 1 << 14, 1 << 11
_MEMBER_SSIZE, _READONLY = 19, 1
_TP_CALL, _TP_CLEAR, _TP_DOC, _TP_TRAVERSE, _TP_MEMBERS = 50, 51, 56, 71, 72


class _Member(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("value", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    ]


class _Model:
    """Its slots for the garbage collector serve our type too: they visit dict and type."""


_kept: list[object] = []  # CPython keeps pointers into what a type was made from


def make_type(plain: type) -> Any:
    """A type with the methods of `plain`, whose instances have room for the two addresses.

    It cannot be subclassed, and its instances come from `make_instance` alone.
    """
    api = ctypes.pythonapi
    get_slot = api.PyType_GetSlot
    get_slot.restype, get_slot.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    members = (_Member * 4)(
        _Member(b"__vectorcalloffset__", _MEMBER_SSIZE, VECTORCALL, _READONLY, None),
        _Member(b"__dictoffset__", _MEMBER_SSIZE, _DICT, _READONLY, None),
        _Member(b"__weaklistoffset__", _MEMBER_SSIZE, _WEAK, _READONLY, None),
    )
    doc = ctypes.create_string_buffer((plain.__doc__ or "").encode())
    slots = (_Slot * 6)(
        _Slot(_TP_MEMBERS, ctypes.addressof(members)),
        _Slot(_TP_CALL, ctypes.cast(api.PyVectorcall_Call, ctypes.c_void_p).value),
        _Slot(_TP_TRAVERSE, get_slot(_Model, _TP_TRAVERSE)),
        _Slot(_TP_CLEAR, get_slot(_Model, _TP_CLEAR)),
        _Slot(_TP_DOC, ctypes.addressof(doc)),
    )
    flags = _DEFAULT | _HAVE_GC | _HAVE_VECTORCALL
    name = f"{plain.__module__}.{plain.__name__}".encode()
    spec = _Spec(name, _SIZE, 0, flags, slots)
    _kept.extend((members, doc, slots, name, spec))
    make = api.PyType_FromSpec
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
    made = make(ctypes.addressof(spec))
    ours = ("__dict__", "__weakref__", "__doc__", "__module__", "__call__", "__init__", "__new__")
    for key, value in vars(plain).items():
        if key not in ours:
            setattr(made, key, value)
    made.__new__ = staticmethod(_refuse)
    return made


def _refuse(cls: type, *args: object, **kwargs: object) -> NoReturn:
    raise ArgumentTypeError("kernels are made by tir.build and tir.load, not by calling the class")


def make_instance(cls: Any) -> Any:
    """A new instance of a type of ours; a call of it raises until `set_addresses`."""
    allocate = ctypes.pythonapi.PyType_GenericAlloc
    allocate.restype, allocate.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_ssize_t]
    return allocate(cls, 0)


def set_addresses(instance: Any, wrapper: int, function: int) -> None:
    """Let calls of `instance` jump to `wrapper`, which finds the kernel at `function`."""
    ctypes.c_void_p.from_address(id(instance) + FUNCTION).value = function
    ctypes.c_void_p.from_address(id(instance) + VECTORCALL).value = wrapper
