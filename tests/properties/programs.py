"""Random declarations: what is computed, how to make inputs for it, and numpy's answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

import tensorir as tir

Sizes = dict[str, int]


@dataclass
class Case:
    """A computation with its inputs.

    `sizes` are assignments of the symbolic sizes to try; `shapes` gives the shape of each input
    for one of them; `expect` is numpy's answer, where numpy computes in the same types.
    """

    name: str
    outputs: tuple[tir.Tensor, ...]
    inputs: list[tuple[str, Callable[[Sizes], tuple[int, ...]]]]
    sizes: list[Sizes]
    expect: Callable[..., object] | None = None
    exact: bool = False
    low: int = -9
    keep: list[object] = field(default_factory=list)

    def arrays(self, sizes: Sizes, seed: int) -> list[np.ndarray]:
        """Inputs for `sizes`: small integers in every type, so that many sums are exact."""
        rng = np.random.default_rng(seed)
        made = []
        for dtype, shape in self.inputs:
            values = rng.integers(self.low, 10, shape(sizes))
            if dtype.startswith("float") or dtype == "bfloat16":
                values = values + rng.integers(0, 8, values.shape) / 8
            if dtype.startswith("uint"):
                values = np.abs(values)
            made.append(values.astype(tir.dtype(dtype).numpy))
        return made


def _extents(rng: Random, names: str) -> tuple[dict[str, object], list[Sizes]]:
    """Each size a constant or symbolic, with assignments to try."""
    symbolic = rng.random() < 0.5
    extents: dict[str, object] = {}
    fixed = {n: rng.choice([1, 2, 3, 5, 7, 8, 12, 13, 17, 33]) for n in names}
    if not symbolic:
        extents.update(fixed)
        return extents, [fixed]
    extents.update({n: tir.var(n) for n in names})
    tries = [fixed, {n: rng.randint(1, 20) for n in names}, {n: rng.randint(0, 9) for n in names}]
    return extents, tries


def _dtype(rng: Random) -> str:
    return rng.choice(
        ["float32"] * 5 + ["float64", "int32", "int8", "uint8", "int64", "float16", "bfloat16"]
    )


def elementwise(rng: Random) -> Case:
    e, sizes = _extents(rng, "MN")
    d = _dtype(rng)
    A = tir.placeholder((e["M"], e["N"]), d, name="A")
    B = tir.placeholder((e["M"], e["N"]), d, name="B")
    C = tir.compute((e["M"], e["N"]), lambda i, j: A[i, j] + B[i, j], name="C")
    D = tir.compute((e["M"], e["N"]), lambda i, j: C[i, j] * A[i, j], name="D")
    E = tir.compute((e["M"], e["N"]), lambda i, j: tir.select(i < j, D[i, j], C[i, j]), name="E")
    shape = lambda s: (s["M"], s["N"])  # noqa: E731

    def expect(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        c = a + b
        i, j = np.indices(a.shape)
        return np.where(i < j, c * a, c)

    return Case("elementwise", (E,), [(d, shape), (d, shape)], sizes, expect, exact=True)


def stencil(rng: Random) -> Case:
    e, sizes = _extents(rng, "MN")
    d = rng.choice(["float32", "float64", "int32"])
    A = tir.placeholder((e["M"] + 2, e["N"] + 2), d, name="A")
    X = tir.compute(
        (e["M"] + 2, e["N"]), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="X"
    )
    Y = tir.compute((e["M"], e["N"]), lambda y, x: X[y, x] - X[y + 1, x] + X[y + 2, x], name="Y")

    def expect(a: np.ndarray) -> np.ndarray:
        b = a[:, :-2] + a[:, 1:-1] + a[:, 2:]
        return b[:-2] - b[1:-1] + b[2:]

    return Case(
        "stencil", (Y,), [(d, lambda s: (s["M"] + 2, s["N"] + 2))], sizes, expect, exact=True
    )


def matmul(rng: Random) -> Case:
    e, sizes = _extents(rng, "MNK")
    d = rng.choice(["float32", "float32", "float64", "int32", "int8"])
    A = tir.placeholder((e["M"], e["K"]), d, name="A")
    B = tir.placeholder((e["K"], e["N"]), d, name="B")
    k = tir.reduce_axis(e["K"], name="k")
    C = tir.compute((e["M"], e["N"]), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    outputs = C
    if rng.random() < 0.4:
        outputs = tir.compute((e["M"], e["N"]), lambda i, j: tir.maximum(C[i, j], 0) + 1, name="D")
    shapes = [(d, lambda s: (s["M"], s["K"])), (d, lambda s: (s["K"], s["N"]))]
    return Case("matmul", (outputs,), shapes, sizes)


def reduction(rng: Random) -> Case:
    e, sizes = _extents(rng, "MN")
    d = rng.choice(["float32", "int32", "uint8", "float64", "float16"])
    A = tir.placeholder((e["M"], e["N"] + 1), d, name="A")
    k = tir.reduce_axis(e["N"] + 1, name="k")
    how = rng.choice(["sum", "max", "min", "prod", "argmax", "argmin"])
    where = rng.choice([None, None, "affine", "data"])
    reduce = getattr(tir, how)

    def body(i: tir.Expr) -> tir.Expr:
        conditions = {None: None, "affine": k <= i, "data": A[i, k] > 0}
        init = {"init": 0} if how in ("max", "min") and where else {}
        if how in ("argmax", "argmin"):
            return reduce(A[i, k], axis=k)
        return reduce(A[i, k], axis=k, where=conditions[where], **init)

    S = tir.compute((e["M"],), body, name="S")
    outputs = S
    if rng.random() < 0.3:
        outputs = tir.compute((e["M"],), lambda i: S[i] * 2 + S[i], name="T")
    return Case(f"{how}-{where}", (outputs,), [(d, lambda s: (s["M"], s["N"] + 1))], sizes, low=-2)


def triangle(rng: Random) -> Case:
    e, sizes = _extents(rng, "NK")
    d = rng.choice(["float32", "float64", "int32"])
    A = tir.placeholder((e["N"], e["K"]), d, name="A")
    k = tir.reduce_axis(e["K"], name="k")
    C = tir.compute(
        (e["N"], e["N"]), lambda i, j: tir.sum(A[i, k] * A[j, k], axis=k), name="C",
        where=lambda i, j: j <= i,
    )  # fmt: skip
    return Case("triangle", (C,), [(d, lambda s: (s["N"], s["K"]))], sizes)


def indices(rng: Random) -> Case:
    e, sizes = _extents(rng, "N")
    n = e["N"]
    d = _dtype(rng)
    A = tir.placeholder((n,), d, name="A")
    B = tir.placeholder((n,), d, name="B")
    f, g = rng.sample(
        [
            lambda i: A[n - 1 - i],
            lambda i: B[i // 3 + i % 3 - tir.minimum(i % 3, 2)],
            lambda i: A[tir.maximum(i - 2, 0)],
            lambda i: tir.if_then_else(i >= 3, B[i - 3], 1),
            lambda i: B[tir.select(i % 2 == 0, i, i - 1)],
            lambda i: tir.cast(i, d),
        ],
        2,
    )
    C = tir.compute((n,), lambda i: f(i) + B[i], name="C")
    D = tir.compute((n,), lambda i: g(i) - C[i], name="D")
    both = rng.random() < 0.3
    order = [t for t in (A, B) if _reads(t, (D, C) if both else (D,))]
    shape = lambda s: (s["N"],)  # noqa: E731
    out = (D, C) if both else (D,)
    return Case("indices", out, [(d, shape) for _ in order], sizes, exact=True)


def _reads(t: tir.Tensor, outputs: tuple[tir.Tensor, ...]) -> bool:
    return any(a.name == t.name for a in tir.schedule(*outputs).program.arrays)


def convolution(rng: Random) -> Case:
    e, sizes = _extents(rng, "HW")
    d = rng.choice(["float32", "int32"])
    c_in, c_out, r = rng.randint(1, 4), rng.randint(1, 5), rng.choice([1, 3])
    stride = rng.choice([1, 2])
    A = tir.placeholder((c_in, e["H"] * stride + r, e["W"] * stride + r), d, name="A")
    F = tir.placeholder((c_out, c_in, r, r), d, name="F")
    ci, y, x = (tir.reduce_axis(n, name=m) for n, m in ((c_in, "ci"), (r, "ry"), (r, "rx")))
    C = tir.compute(
        (c_out, e["H"], e["W"]),
        lambda o, h, w: tir.sum(
            A[ci, h * stride + y, w * stride + x] * F[o, ci, y, x], axis=(ci, y, x)
        ),
        name="C",
    )
    shapes = [
        (d, lambda s: (c_in, s["H"] * stride + r, s["W"] * stride + r)),
        (d, lambda s: (c_out, c_in, r, r)),
    ]
    return Case("convolution", (C,), shapes, sizes)


def chain(rng: Random) -> Case:
    e, sizes = _extents(rng, "MN")
    d = rng.choice(["float32", "int32"])
    A = tir.placeholder((e["M"], e["N"]), d, name="A")
    R = tir.compute((e["M"], e["N"]), lambda i, j: A[i, j] + i, name="R")
    k = tir.reduce_axis(e["N"], name="k")
    S = tir.compute((e["M"],), lambda i: tir.sum(R[i, k], axis=k), name="S")
    T = tir.compute((e["N"], e["M"]), lambda j, i: R[i, j] - S[i], name="T")
    return Case("chain", (T,), [(d, lambda s: (s["M"], s["N"]))], sizes)


def softmax(rng: Random) -> Case:
    """A maximum, a sum of powers, and sometimes a weighted one: what `online` is for.

    Powers of two of whole numbers are exact, so that all ways to compute them agree.
    """
    e, sizes = _extents(rng, "MN")
    d = rng.choice(["float32", "float64"])
    rows = (e["M"],) if rng.random() < 0.5 else ()
    A = tir.placeholder((*rows, e["N"] + 1), d, name="A")
    W = tir.placeholder((e["N"] + 1,), d, name="W")
    k, j, r = (tir.reduce_axis(e["N"] + 1, name=x) for x in "kjr")
    whole = lambda *i: tir.floor(A[i])  # noqa: E731
    power = lambda m, i, x: tir.exp2(whole(*i, x) - m[i])  # noqa: E731
    m = tir.compute(rows, lambda *i: tir.max(whole(*i, k), axis=k), name="m")
    total = tir.compute(rows, lambda *i: tir.sum(power(m, i, j), axis=j), name="l")
    o = tir.compute(rows, lambda *i: tir.sum(power(m, i, r) * W[r], axis=r), name="o")
    outputs = (o, total) if rng.random() < 0.5 else (total, m)
    if rng.random() < 0.5:
        outputs = (tir.compute(rows, lambda *i: o[i] / total[i], name="y"),)
    shapes: list[Callable[[Sizes], tuple[int, ...]]] = [
        lambda s: (*((s["M"],) if rows else ()), s["N"] + 1)
    ]
    if outputs[-1] is not m:
        shapes.append(lambda s: (s["N"] + 1,))
    return Case("softmax", outputs, [(d, x) for x in shapes], sizes)


GENERATORS: list[Callable[[Random], Case]] = [
    elementwise, stencil, matmul, reduction, triangle, indices, convolution, chain, softmax,
]  # fmt: skip


def draw(rng: Random) -> Case:
    """A random declaration."""
    return rng.choice(GENERATORS)(rng)
