"""What the primitives that cut, turn and join loops refuse, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.conformance.nests import build as nest
from tests.errors.saying import blurred, chain, matmul, said, scaled
from tests.errors.stages import forked

Refused = Callable[[], tir.Schedule]


def turned(n: object = 64) -> tir.Schedule:
    """The schedule of a transpose."""
    A = tir.placeholder((n, n), name="A")
    return tir.schedule(tir.compute((n, n), lambda i, j: A[j, i], name="B"))


def both_ways() -> tir.Schedule:
    """A matrix and its transpose, added."""
    A = tir.placeholder((32, 32), name="A")
    return tir.schedule(tir.compute((32, 32), lambda i, j: A[j, i] + A[i, j], name="B"))


def ahead() -> tir.Schedule:
    """Two stages, the second reading the first two cells further on."""
    A = tir.placeholder((16,), name="A")
    X = tir.compute((16,), lambda x: A[x] + 1.0, name="X")
    return tir.schedule(tir.compute((14,), lambda y: X[y] * X[y + 2], name="Y"))


CASES: dict[str, tuple[Refused, str]] = {
    "partition_not_a_number": (
        lambda: matmul().partition("i", 1.5),
        """\
ArgumentTypeError: partition: at is a whole number or an affine expression of sizes and outer loops, not 1.5
""",
    ),
    "partition_huge": (
        lambda: matmul().partition("i", 2**40),
        """\
ScheduleError: partition: at is 1099511627776; the largest is 2147483647
""",
    ),
    "partition_unknown_size": (
        lambda: matmul().partition("i", tir.var("q")),
        """\
ScheduleError: partition: at names 'q', which is no size of this schedule
""",
    ),
    "partition_not_affine": (
        lambda: scaled(tir.var("n")).partition("i", "n * n"),
        """\
UnsupportedError: partition: at='n * n' is not affine

  why  it is a sum of sizes, outer loops and whole numbers, times whole numbers, also with // and %
       by one.
""",
    ),
    "partition_inner_loop": (
        lambda: matmul().partition("i", "j + 1"),
        """\
ScheduleError: partition: at names 'j', which is not a loop around 'i'

  why  where a range is cut must be known before the loop begins.
""",
    ),
    "partition_unreadable": (
        lambda: matmul().partition("i", "n +"),
        """\
ScheduleError: partition: cannot read at='n +': invalid syntax
""",
    ),
    "partition_unknown_name": (
        lambda: matmul().partition("i", "q + 1"),
        """\
ScheduleError: partition: no axis 'q'

  why  the axes are i, j and k.
""",
    ),
    "partition_into": (
        lambda: matmul().partition("i", 8, into="a"),
        """\
ScheduleError: partition: into takes 2 names, not 1
""",
    ),
    "peel_nothing": (
        lambda: matmul().peel("i"),
        """\
ScheduleError: peel: give first= or last=, how many iterations
""",
    ),
    "peel_zero": (
        lambda: matmul().peel("i", first=0),
        """\
ScheduleError: peel: first must be positive, not 0
""",
    ),
    "compute_root_in_pieces": (
        lambda: blurred().partition("y", 4).compute_root("X"),
        """\
ScheduleError: compute_root: X is in pieces, X.first and X

  why  a stage is moved whole; place it first, then cut its loops.
""",
    ),
    "skew_itself": (
        lambda: matmul().skew("i", by="i"),
        """\
ScheduleError: skew: 'i' is not a loop around 'i'
""",
    ),
    "skew_inside": (
        lambda: matmul().skew("i", by="j"),
        """\
ScheduleError: skew: 'j' is not a loop around 'i'

  why  it is inside; say skew('j', by='i').
""",
    ),
    "skew_by_nothing": (
        lambda: matmul().skew("j", by="i", factor=0),
        """\
ScheduleError: skew: a factor of 0 adds nothing
""",
    ),
    "shift_not_a_number": (
        lambda: matmul().shift("j", None),
        """\
ArgumentTypeError: shift: by is a whole number or an affine expression of sizes and outer loops, not None
""",
    ),
    "fission_end": (
        lambda: matmul().fission("j", after="C"),
        """\
ScheduleError: fission: nothing runs after C in 'j'

  why  the loop is cut between two items of its body.
""",
    ),
    "fission_elsewhere": (
        lambda: chain().fission("X.i", after="Y"),
        """\
ScheduleError: fission: Y does not run inside 'X.i'
""",
    ),
    "fission_shared": (
        lambda: blurred().fission("y", after="X"),
        """\
ScheduleError: fission: X is kept inside 'y', and both X and Y use it

  why  loops that share a buffer cannot be taken apart.
""",
    ),
    "merge_twice": (
        lambda: chain().merge("X.i", "X.i"),
        """\
