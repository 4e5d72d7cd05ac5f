"""The register tile that all products share: its size, and the steps that make it."""

from __future__ import annotations

from collections.abc import Sequence

from tensorir.ir.target import Target
from tensorir.schedule.schedule import Schedule

TALL = 16  # no tile has more rows
START = 60  # operations in whose time a tile starts and ends
BUSY = 8  # operations in flight that keep both multipliers busy


def tile_of(
    target: Target, lanes: int, rows: int | None, columns: int | None
) -> tuple[int, int]:
    """Rows and vectors of the register tile for a result of that size; None is any.

    A tile costs its multiplications, or its loads where those are more. What lies beyond the last
    row is computed in vain; the last panel has only as many vectors as it needs.

    Examples
    --------
    >>> from tensorir.codegen.cpu import target
    >>> tile_of(target("znver4"), 16, None, None), tile_of(target("haswell"), 8, None, None)
    ((6, 4), (6, 2))
    >>> tile_of(target("znver4"), 16, 32, 32), tile_of(target("znver4"), 16, 1000, 1000)
    ((8, 2), (6, 4))
    """
    usual = (6, 4) if target.vector_registers >= 32 else (6, 2)
    if rows is None and columns is None:
        return usual
    m = 100 * usual[0] if rows is None else max(rows, 1)
    n = 100 * usual[1] * lanes if columns is None else max(columns, 1)
    best, least = usual, _cost(*usual, m, n, lanes)
    for vectors in range(1, 5):
        for height in range(1, min(TALL, m) + 1):
            if height * vectors + vectors + 1 > target.vector_registers:
                break
            # another one than usual must gain something
            cost = _cost(height, vectors, m, n, lanes) * 101 // 100
            if cost < least:
                best, least = (height, vectors), cost
    return best


def _cost(height: int, vectors: int, rows: int, columns: int, lanes: int) -> int:
    """Operations for one step of the sum over the whole result, and shares of starts."""
    full, rest = divmod(-(-columns // lanes), vectors)
    strip = full * _step(height, vectors) + (_step(height, rest) if rest else 0)
    return 64 * -(-rows // height) * strip


def _step(height: int, vectors: int) -> int:
    return max(height * vectors, height + vectors + 1, BUSY) + START // 64


def register_tile(
    s: Schedule, stage: str, at: str, rows: str, columns: str, lanes: int, name: str
) -> Schedule:
    """The result of one iteration of `at` kept in registers as `name`, in vectors of `lanes`.

    `rows` and `columns` are the loops of the tile; what is copied from or to it goes in vectors.
    """
    known = {a.name for a in s.axes}
    s = s.cache_write(stage, "local", at=at, name=name).vectorize(columns, width=lanes)
    for loop in (columns, rows):
        s = unrolled(s, loop)
    copies = [a.name for a in s.axes if a.name not in known and a.name.startswith(f"{name}.")]
    return in_vectors(s, copies, lanes)


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
