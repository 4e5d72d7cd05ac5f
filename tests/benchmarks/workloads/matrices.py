"""Products of matrices: large, small, tall, wide, batched, in other types."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensorir import ops
from tests.benchmarks.work import Array, Reach, Work, aligned, normal

SQUARES = (64, 128, 256, 512, 1000, 1023, 1024, 2048)
RAGGED = (513, 1027, 129)


def _exact(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b.astype(np.float64)


def product(
    m: int, n: int, k: int, *reach: Reach, name: str | None = None, dtype: str = "float32"
) -> Work:
    size = f"{m}" if m == n == k else f"{m}x{n}x{k}"
    return Work(
        name=name or f"matmul {size}",
        kind="matmul",
        op=ops.matmul,
        arrays=normal((m, k), (k, n), dtype=dtype),
        expected=_exact,
        operations=2.0 * m * n * k,
        dtype=dtype,
        tolerance=1e-13 if dtype == "float64" else 1e-5,
        reach=reach,
    )


def large() -> Iterator[Work]:
    for m, n, k in [*((s,) * 3 for s in SQUARES), RAGGED]:
        yield product(m, n, k, Reach(0.98), Reach(1.05, ("numpy",)))


def small() -> Iterator[Work]:
    """Whole calls: at this size the call is most of it."""
    for s in (16, 32):
        reach = (Reach(3.0, ("numpy",)), Reach(1.05, ("numpy", "torch")))
        yield product(s, s, s, *reach, name=f"matmul {s} whole call")


def tall() -> Iterator[Work]:
    for m, n, k in ((4096, 64, 1024), (128, 4096, 128)):
        yield product(m, n, k, Reach(1.05, ("numpy", "torch")))


def double() -> Iterator[Work]:
    yield product(512, 512, 512, Reach(0.98), name="matmul f64 512", dtype="float64")


def batched() -> Iterator[Work]:
    yield Work(
        name="batched 256 x 32x32x32",
        kind="matmul",
        op=ops.matmul,
        arrays=normal((256, 32, 32), (256, 32, 32)),
        expected=_exact,
        operations=2.0 * 256 * 32**3,
        reach=(Reach(1.0),),
    )


def _bytes(n: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(7)
    # a below 128: the same values for a library that wants it signed
    a, b = rng.integers(0, 128, (n, n), np.uint8), rng.integers(-128, 128, (n, n), np.int8)
    return aligned(a), aligned(b)


def low_precision(n: int = 1024) -> Iterator[Work]:
    yield Work(
        name=f"int8 matmul {n}",
        kind="int8",
        op=ops.quantized_matmul,
        arrays=lambda: _bytes(n),
        expected=_exact,
        operations=2.0 * n**3,
        rate=4.0,
        dtype="int32",
        tolerance=0.0,
        reach=(Reach(1.0, ("torch",)),),
    )
    yield Work(
        name=f"bf16 matmul {n}",
        kind="matmul",
        op=ops.matmul,
        arrays=normal((n, n), (n, n), dtype="bfloat16"),
        expected=_exact,
        operations=2.0 * n**3,
        rate=2.0,
        dtype="bfloat16",
        tolerance=1e-2,
        reach=(Reach(1.0, ("torch",)),),
    )
