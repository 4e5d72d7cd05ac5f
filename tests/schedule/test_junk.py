"""Wrong arguments of every kind to every primitive: only the library's own errors come out."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tensorir as tir
from tensorir.ir.expr import Axis
from tensorir.schedule.primitive import PRIMITIVES
from tests.errors.saying import blurred, matmul, triangle

JUNK: list[object] = [
    None, True, 0, 1, 3, -1, 2**70, 1.5, float("nan"), "", "i", "j", "k", "C", "A", "q", "C.init.i",
    "C.", ".", "é", "i ", b"i", [], (), ("i",), ["i", "j"], {}, {"i": 1}, object(), np.float32(2),
    np.int8(4), np.zeros(3), Axis("z"), tir.var("n"), int, lambda *x: x, "local", "global",
    tir.placeholder((4,), name="A"), ("io", "ii"), "Y.y", "X", "T",
]  # fmt: skip
KEYWORDS = ["factor", "into", "tail", "parts", "width", "at", "init", "scope", "lanes", "recompute"]


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_junk(name: str) -> None:
    rng = Random(f"junk {name}")
    bases = [matmul(8, 6, 4), matmul(8, 6, tir.var("K")).split("i", 4), blurred(), triangle()]
    for _ in range(250):
        s = rng.choice(bases)
        args = [rng.choice(JUNK) for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3, 4]))]
        kwargs = {rng.choice(KEYWORDS): rng.choice(JUNK) for _ in range(rng.choice([0, 0, 1]))}
        try:
            after = PRIMITIVES[name](s, *args, **kwargs)
        except tir.TensorIRError as error:
            assert not isinstance(error, tir.InternalError), (args, kwargs, str(error))
            continue
        assert isinstance(after, tir.Schedule)
        tir.replay(s, after.trace.steps[len(s.trace) :])
