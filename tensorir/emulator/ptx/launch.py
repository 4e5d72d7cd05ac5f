"""The state of a launch: warps of the blocks that run together, their memory, and their code.

Warp `w` of block `b` is number `w * blocks + b`, so that the same warp of all blocks, and all warps
of all blocks, are neighbours: instructions then work on slices of the registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tensorir.emulator.ptx import (
    atomics,
    bits,
    choices,
    convert,
    copies,
    integers,
    memory,
    races,
    tensor,
    warps,
)
from tensorir.emulator.ptx.builders import BUILDERS, guard_of
from tensorir.emulator.ptx.findings import Counts, EmulationError, Finding, Kind, Report
from tensorir.emulator.ptx.flow import LEAVING, Flow
from tensorir.emulator.ptx.lanes import WARP, Array, Lanes, Micro, Selection, unsupported
from tensorir.emulator.ptx.spaces import Memory
from tensorir.emulator.ptx.text import TYPE_BYTES, Entry, Instruction, Module, Variable
from tensorir.support.errors import ArgumentError, UnsupportedError

__all__ = ["Grid", "Launch", "Step"]

Grid = tuple[int, int, int]
GAP = 16
"""Bytes between two variables of a space, that belong to neither."""
_ = bits, choices, convert, integers  # their builders register themselves

Builder = Callable[["Launch", Instruction], Micro]
_BUILDERS: dict[str, Builder] = {
    "ld": memory.build_load, "st": memory.build_store, "atom": atomics.build_atomic,
    "red": atomics.build_atomic, "cp": copies.build_copy, "shfl": warps.build_shuffle,
    "vote": warps.build_vote, "match": warps.build_match, "redux": warps.build_redux,
    "elect": warps.build_elect, "activemask": warps.build_active, "mma": tensor.build_mma,
    "ldmatrix": tensor.build_load_matrix, "stmatrix": tensor.build_store_matrix,
}  # fmt: skip
# hints and fences: memory is in order here, so they change nothing
_NOTHING = ("prefetch", "prefetchu", "membar", "fence", "nanosleep", "griddepcontrol", "discard",
            "applypriority", "pmevent")  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """An instruction made ready: how it runs, its guard, its counts."""

    x: Instruction
    run: Micro | None
    guard: Callable[[Selection], Array] | None
    counts: Counts | None


class Launch:
    """Blocks `first` to `first + blocks` of a grid, ready to run.

    Parameters
    ----------
    buffers
        Global memory, shared by all launches of a run; arguments first.
    parameters
        The bytes of the parameters.
    shared_bytes
        Dynamic shared memory of a block.
    """

    def __init__(
        self,
        module: Module,
        entry: Entry,
        flow: Flow,
        buffers: Sequence[Memory],
        parameters: bytes,
        grid: Grid,
        block: Grid,
        first: int,
        blocks: int,
        shared_bytes: int,
        report: Report,
        checks: bool,
        collect: int,
        counts: dict[int, Counts],
    ) -> None:
        self.entry, self.flow, self.report = entry, flow, report
        self.grid, self.block, self.first, self.blocks = grid, block, first, blocks
        self.checks, self.collect, self.counts = checks, collect, counts
        self.buffers = buffers
        threads = block[0] * block[1] * block[2]
        self.threads = threads
        self.warps_per_block = -(-threads // WARP)
        self.warps = self.warps_per_block * blocks
        self.lane_numbers = np.arange(self.warps * WARP, dtype=np.int64).reshape(-1, WARP)
        number = np.arange(self.warps, dtype=np.int64)
        self.block_slot = number % blocks
        self.warp_of = number // blocks
        self.thread = (self.warp_of * WARP)[:, None] + np.arange(WARP)
        self.existing = self.thread < threads
        self.living = self.existing.copy()
        self.eras = np.zeros(blocks, np.int64)
        self.times = np.zeros(self.warps, np.int64)
        self.stamps = np.zeros((self.warps, WARP), np.int64)
        self.restamp(slice(None))
        addresses: dict[str, int] = {}
        self.spaces = self._spaces(module, addresses, parameters, shared_bytes)
        self.lanes = Lanes(self.warps, entry.registers, self._special(shared_bytes), addresses)
        self.copies = copies.Copies(self)
        self.steps = [[self._step(x) for x in b.code] for b in flow.blocks]

    # setting up

    def _spaces(
        self, module: Module, addresses: dict[str, int], parameters: bytes, dynamic: int
    ) -> dict[str, Memory]:
        own: dict[str, list[Variable]] = {"shared": [], "local": [], "const": [], "param": []}
        for v in (*module.variables, *self.entry.variables):
            if v.space == "global":
                continue
            own[v.space].append(v)
        granule = granule_of(self.entry)
        out: dict[str, Memory] = {}
        for space, per, copies_of in (
            ("shared", "block", self.blocks),
            ("local", "thread", self.warps * WARP),
            ("const", "launch", 1),
        ):
            size = 0
            names: list[tuple[int, int, str]] = []
            # what has no size of its own lies at the end
            for v in sorted(own[space], key=lambda v: v.count is None):
                # a gap after each, so that an access past its end is outside of all
                size = -(-(size + GAP * bool(names)) // v.align) * v.align
                addresses[v.name] = size
                length = dynamic if v.count is None else v.bytes
                names.append((size, size + max(length, 1), v.name))
                size += 0 if v.count is None else v.bytes
            size += dynamic if space == "shared" else 0
            stride = -(-max(size, 1) // 16) * 16 + 16
            data = np.zeros(stride * copies_of, np.uint8)
            found = Memory(
                f"{space} memory", data, max(size, 1), 0 if per == "launch" else stride, per,
                granule, names=tuple(names),
            )  # fmt: skip
            if self.checks and per != "launch":
                found.written = np.zeros(-(-data.size // granule), np.bool_)
            out[space] = found
            if per == "launch":
                for v in own[space]:
                    at = addresses[v.name]
                    data[at : at + len(v.data)] = np.frombuffer(v.data, np.uint8)
        # where the shared memory of each lane's block begins
        start = self.block_slot * out["shared"].stride
        self.shared_start = np.repeat(start, WARP)
        for p in self.entry.params:
            addresses[p.name] = p.offset
        out["param"] = Memory("the parameters", np.frombuffer(parameters, np.uint8))
        for b, buffer in enumerate(self.buffers):
            addresses.setdefault(buffer.name, (b + 1) << 36)
        return out

    def _special(self, dynamic: int) -> dict[str, Array]:
        def whole(value: Any) -> Array:
            shape = (self.warps, WARP)
            return np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.uint32), shape))

        x, y, _ = self.block
        gx, gy, _ = self.grid
        number = (self.first + self.block_slot)[:, None]
        lane = np.arange(WARP, dtype=np.int64)
        low = (1 << lane) - 1
        out = {
            "%tid.x": whole(self.thread % x), "%tid.y": whole(self.thread // x % y),
            "%tid.z": whole(self.thread // (x * y)), "%laneid": whole(lane),
            "%ctaid.x": whole(number % gx), "%ctaid.y": whole(number // gx % gy),
            "%ctaid.z": whole(number // (gx * gy)), "%warpid": whole(self.warp_of[:, None]),
            "%nwarpid": whole(self.warps_per_block), "%clock": whole(0), "%smid": whole(0),
            "%lanemask_eq": whole(1 << lane), "%lanemask_lt": whole(low),
            "%lanemask_le": whole(low | (1 << lane)),
            "%lanemask_gt": whole(~(low | (1 << lane)) & 0xFFFFFFFF),
            "%lanemask_ge": whole(~low & 0xFFFFFFFF), "%dynamic_smem_size": whole(dynamic),
        }  # fmt: skip
        for k, letter in enumerate("xyz"):
            out[f"%ntid.{letter}"] = whole(self.block[k])
            out[f"%nctaid.{letter}"] = whole(self.grid[k])
        return out

    def _step(self, x: Instruction) -> Step:
        counts = self.counts_of(x) if self.checks else None
        guard = guard_of(self.lanes, x)
        waits = x.family in ("bar", "barrier")
        if x.family == "bra" or x.family in LEAVING or (waits and "warp" not in x.words):
            return Step(x, None, guard, counts)
        return Step(x, self._build(x), guard, counts)

    def _build(self, x: Instruction) -> Micro | None:
        if x.family in _NOTHING:
            return None
        if x.family in ("bar", "barrier"):
            return warps.build_warp_barrier(self, x)
        if x.family in _BUILDERS:
            return _BUILDERS[x.family](self, x)
        if x.family in BUILDERS:
            return BUILDERS[x.family](self.lanes, x)
        raise unsupported(x)

    def counts_of(self, x: Instruction) -> Counts:
        """The counts of an instruction, over all launches of the run."""
        return self.counts.setdefault(id(x), Counts(x.line, x.opcode, x.source))

    # order in time

    def restamp(self, sel: Selection) -> None:
        """Set the stamps of warps from their block's era and their time."""
        block = (self.first + self.block_slot[sel])[:, None]
        era = self.eras[self.block_slot[sel]][:, None]
        warp, time = self.warp_of[sel][:, None], self.times[sel][:, None]
        self.stamps[sel] = races.stamp(block, era, warp, time, np.arange(WARP))

    def later(self, sel: Selection) -> None:
        """A synchronisation of warps: what comes is ordered after what was, within each."""
        self.times[sel] += 1
        if self.times[sel].max() > races.MOST_TIMES:
            raise UnsupportedError(f"{races.MOST_TIMES} warp synchronisations without a barrier")
        self.stamps[sel] += 1 << races.TIME

    def new_era(self, blocks: Array) -> None:
        """A barrier of whole blocks, given by their slots."""
        self.eras[blocks] += 1
        if self.eras[blocks].max() >= races.MOST_ERAS:
            raise UnsupportedError(f"more than {races.MOST_ERAS} barriers in a kernel")
        own = np.zeros(self.blocks, np.bool_)
        own[blocks] = True
        sel = np.flatnonzero(own[self.block_slot])
        self.times[sel] = 0
        self.restamp(sel)

    # faults

    def coordinates(self, lane: int) -> tuple[Grid, Grid]:
        """Block and thread of a lane number."""
        warp = lane // WARP
        number = self.first + int(self.block_slot[warp])
        gx, gy, _ = self.grid
        x, y, _ = self.block
        t = int(self.thread[warp, lane % WARP])
        return (number % gx, number // gx % gy, number // (gx * gy)), (
            t % x,
            t // x % y,
            t // (x * y),
        )

    def lane_text(self, lane: int) -> str:
        """A thread in words."""
        return f"thread {self.coordinates(lane)[1]}"

    def thread_text(self, block: int, warp: int, lane: int, mine: int) -> str:
        """A thread of a stamp in words."""
        x, y, _ = self.block
        gx, gy, _ = self.grid
        own = races.unpack(mine)[0] == block
        place = (block % gx, block // gx % gy, block // (gx * gy))
        where = "" if own else f" of block {place}"
        if warp < 0:
            return f"several threads{where}"
        if lane < 0:
            return f"several threads of warp {warp}{where}"
        t = warp * WARP + lane
        return f"thread {(t % x, t // x % y, t // (x * y))}{where}"

    def fault(self, kind: Kind, message: str, x: Instruction | None, lane: int) -> None:
        """Note a fault; raises it unless faults are collected, or are too many."""
        block, thread = self.coordinates(lane)
        line, source = (0, 0) if x is None else (x.line, x.source)
        finding = Finding(kind, message, self.entry.name, line, source, block, thread)
        known = {(f.kind, f.line) for f in self.report.findings}
        if (kind, line) not in known:
            self.report.findings.append(finding)
        fatal = kind in ("bounds", "deadlock", "barrier", "misaligned")
        if fatal or len(self.report.findings) > self.collect:
            self.stop(finding)

    def stop(self, finding: Finding) -> NoReturn:
        where = f"PTX line {finding.line}, " if finding.line else ""
        if finding.line and finding.source:
            where = f"PTX line {finding.line} (line {finding.source} of the program), "
        raise EmulationError(
            f"{finding.kind} in {self.entry.name}, {where}block {finding.block}: {finding.message}",
            finding=finding,
        )


def granule_of(entry: Entry) -> int:
    """The finest access that a kernel makes to memory, at most four bytes."""
    finest = 4
    for x in entry.code:
        if x.family in ("ld", "st", "atom", "red") and "param" not in x.words:
            finest = min(finest, TYPE_BYTES.get(x.words[-1], 4))
    return finest


def parameter_bytes(entry: Entry, values: Sequence[Any]) -> bytes:
    """The bytes of an entry's parameters.

    Raises
    ------
    ArgumentError
        Another number of values, or one that does not fit its parameter.
    """
    if len(values) != len(entry.params):
        raise ArgumentError(
            f"{entry.name} takes {len(entry.params)} arguments, {len(values)} were given"
        )
    size = entry.params[-1].offset + entry.params[-1].bytes if entry.params else 0
    out = bytearray(max(size, 1))
    for p, v in zip(entry.params, values, strict=True):
        raw = v if isinstance(v, bytes) else _scalar(p.element, p.name, v)
        if len(raw) != p.bytes:
            raise ArgumentError(f"{p.name} has {p.bytes} bytes, {len(raw)} were given")
        out[p.offset : p.offset + len(raw)] = raw
    return bytes(out)


def _scalar(element: str, name: str, value: Any) -> bytes:
    width = TYPE_BYTES[element]
    if isinstance(value, np.generic):
        if value.dtype.itemsize != width:
            raise ArgumentError(f"{name} has {width} bytes, a {value.dtype} was given")
        return value.tobytes()
    if isinstance(value, float):
        if width not in (4, 8):
            raise ArgumentError(f"{name} has {width} bytes, a float was given")
        return np.array(value, np.float32 if width == 4 else np.float64).tobytes()
    if isinstance(value, int):
        low, high = -(1 << (8 * width - 1)), 1 << 8 * width
        if not low <= value < high:
            raise ArgumentError(f"{name} has {width} bytes, {value} does not fit")
        return (value % high).to_bytes(width, "little")
    raise ArgumentError(f"{name}: expected an array, a number or bytes, not {value!r:.40}")
