"""Ranges of affine expressions over boxes, against enumeration."""

from __future__ import annotations

import random

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.lower.boxes import extreme, simplify, span


def _random_lin(r: random.Random, axes: list[Axis], depth: int) -> Lin:
    pick = [0, 1, 2, 4, -1, -2, 8, 6, 16, -16]
    e = Lin({a: r.choice(pick) for a in axes}, r.randint(-9, 9))
    if depth:
        e = e + (_random_lin(r, axes, depth - 1) // r.choice([2, 4, 8, 16, 6])) * r.choice([1, -2])
        e = e + (_random_lin(r, axes, depth - 1) % r.choice([2, 4, 8, 16, 6])) * r.choice([1, -1])
    return e


def test_bounds_and_simplification_agree_with_enumeration() -> None:
    seed = 20
    print("seed", seed)
    r = random.Random(seed)
    axes = [Axis(c) for c in "abc"]
    for _ in range(1500):
        box = {axes[0]: r.randint(0, 7), axes[1]: r.randint(0, 2)}
        if r.random() < 0.3:
            box[axes[2]] = r.randint(0, 1)
        e = _random_lin(r, axes, r.choice([1, 1, 2]))
        plain, low, high = simplify(e, box), extreme(e, box, -1), extreme(e, box, 1)
        s = span(e, box)
        for _ in range(12):
            env: dict[Axis | Var, int] = {
                a: r.randint(0, box[a]) if a in box else r.randint(-9, 9) for a in axes
            }
            v = e.evaluate(env)
            assert plain.evaluate(env) == v, (e, plain, box, env)
            assert low.evaluate(env) <= v <= high.evaluate(env), (e, box, env)
            assert s is None or s[0] <= v <= s[1]


def test_lanes_come_out_of_a_fused_index() -> None:
    f, v = Axis("f"), Axis("v")
    fused = Lin({f: 16, v: 1})
    assert simplify(fused // 64, {v: 15}) == Lin({f: 1}) // 4
    assert simplify(fused % 64, {v: 15}) == (Lin({f: 1}) % 4) * 16 + Lin({v: 1})
    assert simplify(Lin({v: -1}) // 16, {v: 1}).text() == "(-v)//16"
