"""Lowered loops run every instance exactly once and compute what the declaration says."""

from __future__ import annotations

import pytest

from tensorir.ir.printer import loops_text
from tensorir.ir.stmt import For, If
from tensorir.lower import boxes
from tensorir.lower.pipeline import Lowered
from tests.lower import cases
from tests.lower.cases import run


def kinds(lowered: Lowered, kind: str) -> list[For]:
    return [x for x in boxes.loops(lowered.body) if x.kind == kind]


def ifs(lowered: Lowered) -> int:
    return loops_text(lowered.body).count("if ")


@pytest.mark.parametrize("layout", [True, False])
@pytest.mark.parametrize("init_at", [True, False])
def test_packed_matmul(layout: bool, init_at: bool) -> None:
    s0 = cases.matmul()
    s = cases.packed(s0, layout=layout, init_at=init_at)
    lowered, ran = run(s0, s, *cases.small(3), (5, 21, 13))
    assert any(m.extra for m in ran)
    acc = next(x for x in lowered.storages if x.array.name == "C_local")
    assert (acc.scope, acc.register, acc.notes) == ("register", 4, ())
    assert lowered.notes == ()


def test_packed_micro_kernel_has_no_guard() -> None:
    s0 = cases.matmul()
    lowered, _ = run(s0, cases.packed(s0), (7, 9, 5))
    update = [x for x in boxes.runs(lowered.body) if x.statement.name == "C"]
    assert update and all(x.conds == () and x.read_conds == () for x in update)
    widths = {x.extent for x in kinds(lowered, "vectorize") if x.axis.name == "ji"}
    assert widths == {4, 8}


@pytest.mark.parametrize(("n", "narrow"), [(16, {8}), (20, {4, 8}), (23, {8}), (12, {4, 8})])
def test_constant_sizes_get_the_narrow_panel_that_occurs(n: int, narrow: set[int]) -> None:
    s0 = cases.matmul(6, n, 6)
    lowered, _ = run(s0, cases.packed(s0))
    assert {x.extent for x in kinds(lowered, "vectorize") if x.axis.name == "ji"} == narrow


@pytest.mark.parametrize("sizes", [(6, 16, 6), (7, 17, 5), (2, 3, 4), (2, 2, 2)])
def test_packed_matmul_of_constant_sizes(sizes: tuple[int, ...]) -> None:
    s0 = cases.matmul(*sizes)
    run(s0, cases.packed(s0))


def test_full_prefix_and_masked_suffix() -> None:
    s0 = cases.elementwise()
    lowered, _ = run(s0, s0.vectorize("i", 64), (0,), (1,), (63,), (64,), (65,), (200,))
    assert loops_text(lowered.body) == GOLDEN_ELEMENTWISE
    assert ifs(lowered) == 1


GOLDEN_ELEMENTWISE = """\
for i in 0..N//64:
  for i.v in 0..64:  # vectorize 16
    B[64*i + i.v] = A[64*i + i.v] * 2.0 + 1.0
for i in max(0, N//64)..(N+63)//64:
  for i.v in 0..64:  # vectorize 16
    if 64*i + i.v < N:
      B[64*i + i.v] = A[64*i + i.v] * 2.0 + 1.0"""


def test_guard_tail_is_never_versioned() -> None:
    s0 = cases.elementwise()
    s = s0.split("i", 8, tail="guard").vectorize("ii", 8)
    lowered, _ = run(s0, s, (0,), (7,), (8,), (30,))
    assert len(kinds(lowered, "vectorize")) == 1


def test_guard_tail_holds_for_the_loops_of_the_init_too() -> None:
    s0 = cases.matmul(19, 33, 6)
    s = s0.tile("i", "j", 4, 8, tail="guard").reorder("io", "jo", "k", "ii", "ji")
    lowered, _ = run(s0, s.vectorize("ji", 8).unroll("ii"), ())
    assert len(kinds(lowered, "vectorize")) == 2
    assert ifs(lowered) == 2  # guards, no test


def test_cut_tail_separates_serial_loops() -> None:
    s0 = cases.elementwise()
    s = s0.split("i", 8, tail="cut")
    lowered, _ = run(s0, s, (0,), (7,), (8,), (30,))
    inner = [x for x in boxes.loops(lowered.body) if x.axis.name == "ii"]
    assert [x.extent for x in inner] == [8, None]


