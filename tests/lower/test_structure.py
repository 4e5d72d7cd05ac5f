"""What single passes decide: origins, registers, splits by sizes, and the rules of loops."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tensorir as tir
from tensorir.ir.affine import ZERO, Lin
from tensorir.ir.expr import Axis
from tensorir.ir.printer import loops_text
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run
from tensorir.lower import boxes, loops
from tensorir.lower.pipeline import loops_only, lower
from tensorir.lower.verify import verify
from tensorir.poly import tree
from tensorir.poly.model import Buffer, Program
from tensorir.poly.tree import At, Loop, Seq
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import InternalError
from tests.lower import cases
from tests.lower.cases import run
from tests.lower.interpret import Machine, check
from tests.poly.programs import Maker, axes


def test_origins_of_packed_panels_are_their_tiles() -> None:
    lowered = lower(cases.packed(cases.matmul()).program, cases.machine())
    found = {
        s.array.name: ([o.text() for o in s.origin], [e.text() for e in s.shape])
        for s in lowered.storages
    }
    assert found == {
        "B_cache": (["6*pc", "16*jc"], ["2", "6", "8"]),
        "A_cache": (["6*ic", "6*pc"], ["2", "6", "3"]),
        "C_local": (["6*ic + 3*ir", "16*jc + 8*jr"], ["3", "8"]),
    }


def test_a_whole_temporary_keeps_its_declared_extent() -> None:
    lowered = lower(cases.blur().program, cases.machine())
    (x,) = lowered.storages
    assert ([e.text() for e in x.shape], [o.text() for o in x.origin]) == (
        ["M + 2", "N"], ["0", "0"],
    )  # fmt: skip


def test_dimensions_of_one_are_dropped() -> None:
    s = cases.rows().vector_reduce("k", 4, accumulators=2)
    (x,) = lower(s.program, cases.machine()).storages
    assert ([e.const for e in x.shape], x.scope, x.register) == ([8], "register", 4)


def test_an_empty_reduction_is_tested_once_outside() -> None:
    s0 = cases.matmul()
    s = s0.split("k", 4).reorder("ko", "i", "j", "ki").init_at("C", "ko")
    lowered, _ = run(s0, s, *cases.small(3))
    text = loops_text(lowered.body)
    assert text.startswith("if K >= 1:") and "if K <= 0:" in text
    assert "max(" not in text


def test_printed_loops_are_not_split() -> None:
    s = cases.matmul().split("k", 4).reorder("ko", "i", "j", "ki").init_at("C", "ko")
    names = [x.axis.name for x in boxes.loops(loops_only(s.program))]
    assert len(names) == len(set(names))


def test_ranges_that_do_not_join_become_a_hull() -> None:
    s0 = cases.ring()
    lowered, _ = run(s0, s0.split("j", 4), (0,), (1,), (4,), (9,))
    assert lowered.body is not None


def test_the_same_loops_in_every_process() -> None:
    once = loops_text(lower(cases.packed(cases.matmul()).program, cases.machine()).body)
    again = loops_text(lower(cases.packed(cases.matmul()).program, cases.machine()).body)
    assert once == again


def test_projections_are_remembered() -> None:
    s = cases.packed(cases.matmul())
    p = s.program.placements["C"]
    lower(s.program, cases.machine())
    known = dict(loops._projections[p])
    lower(s.program, cases.machine())
    assert loops._projections[p] == known


def marked(s: Schedule, **widths: int) -> Program:
    """The program with loops made vector loops, whatever their nest."""
    t = s.program.tree
    for name, width in widths.items():
        for x in list(tree.loops(t)):
            if x.axis.name == name:
                t = tree.rewrite(t, x.axis, lambda y: replace(y, kind="vectorize", width=width))
    return s.program.change(tree=t)


def test_a_vector_loop_around_another_is_unrolled() -> None:
    s = cases.matmul(6, 8, 3)
    lowered = lower(marked(s, i=2, j=4), cases.machine())
    check(s.program, lowered, {})
    kinds = {x.axis.name: x.kind for x in boxes.loops(lowered.body)}
    assert (kinds["i"], kinds["j"]) == ("unroll", "vectorize")
    assert lowered.notes == ("i: a vector loop around another one is unrolled",)


def test_a_mark_without_constant_extent_is_left_serial() -> None:
    s = cases.elementwise()
    lowered = lower(marked(s, i=4), cases.machine())
    check(s.program, lowered, cases.sizes_of(s, (7,)))
    assert lowered.notes == ("i: no constant extent for vectorize: left serial",)


def test_an_extent_is_rounded_up_to_whole_vectors() -> None:
    s = cases.elementwise(11)
    lowered = lower(marked(s, i=4), cases.machine())
    check(s.program, lowered, {})
    (x,) = boxes.loops(lowered.body)
    assert (x.extent, x.width) == (12, 4)


def test_a_buffer_inside_a_vector_loop_has_one_copy_for_each_lane() -> None:
    s0 = cases.chain()
    s = s0.split("D.i", 4).compute_at("C", "ii").vectorize("ii", 4)
    lowered, _ = run(s0, s, (0,), (3,), (4,), (9,))
    x = next(x for x in lowered.storages if x.array.name == "C")
    assert ([e.const for e in x.shape], [a.name for a in x.lanes]) == ([3, 4], ["ii"])


# -- rules
def a_run() -> tuple[Run, For]:
    body = lower(cases.elementwise().program, cases.machine()).body
    (r,) = boxes.runs(body)
    (x,) = boxes.loops(body)
    return r, x


def broken(node: Node, rule: str, after: str = "normalise") -> None:
    with pytest.raises(InternalError, match=rule):
        verify(node, {}, after=after)


def test_rule_names_are_bound() -> None:
    r, x = a_run()
    verify(x, {}, after="normalise")
    broken(r, "no loop around it is over")
    broken(replace(x, upper=((1, Lin({Axis("q"): 1})),)), "names q")


def test_rule_no_loop_in_itself() -> None:
    _, x = a_run()
    broken(replace(x, body=x), "inside itself")


def test_rule_bounds_are_there() -> None:
    _, x = a_run()
    broken(replace(x, lower=()), "has no bound")


def test_rule_marked_loops_have_an_extent() -> None:
    _, x = a_run()
    broken(replace(x, kind="unroll"), "no constant extent")


def test_rule_vector_extents_are_whole() -> None:
    _, x = a_run()
    broken(replace(x, kind="vectorize", extent=6, width=4), "extent 6, width 4")


def test_rule_one_vector_loop_at_a_time() -> None:
    _, x = a_run()
    inner = replace(x, kind="vectorize", extent=4, width=4)
    outer = For(Axis("o"), ((1, ZERO),), ((1, Lin({}, 3)),), inner, "vectorize", 4, 4)
    broken(outer, "inside another")


def test_rule_tests_and_bounds_are_free_of_lanes() -> None:
    r, x = a_run()
    lane = replace(x, kind="vectorize", extent=4, width=4)
    fact = (("ge", Lin({x.axis: 1})),)
    broken(replace(lane, body=If(fact, r)), "depends on a lane")  # type: ignore[arg-type]
    inner = For(Axis("o"), ((1, ZERO),), ((1, Lin({x.axis: 1})),), r)
    broken(replace(lane, body=inner), "depends on a lane")


def test_rule_iterators_are_complete() -> None:
    r, x = a_run()
    broken(replace(x, body=replace(r, args=())), "0 of 1 iterators")


def test_rule_buffers_are_allocated() -> None:
    lowered = lower(cases.blur().program, cases.machine())
    assert isinstance(lowered.body, Alloc)
    storages = {s.array: s for s in lowered.storages}
    verify(lowered.body, storages, after="place")
    with pytest.raises(InternalError, match="not allocated"):
        verify(Block((lowered.body.body,)), storages, after="place")


def test_a_guard_stays_where_another_statement_writes_what_it_keeps_out() -> None:
    m = Maker("N", temps="b").shape(a="N,7", b="7", c="N,7")
    m.stmt("high", "t i", "0<=t<N, 3<=i<7", "b[i]", "a[t,i]")
    m.stmt("low", "t i", "0<=t<N, 0<=i<3", "b[i]", "a[t,i]")
    m.stmt("c", "t i", "0<=t<N, 0<=i<7", "c[t,i]", "b[i]")
    t, i, j, k = axes("t i j k")
    inner = (Loop(i, At("high")), Loop(j, At("low"), "vectorize", 4), Loop(k, At("c")))
    p = m.program(Loop(t, Seq(inner)), {"high": (t, i), "low": (t, j), "c": (t, k)})
    b, c = m.arrays["b"], m.arrays["c"]
    p = p.change(buffers={b: Buffer("local", (t,))})
    lowered = lower(p, cases.machine())
    (low,) = (r for r in boxes.runs(lowered.body) if r.statement.name == "low")
    assert [e.text() for e in low.conds] == ["-j + 2"]
    memory = Machine(lowered, {m.sizes["N"]: 2}).start().memory.arrays
    assert memory[c] == memory[m.arrays["a"]]


def test_a_tile_of_a_triangle_is_computed_whole() -> None:
    A = tir.placeholder((16, 16), name="A")
    B = tir.compute((16, 16), lambda x, y: A[x, y] * 2.0, name="B")
    j = tir.reduce_axis(16, name="j")
    C = tir.compute((16,), lambda i: tir.sum(B[i, j], axis=j, where=j <= i), name="C")
    s0 = tir.schedule(C)
    s = s0.split("i", 4).compute_at("B", "io").vectorize("y", width=4)
    lowered, _ = run(s0, s, {})
    guarded = [r for r in boxes.runs(lowered.body) if r.conds or r.read_conds]
    # its cells above the diagonal are private, and A is there whole
    assert not any(r.statement.name == "B" for r in guarded)
