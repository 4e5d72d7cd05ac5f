"""Small schedules whose steps are refused."""

from __future__ import annotations

import tensorir as tir


def forked() -> tir.Schedule:
    """`Y = X + A` and `Z = X * Y`, after `X = 2 * A`."""
    A = tir.placeholder((8,), name="A")
    X = tir.compute((8,), lambda i: A[i] * 2.0, name="X")
    Y = tir.compute((8,), lambda i: X[i] + 1.0, name="Y")
    Z = tir.compute((8,), lambda i: X[i] * Y[i], name="Z")
    return tir.schedule(Z)


def stencil() -> tir.Schedule:
    """`Y = X + X[+1]` over `X = A + 1`."""
    A = tir.placeholder((9,), name="A")
    X = tir.compute((9,), lambda i: A[i] + 1.0, name="X")
    Y = tir.compute((8,), lambda i: X[i] + X[i + 1], name="Y")
    return tir.schedule(Y)


def chain2d() -> tir.Schedule:
    """`Y = 2 * X` over `X = A + 1`, 8 by 8."""
    A = tir.placeholder((8, 8), name="A")
    X = tir.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="X")
    Y = tir.compute((8, 8), lambda i, j: X[i, j] * 2.0, name="Y")
    return tir.schedule(Y)


def sums() -> tir.Schedule:
    """`T = 2 * S` over row sums `S`."""
    A = tir.placeholder((8, 8), name="A")
    k = tir.reduce_axis(8, name="k")
    S = tir.compute((8,), lambda i: tir.sum(A[i, k], axis=k), name="S")
    T = tir.compute((8,), lambda i: S[i] * 2.0, name="T")
    return tir.schedule(T)


def gather() -> tir.Schedule:
    """`Y = X[index]` over `X = A + 1`."""
    A = tir.placeholder((8,), name="A")
    at = tir.placeholder((8,), "int64", name="at")
    X = tir.compute((8,), lambda i: A[i] + 1.0, name="X")
    Y = tir.compute((8,), lambda i: X[at[i]], name="Y")
    return tir.schedule(Y)


def reduced(reducer: object, init: float | None = None) -> tir.Schedule:
    """Rows of A under a reducer of the user's."""
    A = tir.placeholder((8, 8), name="A")
    k = tir.reduce_axis(8, name="k")
    keywords = {} if init is None else {"init": init}
    return tir.schedule(tir.compute((8,), lambda i: reducer(A[i, k], axis=k, **keywords), name="B"))


def difference() -> tir.Schedule:
    """A reducer that is not associative."""
    return reduced(
        tir.reducer(
            lambda a, b: a - b, identity=0.0, name="sub", associative=False, commutative=False
        )
    )


def first() -> tir.Schedule:
    """A reducer without an identity."""
    return reduced(
        tir.reducer(lambda a, b: a, name="first", associative=True, commutative=False), 0.0
    )


def left() -> tir.Schedule:
    """A reducer that is associative, and not commutative."""
    return reduced(
        tir.reducer(
            lambda a, b: a + b, identity=0.0, name="left", associative=True, commutative=False
        )
    )
