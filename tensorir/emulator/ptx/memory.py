"""Loads, stores and atomics: where they go, what they find there, and who else was there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorir.emulator.ptx import races
from tensorir.emulator.ptx.counting import Traffic, rows_of
from tensorir.emulator.ptx.lanes import (
    Array,
    Lanes,
    Mask,
    Micro,
    Read,
    Selection,
    numpy_type,
    unsupported,
)
from tensorir.emulator.ptx.spaces import BUFFER_BITS, SPACES, Memory
from tensorir.emulator.ptx.text import TYPE_BYTES, Addr, Imm, Instruction, Operand, Sym, Vec

if TYPE_CHECKING:
    from tensorir.emulator.ptx.launch import Launch

Flat = NDArray[np.int64]
STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio")


class Reach:
    """How one memory instruction finds its bytes: its space, its address, what it counts."""

    def __init__(self, launch: Launch, x: Instruction, o: Operand, space: str, width: int) -> None:
        self.launch = launch
        self.x = x
        self.space = space
        self.width = width
        self.address = address_of(launch.lanes, o, x)
        self.traffic: Traffic | None = None
        if launch.checks and space in ("global", "shared"):
            self.traffic = Traffic(launch.counts_of(x), space == "shared", width)

    def places(self, sel: Selection, act: Mask) -> list[tuple[Memory, Flat, Flat, Any]]:
        """Each memory that lanes reach: itself, the byte of each lane, the lanes, and which.

        Lanes are numbers `warp * 32 + lane`; `which` picks these lanes out of the active ones.
        """
        launch = self.launch
        lanes = launch.lane_numbers[sel]
        rows = rows_of(self.address(sel), len(lanes))
        if self.traffic is not None:
            self.traffic.count(rows, act)
        own = lanes.ravel() if act is None else lanes[act]
        flat = rows.ravel() if act is None else rows[act]
        if not flat.size:
            return []
        if self.space != "generic":
            return self._in(self.space, flat, own, slice(None))
        out = []
        kinds = flat.view(np.uint64) >> np.uint64(60)
        for kind in np.unique(kinds):
            name = SPACES.get(int(kind))
            which = np.flatnonzero(kinds == kind)
            if name is None:
                self._outside(flat[which], own[which])
            else:
                base = int(kind) << 60
                out += self._in(name, flat[which] - base, own[which], which)
        return out

    def _in(
        self, space: str, flat: Flat, lanes: Flat, which: Any
    ) -> list[tuple[Memory, Flat, Flat, Any]]:
        if self.width > 1 and int(np.bitwise_or.reduce(flat)) & (self.width - 1):
            bad = int(np.flatnonzero(flat & (self.width - 1))[0])
            self.launch.fault(
                "misaligned",
                f"an access of {self.width} bytes at address {int(flat[bad]):#x}, "
                f"which is not a multiple of {self.width}",
                self.x,
                int(lanes[bad]),
            )
        if space != "global":
            memory = self.launch.spaces[space]
            size = memory.size
            self._require(memory, flat, size, lanes)
            if self.launch.checks and len(memory.names) > 1:
                self._require_inside(memory, flat, lanes)
            if memory.per == "block":
                flat = flat + self.launch.shared_start[lanes]
            elif memory.per == "thread":
                flat = flat + lanes * memory.stride
            return [(memory, flat, lanes, which)]
        number = flat >> BUFFER_BITS
        first = int(number[0])
        if (number == first).all():
            memory = self._buffer(first, flat, lanes)
            flat = flat - (first << BUFFER_BITS)
            self._require(memory, flat, memory.size, lanes)
            return [(memory, flat, lanes, which)]
        out = []
        position = np.arange(len(flat)) if isinstance(which, slice) else which
        for k in np.unique(number):
            own = number == k
            part, who = flat[own], lanes[own]
            memory = self._buffer(int(k), part, who)
            part = part - (int(k) << BUFFER_BITS)
            self._require(memory, part, memory.size, who)
            out.append((memory, part, who, position[own]))
        return out

    def _buffer(self, number: int, flat: Flat, lanes: Flat) -> Memory:
        buffers = self.launch.buffers
        if not 1 <= number <= len(buffers):
            self._outside(flat, lanes)
        return buffers[number - 1]

    def _outside(self, flat: Flat, lanes: Flat) -> None:
        address = int(flat[0])
        # shortly before a buffer: an index below zero
        number, at = -(-address >> BUFFER_BITS), -(-address % (1 << BUFFER_BITS))
        message = f"address {address:#x} belongs to no memory"
        if 1 <= number <= len(self.launch.buffers) and at > -(1 << (BUFFER_BITS - 1)):
            memory = self.launch.buffers[number - 1]
            message = f"an access of {self.width} bytes at byte {at} of {_variable(memory, 0)[1]}"
        self.launch.fault("bounds", message, self.x, int(lanes[0]))

    def _require(self, memory: Memory, flat: Flat, size: int, lanes: Flat) -> None:
        # one comparison for both ends: a negative offset is a huge unsigned one
        unsigned = flat.view(np.uint64)
        if size < self.width or int(unsigned.max()) > size - self.width:
            bad = int(np.argmax(unsigned))
            at = int(flat[bad])
            if memory in self.launch.buffers and at >= 1 << (BUFFER_BITS - 1):
                number = self.launch.buffers.index(memory) + 1
                self._outside(flat[bad:] + (number << BUFFER_BITS), lanes[bad:])
            before, text = _variable(memory, at)
            self.launch.fault(
                "bounds",
                f"an access of {self.width} bytes at byte {at - before} of {text}",
                self.x,
                int(lanes[bad]),
            )

    def _require_inside(self, memory: Memory, flat: Flat, lanes: Flat) -> None:
        """Refuse accesses to the gaps between variables."""
        inside = memory.shadows.get("inside")
        if inside is None:
            inside = np.zeros(memory.size, np.bool_)
            for start, end, _ in memory.names:
                inside[start:end] = True
            memory.shadows["inside"] = inside
        good = inside[flat] & inside[flat + (self.width - 1)]
        if not good.all():
            bad = int(np.argmin(good))
            before, text = _variable(memory, int(flat[bad]))
            self.launch.fault(
                "bounds",
                f"an access of {self.width} bytes at byte {int(flat[bad]) - before} of {text}",
                self.x,
                int(lanes[bad]),
            )


def _variable(memory: Memory, at: int) -> tuple[int, str]:
    """Where the variable nearest below a byte starts, with its name and size in words."""
    below = [n for n in memory.names if n[0] <= at]
    if not below:
        return 0, f"{memory.name}, which has {memory.size}"
    start, end, name = max(below, key=lambda n: n[0])
    return start, f"{name}, which has {end - start}"


def address_of(lanes: Lanes, o: Operand, x: Instruction) -> Read:
    """How the address of an operand is read, 64 bits wide."""
    if not isinstance(o, Addr):
        raise unsupported(x, "an address stands in brackets")
    if o.more:
        raise unsupported(x, "an address of several parts")
    if isinstance(o.base, Sym):
        fixed = np.uint64((lanes.address(o.base, x) + o.offset) % (1 << 64))
        return lambda sel: fixed
    if isinstance(o.base, Imm):
        fixed = np.uint64(o.base.value + o.offset)
        return lambda sel: fixed
    read = lanes.read(o.base, "u64", x)
    if not o.offset:
        return read
    offset = np.uint64(o.offset % (1 << 64))
    return lambda sel: read(sel) + offset


def space_of(x: Instruction) -> str:
    """The space that an opcode names: `generic` where it names none."""
    for word in x.words:
        name = word.split("::")[0]
        if name in ("global", "shared", "local", "const", "param"):
            if word == "shared::cluster":
                return "shared"  # a block alone is its own cluster
            return name
    return "generic"


def watch(
    launch: Launch, memory: Memory, at: Flat, lanes: Flat, size: int, kind: str, x: Instruction
) -> None:
    """Check an access of `size` bytes against who was there before, and note it."""
    granule = memory.granule
    cells = at // granule
    for k in range(-(-size // granule)):
        _watch_one(launch, memory, cells + k if k else cells, lanes, kind, x)


def _watch_one(
    launch: Launch, memory: Memory, cells: NDArray[np.int64], lanes: Flat, kind: str, x: Instruction
) -> None:
    if kind != "write" and memory.written is not None and not memory.written[cells].all():
        bad = int(np.argmin(memory.written[cells]))
        launch.fault(
            "unwritten",
            f"{memory.at(int(cells[bad]) * memory.granule)} is read, and nothing was written there",
            x,
            int(lanes[bad]),
        )
    flight = memory.shadows.get("flight")
    if flight is not None and (flight[cells] >= 0).any():
        bad = int(np.argmax(flight[cells] >= 0))
        launch.fault(
            "async",
            f"{memory.at(int(cells[bad]) * memory.granule)} is touched while an asynchronous copy "
            "into it has not been waited for",
            x,
            int(lanes[bad]),
        )
    if memory.per == "thread":
        if kind != "read" and memory.written is not None:
            memory.written[cells] = True
        return
    mine = launch.stamps.reshape(-1)[lanes]
    write = memory.shadow("write")
    _refuse(launch, memory, write[cells], mine, cells, lanes, kind, "write", x)
    if kind != "read":
        _refuse(launch, memory, memory.shadow("read")[cells], mine, cells, lanes, kind, "read", x)
    if kind != "atomic" and "atomic" in memory.shadows:
        old = memory.shadows["atomic"][cells]
        _refuse(launch, memory, old, mine, cells, lanes, kind, "atomic", x)
    if kind == "read":
        races.mark(memory.shadow("read"), cells, mine)
        memory.shadow("read line", np.int32)[cells] = x.line
        return
    if kind == "atomic":
        races.mark(memory.shadow("atomic"), cells, mine)
        memory.shadow("atomic line", np.int32)[cells] = x.line
    else:
        write[cells] = mine
        memory.shadow("write line", np.int32)[cells] = x.line
    if memory.written is not None:
        memory.written[cells] = True


_WORDS = {"read": "reads", "write": "writes", "atomic": "updates"}
_PAST = {"read": "read", "write": "wrote", "atomic": "updated"}


def _refuse(
    launch: Launch,
    memory: Memory,
    old: races.Stamps,
    mine: races.Stamps,
    cells: NDArray[np.int64],
    lanes: Flat,
    kind: str,
    before: str,
    x: Instruction,
) -> None:
    clash = races.unordered(old, mine)
    if clash is None:
        return
    bad = int(np.argmax(clash))
    cell = int(cells[bad])
    other = launch.thread_text(*races.unpack(int(old[bad])), int(mine[bad]))
    line = int(memory.shadow(f"{before} line", np.int32)[cell])
    launch.fault(
        "race",
        f"{memory.at(cell * memory.granule)}: {launch.lane_text(int(lanes[bad]))} {_WORDS[kind]} "
        f"what {other} {_PAST[before]} at line {line}, and nothing orders the two",
        x,
        int(lanes[bad]),
    )


def same_store(
    launch: Launch,
    memory: Memory,
    at: Flat,
    lanes: Flat,
    value: Array | None,
    width: int,
    x: Instruction,
) -> None:
    """Refuse lanes of one store that write different values, or of different warps, to one word.

    Without values any two are refused.
    """
    if memory.per == "thread":
        return
    cells = at // memory.granule
    mine = launch.stamps.reshape(-1)[lanes]
    back = memory.shadow("write")[cells]
    lost = back != mine
    if not lost.any():
        return
    bad = lost
    if value is not None:
        other_value = memory.view(width)[at // width] != value
        bad = lost & (other_value | ((back >> races.WARP) != (mine >> races.WARP)))
    if bad.any():
        k = int(np.argmax(bad))
        other = launch.thread_text(*races.unpack(int(back[k])), int(mine[k]))
        launch.fault(
            "race",
            f"{memory.at(int(at[k]))}: {launch.lane_text(int(lanes[k]))} and {other} write it in "
            "one instruction",
            x,
            int(lanes[k]),
        )


def build_load(launch: Launch, x: Instruction) -> Micro:
    """`ld`, of one value or a vector of them."""
    lanes = launch.lanes
    to, given = x.operands[:2]
    word = x.words[-1]
    _known(x)
    width, parts = TYPE_BYTES[word], to.items if isinstance(to, Vec) else (to,)
    puts = [lanes.write(o, word, x) for o in parts]
    space = space_of(x)
    if space == "param" and isinstance(given, Addr) and isinstance(given.base, Sym):
        return _load_parameter(launch, x, given, puts, word)
    size = width * len(parts)
    reach = Reach(launch, x, given, space, size)
    kind = "atomic" if any(w in STRONG for w in x.words) else "read"
    dtype = numpy_type(word)

    def load(sel: Selection, act: Mask) -> None:
        places = reach.places(sel, act)
        if not places:
            return
        shape = launch.lane_numbers[sel].shape
        whole = len(places) == 1 and isinstance(places[0][3], slice)
        out: list[Array] = []
        for memory, at, who, which in places:
            if launch.checks:
                watch(launch, memory, at, who, size, kind, x)
            view, first = memory.view(width), at // width
            for k in range(len(parts)):
                value = view.take(first + k if k else first)
                if whole:
                    out.append(value)
                    continue
                if len(out) <= k:
                    out.append(
                        np.zeros(int(np.prod(shape)) if act is None else int(act.sum()), view.dtype)
                    )
                out[k][which] = value
        for put, value in zip(puts, out, strict=True):
            if act is None:
                put(sel, None, value.reshape(shape).view(dtype))
            else:
                full = np.zeros(shape, value.dtype)
                full[act] = value
                put(sel, act, full.view(dtype))

    return load


def _load_parameter(
    launch: Launch, x: Instruction, given: Addr, puts: list[Any], word: str
) -> Micro:
    assert isinstance(given.base, Sym)
    width = TYPE_BYTES[word]
    start = launch.lanes.address(given.base, x) + given.offset
    data = launch.spaces["param"].data
    if start < 0 or start + width * len(puts) > data.size:
        raise unsupported(x, "outside the parameters")
    values = [
        data[start + k * width : start + (k + 1) * width].view(numpy_type(word))[0]
        for k in range(len(puts))
    ]

    def load(sel: Selection, act: Mask) -> None:
        for put, value in zip(puts, values, strict=True):
            put(sel, act, value)

    return load


def build_store(launch: Launch, x: Instruction) -> Micro:
    """`st`, of one value or a vector of them."""
    where, given = x.operands[:2]
    word = x.words[-1]
    _known(x)
    width, parts = TYPE_BYTES[word], given.items if isinstance(given, Vec) else (given,)
    raw = f"u{8 * width}"
    reads = [launch.lanes.read(o, raw, x) for o in parts]
    size = width * len(parts)
    reach = Reach(launch, x, where, space_of(x), size)
    kind = "atomic" if any(w in STRONG for w in x.words) else "write"

    def store(sel: Selection, act: Mask) -> None:
        places = reach.places(sel, act)
        shape = launch.lane_numbers[sel].shape
        values = [np.broadcast_to(r(sel), shape) for r in reads]
        flat = [v.ravel() if act is None else v[act] for v in values]
        for memory, at, who, which in places:
            if launch.checks:
                watch(launch, memory, at, who, size, kind, x)
            view, first = memory.view(width), at // width
            for k, value in enumerate(flat):
                view[first + k if k else first] = value[which]
                if launch.checks and kind == "write":
                    same_store(launch, memory, at + k * width, who, value[which], width, x)

    return store


_LOAD_WORDS = {
    "global", "shared", "shared::cta", "shared::cluster", "local", "const", "param", "param::entry",
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "v2", "v4", "v8", "L1::no_allocate",
    "L1::evict_last", "L1::evict_first", "L1::evict_normal", "L1::evict_unchanged",
    "L2::128B", "L2::256B", "L2::64B", "weak", "gpu", "sys", "cta", "cluster", "b128", *STRONG,
}  # fmt: skip


def _known(x: Instruction) -> None:
    for word in x.words[1:-1]:
        if word not in _LOAD_WORDS:
            raise unsupported(x, f".{word} is not run")
    if x.words[-1] not in TYPE_BYTES:
        raise unsupported(x)
