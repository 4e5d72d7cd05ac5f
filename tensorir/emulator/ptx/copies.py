"""Asynchronous copies from global to shared memory: done when they are waited for, no sooner.

Until then their target is in flight, and any access to it is a fault: that is the latest moment at
which the hardware may do them, and a program that is right then is right always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tensorir.emulator.ptx.lanes import WARP, Array, Mask, Micro, Selection, unsupported
from tensorir.emulator.ptx.memory import Flat, Reach, same_store, watch
from tensorir.emulator.ptx.spaces import Memory
from tensorir.emulator.ptx.text import Imm, Instruction

if TYPE_CHECKING:
    from tensorir.emulator.ptx.launch import Launch


@dataclass(slots=True)
class Copy:
    """Copies that one instruction issued: lanes, targets, sources, and the group of each."""

    x: Instruction
    lanes: Flat
    target: Flat
    memory: Memory
    source: Flat
    bytes: Flat
    group: NDArray[np.int64]
    size: int


class Copies:
    """The copies in flight of all warps, and how many groups each thread has committed."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.committed = np.zeros(launch.warps * WARP, np.int64)
        self.open: list[Copy] = []

    def finish(self, lanes: Flat, pending: Array | int) -> None:
        """Do what these lanes wait for: all groups but the `pending` youngest."""
        waits = np.full(self.committed.size, -1, np.int64)
        waits[lanes] = self.committed[lanes] - pending
        kept = []
        for c in self.open:
            now = c.group < waits[c.lanes]
            if now.any():
                self._do(c, now)
            if not now.all():
                rest = ~now
                kept.append(
                    Copy(
                        c.x,
                        c.lanes[rest],
                        c.target[rest],
                        c.memory,
                        c.source[rest],
                        c.bytes[rest],
                        c.group[rest],
                        c.size,
                    )
                )
        self.open = kept

    def _do(self, c: Copy, now: NDArray[np.bool_]) -> None:
        shared = self.launch.spaces["shared"]
        target, source, count = c.target[now], c.source[now], c.bytes[now]
        at = np.arange(c.size)
        within = at < count[:, None]
        data = c.memory.data[np.where(within, source[:, None] + at, 0)]
        shared.data[target[:, None] + at] = np.where(within, data, 0)
        if self.launch.checks:
            flight = shared.shadow("flight")
            cells = target // shared.granule
            for k in range(c.size // shared.granule):
                flight[cells + k] = -1
            watch(self.launch, shared, target, c.lanes[now], c.size, "write", c.x)


def build_copy(launch: Launch, x: Instruction) -> Micro:
    """`cp.async`: copies, `commit_group`, `wait_group`, `wait_all`."""
    words = x.words
    if words[1] != "async":
        raise unsupported(x)
    if words[2] == "commit_group":

        def commit(sel: Selection, act: Mask) -> None:
            launch.copies.committed[_active(launch, sel, act)] += 1

        return commit
    if words[2] in ("wait_group", "wait_all"):
        count = 0
        if words[2] == "wait_group":
            (given,) = x.operands
            if not isinstance(given, Imm):
                raise unsupported(x)
            count = given.value

        def wait(sel: Selection, act: Mask) -> None:
            lanes = _active(launch, sel, act)
            if words[2] == "wait_all":
                launch.copies.committed[lanes] += 1
            launch.copies.finish(lanes, count)

        return wait
    if words[2] not in ("ca", "cg") or not any(w.startswith("shared") for w in words):
        raise unsupported(x)
    return _issue(launch, x)


def _active(launch: Launch, sel: Selection, act: Mask) -> Flat:
    lanes = launch.lane_numbers[sel]
    return lanes.ravel() if act is None else lanes[act]


def _issue(launch: Launch, x: Instruction) -> Micro:
    size_operand = x.operands[2]
    if not isinstance(size_operand, Imm) or size_operand.value not in (4, 8, 16):
        raise unsupported(x)
    size = size_operand.value
    to = Reach(launch, x, x.operands[0], "shared", size)
    given = Reach(launch, x, x.operands[1], "global", size)
    part = launch.lanes.read(x.operands[3], "u32", x) if len(x.operands) > 3 else None

    def issue(sel: Selection, act: Mask) -> None:
        shape = launch.lane_numbers[sel].shape
        count = np.full(shape, size) if part is None else np.broadcast_to(part(sel), shape)
        flat_count = (count.ravel() if act is None else count[act]).astype(np.int64)
        targets = to.places(sel, act)
        if not targets:
            return
        shared, target, lanes, _ = targets[0]
        if launch.checks:
            watch(launch, shared, target, lanes, size, "write", x)
            same_store(launch, shared, target, lanes, None, size, x)
            flight = shared.shadow("flight")
            cells = target // shared.granule
            for k in range(size // shared.granule):
                flight[cells + k] = x.line
        # a copy of no bytes reads nothing, wherever its address points
        reads = np.zeros(shape, bool)
        reads[...] = count > 0
        reads = reads if act is None else reads & act
        picked = np.flatnonzero(flat_count > 0)
        position = np.full(len(flat_count), -1)
        sources: list[tuple[Memory, Flat, Flat]] = []
        if picked.size:
            for memory, source, _, which in given.places(sel, None if reads.all() else reads):
                own = picked if isinstance(which, slice) else picked[which]
                sources.append((memory, source, own))
                position[own] = len(sources) - 1
                if launch.checks:
                    watch(launch, memory, source, lanes[own], size, "read", x)
        nothing = np.flatnonzero(position < 0)
        if nothing.size:
            sources.append((shared, np.zeros(nothing.size, np.int64), nothing))
        group = launch.copies.committed[lanes]
        for memory, source, own in sources:
            launch.copies.open.append(
                Copy(x, lanes[own], target[own], memory, source, flat_count[own], group[own], size)
            )

    return issue
