"""`python -m tests.benchmarks [NAME ...]`: every figure, with what it must reach.

The table: for each workload our time (as `schedules.build` gives it) and its share of the roof
measured in the same rounds, how many times as fast that is as the best of numpy, torch,
onnxruntime, numba, TVM and Halide, as far as they are installed, and what was wanted; beneath, the
times of all of them. Then what is not a race: compile times, calls, threads. One thread; medians of
interleaved rounds; answers checked against float64 first. numpy's OpenBLAS runs as it would by
itself: the variables that force one of its kernels are dropped in this process only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_FORCING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_ONE = (
    "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS", "HL_NUM_THREADS",
    "OMP_NUM_THREADS",
)  # fmt: skip


def _own_environment(arguments: Sequence[str], threads: int) -> None:
    """Start again without variables that slow numpy down, each library with so many threads."""
    wanted = {k: v for k, v in os.environ.items() if k not in _FORCING}
    wanted |= dict.fromkeys(_ONE, str(threads))
    if wanted != dict(os.environ):
        command = [sys.executable, "-m", "tests.benchmarks", *arguments]
        os.execve(sys.executable, command, wanted)


def _parser() -> argparse.ArgumentParser:
    from tests.benchmarks import against, figures, workloads

    names = [*workloads.FAMILIES, *figures.FIGURES]
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or {', '.join(names)}")
    parser.add_argument("--only", metavar="TEXT", help="workloads with this in their names")
    parser.add_argument("--quick", action="store_true", help="a few short rounds: minutes to one")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="figures beside, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # one family, in a child
    parser.add_argument(
        "--without", action="append", default=[], choices=against.LIBRARIES, help="leave one out"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write; 0 whatever was reached."""
    from tests.benchmarks import figures, run, workloads

    parser = _parser()
    options = parser.parse_args(arguments)
    if options.threads < 1:
        parser.error(f"--threads {options.threads}: at least 1")
    known = [*workloads.FAMILIES, *figures.FIGURES]
    for name in options.names:
        if name not in known:
            parser.error(f"no figure {name!r}; there are {', '.join(known)}")
    _own_environment(arguments, options.threads)
    if options.into is not None:
        run.family_of(options.names[0], options)
        return 0
    records = run.table_and_figures(options)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
