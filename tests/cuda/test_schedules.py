"""The schedules for GPUs: right at odd sizes under all checks, and how they touch memory."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules import cuda
from schedules.cuda.elementwise import params as of_chains
from schedules.cuda.reduce import params as of_reductions
from schedules.cuda.rows import params as of_rows
from schedules.cuda.transpose import params as of_tiles
from schedules.registry import entry_for
from tensorir import ops
from tensorir.codegen import targets


def _random(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _run(s: tir.Schedule, x: np.ndarray, want: np.ndarray, tol: float = 2e-5) -> Any:
    kernel = tir.build(s, target="emulator")
    got = kernel(x)
    np.testing.assert_allclose(got.astype("float64"), want, rtol=tol, atol=tol)
    assert ".local" not in kernel.ptx
    return kernel


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _normal(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


ROWS: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray]]] = {
    "softmax": (ops.softmax, _softmax),
    "log_softmax": (ops.log_softmax, lambda x: np.log(_softmax(x))),
    "layer_norm": (ops.layer_norm, _normal),
    "rms_norm": (ops.rms_norm, lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)),
}


# -- rows


@pytest.mark.parametrize("shape", [(5, 300), (2, 33), (3, 1001), (2, 3, 1024)])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, shape: tuple[int, ...]) -> None:
    op, reference = ROWS[name]
    s = tir.schedule(op(tir.placeholder(shape, name="x"), name="y"))
    entry = entry_for(s, "cuda")
    assert entry is not None and entry.name == "rows"
    x = 3 * _random(shape)
    kernel = _run(cuda.rows(s), x, reference(x.astype("float64")))
    (report,) = kernel.reports
    assert report.bank_conflicts == 0
    if shape[-1] == 1024:
        assert report.extra_sectors == 0
        assert {c.opcode for c in report.of("ld.global")} == {"ld.global.nc.v4.b32"}
        assert {c.opcode for c in report.of("st.global")} == {"st.global.v4.b32"}
        # the row is read once
        assert sum(c.bytes for c in report.of("ld.global")) == x.nbytes


def test_long_rows_are_computed_again() -> None:
    x = _random((1, 12_000))
    s = tir.schedule(ops.softmax(tir.placeholder(x.shape, name="x"), name="y"))
    kernel = _run(cuda.rows(s), x, _softmax(x.astype("float64")))
    assert kernel.launches[0].shared_bytes < 1024


def test_rows_of_symbolic_size() -> None:
    x = _random((3, 517))
    shape = (tir.var("m"), tir.var("n"))
    s = tir.schedule(ops.log_softmax(tir.placeholder(shape, name="x"), name="y"))
    _run(cuda.rows(s), x, np.log(_softmax(x.astype("float64"))))


@pytest.mark.parametrize("threads", [32, 64, 512])
def test_rows_by_other_numbers_of_threads(threads: int) -> None:
    x = _random((2, 1500))
    s = tir.schedule(ops.layer_norm(tir.placeholder(x.shape, name="x"), name="y"))
    kernel = _run(cuda.rows(s, threads=threads), x, _normal(x.astype("float64")))
    assert kernel.launches[0].threads[0] <= threads


def test_short_rows_are_left_to_the_default() -> None:
    s = tir.schedule(ops.softmax(tir.placeholder((100, 7), name="x"), name="y"))
    assert entry_for(s, "cuda") is None
    with pytest.raises(tir.ArgumentError, match="rows: expected several stages"):
        cuda.rows(s)


# -- reductions

REDUCED: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((5, 300), 1), ((9, 4096), 1), ((3, 4, 100), 2), ((100, 40), 0), ((33, 70), 0), ((6, 33), 0),
    ((3, 50, 40), 1), ((1000,), 0), ((50_001,), 0), ((70, 100), None),
)  # fmt: skip


@pytest.mark.parametrize("shape, axis", REDUCED)
def test_reductions(shape: tuple[int, ...], axis: Any) -> None:
    x = _random(shape)
    tensor = tir.placeholder(shape, name="x")
    for name in ("sum", "max"):
        s = tir.schedule(getattr(ops, name)(tensor, axis=axis, name="y"))
        entry = entry_for(s, "cuda")
        assert entry is not None and entry.name == "reduce"
        want = getattr(x.astype("float64"), name)(axis)
        kernel = _run(cuda.reduce(s), x, want)
        assert all(r.bank_conflicts == 0 for r in kernel.reports)


def test_a_long_sum_reads_all_blocks_whole() -> None:
    x = _random((40_000,))
    s = cuda.reduce(tir.schedule(ops.sum(tir.placeholder(x.shape, name="x"), axis=0, name="y")))
    kernel = _run(s, x, x.astype("float64").sum(), 1e-3)
    assert [r.extra_sectors for r in kernel.reports] == [0] * len(kernel.launches)
    assert "ld.global.nc.v4.b32" in kernel.ptx


@pytest.mark.parametrize("shape, axis", [((None,), 0), ((None, 64), 1), ((40, None), 0)])
def test_reductions_of_symbolic_size(shape: tuple[int | None, ...], axis: int) -> None:
    n = tir.var("n")
    tensor = tir.placeholder(tuple(n if e is None else e for e in shape), name="x")
    s = cuda.reduce(tir.schedule(ops.sum(tensor, axis=axis, name="y")))
    x = _random(tuple(103 if e is None else e for e in shape))
    _run(s, x, x.astype("float64").sum(axis))


# -- across threads


def _across(rows: int, n: int, threads: int, reducer: str, dtype: str) -> tir.Schedule:
    A = tir.placeholder((rows, n), dtype, name="A")
    k = tir.reduce_axis(n, name="k")
    C = tir.compute((rows,), lambda i: getattr(tir, reducer)(A[i, k], axis=k), name="C")
    s = tir.schedule(C).bind("i", "blockIdx.x").split("k", threads, into=("ko", "kt"))
    s = s.rfactor("kt", into="P", at="i").set_scope("P", "local").bind("kt", "threadIdx.x")
    return s.cross_thread("C.kt")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64"])
@pytest.mark.parametrize("reducer", ["sum", "max"])
def test_threads_combine_what_they_have(reducer: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    for n, threads in ((300, 32), (300, 128), (50, 8), (200, 96)):
        x = (4 * rng.standard_normal((3, n))).astype(dtype)
        kernel = tir.build(_across(3, n, threads, reducer, dtype), target="emulator")
        kernel.seed = n
        got = kernel(x)
        wide = x.astype("float64" if x.dtype.kind == "f" else dtype)
        want = wide.max(1) if reducer == "max" else wide.sum(1, dtype=wide.dtype)
        if x.dtype.kind == "f":
            tol = {"float16": 0.15, "float32": 1e-4, "float64": 1e-12}[dtype]
            np.testing.assert_allclose(got, want, rtol=tol, atol=tol)
        else:
            np.testing.assert_array_equal(got, want)
        # a warp needs no barrier, several need one
        assert kernel.ptx.count("bar.sync") == (threads > 32)


def test_a_nan_comes_through() -> None:
    x = _random((2, 300))
    x[1, 77] = np.nan
    got = tir.build(_across(2, 300, 128, "max", "float32"), target="emulator")(x)
    assert got[0] == x[0].max() and np.isnan(got[1])


def test_threads_that_are_no_warps() -> None:
    with pytest.raises(tir.UnsupportedError, match="cross_thread: 50 threads along x"):
        tir.build(_across(3, 300, 50, "sum", "float32"), target="emulator")


# -- transposes

TURNED: tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...] = (
    ((64, 96), (1, 0), "float32"), ((33, 65), (1, 0), "float32"), ((5, 7), (1, 0), "float32"),
    ((3, 40, 50), (0, 2, 1), "float32"), ((3, 40, 50), (2, 1, 0), "float32"),
    ((2, 3, 5, 34), (0, 3, 1, 2), "float32"), ((70, 40), (1, 0), "float16"),
    ((70, 40), (1, 0), "float64"),
)  # fmt: skip


@pytest.mark.parametrize("shape, order, dtype", TURNED)
def test_transposes(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> None:
    x = _random(shape, dtype)
    s = tir.schedule(ops.transpose(tir.placeholder(shape, dtype, name="x"), order, name="y"))
    entry = entry_for(s, "cuda")
    assert entry is not None and entry.name == "transpose"
    kernel = tir.build(cuda.transpose(s), target="emulator")
    np.testing.assert_array_equal(kernel(x), x.transpose(order))
    (report,) = kernel.reports
    if min(shape[-2:]) >= 32 and len(shape) == 2:
        assert report.bank_conflicts == 0
    if shape == (64, 96):
        assert report.extra_sectors == 0


# -- elementwise


def _chain(shape: tuple[Any, ...], along: tuple[int, ...], dtype: str) -> tir.Schedule:
    x = tir.placeholder(shape, dtype, name="x")
    b = tir.placeholder(tuple(shape[k] for k in along), dtype, name="b")
    t = tir.compute(shape, lambda *i: 2.0 * x[i] + 1.0, name="t")
    y = tir.compute(
        shape, lambda *i: tir.maximum(t[i], 0.0) + b[tuple(i[k] for k in along)], name="y"
    )
    return tir.schedule(y)


CHAINS: tuple[tuple[tuple[int | str, ...], tuple[int, ...], str], ...] = (
    ((1000,), (0,), "float32"), ((33, 65), (1,), "float32"), ((33, 64), (0,), "float32"),
    ((3, 5, 1028), (2,), "float32"), ((2, 3, 4, 50), (1,), "float32"), ((7,), (0,), "float32"),
    (("n",), (0,), "float32"), (("m", "n"), (1,), "float32"), ((1001,), (0,), "float16"),
    ((1001,), (0,), "float64"), ((1, 1), (0,), "float32"),
)  # fmt: skip


@pytest.mark.parametrize("shape, along, dtype", CHAINS)
def test_chains(shape: tuple[int | str, ...], along: tuple[int, ...], dtype: str) -> None:
    sizes = {"m": 37, "n": 1003}
    symbols = {k: tir.var(k) for k in sizes}
    s = _chain(tuple(symbols.get(e, e) for e in shape), along, dtype)  # type: ignore[arg-type]
    entry = entry_for(s, "cuda")
    assert entry is not None and entry.name == "elementwise"
    kernel = tir.build(cuda.elementwise(s), target="emulator", args=["x", "b", "y"])
    whole = tuple(sizes.get(e, e) for e in shape)  # type: ignore[arg-type]
    x = _random(whole, dtype)  # type: ignore[arg-type]
    b = _random(tuple(whole[k] for k in along), dtype)  # type: ignore[misc]
    spread = b.reshape([e if k in along else 1 for k, e in enumerate(whole)])
    np.testing.assert_allclose(kernel(x, b), np.maximum(2 * x + 1, 0) + spread, rtol=1e-6)
    if len(shape) == 1:
        (report,) = kernel.reports
        assert report.extra_sectors == 0
        assert ".v4.b32" in kernel.ptx or ".v2.b64" in kernel.ptx


# -- attention


@pytest.mark.parametrize("n, causal", [(37, False), (33, True), (5, False)])
def test_attention(n: int, causal: bool) -> None:
    q, k, v = (tir.placeholder((1, 2, n, 8), name=x) for x in "qkv")
    s = tir.schedule(ops.attention(q, k, v, causal=causal, name="o"))
    entry = entry_for(s, "cuda")
    assert entry is not None and entry.name == "attention"
    kernel = tir.build(cuda.attention(s), target="emulator", args=["q", "k", "v", "o"])
    rng = np.random.default_rng(n)
    a, b, c = (rng.standard_normal((1, 2, n, 8)).astype("float32") for _ in range(3))
    scores = a.astype("float64") @ b.swapaxes(-1, -2) / np.sqrt(8)
    if causal:
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
    np.testing.assert_allclose(kernel(a, b, c), _softmax(scores) @ c, rtol=1e-4, atol=1e-5)
    assert len(kernel.launches) == 1 and ".local" not in kernel.ptx


# -- all of them

FAMILIES: dict[str, tuple[Any, Any, Callable[[], Any], tuple[int, ...]]] = {
    "rows": (cuda.rows, of_rows, lambda: ops.softmax, (3, 555)),
    "reduce": (cuda.reduce, of_reductions, lambda: ops.mean, (70, 90)),
    "transpose": (cuda.transpose, of_tiles, lambda: ops.transpose, (45, 67)),
    "elementwise": (cuda.elementwise, of_chains, lambda: ops.gelu, (13, 77)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_any_parameters(family: str) -> None:
    """Random draws from what a search may try, and random orders of the warps."""
    apply, params, op, shape = FAMILIES[family]
    rng = Random(f"{family} 1")
    tensor = op()(tir.placeholder(shape, name="x"), name="y")
    x = _random(shape)
    want = tir.build(tir.schedule(tensor))(x)
    for seed in range(2):
        given = {p.name: rng.choice(p.values) for p in params(targets.resolve("emulator"))}
        kernel = tir.build(apply(tir.schedule(tensor), **given), target="emulator")
        kernel.seed = seed
        np.testing.assert_allclose(kernel(x), want, rtol=1e-5, atol=1e-6, err_msg=str(given))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_parameter_that_there_is_not(family: str) -> None:
    apply, _, op, shape = FAMILIES[family]
    s = tir.schedule(op()(tir.placeholder(shape, name="x"), name="y"))
    with pytest.raises(tir.ArgumentError, match="no parameter 'tile'"):
        apply(s, tile=3)


def test_the_library_picks_them() -> None:
    kernel = schedules.build("softmax", (4, 256), target="emulator")
    assert len(kernel.launches) == 1
    x = _random((4, 256))
    np.testing.assert_allclose(kernel(x), _softmax(x), rtol=1e-5)
