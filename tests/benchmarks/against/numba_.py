"""numba, written by hand: fused loops, blocks, several partial sums, an exp that vectorises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from tests.benchmarks.work import Array, Candidate, Work, empty

_FAST = {"fastmath": {"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"}, "error_model": "numpy"}
serial = numba.njit(**_FAST)
shared = numba.njit(parallel=True, **_FAST)
prange = numba.prange


def use_threads(threads: int) -> None:
    numba.set_num_threads(threads)


@intrinsic
def _as_float(typingctx: Any, bits: Any) -> Any:
    """The float32 with these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@serial
def _exp(x: Any) -> Any:
    """The polynomial of Cephes: numba's own exp is a call for each element."""
    f = np.float32
    x = max(x, f(-87.0))
    n = np.floor(x * f(1.4426950408889634) + f(0.5))
    r = x - n * f(0.693359375) + n * f(2.12194440e-4)
    p = f(1.9875691500e-4)
    p = p * r + f(1.3981999507e-3)
    p = p * r + f(8.3334519073e-3)
    p = p * r + f(4.1665795894e-2)
    p = p * r + f(1.6666665459e-1)
    p = p * r + f(5.0000001201e-1)
    p = p * r * r + r + f(1.0)
    return p * _as_float(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


def _softmax_rows(x, out):  # type: ignore[no-untyped-def]
    for i in prange(x.shape[0]):
        top = np.float32(-np.inf)
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            e = _exp(x[i, j] - top)
            out[i, j] = e
            total += e
        share = np.float32(1) / total
        for j in range(x.shape[1]):
            out[i, j] *= share


def _layernorm_rows(x, weight, bias, out):  # type: ignore[no-untyped-def]
    width = np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / width
        square = np.float32(0)
        for j in range(x.shape[1]):
            d = x[i, j] - mean
            square += d * d
        factor = np.float32(1) / np.sqrt(square / width + np.float32(1e-5))
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * factor * weight[j] + bias[j]


def _transpose_blocks(x, out):  # type: ignore[no-untyped-def]
    block = 16
    for io in prange(x.shape[0] // block):
        for jo in range(x.shape[1] // block):
            for j in range(jo * block, jo * block + block):
                for i in range(io * block, io * block + block):
                    out[j, i] = x[i, j]


def _chain_all(x, z, a, c, d, out):  # type: ignore[no-untyped-def]
    for i in prange(x.shape[0]):
        out[i] = max(a * x[i] + z[i], np.float32(0)) * c + d


def _sum_rows(x, out):  # type: ignore[no-untyped-def]
    for i in prange(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total


def _sum_columns(x, out):  # type: ignore[no-untyped-def]
    block = 1024
    for jo in prange((x.shape[1] + block - 1) // block):
        start, end = jo * block, min(jo * block + block, x.shape[1])
        out[start:end] = 0
        for i in range(0, x.shape[0] - 3, 4):
            for j in range(start, end):
                out[j] += (x[i, j] + x[i + 1, j]) + (x[i + 2, j] + x[i + 3, j])
        for i in range(x.shape[0] - x.shape[0] % 4, x.shape[0]):
            for j in range(start, end):
                out[j] += x[i, j]


def _blur_strips(x, out):  # type: ignore[no-untyped-def]
    third = np.float32(1 / 3)
    h, w = out.shape
    for y in prange(h):
        for i in range(w):
            a = x[y, i] + x[y, i + 1] + x[y, i + 2]
            b = x[y + 1, i] + x[y + 1, i + 1] + x[y + 1, i + 2]
            c = x[y + 2, i] + x[y + 2, i + 1] + x[y + 2, i + 2]
            out[y, i] = (a + b + c) * third * third


def _depthwise_three(x, w, out):  # type: ignore[no-untyped-def]
    """Windows of 3 by 3, stride 1, one pixel of padding; the rim on its own."""
    h, wide = x.shape[2], x.shape[3]
    for c in prange(x.shape[1]):
        for y in range(h):
            for i in range(wide):
                out[0, c, y, i] = 0
            for ky in range(max(0, 1 - y), min(3, h + 1 - y)):
                left, middle, right = w[c, 0, ky, 0], w[c, 0, ky, 1], w[c, 0, ky, 2]
                row = y + ky - 1
                out[0, c, y, 0] += middle * x[0, c, row, 0] + right * x[0, c, row, 1]
                for i in range(1, wide - 1):
                    out[0, c, y, i] += (
                        left * x[0, c, row, i - 1]
                        + middle * x[0, c, row, i]
                        + right * x[0, c, row, i + 1]
                    )
                end = wide - 1
                out[0, c, y, end] += left * x[0, c, row, end - 1] + middle * x[0, c, row, end]


def _made(
    rows: Callable[..., None], arguments: tuple[Any, ...], shape: tuple[int, ...], threads: int
) -> dict[str, Candidate]:
    out = empty(shape)
    call = (shared if threads > 1 else serial)(rows)
    call(*arguments, out)
    return {"numba": Candidate(lambda: call(*arguments, out), lambda: out)}


def _softmax(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    return _made(_softmax_rows, arrays, arrays[0].shape, threads)


def _layernorm(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    return _made(_layernorm_rows, arrays, arrays[0].shape, threads)


def _transpose(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    if any(n % 16 for n in arrays[0].shape):
        return {}
    return _made(_transpose_blocks, arrays, arrays[0].shape[::-1], threads)


def _chain(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    numbers = tuple(np.float32(work.options[n]) for n in "acd")
    return _made(_chain_all, (*arrays, *numbers), arrays[0].shape, threads)


def _sum(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    axis = work.options["axis"]
    rows = _sum_rows if axis == 1 else _sum_columns
    return _made(rows, arrays, (arrays[0].shape[1 - axis],), threads)


def _blur(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    h, w = arrays[0].shape
    return _made(_blur_strips, arrays, (h - 2, w - 2), threads)


def _depthwise(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    x, w = arrays
    if w.shape[2:] != (3, 3) or work.options["stride"] != 1 or work.options["padding"] != 1:
        return {}
    return _made(_depthwise_three, arrays, x.shape, threads)


KINDS: dict[str, Any] = {
    "softmax": _softmax,
    "layernorm": _layernorm,
    "transpose": _transpose,
    "chain": _chain,
    "sum": _sum,
    "blur": _blur,
    "depthwise": _depthwise,
}
