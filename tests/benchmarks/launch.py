"""What a launch on a GPU costs the processor, against a driver that does nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

import tensorir as tir
from tensorir.runtime import cuda_call, cuda_device
from tests.cuda.fake_driver import OK, FakeDriver, use

N = 1024
CALLS = 50_000


class Idle:
    """The driver of the tests, but that a launch is done at once."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.cuLaunchKernel = lambda *words: (OK,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)


def microseconds() -> Iterator[tuple[str, float]]:
    """What was called with, and how long a call took."""
    a, b = (tir.placeholder((N,), name=v) for v in "ab")
    s = tir.schedule(tir.compute((N,), lambda i: a[i] + b[i], name="c"))
    s = s.split("i", 128, into=("o", "t")).bind("o", "blockIdx.x").bind("t", "threadIdx.x")
    f: Any = tir.build(s, target="cuda")
    with use(FakeDriver()) as driver:
        x, y = (tir.to_device(np.ones(N, np.float32)) for _ in range(2))
        z = f(x, y)
        f(x, y, z)
        cuda_device.driver().api = Idle(driver)
        yield "three arrays of tir.to_device", _each(lambda: f(x, y, z))
        yield from _torch(f)


def _torch(f: Any) -> Iterator[tuple[str, float]]:
    """Tensors of a processor in the place of a GPU's: the same is read of them."""
    try:
        import torch
    except ImportError:
        return
    tensors = [torch.ones(N) for _ in range(3)]
    reader = cuda_call._reader(type(tensors[0]))
    assert reader is not None
    (plan,) = f._runner.quick.values()
    with mock.patch.object(cuda_call, "torch_stream", lambda ordinal: 0):
        keys = [reader(t)[1] for t in tensors]
        f._runner.quick[(*keys, cuda_call.torch_stream(-1))] = plan
        yield "three tensors of torch, but for the stream", _each(lambda: f(*tensors))


def _each(call: Callable[[], object]) -> float:
    def once() -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        return time.perf_counter() - start

    return 1e6 * statistics.median(once() for _ in range(7)) / CALLS
