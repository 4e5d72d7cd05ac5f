"""The bounds and guards that a nest is shown with, against the points that there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tensorir as tir
from tensorir.ir.affine import Region
from tensorir.ops import operator
from tensorir.poly import isl, ranges, tree
from tensorir.poly.model import Program
from tensorir.poly.ranges import NestBounds
from tests.ops.test_registry import usual

Env = dict[Any, int]


def shown(program: Program) -> dict[str, set[tuple[int, ...]]]:
    """The points of each statement that bounds and guards allow."""
    out: dict[str, set[tuple[int, ...]]] = {n: set() for n in tree.stmts(program.tree)}
    for stmt, point in _run(program.tree, ranges.nest_bounds(program), {}):
        out[stmt].add(tuple(point.values()))
    return out


def _run(t: tree.Tree, bounds: NestBounds, env: Env) -> Iterator[tuple[str, Env]]:
    if isinstance(t, tree.Seq):
        for x in t.items:
            yield from _run(x, bounds, env)
    elif isinstance(t, tree.At):
        if _holds(bounds.guards.get(t.stmt, ()), env):
            yield t.stmt, env
    elif t.axis in bounds.loops:
        span = bounds.loops[t.axis]
        lower = [-(-e.evaluate(env) // c) for c, e in span.lower]
        upper = [e.evaluate(env) // c for c, e in span.upper]
        first, last = (min, max) if span.hull else (max, min)
        for v in range(first(lower), last(upper) + 1):
            yield from _run(t.body, bounds, {**env, t.axis: v})


def _holds(region: Region, env: Env) -> bool:
    def fact(kind: str, value: int) -> bool:
        return value >= 0 if kind == "ge" else value == 0

    return any(all(fact(kind, e.evaluate(env)) for kind, e in conj) for conj in region)


def meant(program: Program, stmt: str) -> set[tuple[int, ...]]:
    axes = tree.axes_of(program.tree, stmt)
    found: set[tuple[int, ...]] = set()

    def add(point: Any) -> None:
        values = (point.get_coordinate_val(isl.dt.set, k) for k in range(len(axes)))
        found.add(tuple(v.to_python() for v in values))

    ranges.points(program, stmt, axes).foreach_point(add)
    return found


NAMES = ["conv1d_transpose", "conv2d", "max_pool", "tril", "resize_nearest", "slice"]
STRIDED = ("conv1d_transpose", (1, 1, 3, 1, 5))


@pytest.mark.parametrize("factor", [2, 3, 4, 5])
@pytest.mark.parametrize("name, sizes", [*((n, usual(n)) for n in NAMES), STRIDED])
def test_each_loop_split_is_shown_with_its_points(
    name: str, sizes: tuple[int, ...], factor: int
) -> None:
    s = tir.schedule(operator(name).declare(*sizes)[0])
    for axis in s.axes:
        if not s.check("split", axis, factor):
            continue
        program = s.split(axis, factor).program
        for stmt, points in shown(program).items():
            assert points == meant(program, stmt), f"{name}: {stmt} after split({axis}, {factor})"


def test_a_strided_window_that_is_split_is_shown_whole() -> None:
    s = tir.schedule(operator(STRIDED[0]).declare(*STRIDED[1])[0]).split("rx", 4)
    told = [x.strip() for x in str(s).splitlines() if "rx" in x]
    assert told[0] == "for rxo in (x//4 - 1)..min(2, x//4 + 1)"
    assert told[2] == "if (x + rxi)%2 == 0 and rxo >= 0  # since step 1, split"
