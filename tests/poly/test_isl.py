"""Facts to sets and back, floors, points, and the budget."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tensorir.ir.affine import Fact, Lin, Region, lin
from tensorir.ir.expr import Axis, Var
from tensorir.poly import isl
from tensorir.support.errors import TensorIRError
from tensorir.support.knobs import knobs

N = Var("N")
I, J = Axis("i"), Axis("j")


def random_lin(r: random.Random, depth: int = 0) -> Lin:
    e = Lin({}, r.randint(-4, 4))
    for a in (I, J, N):
        e = e + Lin({a: r.choice((-3, -2, -1, 0, 0, 1, 2))})
    if depth < 2 and r.random() < 0.5:
        inner = random_lin(r, depth + 1)
        n = r.choice((2, 3, 4))
        e = e + r.choice((-2, -1, 1, 2)) * (inner // n if r.random() < 0.5 else inner % n)
    return e


def random_region(r: random.Random) -> Region:
    box: list[Fact] = [f for a in (I, J) for f in (("ge", lin(a) + 3), ("ge", 3 - lin(a)))]  # type: ignore[misc]
    kinds = ("ge", "ge", "ge", "eq")
    return tuple(
        (*box, *((r.choice(kinds), random_lin(r)) for _ in range(r.randint(0, 2))))
        for _ in range(r.randint(1, 2))
    )  # type: ignore[return-value]


def members(region: Region, n: int) -> set[tuple[int, int]]:
    out = set()
    for i, j in product(range(-4, 5), repeat=2):
        env = {I: i, J: j, N: n}
        for conj in region:
            values = [(k, e.evaluate(env)) for k, e in conj]
            if all(v >= 0 if k == "ge" else v == 0 for k, v in values):
                out.add((i, j))
    return out


def points(s: isl.Set, n: int) -> set[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    fixed = isl.at_sizes(s, (N,), {"N": n})
    fixed.foreach_point(lambda p: found.append(tuple(isl.coordinates(p))))
    return set(found)


@pytest.mark.parametrize("seed", range(60))
def test_facts_become_sets_and_return(seed: int) -> None:
    r = random.Random(seed)
    region = random_region(r)
    s = isl.to_set((I, J), (N,), region)
    back = isl.from_set(s, (I, J), (N,))
    apart = isl.from_set(s, (I, J), (N,), disjoint=True)
    for n in (0, 1, 3):
        expected = members(region, n)
        assert points(s, n) == expected, (seed, n)
        assert members(back, n) == expected, (seed, n)
        assert sum(len(members((c,), n)) for c in apart) == len(expected)


def test_projections_leave_floors() -> None:
    region: Region = ((("eq", lin(I) * 2 - lin(J)), ("ge", lin(I)), ("ge", lin(N) - 1 - lin(I))),)
    s = isl.to_set((I, J), (N,), region).project_out(isl.dt.set, 0, 1)
    [conj] = isl.from_set(s, (J,), (N,))
    assert ("eq", lin(J) % 2) in conj
    assert isl.to_set((J,), (N,), (conj,)).is_equal(s)


def test_an_unknown_existential_is_told() -> None:
    region: Region = ((("ge", 3 * lin(I) - lin(J)), ("ge", lin(N) - 5 * lin(I)), ("ge", lin(J))),)
    s = isl.to_set((I, J), (N,), region).project_out(isl.dt.set, 0, 1)
    [piece] = s.get_basic_sets()
    assert isl.facts(piece, (J,), (N,)) is None
    back = isl.to_set((J,), (N,), isl.from_set(s, (J,), (N,)))
    assert back.is_equal(s)


def test_empty_and_whole() -> None:
    assert isl.from_set(isl.empty((N,), 2), (I, J), (N,)) == ()
    assert isl.from_set(isl.universe((N,), 2), (I, J), (N,)) == ((),)
    assert isl.to_set((I,), (), ()).is_empty()
    assert isl.to_set((I,), (), ((),)).plain_is_universe()


def test_maps_with_hidden_axes() -> None:
    k = Axis("k")
    region: Region = ((("eq", lin(J) - lin(I) - 4 * lin(k)), ("ge", lin(k)), ("ge", 1 - lin(k))),)
    m = isl.to_map((I,), (J,), (), region, exists=(k,))
    image = m.fix_val(isl.dt.in_, 0, isl.val(3)).range()
    assert image.is_equal(isl.to_set((J,), (), ((("eq", lin(J) - 3),), (("eq", lin(J) - 7),))))


def test_select_takes_output_dimensions_in_any_order() -> None:
    m = isl.identity((N,), 3)
    picked = isl.select(m, [2, 0])
    assert (picked.dim(isl.dt.in_), picked.dim(isl.dt.out)) == (3, 2)
    assert picked.is_equal(isl.equal_dims((N,), [(2, 0), (0, 1)], 3, 2))
    assert isl.select(m, [0, 1, 2]) is m


def test_the_first_point_has_the_smallest_sizes() -> None:
    region: Region = ((("ge", lin(I) - 2), ("ge", lin(N) - lin(I) - 1), ("eq", lin(J) + lin(I))),)
    assert isl.first_point(isl.to_set((I, J), (N,), region), (N,)) == ({"N": 3}, [2, -2])
    few = (("ge", 2 - lin(N)),)
    assert isl.first_point(isl.to_set((I, J), (N,), region), (N,), few) is None


def test_large_numbers() -> None:
    big = 1 << 80
    s = isl.to_set((I,), (), ((("eq", lin(I) - big),),))
    assert isl.first_point(s, ()) == ({}, [big])


def hard() -> bool:
    """A question that takes isl some ten thousand operations."""
    axes = [Axis(f"x{k}") for k in range(6)]
    r = random.Random(1)
    with isl.budget():
        s = isl.universe((N,), 6)
        for _ in range(6):
            e = Lin({a: r.randint(-5, 5) for a in axes}, 7)
            s = s.subtract(isl.to_set(axes, (N,), ((("ge", e), ("ge", lin(N) - e // 3)),)))
        return bool(s.is_empty())


def test_the_first_point_of_a_union_with_floors() -> None:
    """isl's own `lexmin` returns nothing for this set."""
    axes = [Axis(n) for n in "abcdef"]
    n, m, a, b, c, d = (lin(x) for x in axes)
    odd = ("eq", (c + 1) % 2)
    base = (odd, ("ge", n), ("ge", m), ("ge", a - 1), ("ge", b), ("ge", m - 1 - b), ("ge", c - 1))
    last = (("ge", m - 1 - c), ("ge", (c // 2) * 2 - a - 1))
    region: Region = (
        (*base, ("eq", 1 - a + b - c - d * 2), ("eq", (b + 1) % 2), *last,
         ("ge", c - 3 + m * 2 + a - b), ("ge", 1 - a + b - c)),
        (*base, ("eq", b + c - a - d), ("eq", (a + c) % 2), *last,
         ("ge", c - a + b), ("ge", m - 1 + a - b - c)),
        (*base, ("eq", a + b * 2 + c - 1 - d), ("eq", (a + c) % 2), *last,
         ("ge", c + a + b * 2 - 1), ("ge", m - a - b * 2 - c)),
    )  # fmt: skip
    assert isl.least(isl.to_set(axes, (), region)) == [0, 4, 1, 0, 3, 2]


def test_a_budget_is_for_one_question() -> None:
    with knobs.override(isl_operations=1_000):
        for _ in range(2):
            with pytest.raises(isl.BudgetExceeded) as e:
                hard()
            assert str(e.value) == "1,000 isl operations were not enough to decide this"
            assert isinstance(e.value, TensorIRError)
            # The context is usable at once, outside and inside of a budget.
            with isl.budget():
                assert not isl.universe((N,), 1).is_empty()
    assert hard() is False


def test_nested_questions_share_a_budget() -> None:
    with knobs.override(isl_operations=1_000), pytest.raises(isl.BudgetExceeded), isl.budget():
        hard()
    with isl.budget():
        assert hard() is False


@pytest.mark.parametrize("value", [0, 7, -7, 2**62, 2**63 - 1, -(2**63), 2**63, -(2**100)])
def test_numbers_of_any_size_return(value: int) -> None:
    assert isl.number(isl.val(value)) == value
