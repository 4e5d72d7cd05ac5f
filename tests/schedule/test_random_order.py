"""Random loop primitives: each instance once, and the same result, by enumeration."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

import tensorir as tir
from tensorir.schedule.resolve import reference
from tests.errors.nests import diagonal, recurrence, rows
from tests.errors.saying import matmul, triangle
from tests.schedule.order import instances, memory


def half() -> tir.Schedule:
    """A sum that accumulates in float32 and ends with a conversion."""
    A = tir.placeholder((5, 7), "float16", name="A")
    k = tir.reduce_axis(7, name="k")
    return tir.schedule(tir.compute((5,), lambda i: tir.sum(A[i, k], axis=k), name="H"))


def two() -> tir.Schedule:
    """A reduction over two axes of a stencil."""
    A = tir.placeholder((8, 7), name="A")
    r, q = tir.reduce_axis(3, name="r"), tir.reduce_axis(2, name="q")
    return tir.schedule(
        tir.compute((6, 6), lambda i, j: tir.max(A[i + r, j + q], axis=(r, q)), name="M")
    )


PROGRAMS = {
    "matmul": (lambda: matmul(5, 4, 6), 6),
    "triangle": (triangle, 8),
    "half": (half, 7),
    "two": (two, 6),
    "diagonal": (diagonal, 7),
    "recurrence": (recurrence, 7),
    "rows": (rows, 6),
}
SEEDS = range(12)


def step(s: tir.Schedule, rng: Random) -> tir.Schedule:
    axes = [reference(s.program, a) for a in s.axes]
    name = rng.choice(
        ["split", "split", "reorder", "reorder", "fuse", "tile", "parallel", "unroll"]
    )
    pick = rng.sample(axes, min(len(axes), rng.choice([2, 3])))
    if name == "split":
        return s.split(pick[0], rng.choice([1, 2, 3, 4, 9]))
    if name == "reorder":
        return s.reorder(*pick)
    if name == "fuse":
        return s.fuse(*pick[:2])
    if name == "tile":
        return s.tile(pick[0], pick[-1], rng.choice([2, 3]), rng.choice([2, 5]))
    return s.parallel(pick[0]) if name == "parallel" else s.unroll(pick[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_schedules(name: str) -> None:
    make, extent = PROGRAMS[name]
    base = make()
    sizes = dict.fromkeys(base.program.sizes, 6)
    once = Counter(instances(base.program, sizes, extent))
    want = memory(base.program, sizes, extent)
    for seed in SEEDS:
        rng = Random(f"{name} {seed}")
        s = base
        for _ in range(8):
            try:
                s = step(s, rng)
            except (tir.ScheduleError, tir.IllegalSchedule, tir.UnsupportedError):
                continue
        told = f"seed {seed}\n{s.trace}\n{s}"
        assert Counter(instances(s.program, sizes, extent)) == once, told
        assert memory(s.program, sizes, extent) == want, told
        again = tir.replay(base, tir.Trace.from_json(s.trace.to_json()))
        assert again.loops() == s.loops(), told


def test_refused_steps_change_the_result() -> None:
    """What is refused for order, made anyway, gives other values."""
    s = diagonal()
    want = memory(s.program, dict.fromkeys(s.program.sizes, 6), 7)
    with pytest.raises(tir.IllegalSchedule) as refused:
        s.reorder("j", "i")
    assert refused.value.witness.sizes == {"N": 3}
    t = s.program.tree
    swapped = s.program.change(
        tree=type(t)(t.body.axis, type(t)(t.axis, t.body.body))  # type: ignore[union-attr]
    )
    assert memory(swapped, dict.fromkeys(s.program.sizes, 6), 7) != want
