"""Basic blocks of an entry, and where the lanes of a warp that parted meet again.

They meet at the immediate post-dominator of the branch (Fung et al., "Dynamic Warp Formation and
Scheduling for Efficient GPU Control Flow", 2007); the sets are computed by plain iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorir.emulator.ptx.text import Entry, Instruction, Sym
from tensorir.support.errors import ArgumentError, UnsupportedError

LEAVING = ("ret", "exit", "trap")
WAITING = ("bar", "barrier")


@dataclass(frozen=True, slots=True, eq=False)
class BasicBlock:
    """Instructions that run one after the other; the last may branch, wait or leave."""

    code: tuple[Instruction, ...]
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """The blocks of an entry; number `len(blocks)` is the end.

    `meet` gives the block where lanes meet again that parted at the end of a block, `rank` an order
    in which blocks stand before those that follow them, and loops before what follows the loop.
    """

    blocks: tuple[BasicBlock, ...]
    labels: dict[str, int]
    meet: tuple[int, ...]
    rank: tuple[int, ...]

    @property
    def end(self) -> int:
        return len(self.blocks)


def flow(entry: Entry) -> Flow:
    """The blocks of an entry."""
    if not entry.code:
        raise ArgumentError(f"the entry {entry.name!r} has no code")
    starts = {0, *(at for at in entry.labels.values() if at < len(entry.code))}
    for k, x in enumerate(entry.code[:-1]):
        if x.family in ("bra", *LEAVING, *WAITING):
            starts.add(k + 1)
    order = sorted(starts)
    number = {at: k for k, at in enumerate(order)}
    end = len(order)
    labels = {name: number.get(at, end) for name, at in entry.labels.items()}
    blocks = []
    for k, at in enumerate(order):
        code = entry.code[at : order[k + 1] if k + 1 < end else len(entry.code)]
        blocks.append(BasicBlock(code, _successors(code[-1], k, labels, end)))
    after = _followers(blocks)
    return Flow(tuple(blocks), labels, _meetings(after), _ranks(blocks, after))


def _successors(last: Instruction, k: int, labels: dict[str, int], end: int) -> tuple[int, ...]:
    found: list[int] = []
    if last.family == "bra":
        name = target(last)
        if name not in labels:
            raise ArgumentError(f"PTX line {last.line}: no label {name}")
        found.append(labels[name])
    elif last.family in LEAVING:
        found.append(end)
    elif last.family in ("brx", "call"):
        raise UnsupportedError(f"PTX line {last.line}: {last.opcode} is not run")
    if last.guard is not None or last.family not in ("bra", *LEAVING):
        found.append(k + 1)
    return tuple(dict.fromkeys(found))


def target(branch: Instruction) -> str:
    """The label that a branch goes to."""
    (where,) = branch.operands
    if not isinstance(where, Sym):
        raise ArgumentError(f"PTX line {branch.line}: a branch goes to a label")
    return where.name


def _followers(blocks: list[BasicBlock]) -> list[set[int]]:
    """For each block those that every way to the end passes, itself among them."""
    end = len(blocks)
    after: list[set[int]] = [set(range(end + 1)) for _ in blocks] + [{end}]
    changed = True
    while changed:
        changed = False
        for k in range(end - 1, -1, -1):
            now = set.intersection(*(after[j] for j in blocks[k].successors)) | {k}
            if now != after[k]:
                after[k], changed = now, True
    return after


def _meetings(after: list[set[int]]) -> tuple[int, ...]:
    # the nearest of those that always follow is the one that all the others follow too
    return tuple(
        max(found - {k}, key=lambda j: len(after[j])) for k, found in enumerate(after[:-1])
    )


def _ranks(blocks: list[BasicBlock], after: list[set[int]]) -> tuple[int, ...]:
    """Reverse post-order, of ways that part the one nearer to the end last."""
    end = len(blocks)
    finished: list[int] = []
    seen = {0}
    ways = [iter(_nearest_end_first(blocks[0], after))]
    path = [0]
    while path:
        follower = next((j for j in ways[-1] if j not in seen), None)
        if follower is None:
            finished.append(path.pop())
            ways.pop()
            continue
        seen.add(follower)
        path.append(follower)
        ways.append(iter(_nearest_end_first(blocks[follower], after) if follower < end else ()))
    rank = [0] * (end + 1)
    for place, k in enumerate(reversed(finished)):
        rank[k] = place
    return tuple(rank)


def _nearest_end_first(block: BasicBlock, after: list[set[int]]) -> list[int]:
    return sorted(block.successors, key=lambda j: (len(after[j]), -j))
