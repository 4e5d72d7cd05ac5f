"""The hand schedule of attention: sizes that do not divide, masks, heads, against float64."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.cpu.attention import attention, params
from schedules.registry import entry_for
from tensorir import ops
from tensorir.codegen import cpu

TARGETS = ("native", "x86-64-v3")


def wanted(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    *,
    causal: bool = False,
    offset: int = 0,
) -> np.ndarray:
    """In float64; a query that sees no key gives 0."""
    q, k, v = (x.astype("float64") for x in (q, k, v))
    if k.ndim > 2:
        share = q.shape[-3] // k.shape[-3]
        k, v = (np.repeat(x, share, -3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        i, j = np.indices(scores.shape[-2:])
        scores = np.where(j <= i + offset, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return np.where(total == 0, 0, powers @ v / np.where(total == 0, 1, total))


def check(
    *shapes: tuple[int, ...],
    target: str = "native",
    dtype: str = "float32",
    mask: np.ndarray | None = None,
    causal: bool = False,
    offset: int = 0,
    within: float = 2e-6,
    spread: float = 1.0,
    **how: Any,
) -> tir.Kernel:
    """Compile for constant shapes, call, compare."""
    rng = np.random.default_rng(7)
    arrays = [(rng.standard_normal(x) * spread).astype(dtype) for x in shapes]
    given = dict(zip(("q", "k", "v"), arrays, strict=True))
    tensors = [tir.placeholder(a.shape, dtype, name=n) for n, a in given.items()]
    if mask is not None:
        given["mask"] = mask
        tensors.append(tir.placeholder(mask.shape, str(mask.dtype), name="mask"))
    out = ops.attention(*tensors, causal=causal, offset=offset)
    s = attention(tir.schedule(out), target, **how)
    kernel = tir.build(s, target=target)
    order = [a.name for a in s.program.arrays if a.role == "input"]
    got = kernel(*(given[n] for n in order))
    assert got.dtype == dtype
    expected = wanted(*arrays, mask, causal=causal, offset=offset)
    np.testing.assert_allclose(got, expected, rtol=0, atol=within * spread)
    return kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("causal", [False, True])
def test_odd_sizes(target: str, causal: bool) -> None:
    kernel = check(
        (2, 3, 37, 20), (2, 3, 53, 20), (2, 3, 53, 7), target=target, causal=causal, offset=16,
        keys=32,
    )  # fmt: skip
    assert not any("gather" in x for x in kernel.notes)


@pytest.mark.parametrize("shapes", [((1, 1), (1, 1), (1, 1)), ((3, 2), (1, 2), (1, 5))])
def test_single_elements(shapes: tuple[tuple[int, ...], ...]) -> None:
    check(*shapes)


def test_no_keys() -> None:
    check((5, 4), (0, 4), (0, 3))


def test_heads_in_groups_and_a_bool_mask() -> None:
    mask = np.random.default_rng(1).random((2, 4, 33, 70)) < 0.3
    mask[0, 1, 4] = False
    mask[1, :, 8, :60] = False
    check((2, 4, 33, 17), (2, 2, 70, 17), (2, 2, 70, 9), mask=mask, keys=16)


def test_an_added_mask() -> None:
    mask = np.random.default_rng(2).standard_normal((33, 70)).astype("float32")
    mask[3] = -np.inf
    mask[5, :40] = -np.inf
    check((1, 2, 33, 16), (1, 2, 70, 16), (1, 2, 70, 16), mask=mask, keys=32, causal=True, offset=9)


@pytest.mark.parametrize("target", TARGETS)
def test_queries_before_all_keys(target: str) -> None:
    check((40, 8), (45, 8), (45, 8), causal=True, offset=-11, target=target, keys=16)


def test_long_rows_of_large_scores() -> None:
    check((2, 40, 64), (2, 5000, 64), (2, 5000, 64), spread=4.0, within=2e-5)


def test_maxima_that_grow_with_the_keys() -> None:
    n = 300
    rising = np.linspace(-400, 400, n, dtype="float32")
    mask = np.stack([rising, rising[::-1], np.where(np.arange(n) < 200, -np.inf, rising)])
    check((3, 8), (n, 8), (n, 8), mask=mask, keys=32, within=4e-5)


@pytest.mark.parametrize(("dtype", "within"), [("float64", 1e-13), ("float16", 2e-3)])
def test_other_types(dtype: str, within: float) -> None:
    check((2, 19, 24), (2, 50, 24), (2, 50, 24), dtype=dtype, within=within, keys=32)


@pytest.mark.parametrize("seed", range(4))
def test_any_parameters(seed: int) -> None:
    rng = Random(seed)
    target = rng.choice(TARGETS)
    chosen = {p.name: rng.choice(p.values) for p in params(cpu.target(target))}
    n, t, d, e = (rng.randint(1, 90) for _ in range(4))
    check(
        (2, n, d), (2, t, d), (2, t, e), target=target, causal=rng.random() < 0.5, offset=t - n,
        parallel=rng.random() < 0.5, within=4e-6, **chosen,
    )  # fmt: skip


def test_sizes_of_the_call() -> None:
    n, t = tir.var("n"), tir.var("t")
    q, k, v = (tir.placeholder(x, name=y) for x, y in (((n, 8), "q"), ((t, 8), "k"), ((t, 8), "v")))
    kernel = tir.build(attention(tir.schedule(ops.attention(q, k, v, causal=True)), keys=32))
    rng = np.random.default_rng(3)
    for rows, keys in ((70, 70), (33, 90), (1, 1), (0, 5), (5, 1)):
        a, b, c = (rng.standard_normal((x, 8)).astype("float32") for x in (rows, keys, keys))
        np.testing.assert_allclose(kernel(a, b, c), wanted(a, b, c, causal=True), rtol=0, atol=2e-6)


def test_tiles_above_the_diagonal_are_left_out() -> None:
    q, k, v = (tir.placeholder((1, 2, 256, 32), name=n) for n in "qkv")
    s = attention(tir.schedule(ops.attention(q, k, v, causal=True)), "x86-64-v4", keys=64)
    assert "for jo in 0..(io//2 + 1)" in str(s.loops())


def test_only_tiles_are_kept() -> None:
    q, k, v = (tir.placeholder((1, 8, 4096, 64), name=n) for n in "qkv")
    s = attention(tir.schedule(ops.attention(q, k, v)))
    outside = {a.name: [x.name for x in b.outside] for a, b in s.program.buffers.items()}
    assert all("io" in x for x in outside.values()), outside


def test_the_library_serves_any_expression_of_that_form() -> None:
    n, t, d = 30, 40, 16
    q, k, v = (tir.placeholder((x, d), name=y) for x, y in ((n, "q"), (t, "k"), (t, "v")))
    r, a, b, c = (tir.reduce_axis(x, name=y) for x, y in ((d, "r"), (t, "a"), (t, "b"), (t, "c")))
    S = tir.compute((n, t), lambda i, j: tir.sum(q[i, r] * k[j, r], axis=r), name="S")
    M = tir.compute((n,), lambda i: tir.max(S[i, a], axis=a), name="M")
    P = tir.compute((n, t), lambda i, j: tir.exp(S[i, j] - M[i]), name="P")
    L = tir.compute((n,), lambda i: tir.sum(P[i, b], axis=b), name="L")
    O = tir.compute((n, d), lambda i, x: tir.sum(P[i, c] * v[c, x], axis=c) / L[i], name="O")
    entry = entry_for(tir.schedule(O))
    assert entry is not None
    assert entry.name == "attention"
    s = schedules.schedule_for(O)
    rng = np.random.default_rng(4)
    x, y, z = (rng.standard_normal((m, d)).astype("float32") for m in (n, t, t))
    np.testing.assert_allclose(
        tir.build(s)(x, y, z), wanted(x * np.sqrt(d), y, z), rtol=0, atol=4e-6
    )
    other = entry_for(tir.schedule(P))
    assert other is None or other.name != "attention"


def test_one_query_is_left_to_the_default() -> None:
    q, k, v = (tir.placeholder((1, 2, n, 16), name=x) for n, x in ((1, "q"), (40, "k"), (40, "v")))
    assert entry_for(tir.schedule(ops.attention(q, k, v))) is None


def test_the_trace_replays() -> None:
    q, k, v = (tir.placeholder((1, 8, 100, 64), name=n) for n in "qkv")
    s = attention(tir.schedule(ops.attention(q, k, v)))
    again = tir.replay(s.at(0), tir.Trace.from_json(s.trace.to_json()))
    assert str(again.loops()) == str(s.loops())


def test_another_computation_is_refused() -> None:
    A = tir.placeholder((8,), name="A")
    B = tir.compute((8,), lambda i: A[i] + 1.0, name="B")
    with pytest.raises(tir.TensorIRError, match="attention: expected scores, their max"):
        attention(tir.schedule(B))
