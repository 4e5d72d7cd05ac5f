"""What cache_read, cache_write, transform_layout and set_scope refuse, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import chain, matmul, said, scaled
from tests.errors.stages import chain2d, forked

Refused = Callable[[], tir.Schedule]

CASES: dict[str, tuple[Refused, str]] = {
    "cache_read_unread": (
        lambda: matmul(8, 8, 8).cache_read("C"),
        """\
ScheduleError: cache_read: nothing reads C

  why  only its own updates do.
""",
    ),
    "cache_read_not_inside": (
        lambda: forked().cache_read("A", at="Y.i"),
        """\
ScheduleError: cache_read: nothing inside 'Y.i' reads A

  why  X reads it, in other loops.
""",
    ),
    "cache_read_written": (
        lambda: matmul(8, 8, 8).cache_read("C", at="i"),
        """\
ScheduleError: cache_read: C.init writes C inside 'i'

  why  a copy made before would miss what is written; cache_write keeps what is accumulated.
  try  s.cache_write("C", at="i")   keeps what is written there
""",
    ),
    "cache_read_scope": (
        lambda: scaled().cache_read("A", "warp", at="i"),
        """\
UnsupportedError: cache_read: scope 'warp' is not there yet; use 'shared'
""",
    ),
    "cache_read_bad_scope": (
        lambda: scaled().cache_read("A", "locl", at="i"),
        """\
ScheduleError: cache_read: scope is one of 'global', 'shared', 'local', not 'locl'; did you mean 'local'?
""",
    ),
    "cache_read_name_in_use": (
        lambda: scaled().cache_read("A", name="B"),
        """\
ScheduleError: cache_read: the name 'B' is in use: something else has it already
""",
    ),
    "cache_read_readers": (
        lambda: forked().cache_read("A", readers=["Y"]),
        """\
ScheduleError: cache_read: Y does not read A
""",
    ),
    "cache_write_input": (
        lambda: scaled().cache_write("A", at="i"),
        """\
ScheduleError: cache_write: A is an input, nothing writes it
""",
    ),
    "cache_write_not_inside": (
        lambda: chain().cache_write("X", at="Y.i"),
        """\
ScheduleError: cache_write: nothing inside 'Y.i' writes X

  why  X writes it, in other loops.
""",
    ),
    "cache_write_meaningless_init": (
        lambda: matmul(8, 8, 8).cache_write("C", at="j", init="load"),
        """\
ScheduleError: cache_write: init='load' means nothing here: no value of C comes from outside of 'j'

  why  its initial value and all updates are inside, and the buffer takes them over.
""",
    ),
    "cache_write_bad_init": (
        lambda: matmul(8, 8, 8).cache_write("C", at="k", init="zero"),
        """\
ScheduleError: cache_write: init is 'load' or 'identity', not 'zero'
""",
    ),
    "cache_write_identity_of_no_reduction": (
        lambda: scaled().cache_write("B", at="i", init="identity"),
        """\
ScheduleError: cache_write: init='identity' means nothing here: no value of B comes from outside of 'i'

  why  its initial value and all updates are inside, and the buffer takes them over.
""",
    ),
    "layout_output": (
        lambda: scaled().transform_layout("B", lambda i: (i // 4, i % 4)),
        """\
ScheduleError: transform_layout: B is an output, whose layout is the caller's

  why  repack by an explicit stage: copy it into an array that is laid out as you wish.
""",
    ),
    "layout_two_cells": (
        lambda: chain2d().transform_layout("X", lambda i, j: (i // 2, j)),
        """\
IllegalSchedule: transform_layout would put X[0, 0] and X[1, 0] in one place

  why  a layout must send no two cells to one place.
""",
    ),
    "layout_form": (
        lambda: chain2d().transform_layout("X", lambda i, j: (i + j, j)),
        """\
UnsupportedError: transform_layout: the storage index i0 + i1 is not of a supported form

  why  each storage index is an index i, i // c or i % c, with one c for each index, as in (i // 6,
       k, i % 6).
""",
    ),
    "layout_arity": (
        lambda: chain2d().transform_layout("X", lambda i: (i,)),
        """\
ScheduleError: transform_layout: X has 2 indices; the map takes another number
""",
    ),
    "layout_missing": (
        lambda: chain2d().transform_layout("X", lambda i, j: (i,)),
        """\
IllegalSchedule: transform_layout would put X[0, 0] and X[0, 1] in one place

  why  a layout must send no two cells to one place.
""",
    ),
    "layout_mod_only": (
        lambda: chain2d().transform_layout("X", lambda i, j: (i, j % 4)),
        """\
IllegalSchedule: transform_layout would put X[0, 0] and X[0, 4] in one place

  why  a layout must send no two cells to one place.
""",
    ),
    "set_scope_warp": (
        lambda: chain().set_scope("X", "warp"),
        """\
UnsupportedError: set_scope: scope 'warp' is not there yet; use 'shared'
""",
    ),
    "set_scope_input": (
        lambda: chain().set_scope("A", "local"),
        """\
ScheduleError: set_scope: A is an input; it lives in the caller's memory
""",
    ),
    "set_scope_threads": (
        lambda: chain().parallel("X.i").set_scope("X", "local"),
        """\
ScheduleError: set_scope: the threads of 'X.i' share X

  why  a local buffer belongs to one thread; compute or cache it inside that loop.
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
