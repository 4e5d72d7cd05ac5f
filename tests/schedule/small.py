"""Small computations of every shape that placement, memory and reduction primitives meet."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import tensorir as tir

Sizes = dict[str, int]
Case = tuple[tir.Schedule, list[Sizes]]


def extents(rng: Random, names: str) -> tuple[list[object], list[Sizes]]:
    """Each size symbolic or constant, and values to try."""
    if rng.random() < 0.5:
        tries = [{n: rng.randint(0, 6) for n in names} for _ in range(2)]
        return [tir.var(n) for n in names], tries
    return [rng.randint(1, 7) for _ in names], [{}]


def matmul(rng: Random) -> Case:
    (m, n, k), sizes = extents(rng, "MNK")
    A = tir.placeholder((m, k), name="A")
    B = tir.placeholder((k, n), name="B")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")
    if rng.random() < 0.5:
        b = tir.placeholder((n,), name="b")
        C = tir.compute((m, n), lambda y, x: C[y, x] * b[x], name="D")
    return tir.schedule(C), sizes


def half(rng: Random) -> Case:
    (m, k), sizes = extents(rng, "MK")
    A = tir.placeholder((m, k), "float16", name="A")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute((m,), lambda i: tir.sum(A[i, r] * A[i, r], axis=r), name="C")
    if rng.random() < 0.5:
        C = tir.compute((m,), lambda x: C[x] * A[x, 0], name="D")
        sizes = [{n: max(1, v) for n, v in z.items()} for z in sizes]
    return tir.schedule(C), sizes


def blur(rng: Random) -> Case:
    (m, n), sizes = extents(rng, "MN")
    A = tir.placeholder((m + 2, n + 2), name="A")
    X = tir.compute((m + 2, n), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="X")
    Y = tir.compute((m, n), lambda i, j: X[i, j] + X[i + 1, j] + X[i + 2, j], name="Y")
    return tir.schedule(Y), sizes


def chain(rng: Random) -> Case:
    (n,), sizes = extents(rng, "N")
    A = tir.placeholder((n,), name="A")
    B = tir.compute((n,), lambda i: A[i] * 2.0, name="B")
    C = tir.compute((n,), lambda i: B[i] + A[i], name="C")
    D = tir.compute((n,), lambda i: C[i] * C[tir.maximum(i - 1, 0)], name="D")
    E = tir.compute((n,), lambda i: D[i] + B[n - 1 - i], name="E")
    return tir.schedule(E), sizes


def down(rng: Random) -> Case:
    (n,), sizes = extents(rng, "N")
    A = tir.placeholder((2 * n + 1,), name="A")
    B = tir.compute((2 * n + 1,), lambda x: A[x] + 1.0, name="B")
    C = tir.compute((n,), lambda i: B[2 * i] * B[2 * i + 1], name="C")
    return tir.schedule(C), sizes


def sums(rng: Random) -> Case:
    (m, n), sizes = extents(rng, "MN")
    A = tir.placeholder((m, n), name="A")
    r = tir.reduce_axis(n, name="r")
    q = tir.reduce_axis(n, name="q")
    S = tir.compute((m,), lambda i: tir.sum(A[i, r], axis=r), name="S")
    T = tir.compute((m,), lambda i: tir.sum(A[i, q] * S[i], axis=q), name="T")
    return tir.schedule(T), sizes


def window(rng: Random) -> Case:
    (n,), sizes = extents(rng, "N")
    A = tir.placeholder((n + 3, n + 2), name="A")
    a = tir.reduce_axis(3, name="a")
    b = tir.reduce_axis(2, name="b")
    W = tir.compute((n + 1, n + 1), lambda y, x: tir.max(A[y + a, x + b], axis=(a, b)), name="W")
    Z = tir.compute((n, n), lambda i, j: W[i, j] * W[i + 1, j], name="Z")
    return tir.schedule(Z), sizes


def triangle(rng: Random) -> Case:
    (n, k), sizes = extents(rng, "NK")
    A = tir.placeholder((n, k), name="A")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute(
        (n, n), lambda i, j: tir.sum(A[i, r] * A[j, r], axis=r),
        where=lambda i, j: j <= i, name="C",
    )  # fmt: skip
    return tir.schedule(C), sizes


def best(rng: Random) -> Case:
    (m, n), sizes = extents(rng, "MN")
    sizes = [{x: max(1, v) for x, v in z.items()} for z in sizes]
    A = tir.placeholder((m, n), "int32", name="A")
    r = tir.reduce_axis(n, name="r")
    V = tir.compute((m,), lambda i: tir.argmax(A[i, r], axis=r), name="V")
    return tir.schedule(V), sizes


CASES: tuple[Callable[[Random], Case], ...] = (
    matmul, matmul, half, blur, chain, down, sums, window, triangle, best,
)  # fmt: skip
