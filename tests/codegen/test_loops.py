"""Loops, lanes and addresses: what is loaded and stored, and nothing else."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorir as tir
from tensorir.codegen import cpu
from tensorir.ir.dtype import dtype
from tensorir.runtime import threads
from tests.codegen.machine import assembly_of, call, link, run, source_of
from tests.properties.memory import guarded

RNG = np.random.default_rng(3)
TYPES = ["float32", "float64", "int8", "int16", "int64", "float16", "bfloat16", "bool"]


def data(shape: tuple[int, ...], d: str = "float32") -> np.ndarray:
    if d == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    return RNG.integers(-50, 50, shape).astype(dtype(d).numpy)


# -- layout of stores and loads


@pytest.mark.parametrize("d", TYPES)
@pytest.mark.parametrize("size", [(16, 16), (37, 21), (3, 50)])
def test_transpose(d: str, size: tuple[int, int]) -> None:
    n, m = size
    A = tir.placeholder((n, m), d, name="A")
    B = tir.compute((m, n), lambda i, j: A[j, i], name="B")
    s = tir.schedule(B)
    s = s.split("i", 8).split("j", 8).reorder("io", "jo", "ii", "ji")
    s = s.reorder("ji", "ii").vectorize("ii", 8).unroll("ji")
    x = data((n, m), d)
    assert np.array_equal(run(s, x), x.T)


def test_a_whole_square_is_transposed_in_registers() -> None:
    A = tir.placeholder((64, 64), name="A")
    B = tir.compute((64, 64), lambda i, j: A[j, i], name="B")
    s = tir.schedule(B).split("i", 16).split("j", 16).reorder("io", "jo", "ji", "ii")
    s = s.vectorize("ji", 16).unroll("ii")
    source = source_of(s)
    x = data((64, 64))
    assert np.array_equal(call(source, [x]).out, x.T)
    s = tir.schedule(B).split("i", 16).split("j", 16).reorder("io", "jo", "ji", "ii")
    s = s.vectorize("ii", 16).unroll("ji")
    source = source_of(s)
    assert np.array_equal(call(source, [x]).out, x.T)
    assert not [n for n in source.notes if "gather" in n or "scatter" in n]
    assert "extractelement" not in source.llvm


@pytest.mark.parametrize("d", ["float32", "int8", "float64"])
@pytest.mark.parametrize("parts", [2, 3, 6])
@pytest.mark.parametrize("n", [32, 41])
def test_interleaving(d: str, parts: int, n: int) -> None:
    A = tir.placeholder((parts, n), d, name="A")
    B = tir.compute((n, parts), lambda j, i: A[i, j], name="B")
    s = tir.schedule(B).split("j", 16).reorder("jo", "i", "ji").vectorize("ji", 16)
    s = s.unroll("i")
    x = data((parts, n), d)
    source = source_of(s)
    assert np.array_equal(call(source, [x]).out, x.T)
    if n % 16 == 0:
        assert not source.notes


@pytest.mark.parametrize("d", ["float32", "int8", "bool", "bfloat16"])
@pytest.mark.parametrize("stride", [2, 3, 4, 5])
@pytest.mark.parametrize("n", [16, 32, 37])
def test_strided_loads(d: str, stride: int, n: int) -> None:
    x = data(((n - 1) * stride + 1,), d)
    A = tir.placeholder(x.shape, d, name="A")
    B = tir.compute((n,), lambda i: A[stride * i], name="B")
    assert np.array_equal(run(tir.schedule(B).vectorize("i", 16), x), x[::stride])


@pytest.mark.parametrize("d", ["float32", "int8", "bool", "float64"])
@pytest.mark.parametrize("n", [16, 37])
def test_backwards(d: str, n: int) -> None:
    x = data((n,), d)
    A = tir.placeholder((n,), d, name="A")
    B = tir.compute((n,), lambda i: A[n - 1 - i], name="B")
    assert np.array_equal(run(tir.schedule(B).vectorize("i", 8), x), x[::-1])


def test_floors_in_indices() -> None:
    x = data((50,))
    A = tir.placeholder((50,), name="A")
    B = tir.compute((37,), lambda i: A[(i - 5) // 3 + 2] + A[i % 7] * 2, name="B")
    i = np.arange(37)
    want = x[(i - 5) // 3 + 2] + x[i % 7] * 2
    for s in (tir.schedule(B), tir.schedule(B).vectorize("i", 8)):
        assert np.array_equal(run(s, x), want)


def test_axes_as_values() -> None:
    n = tir.var("n")
    B = tir.compute(
        (n, n), lambda i, j: tir.select(i < 3, i + j, tir.cast(j * 2 - n, "int64")), name="B"
    )
    C = tir.compute((n,), lambda i: tir.cast(i, "float32") * 0.5, name="C")
    for size in (0, 1, 13, 32):
        i, j = np.mgrid[:size, :size]
        want = np.where(i < 3, i + j, j * 2 - size)
        for s in (tir.schedule(B), tir.schedule(B).vectorize("j", 16)):
            assert np.array_equal(run(s, sizes=(size,)), want)
        got = run(tir.schedule(C).vectorize("i", 8), sizes=(size,))
        assert np.array_equal(got, np.arange(size, dtype="float32") / 2)


# -- choices that guard


def unreadable(n: int) -> tuple[np.ndarray, mmap.mmap]:
    """`n` floats that end where memory must not be touched."""
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    x = np.frombuffer(area, np.float32, n, page - 4 * n)
    return x, area


def raw_call(source, pointers: list[int], sizes: tuple[int, ...] = ()) -> int:
    info = (ctypes.c_int64 * 4)()
    return link(source)(*pointers, *sizes, ctypes.addressof(info))


@pytest.mark.parametrize("width", [0, 8, 16])
@pytest.mark.parametrize("n", [1, 5, 16, 19])
def test_a_choice_reads_only_what_it_takes(n: int, width: int) -> None:
    m = 40
    A = tir.placeholder((n,), name="A")
    F = tir.placeholder((m,), "bool", name="F")
    affine = tir.compute((m,), lambda i: tir.if_then_else(i < n, A[i] + 1.0, -1.0), name="B")
    by_data = tir.compute(
        (m,),
        lambda i: tir.if_then_else(i < n, tir.if_then_else(F[i], tir.exp(A[i]), 0.5), 0.5),
        name="B",
    )
    x, area = unreadable(n)
    x[:] = np.arange(n) / 8
    i = np.arange(m)
    inside = i < n
    padded = np.zeros(m, np.float32)
    padded[:n] = x
    for out, flags in ((affine, False), (by_data, True)):
        s = tir.schedule(out)
        source = source_of(s.vectorize("i", width) if width else s)
        f = RNG.integers(0, 2, m).astype(bool)
        got = np.empty(m, np.float32)
        given = {"A": x.ctypes.data, "F": f.ctypes.data, "B": got.ctypes.data}
        assert raw_call(source, [given[a.name] for a in source.arguments]) == 0
        if flags:
            np.testing.assert_allclose(got, np.where(f & inside, np.exp(padded), 0.5), rtol=2e-7)
        else:
            assert np.array_equal(got, np.where(inside, padded + 1, -1).astype("float32"))
    del x, area


@pytest.mark.parametrize("width", [0, 8])
def test_tails_read_nothing_outside(width: int) -> None:
    for n in (1, 7, 8, 13):
        A = tir.placeholder((n,), name="A")
        B = tir.compute((n,), lambda i: A[i] * 2.0, name="B")
        s = tir.schedule(B)
        source = source_of(s.vectorize("i", width) if width else s)
        x, area = unreadable(n)
        x[:] = 3
        got = np.empty(n, np.float32)
        assert raw_call(source, [x.ctypes.data, got.ctypes.data]) == 0
        assert (got == 6).all()
        del x, area


# -- indices that are loaded


@pytest.mark.parametrize("width", [0, 8, 16])
@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
def test_gather(width: int, kind: str) -> None:
    T = tir.placeholder((11, 5), name="T")
    I = tir.placeholder((37,), kind, name="I")
    B = tir.compute((37, 5), lambda i, j: T[I[i], j], name="B")
    s = tir.schedule(B)
    s = s.reorder("j", "i").vectorize("i", width) if width else s
    t, i = data((11, 5)), RNG.integers(0, 11, 37).astype(kind)
    source = source_of(s)
    assert np.array_equal(call(source, [t, i]).out, t[i])
    if kind == "uint8":
        i[20] = 200
    else:
        i[20] = -3
    bad = call(source, [t, i])
    assert bad.status == 1
    assert bad.info[:2] == [int(i[20]), 11]
    message = source.checks[0].message.format(*bad.info)
    said = f"B indexes dimension 0 of T with {i[20]}, which is outside 0 to 11 (exclusive)"
    assert message == said
    clamped = call(source_of(s, index_check="clamp"), [t, i])
    assert clamped.status == 0
    assert np.array_equal(clamped.out, t[np.clip(i.astype(int), 0, 10)])


def test_an_index_into_rounded_up_storage_is_checked_by_what_was_declared() -> None:
    A, I = tir.placeholder((10,), name="A"), tir.placeholder((6,), "int64", name="I")
    T = tir.compute((10,), lambda i: A[i] + 1.0, name="T")
    B = tir.compute((6,), lambda i: T[I[i]], name="B")
    s = tir.schedule(B).vectorize("T.i", 16)
    a, i = data((10,)), np.array([0, 1, 4, 5, 12, 9])
    with pytest.raises(tir.KernelError, match="with 12, which is outside 0 to 10"):
        tir.build(s, args=[A, I, B])(a, i)
    clamped = tir.build(s, args=[A, I, B], index_check="clamp")(a, i)
    assert np.array_equal(clamped, a[np.clip(i, 0, 9)] + 1)


def test_a_checked_division_counts_only_in_the_arm_that_is_taken() -> None:
    A = tir.placeholder((7,), "int64", name="A")
    a = np.arange(7)
    B = tir.compute((7,), lambda i: A[i] + tir.if_then_else(i != 2, 4 // (i - 2), 0), name="B")
    C = tir.compute((7,), lambda i: A[i] + tir.select(i != 2, 4 // (i - 2), 0), name="C")
    want = a + [4 // (i - 2) if i != 2 else 0 for i in range(7)]
    for s in (tir.schedule(B), tir.schedule(B).vectorize("i", 4), tir.schedule(B).unroll("i")):
        assert np.array_equal(tir.build(s, checked=True)(a), want)
    with pytest.raises(tir.KernelError, match="division by zero in C"):
        tir.build(C, checked=True)(a)


def test_an_index_in_a_dead_lane_does_not_matter() -> None:
    T, I = tir.placeholder((4,), name="T"), tir.placeholder((10,), "int32", name="I")
    B = tir.compute((10,), lambda i: tir.if_then_else(I[i] >= 0, T[I[i]], -1.0), name="B")
    i = np.array([0, -1, 3, -7, 2, 2, -1, 1, 0, -1], "int32")
    t = data((4,))
    for s in (tir.schedule(B), tir.schedule(B).vectorize("i", 8)):
        assert np.array_equal(run(s, i, t), np.where(i >= 0, t[i % 4], -1).astype("float32"))


# -- reductions


def test_argmax_and_other_pairs() -> None:
    A = tir.placeholder((7, 33), name="A")
    k = tir.reduce_axis(33, name="k")
    out = tir.compute((7,), lambda i: tir.argmax(A[i, k], axis=k), name="M")
    x = data((7, 33))
    x[3, 5] = np.nan
    x[4, 9] = x[4, 30] = 99
    want = x.argmax(1)
    s = tir.schedule(out)
    outs = call(source_of(s), [x]).outputs
    assert np.array_equal(outs[0], want)
    assert np.array_equal(call(source_of(s.vectorize("i", 4)), [x]).outputs[0], want)


@pytest.mark.parametrize("d", ["float32", "int32", "float16", "float64"])
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_reduction_across_lanes(name: str, d: str) -> None:
    A = tir.placeholder((5, 100), d, name="A")
    k = tir.reduce_axis(100, name="k")
    out = tir.compute((5,), lambda i: getattr(tir, name)(A[i, k], axis=k), name="S")
    x = data((5, 100), d)
    if name == "prod":
        x = np.where(RNG.integers(0, 30, x.shape) == 0, x.dtype.type(2), x.dtype.type(1))
    s = tir.schedule(out).vector_reduce("k", 8)
    want = getattr(x.astype(np.float64), name)(axis=1)
    got = run(s, x)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-3)


# -- parallel loops


@pytest.fixture
def two_threads():
    before = threads.num_threads()
    threads.num_threads(2)
    yield
    threads.num_threads(before)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_parallel(n: int, two_threads: None) -> None:
    m = tir.var("m")
    A = tir.placeholder((m, 4000), name="A")
    T = tir.compute((m, 4000), lambda i, j: A[i, j] + 1.0, name="T")
    B = tir.compute((m, 4000), lambda i, j: T[i, j] * 2.0, name="B")
    s = tir.schedule(B).parallel("B.i").compute_at("T", "B.i").vectorize("B.j", 16)
    source = source_of(s)
    assert source.parallel
    x = data((n, 4000))
    got = call(source, [x], (n,))
    assert got.status == 0
    assert np.array_equal(got.out, (x + 1) * 2)


def test_a_busy_region_runs_alone(two_threads: None) -> None:
    A = tir.placeholder((64, 4000), name="A")
    B = tir.compute((64, 4000), lambda i, j: A[i, j] + 1.0, name="B")
    source = source_of(tir.schedule(B).parallel("i"))
    x = data((64, 4000))
    threads._busy.value = 1
    try:
        assert np.array_equal(call(source, [x]).out, x + 1)
        assert threads._busy.value == 1
    finally:
        threads._busy.value = 0
    assert np.array_equal(call(source, [x]).out, x + 1)
    assert threads._busy.value == 0


# -- checks


def test_no_memory_is_a_status() -> None:
    n = tir.var("n")
    A = tir.placeholder((1,), name="A")
    T = tir.compute((n, n), lambda i, j: A[0] + 1.0, name="T")
    k = tir.reduce_axis(n, name="k")
    out = tir.compute((1,), lambda i: tir.sum(T[k, k], axis=k), name="S")
    source = source_of(out)
    fine = call(source, [data((1,))], (3,))
    assert fine.status == 0
    # run with nothing but a size: 2**80 bytes cannot be had, and nothing may be touched
    one, got = np.ones(1, np.float32), np.ones(1, np.float32)
    status = raw_call(source, [one.ctypes.data, got.ctypes.data], (1 << 39,))
    assert source.checks[status - 1].message.startswith("out of memory")
    assert got[0] == 1


@pytest.mark.parametrize("width", [0, 8])
def test_checked_division_and_shift(width: int) -> None:
    X, Y = (tir.placeholder((13,), "int32", name=n) for n in "XY")
    out = tir.compute((13,), lambda i: X[i] // Y[i] + (X[i] << (Y[i] & 63)), name="Q")
    s = tir.schedule(out)
    source = source_of(s.vectorize("i", width) if width else s, checked=True)
    x, y = np.arange(13, dtype="int32"), np.full(13, 3, "int32")
    assert call(source, [x, y]).status == 0
    y[12] = 0
    bad = call(source, [x, y])
    assert source.checks[bad.status - 1].message == "division by zero in Q"
    y[12] = 40
    bad = call(source, [x, y])
    assert source.checks[bad.status - 1].message.startswith("shift by 32 or more bits")


# -- what a call must know


def test_in_place_and_partial() -> None:
    A, B = (tir.placeholder((8, 8), name=n) for n in "AB")
    plain = source_of(tir.compute((8, 8), lambda i, j: A[i, j] + B[i, j], name="C"))
    assert plain.arguments[2].in_place == ("A", "B")
    assert not plain.arguments[2].partial
    moved = source_of(tir.compute((8, 8), lambda i, j: A[i, j] + B[j, i], name="C"))
    assert moved.arguments[2].in_place == ("A",)
    assert "noalias readonly align 4 %a1" in moved.llvm
    part = source_of(tir.compute((8, 8), lambda i, j: A[i, j], name="C", where=lambda i, j: j <= i))
    assert part.arguments[1].partial
    assert plain.operations[0][0] == 1
    assert len(plain.bytes_moved) == 3


_PROGRAM = """
import tensorir as tir
from tests.codegen.machine import source_of
from tests.codegen.test_loops import tiled
print(source_of(tiled()).llvm)
"""


def tiled() -> tir.Schedule:
    m, n, k = (tir.var(x) for x in "mnk")
    A, B = tir.placeholder((m, k), name="A"), tir.placeholder((k, n), name="B")
    r = tir.reduce_axis(k, name="r")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")
    D = tir.compute((m, n), lambda i, j: tir.tanh(C[i, j]), name="D")
    s = tir.schedule(D).split("C.i", 4).split("C.j", 32)
    s = s.reorder("C.io", "C.jo", "r", "C.ii", "C.ji").vectorize("C.ji", 16).unroll("C.ii")
    return s.vectorize("D.j", 16).parallel("D.i")


def test_the_same_text_in_every_process() -> None:
    root = Path(__file__).resolve().parents[2]
    texts = set()
    for seed in ("0", "1", "7"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, env=env, cwd=root
        )
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    assert len(texts) == 1


@pytest.mark.parametrize("d", ["float32", "float16"])
def test_deep_expressions(d: str) -> None:
    A = tir.placeholder((5,), d, name="A")

    def deep(i: tir.Axis) -> tir.Expr:
        x = A[i]
        for _ in range(140):
            x = tir.tanh(x)
        return x

    s = tir.schedule(tir.compute((5,), deep, name="B")).vectorize("i", 4)
    x = np.linspace(0.1, 1, 5).astype(d)
    want = x.astype(np.float64)
    for _ in range(140):
        want = np.tanh(want)
    np.testing.assert_allclose(run(s, x).astype(float), want, rtol=1e-4 if d == "float32" else 0.1)


def test_narrower_machines() -> None:
    s = tiled()
    x, y = data((9, 7)), data((7, 35))
    want = np.tanh((x @ y).astype(np.float64))
    for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        source = source_of(s, name)
        sizes = {"m": 9, "n": 35, "k": 7}
        got = call(source, [x, y], [sizes[v.name] for v in source.sizes]).out
        np.testing.assert_allclose(got, want, atol=1e-6)
    assert "zmm" not in assembly_of(source_of(s, "x86-64-v3"))
    assert cpu.target("x86-64-v2").vector_bytes == 16


def test_lanes_of_a_reduction_keep_every_bit_where_the_trace_says_so() -> None:
    A = tir.placeholder((3, 5), name="A")
    k = tir.reduce_axis(5, name="k")
    S = tir.compute((3,), lambda i: tir.sum(A[i, k] * A[i, k], axis=k), name="S")
    s = tir.schedule(S).split("k", 8).vectorize("ko", width=4)
    assert not any(step.reassociates for step in s.trace.steps)
    a = np.random.default_rng(0).random((3, 5), np.float32)
    assert tir.build(s)(a).tobytes() == tir.build(S)(a).tobytes()


@pytest.mark.parametrize("d", ["float32", "float64", "int32"])
def test_registers_that_are_masked_off_whole_are_not_read(d: str) -> None:
    A, B = (tir.placeholder((7,), d, name=n) for n in "AB")
    S = tir.compute((7,), lambda j: A[j] + B[j], name="S")
    a = np.arange(7).astype(d)
    for width in (8, 16, 32):  # lanes of which a block of four uses four
        s = tir.schedule(S).split("j", 4).cache_write("S", "global", at="jo")
        s = s.vectorize("ji", width=width)
        for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
            f = tir.build(s, target=name)
            assert f(guarded(a), guarded(a)).tobytes() == (a + a).tobytes()
