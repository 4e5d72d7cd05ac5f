"""`python -m tests.benchmarks [NAME ...]`: every figure, with what it must reach.

Single thread unless said; medians of interleaved rounds. numpy's OpenBLAS runs as it would by
itself: the variables that force one of its kernels are dropped in this process only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path


def _own_environment() -> None:
    """Start again without variables that slow numpy down, and with one BLAS thread."""
    forced = [v for v in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if v in os.environ]
    if not forced and os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        return
    env = {k: v for k, v in os.environ.items() if k not in forced}
    env["OPENBLAS_NUM_THREADS"] = "1"
    os.execve(sys.executable, [sys.executable, "-m", "tests.benchmarks", *sys.argv[1:]], env)


if __name__ == "__main__":
    _own_environment()
    from tests.benchmarks import figures

    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(figures.FIGURES))
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    unknown = [n for n in options.names if n not in figures.FIGURES]
    if unknown:
        parser.error(f"no figure {unknown[0]!r}; there are {', '.join(figures.FIGURES)}")
    rows = []
    for name in options.names or figures.FIGURES:
        print(f"-- {name}", flush=True)
        for row in figures.FIGURES[name]():
            rows.append(row)
            print(row, flush=True)
    missed = [r for r in rows if not r.reached]
    print(f"\n{len(rows) - len(missed)} of {len(rows)} figures reached")
    for r in missed:
        print(f"  not reached: {r}")
    if options.json:
        options.json.write_text(json.dumps([r.as_dict() for r in rows], indent=1) + "\n")
