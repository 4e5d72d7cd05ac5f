"""What a workload is: the computation, its data, its roof, and what is to be reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by it
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LINE = 64  # bytes


@dataclass(frozen=True, slots=True)
class Candidate:
    """Somebody's way to compute a workload: one call, and what the last call left."""

    run: Callable[[], object]
    answer: Callable[[], Array]


@dataclass(frozen=True, slots=True)
class Reach:
    """At least `factor` times as fast as the best of `against`; of everybody by default.

    A name stands for all candidates of a library: `torch` for `torch channels_last` too.
    """

    factor: float
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that must come from memory or go there: so many arrays of `size` bytes read, written.

    The roof is a loop that reads and writes the same, measured in the same rounds.
    """

    size: int
    reads: int
    writes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One line of the table.

    Attributes
    ----------
    name
        What is printed.
    kind
        The word by which a library knows how to compute it (`against`).
    op
        The operator: takes tensors, gives the result.
    arrays
        Makes the inputs, the same ones each time.
    expected
        The result in float64, from the inputs.
    operations, traffic
        What bounds the time: arithmetic, or bytes.
    rate
        Operations a cycle in units of a float32 fused multiply-add (4 for int8 dot products).
    dtype
        Type of the result.
    options
        Whatever else the kind needs to know (stride, causal).
    tolerance
        Of the largest element of the result.
    reach
        What this issue wants.
    row
        Whether it is a row kernel, which has to compile faster.
    """

    name: str
    kind: str
    op: Callable[..., Any]
    arrays: Callable[[], tuple[Array, ...]]
    expected: Callable[..., Array]
    operations: float = 0.0
    traffic: Traffic | None = None
    rate: float = 1.0
    dtype: str = "float32"
    options: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5
    reach: tuple[Reach, ...] = ()
    row: bool = False


def empty(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """An array that starts at a cache line, for inputs and results of everybody."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    raw = np.empty(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size].view(kind).reshape(shape)


def aligned(x: Array) -> Array:
    made = empty(x.shape, x.dtype)
    made[...] = x
    return made


def normal(*shapes: tuple[int, ...], dtype: str = "float32") -> Callable[[], tuple[Array, ...]]:
    """Standard normal inputs of these shapes, from one seed."""

    def make() -> tuple[Array, ...]:
        rng = np.random.default_rng(7)
        kind = np.float64 if dtype == "float64" else np.float32
        return tuple(aligned(rng.standard_normal(s, kind).astype(dtype)) for s in shapes)

    return make


def error(got: Array, wanted: Array) -> float:
    """The largest difference, as a part of the largest element; infinite where shapes differ."""
    if got.shape != wanted.shape:
        return float("inf")
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    worst = np.abs(got.astype(np.float64) - wanted).max(initial=0.0)
    return float("inf") if np.isnan(worst) else float(worst) / scale
