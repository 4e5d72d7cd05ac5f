"""What is bound by memory: sums, a transpose, a chain of elementwise operators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import tensorir as tir
from tensorir import ops
from tensorir.ir.tensor import Tensor
from tests.benchmarks.work import Array, Reach, Traffic, Work, normal

CHAIN = {"a": 1.5, "c": 0.75, "d": 0.25}


def sums(n: int = 4096) -> Iterator[Work]:
    for name, axis in (("row", 1), ("column", 0)):
        yield Work(
            name=f"{name} sum {n}x{n}",
            kind="sum",
            op=partial(ops.sum, axis=axis),
            arrays=normal((n, n)),
            expected=lambda x, axis=axis: x.sum(axis, dtype=np.float64),
            traffic=Traffic(4 * n * n, 1, 0),
            options={"axis": axis},
            reach=(Reach(1.0),),
            row=True,
        )


def transpose(n: int = 4096) -> Iterator[Work]:
    yield Work(
        name=f"transpose {n}x{n}",
        kind="transpose",
        op=ops.transpose,
        arrays=normal((n, n)),
        expected=lambda x: x.T.astype(np.float64),
        traffic=Traffic(4 * n * n, 1, 1),
        tolerance=0.0,
        reach=(Reach(2.5),),
    )


def _chain(x: Tensor, z: Tensor) -> Tensor:
    a, c, d = (CHAIN[k] for k in "acd")
    made: Tensor = tir.compute(
        x.shape, lambda i: tir.maximum(a * x[i] + z[i], 0.0) * c + d, name="chain"
    )
    return made


def _exact(x: Array, z: Array) -> Array:
    a, c, d = (CHAIN[k] for k in "acd")
    return np.maximum(a * x.astype(np.float64) + z, 0.0) * c + d


def chain(n: int = 1 << 24) -> Iterator[Work]:
    yield Work(
        name=f"relu(a*x + z)*c + d, {n >> 20}M",
        kind="chain",
        op=_chain,
        arrays=normal((n,), (n,)),
        expected=_exact,
        traffic=Traffic(4 * n, 2, 1),
        options=CHAIN,
        reach=(Reach(1.1),),
        row=True,
    )
