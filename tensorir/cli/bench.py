"""`tensorir bench OP SIZE...`: an operator built, checked and timed beside numpy and torch."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, TextIO

import numpy as np

import tensorir as tir
from schedules import schedule_for
from schedules.registry import entry_for
from tensorir.cli.equivalents import into, numpy_call, torch_call
from tensorir.cli.fair import environment, medians
from tensorir.codegen import cpu, llvm
from tensorir.ir.dtype import FLOAT32, FLOAT64
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ops import Operator, operator, operators
from tensorir.runtime.bandwidth import streams
from tensorir.runtime.peak import fma_peak
from tensorir.support.diagnostics import Message
from tensorir.support.errors import ArgumentError, KernelError
from tensorir.support.knobs import knobs
from tensorir.support.names import hint

__all__ = ["Report", "add_arguments", "bench", "operator_of", "run", "sizes_of"]

EPILOG = """\
examples:
  tensorir bench matmul 1024 1024 1024
  tensorir bench softmax 512 1024 --dtype float64
  tensorir bench conv2d 1 64 56 56 64 3 --threads 2
  tensorir bench --list
"""
_EXAMPLE = "tensorir bench matmul 1024 1024 1024"
_LIST = ("tensorir bench --list", "names them all, with their sizes")
_LARGEST = 1 << 32  # bytes of all arrays: beyond it a slip of the finger is likelier than intent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of the command."""
    parser.add_argument("op", nargs="?", metavar="OP", help="name of an operator")
    parser.add_argument("sizes", nargs="*", metavar="SIZE", help="its sizes, as --list names them")
    parser.add_argument("--list", action="store_true", help="name the operators and their sizes")
    parser.add_argument("--dtype", help="type of the inputs; by default the operator's first")
    parser.add_argument("--target", help="processor to compile for, such as x86-64-v3")
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="threads for everybody (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


@dataclass(frozen=True, slots=True)
class Entrant:
    """Somebody's time: seconds of a call, rates, and the part of the roof that it reaches."""

    name: str
    seconds: float
    gflops: float
    gbytes: float
    roof: float


@dataclass(frozen=True, slots=True)
class Report:
    """What `bench` found.

    Attributes
    ----------
    sizes
        By the operator's names for them.
    schedule, steps
        Name of the library's schedule, and how many primitives it applied.
    schedule_ms, compile_ms, cached_ms
        Choosing and proving the schedule; compiling it; loading it once it is in the cache.
    check
        How close the result is to numpy's.
    bound
        `arithmetic` or `memory`, whichever roof is nearer.
    peak_gflops, stream_gbytes
        The roofs, measured in the same rounds.
    entrants
        Ours first.
    remarks
        Who is not there, and why.
    """

    operator: str
    sizes: dict[str, int]
    dtype: str
    target: str
    threads: int
    schedule: str
    steps: int
    schedule_ms: float
    compile_ms: float
    cached_ms: float
    check: str
    bound: str
    peak_gflops: float
    stream_gbytes: float
    entrants: tuple[Entrant, ...]
    remarks: tuple[str, ...]

    def __str__(self) -> str:
        sizes = " ".join(f"{k}={v}" for k, v in self.sizes.items())
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        lines = [
            f"{self.operator} {sizes}, {self.dtype}, {threads}, {self.target}",
            f"  schedule  {self.schedule}, {self.steps} steps in {self.schedule_ms:.0f} ms",
            f"  compiled  in {self.compile_ms:.0f} ms, {self.cached_ms:.0f} ms from the cache",
            *textwrap.indent(self.check, "  checked   ").splitlines(),
            "",
            f"  {'':18}{'time':>10}{'GFLOP/s':>10}{'GB/s':>8}{'of roof':>9}   ours is",
        ]
        ours = self.entrants[0].seconds
        for e in self.entrants:
            beside = "" if e is self.entrants[0] else f"   {e.seconds / ours:.2f}x as fast"
            flops = f"{e.gflops:10.1f}" if e.gflops else f"{'':10}"
            lines.append(
                f"  {e.name:18}{_time(e.seconds):>10}{flops}{e.gbytes:8.1f}{e.roof:9.1%}{beside}"
            )
        peak = f"{self.peak_gflops:.0f} GFLOP/s of fused multiply-adds"
        lines.append(
            f"  roof: {self.bound}; {peak}, {self.stream_gbytes:.0f} GB/s for as many bytes"
        )
        return "\n".join([*lines, *(f"  {r}" for r in self.remarks)])


