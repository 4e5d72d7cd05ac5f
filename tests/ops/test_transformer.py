"""Attention: masks, heads, lengths, rows without keys; rotary embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir import ops
from tensorir.ops.reference.nn import _attention
from tests.ops.harness import agree, check


def case(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], mask: Any = None, **options: Any
) -> None:
    rng = np.random.default_rng(len(q))
    dtype = options.pop("dtype", "float32")
    arrays = [rng.uniform(-2, 2, s).astype(dtype) for s in (q, k, v)]
    arrays += [] if mask is None else [mask]
    inputs = [
        tir.placeholder(a.shape, a.dtype, name=n) for a, n in zip(arrays, "qkvm", strict=False)
    ]
    agree(ops.attention(*inputs, **options), inputs, arrays, _attention(*arrays, **options))


@pytest.mark.parametrize("causal", [False, True])
def test_lengths(causal: bool) -> None:
    for rows, columns in ((1, 1), (5, 5), (3, 7), (7, 3), (0, 3), (3, 0)):
        case((2, rows, 4), (2, columns, 4), (2, columns, 3), causal=causal)


def test_ranks() -> None:
    case((5, 4), (6, 4), (6, 4))
    case((1, 2, 2, 5, 4), (1, 2, 2, 6, 4), (1, 2, 2, 6, 4), causal=True)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_heads(groups: int) -> None:
    case((2, 4, 5, 8), (2, groups, 6, 8), (2, groups, 6, 8), causal=True, offset=1)


def test_offset_of_a_cache() -> None:
    case((1, 2, 1, 4), (1, 2, 9, 4), (1, 2, 9, 4), causal=True, offset=8)
    case((1, 2, 3, 4), (1, 2, 9, 4), (1, 2, 9, 4), causal=True, offset=-2)


def test_masks() -> None:
    rng = np.random.default_rng(1)
    bools = rng.integers(0, 2, (2, 1, 5, 6)).astype(bool)
    bools[0, 0, 2] = False
    case((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4), bools)
    added = rng.uniform(-3, 3, (5, 6)).astype(np.float32)
    added[1] = -np.inf
    added[2, 3:] = -np.inf
    case((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4), added)
    case((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4), added, causal=True, scale=0.7)


def test_rows_that_see_nothing_are_zero() -> None:
    q, m = tir.placeholder((2, 4), name="q"), tir.placeholder((2, 2), "bool", name="m")
    a, mask = np.ones((2, 4), np.float32), np.array([[False, False], [True, False]])
    want = np.array([[0] * 4, [1] * 4], np.float32)
    agree(ops.attention(q, q, q, m), [q, m], [a, mask], want)


def test_long_rows_and_large_scores() -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.uniform(-9, 9, s).astype(np.float32) for s in ((2, 8), (2000, 8), (2000, 3))]
    inputs = [tir.placeholder(a.shape, name=n) for a, n in zip(arrays, "qkv", strict=True)]
    got = tir.build(tir.schedule(ops.attention(*inputs)))(*arrays)
    np.testing.assert_allclose(got, _attention(*arrays), rtol=1e-3, atol=1e-4)


def test_halves() -> None:
    case((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4), dtype="float16")


def test_a_symbolic_length() -> None:
    s = tir.var("s")
    q, k, v = (tir.placeholder((2, s, 4), name=n) for n in "qkv")
    kernel = tir.build(tir.schedule(ops.attention(q, k, v, causal=True)))
    rng = np.random.default_rng(3)
    arrays = [rng.uniform(-2, 2, (2, 5, 4)).astype(np.float32) for _ in range(3)]
    np.testing.assert_allclose(
        kernel(*arrays), _attention(*arrays, causal=True), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("style", ["halves", "interleaved"])
def test_rotary(style: str) -> None:
    for sizes in ((2, 5, 3), (1, 1, 1), (2, 0, 2), (2, 3, 0)):
        check("rotary", sizes, None, {"style": style})


def test_rotary_keeps_lengths() -> None:
    x = tir.placeholder((6, 8), name="x")
    c, s = tir.placeholder((6, 4), name="c"), tir.placeholder((6, 4), name="s")
    angle = np.arange(24, dtype=np.float32).reshape(6, 4)
    a = np.random.default_rng(4).standard_normal((6, 8), np.float32)
    got = tir.build(tir.schedule(ops.rotary(x, c, s)))(a, np.cos(angle), np.sin(angle))
    np.testing.assert_allclose(np.hypot(got[:, :4], got[:, 4:]), np.hypot(a[:, :4], a[:, 4:]),
                               rtol=1e-5)  # fmt: skip
