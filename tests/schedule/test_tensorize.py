"""Nests replaced by declared instructions: what is accepted, what is called, what it computes."""

from __future__ import annotations

import numpy as np
import pytest

import tensorir as tir
from tensorir.codegen import cpu
from tensorir.codegen.emit import emit
from tensorir.codegen.source import KernelSource
from tensorir.ir.intrinsic import named, names
from tensorir.ir.target import Target
from tensorir.lower.pipeline import lower

BYTES = "avx512vnni.vpdpbusd.512"


def product(m: object, n: object, k: object, a: str = "uint8", b: str = "int8") -> tir.Schedule:
    """`C = A @ B` in int32, the second operand on the left of the product."""
    A, B = tir.placeholder((m, k), a, name="A"), tir.placeholder((k, n), b, name="B")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute(
        (m, n),
        lambda i, j: tir.sum(
            tir.cast(B[r, j], "int32") * tir.cast(A[i, r], "int32"), axis=r, dtype="int32"
        ),
        name="C",
    )
    return tir.schedule(C)


def tiled(s: tir.Schedule, lanes: int = 16, group: int = 4) -> tir.Schedule:
    """B in panels of groups, a tile of C of one row in lanes."""
    s = s.split("j", lanes, into=("jo", "ji")).split("k", group, into=("ko", "kg"))
    s = s.reorder("i", "jo", "ko", "ji", "kg")
    s = s.cache_write("C", "local", at="jo", name="tile")
    b = "B_pad" if "B_pad" in s.stages else "B"
    s = s.cache_read(b, name="P")
    return s.transform_layout("P", lambda k, j: (j // lanes, k // group, j % lanes, k % group))


def source(s: tir.Schedule, target: Target) -> KernelSource:
    return emit(lower(s.program, target), target)


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (m, k)).astype(np.uint8)
    return a, rng.integers(-128, 128, (k, n)).astype(np.int8)


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)


@pytest.mark.parametrize("n", [48, 37])
def test_the_dot_product_is_called_and_exact(n: int) -> None:
    """A tile that is not full along the lanes too: its operands are padded to whole tiles."""
    s = tiled(product(3, n, 24)).tensorize("ji", BYTES)
    a, b = operands(3, n, 24)
    made = source(s, cpu.target("znver4"))
    assert "call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(" in made.llvm
    assert not any("loops in place" in note for note in made.notes)
    if cpu.target().has("avx512vnni"):
        kernel = tir.build(s, validate=True)
        assert np.array_equal(kernel(b, a), exact(a, b))


def test_the_accumulators_stay_in_registers_and_the_init_in_lanes() -> None:
    s = tiled(product(3, 64, 24)).tensorize("ji", BYTES)
    assert "for C.init.ji in 0..16  # vectorize 16" in s.loops()
    assert not any("not in registers" in n for n in source(s, cpu.target("znver4")).notes)


def test_a_group_that_is_not_full_is_padded_first() -> None:
    a, b = operands(3, 37, 26)
    with pytest.raises(tir.ScheduleError, match="not full along 'kg'"):
        tiled(product(3, 37, 26)).tensorize("ji", BYTES)
    s = tiled(product(3, 37, 26).pad_reduction("k", 4)).tensorize("ji", BYTES)
    if cpu.target().has("avx512vnni"):
        assert np.array_equal(tir.build(s)(b, a), exact(a, b))


