"""Random schedules, lowered and run in plain Python against the unscheduled program."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tensorir.lower.pipeline import lower
from tensorir.poly import tree
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import InternalError, TensorIRError
from tests.lower import cases
from tests.lower.interpret import check

SEED = int(os.environ.get("LOWER_SEED", "7"))
ROUNDS = int(os.environ.get("LOWER_ROUNDS", "150"))
PROGRAMS: list[Callable[..., Schedule]] = [
    cases.matmul, cases.elementwise, cases.blur, cases.triangle, cases.rows, cases.chain,
    cases.half, cases.largest, cases.total, cases.ring,
]  # fmt: skip


def step(s: Schedule, r: random.Random) -> Schedule:
    """One random primitive; raises where it is refused."""
    loops = list(tree.loops(s.program.tree))
    pick = r.choice(loops).axis
    temps = [a.name for a in s.program.buffers]
    arrays = [a.name for a in s.program.arrays]
    kind = r.randrange(19)
    if kind < 4:
        tail = r.choice(["auto", "auto", "cut", "guard"])
        return s.split(pick, r.choice([2, 3, 4]), tail=tail)
    if kind < 6:
        t = tree.find(s.program.tree, pick)
        assert t is not None
        inner = t.body
        if isinstance(inner, tree.Loop):
            return s.reorder(inner.axis, pick)
        return s.split(pick, 2)
    if kind < 8:
        return s.vectorize(pick, r.choice([2, 4, 8]))
    if kind == 8:
        return s.unroll(pick) if r.random() < 0.5 else s.unroll(pick, r.choice([2, 3]))
    if kind == 9:
        return s.parallel(pick)
    if kind == 10:
        return s.cache_read(r.choice(arrays), r.choice(["global", "local"]), at=pick)
    if kind == 11:
        return s.cache_write(r.choice(arrays), r.choice(["global", "local"]), at=pick)
    if kind == 12 and temps:
        return s.compute_at(r.choice(temps), pick)
    if kind == 13 and temps:
        return s.set_scope(r.choice(temps), "local")
    if kind == 14 and temps:
        name = r.choice(temps)
        n = len(next(a for a in s.program.buffers if a.name == name).shape)
        w = r.choice([2, 4])
        if n == 2:
            return s.transform_layout(name, lambda a, b: (b // w, a, b % w))
        return s.transform_layout(name, lambda a: (a // w, a % w))
    if kind == 15:
        updates = [p for p in s.program.statements if p.role == "update"]
        if updates:
            return s.init_at(r.choice(updates).stage, pick)
    if kind == 16:
        return s.rfactor(pick)
    if kind == 17:
        return s.vector_reduce(pick, r.choice([2, 4]), accumulators=r.choice([1, 2]))
    if kind == 18 and temps:
        return s.compute_inline(r.choice(temps))
    t = tree.find(s.program.tree, pick)
    if t is not None and isinstance(t.body, tree.Loop):
        return s.fuse(pick, t.body.axis)
    return s.split(pick, 3)


def draw(r: random.Random) -> tuple[Schedule, Schedule, tuple[int, ...]]:
    """A program, a schedule of it, and the constant sizes if it has any."""
    make = r.choice(PROGRAMS)
    n = len(make().program.sizes)
    given = tuple(r.choice([3, 5, 8]) for _ in range(n)) if r.random() < 0.25 else ()
    before = s = make(*given)
    for _ in range(r.randint(2, 9)):
        try:
            s = step(s, r)
        except InternalError:
            raise
        except TensorIRError:
            continue
    return before, s, given


@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_schedule(number: int) -> None:
    seed = SEED * 100_003 + number
    print("LOWER_SEED", SEED, "number", number)
    r = random.Random(seed)
    before, s, given = draw(r)
    print(s.trace)
    lowered = lower(s.program, cases.machine())
    n = len(before.program.sizes)
    samples: list[tuple[int, ...]] = [(1,) * n]
    samples += [tuple(r.choice([0, 2, 3, 4, 5, 7, 9]) for _ in range(n)) for _ in range(3)]
    for values in [()] if given else samples:
        check(before.program, lowered, cases.sizes_of(s, values))
