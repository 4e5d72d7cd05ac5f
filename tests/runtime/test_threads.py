"""The OpenMP runtime, how many threads a region uses, Python threads, and forks (R14, H19)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorir.runtime import threads
from tensorir.runtime.kernel import make_kernel
from tensorir.support.errors import ArgumentError, ArgumentTypeError, TensorIRWarning
from tensorir.support.knobs import knobs
from tests.runtime import handmade

STEPS = 1 << 12
A = np.arange(STEPS)


@pytest.fixture(autouse=True)
def own_number() -> Iterator[None]:
    with knobs.override():
        yield


def several() -> bool:
    return threads.runtime().kind != "none"


def run(source: str, **environment: str) -> str:
    """What a program prints, in a process of its own; it must end in 60 s."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- the number
def test_number_is_set_and_read() -> None:
    if not several():
        pytest.skip("no OpenMP runtime")
    assert threads.num_threads(3) == 3 == threads.num_threads() == knobs.num_threads
    with knobs.override(num_threads=2):
        assert threads.num_threads() == 2
    assert threads.num_threads() == 3
    threads.set_num_threads(1)
    assert threads.num_threads() == 1


def test_default_is_what_the_process_may_run_on() -> None:
    program = "from tensorir.runtime.threads import num_threads; print(num_threads())"
    expected = len(os.sched_getaffinity(0)) if several() else 1
    assert run(program, OMP_NUM_THREADS="") == f"{expected}\n"
    if several():
        assert run(program, OMP_NUM_THREADS="3") == "3\n"
        assert run(program, OMP_NUM_THREADS="3", TENSORIR_NUM_THREADS="5") == "5\n"


@pytest.mark.parametrize("bad", [0, -1, 5000, 1 << 70])
def test_bad_numbers(bad: int) -> None:
    with pytest.raises(ArgumentError, match="knob num_threads"):
        threads.set_num_threads(bad)


@pytest.mark.parametrize("bad", ["2", 1.5, True, [2]])
def test_bad_types(bad: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="knob num_threads"):
        threads.num_threads(bad)


# -- regions
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_region_uses_so_many_threads(n: int) -> None:
    k = make_kernel(handmade.parallel(STEPS))
    threads.set_num_threads(n)
    c, used = k(A)
    np.testing.assert_array_equal(c, A * A)
    assert used[0] == (n if several() else 1)


def test_regions_of_two_python_threads_do_not_meet() -> None:
    """While one is in a region, others run theirs in one thread; all are right."""
    k = make_kernel(handmade.parallel(STEPS))
    threads.set_num_threads(2)
    failures: list[str] = []

    def work() -> None:
        for _ in range(50):
            c, used = k(A)
            if not np.array_equal(c, A * A) or used[0] not in (1, 2):
                failures.append(str(used[0]))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert failures == []
    assert threads._busy.value == 0


# -- eight Python threads compile and run (R14)
def at_once(task: Callable[[int], Any]) -> list[Any]:
    barrier = threading.Barrier(8)

    def wait(k: int) -> Any:
        barrier.wait()
        return task(k)

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(wait, range(8)))


def test_the_same_cold_kernel(home: Path) -> None:
    def task(k: int) -> Any:
        kernel = make_kernel(handmade.add(21))
        return [kernel(np.full(21, k, "f4"), np.ones(21, "f4"))[20] for _ in range(20)]

    assert at_once(task) == [[k + 1.0] * 20 for k in range(8)]


def test_different_cold_kernels(home: Path) -> None:
    def task(k: int) -> Any:
        n = 31 + k
        kernel = make_kernel(handmade.add(n))
        return [float(kernel(np.full(n, k, "f4"), np.ones(n, "f4")).sum()) for _ in range(20)]

    assert at_once(task) == [[(k + 1.0) * (31 + k)] * 20 for k in range(8)]


def test_one_kernel_in_all() -> None:
    kernel = make_kernel(handmade.scale(operations=((10**6, ()),)))  # lets the threads run
    inputs = [np.full(1000, k, "f4") for k in range(8)]

    def task(k: int) -> bool:
        return all(np.array_equal(kernel(inputs[k]), 2 * inputs[k]) for _ in range(100))

    assert at_once(task) == [True] * 8


# -- forks (R14, H19)
def in_child(task: Callable[[], bool]) -> int:
    """0 if `task` is True in a forked child; it has ten seconds."""
    import signal

    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            os._exit(0 if task() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_after_a_parallel_run() -> None:
    threads.set_num_threads(2)
    k = make_kernel(handmade.parallel(STEPS))
    k(A)
    gnu = threads.runtime().kind == "gnu"

    def same_kernel() -> bool:
        c, used = k(A)
        return np.array_equal(c, A * A) and (not gnu or used[0] == 1)

    def new_kernel() -> bool:
        c, used = make_kernel(handmade.parallel(STEPS // 2), use_cache=False)(A[: STEPS // 2])
        return np.array_equal(c, A[: STEPS // 2] ** 2)

    def more_threads() -> bool:
        return threads.num_threads(4) == (1 if gnu or not several() else 4) and same_kernel()

    for task in (same_kernel, new_kernel, more_threads):
        assert in_child(task) == 0
    assert k(A)[1][0] == (2 if several() else 1)  # the parent goes on as before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_compiles() -> None:
    stop = threading.Event()

    def compile_on() -> None:
        n = 100
        while not stop.is_set():
            make_kernel(handmade.add(n), use_cache=False)
            n += 1

    worker = threading.Thread(target=compile_on)
    worker.start()
    try:
        for n in range(41, 46):

            def task(n: int = n) -> bool:
                k = make_kernel(handmade.add(n), use_cache=False)
                return bool(k(np.ones(n, "f4"), np.ones(n, "f4"))[n - 1] == 2)

            assert in_child(task) == 0
    finally:
        stop.set()
        worker.join()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_multiprocessing(method: str) -> None:
    import multiprocessing

    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("no such method")
    threads.set_num_threads(2)
    make_kernel(handmade.parallel(STEPS))(A)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(_square_sum, [10, 20, 30]).get(timeout=30) == [285, 2470, 8555]


def _square_sum(n: int) -> int:
    return int(make_kernel(handmade.parallel(n))(np.arange(n))[0].sum())


# -- no runtime at all
def test_without_a_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_runtime", None)
    monkeypatch.setattr(threads, "_open", lambda path, how: None)
    threads.set_num_threads(4)
    with pytest.warns(TensorIRWarning) as caught:
        assert threads.num_threads() == 1
    assert str(caught[0].message) == (
        "no OpenMP runtime was found, so parallel loops run in one thread; install libgomp1, or "
        "the extra openmp (pip install 'tensorir[openmp]') [silence(\"serial\")]"
    )
    found = threads.runtime()
    assert (found.kind, found.path, found.found) == ("none", "", "not found")
    c, used = make_kernel(handmade.parallel(STEPS))(A)
    np.testing.assert_array_equal(c, A * A)
    assert used[0] == 1


def test_a_runtime_that_is_loaded_comes_first() -> None:
    if threads.runtime().kind != "gnu":
        pytest.skip("no GNU runtime")
    program = """
import ctypes
ctypes.CDLL("libgomp.so.1")
from tensorir.runtime.threads import runtime
print(runtime().found)
"""
    assert run(program) == "already loaded in this process\n"
    assert run(program.replace('ctypes.CDLL("libgomp.so.1")', "")) == "of the system\n"
