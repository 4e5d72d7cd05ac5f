"""R12: no primitive takes long on deep and long programs; what is too hard to prove is refused."""

from __future__ import annotations

import time
from random import Random

import numpy as np
import pytest

import tensorir as tir
from tensorir.support.errors import IllegalSchedule, InternalError, TensorIRError
from tensorir.support.knobs import knobs
from tests.properties import moves

SECONDS = 2.0


def deep(*, symbolic: bool) -> tir.Schedule:
    """A contraction of eight loops, skewed indices among them."""
    n = [tir.var(f"n{k}") if symbolic else 5 + k for k in range(8)]
    A = tir.placeholder((n[0], n[1], n[4], n[5] + n[2], n[6]), name="A")
    B = tir.placeholder((n[4], n[5], n[2] + n[7], n[3]), name="B")
    r = [tir.reduce_axis(n[4 + k], name=f"r{k}") for k in range(4)]
    C = tir.compute(
        tuple(n[:4]),
        lambda a, b, c, d: tir.sum(
            A[a, b, r[0], r[1] + c, r[2]] * B[r[0], r[1], c + r[3], d], axis=tuple(r)
        ),
        name="C",
    )
    return tir.schedule(C)


def long(stages: int = 20) -> tir.Schedule:
    """A chain of stencils of nine points each, in two dimensions."""
    n = tir.var("n")
    T = tir.placeholder((n + 2 * stages, n + 2 * stages), name="A")
    for k in range(stages):
        size = n + 2 * (stages - 1 - k)
        T = tir.compute(
            (size, size),
            lambda i, j, T=T: T[i, j] + T[i, j + 1] + T[i, j + 2] + T[i + 1, j] + T[i + 1, j + 1]
            + T[i + 1, j + 2] + T[i + 2, j] + T[i + 2, j + 1] + T[i + 2, j + 2],
            name=f"S{k}",
        )  # fmt: skip
    return tir.schedule(T)


class Slow(AssertionError):
    """A step that took too long."""


def walk(s: tir.Schedule, seed: int, steps: int) -> tir.Schedule:
    """Random steps, each timed."""
    rng = Random(seed)
    for _ in range(steps):
        name, args, kwargs = moves.request(s, rng)
        start = time.perf_counter()
        try:
            s = getattr(s, name)(*args, **kwargs)
        except InternalError:
            raise
        except TensorIRError:
            pass
        took = time.perf_counter() - start
        if took > SECONDS:
            raise Slow(
                f"seed {seed}: {name}{args} {kwargs} took {took:.1f} s\n{s.trace.to_python()}"
            )
    return s


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_steps_on_eight_loops(symbolic: bool, seed: int) -> None:
    walk(deep(symbolic=symbolic), seed, 60)


@pytest.mark.parametrize("seed", range(3))
def test_steps_on_twenty_stages(seed: int) -> None:
    walk(long(), seed, 60)


def test_twenty_stages_placed_in_one_tile() -> None:
    s = long()
    s = s.tile("S19.i", "S19.j", 16, 16, into=("io", "jo", "ii", "ji"))
    for k in reversed(range(19)):
        start = time.perf_counter()
        s = s.compute_at(f"S{k}", "jo")
        assert time.perf_counter() - start < SECONDS, k
    start = time.perf_counter()
    s = s.parallel("io")
    assert time.perf_counter() - start < SECONDS
    a = np.random.default_rng(0).integers(-3, 4, (19 + 40, 19 + 40)).astype("f4")
    plain = tir.build(long())(a)
    assert tir.build(s)(a).tobytes() == plain.tobytes()


def test_a_proof_that_takes_too_long_is_a_refusal() -> None:
    s = deep(symbolic=True)
    with knobs.override(isl_operations=1000):
        with pytest.raises(IllegalSchedule, match="prove") as caught:
            s.tile("a", "b", 4, 4).tile("c", "d", 3, 3).parallel("ao").reorder("r3", "r0")
    assert caught.value.witness is None
    assert s.tile("a", "b", 4, 4).parallel("ao").axes
