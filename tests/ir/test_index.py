"""Affine forms and regions, against evaluation of the expressions themselves."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import numpy as np
import pytest

from tensorir.ir import numerics
from tensorir.ir.affine import Lin, Region
from tensorir.ir.build import cast, const, select
from tensorir.ir.dtype import INT64
from tensorir.ir.expr import Axis, Const, Expr, Op, Var
from tensorir.ir.index import conditions, from_lin, to_lin
from tensorir.ir.language import placeholder
from tensorir.ir.maths import maximum, minimum
from tensorir.ir.simplify import simplify

i, j, n = Axis("i"), Axis("j"), Var("n")


def value(e: Expr, env: Mapping[Expr, int]) -> int:
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Axis | Var):
        return env[e]
    assert isinstance(e, Op)
    args = [np.asarray(value(a, env), a.dtype.numpy) for a in e.args]
    with np.errstate(all="ignore"):
        return int(numerics.apply(e.name, args, e.dtype))


def holds(region: Region, env: Mapping[Axis | Var, int]) -> bool:
    return any(
        all((e.evaluate(env) >= 0) if k == "ge" else (e.evaluate(env) == 0) for k, e in conj)
        for conj in region
    )


POINTS = [{i: a, j: b, n: c} for a, b, c in itertools.product(range(-5, 7), range(-3, 4), (0, 5))]


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (i + 2 * j - 3, "i + 2*j - 3"),
        (-(i - n), "-i + n"),
        ((i - 5) // 3 + 2, "(i + 1)//3"),
        ((4 * i + j) // 4, "i + j//4"),
        ((4 * i + 6) % 4, "2"),
        (i % 20 // 2 * 2 % 4, "(2*((i%20)//2))%4"),
        (i << 3, "8*i"),
        (3 * (i + 1) * 2, "6*i + 6"),
        (const(7), "7"),
        ((i // 5794) + 64 * (i % 5794), "i//5794 + 64*(i%5794)"),
    ],
)
def test_affine_forms(e: Expr, text: str) -> None:
    form = to_lin(e)
    assert form is not None
    assert form.text() == text
    for env in POINTS:
        assert form.evaluate(env) == value(e, env)
        assert value(from_lin(form), env) == value(e, env)
        assert value(simplify(e), env) == value(e, env)


@pytest.mark.parametrize(
    "e", [i * j, n * i, i // n, i % j, i // -2, maximum(i, j), cast(i, "int32"), i & 3, abs(i)]
)
def test_what_is_not_affine(e: Expr) -> None:
    assert to_lin(e) is None


def test_a_loaded_index_is_not_affine() -> None:
    assert to_lin(placeholder((4,), "int64", name="A")[i] + 1) is None


def random_affine(rng: random.Random, depth: int) -> Expr:
    if depth == 0:
        return rng.choice([i, j, n, const(rng.randint(-4, 4))])
    a = random_affine(rng, depth - 1)
    kind = rng.randrange(6)
    if kind == 0:
        return a + random_affine(rng, depth - 1)
    if kind == 1:
        return a - random_affine(rng, depth - 1)
    if kind == 2:
        return a * rng.randint(-3, 3)
    if kind == 3:
        return a // rng.randint(1, 4)
    return a % rng.randint(1, 4) if kind == 4 else -a


def random_condition(rng: random.Random, depth: int) -> Expr:
    a, b = random_affine(rng, 2), random_affine(rng, 1)
    if depth == 0:
        if rng.random() < 0.3:
            a = (maximum if rng.random() < 0.5 else minimum)(a, random_affine(rng, 1))
        return rng.choice([a < b, a <= b, a > b, a >= b, a == b, a != b, b < a])
    x, y = random_condition(rng, depth - 1), random_condition(rng, depth - 1)
    return rng.choice([x & y, x | y, ~x, x ^ y, x == y, select(x, y, ~y)])


def test_regions_of_random_conditions() -> None:
    seed = 20
    rng = random.Random(seed)
    found = 0
    for _ in range(400):
        e = random_condition(rng, rng.randrange(3))
        region = conditions(e)
        if region is None:
            continue
        found += 1
        for env in POINTS[::7]:
            assert holds(region, env) == bool(value(e, env)), (seed, str(e), env)
    assert found > 300


def test_random_affine_forms_and_their_expressions() -> None:
    seed = 21
    rng = random.Random(seed)
    for _ in range(300):
        e = random_affine(rng, 4)
        form = to_lin(e)
        assert form is not None, (seed, str(e))
        for env in POINTS[::11]:
            assert form.evaluate(env) == value(e, env), (seed, str(e))
            assert value(simplify(e), env) == value(e, env), (seed, str(e))


def test_conditions_on_data_have_no_region() -> None:
    data = placeholder((4,), name="A")
    assert conditions(data[i] > 0) is None
    assert conditions((data[i] > 0) & (i < 3)) is None
    assert conditions((data[i] > 0) & (const(1) > 2)) == ()
    assert conditions(const(1) < 2) == ((),)


def test_simplification_keeps_floats_as_they_are() -> None:
    x = placeholder((8,), name="A")[i + 2 * j - i]
    e = simplify((x + 1.0) + 2.0)
    assert str(e) == "A[j * 2] + 1.0 + 2.0"
    assert simplify(Op("add", (i, Op("sub", (j, i), INT64)), INT64)) is j


def test_lin_of_an_expression_is_canonical() -> None:
    assert to_lin(i + j) == to_lin(j + i)
    assert to_lin(2 * (i + 1) - 2) == Lin({i: 2})
