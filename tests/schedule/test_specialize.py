"""One kernel, a copy of the nest for each condition on sizes."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tensorir.emulator.validate import choices
from tensorir.ir.stmt import If


def two_stages() -> tir.Tensor:
    m, n = tir.var("m"), tir.var("n")
    A = tir.placeholder((m, n), name="A")
    X = tir.compute((m, n), lambda i, j: A[i, j] * 2.0, name="X")
    return tir.compute((m, n), lambda i, j: X[i, j] + X[i, j] * A[i, j], name="B")


def scheduled(*conditions: object) -> tir.Schedule:
    s = tir.schedule(two_stages()).vectorize("B.j", 8).compute_at("X", "B.i")
    return s.specialize(*conditions).parallel("B.i")


CONDITIONS = ("(n == 64) & (m >= 4)", "n % 8 == 0", "m <= 2")
SIZES = [(4, 64), (8, 64), (3, 64), (2, 5), (5, 16), (7, 33), (0, 3), (1, 0)]


@pytest.fixture(scope="module")
def kernel() -> tir.Kernel:
    return tir.build(scheduled(*CONDITIONS), validate=True)


@pytest.mark.parametrize("size", SIZES)
def test_every_version_is_right(kernel: tir.Kernel, size: tuple[int, int]) -> None:
    a = np.random.default_rng(0).standard_normal(size).astype("float32")
    kernel.check(a, against=lambda a: a * 2 + a * 2 * a)


def test_what_a_condition_fixes_is_a_constant(kernel: tir.Kernel) -> None:
    first = kernel.loops.split("else:")[0].splitlines()
    assert first[0] == "if n == 64 and m >= 4:"
    assert "alloc X: float32[64]  # stack" in [line.strip() for line in first]
    assert "for j in 0..8:" in [line.strip() for line in first]
    assert not any("if 8*j" in line for line in first)
    # rows of A are 64 floats apart in that copy, and n apart in the others
    assert "getelementptr float, ptr %in" in kernel.llvm


def test_the_nest_shows_the_versions() -> None:
    text = str(scheduled("n % 8 == 0").loops()).splitlines()
    assert text[0] == "if n%8 == 0"
    assert text[1] == "  for i in 0..m  # parallel"
    assert text[8] == "else"
    assert len(text) == 16


def test_trace_replays_from_text() -> None:
    n, m = tir.var("n"), tir.var("m")
    A = tir.placeholder((m, n), name="A")
    B = tir.compute((m, n), lambda i, j: A[i, j] + 1.0, name="B")
    s = tir.schedule(B).specialize((n == 64) & (m >= 4), n % 16 == 0, tir.maximum(n, m) < 9)
    assert s.step is not None
    assert s.step.args == ("(n == 64) & (m >= 4)", "n % 16 == 0", "(n <= 8) & (m <= 8)")
    again = tir.replay(tir.schedule(B), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()
    assert again.program.specializations == s.program.specializations


def test_conditions_add_up_in_order() -> None:
    s = tir.schedule(two_stages()).specialize("n == 1").specialize("n <= 4", "n == 1")
    assert [len(c) for c in s.program.specializations] == [1, 1]
    assert s.step is not None
    assert s.step.notes == (
        "n == 1 never holds where no earlier condition does",
        "3 copies of the nest",
    )


@pytest.mark.parametrize("condition", [True, False, "n >= 0", "n < 0"])
def test_what_is_decided_already_has_no_effect(condition: object) -> None:
    s = tir.schedule(two_stages())
    with pytest.warns(tir.TensorIRWarning):
        after = s.specialize(condition)
    assert after.program.specializations == ()
    assert after.step is not None
    assert after.step.idle


def test_constant_sizes_compare_to_a_bool() -> None:
    n = 24
    A = tir.placeholder((n,), name="A")
    s = tir.schedule(tir.compute((n,), lambda i: A[i] + 1.0, name="B"))
    with pytest.warns(tir.TensorIRWarning):
        s = s.specialize(n % 16 == 0)
    assert s.step is not None
    assert s.step.text == "specialize(False)"
    assert tir.replay(s.at(0), s.trace).loops() == s.loops()


def test_validation_meets_every_version() -> None:
    program = scheduled(*CONDITIONS).program
    met = set()
    for sizes in list(choices(program))[:3]:
        holds = [
            all(e.evaluate(sizes) >= 0 if k == "ge" else e.evaluate(sizes) == 0 for k, e in conj)
            for conj in program.specializations
        ]
        met.add(holds.index(True))
    assert met == {0, 1, 2}


def test_versions_are_tests_at_the_top() -> None:
    from tensorir.codegen import cpu
    from tensorir.lower.pipeline import lower

    lowered = lower(scheduled(*CONDITIONS).program, cpu.target("x86-64-v3"))
    node, found = lowered.body, 0
    while isinstance(node, If) and node in lowered.versions:
        found, node = found + 1, node.other
    assert found == 3 == len(lowered.versions)
    assert len({s.array for s in lowered.storages}) == 4
