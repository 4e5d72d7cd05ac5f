"""What non_temporal and prefetch refuse, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import chain, matmul, said, scaled
from tests.errors.test_memory import without_place

Refused = Callable[[], tir.Schedule]


def fused() -> tir.Schedule:
    """Two stages, the first computed in each row of the second."""
    A = tir.placeholder((8, 8), name="A")
    X = tir.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="X")
    Y = tir.compute((8, 8), lambda i, j: X[i, j] * 2.0, name="Y")
    return tir.schedule(Y).compute_at("X", "Y.i")


def scaled_rows(*, fuse: bool = False) -> tir.Schedule:
    """`Y = A * B`, B one row; or without it in one loop."""
    A, B = tir.placeholder((8, 8), name="A"), tir.placeholder((8,), name="B")
    if fuse:
        return tir.schedule(tir.compute((8, 8), lambda i, j: A[i, j] * 2.0, name="Y")).fuse(
            "i", "j"
        )
    return tir.schedule(tir.compute((8, 8), lambda i, j: A[i, j] * B[j], name="Y"))


def gathered() -> tir.Schedule:
    """`Y = 2 * A[N]`, N loaded."""
    A, N = tir.placeholder((8,), name="A"), tir.placeholder((8,), "int32", name="N")
    return tir.schedule(tir.compute((8,), lambda i: A[N[i]] * 2.0, name="Y"))


CASES: dict[str, tuple[Refused, str]] = {
    "non_temporal_input": (
        lambda: scaled().non_temporal("A"),
        """\
ScheduleError: non_temporal: 'A' is an input, nothing computes it
""",
    ),
    "non_temporal_unknown": (
        lambda: scaled().non_temporal("C"),
        """\
ScheduleError: non_temporal: no tensor 'C'

  why  the tensors are A and B.
""",
    ),
    "non_temporal_accumulated": (
        lambda: matmul(8, 8, 8).non_temporal("C"),
        """\
ScheduleError: non_temporal: C reads C again inside the loops that write it

  why  what streams past the caches would have to come back from memory; an accumulation is kept in
       a buffer, whose end result streams.
  try  s.cache_write("C", at="j").non_temporal("C") accumulates in a buffer
       s.cache_write("C", at="i").non_temporal("C") accumulates in a buffer
""",
    ),
    "non_temporal_kept": (
        lambda: fused().non_temporal("X"),
        """\
ScheduleError: non_temporal: X is kept inside 'i'

  why  a small buffer that is used again and again belongs in the caches.
""",
    ),
    "non_temporal_local": (
        lambda: chain().set_scope("X", "local").non_temporal("X"),
        """\
ScheduleError: non_temporal: X is in local memory

  why  a small buffer that is used again and again belongs in the caches.
""",
    ),
    "non_temporal_above": (
        lambda: scaled().non_temporal("B", above=-1),
        """\
ScheduleError: non_temporal: above must be positive, not -1
""",
    ),
    "prefetch_nothing": (
        lambda: chain().prefetch("X", "X.i"),
        """\
ScheduleError: prefetch: nothing inside 'X.i' reads X
""",
    ),
    "prefetch_reader": (
        lambda: chain().prefetch("X", "Y.i", reader="X"),
        """\
ScheduleError: prefetch: X does not read X inside 'Y.i'
""",
    ),
    "prefetch_kept": (
        lambda: fused().prefetch("X", "Y.i"),
        """\
ScheduleError: prefetch: X is kept inside a loop

  why  it is small and in the caches already.
""",
    ),
    "prefetch_still": (
        lambda: scaled_rows().prefetch("B", "i"),
        """\
ScheduleError: prefetch: Y reads the same cells of B in every iteration of 'i'

  why  nothing has to be asked for.
""",
    ),
    "prefetch_loaded": (
        lambda: gathered().prefetch("A", "i"),
        """\
UnsupportedError: prefetch: Y reads A through an index that is not affine

  why  what it reads later is not known ahead of time.
""",
    ),
    "prefetch_fused": (
        lambda: scaled_rows(fuse=True).prefetch("A", "ij"),
        """\
UnsupportedError: prefetch: 'ij' does not move 'i' by a constant

  why  the index of Y is ij//8 there.
""",
    ),
    "prefetch_distance": (
        lambda: scaled().prefetch("A", "i", 0),
        """\
ScheduleError: prefetch: distance must be positive, not 0
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str) -> None:
    ask, text = CASES[name]
    with pytest.raises(tir.TensorIRError) as refused:
        ask()
    assert without_place(said(refused.value)).rstrip("\n") == text.rstrip("\n")
