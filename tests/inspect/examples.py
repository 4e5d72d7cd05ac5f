from __future__ import annotations

import tensorir as tir


def product(m: object = 64, n: object = 48, k: object = 32) -> tir.Schedule:
    A, B = tir.placeholder((m, k), name="A"), tir.placeholder((k, n), name="B")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")
    return tir.schedule(C)


def tiled(s: tir.Schedule) -> tir.Schedule:
    s = s.tile("i", "j", 8, 32, into=("io", "jo", "ii", "ji"))
    s = s.reorder("io", "jo", "k", "ii", "ji")
    return s.vectorize("ji", width=16).unroll("ii").parallel("io")


def triangle(n: object = 16) -> tir.Schedule:
    A = tir.placeholder((n, n), name="A")
    k = tir.reduce_axis(n, name="k")
    B = tir.compute((n,), lambda i: tir.sum(A[i, k], axis=k, where=k <= i), name="B")
    return tir.schedule(B)


def blur(n: object = 30) -> tir.Schedule:
    A = tir.placeholder((n + 2,), name="A")
    X = tir.compute((n + 1,), lambda i: A[i] + A[i + 1], name="X")
    Y = tir.compute((n,), lambda i: X[i] + X[i + 1], name="Y")
    return tir.schedule(Y)
