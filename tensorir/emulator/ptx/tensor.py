"""Tensor core instructions: ldmatrix, stmatrix and mma, with NVIDIA's fragment layouts.

The layouts are those of the PTX ISA, "Matrix Fragments for mma.m16n8k*": with group `g = lane // 4`
and `t = lane % 4`, register `r` of A holds row `g + 8*(r % 2)` and `per` columns from
`t*per + 4*per*(r // 2)`, register `r` of B as many rows from `t*per + 4*per*r` of column `g`, and
the accumulators rows `g` and `g + 8` at columns `2*t` and `2*t + 1`. Sums are exact and rounded
once, which is at least as good as what the hardware does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tensorir.emulator.ptx.lanes import WARP, Array, Mask, Micro, Selection, unsupported
from tensorir.emulator.ptx.memory import Reach, watch
from tensorir.emulator.ptx.numbers import bf16_to_f32
from tensorir.emulator.ptx.text import Instruction, Operand
from tensorir.emulator.ptx.warps import registers, whole_warp

if TYPE_CHECKING:
    from tensorir.emulator.ptx.launch import Launch

_G, _T = np.arange(WARP) // 4, np.arange(WARP) % 4
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}


def _elements(bits: Array, word: str) -> Array:
    """The values in 32-bit registers, as (.., count) of float64."""
    per = 32 // _BITS[word]
    raw = np.ascontiguousarray(bits, np.uint32)[..., None]
    if word == "tf32":
        return (raw & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if per == 2:
        halves = raw.view(np.uint16)
        value = bf16_to_f32(halves) if word == "bf16" else halves.view(np.float16)
        return value.astype(np.float64)
    quarter = raw.view(np.uint8)
    if word in ("s8", "u8"):
        return quarter.view(np.int8 if word == "s8" else np.uint8).astype(np.float64)
    dtype = ml_dtypes.float8_e4m3fn if word == "e4m3" else ml_dtypes.float8_e5m2
    return np.asarray(quarter.view(dtype)).astype(np.float64)


def build_mma(launch: Launch, x: Instruction) -> Micro:
    """`mma.sync.aligned.m16n8k*.row.col`."""
    shape = next((re.fullmatch(r"m16n8k(\d+)", w) for w in x.words if w.startswith("m16")), None)
    result, first, second, summed = x.words[-4:]
    known = _BITS.keys() >= {first, second} and summed == result
    if shape is None or not known or "row" not in x.words or "col" not in x.words:
        raise unsupported(x)
    depth, per = int(shape[1]), 32 // _BITS[first]
    parts = depth // (4 * per)
    integer = first in ("s8", "u8")
    if result not in (("s32",) if integer else ("f32", "f16")) or parts < 1:
        raise unsupported(x)
    d, a, b, c = (registers(o) for o in x.operands[:4])
    if (len(a), len(b), len(d)) != (2 * parts, parts, 2 if result == "f16" else 4):
        raise unsupported(x, "a fragment of another size")
    word = "b32" if result == "f16" else result
    read_a, read_b = ([launch.lanes.read(o, "b32", x) for o in r] for r in (a, b))
    read_c = [launch.lanes.read(o, word, x) for o in c]
    puts = [launch.lanes.write(o, word, x) for o in d]
    lo = np.arange(per)
    saturate = "satfinite" in x.words

    def multiply(sel: Selection, act: Mask) -> None:
        whole_warp(launch, x, sel, act)
        n = len(launch.lane_numbers[sel])
        left, right = np.zeros((n, 16, depth)), np.zeros((n, depth, 8))
        for r, read in enumerate(read_a):
            rows = (_G + 8 * (r % 2))[:, None]
            columns = (_T * per + 4 * per * (r // 2))[:, None] + lo
            left[:, rows, columns] = _elements(np.broadcast_to(read(sel), (n, WARP)), first)
        for r, read in enumerate(read_b):
            rows = (_T * per + 4 * per * r)[:, None] + lo
            right[:, rows, _G[:, None]] = _elements(np.broadcast_to(read(sel), (n, WARP)), second)
        product: Array = left @ right
        if integer:  # small enough to be exact
            product = product.astype(np.int64)
        # all are read before one is written: the registers of C may be those of D in any order
        added = [np.broadcast_to(read(sel), (n, WARP)).copy() for read in read_c]
        for r, (put, own) in enumerate(zip(puts, added, strict=True)):
            if result == "f16":
                before = _elements(own, "f16")
                rows = (_G + 8 * r)[:, None]
                now = (before + product[:, rows, (2 * _T)[:, None] + np.arange(2)]).astype(
                    np.float16
                )
                put(sel, act, np.ascontiguousarray(now).view(np.uint32)[..., 0])
                continue
            here = product[:, _G + 8 * (r // 2), 2 * _T + r % 2]
            if not integer:
                put(sel, act, (own + here).astype(np.float32))
            elif saturate:
                put(sel, act, np.clip(own + here, -(2**31), 2**31 - 1).astype(np.int32))
            else:
                put(sel, act, (own + here).astype(np.uint64).astype(np.uint32).view(np.int32))

    return multiply


class _Rows:
    """The rows of 8x8 matrices of 16-bit elements: 16 bytes at the address of a lane."""

    def __init__(self, launch: Launch, x: Instruction, where: Operand, count: int) -> None:
        self.launch, self.x, self.count = launch, x, count
        self.reach = Reach(launch, x, where, "shared", 16)

    def places(self, sel: Selection, kind: str) -> Array:
        """The bytes where rows start in the shared memory of all blocks: (warps, 8 * count)."""
        launch, count = self.launch, 8 * self.count
        n = len(launch.lane_numbers[sel])
        act = None if count == WARP else np.broadcast_to(np.arange(WARP) < count, (n, WARP))
        ((memory, flat, lanes, _),) = self.reach.places(sel, act)
        if launch.checks:
            watch(launch, memory, flat, lanes, 16, kind, self.x)
        return flat.reshape(n, count)


def _matrices(x: Instruction) -> tuple[int, bool]:
    words = x.words
    count = next((int(w[1]) for w in words if w in ("x1", "x2", "x4")), None)
    if count is None or "m8n8" not in words or words[-1] != "b16":
        raise unsupported(x)
    if not any(w.startswith("shared") for w in words):
        raise unsupported(x, "generic addresses of matrices are not run")
    return count, "trans" in words


def build_load_matrix(launch: Launch, x: Instruction) -> Micro:
    """`ldmatrix`: register `m` of a lane holds two neighbours of row `g` of matrix `m`."""
    count, transposed = _matrices(x)
    puts = [launch.lanes.write(o, "b32", x) for o in registers(x.operands[0])]
    rows = _Rows(launch, x, x.operands[1], count)

    def load(sel: Selection, act: Mask) -> None:
        whole_warp(launch, x, sel, act)
        start = rows.places(sel, "read")
        halves = launch.spaces["shared"].view(2)
        for m, put in enumerate(puts):
            matrix = halves[(start[:, 8 * m : 8 * m + 8] // 2)[:, :, None] + np.arange(8)]
            if transposed:
                matrix = matrix.transpose(0, 2, 1)
            low = matrix[:, _G, 2 * _T].astype(np.uint32)
            put(sel, act, low | (matrix[:, _G, 2 * _T + 1].astype(np.uint32) << np.uint32(16)))

    return load


def build_store_matrix(launch: Launch, x: Instruction) -> Micro:
    """`stmatrix`, the reverse of `ldmatrix`."""
    count, transposed = _matrices(x)
    reads = [launch.lanes.read(o, "b32", x) for o in registers(x.operands[1])]
    rows = _Rows(launch, x, x.operands[0], count)

    def store(sel: Selection, act: Mask) -> None:
        whole_warp(launch, x, sel, act)
        start = rows.places(sel, "write")
        halves = launch.spaces["shared"].view(2)
        n = len(start)
        for m, read in enumerate(reads):
            value: Any = np.broadcast_to(read(sel), (n, WARP))
            matrix = np.zeros((n, 8, 8), np.uint16)
            matrix[:, _G, 2 * _T] = value.astype(np.uint16)
            matrix[:, _G, 2 * _T + 1] = (value >> np.uint32(16)).astype(np.uint16)
            if transposed:
                matrix = matrix.transpose(0, 2, 1)
            halves[(start[:, 8 * m : 8 * m + 8] // 2)[:, :, None] + np.arange(8)] = matrix

    return store
