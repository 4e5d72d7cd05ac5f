"""`python -m tests.properties SEED PAIRS`: the random tests for as long as one likes."""

from __future__ import annotations

import sys
import time

from tests.properties.check import run

if __name__ == "__main__":
    seed, pairs = (int(x) for x in (sys.argv[1:] + ["0", "200"][len(sys.argv) - 1 :])[:2])
    start = time.perf_counter()
    counts = run(seed, pairs)
    print(f"seed {seed}: {pairs} pairs, 0 wrong, {time.perf_counter() - start:.1f} s")
    for name, n in sorted(counts.items()):
        print(f"  {name}: {n}")
