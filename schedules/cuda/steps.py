"""Steps that schedules for GPUs share: loops dealt out to threads, reductions across them."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from schedules.cpu import structure
from tensorir.ir.statement import Statement
from tensorir.poly import tree
from tensorir.poly.ranges import constant_range
from tensorir.schedule.resolve import free_names, reference
from tensorir.schedule.schedule import Schedule

WARP = 32
BYTES = 16  # of the widest access
BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
MOST_BLOCKS = 65_535  # along y and z


def vector(n: int | None, x: Statement) -> int:
    """Elements of one access where rows have `n` elements, so that each row begins at one.

    0 stands for a single row.
    """
    widest = max(a.array.dtype.bytes for a in (*x.writes, *x.reads))
    return gcd(1 if n is None else n, max(1, BYTES // widest))


def threads(n: int | None, each: int, most: int) -> int:
    """Threads for `n` elements, `each` at a time: a power of two of them, all with something."""
    if n is None:
        return most
    count = most
    while count > WARP and count * each > n:
        count //= 2
    while count > 1 and (count - 1) * each >= n:
        count //= 2
    return count


def dealt(s: Schedule, name: str, count: int, each: int) -> tuple[Schedule, str, str, str]:
    """A loop as blocks of `count` threads with `each` elements: the names of the three loops."""
    bare = name.rpartition(".")[2]
    outer, rest, thread, own = free_names(s, f"{bare}o", f"{bare}r", f"{bare}t", f"{bare}v")
    s = s.split(name, count * each, into=(outer, rest)).split(rest, each, into=(thread, own))
    return s, outer, thread, own


def across(
    s: Schedule, x: Statement, loop: str, row: str | None, count: int, each: int,
    *, unroll: bool = False,
) -> Schedule:  # fmt: skip
    """A reduction loop of a statement shared out among threads, which then combine what they have.

    `row` is the loop in whose body that happens.
    """
    if count == 1:
        return s
    s, outer, thread, own = dealt(s, loop, count, each)
    (part,) = free_names(s, f"{x.stage}_part")
    s = s.rfactor(thread, into=part, at=row)
    s = s.set_scope(part, "local").bind(thread, "threadIdx.x")
    s = structure.attempt(s, "unroll", own)
    if unroll:
        s = structure.attempt(s, "unroll", outer)
    return s.cross_thread(f"{x.stage}.{thread}")


def extent_of(s: Schedule, name: str) -> int | None:
    """The extent of a loop where it is a constant."""
    loop = next(x for x in tree.loops(s.program.tree) if reference(s.program, x.axis) == name)
    found = constant_range(s.program, loop.axis)
    return None if found is None or found[0] != 0 else found[1] + 1


def fitting(n: int | None, each: int, most: int) -> tuple[int, int]:
    """Threads, and elements of each at a time: fewer of those where they would not fill a warp."""
    count = threads(n, each, most)
    while each > 1 and count < WARP:
        each //= 2
        count = threads(n, each, most)
    return count, each


def blocks(s: Schedule, names: Sequence[str], first: int = 0) -> Schedule:
    """Loops as blocks: the first as x, of which there may be any number."""
    for name, index in zip(names, BLOCKS[first:], strict=False):
        s = s.bind(name, index)
    return s
