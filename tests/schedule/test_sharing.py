"""Storage that stages share, and updates that threads make at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tensorir as tir

Reduction = Callable[..., tir.Expr]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Parallel loops are, however small."""
    before = tir.knobs.parallel_threshold
    tir.knobs.parallel_threshold = 0
    yield
    tir.knobs.parallel_threshold = before


# -- reuse
def pipeline(n: object) -> tir.Tensor:
    A = tir.placeholder((n,), name="A")
    X = tir.compute((n,), lambda x: A[x] + 1.0, name="X")
    Y = tir.compute((n,), lambda y: X[y] * 2.0, name="Y")
    Z = tir.compute((n,), lambda z: Y[z] - 3.0, name="Z")
    return tir.compute((n,), lambda i: Z[i] * Z[i], name="O")


def piped(a: np.ndarray) -> np.ndarray:
    return ((a + 1) * 2 - 3) ** 2


def test_intermediates_in_one_array() -> None:
    s = tir.schedule(pipeline(tir.var("n"))).reuse("X", "Y").reuse("Z", "O").reuse("Y", "O")
    assert [a.name for a in s.program.arrays] == ["A", "O"]
    kernel = tir.build(s.vectorize("x", 8).parallel("z"), validate=True)
    assert "alloc" not in kernel.loops
    for n in (0, 1, 9, 100):
        kernel.check(np.arange(n, dtype="float32"), against=piped)


def test_what_is_shared_keeps_its_order() -> None:
    s = tir.schedule(pipeline(16)).reuse("X", "Y")
    for primitive, *arguments in (
        ("compute_at", "Y", "z"), ("compute_inline", "X"), ("cache_read", "Y"), ("cache_write", "Y")
    ):  # fmt: skip
        verdict = s.check(primitive, *arguments)
        assert not verdict
        assert "several values in turn" in verdict.reason
    assert s.check("split", "y", 4)


def test_partly_overlapping_cells_are_found() -> None:
    n = tir.var("n")
    A = tir.placeholder((n + 1,), name="A")
    X = tir.compute((n + 1,), lambda x: A[x] + 1.0, name="X")
    forward = tir.schedule(tir.compute((n,), lambda i: X[i + 1] * 2.0, name="Y"))
    assert "does not fit" in forward.check("reuse", "X", "Y").reason
    B = tir.placeholder((n,), name="B")
    W = tir.compute((n,), lambda x: B[x] + 1.0, name="W")
    body = lambda i: tir.if_then_else(i >= 1, W[i - 1], 0.0)  # noqa: E731
    back = tir.schedule(tir.compute((n,), body, name="V"))
    refused = back.check("reuse", "W", "V")
    assert refused.reason == (
        "reuse: V[i = 0] would overwrite a value of W that V[i = 1] still reads, n = 2"
    )
    ahead = lambda i: tir.if_then_else(i < n - 1, W[i + 1], 0.0)  # noqa: E731
    s = tir.schedule(tir.compute((n,), ahead, name="U")).reuse("W", "U")
    kernel = tir.build(s, validate=True)
    for size in (1, 2, 9):
        kernel.check(
            np.arange(size, dtype="float32"),
            against=lambda b: np.concatenate([b[1:] + 1, np.zeros(1, "float32")]),
        )
    assert not s.check("parallel", "U.i")


def test_an_output_that_is_not_rewritten_everywhere() -> None:
    A = tir.placeholder((8,), name="A")
    X = tir.compute((8,), lambda x: A[x] + 1.0, name="X")
    Y = tir.compute((8,), lambda i: X[i] * 2.0, where=lambda i: i < 4, name="Y")
    refused = tir.schedule(Y).check("reuse", "X", "Y")
    assert refused.reason == (
        "reuse: X[x = 4] would leave its value in a cell of Y that is returned"
    )


# -- atomic
SUMS: dict[str, tuple[Reduction, Callable[..., np.ndarray]]] = {
    "sum": (tir.sum, np.sum), "max": (tir.max, np.max), "min": (tir.min, np.min),
}  # fmt: skip
WAYS: dict[str, Callable[[tir.Schedule], tir.Schedule]] = {
    "each": lambda s: s.reorder("k", "b").atomic("C").parallel("k"),
    "blocks": lambda s: (
        s.split("k", 16).reorder("ko", "ki", "b").cache_write("C", at="ko", init="identity")
        .atomic("C").parallel("ko")
    ),
    "lanes": lambda s: s.reorder("k", "b").atomic("C").vectorize("b", 4).parallel("k"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "int64", "float32", "float64"])
@pytest.mark.parametrize("name", SUMS)
def test_threads_update_one_cell(dtype: str, name: str) -> None:
    reduction, reference = SUMS[name]
    n = tir.var("n")
    A = tir.placeholder((n, 3), dtype, name="A")
    k = tir.reduce_axis(n, name="k")
    accumulator = {"dtype": dtype} if name == "sum" else {}
    C = tir.compute((3,), lambda b: reduction(A[k, b], axis=k, **accumulator), name="C")
    for way in WAYS.values():
        kernel = tir.build(way(tir.schedule(C)))
        for size in (1, 5, 1000):
            a = np.random.default_rng(size).integers(0, 20, (size, 3)).astype(dtype)
            wanted = reference(a, 0, **accumulator)
            assert np.array_equal(kernel(a), wanted)


def test_the_race_is_allowed_only_where_updates_are_atomic() -> None:
    A = tir.placeholder((64, 3), name="A")
    k = tir.reduce_axis(64, name="k")
    C = tir.compute((3,), lambda b: tir.sum(A[k, b], axis=k), name="C")
    s = tir.schedule(C).reorder("k", "b")
    assert not s.check("parallel", "k")
    made = s.atomic("C")
    assert made.step is not None
    assert made.step.reassociates
    assert "# atomic" in str(made.loops())
    assert made.check("parallel", "k")
    assert not made.check("vectorize", "k", 8)
    kernel = tir.build(made.parallel("k"), validate=True)
    assert "atomicrmw fadd" in kernel.llvm
    assert tir.replay(tir.schedule(C), made.trace).loops() == made.loops()


def test_integer_sums_do_not_change_and_twice_has_no_effect() -> None:
    A = tir.placeholder((64,), "int64", name="A")
    k = tir.reduce_axis(64, name="k")
    s = tir.schedule(tir.compute((), lambda: tir.sum(A[k], axis=k), name="C")).atomic("C")
    assert s.step is not None
    assert not s.step.reassociates
    with pytest.warns(tir.TensorIRWarning):
        s.atomic("C")


def test_nan_stays_in_an_atomic_maximum() -> None:
    A = tir.placeholder((100, 3), name="A")
    k = tir.reduce_axis(100, name="k")
    C = tir.compute((3,), lambda b: tir.max(A[k, b], axis=k), name="C")
    a = np.zeros((100, 3), "float32")
    a[7, 1] = np.nan
    kernel = tir.build(tir.schedule(C).reorder("k", "b").atomic("C").parallel("k"))
    assert np.isnan(kernel(a)).tolist() == [False, True, False]


def test_any_is_atomic() -> None:
    A = tir.placeholder((100, 3), "bool", name="A")
    k = tir.reduce_axis(100, name="k")
    C = tir.compute((3,), lambda b: tir.any(A[k, b], axis=k), name="C")
    a = np.zeros((100, 3), bool)
    a[5, 2] = True
    kernel = tir.build(tir.schedule(C).reorder("k", "b").atomic("C").parallel("k"))
    assert kernel(a).tolist() == [False, False, True]
