"""numpy, with the best call that it has for each kind, into arrays made before."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.work import Array, Candidate, Work, empty


def use_threads(threads: int) -> None:
    """The threads of its BLAS, where threadpoolctl can set them."""
    if importlib.util.find_spec("threadpoolctl") is not None:
        import threadpoolctl

        threadpoolctl.threadpool_limits(threads, user_api="blas")


def _into(out: Array, run: Callable[[], object]) -> dict[str, Candidate]:
    return {"numpy": Candidate(run, lambda: out)}


def _matmul(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    a, b = arrays
    out = empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    return _into(out, lambda: np.matmul(a, b, out=out))


def _int8(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    a, b = (x.astype(np.int32) for x in arrays)
    if a.size > 1 << 16:  # a scalar loop of seconds: nobody would use it
        return {}
    out = empty((a.shape[0], b.shape[1]), np.int32)
    return _into(out, lambda: np.matmul(a, b, out=out))


def _depthwise(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    x, w = arrays
    stride, p = work.options["stride"], work.options["padding"]
    n, c, h, _ = x.shape
    k = w.shape[-1]
    size = (h + 2 * p - k) // stride + 1
    padded = np.zeros((n, c, h + 2 * p, h + 2 * p), np.float32)
    out, part = (empty((n, c, size, size), np.float32) for _ in range(2))
    span = stride * (size - 1) + 1

    def run() -> None:
        padded[:, :, p : p + h, p : p + h] = x
        out.fill(0)
        for i in range(k):
            for j in range(k):
                window = padded[:, :, i : i + span : stride, j : j + span : stride]
                np.multiply(window, w[:, 0, i, j, None, None], out=part)
                np.add(out, part, out=out)

    return _into(out, run)


def _attention(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    q, k, v = arrays
    scores = empty((*q.shape[:-1], k.shape[-2]), np.float32)
    out = empty(q.shape)
    hidden = np.triu(np.full(scores.shape[-2:], -np.inf, np.float32), 1)
    factor = np.float32(q.shape[-1] ** -0.5)

    def run() -> None:
        np.matmul(q, k.swapaxes(-1, -2), out=scores)
        np.multiply(scores, factor, out=scores)
        if work.options["causal"]:
            np.add(scores, hidden, out=scores)
        _softmax_into(scores, scores)
        np.matmul(scores, v, out=out)

    return _into(out, run)


def _softmax_into(x: Array, out: Array) -> None:
    np.subtract(x, x.max(-1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(-1, keepdims=True), out=out)


def _softmax(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    out = empty(arrays[0].shape)
    return _into(out, lambda: _softmax_into(arrays[0], out))


def _layernorm(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    x, weight, bias = arrays
    out, square = empty(x.shape), empty(x.shape)

    def run() -> None:
        np.subtract(x, x.mean(-1, keepdims=True), out=out)
        np.multiply(out, out, out=square)
        variance = square.mean(-1, keepdims=True)
        np.multiply(out, 1 / np.sqrt(variance + np.float32(1e-5)), out=out)
        np.multiply(out, weight, out=out)
        np.add(out, bias, out=out)

    return _into(out, run)


def _transpose(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    out = empty(arrays[0].shape[::-1], np.float32)
    return _into(out, lambda: np.copyto(out, arrays[0].T))


def _chain(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    x, z = arrays
    a, c, d = (np.float32(work.options[n]) for n in "acd")
    out = empty(x.shape)
    block = 4096  # in the first cache, call after call

    def run() -> None:
        for start in range(0, len(x), block):
            part = out[start : start + block]
            np.multiply(x[start : start + block], a, out=part)
            np.add(part, z[start : start + block], out=part)
            np.maximum(part, 0, out=part)
            np.multiply(part, c, out=part)
            np.add(part, d, out=part)

    return _into(out, run)


def _sum(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    axis = work.options["axis"]
    out = empty(arrays[0].shape[1 - axis], np.float32)
    return _into(out, lambda: np.sum(arrays[0], axis=axis, out=out))


def _blur(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    (x,) = arrays
    h, w = x.shape
    along = empty((h, w - 2), np.float32)
    out = empty((h - 2, w - 2), np.float32)
    third = np.float32(1 / 3)

    def run() -> None:
        np.add(x[:, :-2], x[:, 1:-1], out=along)
        np.add(along, x[:, 2:], out=along)
        np.multiply(along, third, out=along)
        np.add(along[:-2], along[1:-1], out=out)
        np.add(out, along[2:], out=out)
        np.multiply(out, third, out=out)

    return _into(out, run)


KINDS: dict[str, Any] = {
    "matmul": _matmul,
    "int8": _int8,
    "depthwise": _depthwise,
    "attention": _attention,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "transpose": _transpose,
    "chain": _chain,
    "sum": _sum,
    "blur": _blur,
}
