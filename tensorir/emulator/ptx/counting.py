"""Memory traffic of a warp: passes over the banks of shared memory, sectors of global memory.

A pass serves 32 banks of four bytes; lanes that read one word share it. Accesses of 8 and 16
bytes go half and quarter warp by half and quarter warp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorir.emulator.ptx.findings import Counts
from tensorir.emulator.ptx.lanes import WARP, Mask

Addresses = NDArray[np.int64]
_FAR = np.int64(1) << np.int64(62)


@dataclass(slots=True)
class Traffic:
    """The counts of one memory instruction, and patterns of addresses that it had before."""

    counts: Counts
    shared: bool
    width: int
    known: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def count(self, addresses: Addresses, act: Mask) -> None:
        """Add one execution: addresses of shape (warps, 32), in the lanes of the mask."""
        n = len(addresses)
        if act is None:
            rows = addresses
            lanes = n * WARP
        else:
            busy = act.any(1)
            lanes = int(np.count_nonzero(act))
            rows = np.where(act, addresses, _FAR)[busy]
            n = len(rows)
        if not n:
            return
        self.counts.bytes += lanes * self.width
        low = rows.min(1)
        line = 128 if self.shared else 32
        relative = rows - (low - low % line)[:, None]
        first = relative[0]
        if n == 1 or (relative == first).all():
            self._add(first, n)
            return
        for row, times in zip(*np.unique(relative, axis=0, return_counts=True), strict=True):
            self._add(row, int(times))

    def _add(self, row: Addresses, times: int) -> None:
        key = row.tobytes()
        found = self.known.get(key)
        if found is None:
            found = waves(row, self.width) if self.shared else sectors(row, self.width)
            self.known[key] = found
        if self.shared:
            self.counts.waves += times * found[0]
            self.counts.least_waves += times * found[1]
        else:
            self.counts.sectors += times * found[0]
            self.counts.least_sectors += times * found[1]


def _present(row: Addresses) -> Addresses:
    return row[row < _FAR // 2]


def sectors(row: Addresses, width: int) -> tuple[int, int]:
    """32-byte sectors of the lanes' accesses, and how many their distinct bytes need."""
    own = np.unique(_present(row))
    ends = np.concatenate([own // 32, (own + width - 1) // 32])
    # distinct bytes: lanes may overlap
    gaps = np.diff(own, append=own[-1] + width)
    needed = int(np.minimum(gaps, width).sum())
    return len(np.unique(ends)), -(-needed // 32)


def waves(row: Addresses, width: int) -> tuple[int, int]:
    """Passes over the banks, and how many the distinct words need."""
    parts = max(1, width // 4)
    total = least = 0
    for k in range(0, WARP, WARP // parts):
        own = _present(row[k : k + WARP // parts])
        if not own.size:
            continue
        words = np.unique((own[:, None] + 4 * np.arange(parts)) // 4)
        total += int(np.bincount(words % 32).max())
        least += -(-len(words) // 32)
    return total, least


def rows_of(addresses: Any, warps: int) -> Addresses:
    """Addresses of shape (warps, 32), signed."""
    whole = np.broadcast_to(addresses, (warps, WARP))
    return np.ascontiguousarray(whole).view(np.int64)
