"""Transposes in registers: what the network does, and what becomes of ragged tiles."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest

import tensorir as tir
from tensorir.codegen import shuffles
from tests.codegen.machine import assembly_of, call, source_of


class Recorder:
    """As much of an emitter as shuffles need; vectors are tuples of what their lanes hold."""

    def __init__(self, width: int) -> None:
        self.width = width

    def op(self, form: str, a: object, b: object) -> object:
        order = [int(x) for x in re.findall(r"i32 (-?\d+)", form)]
        both = (*a, *b)  # type: ignore[misc]
        return tuple(both[k] for k in order)


@pytest.mark.parametrize("width", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("ty", ["i8", "i16", "float", "double"])
def test_the_network_transposes(width: int, ty: str) -> None:
    rows = [tuple((i, j) for j in range(width)) for i in range(width)]
    turned = shuffles.transpose(Recorder(width), ty, rows)  # type: ignore[arg-type]
    assert turned == [tuple((i, j) for i in range(width)) for j in range(width)]


@pytest.mark.parametrize("seed", range(10))
def test_tiles_of_any_size(seed: int) -> None:
    rng = Random(seed)
    dtype = rng.choice(["float32", "float64", "float16", "int8", "bool"])
    symbolic = rng.random() < 0.5
    m, n = rng.randint(1, 40), rng.randint(1, 40)
    M, N = (tir.var("M"), tir.var("N")) if symbolic else (m, n)
    A = tir.placeholder((N, M), dtype, name="A")
    B = tir.compute((M, N), lambda i, j: A[j, i], name="B")
    lanes = rng.choice([2, 4, 8, 16])
    rows = rng.choice([3, lanes, lanes, 2 * lanes, 14])
    s = tir.schedule(B).tile("i", "j", lanes, rows, tail=rng.choice(["auto", "guard", "cut"]))
    s = s.reorder("io", "jo", *rng.sample(["ii", "ji"], 2)).vectorize("ii", width=lanes)
    source = source_of(s.unroll("ji"), target=rng.choice(["native", "x86-64-v3"]))
    a = (np.random.default_rng(seed).random((n, m)) * 100).astype(dtype)
    sizes = [{"M": m, "N": n}[v.name] for v in source.sizes]
    got = call(source, [a], sizes).out
    assert got.tobytes() == a.T.tobytes(), f"seed {seed}: {dtype} {m}x{n}, {lanes}x{rows}"


@pytest.mark.parametrize(("target", "lanes", "rows"), [("znver4", 16, 14), ("x86-64-v3", 8, 6)])
def test_a_register_tile_is_written_back_along_its_rows(target: str, lanes: int, rows: int) -> None:
    """As a convolution does: accumulators along channels, memory along columns."""
    C, P, K = tir.var("C"), tir.var("P"), tir.var("K")
    X = tir.placeholder((K, P), name="X")
    W = tir.placeholder((K, C), name="W")
    r = tir.reduce_axis(K, name="r")
    Y = tir.compute((C, P), lambda c, p: tir.sum(W[r, c] * X[r, p], axis=r), name="Y")
    vectors = 2 if lanes == 16 else 1
    s = tir.schedule(Y).split("c", vectors * lanes, into=("co", "ci"))
    s = s.split("p", rows, into=("po", "pi")).reorder("co", "po", "pi", "ci")
    s = s.reorder("r", "pi", "ci").cache_write("Y", "local", at="po", name="acc")
    s = s.transform_layout("acc", lambda c, p: (p, c))
    s = s.vectorize("ci", lanes).unroll("pi")
    s = s.transpose_lanes("acc.store.c", "acc.store.p", width=lanes)
    source = source_of(s, target=target)
    assert source.notes == ()
    text = assembly_of(source)
    assert "gather" not in text and "scatter" not in text
    stored = re.findall(r"vmovups\t%zmm\d+, .*\{%k\d\}", text)
    assert len(stored) >= vectors * lanes if target == "znver4" else not stored
    here = source_of(s, target="native" if lanes == 16 else target)
    rng = np.random.default_rng(0)
    for c, p, k in ((32, 28, 3), (33, 13, 2), (7, 1, 1), (64, 56, 0)):
        x, w = rng.integers(-4, 5, (k, p)), rng.integers(-4, 5, (k, c))
        arrays = {"X": x.astype(np.float32), "W": w.astype(np.float32)}
        inputs = [arrays[a.name] for a in here.arguments if a.role == "input"]
        sizes = [{"C": c, "P": p, "K": k}[v.name] for v in here.sizes]
        np.testing.assert_array_equal(call(here, inputs, sizes).out, w.T @ x)


def test_two_statements_of_one_memory_keep_their_order() -> None:
    """What is written again later must not be overtaken by vectors that wait."""
    A = tir.placeholder((16, 8), name="A")
    k = tir.reduce_axis(3, name="k")
    B = tir.compute((8, 16), lambda i, j: tir.sum(A[j, i] * (k + 1), axis=k), name="B")
    s = tir.schedule(B).reorder("k", "j", "i").vectorize("i", 8).unroll("j").unroll("k")
    a = np.random.default_rng(0).integers(-9, 9, (16, 8)).astype(np.float32)
    got = call(source_of(s), [a]).out
    np.testing.assert_array_equal(got, 6 * a.T)
