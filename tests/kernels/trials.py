"""One trial of the sweep: an operator as `schedules` schedules it, against its numpy reference.

A trial has a line of text that says all of it, so that a failure can be seen again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import numpy as np

import schedules
import tensorir as tir
from tensorir.ops import Operator, operator
from tensorir.support.errors import ArgumentError, CallValueError, TensorIRError
from tensorir.support.knobs import knobs
from tests.ops.harness import compare, tuple_of
from tests.properties.memory import guarded

# nothing, one, primes, one under and over the widths of vectors and of tiles, and a whole tile
EXTENTS = (0, 1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 49, 63, 64, 65, 97, 127, 129)
SMALL = (0, 1, 1, 2, 3, 3, 4, 5, 7)  # of batches, windows and everything in four dimensions
# how inputs lie; of the last form the kernel is built for any sizes
FORMS = ("end", "begin", "strided", "transposed", "backwards", "sizes")
TARGETS = ("native", "x86-64-v3")
WORK = 30_000  # elements of the largest input, and instances, about
KERNELS = (1, 2, 3, 5, 7)  # sizes named k of a window

_REDUCED: tuple[dict[str, Any], ...] = (
    {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": None}, {"axis": 0, "keepdims": True},
)  # fmt: skip
_PLACED: tuple[dict[str, Any], ...] = ({"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": None})
_CONV: tuple[dict[str, Any], ...] = (
    {"padding": 0}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": "same"},
    {"stride": 3, "padding": 2, "dilation": 2}, {"stride": 2},
)  # fmt: skip
_POOL: tuple[dict[str, Any], ...] = (
    {"kernel": 2, "stride": 2, "padding": 0}, {"kernel": 3, "stride": 1, "padding": 1},
    {"kernel": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel": 2, "stride": 3, "padding": 0, "ceil_mode": True},
    {"layout": "NHWC"}, {"layout": "NHWC", "kernel": 2, "stride": 2, "padding": 0},
)  # fmt: skip
_RESIZE: tuple[dict[str, Any], ...] = (
    {"size": (1, 1)}, {"size": (16, 33)}, {"coordinates": "asymmetric"},
    {"coordinates": "align_corners"}, {"size": (3, 17), "layout": "NHWC"},
)  # fmt: skip
_TRANSPOSED: tuple[dict[str, Any], ...] = (
    {"stride": 1}, {"stride": 3, "padding": 1}, {"dilation": 2},
)  # fmt: skip

# with what an operator is tried beside the parameters of the registry
PARAMETERS: dict[str, tuple[dict[str, Any], ...]] = {
    **dict.fromkeys(("sum", "prod", "max", "min", "mean", "all", "any", "logsumexp"), _REDUCED),
    **dict.fromkeys(("argmax", "argmin"), _PLACED),
    **dict.fromkeys(("variance", "std"), (*_REDUCED, {"axis": -1, "ddof": 1})),
    "norm": (*_REDUCED, {"axis": -1, "order": 1}, {"axis": 0, "order": float("inf")}),
    "cumsum": (
        {"axis": 0}, {"axis": -1, "exclusive": True}, {"axis": 0, "reverse": True},
        {"axis": -1, "reverse": True, "exclusive": True},
    ),
    **dict.fromkeys(("conv1d", "conv2d", "conv2d_nhwc", "conv3d", "depthwise_conv2d"), _CONV),
    **dict.fromkeys(("conv1d_transpose", "conv2d_transpose", "conv3d_transpose"), _TRANSPOSED),
    "quantized_conv2d": _CONV,
    "max_pool": (*_POOL, {"kernel": 2, "dilation": 2, "padding": 0, "stride": 1}),
    "avg_pool": (*_POOL, {"count_padding": False}),
    **dict.fromkeys(
        ("adaptive_avg_pool", "adaptive_max_pool"),
        ({"outputs": 1}, {"outputs": (3, 7)}, {"outputs": 5, "layout": "NHWC"}),
    ),
    **dict.fromkeys(("global_avg_pool", "global_max_pool"), ({"layout": "NHWC"},)),
    "resize_nearest": (
        *_RESIZE, {"rounding": "floor"}, {"rounding": "ceil"}, {"rounding": "round_prefer_ceil"},
    ),
    "resize_linear": _RESIZE,
    "resize_cubic": (*_RESIZE, {"coefficient": -0.5}),
    **dict.fromkeys(("softmax", "log_softmax", "l2_normalize"), ({"axis": 0},)),
    **dict.fromkeys(("jacobi", "heat"), ({"steps": 3},)),
    "gelu": ({"approximate": "tanh"},),
    "rotary": ({"style": "pairs"},),
    "quantized_matmul": ({"zero_b": 3}, {"zero_a": 0}),
    "pad": (
        {"mode": "edge"}, {"width": (2, 3)}, {"mode": "reflect"}, {"value": 7},
    ),
    "flip": ({"axis": 0}, {"axis": -1}),
    "roll": ({"shift": -3}, {"shift": 0}),
    "one_hot": ({"depth": 17}, {"depth": 1}, {"axis": 0}),
}  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """An operator at sizes, of a type, with parameters, inputs laid out somehow, for a target."""

    name: str
    sizes: tuple[int, ...]
    dtype: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    form: str = "end"
    target: str = "native"
    threads: int = 1

    def line(self) -> str:
        """What `python -m tests.kernels.sweep --again` takes."""
        return repr(
            (self.name, self.sizes, self.dtype, dict(self.parameters), self.form, self.target,
             self.threads)
        )  # fmt: skip


def draw(rng: Random, name: str, targets: Sequence[str]) -> Trial:
    """A random trial of an operator."""
    op = operator(name)
    dtype = op.dtypes[0] if rng.random() < 0.5 else rng.choice(op.dtypes)
    others = PARAMETERS.get(name, ())
    parameters = rng.choice(others) if others and rng.random() < 0.6 else {}
    for _ in range(50):
        sizes = _sizes(rng, op.sizes)
        shapes = [sizes, *(x.shape for x in op.inputs(*sizes))]
        if all(prod(max(1, n) for n in shape) <= WORK for shape in shapes):
            break
    else:
        sizes = (3,) * len(sizes)
    return Trial(
        name, sizes, dtype, parameters, rng.choice(FORMS), rng.choice(list(targets)),
        rng.choice([1, 2]),
    )  # fmt: skip


def _sizes(rng: Random, names: Sequence[str]) -> tuple[int, ...]:
    if names and names[-1] == "*shape":
        rank = rng.choice([1, 2, 2, 2, 3, 4])
        pool = EXTENTS if rank < 3 else SMALL
        return (*(rng.choice(pool) for _ in range(rank - 1)), rng.choice(EXTENTS))
    wide = {rng.randrange(len(names)) for _ in range(2)} if len(names) > 3 else range(len(names))
    return tuple(
        rng.choice(KERNELS) if n == "k" and len(names) > 4
        else rng.choice(EXTENTS if at in wide else SMALL)
        for at, n in enumerate(names)
    )  # fmt: skip


def attempt(trial: Trial) -> str | None:
    """Build and compare; why it is not tried where operator or reference refuse these sizes."""
    op = operator(trial.name)
    try:
        result, inputs = declared(op, trial)
    except TensorIRError as refused:
        return f"{type(refused).__name__}: {refused}"
    seed = zlib.crc32(trial.line().encode())
    arrays = op.arrays(*trial.sizes, dtype=trial.dtype, seed=seed)
    try:
        want = tuple_of(op.expected(*arrays, parameters=trial.parameters))
    except (ValueError, IndexError) as refused:
        # what numpy has no answer to may have one here, but nothing to compare it with
        return f"numpy: {refused}"
    outputs = tuple_of(result)
    target = None if trial.target == "native" else trial.target
    with knobs.override(num_threads=trial.threads):
        try:
            s = schedules.schedule_for(*outputs, target=target)
        except ArgumentError as refused:
            return f"ArgumentError: {refused}"
        kernel = tir.build(s, target=target, args=[*inputs, *outputs])
        results = [guarded(r, at_end=trial.form != "begin") for r in filled(want)]
        try:
            kernel(*(laid_out(a, trial.form) for a in arrays), *results)
        except CallValueError as refused:
            return f"CallValueError: {refused}"
    for got, w in zip(results, want, strict=True):
        said = f"{trial.line()}\n{s.trace.to_python()}\n{s}"
        compare(got, w, said, 1.0 if op.sizes == ("*shape",) else _scale(w))
    return None


def _scale(want: Any) -> float:
    """The largest of the results: each is as wrong as sums of about that size may be."""
    w = np.asarray(want)
    if w.dtype.kind != "f":
        return 1.0
    return max(1.0, float(np.abs(w[np.isfinite(w)]).max(initial=0)))


def declared(op: Operator, trial: Trial) -> tuple[Any, tuple[tir.Tensor, ...]]:
    """The operator at the sizes of a trial, or at sizes that are not known before the call."""
    if trial.form != "sizes":
        return op.declare(*trial.sizes, dtype=trial.dtype, parameters=trial.parameters)
    sizes = [tir.var(f"s{k}") for k in range(len(trial.sizes))]
    made = tuple(
        tir.placeholder(x.shape, x.dtype or trial.dtype, name=f"x{k}")
        for k, x in enumerate(op.inputs(*sizes))
    )
    return op.function(*made, **{**op.parameters, **trial.parameters}), made


def filled(results: Sequence[Any]) -> list[np.ndarray]:
    """Arrays like these, full of 0xCD, so that what is not written shows."""
    made = []
    for r in map(np.asarray, results):
        room = np.zeros(r.shape, r.dtype)
        if r.ndim:
            room.view(np.uint8).fill(0xCD)
        made.append(room)
    return made


def laid_out(a: Any, form: str) -> np.ndarray:
    """The same values: against an unreadable page, or with strides that are not those of C."""
    a = np.asarray(a)
    if form in ("end", "begin", "sizes") or not a.ndim:
        return guarded(np.ascontiguousarray(a), at_end=form != "begin")
    if form == "strided":
        room = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
        room[..., ::2] = a
        return room[..., ::2]
    if form == "backwards":
        return np.ascontiguousarray(a[::-1])[::-1]
    return np.asfortranarray(a)
