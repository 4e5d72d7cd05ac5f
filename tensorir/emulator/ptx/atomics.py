"""`atom` and `red`: one lane after the other where several reach one word."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorir.emulator.ptx.lanes import Array, Mask, Micro, Selection, numpy_type, unsupported
from tensorir.emulator.ptx.memory import STRONG, Reach, space_of, watch
from tensorir.emulator.ptx.numbers import bf16_to_f32, f32_to_bf16
from tensorir.emulator.ptx.text import TYPE_BYTES, Instruction, Vec

if TYPE_CHECKING:
    from tensorir.emulator.ptx.launch import Launch

Update = Callable[[Array, Array], Array]


def _wrapped(value: Array, most: Array, up: bool) -> Array:
    one = value.dtype.type(1)
    if up:
        return np.asarray(np.where(value >= most, value.dtype.type(0), value + one))
    return np.asarray(np.where((value == 0) | (value > most), most, value - one))


_INTEGER: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _update(x: Instruction, operation: str, word: str) -> Update:
    """The new value from the old one and the operand, both as raw bits."""
    if operation == "exch":
        return lambda old, new: new
    if word in ("f16x2", "bf16x2", "f16", "bf16"):
        return _half(x, operation, word)
    dtype = numpy_type(word)
    if operation in ("inc", "dec"):
        return lambda old, new: _wrapped(old, new, operation == "inc")
    named = dict(_INTEGER)
    if word in ("f32", "f64"):
        named = {"add": np.add, "min": np.fmin, "max": np.fmax}
    if operation not in named:
        raise unsupported(x)
    function = named[operation]
    return lambda old, new: np.asarray(function(old.view(dtype), new.view(dtype))).view(old.dtype)


def _half(x: Instruction, operation: str, word: str) -> Update:
    named: dict[str, Any] = {"add": np.add, "min": np.fmin, "max": np.fmax}
    if operation not in named:
        raise unsupported(x)
    brain = word.startswith("bf16")
    function = named[operation]

    def one(old: Array, new: Array) -> Array:
        if brain:
            return f32_to_bf16(function(bf16_to_f32(old), bf16_to_f32(new)))
        return np.asarray(function(old.view(np.float16), new.view(np.float16))).view(np.uint16)

    if not word.endswith("x2"):
        return one

    def two(old: Array, new: Array) -> Array:
        shape = old.shape
        pairs = (np.ascontiguousarray(v).view(np.uint16).reshape(-1) for v in (old, new))
        return np.ascontiguousarray(one(*pairs)).view(np.uint32).reshape(shape)

    return two


def build_atomic(launch: Launch, x: Instruction) -> Micro:
    """`atom` and `red`."""
    word = x.words[-1]
    known = (*STRONG, "global", "shared", "shared::cta", "cta", "gpu", "sys", "cluster", "noftz",
             "v2", "v4", "v8")  # fmt: skip
    operations = [w for w in x.words[1:-1] if w in (*_INTEGER, "exch", "cas", "inc", "dec")]
    if len(operations) != 1 or word not in TYPE_BYTES:
        raise unsupported(x)
    for w in x.words[1:-1]:
        if w not in (*known, *operations):
            raise unsupported(x, f".{w} is not run")
    operation = operations[0]
    width, raw = TYPE_BYTES[word], f"u{8 * TYPE_BYTES[word]}"
    returns = x.family == "atom"
    rest = x.operands[1:] if returns else x.operands
    where, given = rest[0], rest[1]
    parts = given.items if isinstance(given, Vec) else (given,)
    if len(parts) > 1 and (returns or operation == "cas"):
        raise unsupported(x)
    reads = [launch.lanes.read(o, raw, x) for o in parts]
    swap = launch.lanes.read(rest[2], raw, x) if operation == "cas" else None
    put = launch.lanes.write(x.operands[0], raw, x) if returns else None
    reach = Reach(launch, x, where, space_of(x), width * len(parts))
    update = None if operation == "cas" else _update(x, operation, word)
    # numpy applies these one by one itself, where nobody asks for the values before
    at_once = _INTEGER.get(operation) if not returns else None
    if word in ("f32", "f64") and operation == "add" and not returns:
        at_once = np.add
    elif word in ("f16x2", "bf16x2", "f16", "bf16", "f32", "f64"):
        at_once = None
    dtype = numpy_type(word)

    def atomic(sel: Selection, act: Mask) -> None:
        places = reach.places(sel, act)
        shape = launch.lane_numbers[sel].shape
        old = np.zeros(shape, numpy_type(raw))
        flat_old = old.ravel() if act is None else old[act]
        values = [np.broadcast_to(r(sel), shape) for r in reads]
        values = [v.ravel() if act is None else v[act] for v in values]
        new = None
        if swap is not None:
            new = np.broadcast_to(swap(sel), shape)
            new = new.ravel() if act is None else new[act]
        for memory, at, who, which in places:
            if launch.checks:
                watch(launch, memory, at, who, width * len(parts), "atomic", x)
            view, first = memory.view(width), at // width
            for k, value in enumerate(values):
                own, cells = value[which], first + k if k else first
                if at_once is not None:
                    at_once.at(view.view(dtype), cells, own.view(dtype))
                    continue
                found = _one_by_one(view, cells, own, None if new is None else new[which], update)
                flat_old[which] = found
        if put is None or not places:
            return
        if act is None:
            put(sel, None, flat_old.reshape(shape))
        else:
            old[act] = flat_old
            put(sel, act, old)

    return atomic


def _one_by_one(
    view: Array, cells: Array, value: Array, new: Array | None, update: Update | None
) -> Array:
    """The values before; each round serves one lane of each word."""
    old = np.zeros(len(cells), view.dtype)
    left = np.arange(len(cells))
    while left.size:
        _, first = np.unique(cells[left], return_index=True)
        turn = left[first]
        at = cells[turn]
        before = view[at]
        old[turn] = before
        if update is not None:
            view[at] = update(before, value[turn])
        else:  # compare and swap: the operand is compared, the other stored
            assert new is not None
            view[at] = np.where(before == value[turn], new[turn], before)
        left = np.delete(left, first)
    return old
