"""`tensorir demo`: a matrix product scheduled step by step, refused once, checked and measured.

Then the same for a GPU, in the emulator: `demo_cuda`.
"""

from __future__ import annotations

import difflib
import linecache
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TextIO

import tensorir as tir
from schedules.cpu.matmul import params
from tensorir.cli import demo_cuda
from tensorir.cli.fair import environment, medians
from tensorir.codegen import cpu
from tensorir.inspect.text import nest
from tensorir.ir.target import Target
from tensorir.runtime.peak import fma_peak
from tensorir.schedule.schedule import Schedule
from tensorir.support.knobs import knobs

__all__ = ["demo", "run"]

SIZE = 1024
_WIDTH = 96
_FEW = 2
_AHEAD = 8  # rows of B


@dataclass(frozen=True, slots=True)
class Stage:
    """Some steps that belong together: what they are for, and the schedule after them."""

    name: str
    what: str
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Result:
    """A line of the table: seconds of one product, and on how many threads."""

    name: str
    seconds: float
    threads: int = 1


def run(out: TextIO) -> int:
    """The demo in a process where numpy uses one thread and chooses its own kernels."""
    wanted = environment(1)
    if wanted == dict(os.environ):
        return demo(out)
    out.flush()
    return subprocess.call([sys.executable, "-m", "tensorir", "demo"], env=wanted)


def demo(out: TextIO, size: int = SIZE) -> int:
    """Schedule, refuse, compile, check and measure a product of two square matrices.

    Then once more for a GPU, in the emulator.

    Parameters
    ----------
    out
        Where to write.
    size
        Rows and columns of the matrices.

    Returns
    -------
    int
        0; a stage that computes wrong numbers raises.
    """
    target = cpu.target("native")
    first = product(size)
    out.write(f"C[i, j] = sum over k of A[i, k] * B[k, j], float32, {size} x {size}\n")
    out.write("\nAs declared:\n\n" + _indented(_fitted(nest(first))) + "\n")
    out.write("\nA step that would change the result is refused:\n\n")
    out.write(_indented(refusal(first)) + "\n")
    found = stages(first, target)
    before = first
    for number, stage in enumerate(found, start=1):
        out.write(f"\n{number}. {stage.name}: {stage.what}\n\n")
        for step in stage.schedule.trace.steps[len(before.trace.steps) :]:
            out.write(_wrapped(f"s = s.{step.text}"))
        is_last = number == len(found)
        shown = nest(stage.schedule) if is_last else growth(before, stage.schedule)
        out.write("\n" + _indented(_fitted(shown)) + "\n")
        before = stage.schedule
    out.flush()
    _measure(out, size, first, found, target)
    demo_cuda.demo(out, product(demo_cuda.SIZE))
    return 0


def product(size: int) -> Schedule:
    """The product of two square matrices, in the order of its declaration."""
    A = tir.placeholder((size, size), "float32", name="A")
    B = tir.placeholder((size, size), "float32", name="B")
    k = tir.reduce_axis(size, name="k")
    C = tir.compute((size, size), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tir.schedule(C)


def stages(s: Schedule, target: Target) -> list[Stage]:
    """A product scheduled in groups of steps; each group leaves a schedule that can be built.

    The last one is the nest of `schedules.cpu.matmul`, reached in an order that shows what each
    part of it is for.
    """
    lanes = target.vector_bytes // 4
    sizes = {p.name: p.default for p in params(target)}
    mr, nr = sizes["mr"], sizes["nv"] * lanes
    out = []
    s = s.split("j", nr, into=("jr", "ji")).split("i", mr, into=("ir", "ii"))
    s = s.reorder("jr", "ir", "ii", "ji").reorder("k", "ii", "ji")
    out.append(Stage("tiles", f"{mr} rows and {nr} columns of C at a time", s))
    s = s.vectorize("ji", width=lanes).unroll("ii")
    out.append(Stage("vectors", f"columns in {lanes} lanes, rows written out", s))
    s = s.cache_write("C", "local", at="ir", name="tile")
    s = s.vectorize("tile.store.j", width=lanes)
    out.append(Stage("registers", "a tile stays there until its sums are complete", s))
    s = s.cache_read("B", at="jr", name="strip").vectorize("strip.j", width=lanes)
    out.append(Stage("B packed", "a strip is copied once in the order in which it is read", s))
    s = s.prefetch("B", "strip.k", _AHEAD)
    out.append(Stage("prefetch", "its rows lie far apart, and are asked for in time", s))
    s = s.parallel("jr")
    out.append(Stage("threads", "the strips are shared out", s))
    return out


_ASKED = 's.explain("parallel", "k")'


def refusal(s: Schedule) -> str:
    """What a user is told who asks for `_ASKED` in a file of one line."""
    linecache.cache["demo"] = (len(_ASKED), None, [_ASKED], "demo")
    told = eval(compile(_ASKED, "demo", "eval"), {"__name__": "demo", "s": s})
    return str(told)


def growth(before: Schedule, after: Schedule) -> str:
    """The lines that came, where hardly any went; else the whole nest."""
    old, new = (str(s.loops()).splitlines() for s in (before, after))
    lines = list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:]
    if sum(x.startswith("-") for x in lines) > _FEW:
        return nest(after)
    return "\n".join("..." if x.startswith("@@") else x for x in lines)


