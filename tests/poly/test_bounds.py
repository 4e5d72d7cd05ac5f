"""Boxes, tiles, reads outside an array, and layouts that are not one to one."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tensorir.ir.affine import Conj, Lin, Region, lin
from tensorir.ir.dtype import FLOAT32
from tensorir.ir.expr import Axis, Ref, Var
from tensorir.ir.statement import Access, Array, May
from tensorir.poly import access, bounds, isl
from tensorir.poly.bounds import Range, TileDim
from tests.poly.programs import Maker, blur, matmul, split

N, M = Var("N"), Var("M")
I, J = Axis("i"), Axis("j")
POSITIVE: Conj = (("ge", lin(N)), ("ge", lin(M)))


def rectangle(*ends: Lin) -> Region:
    dims = (I, J)
    return (tuple(f for a, e in zip(dims, ends) for f in (("ge", lin(a)), ("ge", e - 1 - lin(a)))),)  # type: ignore[return-value]


def test_a_box_in_terms_of_sizes() -> None:
    s = isl.to_set((I, J), (N, M), rectangle(lin(N), lin(8)))
    found = bounds.box(s, (N, M), POSITIVE)
    assert found == (Range(lin(0), lin(N) - 1), Range(lin(0), lin(7)))
    assert found[0].constant is None and found[1].constant == (0, 7)


def test_a_box_of_a_strided_and_a_triangular_set() -> None:
    conj: Conj = (
        ("ge", lin(I) - 3), ("ge", lin(N) - lin(I)), ("ge", lin(J) - lin(I) * 2),
        ("ge", lin(M) - lin(J)),
    )  # fmt: skip
    found = bounds.box(isl.to_set((I, J), (N, M), (conj,)), (N, M), POSITIVE)
    assert found[0].lower == lin(3) and found[1] == Range(lin(6), lin(M))
    # The least of N and M // 2 is no single expression: N is never less.
    assert found[0].upper == lin(N)
    known = (*POSITIVE, ("ge", lin(M) - lin(N) * 2))
    assert bounds.box(isl.to_set((I, J), (N, M), (conj,)), (N, M), known)[0].upper == lin(N)


def test_a_box_without_an_end() -> None:
    assert bounds.box(isl.universe((N,), 1), (N,)) == (Range(None, None),)


def test_greatest_and_least_values() -> None:
    s = isl.to_set((I, J), (N, M), rectangle(lin(10), lin(8)))
    e = Lin({I: 3, J: -2}, 1)
    assert bounds.maximum(s, e, (I, J), (N, M)) == 28
    assert bounds.minimum(s, e, (I, J), (N, M)) == -13
    assert bounds.maximum(s, lin(I) // 4, (I, J), (N, M)) == 2
    s = isl.to_set((I, J), (N, M), rectangle(lin(N), lin(8)))
    assert bounds.maximum(s, lin(I), (I, J), (N, M)) is None
    assert bounds.maximum(s, lin(I), (I, J), (N, M), (("ge", 6 - lin(N)),)) == 5
    assert bounds.value_range(s, lin(I) + lin(J), (I, J), (N, M), POSITIVE).upper == lin(N) + 6
    assert bounds.maximum(isl.empty((N, M), 2), lin(I), (I, J), (N, M)) is None


@pytest.mark.parametrize("seed", range(30))
def test_greatest_values_against_enumeration(seed: int) -> None:
    r = random.Random(seed)
    extra = Lin({I: r.randint(-2, 2), J: r.randint(-2, 2)}, r.randint(-3, 6))
    region = ((*rectangle(lin(6), lin(5))[0], ("ge", extra)),)
    e = Lin({I: r.randint(-3, 3), J: r.randint(-3, 3)}) + Lin({I: 1, J: 2}) // r.choice((2, 3))
    values = [
        e.evaluate({I: i, J: j}) for i, j in product(range(6), range(5))
        if extra.evaluate({I: i, J: j}) >= 0
    ]  # fmt: skip
    s = isl.to_set((I, J), (), region)
    assert bounds.maximum(s, e, (I, J), ()) == max(values, default=None)
    assert bounds.minimum(s, e, (I, J), ()) == min(values, default=None)


# -- tiles
def test_the_tile_of_a_stencil_moves_with_its_loop() -> None:
    p, a = blur()
    bx = next(x for x in p.arrays if x.name == "bx")
    fp, outer = access.footprint(p, bx, a["y"], ["out"], "reads")
    n = p.sizes[1]
    assert bounds.tile(fp, outer, p.sizes, p.context) == (
        TileDim(lin(a["y"]), lin(3), True), TileDim(lin(0), lin(n), True),
    )  # fmt: skip


def test_tiles_of_a_blocked_matmul() -> None:
    p, a = matmul()
    p, (io, _) = split(p, a["i"], 6, "io ii")
    p, (ko, _) = split(p, a["k"], 16, "ko ki")
    arrays = {x.name: x for x in p.arrays}
    fp, outer = access.footprint(p, arrays["A"], ko, ["C"], "reads")
    rows, cols = bounds.tile(fp, outer, p.sizes, p.context)
    assert cols == TileDim(Lin({ko: 16}), lin(16), True)
    # One row is touched for each point of the loop inside the tile.
    assert rows.extent == lin(1)
    fp, outer = access.footprint(p, arrays["A"], io, ["C"], "reads")
    rows, cols = bounds.tile(fp, outer, p.sizes, p.context)
    assert rows == TileDim(Lin({io: 6}), lin(6), True)
    assert cols == TileDim(lin(0), lin(p.sizes[2]), True)


def test_the_tile_of_nothing_and_of_everything() -> None:
    assert bounds.tile(isl.empty_map((N,), 1, 1), (I,), (N,)) == (TileDim(lin(0), lin(0), True),)
    whole = isl.universe_map((N,), 1, 1)
    assert bounds.tile(whole, (I,), (N,), (), (lin(N),)) == (TileDim(lin(0), lin(N), False),)


# -- outside
def reading(index: str, domain: str = "0<=i<N", shape: str = "N"):  # type: ignore[no-untyped-def]
    m = Maker("N").shape(A=shape, B="N")
    s = m.stmt("B", "i", domain, "B[i]", f"A[{index}]")
    sizes = tuple(m.sizes.values())
    context: Conj = tuple(("ge", lin(v)) for v in sizes)
    return s, s.reads[0], sizes, context


def test_the_first_read_outside() -> None:
    assert bounds.out_of_bounds(*reading("i+1")) == {
        "instance": {"i": 0},
        "sizes": {"N": 1},
        "index": (1,),
        "allowed": ((0, 0),),
        "dim": 0,
    }
    assert bounds.out_of_bounds(*reading("i-1"))["index"] == (-1,)  # type: ignore[index]
    assert bounds.out_of_bounds(*reading("N-1-i")) is None
    assert bounds.out_of_bounds(*reading("i//2")) is None
    assert bounds.out_of_bounds(*reading("i+1", "0<=i<N-1")) is None


def test_conditions_take_part_in_bounds() -> None:
    s, a, sizes, context = reading("i-1")
    i = s.iters[0]
    inside = Access(a.array, a.index, ((("ge", lin(i) - 1),),))
    assert bounds.out_of_bounds(s, inside, sizes, context) is None
    late = Access(a.array, a.index, ((("ge", lin(i) - 1),), (("eq", lin(i)),)))
    assert bounds.out_of_bounds(s, late, sizes, context)["instance"] == {"i": 0}  # type: ignore[index]


def test_several_dimensions_name_the_one_outside() -> None:
    m = Maker("N").shape(A="N,8", B="N,8")
    s = m.stmt("B", "i j", "0<=i<N, 0<=j<8", "B[i,j]", "A[i,j+2]")
    sizes = tuple(m.sizes.values())
    assert bounds.out_of_bounds(s, s.reads[0], sizes, ()) == {
        "instance": {"i": 0, "j": 6},
        "sizes": {"N": 1},
        "index": (0, 8),
        "allowed": ((0, 0), (0, 7)),
        "dim": 1,
    }


def test_an_index_known_only_when_it_runs_is_not_judged() -> None:
    s, a, sizes, context = reading("i")
    two = Array("T", FLOAT32, (lin(4), lin(4)), "input")
    may = May(Ref(0, FLOAT32))
    assert bounds.out_of_bounds(s, Access(two, (may, may)), sizes, context) is None
    found = bounds.out_of_bounds(s, Access(two, (may, lin(s.iters[0]))), sizes, context)
    assert found is not None and found["index"] == (None, 4) and found["dim"] == 1


def test_sizes_at_which_nothing_is_outside() -> None:
    m = Maker("M N").shape(A="M", B="N")
    s = m.stmt("B", "i", "0<=i<N", "B[i]", "A[i]")
    sizes = tuple(m.sizes.values())
    context: Conj = tuple(("ge", lin(v)) for v in sizes)
    region = bounds.safe_sizes(s, s.reads[0], sizes, context)
    for big, small in product(range(5), repeat=2):
        env = {sizes[0]: big, sizes[1]: small}
        holds = any(all(e.evaluate(env) >= 0 for _, e in conj) for conj in region)
        assert holds == (small <= big)
    assert bounds.safe_sizes(s, s.writes[0], sizes, context) == ((),)


# -- layouts
def test_a_layout_that_sends_two_cells_to_one_place() -> None:
    s = isl.to_set((I, J), (N, M), rectangle(lin(N), lin(8)))
    assert bounds.collision(s, (lin(I), lin(J)), (I, J), (N, M), POSITIVE) is None
    tiled = (lin(I) // 4, lin(J), lin(I) % 4)
    assert bounds.collision(s, tiled, (I, J), (N, M), POSITIVE) is None
    found = bounds.collision(s, (lin(I) // 4, lin(J)), (I, J), (N, M), POSITIVE)
    assert found == bounds.Collision({"N": 2, "M": 0}, {"i": 0, "j": 0}, {"i": 1, "j": 0}, (0, 0))
    skewed = (Lin({I: 7, J: 1}),)
    found = bounds.collision(s, skewed, (I, J), (N, M), POSITIVE)
    assert found is not None and (found.first, found.second) == ({"i": 0, "j": 7}, {"i": 1, "j": 0})
    assert bounds.collision(s, (Lin({I: 8, J: 1}),), (I, J), (N, M), POSITIVE) is None