def run(options: argparse.Namespace, out: TextIO) -> int:
    """Check the words, then measure in a process where all libraries use so many threads."""
    if options.list:
        return _list(out)
    if options.op is None:
        _fail("expected the name of an operator", _LIST, (_EXAMPLE, "a matrix product"))
    op, sizes = operator_of(options.op), sizes_of(options.sizes)
    _check(op, sizes, options.dtype, options.threads)
    wanted = environment(options.threads)
    if wanted == dict(os.environ):
        report = bench(op, sizes, options.dtype, options.target, options.threads)
        out.write(json.dumps(asdict(report), indent=1) if options.json else str(report))
        out.write("\n")
        return 0
    words = [options.op, *map(str, sizes), "--threads", str(options.threads)]
    for name in ("dtype", "target"):
        if getattr(options, name) is not None:
            words += [f"--{name}", getattr(options, name)]
    words += ["--json"] * options.json
    out.flush()
    return subprocess.call([sys.executable, "-m", "tensorir", "bench", *words], env=wanted)


def _fail(headline: str, *tries: tuple[str, str], why: str = "") -> NoReturn:
    raise Message(f"bench: {headline}", why=why, tries=tries).error(ArgumentError)


def _list(out: TextIO) -> int:
    for name in operators():
        op = operator(name)
        out.write(f"{name} {' '.join(op.sizes)}  ({', '.join(op.dtypes)})\n")
    return 0


def operator_of(name: str) -> Operator:
    """The operator of that name, or an error that names those there are."""
    if name not in operators():
        _fail(f"there is no operator {name!r:.60}{hint(name, operators())}", _LIST)
    return operator(name)


def sizes_of(words: Sequence[str]) -> tuple[int, ...]:
    """Integers; `64x32` is two of them."""
    found: list[int] = []
    for word in words:
        for part in word.split("x"):
            if not (part.isascii() and part.isdigit()):
                _fail(f"{word!r:.60} is no size", (_EXAMPLE, "sizes are integers"))
            found.append(int(part))
    return tuple(found)


def _check(op: Operator, sizes: tuple[int, ...], dtype: str | None, threads: int) -> None:
    """Whether the operator takes these; errors name what it takes."""
    if threads < 1:
        _fail(f"--threads {threads}: expected at least 1")
    free = bool(op.sizes) and op.sizes[-1].startswith("*")
    if len(sizes) != len(op.sizes) and not free:
        count = f"{len(sizes)} of them" if sizes else "none"
        example = " ".join(["64"] * len(op.sizes))
        _fail(
            f"{op.name} takes the sizes {' '.join(op.sizes)}, not {count}",
            (f"tensorir bench {op.name} {example}", "one integer for each"),
        )
    wanted = op.dtypes[0] if dtype is None else as_dtype(dtype).name
    if wanted not in op.dtypes:
        _fail(f"{op.name} takes {', '.join(op.dtypes)}, not {wanted}")
    total = 0
    for x in op.inputs(*sizes):
        total += int(np.prod(x.shape, dtype=object)) * as_dtype(x.dtype or wanted).bytes
    if total > _LARGEST:
        _fail(
            f"the inputs of {op.name} at these sizes take {total:,} bytes",
            why=f"at most {_LARGEST:,} are tried.",
        )


