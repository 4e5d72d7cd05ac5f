"""`tensorir doctor`: what this machine has and lacks."""

from __future__ import annotations

from typing import TextIO

import tensorir as tir
from tensorir.inspect import machine

__all__ = ["doctor"]


def doctor(out: TextIO) -> int:
    """Print what `inspect.machine` finds; 1 where no kernel runs."""
    found = machine.report()
    width = max(len(f.name) for f in found.facts)
    out.write(f"tensorir {tir.__version__}\n")
    heading = ""
    for fact in found.facts:
        if fact.heading != heading:
            heading = fact.heading
            out.write(f"\n{heading}\n")
        out.write(f"  {fact.name:{width}}  {fact.value}\n")
    out.write("\nmissing\n" if found.missing else "\nnothing is missing\n")
    for one in found.missing:
        remedy = f"  [{one.remedy}]" if one.remedy else ""
        out.write(f"  {one.name}: {one.cost}{remedy}\n")
    return 0 if found.works else 1
