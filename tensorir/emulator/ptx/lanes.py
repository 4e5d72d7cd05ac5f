"""Registers of all warps as arrays of lanes, and how an instruction reads and writes them.

A register is an array of shape (warps, 32), unsigned; views give it other types. A selection says
which warps take part, a slice where they are neighbours; a mask which of their lanes (None: all).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorir.emulator.ptx.text import TYPE_BYTES, Imm, Instruction, Operand, Reg, Sym
from tensorir.support.errors import ArgumentError, UnsupportedError

Array: TypeAlias = NDArray[Any]
Selection: TypeAlias = "slice | NDArray[np.intp]"
Mask: TypeAlias = "NDArray[np.bool_] | None"
Read: TypeAlias = Callable[[Selection], Any]
Write: TypeAlias = Callable[[Selection, Mask, Any], None]
Micro: TypeAlias = Callable[[Selection, Mask], None]

WARP = 32
CARRY = "%cc"
"""The register that holds the carry of `add.cc` and its like."""

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_FLOAT = {2: np.float16, 4: np.float32, 8: np.float64}


def numpy_type(word: str) -> type[Any]:
    """The numpy type in which values of a PTX type are computed; bfloat16 keeps its bits."""
    if word == "pred":
        return np.bool_
    width = TYPE_BYTES[word]
    if word in ("f16", "f32", "f64"):
        return _FLOAT[width]
    return _SIGNED[width] if word.startswith("s") else _UNSIGNED[width]


def unsupported(x: Instruction, why: str = "this instruction is not run") -> UnsupportedError:
    """An instruction, or a form of one, that the emulator does not know."""
    return UnsupportedError(f"PTX line {x.line}: {x.opcode}: {why}")


class Lanes:
    """The registers of `warps` warps, the special ones, and the addresses of variables."""

    def __init__(
        self,
        warps: int,
        registers: dict[str, str],
        special: dict[str, Array],
        addresses: dict[str, int],
    ) -> None:
        self.warps = warps
        self.registers = registers
        self.special = special
        self.addresses = addresses
        self.arrays: dict[str, Array] = {}

    def array(self, name: str, x: Instruction) -> Array:
        """The array of a register, made when it is first used."""
        found = self.arrays.get(name)
        if found is not None:
            return found
        kind = "pred" if name == CARRY else self.registers.get(name)
        if kind is None:
            raise ArgumentError(f"PTX line {x.line}: no register {name}")
        dtype = np.bool_ if kind == "pred" else _UNSIGNED[TYPE_BYTES[kind]]
        made: Array = np.zeros((self.warps, WARP), dtype)
        self.arrays[name] = made
        return made

    def read(self, o: Operand, word: str, x: Instruction) -> Read:
        """How an operand is read as a value of a PTX type."""
        dtype = numpy_type(word)
        if isinstance(o, Imm):
            value = constant(o, word)
            return lambda sel: value
        if isinstance(o, Sym):
            address = np.uint64(self.address(o, x)).astype(dtype)
            return lambda sel: address
        if not isinstance(o, Reg):
            raise unsupported(x, "an operand of this kind")
        if o.name in self.special:
            view = self.special[o.name]
            view = view if view.dtype == dtype else view.astype(dtype)
        else:
            array = self.array(o.name, x)
            width = np.dtype(dtype).itemsize
            if array.dtype == np.bool_ or width == array.itemsize:
                view = array.view(dtype)
            else:
                # the low part of a wider register, or a narrower one taken as unsigned
                def narrow(sel: Selection) -> Any:
                    return array[sel].astype(_UNSIGNED[width]).view(dtype)

                return narrow

        def whole(sel: Selection) -> Any:
            return view[sel]

        return whole

    def address(self, o: Sym, x: Instruction) -> int:
        if o.name not in self.addresses:
            raise ArgumentError(f"PTX line {x.line}: no variable {o.name}")
        return self.addresses[o.name] + o.offset

    def write(self, o: Operand, word: str, x: Instruction) -> Write:
        """How values of a PTX type are written to an operand, in the lanes of a mask."""
        if not isinstance(o, Reg):
            raise unsupported(x, "the result goes to a register")
        if o.name == "_":
            return lambda sel, act, value: None
        array = self.array(o.name, x)
        dtype = np.dtype(numpy_type(word))
        same = array.dtype == np.bool_ or dtype.itemsize == array.itemsize
        view = array.view(dtype) if same else array
        # a narrower value fills the register with its sign or with zeros
        wide = (
            None
            if same
            else np.dtype(_SIGNED[array.itemsize] if dtype.kind == "i" else array.dtype)
        )
        raw = None if same or dtype.kind != "f" else np.dtype(_UNSIGNED[dtype.itemsize])

        def put(sel: Selection, act: Mask, value: Any) -> None:
            if wide is not None:
                value = np.asarray(value, dtype)
                value = value.view(raw) if raw is not None else value
                value = value.astype(wide).view(array.dtype)
            if act is None:
                view[sel] = value
            elif isinstance(sel, slice):
                np.copyto(view[sel], value, where=act, casting="unsafe")
            else:
                now = view[sel]
                np.copyto(now, value, where=act, casting="unsafe")
                view[sel] = now

        return put

    def target(self, o: Operand, word: str, x: Instruction) -> Array | None:
        """The array of a result of the very type of its register, to compute into in place."""
        if not isinstance(o, Reg) or o.name == "_":
            return None
        array = self.array(o.name, x)
        dtype = np.dtype(numpy_type(word))
        same = (array.dtype == np.bool_) == (dtype == np.bool_)
        return array.view(dtype) if same and dtype.itemsize == array.itemsize else None


def constant(o: Imm, word: str) -> Any:
    """A constant as a numpy scalar of a PTX type."""
    dtype = np.dtype(numpy_type(word))
    if dtype == np.bool_:
        return np.bool_(o.value != 0)
    bits = o.value % (1 << 8 * dtype.itemsize)
    if o.float_bytes and o.float_bytes != dtype.itemsize and dtype.kind == "f":
        given = np.array([o.value], _UNSIGNED[o.float_bytes]).view(_FLOAT[o.float_bytes])
        return given.astype(dtype)[0]
    if dtype.kind == "f" and not o.float_bytes:
        return dtype.type(o.value)
    return np.array([bits], _UNSIGNED[dtype.itemsize]).view(dtype)[0]
