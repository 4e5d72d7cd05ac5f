"""Goes through what was asked for and prints each line as soon as it is there.

Each family has a process of its own: a library that takes its process with it is named, and the
family is measured again without it.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks import against, figures, table
from tests.benchmarks.measure import QUICK, Pace
from tests.benchmarks.workloads import FAMILIES


def table_and_figures(options: argparse.Namespace) -> dict[str, Any]:
    """Everything asked for, printed, and as it is written to a file."""
    for name in _libraries(options):
        found = against.load(name)
        if isinstance(found, str):
            print(f"  {name}: {found}")
    families = [f for f in FAMILIES if not options.names or f in options.names]
    lines = [line for f in families for line in _apart(f, options)]
    rows: list[figures.Row] = []
    for name, measure in figures.FIGURES.items():
        if options.only or (options.names and name not in options.names):
            continue
        print(f"-- {name}", flush=True)
        for row in measure():
            rows.append(row)
            print(row, flush=True)
    judged = [x for x in lines if x["bounds"]]
    missed = [x["name"] for x in judged if not x["reached"]]
    missed += [r.what for r in rows if not r.reached]
    print(f"\n{len(judged) + len(rows) - len(missed)} of {len(judged) + len(rows)} reached")
    for what in missed:
        print(f"  not reached: {what}")
    return {"table": lines, "figures": [r.as_dict() for r in rows], "missed": missed}


def _libraries(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(x for x in against.LIBRARIES if x not in options.without)


def _apart(family: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A family in a process of its own, once more for each library that ends it."""
    without = list(options.without)
    with tempfile.TemporaryDirectory() as folder:
        result, watched = Path(folder) / "lines.json", Path(folder) / "who"
        while True:
            command = [sys.executable, "-m", "tests.benchmarks", family, "--into", folder]
            command += ["--threads", str(options.threads)] + ["--quick"] * options.quick
            command += ["--only", options.only] * bool(options.only)
            status = subprocess.call(command + [f"--without={x}" for x in without])
            if status == 0:
                lines: list[dict[str, Any]] = json.loads(result.read_text())
                return lines
            who = watched.read_text() if watched.exists() else ""
            print(f"  {family} ended with status {status} in the hands of {who or 'nobody'}")
            if who not in against.LIBRARIES or who in without:
                return []
            without.append(who)


def family_of(name: str, options: argparse.Namespace) -> list[table.Line]:
    """The races of a family, each with one thread and, where more were asked for, with those."""
    pace = QUICK if options.quick else Pace()
    lines: list[table.Line] = []

    def watch(who: str) -> None:
        (options.into / "who").write_text(who)

    print(f"-- {name}\n{table.HEADER}", flush=True)
    for work in FAMILIES[name]():
        if options.only and options.only not in work.name:
            continue
        for threads in sorted({1, options.threads}):
            made = table.line(
                work, name, pace, threads=threads, libraries=_libraries(options), watch=watch
            )
            lines.append(made)
            print(f"{made}\n{made.others()}", flush=True)
            gc.collect()
    for made in table.summary(lines):
        lines.append(made)
        print(made, flush=True)
    (options.into / "lines.json").write_text(json.dumps([x.as_dict() for x in lines]))
    return lines
