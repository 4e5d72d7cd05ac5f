"""What an emulated kernel did wrong, and what it did: findings and counts, with their lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tensorir.support.errors import KernelError

Kind = Literal[
    "race", "barrier", "deadlock", "bounds", "misaligned", "unwritten", "convergence", "async"
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a kernel.

    Attributes
    ----------
    kind
        `race`, `barrier` (divergent or missing), `deadlock`, `bounds`, `misaligned`, `unwritten`
        (a read of memory that holds nothing), `convergence` (a warp instruction without all the
        lanes that it names), `async` (data of a copy used before it was waited for).
    message
        What happened, complete in itself.
    kernel, line, source
        The entry, the line of the PTX, and the line of the program that it comes from (0: none).
    block, thread
        Coordinates of the block, and of the thread in it; None where it concerns a whole block.
    """

    kind: Kind
    message: str
    kernel: str
    line: int
    source: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int] | None


class EmulationError(KernelError):
    """An emulated kernel did what a GPU would not forgive; `finding` tells what and where."""

    def __init__(
        self, message: str = "", *, finding: Finding | None = None, details: str = ""
    ) -> None:
        super().__init__(message, details=details)
        self.finding = finding


@dataclass(slots=True)
class Counts:
    """What one instruction did in all: warps that ran it, lanes, and its memory traffic.

    `sectors` are the 32-byte pieces of global memory that it touched, `least_sectors` as many as
    its bytes would need; `waves` the passes over the banks of shared memory, `least_waves` those
    of the same bytes without conflicts.
    """

    line: int
    opcode: str
    source: int = 0
    warps: int = 0
    lanes: int = 0
    bytes: int = 0
    sectors: int = 0
    least_sectors: int = 0
    waves: int = 0
    least_waves: int = 0


@dataclass(slots=True)
class Report:
    """What a run found and counted.

    Attributes
    ----------
    kernel
        The entry that ran.
    findings
        Faults, in the order in which they were met; empty unless they were collected.
    counts
        One for each instruction that ran, in the order of the text; empty without checks.
    """

    kernel: str
    findings: list[Finding] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)

    @property
    def instructions(self) -> int:
        """Instructions that warps ran."""
        return sum(c.warps for c in self.counts)

    @property
    def bank_conflicts(self) -> int:
        """Passes over the banks of shared memory beyond those that its bytes need."""
        return sum(c.waves - c.least_waves for c in self.counts)

    @property
    def extra_sectors(self) -> int:
        """32-byte sectors of global memory beyond those that its bytes need."""
        return sum(c.sectors - c.least_sectors for c in self.counts)

    def of(self, family: str) -> list[Counts]:
        """The counts of one family, as `ld.global` or `mma`."""
        return [c for c in self.counts if c.opcode == family or c.opcode.startswith(family + ".")]

    def __str__(self) -> str:
        lines = [f"{self.kernel}: {self.instructions:,} instructions of warps"]
        lines.append("  line  opcode                            warps      bytes  sectors  waves")
        for c in self.counts:
            if not c.bytes:
                continue
            extra = f"{c.sectors:,}" if c.sectors else ""
            if c.sectors > c.least_sectors:
                extra += f" (of {c.least_sectors:,})"
            waves = f"{c.waves:,}" if c.waves else ""
            if c.waves > c.least_waves:
                waves += f" (of {c.least_waves:,})"
            row = f"{c.line:6}  {c.opcode:28} {c.warps:10,} {c.bytes:10,} {extra:>8} {waves:>6}"
            lines.append(row.rstrip())
        lines += [f"  {f.kind}: {f.message}" for f in self.findings]
        return "\n".join(lines)
