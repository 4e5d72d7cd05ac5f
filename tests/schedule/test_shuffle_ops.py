from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tests.errors.test_cutting import turned
from tests.schedule.test_range_ops import same


def steps(s: tir.Schedule) -> list[str]:
    return [x.text for x in s.trace.steps]


def test_it_is_the_steps_that_it_is_made_of() -> None:
    s = turned().tile("i", "j", 16, 16)
    assert steps(s.transpose_lanes("ii", "ji"))[1:] == ['vectorize("ii", 16)', 'unroll("ji")']
    assert steps(s.transpose_lanes("ji", "ii", width=8))[1:] == [
        'vectorize("ii", 8)', 'unroll("ii")', 'unroll("ji")',
    ]  # fmt: skip
    again = tir.replay(turned(), s.transpose_lanes("ii", "ji").trace)
    assert again.loops() == s.transpose_lanes("ii", "ji").loops()


def test_lanes_lie_along_what_is_read() -> None:
    A = tir.placeholder((32, 64), name="A")
    B = tir.compute((64, 32), lambda i, j: A[j, i], name="B")
    s = tir.schedule(B).cache_read("A", "local").transform_layout("A_cache", lambda j, i: (i, j))
    # the copy reads along i and writes along j, the stage has no turn left
    copy = s.tile("A_cache.j", "A_cache.i", 8, 8, into=("a", "b", "c", "d"))
    assert 'vectorize("d", 8)' in steps(copy.transpose_lanes("c", "d"))
    assert not s.tile("i", "j", 8, 8).check("transpose_lanes", "ii", "ji")


@pytest.mark.parametrize(("rows", "lanes"), [(14, 16), (16, 20), (24, 8), (6, 7), (2, 2)])
def test_ragged_tiles_leave_no_gather_and_no_scatter(rows: int, lanes: int) -> None:
    s = turned(61)
    t = s.tile("i", "j", lanes, rows).transpose_lanes("ii", "ji")
    assert tir.build(t).notes == ()
    same(s, t, (61, 61))


def test_an_expression_on_the_way() -> None:
    A = tir.placeholder((20, 24), name="A")
    b = tir.placeholder((20,), name="b")
    B = tir.compute((24, 20), lambda i, j: A[j, i] * 3.0 + b[j], name="B")
    s = tir.schedule(B)
    t = s.tile("i", "j", 8, 8).transpose_lanes("ii", "ji")
    assert tir.build(t).notes == ()
    same(s, t, (20, 24), (20,))
    cells = tir.build(t)(np.ones((20, 24), np.float32), np.arange(20, dtype=np.float32))
    assert cells[0, 5] == 8.0
