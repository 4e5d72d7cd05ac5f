"""Who touched a granule last, and whether another access is ordered after it.

A stamp packs block, era, warp, time and lane. A barrier of a whole block starts a new era of the
block, a warp synchronisation a new time of the warp within its era. Two accesses of one block are
ordered by a later era, by a later time of one warp, or by being of one thread; those of two blocks
never are. One writer and one reader for each granule suffice: a second writer that is not ordered
after the first is a race by itself, and of readers the stamp keeps whether they were of several
lanes, warps or blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LANE_BITS, TIME_BITS, WARP_BITS, ERA_BITS = 6, 12, 5, 14
TIME = LANE_BITS
WARP = TIME + TIME_BITS
ERA = WARP + WARP_BITS
BLOCK = ERA + ERA_BITS
MOST_ERAS = 1 << ERA_BITS
MOST_TIMES = (1 << TIME_BITS) - 1
MANY_LANES = (1 << LANE_BITS) - 1
MANY_WARPS = 1 << 61
MANY_BLOCKS = 1 << 62
_PLAIN = MANY_WARPS - 1

Stamps = NDArray[np.int64]
Cells = NDArray[np.intp]


def stamp(block: Any, era: Any, warp: Any, time: Any, lane: Any) -> Any:
    """The packed stamp of an access."""
    return (block << BLOCK) | (era << ERA) | (warp << WARP) | (time << TIME) | lane


def unpack(value: int) -> tuple[int, int, int]:
    """Block, warp and lane of a stamp; a lane or warp of -1 stands for several."""
    lane = value & MANY_LANES
    warp = (value >> WARP) & ((1 << WARP_BITS) - 1)
    block = (value & _PLAIN) >> BLOCK
    several = bool(value & (MANY_WARPS | MANY_BLOCKS))
    return block, -1 if several else warp, -1 if several or lane == MANY_LANES else lane


def unordered(old: Stamps, mine: Stamps) -> NDArray[np.bool_] | None:
    """Where an earlier access stands in no order with mine; None where nowhere."""
    plain = old & _PLAIN
    together = (plain >> ERA) == (mine >> ERA)  # of this block, since its last barrier
    together |= ((plain >> BLOCK) != (mine >> BLOCK)) | (old >= MANY_BLOCKS)
    together &= old >= 0
    if not together.any():
        return None
    other = (old >> WARP) != (mine >> WARP)
    now = (old >> TIME) == (mine >> TIME)
    clash = together & (other | (now & (old != mine)))
    return clash if clash.any() else None


def mark(cells: Stamps, at: Cells, mine: Stamps) -> None:
    """Note readers: mine, with those that read in the same era before and in this instruction."""
    old = cells[at]
    new = mine
    plain = old & _PLAIN
    near = (plain >> ERA) == (mine >> ERA)
    far = ((plain >> BLOCK) != (mine >> BLOCK)) & (old >= 0)
    if far.any() or near.any():
        new = mine.copy()
        new[far] |= MANY_BLOCKS
        warps = near & (((old >> WARP) != (mine >> WARP)) | (old >= MANY_WARPS))
        lanes = near & ~warps & ((old >> TIME) == (mine >> TIME)) & (old != mine)
        new[lanes] |= MANY_LANES
        new[warps] |= MANY_WARPS
        new[near & (old >= MANY_BLOCKS)] |= MANY_BLOCKS
    cells[at] = new
    for _ in range(3):
        # several lanes of one instruction read the granule: one stamp was kept, join the others
        back = cells[at]
        lost = back != new
        if not lost.any():
            return
        seen, other = back[lost], new[lost]
        joined = seen | (other & ~_PLAIN)
        blocks = (seen & _PLAIN) >> BLOCK != (other & _PLAIN) >> BLOCK
        warps = (seen & _PLAIN) >> WARP != (other & _PLAIN) >> WARP
        joined = np.where(~blocks & ~warps, joined | MANY_LANES, joined)
        joined = np.where(warps, joined | MANY_WARPS, joined)
        joined = np.where(blocks, joined | MANY_BLOCKS, joined)
        if (joined == seen).all():
            return
        # weaker knowledge first, so that the strongest stays
        order = np.argsort(joined, kind="stable")
        cells[at[lost][order]] = joined[order]
        new = np.where(lost, cells[at], new)
