"""How the builders of arithmetic instructions are registered, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorir.emulator.ptx.lanes import Array, Lanes, Mask, Micro, Selection, unsupported
from tensorir.emulator.ptx.text import TYPE_BYTES, Instruction, Reg

Builder = Callable[[Lanes, Instruction], Micro]
Function = Callable[..., Any]

BUILDERS: dict[str, Builder] = {}


def builds(*families: str) -> Callable[[Builder], Builder]:
    """Make a function the builder of some instruction families."""

    def add(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(families, builder))
        return builder

    return add


def apply(
    lanes: Lanes,
    x: Instruction,
    function: Function,
    operands: tuple[str, ...],
    result: str,
    *,
    in_place: bool = False,
) -> Micro:
    """`result = function(operands)`, the operands read as PTX types.

    `in_place` functions are numpy's own and take `out` and `where`.
    """
    given = x.operands[1:]
    if len(given) != len(operands):
        raise unsupported(x, f"{len(operands)} operands are run, not {len(given)}")
    reads = [lanes.read(o, t, x) for o, t in zip(given, operands, strict=True)]
    put = lanes.write(x.operands[0], result, x)
    into = lanes.target(x.operands[0], result, x) if in_place else None
    if into is not None and len(reads) == 2:
        a, b = reads
        there = into

        def quick(sel: Selection, act: Mask) -> None:
            if act is None and isinstance(sel, slice):
                function(a(sel), b(sel), out=there[sel], casting="unsafe")
            else:
                put(sel, act, function(a(sel), b(sel)))

        return quick
    if len(reads) == 2:
        a, b = reads
        return lambda sel, act: put(sel, act, function(a(sel), b(sel)))
    if len(reads) == 3:
        a, b, c = reads
        return lambda sel, act: put(sel, act, function(a(sel), b(sel), c(sel)))

    def micro(sel: Selection, act: Mask) -> None:
        put(sel, act, function(*(r(sel) for r in reads)))

    return micro


def kind_of(word: str) -> str:
    """`float`, `half` (pairs too), `int`, or `pred`."""
    if word == "pred":
        return "pred"
    if word in ("f32", "f64"):
        return "float"
    return "half" if word.startswith(("f16", "bf16")) else "int"


def plain(x: Instruction, allowed: tuple[str, ...] = ()) -> str:
    """The type of an instruction whose words are all known; refuses the others by name."""
    for word in x.words[1:-1]:
        if word not in allowed:
            raise unsupported(x, f".{word} is not run")
    if x.words[-1] not in TYPE_BYTES:
        raise unsupported(x)
    return x.words[-1]


def integer(x: Instruction, allowed: tuple[str, ...] = ()) -> str:
    """As `plain`, of an instruction on integers only."""
    word = plain(x, allowed)
    if kind_of(word) != "int":
        raise unsupported(x)
    return word


def unsigned(a: Any) -> Array:
    """The bits of integers."""
    whole = np.asarray(a)
    width = whole.dtype.itemsize
    return whole.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[width])


def on_halves(function: Function, dtype: type[Any]) -> Function:
    """A function of 16-bit values, of both halves of 32-bit ones."""

    def both(*pairs: Any) -> Array:
        low = function(*(np.asarray(p).astype(np.uint16).view(dtype) for p in pairs))
        high = function(
            *((np.asarray(p) >> np.uint32(16)).astype(np.uint16).view(dtype) for p in pairs)
        )
        below, above = (np.asarray(h).view(np.uint16).astype(np.uint32) for h in (low, high))
        return np.asarray(below | (above << np.uint32(16)))

    return both


def guard_of(lanes: Lanes, x: Instruction) -> Callable[[Selection], Array] | None:
    """How the guard of an instruction is read."""
    if x.guard is None:
        return None
    read = lanes.read(Reg(x.guard.name), "pred", x)
    if not x.guard_negated:
        return read
    return lambda sel: ~read(sel)
