"""R7: one text in every process, whatever the hash seed; one result for any number of threads."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

import schedules
import tensorir as tir
from tensorir.codegen import cpu
from tensorir.lower.pipeline import lower
from tensorir.runtime import threads
from tensorir.runtime.build import source_of
from tensorir.support.knobs import knobs
from tests.kernels.test_replay import DEFAULTS, KNOWN
from tests.properties import moves, programs

ROOT = Path(__file__).parents[2]
SCHEDULES = 40


def texts() -> list[str]:
    """LLVM texts of random schedules of every kind of program, and what is printed of them."""
    out = []
    for seed in range(SCHEDULES):
        rng = Random(seed)
        case = programs.draw(rng)
        s = moves.random_schedule(tir.schedule(*case.outputs), rng, 5, Counter())
        kernel = tir.build(s)
        out += [kernel.llvm, kernel.loops, s.loops(), s.trace.to_json(), "\n".join(kernel.notes)]
    return out


def library() -> list[str]:
    """LLVM texts of the library's schedules of each family, and their traces."""
    out = []
    for declare in (*(x for cases in KNOWN.values() for x in cases), *DEFAULTS):
        for name in ("x86-64-v3", "znver4"):
            target = cpu.target(name)
            s = schedules.schedule_for(*declare(), target=target)
            out += [source_of(lower(s.program, target), target).llvm, s.trace.to_json(), s.loops()]
    return out


def digest(what: Callable[[], list[str]] = texts) -> str:
    return hashlib.sha256("\0".join(what()).encode()).hexdigest()


def in_process(hash_seed: int, what: str = "texts") -> str:
    program = f"from tests.properties import test_determinism as t; print(t.digest(t.{what}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "PYTHONHASHSEED": str(hash_seed),
        },
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_texts_do_not_depend_on_the_hash_seed() -> None:
    found = {seed: in_process(seed) for seed in (0, 1, 20)}
    assert len(set(found.values())) == 1, found


def test_schedules_of_the_library_do_not_depend_on_the_hash_seed() -> None:
    found = {seed: in_process(seed, "library") for seed in (0, 1)}
    assert len(set(found.values())) == 1, found


@pytest.mark.full
def test_texts_do_not_depend_on_any_hash_seed() -> None:
    for what in ("texts", "library"):
        found = {seed: in_process(seed, what) for seed in range(21)}
        assert len(set(found.values())) == 1, (what, found)


def test_texts_do_not_depend_on_what_was_built_before() -> None:
    assert texts() == texts()


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    if threads.runtime().kind == "none":
        pytest.skip("no OpenMP runtime")
    compared = 0
    for seed in range(60):
        rng = Random(10_000 + seed)
        case = programs.draw(rng)
        s = tir.schedule(*case.outputs)
        name = rng.choice([a.name for a in s.axes])
        for request in ((name,), (f"{s.stages[-1]}.{name}",)):
            try:
                s = s.parallel(*request)
                break
            except tir.TensorIRError:
                continue
        s = moves.random_schedule(s, rng, 3, Counter())
        if not any(step.primitive == "parallel" for step in s.trace):
            continue
        kernel = tir.build(s)
        sizes = case.sizes[0]
        inputs = case.arrays(sizes, seed)
        with knobs.override():
            results = []
            for n in (1, 2, 4):
                knobs.num_threads = n
                got = kernel(*inputs)
                results.append([a.tobytes() for a in (got if isinstance(got, tuple) else (got,))])
        assert results[0] == results[1] == results[2], f"seed {seed}\n{s.trace.to_python()}"
        compared += 1
    assert compared >= 10


def test_a_large_parallel_sum_is_the_same_for_any_number_of_threads() -> None:
    n = 1 << 16
    A = tir.placeholder((64, n), name="A")
    k = tir.reduce_axis(n, name="k")
    S = tir.compute((64,), lambda i: tir.sum(A[i, k], axis=k), name="S")
    kernel = tir.build(tir.schedule(S).vector_reduce("k", 8).parallel("i"))
    a = np.random.default_rng(0).standard_normal((64, n)).astype("f4")
    results = []
    for count in (1, 2, 4):
        with knobs.override(num_threads=count):
            results += [kernel(a).tobytes() for _ in range(3)]
    assert len(set(results)) == 1
