"""What compute_at, compute_root and compute_inline refuse, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import chain, said
from tests.errors.stages import forked, gather, stencil, sums

Refused = Callable[[], tir.Schedule]

CASES: dict[str, tuple[Refused, str]] = {
    "compute_at_output": (
        lambda: chain().compute_at("Y", "X.i"),
        """\
ScheduleError: compute_at: Y is an output

  why  only intermediate stages are computed for their consumers; an output is wanted whole.
""",
    ),
    "compute_at_self": (
        lambda: chain().compute_at("X", "X.i"),
        """\
ScheduleError: compute_at: 'X.i' is a loop of X itself

  why  give a loop of a consumer: Y.
""",
    ),
    "compute_at_not_all_consumers": (
        lambda: forked().compute_at("X", "Y.i"),
        """\
ScheduleError: compute_at: Z reads X, and is not inside 'Y.i'

  why  every consumer must be inside the loop at which a stage is computed.
""",
    ),
    "compute_at_nothing_inside": (
        lambda: forked().compute_at("Y", "X.i"),
        """\
ScheduleError: compute_at: nothing inside 'X.i' reads Y; Z does, outside of it

  why  every consumer must be inside the loop at which a stage is computed.
  try  s.compute_at("Y", "Z.i")     is around every consumer
""",
    ),
    "compute_at_unknown_stage": (
        lambda: chain().compute_at("Z", "Y.i"),
        """\
ScheduleError: compute_at: no stage 'Z'

  why  the stages are X and Y.
""",
    ),
    "compute_at_input": (
        lambda: chain().compute_at("A", "Y.i"),
        """\
ScheduleError: compute_at: 'A' is an input, nothing computes it
""",
    ),
    "compute_at_recompute": (
        lambda: stencil().compute_at("X", "Y.i", recompute=False),
        """\
IllegalSchedule: compute_at would compute X[1] more than once: for i = 0 and for i = 1

  why  iterations need overlapping parts of it, and recompute=False allows no repetition.
""",
    ),
    "compute_at_cached": (
        lambda: stencil().cache_write("X", at="X.i").compute_at("X", "Y.i"),
        """\
ScheduleError: compute_at: X is kept in a buffer of its own (X_local.store writes X)

  why  place the stage first, then cache what it writes.
""",
    ),
    "compute_at_copy": (
        lambda: chain().cache_read("A", at="X.i").compute_at("A_cache", "X.i"),
        """\
ScheduleError: compute_at: A_cache is a copy that cache_read made; it stays where it was made

  why  undo it, and cache at the other loop.
""",
    ),
    "compute_at_reads_inside": (
        lambda: chain().compute_at("X", "Y.i").cache_read("A", at="Y.i").compute_root("X"),
        """\
ScheduleError: compute_root: X uses A_cache, which is kept inside 'i'

  why  X would leave that loop; move it first, then cache.
""",
    ),
    "compute_root_already": (
        lambda: chain().compute_root("X"),
        """\
ScheduleError: compute_root: X is computed in loops of its own already

  why  compute_root undoes a compute_at.
""",
    ),
    "inline_reduction": (
        lambda: sums().compute_inline("S"),
        """\
ScheduleError: compute_inline: S is a reduction; only a stage that computes each cell from one expression can be inlined

  why  its value takes a loop. compute_at keeps it near its consumers.
""",
    ),
    "inline_output": (
        lambda: chain().compute_inline("Y"),
        """\
ScheduleError: compute_inline: Y is an output

  why  only intermediate stages are computed for their consumers; an output is wanted whole.
""",
    ),
    "inline_gather": (
        lambda: gather().compute_inline("X"),
        """\
UnsupportedError: compute_inline: Y reads X through an index that is not affine; such a stage cannot be inlined
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
