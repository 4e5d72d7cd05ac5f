"""Goes through what was asked for and prints each line as soon as it is there."""

from __future__ import annotations

import argparse
import gc

from tests.benchmarks import against, figures, table
from tests.benchmarks.measure import QUICK, Pace
from tests.benchmarks.workloads import FAMILIES


def table_of(options: argparse.Namespace) -> list[table.Line]:
    """The races, each with one thread and, where more were asked for, with those."""
    pace = QUICK if options.quick else Pace()
    libraries = tuple(x for x in against.LIBRARIES if x not in options.without)
    for name in libraries:
        found = against.load(name)
        if isinstance(found, str):
            print(f"  {name}: {found}")
    lines: list[table.Line] = []
    for family, workloads in FAMILIES.items():
        if options.names and family not in options.names:
            continue
        print(f"-- {family}\n{table.HEADER}", flush=True)
        for work in workloads():
            if options.only and options.only not in work.name:
                continue
            for threads in sorted({1, options.threads}):
                made = table.line(work, family, pace, threads=threads, libraries=libraries)
                lines.append(made)
                print(f"{made}\n{made.others()}", flush=True)
                gc.collect()
        if family == "nets":
            for made in table.summary(lines):
                lines.append(made)
                print(made, flush=True)
    return lines


def table_and_figures(options: argparse.Namespace) -> dict[str, object]:
    """Everything asked for, printed, and as it is written to a file."""
    lines = table_of(options)
    rows: list[figures.Row] = []
    for name, measure in figures.FIGURES.items():
        if options.only or (options.names and name not in options.names):
            continue
        print(f"-- {name}", flush=True)
        for row in measure():
            rows.append(row)
            print(row, flush=True)
    judged = [x for x in lines if x.bounds]
    missed = [x.name for x in judged if not x.reached] + [r.what for r in rows if not r.reached]
    print(f"\n{len(judged) + len(rows) - len(missed)} of {len(judged) + len(rows)} reached")
    for what in missed:
        print(f"  not reached: {what}")
    return {
        "table": [x.as_dict() for x in lines],
        "figures": [r.as_dict() for r in rows],
        "missed": missed,
    }
