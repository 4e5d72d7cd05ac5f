"""Element types: names, sizes, numpy equivalents, and how they mix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from tensorir.support.errors import ArgumentError
from tensorir.support.tracebacks import user_api

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. Two of the same name are equal; use :func:`dtype` to get one."""

    name: str
    kind: Kind
    bits: int

    @property
    def bytes(self) -> int:
        """Size in memory, in bytes (a bool takes one)."""
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype of the same name (bfloat16 comes from ml_dtypes)."""
        return _numpy(self.name)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; bool is neither integer nor float."""
        return self.kind in ("int", "uint")

    def __repr__(self) -> str:
        return self.name


@cache
def _numpy(name: str) -> np.dtype[np.generic]:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes  # takes as long to load as everything else together

    found: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
    return found


BOOL = DType("bool", "bool", 1)
INTS = {b: DType(f"int{b}", "int", b) for b in (8, 16, 32, 64)}
UINTS = {b: DType(f"uint{b}", "uint", b) for b in (8, 16, 32, 64)}
INT32, INT64 = INTS[32], INTS[64]
FLOAT16 = DType("float16", "float", 16)
BFLOAT16 = DType("bfloat16", "float", 16)
FLOAT32 = DType("float32", "float", 32)
FLOAT64 = DType("float64", "float", 64)
ALL = (BOOL, *INTS.values(), *UINTS.values(), FLOAT16, BFLOAT16, FLOAT32, FLOAT64)
_BY_NAME = {d.name: d for d in ALL} | {"half": FLOAT16, "float": FLOAT32, "double": FLOAT64}


@user_api
def dtype(name: object) -> DType:
    """The element type called `name`.

    Parameters
    ----------
    name
        A :class:`DType`, its name, or a numpy dtype or scalar type (`np.float32`).

    Raises
    ------
    ArgumentError
        If there is no such type here; the message lists those there are.

    Examples
    --------
    >>> dtype("float32").bytes, dtype(bool).name
    (4, 'bool')
    """
    if isinstance(name, DType):
        return name
    if isinstance(name, str) and name in _BY_NAME:
        return _BY_NAME[name]
    try:
        found = _BY_NAME.get(np.dtype(name).name)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        found = None
    if found is None or (isinstance(name, str) and name in ("int", "uint")):
        raise ArgumentError(f"no element type {name!r}; there are {', '.join(d.name for d in ALL)}")
    return found


def promote(a: DType, b: DType) -> DType:
    """The type of an operation between `a` and `b`, by numpy's rules.

    So float32 with int32 or int64 gives float64. numpy has no rule for bfloat16: with float16 it
    gives float32, with integers it stays as it is.

    Examples
    --------
    >>> promote(dtype("int8"), dtype("uint8")), promote(dtype("float16"), dtype("bfloat16"))
    (int16, float32)
    """
    if a == b:
        return a
    if BFLOAT16 in (a, b):
        other = b if a == BFLOAT16 else a
        if other == FLOAT16:
            return FLOAT32
        return other if other in (FLOAT32, FLOAT64) else BFLOAT16
    return dtype(np.promote_types(a.numpy, b.numpy))
