"""Where addresses lie: each buffer of global memory, shared, local, constant and parameter memory.

A global address tells its buffer: buffer `k` starts at `(k + 1) << 36`, so that an access past
its end, or through a wrong pointer, hits nothing. Generic addresses of other spaces have windows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensorir.emulator.ptx.lanes import Array

BUFFER_BITS = 36
WINDOWS = {"global": 0, "shared": 1 << 60, "local": 2 << 60, "param": 3 << 60, "const": 4 << 60}
SPACES = {start >> 60: name for name, start in WINDOWS.items()}


@dataclass(slots=True, eq=False)
class Memory:
    """Bytes of one buffer, or one space of all blocks or threads of a launch.

    Parameters
    ----------
    name
        What a report calls it.
    data
        All bytes.
    size
        Bytes of one copy that may be touched.
    stride
        Bytes from one copy to the next, 0 where there is one for all; `per` tells whose they are.
    per
        `launch`, `block` or `thread`.
    granule
        Bytes of the finest access that the kernel makes to it; shadows have one cell for each.
    written
        Which granules hold a value; None where all do.
    names
        Start, end and name of the variables in it.
    """

    name: str
    data: NDArray[np.uint8]
    size: int = 0
    stride: int = 0
    per: str = "launch"
    granule: int = 4
    written: NDArray[np.bool_] | None = None
    names: tuple[tuple[int, int, str], ...] = ()
    shadows: dict[str, Array] = field(default_factory=dict)
    views: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = self.size or self.data.size

    def view(self, width: int) -> Array:
        """The memory as unsigned integers of `width` bytes; a rest at the end is cut."""
        found = self.views.get(width)
        if found is None:
            whole = self.data[: self.data.size // width * width]
            found = whole.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[width])
            self.views[width] = found
        return found

    def shadow(self, name: str, dtype: type[np.generic] = np.int64) -> Array:
        """A cell for each granule, -1 at first."""
        found = self.shadows.get(name)
        if found is None:
            found = np.full(-(-self.data.size // self.granule), -1, dtype)
            self.shadows[name] = found
        return found

    def at(self, byte: int) -> str:
        """A byte in words: ``As[48]``, ``argument 2 at byte 16``."""
        own = byte % self.stride if self.stride else byte
        for start, end, name in self.names:
            if start <= own < end:
                return f"{name} at byte {own - start}"
        return f"{self.name} at byte {own}"