def test_a_trace_replays() -> None:
    s = tiled(product(3, 37, 26).retype("C", "A", "int16").pad_reduction("k", 4), 8, 4)
    s = s.undo()
    again = tir.replay(product(3, 37, 26), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()
    s = tiled(product(3, 32, 24)).tensorize("ji", BYTES)
    again = tir.replay(product(3, 32, 24), tir.Trace.from_json(s.trace.to_json()))
    assert again.loops() == s.loops()


def test_an_instruction_of_the_user() -> None:
    a = tir.placeholder((8,), name="a")
    c = tir.compute((8,), lambda i: tir.sqrt(a[i]), name="c")
    root = tir.intrinsic("test.sqrt", c, [(a, ("i",))], llvm="llvm.sqrt.v8f32", features="avx2")
    A = tir.placeholder((5, 16), name="A")
    B = tir.compute((5, 16), lambda i, j: tir.sqrt(A[i, j]), name="B")
    s = tir.schedule(B).split("j", 8).tensorize("ji", root)
    assert s.trace.steps[-1].text == 'tensorize("ji", "test.sqrt")'
    x = np.random.default_rng(0).random((5, 16), np.float32)
    assert np.array_equal(tir.build(s, target="x86-64-v3")(x), np.sqrt(x))
    assert "call <8 x float> @llvm.sqrt.v8f32(" in source(s, cpu.target("x86-64-v3")).llvm


def test_a_result_that_is_added() -> None:
    """vpmaddwd gives sums of pairs and takes no accumulator."""
    s = product(3, 37, 26).retype("C", "A", "int16").retype("C", "B", "int16")
    s = s.split("j", 8, into=("jo", "ji")).split("k", 2, into=("ko", "kg"))
    s = s.reorder("i", "jo", "ko", "ji", "kg").cache_write("C", "local", at="jo", name="tile")
    s = s.transform_layout("B_int16", lambda k, j: (j // 8, k // 2, j % 8, k % 2))
    s = s.tensorize("ji", "avx2.vpmaddwd.256")
    a, b = operands(3, 37, 26)
    assert np.array_equal(tir.build(s, target="x86-64-v3")(b, a), exact(a, b))


def test_a_nest_that_a_later_step_changes_stays_loops() -> None:
    s = tiled(product(3, 32, 24)).tensorize("ji", BYTES)
    s = s.transform_layout("P", lambda k, j: (k, j))
    made = source(s, cpu.target("znver4"))
    assert "ji: loops in place of avx512vnni.vpdpbusd.512: an operand does not lie as it is " \
        "declared" in made.notes  # fmt: skip
    assert "llvm.x86.avx512.vpdpbusd.512(" not in made.llvm
    if cpu.target().has("avx512vnni"):
        a, b = operands(3, 32, 24)
        assert np.array_equal(tir.build(s)(b, a), exact(a, b))


def test_rounding_is_told() -> None:
    A, B = (
        tir.placeholder((2,), "bfloat16", name="A"),
        tir.placeholder((16, 2), "bfloat16", name="B"),
    )
    r = tir.reduce_axis(2, name="k")
    C = tir.compute(
        (16,),
        lambda i: tir.sum(tir.cast(A[r], "float32") * tir.cast(B[i, r], "float32"), axis=r),
        name="C",
    )
    s = tir.schedule(C).decompose_reduction("C", "i")
    assert s.check("tensorize", "i", "avx512bf16.vdpbf16ps.512").reassociates
    step = s.tensorize("i", "avx512bf16.vdpbf16ps.512").trace.steps[-1]
    assert step.notes == (
        "avx512bf16.vdpbf16ps.512: sums each pair before the lane, rounds to nearest even, "
        "subnormals flushed",
    )


def test_declarations_of_the_library() -> None:
    assert names()[:3] == [
        "avx512vnni.vpdpbusd.512", "avx512vnni.vpdpwssd.512", "avx512bf16.vdpbf16ps.512",
    ]  # fmt: skip
    dot = named("avx512vnni.vpdpbusd.256")
    assert dot is not None
    assert dot.features == (("avx512vnni", "avx512vl"), ("avxvnni",))
    assert [o.elements for o in dot.operands] == [8, 32, 32]
    assert dot.accumulates
    assert dot.numerics.text == "exact"


# -- operands


@pytest.mark.parametrize("by", [0, 1, -1, 127, -128])
def test_retype_keeps_every_bit(by: int) -> None:
    a, b = operands(3, 5, 300)
    a[:], b[:] = 255, -128  # sums that wrap in some other types, not here
    a[0] = 0
    s = product(3, 5, 300).retype("C", "A", "int16", by)
    assert not s.trace.steps[-1].reassociates
    assert np.array_equal(tir.build(s)(b, a), exact(a, b))
    s = s.retype("C", "B", "int32", 1000 * by)
    assert np.array_equal(tir.build(s, validate=True)(b, a), exact(a, b))


def test_retype_of_a_sum() -> None:
    A = tir.placeholder((5, 9), "int8", name="A")
    r = tir.reduce_axis(9, name="k")
    C = tir.compute((5,), lambda i: tir.sum(tir.cast(A[i, r], "int64"), axis=r), name="C")
    s = tir.schedule(C).retype("C", "C", "int16", name="S")
    assert s.loops() == (
        "for i in 0..5\n  S[i] = 0\n  for k in 0..9\n    S[i] = S[i] + int16(A[i, k])\n"
        "  C[i] = int64(S[i])"
    )
    a = np.full((5, 9), -128, np.int8)
    assert np.array_equal(tir.build(s, validate=True)(a), a.astype(np.int64).sum(1))
    with pytest.raises(tir.ScheduleError, match="int8 does not hold every sum of C"):
        tir.schedule(C).retype("C", "C", "int8")


def test_retype_of_a_float() -> None:
    A = tir.placeholder((7,), "bfloat16", name="A")
    B = tir.compute((7,), lambda i: tir.cast(A[i], "float32") * 2.0, name="B")
    s = tir.schedule(B).retype("B", "A", "float32", name="W")
    assert s.loops() == (
        "for W.i in 0..7\n  W[W.i] = float32(A[W.i])\nfor i in 0..7\n  B[i] = W[i] * 2.0"
    )


def test_retype_that_changes_nothing() -> None:
    with pytest.warns(tir.TensorIRWarning, match="A is uint8 already"):
        product(3, 5, 8).retype("C", "A", "uint8")


@pytest.mark.parametrize("k", [1, 3, 4, 7])
def test_pad_reduction(k: int) -> None:
    n = tir.var("n")
    a, b = operands(3, 5, k)
    for size in (k, n):
        s = product(3, 5, size)
        if size is n or k % 4:
            s = s.pad_reduction("k", 4)
            assert {"A_pad", "B_pad"} <= set(s.stages)
        assert np.array_equal(tir.build(s)(b, a), exact(a, b))


def test_pad_reduction_of_floats_with_infinities() -> None:
    """Both operands are padded, so that nothing is multiplied by infinity past the end."""
    A, B = tir.placeholder((3,), name="A"), tir.placeholder((3,), name="B")
    r = tir.reduce_axis(3, name="k")
    C = tir.compute((1,), lambda i: tir.sum(A[r] * B[r], axis=r), name="C")
    s = tir.schedule(C).pad_reduction("k", 8)
    assert s.trace.steps[-1].reassociates
    a = np.array([np.inf, 1, 2], np.float32)
    assert tir.build(s)(a, a)[0] == np.inf
