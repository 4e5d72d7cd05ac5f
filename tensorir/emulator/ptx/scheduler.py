"""Who runs when: groups of warps at one place, drawn at random; lanes that part and meet again.

Warps that stand at one instruction with the same nesting of parted lanes form a group and run as
one. A seed draws which group goes on, which of its warps, and how far.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorir.emulator.ptx.flow import LEAVING, target
from tensorir.emulator.ptx.lanes import WARP, Array, Mask, Selection, unsupported
from tensorir.emulator.ptx.launch import Launch, Step
from tensorir.emulator.ptx.text import Imm, Instruction

Warps = NDArray[np.int64]


@dataclass(slots=True)
class Frame:
    """Lanes that run together from block `at` until `meet`; `mask` None: all that live."""

    mask: Mask
    at: int
    meet: int


@dataclass(slots=True)
class Group:
    """Warps with the same frames; the last frame runs."""

    warps: Warps
    frames: list[Frame]

    @property
    def key(self) -> tuple[tuple[int, int], ...]:
        return tuple((f.at, f.meet) for f in self.frames)

    def take(self, rows: Any) -> Group:
        """The group of some of its warps."""
        frames = [
            Frame(None if f.mask is None else f.mask[rows], f.at, f.meet) for f in self.frames
        ]
        return Group(self.warps[rows], frames)


def join(groups: list[Group]) -> Group:
    """One group of several at the same place."""
    warps = np.concatenate([g.warps for g in groups])
    order = np.argsort(warps, kind="stable")
    frames = []
    for k, f in enumerate(groups[0].frames):
        masks = [g.frames[k].mask for g in groups]
        if all(m is None for m in masks):
            frames.append(Frame(None, f.at, f.meet))
            continue
        whole = [
            np.ones((len(g.warps), WARP), np.bool_) if m is None else m
            for g, m in zip(groups, masks, strict=True)
        ]
        frames.append(Frame(np.concatenate(whole)[order], f.at, f.meet))
    return Group(warps[order], frames)


def selection(warps: Warps) -> Selection:
    """Neighbours as a slice."""
    first, last = int(warps[0]), int(warps[-1])
    return slice(first, last + 1) if last - first + 1 == len(warps) else warps


class Scheduler:
    """Runs a launch to its end."""

    def __init__(self, launch: Launch, seed: int, limit: int | None = None) -> None:
        self.launch = launch
        self.left = limit
        self.draw = random.Random(seed)
        self.ready: list[Group] = []
        # groups at a barrier, and for each block and barrier how many threads have come
        self.waiting: list[tuple[Group, int, Instruction]] = []
        self.come = np.zeros((launch.blocks, 16), np.int64)
        self.partial = not bool(launch.existing.all())
        self.ended = np.zeros(launch.warps, np.bool_)

    def run(self) -> None:
        """Run all warps to the end, or to the first fault."""
        launch = self.launch
        warps = np.arange(launch.warps, dtype=np.int64)
        self.ready = [Group(warps, [Frame(None, 0, launch.flow.end)])]
        while self.ready or self.waiting:
            if not self.ready:
                self._stuck()
            self._advance(self._choose())

    def _choose(self) -> Group:
        """A group, with all that stand where it stands; or a part of it, the rest put back."""
        ready = self.ready
        k = 0
        rank = self.launch.flow.rank
        if len(ready) > 1:
            # mostly who is furthest behind, so that others are caught up with and run together
            if self.launch.checks and self.draw.random() < 0.1:
                k = self.draw.randrange(len(ready))
            else:
                k = min(range(len(ready)), key=lambda j: rank[ready[j].frames[-1].at])
        key = ready[k].key
        same = [g for g in ready if g.key == key]
        self.ready = [g for g in ready if g.key != key]
        group = join(same) if len(same) > 1 else same[0]
        if not self.launch.checks or self.draw.random() >= 0.2:
            return group
        # whole ranges of warps, so that they stay neighbours
        blocks = self.launch.blocks
        numbers = np.unique(group.warps // blocks)
        if len(numbers) < 2:
            return group
        cut = int(numbers[self.draw.randrange(1, len(numbers))])
        low = group.warps < cut * blocks
        parts = [group.take(low), group.take(~low)]
        first = self.draw.randrange(2)
        self.ready.append(parts[1 - first])
        return parts[first]

    def _advance(self, group: Group) -> None:
        """Run a group until it waits, parts, ends, or its turn is over."""
        launch, end = self.launch, self.launch.flow.end
        turn = 1 << 30 if not launch.checks else self.draw.choice((8, 64, 1 << 30))
        while True:
            frame = group.frames[-1]
            while frame.at == frame.meet or frame.at >= end:
                group.frames.pop()
                if not group.frames:
                    self.ended[group.warps] = True
                    return
                frame = group.frames[-1]
            sel = selection(group.warps)
            act = frame.mask
            if self.partial:
                living = launch.living[sel]
                act = living if act is None else act & living
                some = act.any(1)
                if not some.any():
                    frame.at = frame.meet
                    continue
                if not some.all():
                    idle = group.take(~some)
                    idle.frames[-1].at = idle.frames[-1].meet
                    self.ready.append(idle)
                    group = group.take(some)
                    continue
                if act.all():
                    act = None
            if turn <= 0:
                self.ready.append(group)
                return
            turn -= 1
            if self._block(group, frame, sel, act):
                return

    def _block(self, group: Group, frame: Frame, sel: Selection, act: Mask) -> bool:
        """Run one basic block; whether the group stopped here."""
        launch = self.launch
        steps = launch.steps[frame.at]
        n = len(group.warps)
        if self.left is not None:
            self.left -= n * len(steps)
            if self.left < 0:
                self._endless(group, steps[0].x)
        for step in steps:
            x = step.x
            lanes = act
            if step.guard is not None:
                p = step.guard(sel)
                lanes = p if act is None else act & p
                if x.family == "bra":
                    self._count(step, n, act)
                    return self._branch(group, frame, x, sel, act, lanes)
                if not lanes.any():
                    continue
                if lanes.all():
                    lanes = None
            self._count(step, n, lanes)
            if step.run is not None:
                step.run(sel, lanes)
            elif x.family == "bra":
                frame.at = launch.flow.labels[target(x)]
                return False
            elif x.family in LEAVING:
                self._leave(x, sel, lanes, group)
            elif x.family in ("bar", "barrier"):
                frame.at += 1
                self._wait(group, x, sel, lanes)
                return True
        last = steps[-1].x
        if last.family in LEAVING and last.guard is None:
            frame.at = frame.meet
        else:
            frame.at += 1
        return False

    def _count(self, step: Step, n: int, lanes: Mask) -> None:
        counts = step.counts
        if counts is None:
            return
        if lanes is None:
            counts.warps += n
            counts.lanes += n * WARP
        else:
            counts.warps += int(np.count_nonzero(lanes.any(1)))
            counts.lanes += int(np.count_nonzero(lanes))

    def _branch(
        self, group: Group, frame: Frame, x: Instruction, sel: Selection, act: Mask, taken: Array
    ) -> bool:
        launch = self.launch
        there, here = launch.flow.labels[target(x)], frame.at + 1
        stays = ~taken if act is None else act & ~taken
        some, rest = taken.any(1), stays.any(1)
        if not rest.any():
            frame.at = there
            return False
        if not some.any():
            frame.at = here
            return False
        meet = launch.flow.meet[frame.at]
        both = some & rest
        if both.all():
            frame.at = meet
            parts = [Frame(stays, here, meet), Frame(taken, there, meet)]
            if self.draw.random() < 0.5:
                parts.reverse()
            group.frames += parts
            return False
        for rows, at in ((some & ~rest, there), (rest & ~some, here)):
            if rows.any():
                part = group.take(rows)
                part.frames[-1].at = at
                self.ready.append(part)
        if both.any():
            part = group.take(both)
            part.frames[-1].at = meet
            part.frames += [Frame(stays[both], here, meet), Frame(taken[both], there, meet)]
            self.ready.append(part)
        return True

    def _leave(self, x: Instruction, sel: Selection, lanes: Mask, group: Group) -> None:
        launch = self.launch
        if x.family == "trap":
            own = launch.lane_numbers[sel] if lanes is None else launch.lane_numbers[sel][lanes]
            launch.fault("bounds", "the kernel trapped", x, int(own.flat[0]))
        if lanes is None:
            launch.living[sel] = False
        else:
            now = launch.living[sel]
            now[lanes] = False
            launch.living[sel] = now
        self.partial = True

    # barriers

    def _wait(self, group: Group, x: Instruction, sel: Selection, lanes: Mask) -> None:
        launch = self.launch
        operands = x.operands
        if "sync" not in x.words or "red" in x.words:
            raise unsupported(x, "only barriers that wait are run")
        if not all(isinstance(o, Imm) for o in operands):
            raise unsupported(x, "a barrier whose number is not a constant")
        numbers = [o.value for o in operands if isinstance(o, Imm)]
        whole = launch.warps_per_block * WARP
        if len(numbers) > 1 and numbers[1] not in (launch.threads, whole):
            raise unsupported(x, "barriers of a part of the block are not run")
        alive = launch.living[sel]
        here = alive if lanes is None else lanes
        absent = alive & ~here
        if absent.any():
            w, lane = np.argwhere(absent)[0]
            own = launch.lane_numbers[sel]
            launch.fault(
                "barrier",
                f"{launch.lane_text(int(own[w, lane]))} does not reach the barrier that others of "
                "its warp wait at: control is not uniform there",
                x,
                int(own[w, lane]),
            )
        barrier = numbers[0]
        slots = launch.block_slot[group.warps]
        np.add.at(self.come[:, barrier], slots, here.sum(1))
        self.waiting.append((group, barrier, x))
        full = self.come[:, barrier] == launch.threads
        if full.any():
            self._release(full, barrier)

    def _release(self, full: Array, barrier: int) -> None:
        launch = self.launch
        self.come[full, barrier] = 0
        launch.new_era(np.flatnonzero(full))
        still = []
        for group, number, x in self.waiting:
            free = full[launch.block_slot[group.warps]]
            if number != barrier or not free.any():
                still.append((group, number, x))
            elif free.all():
                self.ready.append(group)
            else:
                self.ready.append(group.take(free))
                still.append((group.take(~free), number, x))
        self.waiting = still

    def _endless(self, group: Group, x: Instruction) -> None:
        launch = self.launch
        lane = int(launch.lane_numbers[group.warps[0], 0])
        launch.fault("deadlock", "the kernel runs on beyond the limit of instructions", x, lane)

    def _stuck(self) -> None:
        """Nothing can go on: say who waits where, and who is not there."""
        launch = self.launch
        group, barrier, x = self.waiting[0]
        slot = int(launch.block_slot[group.warps[0]])
        own = launch.block_slot == slot
        gone = int(np.count_nonzero(launch.existing[own] & ~launch.living[own]))
        lane = int(launch.lane_numbers[group.warps[0], 0])
        places = sorted(
            {(n, y.line) for g, n, y in self.waiting if slot in launch.block_slot[g.warps]}
        )
        if gone:
            launch.fault(
                "barrier",
                f"{gone} of {launch.threads} threads of the block have ended, the others wait "
                f"for them at barrier {barrier}",
                x,
                lane,
            )
        where = ", ".join(f"barrier {n} at line {line}" for n, line in places)
        launch.fault(
            "deadlock", f"the threads of the block wait at different places: {where}", x, lane
        )
