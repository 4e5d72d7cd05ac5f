"""The table, in families: each a function that yields its workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.benchmarks.work import Work
from tests.benchmarks.workloads import images, matrices, memory, rows

FAMILIES: dict[str, Callable[[], Iterator[Work]]] = {
    "matmul": matrices.large,
    "small": matrices.small,
    "tall": matrices.tall,
    "f64": matrices.double,
    "batched": matrices.batched,
    "lowp": matrices.low_precision,
    "conv": images.conv,
    "nets": images.nets,
    "depthwise": images.depthwise,
    "blur": images.blur,
    "attention": rows.attention,
    "softmax": rows.softmax,
    "layernorm": rows.layernorm,
    "sums": memory.sums,
    "transpose": memory.transpose,
    "chain": memory.chain,
}
