"""Schedules for a GPU that several tests use."""

from __future__ import annotations

import tensorir as tir
from tests.errors.saying import matmul


def doubled(n: object, threads: int = 128) -> tir.Schedule:
    """`B = 2 * A + 1`, a thread for each element."""
    A = tir.placeholder((n,), name="A")
    B = tir.compute((n,), lambda i: A[i] * 2.0 + 1.0, name="B")
    s = tir.schedule(B).split("i", threads, into=("b", "t"))
    return s.bind("b", "blockIdx.x").bind("t", "threadIdx.x")


def staged(m: object, n: object, k: object, tile: int = 16) -> tir.Schedule:
    """A matmul by square tiles in shared memory, a thread for each element of C."""
    s = matmul(m, n, k).tile("i", "j", tile, tile, into=("by", "bx", "ty", "tx"))
    s = s.split("k", tile, into=("ko", "ki")).reorder("by", "bx", "ko", "ty", "tx", "ki")
    s = s.cache_write("C", "local", at="bx", name="acc")
    s = s.cache_read("A", "shared", at="ko", name="As").cache_read(
        "B", "shared", at="ko", name="Bs"
    )
    s = s.bind("by", "blockIdx.y").bind("bx", "blockIdx.x")
    for axis in ("ty", "As.i", "Bs.k", "acc.store.i"):
        s = s.bind(axis, "threadIdx.y")
    for axis in ("tx", "As.k", "Bs.j", "acc.store.j"):
        s = s.bind(axis, "threadIdx.x")
    return s


def mixed(a: tir.Tensor, b: tir.Tensor) -> tir.Tensor:
    """A product of 16-bit matrices with sums of 32 bits, as tensor cores make it."""
    k = tir.reduce_axis(a.shape[1], name="k")
    return tir.compute(
        (a.shape[0], b.shape[1]),
        lambda i, j: tir.sum(tir.cast(a[i, k], "float32") * tir.cast(b[k, j], "float32"), axis=k),
        name="mixed",
    )


def tiled(m: object, n: object, k: object) -> tir.Schedule:
    """A matmul by 32 x 32 tiles in shared memory, 4 x 4 elements of C in each thread."""
    s = matmul(m, n, k)
    s = s.split("i", 32, into=("by", "i1")).split("i1", 4, into=("ty", "ii"))
    s = s.split("j", 32, into=("bx", "j1")).split("j1", 4, into=("tx", "ji"))
    s = s.reorder("by", "bx", "ty", "tx", "ii", "ji").split("k", 8, into=("ko", "ki"))
    s = s.reorder("by", "bx", "ko", "ty", "tx", "ki", "ii", "ji")
    s = s.cache_write("C", "local", at="bx", name="acc")
    s = s.cache_read("A", "shared", at="ko", name="As").cache_read(
        "B", "shared", at="ko", name="Bs"
    )
    s = s.bind("by", "blockIdx.y").bind("bx", "blockIdx.x")
    s = s.bind("ty", "threadIdx.y").bind("tx", "threadIdx.x")
    s = s.unroll("ii").vectorize("ji", 4).unroll("ki")
    s = s.split("acc.store.i", 4, into=("sy", "si")).split("acc.store.j", 4, into=("sx", "sj"))
    s = s.reorder("sy", "sx", "si", "sj").bind("sy", "threadIdx.y").bind("sx", "threadIdx.x")
    s = s.unroll("si").vectorize("sj", 4)
    s = s.split("As.i", 8, into=("ao", "ai")).bind("ai", "threadIdx.y").bind("As.k", "threadIdx.x")
    s = s.split("Bs.j", 8, into=("bo", "bi")).bind("bi", "threadIdx.x").bind("Bs.k", "threadIdx.y")
    return s
