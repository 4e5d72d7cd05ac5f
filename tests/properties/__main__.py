"""`python -m tests.properties [SEED [PAIRS]] [--keep-going]`: the random tests at any length."""

from __future__ import annotations

import argparse
import time
from collections import Counter

from tensorir.support.errors import silence
from tests.properties.check import Wrong, one_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.properties", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("pairs", type=int, nargs="?", default=200)
    parser.add_argument("--keep-going", action="store_true", help="list every failure")
    options = parser.parse_args()
    silence("no-effect")  # of random steps
    start = time.perf_counter()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    seed = options.seed
    while counts["pairs"] < options.pairs:
        try:
            one_seed(seed, counts)
        except Wrong as error:
            if not options.keep_going:
                raise
            wrong.append(str(error))
            counts["pairs"] += 1
            print(error, flush=True)
        seed += 1
    took = time.perf_counter() - start
    pairs = f"{counts['pairs']} pairs, {len(wrong)} wrong"
    print(f"seeds {options.seed}..{seed - 1}: {pairs}, {took:.1f} s")
    for name, n in sorted(counts.items()):
        print(f"  {name}: {n}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
