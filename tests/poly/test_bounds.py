"""Reads outside an array: the first instance, and conditions that take part."""

from __future__ import annotations

from tensorir.ir.affine import Conj, lin
from tensorir.ir.dtype import FLOAT32
from tensorir.ir.expr import Axis, Ref, Var
from tensorir.ir.statement import Access, Array, May
from tensorir.poly import bounds
from tests.poly.programs import Maker

N, M = Var("N"), Var("M")
I, J = Axis("i"), Axis("j")
POSITIVE: Conj = (("ge", lin(N)), ("ge", lin(M)))


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
