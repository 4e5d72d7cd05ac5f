"""Printed loop nests, whole. A difference must be meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from schedules.cpu import blur as blur_schedule
from schedules.cpu import matmul
from tensorir.codegen import cpu
from tensorir.inspect.text import nest
from tests.inspect.examples import blur, product, tiled, triangle

Golden = Callable[[str, str], None]
V3 = cpu.target("x86-64-v3")
V4 = cpu.target("x86-64-v4")


def blur_2d(n: object) -> tir.Schedule:
    A = tir.placeholder((n + 2, n + 2), name="A")
    X = tir.compute((n + 2, n), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="X")
    Y = tir.compute((n, n), lambda y, x: X[y, x] + X[y + 1, x] + X[y + 2, x], name="Y")
    return tir.schedule(Y)


def sizes(*names: str) -> list[object]:
    return [tir.var(x) for x in names]


NESTS: dict[str, Callable[[], tir.Schedule]] = {
    "matmul_declared": lambda: product(1024, 1024, 1024),
    "matmul_tiled": lambda: tiled(product(1024, 1024, 1024)),
    "matmul_tiled_ragged": lambda: tiled(product(1000, 1023, 129)),
    "matmul_tiled_symbolic": lambda: tiled(product(*sizes("m", "n", "k"))),
    "matmul_full_v3": lambda: matmul(product(1024, 1024, 1024), V3),
    "matmul_full_v4_symbolic": lambda: matmul(product(*sizes("m", "n", "k")), V4),
    "triangle": lambda: triangle(tir.var("n")),
    "triangle_split": lambda: triangle(100).split("i", 8).unroll("ii"),
    "blur_at": lambda: blur(tir.var("n")).split("Y.i", 8).compute_at("X", "io"),
    "blur_full_v3": lambda: blur_schedule(blur_2d(2048), V3),
}


@pytest.mark.parametrize("name", NESTS)
def test_nest(name: str, golden: Golden) -> None:
    golden(f"nests/{name}", nest(NESTS[name](), colour=False, steps=True))