def bench(
    op: Operator,
    sizes: tuple[int, ...],
    dtype: str | None = None,
    target: str | None = None,
    threads: int = 1,
) -> Report:
    """Build an operator by its library schedule, check it, and measure it in turns with the others.

    Parameters
    ----------
    op, sizes, dtype
        As :meth:`tensorir.ops.Operator.declare` takes them.
    target
        The processor; one whose code runs here.
    threads
        For our kernel and torch; numpy's are fixed when it is imported.

    Raises
    ------
    KernelError
        The result is not numpy's, within what rounding explains.
    TargetError
        This machine does not run code for that target.
    """
    where = cpu.target("native" if target is None else target)
    llvm.require_runs_here(where)
    arrays = op.arrays(*sizes, dtype=dtype)
    results, sources = op.declare(*sizes, dtype=dtype)
    tensors = results if isinstance(results, tuple) else (results,)
    start = time.perf_counter()
    s = schedule_for(*tensors, target=where)
    schedule_ms = 1e3 * (time.perf_counter() - start)
    entry = entry_for(tir.schedule(*tensors))
    kernel = tir.build(s, target=where, args=[*sources, *dict.fromkeys(tensors)])
    check = str(kernel.check(*arrays, against=op.expected))
    with knobs.override(num_threads=threads):
        calls, remarks = _calls(op, arrays, kernel, threads)
        wide = any(t.dtype == FLOAT64 for t in sources)
        peak, operations = fma_peak(where, FLOAT64 if wide else FLOAT32)
        read, written = sum(x.nbytes for x in arrays), _bytes(kernel(*arrays))
        moved = read + written
        # what hardly writes is held against a loop that does not write at all
        writes = int(4 * written >= read)
        memory, passes = streams(max(1, moved // (1 + writes)), 1, writes)
        clock = time.thread_time if threads == 1 else time.perf_counter
        with np.errstate(all="ignore"):
            times = medians({"peak": peak, **memory, **calls}, clock=clock)
    flops = kernel.time(*arrays, repeat=1).operations
    roof_flops = operations / times["peak"] * threads
    stream = moved * passes / min(times[k] for k in memory)
    limits = {"arithmetic": flops / roof_flops, "memory": moved / stream}
    bound = max(limits, key=limits.__getitem__)
    entrants = tuple(
        Entrant(k, t, flops / t / 1e9, moved / t / 1e9, limits[bound] / t)
        for k, t in times.items()
        if k in calls
    )
    return Report(
        op.name, _named(op, sizes), arrays[0].dtype.name if arrays else "", str(where), threads,
        entry.name if entry is not None else "default", len(s.trace.steps), schedule_ms,
        _compile_ms(s, where, cached=False), _compile_ms(s, where, cached=True), check, bound,
        roof_flops / 1e9, stream / 1e9, entrants, tuple(remarks),
    )  # fmt: skip


def _named(op: Operator, sizes: tuple[int, ...]) -> dict[str, int]:
    names = list(op.sizes)
    if names and names[-1].startswith("*"):
        names[-1:] = [f"d{k}" for k in range(len(sizes) - len(names) + 1)]
    return dict(zip(names, sizes, strict=True))


def _bytes(results: Any) -> int:
    made = results if isinstance(results, tuple) else (results,)
    return sum(int(x.nbytes) for x in made)


def _calls(
    op: Operator, arrays: Sequence[Any], kernel: Any, threads: int
) -> tuple[dict[str, Callable[[], object]], list[str]]:
    """Ours with outputs made before, numpy, and torch where it agrees."""
    made = kernel(*arrays)
    calls: dict[str, Callable[[], object]] = {"ours": lambda: kernel(*arrays, out=made)}
    remarks = []
    name, numpy = numpy_call(op)
    with np.errstate(all="ignore"):
        calls[name] = into(numpy, arrays)
    try:
        torch = torch_call(op, arrays, threads)
        if torch is None:
            return calls, ["torch: not installed, or without this operator"]
        theirs = torch()
        kernel.check(*arrays, against=lambda *_: theirs.numpy())
        calls["torch"] = torch
    except KernelError:
        remarks.append("torch: its operator of that name computes something else")
    except Exception as e:  # whatever torch says of its own types and shapes
        remarks.append(f"torch: {type(e).__name__}: {str(e).splitlines()[0]:.80}")
    return calls, remarks


def _compile_ms(s: tir.Schedule, target: Any, *, cached: bool) -> float:
    """The best of three: from the schedule to a callable."""
    times = []
    with knobs.override(cache_enabled=cached):
        for _ in range(3):
            start = time.perf_counter()
            tir.build(s, target=target)
            times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def _time(seconds: float) -> str:
    """
    >>> _time(3.2e-08), _time(0.0123), _time(2.5)
    ('32 ns', '12.3 ms', '2.5 s')
    """
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"
