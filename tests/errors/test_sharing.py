"""What reuse, atomic and scatter refuse, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import chain, said, without_place
from tests.errors.stages import gather, sums

Refused = Callable[[], tir.Schedule]


def scan() -> tir.Schedule:
    """`Y = X + reversed X` over `X = A + 1`, of a symbolic size."""
    n = tir.var("n")
    A = tir.placeholder((n,), name="A")
    X = tir.compute((n,), lambda x: A[x] + 1.0, name="X")
    return tir.schedule(tir.compute((n,), lambda i: X[i] + X[n - 1 - i], name="Y"))


def three() -> tir.Schedule:
    """`Y = X + Z`, two intermediates alive at once."""
    A = tir.placeholder((8,), name="A")
    X = tir.compute((8,), lambda i: A[i] * 2.0, name="X")
    Z = tir.compute((8,), lambda i: A[i] * 3.0, name="Z")
    return tir.schedule(tir.compute((8,), lambda i: X[i] + Z[i], name="Y"))


def other_type() -> tir.Schedule:
    """Consumers of `X` of another size, rank and type."""
    A = tir.placeholder((8,), name="A")
    X = tir.compute((8,), lambda i: A[i] * 2.0, name="X")
    Z = tir.compute((8, 2), lambda i, j: X[i] + 1.0, name="Z")
    W = tir.compute((4,), lambda i: X[i] + 1.0, name="W")
    V = tir.compute((8,), lambda i: tir.cast(X[i], "int32"), name="V")
    return tir.schedule(W, Z, V)


def product() -> tir.Schedule:
    """Products of rows."""
    A = tir.placeholder((8, 8), name="A")
    k = tir.reduce_axis(8, name="k")
    return tir.schedule(tir.compute((8,), lambda i: tir.prod(A[i, k], axis=k), name="P"))


def where() -> tir.Schedule:
    """The place of the greatest element."""
    A = tir.placeholder((8,), "int64", name="A")
    k = tir.reduce_axis(8, name="k")
    return tir.schedule(tir.compute((), lambda: tir.argmax(A[k], axis=k), name="P"))


def counted(where: Callable[..., object] | None = None, otherwise: int = 0) -> tir.Schedule:
    """How often each of four values occurs."""
    A = tir.placeholder((8,), "int64", name="A")
    k = tir.reduce_axis(8, name="k")
    body = lambda b: tir.sum(tir.select(A[k] == b, 1, otherwise), axis=k)  # noqa: E731
    return tir.schedule(tir.compute((4,), body, where=where, name="H"))


CASES: dict[str, tuple[Refused, str]] = {
    "reuse_input": (
        lambda: chain().reuse("A", "Y"),
        """\
ScheduleError: reuse: A is an input; it lives in the caller's memory
""",
    ),
    "reuse_output": (
        lambda: chain().reuse("Y", "X"),
        """\
ScheduleError: reuse: Y is an output; it lives in the caller's memory
""",
    ),
    "reuse_into_input": (
        lambda: chain().reuse("X", "A"),
        """\
ScheduleError: reuse: A is an input, which is not written to

  why  an intermediate is kept in another one, or in an output.
""",
    ),
    "reuse_self": (
        lambda: chain().reuse("X", "X"),
        """\
ScheduleError: reuse: X is both tensors
""",
    ),
    "reuse_type": (
        lambda: other_type().reuse("X", "V"),
        """\
ScheduleError: reuse: X holds float32 and V int32
""",
    ),
    "reuse_rank": (
        lambda: other_type().reuse("X", "Z"),
        """\
ScheduleError: reuse: X has 1 dimensions and Z 2
""",
    ),
    "reuse_small": (
        lambda: other_type().reuse("X", "W"),
        """\
ScheduleError: reuse: X does not fit into W: dimension 0 is 8 of 4
""",
    ),
    "reuse_inside": (
        lambda: three().compute_at("X", "Y.i").reuse("X", "Z"),
        """\
ScheduleError: reuse: X exists inside 'i', Z outside all loops

  why  they must exist in the same loops.
""",
    ),
    "reuse_alive": (
        lambda: three().reuse("X", "Z"),
        """\
IllegalSchedule: reuse: Z[i = 0] would overwrite a value of X that Y[i = 0] still reads

  why  both are in use at once.
""",
    ),
    "reuse_reversed": (
        lambda: scan().reuse("X", "Y"),
        """\
IllegalSchedule: reuse: Y[i = 0] would overwrite a value of X that Y[i = 1] still reads, n = 2

  why  both are in use at once.
""",
    ),
    "reuse_layout": (
        lambda: three().transform_layout("X", lambda i: (i // 4, i % 4)).reuse("X", "Z"),
        """\
ScheduleError: reuse: X has a layout of its own

  why  cells are shared as declared.
""",
    ),
    "reuse_gather": (
        lambda: gather().reuse("X", "Y"),
        """\
UnsupportedError: reuse: X is accessed through an index that is loaded

  why  which cells are in use is then known only when it runs.
""",
    ),
    "reuse_then_cache": (
        lambda: chain().reuse("X", "Y").cache_write("Y", at="Y.i"),
        """\
ScheduleError: cache_write: Y touches Y, whose cells hold several values in turn

  why  it is folded, or shared with another stage; do that last, after the steps that place and
       cache.
""",
    ),
    "atomic_plain": (
        lambda: chain().atomic("X"),
        """\
ScheduleError: atomic: X is not a reduction

  why  only what several instances combine into one cell needs it.
""",
    ),
    "atomic_product": (
        lambda: product().atomic("P"),
        """\
UnsupportedError: atomic: the update of P has no atomic form: no instruction combines a cell by prod
""",
    ),
    "atomic_two": (
        lambda: where().atomic("P"),
        """\
UnsupportedError: atomic: the update of P has no atomic form: its state is 2 numbers
""",
    ),
    "scatter_plain": (
        lambda: chain().scatter("X"),
        """\
ScheduleError: scatter: X is not a reduction
""",
    ),
    "scatter_sum": (
        lambda: sums().scatter("S"),
        """\
UnsupportedError: scatter: the update of S does not pick its cell by an index: no condition chooses what is combined

  why  it must be of the form acc + select(index[k] == i, value, 0).
""",
    ),
    "scatter_split": (
        lambda: counted().split("k", 4).scatter("H"),
        """\
ScheduleError: scatter: H was scheduled already

  why  its loops start afresh: scatter first, then split, place and cache.
""",
    ),
    "scatter_part": (
        lambda: counted(where=lambda b: b >= 1).scatter("H"),
        """\
UnsupportedError: scatter: the update of H does not pick its cell by an index: not every cell along the dimension is looked at

  why  it must be of the form acc + select(index[k] == i, value, 0).
""",
    ),
    "scatter_other": (
        lambda: counted(otherwise=2).scatter("H"),
        """\
UnsupportedError: scatter: the update of H does not pick its cell by an index: where the condition fails the cell is not left as it is

  why  it must be of the form acc + select(index[k] == i, value, 0).
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str) -> None:
    ask, text = CASES[name]
    with pytest.raises(tir.TensorIRError) as refused:
        ask()
    assert without_place(said(refused.value)).rstrip("\n") == text.rstrip("\n")
