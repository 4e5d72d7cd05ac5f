"""Footprints, what a stage must compute, closure, and reads that find no write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorir.ir.affine import Lin, Region, lin
from tensorir.ir.expr import Axis
from tensorir.poly import access, isl, relation, tree
from tensorir.poly.legality import Instance
from tensorir.poly.model import Program
from tensorir.poly.tree import At, Loop, Seq
from tests.poly.programs import (
    Maker,
    axes,
    blur,
    matmul,
    matmul_bias_relu,
    nest,
    scan,
    split,
)


def array(p: Program, name: str):  # type: ignore[no-untyped-def]
    return next(a for a in p.arrays if a.name == name)


def test_the_rows_of_a_stencil() -> None:
    p, a = blur()
    bx = array(p, "bx")
    fp, outer = access.footprint(p, bx, a["y"], ["out"], "reads")
    assert outer == (a["y"],)
    y, r, c = axes("y r c")
    m, n = (lin(s) for s in p.sizes)
    expected: Region = ((
        ("ge", lin(y)), ("ge", m - 1 - lin(y)),
        ("ge", lin(r) - lin(y)), ("ge", lin(y) + 2 - lin(r)),
        ("ge", lin(c)), ("ge", n - 1 - lin(c)),
    ),)  # fmt: skip
    assert fp.is_equal(isl.to_map((y,), (r, c), p.sizes, expected))
    assert fp.n_basic_map() == 1


def test_the_whole_program_and_arrays_that_are_not_touched() -> None:
    p, a = blur()
    fp, outer = access.footprint(p, array(p, "bx"), None, ["out"], "reads")
    assert outer == () and fp.dim(isl.dt.in_) == 0
    assert fp.range().dim(isl.dt.set) == 2
    nothing, _ = access.footprint(p, array(p, "inp"), a["y"], ["out"], "reads")
    assert nothing.is_empty() and nothing.dim(isl.dt.out) == 2
    nothing, _ = access.footprint(p, array(p, "bx"), a["y"], ["out"], "writes")
    assert nothing.is_empty()


def test_a_panel_of_a_tiled_matmul() -> None:
    p, a = matmul()
    p, (ko, ki) = split(p, a["k"], 16, "ko ki")
    fp, outer = access.footprint(p, array(p, "B"), ko, ["C"], "reads")
    assert outer == (a["i"], a["j"], ko)
    cells = isl.at_sizes(fp, p.sizes, {"M": 3, "N": 5, "K": 20})
    for x, v in ((0, 1), (1, 4), (2, 1)):
        cells = cells.fix_val(isl.dt.in_, x, isl.val(v))
    found: list[list[int]] = []
    cells.range().foreach_point(lambda q: found.append(isl.coordinates(q)))
    assert sorted(found) == [[k, 4] for k in range(16, 20)]


def test_every_read_of_a_stage_is_covered() -> None:
    for make, name in ((blur, "bx"), (matmul_bias_relu, "C"), (scan, "p")):
        p, _ = make()
        assert access.covered(p, array(p, name), None) is None


def test_a_halo_one_short_is_found_with_its_instance() -> None:
    p, _ = blur(extra=1)
    missing = access.covered(p, array(p, "bx"), None)
    assert missing == access.Uncovered(
        {"M": 1, "N": 1}, Instance("out", {"y": 0, "x": 0}), array(p, "bx"), (2, 0)
    )


def test_a_read_before_its_write_is_not_covered() -> None:
    p, _ = matmul_bias_relu()
    assert isinstance(p.tree, Seq)
    q = p.change(tree=Seq(tuple(reversed(p.tree.items))))
    missing = access.covered(q, array(q, "C"), None)
    assert missing is not None and missing.reader == Instance("D", {"i": 0, "j": 0})
    p, a = scan()
    # Without the first row the recurrence has nothing to begin with; its own writes come later.
    rest = tree.remove(p.tree, "p.init")
    assert rest is not None
    q = p.change(tree=rest)
    missing = access.covered(q, array(q, "p"), None)
    assert missing is not None
    assert (missing.reader.stmt, missing.reader.at["y"], missing.cell[0]) == ("p", 1, 0)


def test_an_update_without_its_init_reads_what_nothing_wrote() -> None:
    p, a = matmul()
    rest = tree.remove(p.tree, "C.init")
    assert rest is not None
    q = p.change(tree=rest)
    missing = access.covered(q, array(q, "C"), None)
    assert missing is not None and missing.reader == Instance("C", {"i": 0, "j": 0, "k": 0})
    assert missing.sizes == {"M": 1, "N": 1, "K": 1}


def test_only_writes_under_the_same_outer_point_count() -> None:
    m = Maker("N", temps="t").shape(x="N+1", t="N+1", y="N")
    m.stmt("t", "i", "0<=i<N+1", "t[i]", "x[i]")
    m.stmt("y", "i", "1<=i<N", "y[i]", "t[i] t[i-1]")
    (i,) = axes("i")
    p = m.program(Loop(i, Seq((At("t"), At("y")))), {"t": (i,), "y": (i,)})
    assert access.covered(p, array(p, "t"), None) is None
    missing = access.covered(p, array(p, "t"), i)
    assert missing == access.Uncovered({"N": 2}, Instance("y", {"i": 1}), array(p, "t"), (0,))


def test_triangular_writes_leave_cells_that_nothing_computes() -> None:
    m = Maker("N", temps="t").shape(x="N,N", t="N,N", y="N,N")
    m.stmt("t", "i j", "0<=i<N, 0<=j<=i", "t[i,j]", "x[i,j]")
    m.stmt("y", "i j", "0<=i<N, 0<=j<N", "y[i,j]", "t[i,j]")
    i, j, u, v = axes("i j u v")
    p = m.program(Seq((nest((i, j), At("t")), nest((u, v), At("y")))), {"t": (i, j), "y": (u, v)})
    missing = access.covered(p, array(p, "t"), None)
    assert missing is not None
    assert (missing.sizes, missing.cell) == ({"N": 2}, (0, 1))
    s = m.stmts["y"]
    guarded = replace(s.reads[0], guard=((("ge", lin(s.iters[0]) - lin(s.iters[1])),),))
    q = p.change(
        placements={**p.placements, "y": p.placements["y"].with_stmt(replace(s, reads=(guarded,)))}
    )
    assert access.covered(q, array(q, "t"), None) is None


def test_placements_follow_every_kind_of_axis() -> None:
    """Split with a base, fuse, and a renamed axis: each instance at its one point."""
    m = Maker("").shape(x="24", y="24")
    m.stmt("y", "i", "0<=i<20", "y[i]", "x[i]")
    (i,) = axes("i")
    p = m.program(Loop(i, At("y")), {"y": (i,)})
    p, (o, n) = split(p, i, 6, "o n")
    f, g = axes("f g")
    place = p.placements["y"]
    fused = replace(
        place,
        axes=(f,),
        index={
            k: e.subst({o: Lin({f: 1}) // 6, n: Lin({f: 1}) % 6}) for k, e in place.index.items()
        },
        facts=(*place.facts, ("eq", Lin({f: 1, o: -6, n: -1}))),
        retired=(*place.retired, o, n),
    ).rename(f, g)
    found = relation.placement_map(fused, ())
    assert found.is_equal(isl.identity((), 1).intersect_domain(relation.domain_set(place.stmt, ())))
    assert relation.point_map(fused, {fused.stmt.iters[0]: 17}, ()) == {g: 17}
    assert relation.point_map(place, {place.stmt.iters[0]: 17}, ()) == {o: 2, n: 5}


@pytest.mark.parametrize("name", ["C", "C.init"])
def test_ordered_lists_loops_as_asked(name: str) -> None:
    p, a = matmul()
    i, j = a["i"], a["j"]
    m = relation.ordered(p, name, (j, i))
    assert m.dim(isl.dt.out) == 2
    assert relation.ordered(p, name, (j, i)) is m
    assert m.is_equal(isl.select(relation.full(p, name), [1, 0]))


def test_an_axis_may_be_iterator_and_loop_at_once() -> None:
    i = Axis("i")
    m = Maker("N").shape(x="N", y="N")
    m.stmt("y", "i", "0<=i<N", "y[i]", "x[i]")
    s = m.stmts["y"]
    p = m.program(Loop(s.iters[0], At("y")), {"y": s.iters})
    assert relation.full(p, "y").is_identity()
    q = p.placements["y"].rename(s.iters[0], i)
    assert relation.placement_map(q, p.sizes).is_identity()
