"""What reverse_compute_at and storage kept over iterations refuse, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import chain, said, without_place
from tests.errors.stages import forked, stencil

Refused = Callable[[], tir.Schedule]


def reads_inputs() -> tir.Schedule:
    """Two stages that read inputs alone."""
    A = tir.placeholder((8,), name="A")
    X = tir.compute((8,), lambda x: A[x] + 1.0, name="X")
    Y = tir.compute((8,), lambda i: A[i] * 2.0, name="Y")
    return tir.schedule(X, Y)


def padded() -> tir.Schedule:
    """`Y` is `X` with a border of zeros."""
    A = tir.placeholder((8,), name="A")
    X = tir.compute((8,), lambda x: A[x] + 1.0, name="X")
    return tir.schedule(
        tir.compute((10,), lambda i: tir.if_then_else((i >= 1) & (i < 9), X[i - 1], 0.0), name="Y")
    )


def two_dims() -> tir.Schedule:
    """`Y` reads `X` along a diagonal."""
    A = tir.placeholder((9, 9), name="A")
    X = tir.compute((9, 9), lambda i, j: A[i, j] + 1.0, name="X")
    Y = tir.compute((8, 8), lambda y, x: X[y, x] + X[y + 1, x + 1], name="Y")
    return tir.schedule(Y)


CASES: dict[str, tuple[Refused, str]] = {
    "reverse_own_loop": (
        lambda: chain().reverse_compute_at("Y", "Y.i"),
        """\
ScheduleError: reverse_compute_at: 'Y.i' is a loop of Y itself

  why  give a loop of a stage that Y reads.
""",
    ),
    "reverse_inside_already": (
        lambda: chain().compute_at("X", "Y.i").reverse_compute_at("X", "Y.i"),
        """\
ScheduleError: reverse_compute_at: X is computed inside 'i' already
""",
    ),
    "reverse_wrong_way": (
        lambda: chain().reverse_compute_at("X", "Y.i"),
        """\
ScheduleError: reverse_compute_at: nothing inside 'Y.i' writes what X reads

  why  it reads inputs alone.
""",
    ),
    "reverse_reads_elsewhere": (
        lambda: forked().reverse_compute_at("Z", "X.i"),
        """\
IllegalSchedule: reverse_compute_at("Z", "X.i") would run Z[0] before Y[0], which writes the Y[0] it reads.

  for Y.i in 0..8
    Y: Y[Y.i] = X[Y.i] + 1.0
  for Z.i in 0..8
    Z: Z[Z.i] = X[Z.i] * Y[Z.i]
                         ^^^^^^ flow dependence

  why  after the change the reader would come before the writer.
  more tir.help("illegal-schedule")
""",
    ),
    "reverse_inputs": (
        lambda: reads_inputs().reverse_compute_at("Y", "x"),
        """\
ScheduleError: reverse_compute_at: nothing inside 'x' writes what Y reads

  why  it reads inputs alone.
""",
    ),
    "reverse_no_home": (
        lambda: padded().reverse_compute_at("Y", "x"),
        """\
ScheduleError: reverse_compute_at: Y[0] reads nothing that 'x' computes

  why  so no iteration of 'x' is the one to compute it in.
""",
    ),
    "reverse_placed": (
        lambda: forked().compute_at("Y", "Z.i").reverse_compute_at("Y", "X.i"),
        """\
ScheduleError: reverse_compute_at: Y is computed for its consumers already

  why  compute_root('Y') gives it loops of its own.
""",
    ),
    "reverse_cached": (
        lambda: forked().cache_write("Z", at="Z.i").reverse_compute_at("Z", "X.i"),
        """\
ScheduleError: reverse_compute_at: Z is computed for its consumers already

  why  compute_root('Z') gives it loops of its own.
""",
    ),
    "sliding_unknown": (
        lambda: stencil().compute_at("X", "Y.i", storage="slide"),
        """\
ScheduleError: compute_at: storage is one of 'iteration', 'sliding', 'folded', not 'slide'; did you mean 'sliding'?
""",
    ),
    "sliding_store_at": (
        lambda: stencil().compute_at("X", "Y.i", store_at="Y.i"),
        """\
ScheduleError: compute_at: store_at is where storage that outlives an iteration is kept

  why  give storage='sliding' or 'folded' with it.
""",
    ),
    "sliding_store_at_inside": (
        lambda: stencil().compute_at("X", "Y.i", storage="sliding", store_at="Y.i"),
        """\
ScheduleError: compute_at: 'Y.i' is not a loop around 'Y.i'

  why  there is none; storage kept for the whole computation needs no store_at.
""",
    ),
    "sliding_parallel": (
        lambda: stencil().parallel("Y.i").compute_at("X", "Y.i", storage="sliding"),
        """\
IllegalSchedule: compute_at("X", "Y.i", storage="sliding") would let X[0, 1] and Y[1] race in the parallel loop 'i': the first writes the X[1] that the other reads.

  for X.i in 0..9
    X: X[X.i] = A[X.i] + 1.0
  for Y.i in 0..8  # parallel
    Y: Y[Y.i] = X[Y.i] + X[Y.i + 1]
                ^^^^^^ flow dependence, distance (i: +1)

  why  threads do not wait: nothing orders two points of 'i'.
  more tir.help("illegal-schedule")
""",
    ),
    "sliding_then_parallel": (
        lambda: stencil().compute_at("X", "Y.i", storage="folded").parallel("i"),
        """\
IllegalSchedule: parallel("i") would let X.warm[0, 0] and X[1, 2] race: both write X[0].

  for i in 0..8                     <- asked to be parallel
    for X.warm.i in 0..1
      if i == 0
        X.warm: X[X.warm.i%2] = A[X.warm.i] + 1.0
    X: X[(i + 1)%2] = A[i + 1] + 1.0
       ^^^^^^^^^^^^ output dependence, distance (i: +1)
    Y[i] = X[i%2] + X[(i + 1)%2]

  why  threads do not wait: nothing orders two points of 'i'.
  more tir.help("illegal-schedule")
""",
    ),
    "sliding_twice": (
        lambda: stencil().compute_at("X", "Y.i", storage="sliding").compute_root("X"),
        """\
ScheduleError: compute_root: X is kept over iterations since step 1, compute_at("X", "Y.i", storage="sliding")

  why  what an iteration computes of it depends on the ones before; undo() to before that step.
""",
    ),
    "folded_cached": (
        lambda: two_dims().compute_at("X", "Y.y", storage="folded").cache_read("X", at="x"),
        """\
ScheduleError: cache_read: X.warm touches X, whose cells hold several values in turn

  why  it is folded, or shared with another stage; do that last, after the steps that place and
       cache.
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str) -> None:
    ask, text = CASES[name]
    with pytest.raises(tir.TensorIRError) as refused:
        ask()
    assert without_place(said(refused.value)).rstrip("\n") == text.rstrip("\n")
