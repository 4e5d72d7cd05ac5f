"""One random pair: a declaration and an accepted schedule, compiled and compared bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np

import tensorir as tir
from tests.properties import moves, programs
from tests.properties.memory import guarded

SCHEDULES_EACH = 4
FILL = 0xCD


class Wrong(AssertionError):
    """A scheduled kernel whose answer differs; says how to see it again."""


def run(seed: int, pairs: int, *, guard_pages: float = 0.25) -> Counter[str]:
    """Compare `pairs` random schedules with the unscheduled program; raises `Wrong`."""
    counts: Counter[str] = Counter()
    case_seed = seed
    while counts["pairs"] < pairs:
        one_seed(case_seed, counts, guard_pages=guard_pages)
        case_seed += 1
    return counts


def one_seed(seed: int, counts: Counter[str], *, guard_pages: float = 0.25) -> None:
    """`check_case`, any failure told with its seed."""
    try:
        check_case(seed, counts, guard_pages=guard_pages)
    except tir.TensorIRError as error:
        raise Wrong(f"seed {seed}: {type(error).__name__}: {error}") from error


def check_case(
    seed: int,
    counts: Counter[str],
    *,
    guard_pages: float = 0.25,
    draw: Callable[[Random], programs.Case] = programs.draw,
    schedule: Callable[..., tir.Schedule] = moves.random_schedule,
) -> None:
    """One declaration (drawn from `seed`) under several random schedules."""
    rng = Random(seed)
    case = draw(rng)
    base = tir.schedule(*case.outputs)
    plain = tir.build(base)
    answers = [_reference(case, plain, sizes, k, seed) for k, sizes in enumerate(case.sizes)]
    for _ in range(SCHEDULES_EACH):
        s = schedule(base, rng, rng.randint(1, 7), counts)
        kernel = tir.build(s)
        loose = any(step.reassociates for step in s.trace)
        for k, sizes in enumerate(case.sizes):
            got = _call(kernel, case, sizes, k, guard=rng.random() < guard_pages)
            for g, want in zip(got, answers[k], strict=True):
                _same(g, want, loose, f"seed {seed}, {case.name}, sizes {sizes}", s)
        counts["pairs"] += 1
        counts["reassociated"] += loose


def _reference(
    case: programs.Case, plain: tir.Kernel, sizes: programs.Sizes, k: int, seed: int
) -> list[np.ndarray]:
    got = _call(plain, case, sizes, k, guard=True)
    where = f"seed {seed}, {case.name}, sizes {sizes}, unscheduled"
    inputs = case.arrays(sizes, k)
    meant = tir.evaluate(case.outputs if len(case.outputs) > 1 else case.outputs[0], *inputs)
    for g, want in zip(got, meant if isinstance(meant, tuple) else (meant,), strict=True):
        _same(g, want, False, f"{where}, against evaluate", None)
    if case.expect is not None:
        _same(got[0], np.asarray(case.expect(*inputs)), False, f"{where}, against numpy", None)
    return got


def _call(
    kernel: tir.Kernel, case: programs.Case, sizes: programs.Sizes, k: int, *, guard: bool
) -> list[np.ndarray]:
    inputs = case.arrays(sizes, k)
    fresh = kernel(*inputs)
    outs = list(fresh) if isinstance(fresh, tuple) else [fresh]
    if not guard:
        return outs
    # again between unreadable pages, over 0xCD (0 where the domain leaves cells untouched): arrays
    # that end at one, then arrays that begin after one
    for at_end in (True, False):
        room = [np.zeros_like(o) for o in outs]
        if not case.name.startswith("triangle"):
            for r in room:
                r.view(np.uint8).fill(FILL) if r.ndim else r.fill(0)
        room = [guarded(r, at_end=at_end) for r in room]
        kernel(*[guarded(a, at_end=at_end) for a in inputs], out=tuple(room))
        for a, b in zip(outs, room, strict=True):
            if a.tobytes() != b.tobytes():
                raise Wrong(f"{case.name} {sizes}: a second call over 0xCD gave other bits")
    return room


def _same(
    got: np.ndarray, want: np.ndarray, loose: bool, where: str, s: tir.Schedule | None
) -> None:
    if got.dtype != want.dtype or got.shape != want.shape:
        raise Wrong(f"{where}: {got.dtype} {got.shape}, expected {want.dtype} {want.shape}")
    if got.tobytes() == want.tobytes():
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not loose and got.dtype.kind not in "biu" and np.array_equal(a, b, equal_nan=True):
        return  # zeros of either sign
    if loose and got.dtype.kind not in "biu":
        eps = {2: 1e-2, 4: 1e-5, 8: 1e-12}[got.dtype.itemsize]
        if np.allclose(a, b, rtol=eps, atol=eps * max(1.0, float(np.abs(b).max(initial=0)))):
            return
    bad = np.argwhere(~((a == b) | (np.isnan(a) & np.isnan(b))))
    first = tuple(bad[0]) if len(bad) else ()
    steps = s.trace.to_python() if s is not None else ""
    nest = f"\n{s}" if s is not None else ""
    raise Wrong(
        f"{where}: {len(bad)} of {got.size} cells differ, first {first}: got {got[first]}, "
        f"expected {want[first]}\n{steps}{nest}"
    )