ScheduleError: merge: 'X.i' is given twice
""",
    ),
    "merge_backwards": (
        lambda: chain().merge("Y.i", "X.i"),
        """\
ScheduleError: merge: 'X.i' comes before 'Y.i'; name the earlier loop first
""",
    ),
    "merge_apart": (
        lambda: forked().merge("X.i", "Z.i"),
        """\
ScheduleError: merge: Y runs between 'X.i' and 'Z.i'
""",
    ),
    "merge_nested": (
        lambda: matmul().merge("i", "j"),
        """\
ScheduleError: merge: 'i' and 'j' do not follow each other in one body

  why  only loops of one body, directly one after the other, become one.
""",
    ),
    "merge_marked": (
        lambda: chain().parallel("X.i").merge("X.i", "Y.i"),
        """\
ScheduleError: merge: 'i' is marked parallel; merge first, then mark
""",
    ),
    "jam_nothing": (
        lambda: scaled().unroll_and_jam("i", 4),
        """\
ScheduleError: unroll_and_jam: there is no loop inside 'i' to jam its copies in

  why  unroll alone serves it.
""",
    ),
    "jam_marked": (
        lambda: matmul().parallel("i").unroll_and_jam("i", 4),
        """\
ScheduleError: unroll_and_jam: 'i' is marked parallel already
""",
    ),
    "transpose_not_nested": (
        lambda: matmul().transpose_lanes("i", "k"),
        """\
ScheduleError: transpose_lanes: 'i' and 'k' are not directly nested

  why  the tile is one loop inside the other, with nothing between or beside.
""",
    ),
    "transpose_twice": (
        lambda: turned().transpose_lanes("i", "i"),
        """\
ScheduleError: transpose_lanes: 'i' is given twice
""",
    ),
    "transpose_symbolic": (
        lambda: turned(tir.var("n")).transpose_lanes("i", "j"),
        """\
ScheduleError: transpose_lanes: the extent of 'i' is not a constant

  why  a tile in registers has one size; split the loop first.
""",
    ),
    "transpose_gather": (
        lambda: both_ways().transpose_lanes("i", "j"),
        """\
ScheduleError: transpose_lanes: B would gather from A

  why  B writes along 'j', so what it reads must be neighbours along 'i'.
""",
    ),
    "transpose_width": (
        lambda: turned().tile("i", "j", 16, 16).transpose_lanes("ii", "ji", 12),
        """\
ScheduleError: transpose_lanes: width is a power of two of at least 2, not 12
""",
    ),
    "transpose_row_left": (
        lambda: turned().tile("i", "j", 16, 17).transpose_lanes("ii", "ji", 16),
        """\
ScheduleError: transpose_lanes: 17 rows are whole squares of 16 and one row

  why  a row alone would be scattered; choose another width, or another tile.
""",
    ),
    "transpose_one_row": (
        lambda: turned().tile("i", "j", 16, 1).transpose_lanes("ii", "ji"),
        """\
ScheduleError: transpose_lanes: 'ji' has 1 point

  why  a tile of one row needs no transpose; vectorize alone serves it.
""",
    ),
    "illegal_reverse": (
        lambda: nest("lcs").reverse("i"),
        """\
IllegalSchedule: reverse("i") would run S[2, 1] before S[1, 1], which writes the a[1, 1] it reads.

  for i in 1..N                     <- asked to run backwards
    for j in 1..N
      S: a[i, j] = a[i - 1, j] + a[i, j - 1] + a[i - 1, j - 1]
                   ^^^^^^^^^^^ flow dependence, distance (i: +1, j: 0), first seen at N = 3

  why  after the change the first distance is i: -1: the reader would come before the writer.
  more tir.help("illegal-schedule")
""",
    ),
    "illegal_merge": (
        lambda: ahead().merge("x", "y"),
        """\
IllegalSchedule: merge("x", "y") would run Y[0] before X[2], which writes the X[2] it reads.

  for x in 0..16
    X: X[x] = A[x] + 1.0
  for y in 0..14                    <- asked to run with x
    Y: Y[y] = X[y] * X[y + 2]
                     ^^^^^^^^ flow dependence, distance (y: -2)

  why  after the change the first distance is y: -2: the reader would come before the writer.
  try  s.shift("y", 2).merge("x", "y") lets the second lag behind
       s.shift("y", 3).merge("x", "y") lets the second lag behind
  more tir.help("illegal-schedule")
""",
    ),
}


def without_place(text: str) -> str:
    """What is said, less the line of the test that asked for it."""
    parts = text.split("\n\n")
    return "\n\n".join(p for p in parts if not p.lstrip().startswith("script.py:"))


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str) -> None:
    ask, text = CASES[name]
    with pytest.raises(tir.TensorIRError) as refused:
        ask()
    assert without_place(said(refused.value)).rstrip("\n") == text.rstrip("\n")