def _measure(
    out: TextIO, size: int, first: Schedule, found: Sequence[Stage], target: Target
) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    c = np.empty((size, size), np.float32)
    plain = [Stage("as declared", "", first), *found]
    kernels = {x.name: tir.build(x.schedule) for x in plain}
    last = [k.check(a, b, against=lambda a, b: a @ b) for k in kernels.values()][-1]
    out.write(f"\nCompiled for {target}. All {len(kernels)} agree with numpy; of the last one,\n")
    out.write(f"{last}.\n")
    out.flush()
    peak, operations = fma_peak()
    calls: dict[str, Callable[[], object]] = {"peak": peak}
    calls |= {n: partial(k, a, b, out=c) for n, k in kernels.items() if n != found[-1].name}
    calls["numpy"] = partial(np.dot, a, b, out=c)
    with knobs.override(num_threads=1):
        times = medians(calls, clock=time.thread_time)
    roof = operations / times.pop("peak")
    results = [Result(n, t) for n, t in times.items()]
    results += _threaded(found[-1].name, partial(kernels[found[-1].name], a, b, out=c), size)
    out.write("\n" + table(results, 2.0 * size**3, roof) + "\n")
    out.write(_compile_time(found[-1].schedule))
    out.write(_call_overhead())


def _threaded(name: str, ours: Callable[[], object], size: int) -> list[Result]:
    """The last stage and numpy on all threads; numpy in a process that may have them all."""
    count = tir.num_threads()
    out = [Result(name, medians({"ours": ours})["ours"], count)]
    if count < 2:
        return out
    said = subprocess.run(
        [sys.executable, "-c", _NUMPY_ALONE, str(size)],
        env=environment(count), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if said.returncode == 0:
        out.append(Result("numpy", float(said.stdout), count))
    return out


_NUMPY_ALONE = """
import statistics, sys, time
import numpy as np
n = int(sys.argv[1])
a, b = (np.random.default_rng(0).standard_normal((n, n), np.float32) for _ in range(2))
c, times = np.empty((n, n), np.float32), []
while len(times) < 9:
    np.dot(a, b, out=c)
    start = time.perf_counter()
    np.dot(a, b, out=c)
    times.append(time.perf_counter() - start)
print(statistics.median(times))
"""


def table(results: Sequence[Result], operations: float, roof: float) -> str:
    """GFLOP/s of each result, its share of the peak of its threads, and against numpy's."""
    numpy = {r.threads: r.seconds for r in results if r.name == "numpy"}
    width = max(len(r.name) for r in results)
    lines = [f"  {'':{width}}  threads   GFLOP/s   of peak   against numpy"]
    for r in results:
        share = operations / r.seconds / (roof * r.threads)
        beside = f"{numpy[r.threads] / r.seconds:13.3f}x" if r.threads in numpy else ""
        rate = operations / r.seconds / 1e9
        line = f"  {r.name:{width}}  {r.threads:7}  {rate:8.1f}  {share:7.1%}  {beside}"
        lines.append(line.rstrip())
    lines.append(f"  peak measured of one thread: {roof / 1e9:.1f} GFLOP/s")
    return "\n".join(lines)


def _compile_time(s: Schedule) -> str:
    """From the last schedule to a callable kernel: the cache of objects off, and on."""

    def took() -> float:
        start = time.perf_counter()
        tir.build(s)
        return 1e3 * (time.perf_counter() - start)

    with knobs.override(cache_enabled=False):
        cold = min(took() for _ in range(5))
    warm = min(took() for _ in range(5))
    return f"\n  compiling the last stage: {cold:.0f} ms, {warm:.0f} ms with a cached object\n"


def _call_overhead() -> str:
    """What a call costs that does next to nothing, without the loop around it."""
    import numpy as np

    a, b = (tir.placeholder((8,), "float32", name=v) for v in "ab")
    f = tir.build(tir.compute((8,), lambda i: a[i] + b[i], name="c"))
    x, y, z = (np.ones(8, np.float32) for _ in range(3))
    loop = range(50_000)

    def calls() -> float:
        start = time.perf_counter()
        for _ in loop:
            f(x, y, z)
        return time.perf_counter() - start

    def nothing() -> float:
        start = time.perf_counter()
        for _ in loop:
            pass
        return time.perf_counter() - start

    each = (min(calls() for _ in range(9)) - min(nothing() for _ in range(9))) / len(loop)
    return f"  a call of a kernel, three arrays of 8 checked: {1e9 * each:.0f} ns\n"


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")


def _fitted(text: str) -> str:
    """Long statements on more than one line; coloured lines are short."""
    return "\n".join(y for x in text.splitlines() for y in _lines(x))


def _lines(line: str) -> list[str]:
    if len(line) <= _WIDTH or "\x1b" in line:
        return [line]
    mark = line[0] if line[0] in "+-" else ""
    bare = line[len(mark) :]
    indent = mark + bare[: len(bare) - len(bare.lstrip())]
    return textwrap.wrap(
        bare.lstrip(), _WIDTH, initial_indent=indent, subsequent_indent=indent + 6 * " "
    )


def _wrapped(line: str) -> str:
    return textwrap.fill(line, _WIDTH, initial_indent="    ", subsequent_indent="        ") + "\n"
