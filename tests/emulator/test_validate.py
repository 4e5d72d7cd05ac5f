"""Validation by enumeration: right loops pass, and each kind of wrong loop is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

import tensorir as tir
from tensorir.emulator import validate
from tensorir.emulator.hashed import PRIME, evaluator, fit, mix, start
from tensorir.emulator.points import TooMany, points
from tensorir.emulator.shrink import shrunk
from tensorir.ir.affine import Lin
from tensorir.ir.dtype import FLOAT32, INT64, INTS
from tensorir.ir.expr import Axis, Const, Op, Ref
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run
from tensorir.lower.pipeline import Lowered, lower
from tensorir.support.errors import InternalError
from tests.properties import moves, programs

TARGET = tir.target("x86-64-v3")


def matmul(m: int = 5, n: int = 7, p: int = 6) -> tir.Schedule:
    A, B = tir.placeholder((m, p), name="A"), tir.placeholder((p, n), name="B")
    k = tir.reduce_axis(p, name="k")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tir.schedule(C)


def stencil() -> tir.Schedule:
    n = tir.var("n")
    A = tir.placeholder((n + 2,), name="A")
    B = tir.compute((n + 2,), lambda i: A[i] * 2, name="B")
    C = tir.compute((n,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
    return tir.schedule(C)


def rewritten(n: Node, change: Callable[[Node], Node | None]) -> Node:
    """The loops with each node that `change` answers for replaced."""
    new = change(n)
    if new is not None:
        return new
    if isinstance(n, Block):
        return Block(tuple(rewritten(i, change) for i in n.items))
    if isinstance(n, If):
        other = rewritten(n.other, change) if n.other is not None else None
        return replace(n, body=rewritten(n.body, change), other=other)
    if isinstance(n, (For, Alloc)):
        return replace(n, body=rewritten(n.body, change))
    return n


def broken(s: tir.Schedule, change: Callable[[Node], Node | None], match: str) -> None:
    """The loops pass, and after a change they do not."""
    lowered = lower(s.program, TARGET)
    validate.require_valid(s, lowered, TARGET)
    wrong = replace(lowered, body=rewritten(lowered.body, change))
    with pytest.raises(InternalError, match=match):
        validate.require_valid(s, wrong, TARGET)


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_are_valid(seed: int) -> None:
    rng = Random(900 + seed)
    case = programs.draw(rng)
    s = moves.random_schedule(tir.schedule(*case.outputs), rng, rng.randint(1, 6), Counter())
    validate.require_valid(s, lower(s.program, TARGET), TARGET)


def test_build_validates() -> None:
    assert tir.build(matmul().tile("i", "j", 2, 4), validate=True).loops


def test_a_guard_that_is_dropped() -> None:
    s = matmul().vectorize("j", width=4)

    def change(n: Node) -> Node | None:
        return replace(n, conds=()) if isinstance(n, Run) and n.conds else None

    broken(s, change, r"C(\.init)?\(0, 7.*\) is no instance, but writes C")


def test_a_loop_one_short() -> None:
    def change(n: Node) -> Node | None:
        if isinstance(n, For) and n.axis.name == "k":
            return replace(n, extent=5, upper=((1, Lin(const=4)),))
        return None

    broken(matmul(), change, r"C\(0, 0, 5\) never runs")


def test_a_loop_one_long() -> None:
    def change(n: Node) -> Node | None:
        if isinstance(n, For) and n.axis.name == "j":
            return replace(n, extent=8, upper=((1, Lin(const=7)),))
        return None

    broken(matmul(), change, r"runs 0\.\.7, outside 0\.\.6|is no instance")


def test_an_instance_twice() -> None:
    def change(n: Node) -> Node | None:
        if isinstance(n, Run) and n.statement.role == "update":
            return Block((n, replace(n)))
        return None

    broken(matmul(), change, r"C\(0, 0, 0\) runs twice")


def test_an_init_that_is_gone() -> None:
    def change(n: Node) -> Node | None:
        return Block(()) if isinstance(n, Run) and n.statement.role == "init" else None

    broken(matmul(), change, r"C\.init\(0, 0\) never runs")


def test_an_init_after_its_updates() -> None:
    def change(n: Node) -> Node | None:
        return Block(tuple(reversed(n.items))) if isinstance(n, Block) else None

    broken(matmul(), change, r"C\(0, 0\) is not what C\(0, 0, 5\) computes")


def test_sums_in_another_order() -> None:
    def change(n: Node) -> Node | None:
        if isinstance(n, Run) and n.statement.role == "update":
            i, j, k = n.args
            return replace(n, args=(i, j, 5 - k))
        return None

    lowered = lower(matmul().program, TARGET)
    wrong = replace(lowered, body=rewritten(lowered.body, change))
    with pytest.raises(InternalError, match=r"C\(0, 0\) is not what C\(0, 0, 5\) computes"):
        validate.require_valid(matmul(), wrong, TARGET)


def test_a_sum_that_is_rescaled_too_late() -> None:
    A = tir.placeholder((3, 8), name="A")
    k, j = tir.reduce_axis(8, name="k"), tir.reduce_axis(8, name="j")
    m = tir.compute((3,), lambda i: tir.max(A[i, k], axis=k), name="m")
    sums = tir.compute((3,), lambda i: tir.sum(tir.exp(A[i, j] - m[i]), axis=j), name="l")
    B = tir.compute((3,), lambda i: m[i] + sums[i], name="B")
    s = tir.schedule(B).compute_at("l", "B.i").compute_at("m", "B.i").split("k", 4).split("j", 4)

    def change(n: Node) -> Node | None:
        items = list(n.items) if isinstance(n, Block) else []
        at = [x.statement.name == "l.rescale" if isinstance(x, Run) else False for x in items]
        if True not in at:
            return None
        first = at.index(True)
        items[first], items[first + 1] = items[first + 1], items[first]
        return Block(tuple(items))

    broken(s.online("jo", ("m", "l")), change, r"B\(0,\) is not what B\(0\) computes")


def test_a_halo_one_short() -> None:
    s = stencil().split("C.i", 4).compute_at("B", "C.io")

    def change(n: Node) -> Node | None:
        if isinstance(n, For) and "B" in n.axis.name or isinstance(n, For) and n.axis.name == "i":
            return replace(n, extent=None, upper=tuple((c, e - c) for c, e in n.upper))
        return None

    broken(s, change, r"B\(\d+, \d+\) never runs")


def test_a_buffer_one_short() -> None:
    s = stencil().split("C.i", 4).compute_at("B", "C.io")

    def change(n: Node) -> Node | None:
        if isinstance(n, Alloc):
            small = replace(n.buffer, shape=(Lin(const=4),))
            return replace(n, buffer=small)
        return None

    broken(s, change, r"touches B\(4,\), outside \(4,\)")


def test_a_race() -> None:
    def change(n: Node) -> Node | None:
        if isinstance(n, For) and n.axis.name == "k":
            return replace(n, kind="parallel")
        return None

    broken(matmul(), change, r"iteration \d of a parallel loop touches C\(0, 0\)")


def test_lanes_that_should_wait_for_each_other() -> None:
    n = 16
    A = tir.placeholder((n,), name="A")
    B = tir.compute((n,), lambda i: A[i] + 1, name="B")
    C = tir.compute((n,), lambda i: B[n - 1 - i] * 2, name="C")
    s = tir.schedule(C)

    def change(n: Node) -> Node | None:
        # both stages in one loop: C then reads what B has not written
        if isinstance(n, Block) and all(isinstance(x, For) for x in n.items):
            first, second = n.items
            assert isinstance(first, For) and isinstance(second, For)
            assert isinstance(second.body, Run)
            i = Lin({first.axis: 1})
            return replace(first, body=Block((first.body, replace(second.body, args=(i,)))))
        return None

    broken(s, change, r"C\(0,\) is not what C\(0\) computes")


# -- choosing sizes


def test_symbolic_sizes_are_chosen_with_full_and_partial_tiles() -> None:
    s = stencil().split("C.i", 8)
    found = [next(iter(x.values())) for x, _ in zip(validate.choices(s.program), range(3))]
    assert all(n % 8 and n > 8 for n in found[:2])
    names = [tir.var(x) for x in "abcdefgh"]
    A = tir.placeholder(tuple(names), name="A")
    B = tir.compute(tuple(names), lambda *i: A[i] + 1, name="B")
    assert next(validate.choices(tir.schedule(B).split("i0", 4).program))


def test_large_constants_are_replaced_by_small_ones() -> None:
    s = matmul(1024, 1000, 999).tile("i", "j", 8, 16).vectorize("ji", width=16).parallel("io")
    small = next(iter(shrunk(s)))
    assert set(small.extents) == {999, 1024}
    assert [x.primitive for x in small.schedule.trace] == [x.primitive for x in s.trace]
    tir.build(s, validate=True)


def test_indices_follow_their_extent() -> None:
    n = 5000
    A = tir.placeholder((n,), name="A")
    B = tir.compute(
        (n - 3,), lambda i: A[n - 1 - i] + tir.cast(tir.const(5000, "int32"), "float32")
    )
    small = next(iter(shrunk(tir.schedule(B))))
    assert "A[-i + 99]" in small.schedule.loops()  # 97 elements of 100, the last one first
    assert "5000" in small.schedule.loops()  # data, not a position


def test_a_schedule_that_fits_no_smaller_size_says_so() -> None:
    s = matmul(2000, 2000, 2000).split("i", 500, tail="exact").split("j", 400, tail="exact")
    with pytest.warns(tir.TensorIRWarning, match="not enumerated"):
        validate.require_valid(s, lower(s.program, TARGET), TARGET)


# -- the parts


def test_points_of_a_triangle() -> None:
    i, j = Axis("i"), Axis("j")
    size = tir.var("n")
    conj = (
        ("ge", Lin({i: 1})), ("ge", Lin({size: 1, i: -1}, -1)), ("ge", Lin({j: 1})),
        ("ge", Lin({i: 1, j: -2})),
    )  # fmt: skip
    assert sorted(points((i, j), (conj,), {size: 4}, 99)) == [
        (0, 0),
        (1, 0),
        (2, 0),
        (2, 1),
        (3, 0),
        (3, 1),
    ]
    with pytest.raises(TooMany):
        points((i, j), (conj,), {size: 4}, 5)
    assert points((i, j), (conj,), {size: 0}, 5) == set()


def test_points_of_a_stride() -> None:
    i = Axis("i")
    conj = (
        ("ge", Lin({i: 1})),
        ("ge", Lin({i: -1}, 9)),
        ("eq", Lin({("%", Lin({i: 1}), 3): 1}, -1)),
    )
    assert sorted(points((i,), (conj,), {}, 99)) == [(1,), (4,), (7,)]


def test_values_wrap_and_remember_order() -> None:
    assert fit(300, INTS[8]) == 44
    a, b = Ref(0, FLOAT32), Ref(1, FLOAT32)
    strict = evaluator(Op("add", (a, b), FLOAT32), regroup=False)
    loose = evaluator(Op("add", (a, b), FLOAT32), regroup=True)
    assert strict({}, [1, 2]) != strict({}, [2, 1])
    assert loose({}, [1, 2]) == loose({}, [2, 1]) == 3
    whole = evaluator(Op("floordiv", (Ref(0, INT64), Const(2, INT64)), INT64), regroup=False)
    assert whole({}, [-3]) == -2
    assert strict({}, [1, None]) is None
    assert mix(1, 2) != mix(2, 1)
    power = evaluator(Op("exp", (Op("sub", (a, b), FLOAT32),), FLOAT32), regroup=True)
    up, down, both = (power({}, x) for x in ([70, 9], [9, 50], [70, 50]))
    assert up is not None and down is not None
    assert up * down % PRIME == both
    assert power({}, [start(Const(float("-inf"), FLOAT32)), 9]) == 0


def test_nothing_of_it_comes_from_the_scheduler() -> None:
    import sys

    import tensorir.emulator.machine as machine
    import tensorir.emulator.points as listed

    for module in (machine, listed):
        names = {v.__module__ for v in vars(module).values() if hasattr(v, "__module__")}
        assert not any(
            n.startswith(("islpy", "tensorir.schedule", "tensorir.poly.isl")) for n in names
        )
    assert Lowered.__module__ in sys.modules
