"""Runs the PTX that would ship, on any machine, and checks what a GPU would not tell.

Threads are lanes of numpy arrays, those of a warp reconverge at post-dominators, warps and blocks
interleave at random from a seed. Races, divergent and missing barriers, accesses out of bounds,
misaligned or of memory never written, asynchronous copies used too early, and warp instructions
without their members are faults, each with kernel, block, thread and line. Nothing here knows how
a kernel was made: foreign PTX runs as well. Entry point: `run`.
"""

from __future__ import annotations

from tensorir.emulator.ptx.findings import Counts, EmulationError, Finding, Report
from tensorir.emulator.ptx.runner import run

__all__ = ["Counts", "EmulationError", "Finding", "Report", "run"]
