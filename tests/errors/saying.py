"""What an error says, whole, with the place in the test made stable."""

from __future__ import annotations

import re

import tensorir as tir

_PLACE = re.compile(r"\b\w+\.py:\d+")


def said(error: BaseException) -> str:
    """Class, message and notes; where the test's file and line stood there is `script.py:1`."""
    return _PLACE.sub("script.py:1", tir.full_text(error)) + "\n"


def without_place(text: str) -> str:
    """What is said, less the line of the test that asked for it."""
    parts = text.split("\n\n")
    return "\n\n".join(p for p in parts if not p.lstrip().startswith("script.py:"))


def matmul(m: object = 64, n: object = 64, k: object = 64) -> tir.Schedule:
    """The schedule of `C = A @ B`."""
    A = tir.placeholder((m, k), name="A")
    B = tir.placeholder((k, n), name="B")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")
    return tir.schedule(C)


def scaled(n: object = 64) -> tir.Schedule:
    """The schedule of `B = 2 * A`, one loop."""
    A = tir.placeholder((n,), name="A")
    B = tir.compute((n,), lambda i: A[i] * 2.0, name="B")
    return tir.schedule(B)


def chain() -> tir.Schedule:
    """The schedule of two stages, `X = A + 1` and `Y = 2 * X`, each in a loop `i`."""
    A = tir.placeholder((8,), name="A")
    X = tir.compute((8,), lambda i: A[i] + 1.0, name="X")
    Y = tir.compute((8,), lambda i: X[i] * 2.0, name="Y")
    return tir.schedule(Y)


def triangle() -> tir.Schedule:
    """The schedule of `T = A + 1` where j <= i."""
    A = tir.placeholder((8, 8), name="A")
    T = tir.compute((8, 8), lambda i, j: A[i, j] + 1.0, where=lambda i, j: j <= i, name="T")
    return tir.schedule(T)


def blurred() -> tir.Schedule:
    """A stencil with its first stage computed in each row of the second."""
    A = tir.placeholder((18, 16), name="A")
    X = tir.compute((18, 16), lambda y, x: A[y, x] * 0.5, name="X")
    Y = tir.compute((16, 16), lambda y, x: X[y, x] + X[y + 2, x], name="Y")
    return tir.schedule(Y).compute_at("X", "Y.y")
