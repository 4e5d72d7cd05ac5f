"""Known answers: what is legal, what is refused with which witness, what only reassociates."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tensorir.ir.affine import Lin, lin
from tensorir.ir.dtype import FLOAT32
from tensorir.ir.expr import Axis, Ref
from tensorir.ir.statement import Access, Array, May, Statement
from tensorir.poly import isl, legality, tree
from tensorir.poly.legality import Instance, carried, check_marks, reassociates, turned, witness
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.tree import At, Loop, Seq
from tensorir.support.knobs import knobs
from tests.poly.programs import (
    EXACT_SUM,
    LAST,
    SUM,
    Maker,
    axes,
    blur,
    cholesky,
    jacobi,
    matmul,
    matmul_bias_relu,
    nest,
    reordered,
    replaced,
    scan,
    split,
    split_matmul,
    syrk,
    trmm,
)


def names(p: Program) -> list[str]:
    return tree.stmts(p.tree)


def backwards(p: Program, axis: Axis) -> Program:
    r = Axis(axis.name + "r")
    return replaced(p, axis, r, Lin({r: -1}))


def antidiagonal() -> tuple[Program, Axis, Axis]:
    m = Maker("N").shape(a="N,N")
    m.stmt("S", "i j", "1<=i<N, 0<=j<N-1", "a[i,j]", "a[i-1,j+1]")
    i, j = axes("i j")
    return m.program(nest((i, j), At("S")), {"S": (i, j)}), i, j


def test_interchange_of_an_antidiagonal_dependence_is_refused() -> None:
    p, i, j = antidiagonal()
    q = reordered(p, "S", (j, i))
    found = turned(p, q, ["S"])
    assert found is not None and found.kind == "flow" and not found.exempt
    w = witness(q, found)
    assert w is not None
    assert w.sizes == {"N": 3}
    assert w.source == Instance("S", {"i": 1, "j": 1})
    assert w.sink == Instance("S", {"i": 2, "j": 0})
    assert (w.array.name, w.cell, w.kind) == ("a", (1, 1), "flow")
    assert w.distance == {"j": -1, "i": 1}
    assert legality.distance(found) == {j: -1, i: 1}
    assert turned(p, p, ["S"]) is None


def test_jacobi_tiles_must_be_skewed() -> None:
    p, a = jacobi()
    t, i = a["t"], a["i"]
    r, (to, ti) = split(p, t, 4, "to ti")
    r, (io, ii) = split(r, i, 8, "io ii")
    tiled = reordered(r, "J", (to, io, ti, ii))
    found = turned(r, tiled, ["J"])
    assert found is not None
    w = witness(tiled, found)
    assert w is not None
    assert w.sizes == {"T": 2, "N": 10}
    assert (w.source.at, w.sink.at) == ({"t": 0, "i": 8}, {"t": 1, "i": 7})
    assert w.kind == "flow" and w.cell == (1, 8)

    w0, f = axes("w f")
    skewed = replaced(p, i, w0, Lin({w0: 1, t: -1}))
    assert turned(p, skewed, ["J"]) is None
    r, (to, ti) = split(skewed, t, 4, "to ti")
    r, (wo, wi) = split(r, w0, 8, "wo wi")
    tiled = reordered(r, "J", (to, wo, ti, wi))
    assert turned(r, tiled, ["J"]) is None
    # Wavefronts of tiles: once skewed, all tiles of a diagonal may run at once.
    front = replaced(tiled, wo, f, Lin({f: 1, to: -1}))
    moved = reordered(front, "J", (f, to, ti, wi))
    assert turned(front, moved, ["J"]) is None
    assert carried(moved, to) is None
    assert carried(moved, f) is not None


def test_blur_stages_merge_only_when_shifted() -> None:
    p, a = blur()
    y = a["y"]
    for shift, legal in ((0, False), (1, False), (2, True)):
        known = (("eq", Lin({a["by"]: 1, y: -1}, -shift)),)
        moved = p.placements["bx"].replace_axis(a["by"], (y,), Lin({y: 1}, shift), known)
        q = p.change(
            tree=Loop(y, Seq((Loop(a["bx"], At("bx")), Loop(a["x"], At("out"))))),
            placements={"bx": moved, "out": p.placements["out"]},
        )
        found = turned(p, q, names(p))
        assert (found is None) == legal
        if found is None:
            clash = check_marks(q.change(tree=replace(q.tree, kind="parallel")), ["out"])  # type: ignore[type-var]
            assert clash is not None and clash[0].axis is y
            continue
        w = witness(q, found)
        assert w is not None and w.sizes == {"M": 1, "N": 1}
        assert w.source == Instance("bx", {"y": shift + 1, "x": 0})
        assert w.sink == Instance("out", {"y": 0, "x": 0})
        assert w.distance == {"y": -1} and w.kind == "flow"


def test_reduction_loop_races_and_others_do_not() -> None:
    p, a = matmul()
    assert carried(p, a["i"]) is None
    assert carried(p, a["j"]) is None
    assert carried(p, a["j"], lanes=True) is None
    for lanes in (False, True):
        found = carried(p, a["k"], lanes=lanes)
        assert found is not None and found.exempt
        w = witness(p, found)
        assert w is not None and w.sizes == {"M": 1, "N": 1, "K": 2}
        assert (w.source.at["k"], w.sink.at["k"]) == (0, 1)
        assert w.cell == (0, 0) and w.distance == {"i": 0, "j": 0, "k": 1}


def test_init_stays_before_its_update() -> None:
    p, a = split_matmul()
    q = p.change(tree=Seq(tuple(reversed(p.tree.items))))  # type: ignore[union-attr]
    found = turned(p, q, names(p))
    assert found is not None and not found.exempt
    w = witness(q, found)
    assert w is not None and w.source.stmt == "C.init" and w.sink.stmt == "C"
    assert w.kind == "flow" and w.distance == {}


def test_turning_a_reduction_reassociates_only_where_inexact() -> None:
    for reducer, marked in ((SUM, True), (EXACT_SUM, False)):
        p, a = matmul(reducer=reducer)
        k = a["k"]
        q = backwards(p, k)
        assert turned(p, q, names(p)) is None
        assert reassociates(p, q, names(p)) == marked
        r, (ko, ki) = split(p, k, 4, "ko ki")
        swapped = r.change(
            tree=tree.rewrite(
                r.tree,
                ko,
                lambda x: Loop(ki, Loop(ko, x.body.body)),  # type: ignore[union-attr]
            )
        )
        assert turned(r, swapped, names(p)) is None
        assert reassociates(r, swapped, names(p)) == marked
        assert not reassociates(p, r, names(p))


def test_reducers_that_do_not_commute_keep_their_order() -> None:
    p, a = matmul(reducer=LAST)
    q = backwards(p, a["k"])
    found = turned(p, q, names(p))
    assert found is not None and witness(q, found).sizes["K"] == 2  # type: ignore[union-attr]


def test_another_read_of_the_accumulated_array_is_no_reduction() -> None:
    p, a = trmm()
    i, k = a["i"], a["k"]
    assert turned(p, backwards(p, i), ["B"]) is not None
    assert carried(p, i) is not None
    assert carried(p, a["j"]) is None
    assert turned(p, backwards(p, k), ["B"]) is not None

    m = Maker("N").shape(A="N")
    m.stmt("A", "i", "1<=i<N", "A[i]", "A[i] A[i-1]", "update", SUM)
    (i,) = axes("i")
    p = m.program(Loop(i, At("A")), {"A": (i,)})
    found = turned(p, backwards(p, i), ["A"])
    assert found is not None and not found.exempt


def test_a_steered_reduction_is_not_exempt() -> None:
    """The cell that is read depends on the accumulator: order matters."""
    x = Array("x", FLOAT32, (lin(8),), "input")
    c = Array("c", FLOAT32, (lin(1),), "output")
    (k,) = axes("k")
    own = Access(c, (lin(0),))
    for slot, legal in ((1, True), (0, False)):
        reads = (own, Access(x, (lin(k),)), Access(x, (May(Ref(slot, FLOAT32)),)))
        domain = ((("ge", lin(k)), ("ge", 7 - lin(k))),)
        s = Statement("c", "c", (k,), domain, (own,), reads, (Ref(0, FLOAT32),), "update", SUM)  # type: ignore[arg-type]
        p = Program(Loop(k, At("c")), {"c": Placement.fresh(s, (k,))}, {}, (x, c), (), ())
        q = backwards(p, k)
        assert (turned(p, q, ["c"]) is None) == legal


def test_cholesky() -> None:
    p, a = cholesky()
    found = carried(p, a["i"])
    assert found is not None
    w = witness(p, found)
    assert w is not None and w.sizes == {"N": 2}
    assert (w.source, w.sink) == (Instance("D2", {"i": 0}), Instance("D1", {"i": 1, "j": 0}))
    loop = p.tree
    assert isinstance(loop, Loop) and isinstance(loop.body, Seq)
    late = Axis("i2")
    known = (("eq", Lin({a["i"]: 1, late: -1})),)
    ps = dict(p.placements)
    for n in ("U2", "D2"):
        ps[n] = ps[n].replace_axis(a["i"], (late,), Lin({late: 1}), known)
    halves = Seq((Loop(a["i"], loop.body.items[0]), Loop(late, Seq(loop.body.items[1:]))))
    assert turned(p, p.change(tree=halves, placements=ps), names(p)) is not None


def test_syrk_may_interchange_what_its_triangle_allows() -> None:
    p, a = syrk()
    q = reordered(p, "C", (a["k"], a["j"], a["i"]))
    assert turned(p, q, ["C"]) is None
    assert not reassociates(p, q, ["C"])
    assert carried(p, a["i"]) is None and carried(q, a["k"]) is not None


def test_scan_runs_forward_only() -> None:
    p, a = scan()
    found = turned(p, backwards(p, a["y"]), names(p))
    assert found is not None and found.kind == "flow"
    assert carried(p, a["y"]) is not None and carried(p, a["x"]) is None


def test_matmul_bias_relu_fuses_only_outside_the_reduction() -> None:
    p, a = matmul_bias_relu()
    i, j, y, x = a["i"], a["j"], a["y"], a["x"]
    d = p.placements["D"]
    d = d.replace_axis(y, (i,), Lin({i: 1}), (("eq", Lin({y: 1, i: -1})),))
    d = d.replace_axis(x, (j,), Lin({j: 1}), (("eq", Lin({x: 1, j: -1})),))
    update = Loop(a["k"], At("C"))
    good = Loop(i, Loop(j, Seq((At("C.init"), update, At("D")))))
    assert turned(p, p.change(tree=good, placements={**p.placements, "D": d}), names(p)) is None
    bad = Loop(i, Loop(j, Seq((At("C.init"), At("D"), update))))
    q = p.change(tree=bad, placements={**p.placements, "D": d})
    found = turned(p, q, names(p))
    assert found is not None and (found.source, found.sink) == ("C", "D")
    w = witness(q, found)
    assert w is not None and w.sizes == {"M": 1, "N": 1, "K": 1} and w.kind == "flow"


# -- lanes
def shifted(read: str) -> tuple[Program, Axis]:
    m = Maker("N").shape(a="N+2")
    m.stmt("S", "i", "1<=i<N", "a[i]", read)
    (i,) = axes("i")
    return m.program(Loop(i, At("S")), {"S": (i,)}), i


def test_lanes_may_read_before_a_later_lane_writes() -> None:
    p, i = shifted("a[i+1]")
    assert carried(p, i, lanes=True) is None
    found = carried(p, i)
    assert found is not None and found.kind == "anti"
    p, i = shifted("a[i-1]")
    found = carried(p, i, lanes=True)
    assert found is not None and found.kind == "flow"


def test_lanes_are_refused_where_an_inner_loop_crosses() -> None:
    m = Maker("N").shape(a="N+1,N+1")
    m.stmt("S", "v k", "0<=v<N, 1<=k<N", "a[v,k]", "a[v+1,k-1]")
    v, k = axes("v k")
    p = m.program(nest((v, k), At("S")), {"S": (v, k)})
    # (v, k) reads what (v + 1, k - 1) writes; lanes in lock step run k - 1 first.
    found = carried(p, v, lanes=True)
    assert found is not None and found.kind == "anti"
    m = Maker("N").shape(a="N+1,N+1")
    m.stmt("S", "v k", "0<=v<N, 0<=k<N-1", "a[v,k]", "a[v+1,k+1]")
    p = m.program(nest((v, k), At("S")), {"S": (v, k)})
    assert carried(p, v, lanes=True) is None


def test_check_marks_names_the_loop() -> None:
    p, a = matmul()
    i = a["i"]
    assert isinstance(p.tree, Loop)
    p = p.change(tree=replace(p.tree, kind="parallel"))
    assert check_marks(p, ["C"]) is None
    q = p.change(tree=tree.rewrite(p.tree, a["k"], lambda x: replace(x, kind="vectorize", width=8)))
    found = check_marks(q, ["C"])
    assert found is not None and found[0].axis is a["k"]
    assert check_marks(q, ["C.init"]) is None
    assert found[1].axes == (i, a["j"], a["k"])


# -- buffers
def privatised(outside: bool) -> tuple[Program, Axis, Axis]:
    """`t[j] = x[i,j]; y[i,j] = t[j]`: one row of `t`, for all i or one for each."""
    m = Maker("N", temps="t").shape(x="N,N", t="N", y="N,N")
    m.stmt("t", "i j", "0<=i<N, 0<=j<N", "t[j]", "x[i,j]")
    m.stmt("y", "i j", "0<=i<N, 0<=j<N", "y[i,j]", "t[j]")
    i, j, k = axes("i j k")
    shape = Loop(i, Seq((Loop(j, At("t")), Loop(k, At("y")))))
    p = m.program(shape, {"t": (i, j), "y": (i, k)})
    return p.change(buffers={m.arrays["t"]: Buffer("local", (i,) if outside else ())}), i, j


def test_a_buffer_for_each_iteration_frees_the_loop() -> None:
    p, i, j = privatised(outside=False)
    found = carried(p, i)
    assert found is not None and witness(p, found).sizes == {"N": 2}  # type: ignore[union-attr]
    assert turned(p, backwards(p, i), names(p)) is not None
    p, i, j = privatised(outside=True)
    assert carried(p, i) is None
    assert turned(p, backwards(p, i), names(p)) is None
    assert carried(p, j) is None


def cached_sum() -> tuple[Program, dict[str, Axis]]:
    """`C[i] += A[i,k]` by blocks of k: load C into acc, update acc, write it back."""
    m = Maker("N K", temps="acc").shape(A="N,4*K", C="N", acc="N")
    dom = "0<=i<N, 0<=ko<K"
    m.stmt("acc.load", "ko i", dom, "acc[i]", "C[i]", "copy", SUM, "C")
    m.stmt("C", "ko i k", f"{dom}, 0<=k<4", "acc[i]", "acc[i] A[i,4*ko+k]", "update", SUM, "C")
    m.stmt("acc.copy", "ko i", dom, "C[i]", "acc[i]", "copy", SUM, "C")
    a = {n: Axis(n) for n in ("ko", "i1", "i", "k", "i2")}
    body = Seq((
        Loop(a["i1"], At("acc.load")),
        nest((a["i"], a["k"]), At("C")),
        Loop(a["i2"], At("acc.copy")),
    ))  # fmt: skip
    p = m.program(
        Loop(a["ko"], body),
        {
            "acc.load": (a["ko"], a["i1"]),
            "C": (a["ko"], a["i"], a["k"]),
            "acc.copy": (a["ko"], a["i2"]),
        },
    )
    return p.change(buffers={m.arrays["acc"]: Buffer("local", (a["ko"],))}), a


def test_loading_and_writing_back_an_accumulator_keeps_the_reduction() -> None:
    p, a = cached_sum()
    ko = a["ko"]
    q = backwards(p, ko)
    assert turned(p, q, names(p)) is None
    assert reassociates(p, q, names(p))
    found = carried(p, ko)
    assert found is not None and found.exempt
    w = witness(p, found)
    assert w is not None and set(w.sizes) == {"N", "K"} and w.distance["ko"] == 1
    assert set(w.sink.at) <= {"ko", "i1", "i2"}


def test_loads_may_not_pass_write_backs_alone() -> None:
    """All loads, then all updates, then all write backs: every block but one would be lost."""
    p, a = cached_sum()
    assert isinstance(p.tree, Loop) and isinstance(p.tree.body, Seq)
    new = {n: Axis(f"ko_{n}") for n in ("C", "acc.copy")}
    ps = dict(p.placements)
    for n, x in new.items():
        ps[n] = ps[n].rename(a["ko"], x)
    one, two, three = p.tree.body.items
    torn = Seq((Loop(a["ko"], one), Loop(new["C"], two), Loop(new["acc.copy"], three)))
    q = p.change(tree=torn, placements=ps)
    found = turned(p, q, names(p))
    assert found is not None and found.array.name == "C"


def test_updates_do_not_pass_their_load() -> None:
    p, a = cached_sum()
    assert isinstance(p.tree, Loop) and isinstance(p.tree.body, Seq)
    one, two, three = p.tree.body.items
    q = p.change(tree=Loop(a["ko"], Seq((two, one, three))))
    found = turned(p, q, names(p))
    assert found is not None and found.array.name == "acc" and not found.exempt


# -- may accesses
def scatter(lower: int | None, upper: int | None) -> tuple[Program, Axis]:
    h = Array("h", FLOAT32, (lin(16),), "output")
    x = Array("x", FLOAT32, (lin(64),), "input")
    (i,) = axes("i")
    low = None if lower is None else Lin({i: 4}, lower)
    high = None if upper is None else Lin({i: 4}, upper)
    read, write = Access(x, (lin(i),)), Access(h, (May(Ref(0, FLOAT32), low, high),))
    domain = ((("ge", lin(i)), ("ge", 3 - lin(i))),)
    s = Statement("h", "h", (i,), domain, (write,), (read,), (Ref(0, FLOAT32),), "compute")
    p = Program(Loop(i, At("h")), {"h": Placement.fresh(s, (i,))}, {}, (x, h), (), ())
    return p, i


def test_writes_through_a_loaded_index_run_in_order_unless_their_ranges_part() -> None:
    p, i = scatter(None, None)
    found = carried(p, i)
    assert found is not None and found.kind == "output"
    w = witness(p, found)
    assert w is not None and w.cell == (0,) and w.sizes == {}
    assert turned(p, backwards(p, i), ["h"]) is not None
    p, i = scatter(0, 3)
    assert carried(p, i) is None
    p, i = scatter(0, 4)
    assert carried(p, i) is not None


# -- cost
def test_a_question_past_its_budget_is_not_answered() -> None:
    p, a = cholesky()
    with knobs.override(isl_operations=1_000), pytest.raises(isl.BudgetExceeded, match="1,000"):
        carried(p, a["i"])
    assert carried(p, a["i"]) is not None


def test_a_step_on_the_tiled_matmul_is_judged_within_a_millisecond() -> None:
    p, a = split_matmul()
    r, (io, ii) = split(p, a["i"], 6, "io ii")
    r, (jo, ji) = split(r, a["j"], 64, "jo ji")
    r, (ko, ki) = split(r, a["k"], 256, "ko ki")
    assert isinstance(r.tree, Seq)
    q = r.change(tree=Seq((r.tree.items[0], nest((jo, ko, io, ki, ii, ji), At("C")))))
    best = 1.0
    for _ in range(5):
        began = time.perf_counter()
        assert turned(r, q, ["C"]) is None
        assert carried(q, jo) is None and carried(q, ji, lanes=True) is None
        best = min(best, time.perf_counter() - began)
    assert best < 3e-3


def test_sizes_that_the_program_rules_out_show_nothing() -> None:
    p, i, j = antidiagonal()
    q = reordered(p, "S", (j, i))
    few = (*p.context, ("ge", Lin({p.sizes[0]: -1}, 2)))
    assert turned(p.change(context=few), q.change(context=few), ["S"]) is None
    assert carried(p.change(context=few), i) is None
    assert carried(p, i) is not None
