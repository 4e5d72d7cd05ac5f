"""`python -m tests.emulator.faults`: seeded faults in PTX, each of which the emulator must find.

Unmodified kernels run first, with twenty seeds: no finding, the right result. Then each is made
faulty in every way that applies to it, in up to as many places as `--places` says; a fault is found
if the emulator reports it, or the result is wrong. The table tells for each way how many texts it
made and how they were found. It ends with 1 if one was missed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorir.emulator.ptx import EmulationError
from tests.emulator.faulty import WAYS, Case, Lines, cases

SEEDS = 20
MISSED = "missed"
NONE = 1 << 20


@dataclass
class Row:
    """What one way of making faults led to."""

    way: str
    found: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)

    @property
    def made(self) -> int:
        return self.found.total()


def clean(case: Case, seeds: int = SEEDS) -> None:
    """Require the kernel as it is to be right with many seeds."""
    for seed in range(seeds):
        if not case.right(case.text, seed):
            raise AssertionError(f"{case.name}, seed {seed}: the unmodified kernel is wrong")


def verdict(case: Case, text: str, less: int = 0, seeds: int = 5) -> str:
    """How a faulty text is found: a kind of finding, or `wrong result`, or `missed`."""
    for seed in range(seeds):
        try:
            if not case.right(text, seed, less):
                return "wrong result"
        except EmulationError as error:
            assert error.finding is not None
            return error.finding.kind
    return MISSED


def spread(found: list[Lines], places: int) -> list[Lines]:
    """At most so many of them, from the first to the last."""
    if len(found) <= places:
        return found
    if places == 1:
        return [found[len(found) // 2]]
    return [found[k * (len(found) - 1) // (places - 1)] for k in range(places)]


def survey(every: Sequence[Case], places: int, kernels: int | None = None) -> list[Row]:
    """Make every fault in every kernel, or in so many of those to which it applies."""
    rows = []
    for name, way in WAYS.items():
        row, done = Row(name), 0
        for case in every:
            lines, runs = case.text.splitlines(), case.runs
            texts = [made for made in way(lines) if _matters(lines, made, runs)]
            if not texts or done == kernels:
                continue
            done += 1
            for made in spread(texts, places):
                how = verdict(case, "\n".join(made))
                row.found[how] += 1
                if how == MISSED:
                    row.missed.append(f"{case.name}: {_difference(lines, made)}")
        rows.append(row)
    rows.append(_short_of_shared_memory(every))
    return rows


def _short_of_shared_memory(every: Sequence[Case]) -> Row:
    """A launch that asks for none of the dynamic shared memory that the kernel uses."""
    row = Row("launched without its dynamic shared memory")
    for case in every:
        if ".extern .shared" in case.text:
            how = verdict(case, case.text, less=NONE)
            row.found[how] += 1
            if how == MISSED:
                row.missed.append(case.name)
    return row


def _changed_at(lines: Lines, made: Lines) -> int:
    return next((k for k, (a, b) in enumerate(zip(lines, made, strict=False)) if a != b), 0)


def _matters(lines: Lines, made: Lines, runs: set[int]) -> bool:
    """Whether the line that was changed is a declaration, or an instruction that runs."""
    at = _changed_at(lines, made)
    return at + 1 in runs or lines[at].strip().startswith(".")


def _difference(lines: Lines, made: Lines) -> str:
    at = _changed_at(lines, made)
    return f"line {at + 1}: {lines[at].strip()} became {made[at].strip()}"


def table(rows: Sequence[Row]) -> str:
    """The table, and how many there were in all."""
    out = [f"{'fault':50} {'made':>5} {'found':>6}  how"]
    for r in rows:
        how = ", ".join(f"{k} {n}" for k, n in sorted(r.found.items()) if k != MISSED)
        out.append(f"{r.way:50} {r.made:5} {r.made - len(r.missed):6}  {how}")
        out += [f"    missed: {m}" for m in r.missed]
    made, missed = sum(r.made for r in rows), sum(len(r.missed) for r in rows)
    kinds = sum(1 for r in rows if r.made)
    out.append(f"{kinds} kinds of faults, {made} texts, {made - missed} found, {missed} missed")
    return "\n".join(out)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.emulator.faults", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--places", type=int, default=4, help="of each kind in a kernel at most")
    options = parser.parse_args(arguments)
    every = cases()
    for case in every:
        clean(case)
        print(f"unmodified {case.name}: right, no finding with {SEEDS} seeds", flush=True)
    rows = survey(every, options.places)
    print(table(rows))
    return 1 if any(r.missed for r in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