def test_cut_tail_has_one_version_of_the_partial_block() -> None:
    s0 = cases.elementwise()
    s = s0.split("i", 8, tail="cut").vectorize("ii", 8)
    lowered, _ = run(s0, s, (0,), (7,), (8,), (30,))
    assert len(kinds(lowered, "vectorize")) == 2
    assert ifs(lowered) == 1


def test_auto_tail_of_a_serial_loop_is_one_loop() -> None:
    s0 = cases.elementwise()
    lowered, _ = run(s0, s0.split("i", 8), (0,), (7,), (8,), (30,))
    assert len(list(boxes.loops(lowered.body))) == 2


def test_parallel_loop_keeps_one_region() -> None:
    s0 = cases.elementwise()
    s = s0.split("i", 8).vectorize("ii", 8).parallel("io")
    lowered, _ = run(s0, s, (0,), (7,), (8,), (30,))
    assert len(kinds(lowered, "parallel")) == 1
    assert any(isinstance(x.body, If) for x in kinds(lowered, "parallel"))


def test_unroll_by_a_factor() -> None:
    s0 = cases.elementwise()
    lowered, _ = run(s0, s0.unroll("i", 4), (0,), (3,), (4,), (11,))
    assert [x.extent for x in kinds(lowered, "unroll")] == [4, 4]


def test_stage_under_its_consumer_in_registers() -> None:
    s0 = cases.blur()
    s = s0.tile("Y.y", "Y.x", 2, 8).compute_at("X", "xo").set_scope("X", "local")
    s = s.vectorize("xi", 8).vectorize("X.x", 8).unroll("yi")
    lowered, _ = run(s0, cases.widths(s, 4), *cases.small(2), (5, 21))
    (x,) = lowered.storages
    assert (x.scope, x.register, [e.const for e in x.shape]) == ("register", 4, [4, 8])


def test_a_shifted_read_keeps_a_buffer_in_memory() -> None:
    s0 = cases.blur()
    s = s0.split("Y.y", 4).compute_at("X", "yo").set_scope("X", "local")
    lowered, _ = run(s0, s, *cases.small(2))
    assert lowered.storages[0].scope == "arena"
    assert any("not in registers" in n for n in lowered.notes)


def test_triangle_with_lanes_across_the_diagonal() -> None:
    s0 = cases.triangle()
    s = s0.tile("i", "j", 4, 4).vectorize("ji", 4).unroll("ii")
    lowered, _ = run(s0, s, (0,), (1,), (5,), (9,), (12,))
    assert kinds(lowered, "vectorize")


def test_lanes_that_bound_an_inner_loop() -> None:
    s0 = cases.triangle()
    s = s0.split("i", 4).reorder("io", "j", "ii").vectorize("ii", 4)
    lowered, _ = run(s0, s, (0,), (1,), (5,), (9,))
    assert kinds(lowered, "vectorize")


def test_reduction_in_lanes() -> None:
    s0 = cases.rows()
    s = s0.vector_reduce("k", 4, accumulators=2)
    run(s0, s, *cases.small(2), (3, 29))


def test_global_temporary_is_allocated_at_the_top() -> None:
    s0 = cases.blur()
    lowered, _ = run(s0, s0.parallel("Y.y").parallel("X.y"), *cases.small(2))
    assert loops_text(lowered.body).startswith("alloc X")
    assert lowered.storages[0].scope == "arena"


def test_buffer_of_a_parallel_loop_is_allocated_inside_it() -> None:
    s0 = cases.blur()
    s = s0.split("Y.y", 2).compute_at("X", "yo").parallel("yo")
    lowered, _ = run(s0, s, *cases.small(2))
    text = loops_text(lowered.body)
    assert text.index("parallel") < text.index("alloc X")


def test_sizes_that_the_context_fixes_are_constants() -> None:
    from tensorir.ir.affine import Lin

    s0 = cases.elementwise()
    s = s0.vectorize("i", 8)
    (n,) = s.program.sizes
    context = (*s.program.context, ("eq", Lin({n: 1}, -16)))
    from tensorir.lower.pipeline import lower

    lowered = lower(s.program.change(context=context), cases.machine())
    assert ifs(lowered) == 0
