"""What is no race: symbolic sizes, threads, compile times, imports, calls; each with its bound."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

import tensorir as tir
from schedules.cpu import blur, matmul
from tensorir.codegen import cpu
from tensorir.lower.pipeline import lower
from tensorir.runtime.build import source_of
from tensorir.runtime.kernel import make_kernel
from tensorir.runtime.peak import fma_peak
from tests.benchmarks.measure import interleaved

SIZES = [(512,) * 3, (1000,) * 3, (1023,) * 3, (1024,) * 3, (2048,) * 3, (513, 1027, 129)]


@dataclass(frozen=True)
class Row:
    """One figure: what, the value, the bound, and whether it is an upper or a lower one."""

    what: str
    value: float
    unit: str
    bound: float
    at_most: bool = False
    detail: str = ""

    @property
    def reached(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"reached": self.reached}

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        mark = "ok " if self.reached else "NO "
        return (
            f"  {mark} {self.what:<46} {self.value:9.3f} {self.unit:<7} ({sign} {self.bound:g})"
            f"  {self.detail}"
        )


def product(m: object, n: object, k: object) -> tir.Schedule:
    """The declared matmul of `m` by `n` by `k`, unscheduled."""
    A = tir.placeholder((m, k), name="A")
    B = tir.placeholder((k, n), name="B")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")
    return tir.schedule(C)


def figure_symbolic() -> Iterator[Row]:
    peak, operations = fma_peak()
    symbolic = tir.build(matmul(product(*(tir.var(x) for x in "MNK")), parallel=False))
    for m, n, k in SIZES:
        kernel = tir.build(matmul(product(m, n, k), parallel=False))
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
        out = np.empty((m, n), np.float32)
        for f in (kernel, symbolic):
            f.check(a, b, against=lambda a, b: a @ b)
        t = interleaved(
            {
                "peak": peak,
                "numpy": lambda a=a, b=b, out=out: np.dot(a, b, out=out),
                "ours": lambda f=kernel, a=a, b=b, out=out: f(a, b, out=out),
                "symbolic": lambda a=a, b=b, out=out: symbolic(a, b, out=out),
            }
        )
        flops = 2.0 * m * n * k
        top = operations / t["peak"]
        share = {x: 100 * flops / t[x] / top for x in t if x != "peak"}
        size = f"{m}" if m == n == k else f"{m}x{n}x{k}"
        detail = f"{flops / t['ours'] / 1e9:.1f} GFLOP/s of {top / 1e9:.1f}, " + ", ".join(
            f"{x} {v:.1f} %" for x, v in share.items()
        )
        against = t["numpy"] / t["ours"]
        yield Row(f"matmul f32 {size} against numpy", against, "x", 1.0, False, detail)
        if m == n == k:
            yield Row(f"matmul f32 {size} of peak", share["ours"], "%", 91 if m == 1000 else 92)
        yield Row(f"matmul f32 {size} symbolic sizes", t["ours"] / t["symbolic"], "x", 0.95)


def figure_threads() -> Iterator[Row]:
    for n in (1024, 2048):
        kernel = tir.build(matmul(product(n, n, n)))
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal((n, n), np.float32) for _ in range(2))
        out = np.empty((n, n), np.float32)

        def on(threads: int) -> Callable[[], object]:
            def run() -> None:
                tir.num_threads(threads)
                kernel(a, b, out=out)

            return run

        before = tir.num_threads()
        t = interleaved({"one": on(1), "two": on(2)}, clock=time.perf_counter)
        tir.num_threads(before)
        yield Row(
            f"matmul f32 {n}, two threads", t["one"] / t["two"], "x", 1.85, False,
            f"{2.0 * n**3 / t['two'] / 1e9:.1f} GFLOP/s",
        )  # fmt: skip


def _median_ms(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def _chain(n: object) -> tir.Schedule:
    a, x, z = (tir.placeholder((n,), name=v) for v in "axz")
    out = tir.compute((n,), lambda i: tir.maximum(tir.fma(a[i], x[i], z[i]), 0.0), name="out")
    return tir.schedule(out)


def figure_compile() -> Iterator[Row]:
    target = cpu.target("native")

    def callable_of(s: tir.Schedule) -> Callable[[], object]:
        def run() -> object:
            return make_kernel(source_of(lower(s.program, target), target), use_cache=False)

        return run

    for size in ("symbolic", 1000, 1024):
        dims = [tir.var(x) for x in "MNK"] if size == "symbolic" else [size] * 3
        run = callable_of(matmul(product(*dims), parallel=False))
        run()
        yield Row(f"schedule to callable, matmul {size}", _median_ms(run, 9), "ms", 75, True)
    run = callable_of(_chain(tir.var("n")).vectorize("i"))
    run()
    yield Row("schedule to callable, elementwise", _median_ms(run, 15), "ms", 9, True)
    s = matmul(product(*(tir.var(x) for x in "MNK")), parallel=False)
    lower(s.program, target)
    yield Row(
        "schedule to loops, matmul symbolic", _median_ms(lambda: lower(s.program, target), 15),
        "ms", 15, True,
    )  # fmt: skip


def figure_primitives() -> Iterator[Row]:
    """Each step of the matmul schedule again, timed where it stands."""
    times: dict[str, list[float]] = {}
    for _ in range(7):
        s = matmul(product(*(tir.var(x) for x in "MNK")))
        names = []
        while s.parent is not None:
            names.append(s)
            s = s.parent
        for after in reversed(names):
            step = after.step
            assert step is not None and after.parent is not None
            start = time.perf_counter()
            s = getattr(s, step.primitive)(*step.args, **step.kwargs)
            times.setdefault(f"{step.number} {step.text}", []).append(time.perf_counter() - start)
    medians = {k: 1e3 * statistics.median(v) for k, v in times.items()}
    slowest = max(medians, key=medians.__getitem__)
    yield Row(
        "a primitive on the matmul schedule, median", statistics.median(medians.values()), "ms",
        1.0, True, f"slowest {slowest}: {medians[slowest]:.2f} ms",
    )  # fmt: skip


def figure_call() -> Iterator[Row]:
    a, b = (tir.placeholder((8,), name=v) for v in "ab")
    f = tir.build(tir.compute((8,), lambda i: a[i] + b[i], name="c"))
    x, y, z = (np.ones(8, np.float32) for _ in range(3))
    loop = range(200_000)

    def calls() -> float:
        start = time.perf_counter()
        for _ in loop:
            f(x, y, z)
        full = time.perf_counter() - start
        start = time.perf_counter()
        for _ in loop:
            pass
        return (full - (time.perf_counter() - start)) / len(loop)

    yield Row(
        "a call, three float32 arrays, all checked",
        1e9 * statistics.median(calls() for _ in range(9)), "ns", 60, True,
    )  # fmt: skip


def figure_launch() -> Iterator[Row]:
    """A launch on a GPU, its arrays checked, against a driver that does nothing."""
    from tests.benchmarks.launch import microseconds

    for what, each in microseconds():
        yield Row(f"a launch, {what}", each, "us", 3.0, True)


def figure_emulator() -> Iterator[Row]:
    """How long PTX takes in the emulator, with its checks and without."""
    from tests.benchmarks.emulator import rows

    yield from rows()


def figure_import() -> Iterator[Row]:
    """What `schedules` adds to the import of `tensorir`, in processes of their own."""
    names = ("tensorir", "tensorir, schedules")
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(7):
        for name in names:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {name}"], check=True)
            times[name].append(time.perf_counter() - start)
    alone, both = (statistics.median(times[n]) for n in names)
    yield Row("import of schedules, beyond tensorir", both - alone, "s", 0.3, True)


def figure_separable() -> Iterator[Row]:
    n = 2048
    A = tir.placeholder((n + 2, n + 2), name="A")
    X = tir.compute((n + 2, n), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="X")
    Y = tir.compute((n, n), lambda y, x: X[y, x] + X[y + 1, x] + X[y + 2, x], name="Y")
    f = tir.build(blur(tir.schedule(Y), parallel=False))
    a = np.random.default_rng(0).standard_normal((n + 2, n + 2), np.float32)
    out = np.empty((n, n), np.float32)

    def separable(a: np.ndarray) -> np.ndarray:
        b = a[:, :-2] + a[:, 1:-1] + a[:, 2:]
        return b[:-2] + b[1:-1] + b[2:]

    f.check(a, against=separable)
    t = interleaved({"numpy": lambda: separable(a), "ours": lambda: f(a, out=out)})
    detail = f"{1e3 * t['ours']:.2f} ms, numpy {1e3 * t['numpy']:.2f} ms"
    yield Row("blur 3x3, 2048, against numpy", t["numpy"] / t["ours"], "x", 4.5, False, detail)


FIGURES: dict[str, Callable[[], Iterator[Row]]] = {
    name.removeprefix("figure_"): f
    for name, f in list(globals().items())
    if name.startswith("figure_")
}
