"""Row kernels and attention."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tensorir import ops
from tests.benchmarks.work import Array, Reach, Traffic, Work, normal


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax(shapes: tuple[tuple[int, int, float], ...] = ((4096, 4096, 1.2), (512, 1024, 1.05))
            ) -> Iterator[Work]:  # fmt: skip
    for m, n, factor in shapes:
        yield Work(
            name=f"softmax {m}x{n}",
            kind="softmax",
            op=ops.softmax,
            arrays=normal((m, n)),
            expected=lambda x: _softmax(x.astype(np.float64)),
            traffic=Traffic(4 * m * n, 1, 1),
            reach=(Reach(factor),),
            row=True,
        )


def _normalised(x: Array, weight: Array, bias: Array) -> Array:
    x = x.astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * weight + bias


def layernorm(m: int = 4096, n: int = 1024) -> Iterator[Work]:
    yield Work(
        name=f"layernorm {m}x{n}",
        kind="layernorm",
        op=ops.layer_norm,
        arrays=normal((m, n), (n,), (n,)),
        expected=_normalised,
        traffic=Traffic(4 * m * n, 1, 1),
        reach=(Reach(1.0),),
        row=True,
    )


def attention(heads: int = 12, length: int = 512, depth: int = 64) -> Iterator[Work]:
    for causal in (False, True):

        def exact(q: Array, k: Array, v: Array, causal: bool = causal) -> Array:
            q, k, v = (a.astype(np.float64) for a in (q, k, v))
            scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
            if causal:
                scores += np.triu(np.full(scores.shape[-2:], -np.inf), 1)
            return _softmax(scores) @ v

        pairs = length * (length + 1) / 2 if causal else length * length
        yield Work(
            name=f"attention b1 h{heads} s{length} d{depth}" + ", causal" * causal,
            kind="attention",
            op=partial(ops.attention, causal=causal),
            arrays=normal(*[(1, heads, length, depth)] * 3),
            expected=exact,
            operations=4.0 * heads * pairs * depth,
            options={"causal": causal},
            reach=(Reach(1.15),),
        )
