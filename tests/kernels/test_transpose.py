"""The transpose's hand schedule: every permutation that moves the last axis, at any size."""

from __future__ import annotations

from itertools import permutations
from random import Random

import numpy as np
import pytest

import tensorir as tir
from schedules.cpu.transpose import params, transpose
from schedules.registry import entry_for
from tensorir.codegen import cpu

TARGETS = ("native", "x86-64-v3")


def declare(shape: tuple[object, ...], order: tuple[int, ...], dtype: str) -> tir.Tensor:
    A = tir.placeholder(shape, dtype, name="A")

    def read(*index: object) -> object:
        place = dict(zip(order, index, strict=True))
        return A[tuple(place[d] for d in range(len(order)))]

    return tir.compute(tuple(shape[d] for d in order), read, name="B")


def check(kernel: tir.Kernel, shape: tuple[int, ...], order: tuple[int, ...], what: str) -> None:
    dtype = kernel.arguments[0].dtype.numpy
    a = (np.random.default_rng(0).standard_normal(shape) * 50).astype(dtype)
    assert kernel(a).tobytes() == a.transpose(order).tobytes(), what


@pytest.mark.parametrize("target", TARGETS)
def test_symbolic_sizes(target: str) -> None:
    B = declare((tir.var("M"), tir.var("N")), (1, 0), "float32")
    kernel = tir.build(transpose(tir.schedule(B), target), target=target)
    assert kernel.notes == ()
    for shape in ((1, 1), (16, 16), (17, 15), (1, 40), (40, 1), (0, 5), (5, 0), (65, 130)):
        check(kernel, shape, (1, 0), f"{shape}")


@pytest.mark.parametrize("seed", range(8))
def test_any_permutation_type_and_parameters(seed: int) -> None:
    rng = Random(seed)
    rank = rng.choice([2, 3, 4])
    order = rng.choice([p for p in permutations(range(rank)) if p[-1] != rank - 1])
    shape = tuple(rng.choice([5, 7, 12, 16, 17, 33]) for _ in range(rank))
    dtype = rng.choice(["float32", "float64", "float16", "uint8", "int32"])
    target = TARGETS[seed % 2]
    size = tir.placeholder((1,), dtype).dtype.bytes
    chosen = {p.name: rng.choice(p.values) for p in params(cpu.target(target), size)}
    chosen["rows"] = max(chosen["rows"], chosen["lanes"])
    s = tir.schedule(declare(shape, order, dtype))
    kernel = tir.build(transpose(s, target, parallel=rng.random() < 0.5, **chosen), target=target)
    check(kernel, shape, order, f"seed {seed}: {shape} {order} {dtype} {target} {chosen}")


def test_it_is_found_by_its_shape_alone() -> None:
    A = tir.placeholder((64, 40), name="A")
    b = tir.placeholder((64,), name="b")
    found = {
        "copy": lambda i, j: A[j, i],
        "expression": lambda i, j: tir.exp(A[j, i]) * b[j],
        "window": lambda i, j: A[j, i] + A[tir.maximum(j - 1, 0), i],
    }
    for name, body in found.items():
        entry = entry_for(tir.schedule(tir.compute((40, 64), body, name="B")))
        assert entry is not None and entry.name == "transpose", name
    other = {
        "no turn": lambda i, j: A[i, j] * 2.0,
        "a gather besides": lambda i, j: A[j, i] + A[i, j],
    }
    for name, body in other.items():
        entry = entry_for(tir.schedule(tir.compute((40, 40), body, name="B")))
        assert entry is None or entry.name != "transpose", name


def test_few_elements_that_are_read_in_a_row_are_left_to_the_default() -> None:
    s = tir.schedule(declare((8, 100, 3), (0, 2, 1), "float32"))
    entry = entry_for(s)
    assert entry is None or entry.name != "transpose"
    with pytest.raises(tir.ArgumentError):
        transpose(s)


def test_only_large_planes_are_streamed() -> None:
    def steps(shape: tuple[int, ...], order: tuple[int, ...]) -> list[str]:
        s = transpose(tir.schedule(declare(shape, order, "float32")), "znver4")
        return [x.primitive for x in s.trace.steps]

    assert "non_temporal" in steps((4096, 4096), (1, 0))
    assert "non_temporal" not in steps((512, 512), (1, 0))
    assert "non_temporal" not in steps((64, 256, 56, 56), (0, 2, 3, 1))


def test_what_streams_is_right() -> None:
    n = 2400  # more than a last level of 32 MiB holds of half
    s = transpose(tir.schedule(declare((n, n), (1, 0), "float32")), "znver3")
    kernel = tir.build(s, target="znver3") if cpu_runs("znver3") else tir.build(s)
    check(kernel, (n, n), (1, 0), "streamed")


def cpu_runs(name: str) -> bool:
    from tensorir.codegen import llvm

    return llvm.runs_here(cpu.target(name)) is None
