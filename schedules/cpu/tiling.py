"""The register tile that all products share: its size, and the steps that make it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorir.ir.target import Target
from tensorir.schedule.schedule import Schedule

TALL = 16  # no tile has more rows
START = 60  # multiplications in whose time a tile starts and ends
BUSY = 12  # multiplications in flight without which some wait for others
GAIN = 1.015  # what another tile than the usual one must gain: that one streams least
DEEP = 256


def tile_of(
    target: Target,
    lanes: int,
    rows: int | None,
    columns: int | None,
    depth: int | None = None,
) -> tuple[int, int]:
    """Rows and vectors of the register tile for a result of that size; None is any.

    A step of the sum costs a tile its multiplications, or its loads where those are more. What lies
    beyond the last row is computed in vain; the last panel has only as many vectors as it needs.

    Examples
    --------
    >>> from tensorir.codegen.cpu import target
    >>> tile_of(target("znver4"), 16, None, None), tile_of(target("haswell"), 8, None, None)
    ((6, 4), (6, 2))
    >>> tile_of(target("znver4"), 16, 32, 32, 32), tile_of(target("znver4"), 16, 1024, 1024)
    ((8, 2), (6, 4))
    """
    usual = (6, 4) if target.vector_registers >= 32 else (6, 2)
    if rows is None and columns is None:
        return usual
    m = 100 * usual[0] if rows is None else max(rows, 1)
    n = 100 * usual[1] * lanes if columns is None else max(columns, 1)
    k = DEEP if depth is None else max(depth, 1)
    best, least = usual, math.inf
    for vectors in range(1, 5):
        for height in range(1, min(TALL, m) + 1):
            if height * vectors + vectors + 1 > target.vector_registers:
                break
            cost = _cost(height, vectors, m, n, k, lanes)
            cost *= 1.0 if (height, vectors) == usual else GAIN
            if cost < least:
                best, least = (height, vectors), cost
    return best


def _cost(height: int, vectors: int, rows: int, columns: int, depth: int, lanes: int) -> float:
    """Multiplications in whose time the whole result is computed."""
    full, rest = divmod(-(-columns // lanes), vectors)
    panel = full * (depth * _step(height, vectors) + START)
    if rest:
        panel += depth * _step(height, rest) + START
    ragged = rows % height * START
    return -(-rows // height) * panel + ragged


def _step(height: int, vectors: int) -> int:
    return max(height * vectors, height + vectors + 2, BUSY) + 1


def register_tile(
    s: Schedule, stage: str, at: str, rows: str, columns: str, lanes: int
) -> Schedule:
    """The result of one iteration of `at` kept in registers, in vectors of `lanes`.

    `rows` and `columns` are the loops of the tile; what is copied from or to it goes in vectors.
    """
    known = {a.name for a in s.axes}
    s = s.cache_write(stage, "local", at=at).vectorize(columns, width=lanes)
    for loop in (columns, rows):
        s = unrolled(s, loop)
    return in_vectors(s, [a.name for a in s.axes if a.name not in known], lanes)


def unrolled(s: Schedule, loop: str) -> Schedule:
    """`s` with a loop unrolled, where that is not the vector itself."""
    return s.unroll(loop) if s.check("unroll", loop) else s


def in_vectors(s: Schedule, copies: Sequence[str], lanes: int) -> Schedule:
    """The innermost loop of each copy to or from a tile in vectors."""
    for kind in ("load", "store"):
        own = [c for c in copies if f".{kind}." in c]
        if own and s.check("vectorize", own[-1], width=lanes):
            s = s.vectorize(own[-1], width=lanes)
    return s
