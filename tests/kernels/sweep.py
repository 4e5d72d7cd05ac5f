"""`python -m tests.kernels.sweep [SEED [TRIALS]]`: every operator as scheduled, at any length.

Operators take turns. A failure prints a line that `--again` takes; the trials run in a process of
their own, since a stray access ends it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from random import Random

from tensorir.codegen import targets
from tensorir.ops import operators
from tensorir.support.errors import silence
from tests.kernels.trials import TARGETS, Trial, attempt, draw


def runnable() -> tuple[str, ...]:
    """The targets whose code this machine can run."""
    here = targets.resolve("native")
    return TARGETS if all(here.has(f) for f in ("avx2", "fma", "f16c")) else TARGETS[:1]


def trials(seed: int, count: int, names: Sequence[str]) -> list[Trial]:
    """Random trials, each from a seed of its own; the operators take turns."""
    where = runnable()
    return [draw(Random(f"{seed} {k}"), names[k % len(names)], where) for k in range(count)]


def outcome(trial: Trial) -> tuple[str, str]:
    """One of "compared", "refused" and "wrong", and what there is to say."""
    try:
        why = attempt(trial)
    except Exception:
        # the command goes on, whatever is wrong with one trial
        return "wrong", traceback.format_exc()
    return ("compared", "") if why is None else ("refused", why)


def apart(todo: Sequence[Trial]) -> list[tuple[str, str]]:
    """The outcomes of the first trials, up to one that ended the process, which is wrong."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        with os.fdopen(write, "w", buffering=1) as pipe:
            for trial in todo:
                pipe.write(json.dumps(outcome(trial)) + "\n")
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = [tuple(json.loads(line)) for line in pipe]
    status = os.waitpid(child, 0)[1]
    if len(told) < len(todo):
        told.append(("wrong", f"the process ended with status {status}"))
    return told


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.sweep", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("trials", type=int, nargs="?", default=340)
    parser.add_argument("--only", default="*", help="operators, such as 'conv*,matmul'")
    parser.add_argument("--again", help="one trial, as a failure printed it")
    parser.add_argument("--refusals", action="store_true", help="say what was not compared")
    options = parser.parse_args()
    silence("copy")
    if options.again is not None:
        print(attempt(Trial(*ast.literal_eval(options.again))) or "as numpy has it")
        return 0
    start = time.perf_counter()
    names = [n for n in operators() if any(fnmatch(n, p) for p in options.only.split(","))]
    todo = trials(options.seed, options.trials, names)
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    while todo:
        # a process for some, so that what is printed comes in time
        done = apart(todo[:100])
        for trial, (word, said) in zip(todo, done, strict=False):
            counts[word] += 1
            refused[trial.name] += word == "refused"
            if word == "wrong" or (word == "refused" and options.refusals):
                print(f"{word}: --again {json.dumps(trial.line())}\n{said}", flush=True)
        todo = todo[len(done) :]
    took = time.perf_counter() - start
    print(f"seed {options.seed}: {dict(counts)}, {took:.1f} s; refused: {dict(+refused)}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
