"""The two-stage blur's hand schedule, at sizes that do not divide, over its parameters."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tensorir as tir
from schedules.cpu import blur
from schedules.cpu.blur import params
from tensorir.codegen import cpu


def declare(m: object, n: object, dtype: str = "float32") -> tir.Tensor:
    A = tir.placeholder((m + 2, n + 2), dtype, name="A")
    X = tir.compute((m + 2, n), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="X")
    return tir.compute((m, n), lambda y, x: X[y, x] + X[y + 1, x] + X[y + 2, x], name="Y")


def reference(a: np.ndarray) -> np.ndarray:
    b = a[:, :-2] + a[:, 1:-1] + a[:, 2:]
    return b[:-2] + b[1:-1] + b[2:]


@pytest.fixture(scope="module")
def symbolic() -> tir.Kernel:
    return tir.build(blur(tir.schedule(declare(tir.var("M"), tir.var("N")))))


@pytest.mark.parametrize("size", [(1, 1), (3, 63), (4, 64), (9, 1000), (33, 1027), (0, 7), (7, 0)])
def test_symbolic_sizes(symbolic: tir.Kernel, size: tuple[int, int]) -> None:
    a = np.random.default_rng(0).standard_normal((size[0] + 2, size[1] + 2), np.float32)
    assert symbolic(a).tobytes() == reference(a).tobytes()


@pytest.mark.parametrize("seed", range(6))
def test_any_parameters(seed: int) -> None:
    rng = Random(seed)
    chosen = {p.name: rng.choice(p.values) for p in params(cpu.target("native"))}
    m, n = rng.randint(1, 60), rng.randint(1, 200)
    a = np.random.default_rng(seed).standard_normal((m + 2, n + 2), np.float32)
    kernel = tir.build(blur(tir.schedule(declare(m, n)), **chosen))
    assert kernel(a).tobytes() == reference(a).tobytes(), f"seed {seed}"


def test_double_precision() -> None:
    a = np.random.default_rng(0).standard_normal((40, 70))
    kernel = tir.build(blur(tir.schedule(declare(38, 68, "float64"))))
    assert kernel(a).tobytes() == reference(a).tobytes()


def test_cells_computed_again_are_no_more_operations() -> None:
    s = tir.schedule(declare(38, 68))
    a = np.zeros((40, 70), np.float32)
    want = 2 * (40 * 68 + 38 * 68)
    for way in (s, s.compute_inline("X"), s.compute_at("X", "Y.y"), blur(s)):
        assert tir.build(way).time(a, repeat=1).operations == want
