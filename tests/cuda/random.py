"""`python -m tests.cuda.random SEED PAIRS`: random schedules, bound at random, in the emulator.

Each pair is a declaration under random primitives and random bindings of its loops, compiled to
PTX and run with all checks, compared with the kernel of the declaration's own order on this
processor. What the library refuses by name is counted and passed over; a wrong answer, a finding of
the emulator, or a fault of the library is told with the seed that shows it again.
"""

from __future__ import annotations

import argparse
from collections import Counter
from random import Random

import numpy as np

import tensorir as tir
from tensorir.schedule.bind_ops import BLOCKS, THREADS
from tensorir.schedule.resolve import reference
from tests.properties import moves, programs
from tests.properties.check import Wrong

PRIMITIVES = (
    ["split"] * 4 + ["reorder"] * 3 + ["tile", "fuse", "unroll", "vectorize", "compute_at"]
    + ["compute_inline", "cache_read", "cache_read", "cache_write", "set_scope", "rfactor"]
    + ["decompose_reduction", "init_at", "partition", "reverse_compute_at"]
)  # fmt: skip


def bound(s: tir.Schedule, rng: Random, counts: Counter[str]) -> tir.Schedule:
    """`s` after random primitives, and bindings of random loops, outer ones to blocks first."""
    for _ in range(rng.randint(0, 5)):
        name, args, kwargs = moves.request(s, rng, rng.choice(PRIMITIVES))
        if name in ("cache_read", "cache_write", "set_scope") and rng.random() < 0.6:
            args = (args[0], rng.choice(["shared", "local"]))
        s = _try(s, counts, name, *args, **kwargs)
    for axis in s.axes:
        if rng.random() < 0.35:
            s = _try(s, counts, "bind", reference(s.program, axis), rng.choice(BLOCKS))
    for axis in s.axes:
        if axis.reduce and rng.random() < 0.3:
            s = _try(s, counts, "cross_thread", reference(s.program, axis))
    for axis in s.axes:
        if rng.random() < 0.6:
            s = _try(s, counts, "bind", reference(s.program, axis), rng.choice(THREADS))
    return s


def _try(s: tir.Schedule, counts: Counter[str], name: str, *args: object, **kwargs: object):  # type: ignore[no-untyped-def]
    try:
        made = getattr(s, name)(*args, **kwargs)
    except tir.InternalError:
        raise
    except tir.TensorIRError:
        return s
    counts[name] += 1
    return made


def check_seed(seed: int, counts: Counter[str], each: int = 3) -> None:
    """One declaration under several bindings."""
    rng = Random(seed)
    case = programs.draw(rng)
    base = tir.schedule(*case.outputs)
    plain = tir.build(base)
    for turn in range(each):
        where = f"seed {seed}, turn {turn}, {case.name}"
        s = base
        try:
            s = bound(base, rng, counts)
            kernel = tir.build(s, target="emulator")
        except tir.UnsupportedError as refused:
            counts["refused: " + str(refused)[:40]] += 1
            continue
        except tir.TensorIRError as error:
            said = f"{where}: {type(error).__name__}: {error}"
            raise Wrong(f"{said}\n{s.trace.to_python()}") from error
        loose = any(step.reassociates for step in s.trace)
        for k, sizes in enumerate(case.sizes[:2]):
            arrays = case.arrays(sizes, k)
            kernel.seed = seed + k  # type: ignore[attr-defined]
            try:
                got, want = kernel(*arrays), plain(*arrays)
            except tir.TensorIRError as error:
                kind = getattr(getattr(error, "finding", None), "kind", "")
                if kind == "unwritten":
                    # LLVM may load what it then does not use: no fault of the schedule
                    counts["loaded ahead"] += 1
                    break
                said = f"{where}, sizes {sizes}: {type(error).__name__}: {error}"
                raise Wrong(f"{said}\n{s.trace.to_python()}\n{s.loops()}") from error
            pairs = zip(got, want, strict=True) if isinstance(got, tuple) else ((got, want),)
            for g, w in pairs:
                if not _same(np.asarray(g), np.asarray(w), loose):
                    raise Wrong(f"{where}, sizes {sizes}\n{s.trace.to_python()}\n{s.loops()}")
        counts["pairs"] += 1


def _same(got: np.ndarray, want: np.ndarray, loose: bool) -> bool:
    if got.dtype.kind not in "fV":
        return bool(np.array_equal(got, want))
    g, w = got.astype("float64"), want.astype("float64")
    tol = 3e-2 if got.dtype.itemsize == 2 else 1e-4 if loose else 2e-6
    return bool(np.allclose(g, w, rtol=tol, atol=tol, equal_nan=True))


def run(seed: int, pairs: int, *, keep_going: bool = False) -> Counter[str]:
    """At least `pairs` pairs from `seed` on."""
    counts: Counter[str] = Counter()
    while counts["pairs"] < pairs:
        try:
            check_seed(seed, counts)
        except Wrong as wrong:
            if not keep_going:
                raise
            print(f"WRONG {wrong}\n", flush=True)
            counts["wrong"] += 1
        seed += 1
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.cuda.random", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("pairs", type=int)
    parser.add_argument("--keep-going", action="store_true")
    options = parser.parse_args()
    found = run(options.seed, options.pairs, keep_going=options.keep_going)
    for what, n in sorted(found.items()):
        print(f"{n:6} {what}")
