"""`python -m tests.properties.planted`: are the random tests worth having?

Plants one-line faults in the compiler, one at a time, and says after how many pairs, in which seed
and how fast each is found. A fault that a run of CI's size does not find is a failure.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tensorir.codegen import emit
from tensorir.codegen.values import Emitter
from tensorir.ir.stmt import Run
from tensorir.poly import access, conflict
from tensorir.support.errors import silence
from tensorir.support.knobs import knobs
from tests.properties.check import Wrong, one_seed
from tests.properties.test_illegal_requests import check

PAIRS = 2_000  # as many as CI draws


@dataclass(frozen=True)
class Fault:
    """A place, what stands there instead, and the test that should notice."""

    what: str
    where: Any
    name: str
    instead: Callable[[Callable[..., Any]], Callable[..., Any]]
    notice: Callable[[], str | None]


def random_schedules() -> str | None:
    """What the random schedules of CI say; None if they notice nothing."""
    counts: Counter[str] = Counter()
    seed = 0
    while counts["pairs"] < PAIRS:
        try:
            one_seed(seed, counts)
        except Wrong as error:
            return f"pair {counts['pairs'] + 1}: {str(error).splitlines()[0]:.90}"
        seed += 1
    return None


def illegal_requests() -> str | None:
    """The first random request that is accepted though the enumerator finds a clash."""
    for part in range(PAIRS // 50):
        try:
            check(1000 * part, 50)
        except AssertionError as error:
            return f"request {50 * part + 1} or soon after: {str(error).splitlines()[0]:.90}"
    return None


def _tail(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, conditions: right(self, [e + 1 for e in conditions])


def _no_init(right: Callable[..., Any]) -> Callable[..., Any]:
    def run(em: Emitter, node: Run) -> None:
        if node.statement.role != "init":
            right(em, node)

    return run


def _no_anti(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: (x for x in right(a, b) if x[0] != "anti")


def _short(right: Callable[..., Any]) -> Callable[..., Any]:
    def footprint(*args: Any) -> Any:
        cells, outer = right(*args)
        return (cells.subtract(cells.lexmax()) if args[4] == "reads" else cells), outer

    return footprint


FAULTS = [
    Fault("a tail guard lets one more through", Emitter, "conditions", _tail, random_schedules),
    Fault("the init of reductions is dropped", emit, "run", _no_init, random_schedules),
    Fault("write-after-read is ignored", conflict, "_access_pairs", _no_anti, illegal_requests),
    Fault("a halo is one cell short", access, "footprint", _short, random_schedules),
]


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    right = getattr(fault.where, fault.name)
    setattr(fault.where, fault.name, fault.instead(right))
    try:
        with knobs.override(cache_enabled=False):
            yield
    finally:
        setattr(fault.where, fault.name, right)


def apart(fault: Fault) -> str | None:
    """What notices the fault, in a process of its own: a stray write may end it, which counts."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with planted(fault):
            found = fault.notice()
        os.write(write, (found or "").encode())
        os._exit(0 if found is None else 1)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"the process died of signal {os.WTERMSIG(status)}"
    return told or None


def main() -> int:
    silence("no-effect")  # of random steps
    missed = 0
    for fault in FAULTS:
        start = time.perf_counter()
        found = apart(fault)
        took = time.perf_counter() - start
        missed += found is None
        print(f"{fault.what}: {'NOT FOUND' if found is None else f'{took:.1f} s, {found}'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
