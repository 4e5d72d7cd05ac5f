"""Which register tile fits a convolution: a small model of cycles."""

from __future__ import annotations

from typing import NamedTuple

from tensorir.ir.target import Target

# Multiplications and loads that start in a cycle, cycles until a sum can be added to again.
UNITS, LATENCY = 2, 4
# Cycles for a vector of a tile that is turned in registers and stored; for one stored as it is.
TURNED, STORED = 45, 1
# Cycles to begin a tile, and one step of the sum.
START, STEP = 10, 0.3


class Tile(NamedTuple):
    """`pixels` places by `vectors` vectors of filters; with `rows`, `pixels` vectors of places by
    `vectors` filters."""

    rows: bool
    pixels: int
    vectors: int


def filter_tile(
    target: Target,
    lanes: int,
    pixels: int,
    filters: int,
    taps: int,
    total: int,
    *,
    turned: bool,
    room: int = 0,
) -> tuple[float, Tile]:
    """Lanes along filters: cycles of the whole, and the tile that needs the fewest.

    `pixels` is the length of a row of places, `total` how many places there are in all, `room`
    how many registers are left for something else.
    """
    best: tuple[float, Tile] | None = None
    for vectors in (1, 2, 3, 4):
        for p in range(min(pixels, 14), 0, -1):
            if p * vectors + vectors + 1 + room > target.vector_registers - 1:
                continue
            step = max(p * vectors / UNITS, (p + vectors) / UNITS, LATENCY) + STEP
            store = vectors * (TURNED if turned else p * STORED)
            tiles = -(-pixels // p) * -(-filters // (vectors * lanes)) * (total / pixels)
            cycles = tiles * (step * taps + store + START)
            if best is None or cycles < best[0]:
                best = cycles, Tile(False, p, vectors)
    assert best is not None
    pack = filters * taps / 8
    return best[0] + pack, best[1]


def row_tile(
    target: Target, lanes: int, pixels: int, filters: int, taps: int, total: int, stride: int
) -> tuple[float, Tile]:
    """Lanes along places, `stride` apart in the input: cycles of the whole, and the tile that
    needs the fewest."""
    best: tuple[float, Tile] | None = None
    for vectors in (4, 3, 2, 1):
        for f in range(min(filters, 8), 0, -1):
            if f * vectors + vectors + 1 > target.vector_registers - 1:
                continue
            loads = vectors if stride == 1 else vectors * 2 * stride
            step = max(f * vectors / UNITS, (f + loads) / UNITS, LATENCY) + STEP
            panels = max(-(-pixels // lanes) / vectors, 1)
            tiles = panels * -(-filters // f) * (total / pixels)
            cycles = tiles * (step * taps + f * vectors * STORED + START)
            if best is None or cycles < best[0]:
                best = cycles, Tile(True, vectors, f)
    assert best is not None
    return best
