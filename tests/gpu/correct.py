"""Kernels that must be right on a device: programs, operators, the schedules of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import schedules
import tensorir as tir
from tensorir.ops import operator, operators
from tests.cuda.programs import doubled, mixed, staged, tiled

SMALL = {0: 5, 1: 4, 2: 6, 3: 7, 4: 7}
# sizes that fill blocks and leave a rest
LARGE: dict[str, Sequence[tuple[int, ...]]] = {
    "add": [(100_003,)], "gelu": [(65_536,)], "sum": [(301, 1000), (3, 100_000)],
    "argmax": [(300, 777)], "softmax": [(300, 1000), (17, 5000)], "logsumexp": [(65, 1025)],
    "layer_norm": [(128, 768), (33, 1001)], "rms_norm": [(128, 4096)],
    "transpose": [(1000, 777), (512, 512)],
    "matmul": [(256, 256, 256), (257, 129, 65), (128, 512, 1000)],
    "batch_matmul": [(3, 65, 70, 33)], "conv2d": [(2, 16, 30, 31, 24, 3)],
    "conv2d_nhwc": [(2, 30, 31, 16, 24, 3)], "attention": [(2, 3, 65, 64)],
}  # fmt: skip
TYPED: dict[str, Sequence[tuple[str, tuple[int, ...]]]] = {
    "matmul": [("float16", (256, 256, 256)),
               ("float16", (130, 72, 50)), ("int8", (64, 64, 64)), ("float64", (65, 40, 33))],
    "softmax": [("float16", (65, 1000))],
    "attention": [("float16", (2, 2, 128, 64))],
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A kernel, inputs, and what it should give; made when it is run."""

    name: str
    make: Callable[[str], tuple[Any, Sequence[Any], Callable[..., Any]]]

    def run(self, target: str) -> str:
        """What was found; raises where the kernel is wrong."""
        kernel, arrays, expected = self.make(target)
        with np.errstate(all="ignore"):
            said = str(kernel.check(*arrays, against=expected))
        there = [tir.to_device(x) for x in arrays]
        made, want = kernel(*there), kernel(*arrays)
        pairs = zip(made, want, strict=True) if isinstance(made, tuple) else ((made, want),)
        for on_device, through_host in pairs:
            # sums by atomics come in any order
            if not np.array_equal(on_device.numpy(), through_host, equal_nan=_is_float(want)):
                near = np.allclose(
                    on_device.numpy().astype("f8"), np.asarray(through_host).astype("f8"), 1e-3
                )
                assert near, "arrays on the device give another result than numpy's"
        return said.splitlines()[0]


def _is_float(x: Any) -> bool:
    one = x[0] if isinstance(x, tuple) else x
    return np.asarray(one).dtype.kind == "f"


def _program(make: Callable[..., Any], sizes: tuple[int, ...], symbolic: bool) -> Case:
    def built(target: str) -> tuple[Any, Sequence[Any], Callable[..., Any]]:
        names = [tir.var(x) for x in "mnk"] if symbolic else sizes
        m, n, k = sizes
        rng = np.random.default_rng(m + n + k)
        a, b = (rng.standard_normal(x).astype("float32") for x in ((m, k), (k, n)))
        return tir.build(make(*names), target=target), (a, b), lambda a, b: a @ b

    how = "symbolic " * symbolic + "x".join(map(str, sizes))
    return Case(f"{make.__name__} {how}", built)


def _doubled(n: int) -> Case:
    def built(target: str) -> tuple[Any, Sequence[Any], Callable[..., Any]]:
        a = np.arange(n, dtype="float32")
        return tir.build(doubled(tir.var("n")), target=target), (a,), lambda a: a * 2 + 1

    return Case(f"doubled {n}", built)


def _operator(name: str, sizes: tuple[int, ...], dtype: str | None = None) -> Case:
    def built(target: str) -> tuple[Any, Sequence[Any], Callable[..., Any]]:
        op = operator(name)
        made, inputs = op.declare(*sizes, dtype=dtype)
        outputs = made if isinstance(made, tuple) else (made,)
        s = schedules.schedule_for(*outputs, target=target)
        names = [*(t.name for t in inputs), *(t.name for t in outputs)]
        kernel = tir.build(s, target=target, args=names)
        return kernel, op.arrays(*sizes, dtype=dtype), op.expected

    typed = f" {dtype}" if dtype else ""
    return Case(f"{name}{typed} {'x'.join(map(str, sizes))}", built)


def _mixed(sizes: tuple[int, int, int], dtype: str) -> Case:
    def built(target: str) -> tuple[Any, Sequence[Any], Callable[..., Any]]:
        m, n, k = sizes
        element = tir.dtype(dtype).numpy
        rng = np.random.default_rng(m + n + k)
        a, b = (rng.standard_normal(x).astype(element) for x in ((m, k), (k, n)))
        kernel = schedules.build(mixed, (m, k), (k, n), target=target, dtypes=dtype)
        return kernel, (a, b), lambda a, b: a.astype("float32") @ b.astype("float32")

    return Case(f"mixed {dtype} {'x'.join(map(str, sizes))}", built)


def cases() -> list[Case]:
    """Programs first, then every operator small, then some larger and in other types."""
    found = [_doubled(n) for n in (1, 127, 100_000)]
    for make in (staged, tiled):
        found += [_program(make, s, False) for s in ((64, 64, 32), (33, 65, 17), (1, 1, 1))]
        found.append(_program(make, (120, 77, 50), True))
    for dtype in ("float16", "bfloat16"):
        for shape in ((256, 256, 256), (130, 72, 50), (128, 512, 1000), (1, 33, 64)):
            found.append(_mixed(shape, dtype))
    for name in operators():
        sizes = tuple(SMALL.get(k, 3) for k in range(len(operator(name).sizes)))
        found.append(_operator(name, sizes))
    found += [_operator(n, s) for n, every in LARGE.items() for s in every]
    found += [_operator(n, s, d) for n, every in TYPED.items() for d, s in every]
    return found
