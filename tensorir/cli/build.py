"""`tensorir build OP SIZE...`: an operator built for a target, and its code or a report of it."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any, TextIO

import tensorir as tir
from schedules import build as build_operator
from tensorir.cli.bench import operator_of, sizes_of
from tensorir.codegen import targets
from tensorir.runtime.cuda_plan import grid_of
from tensorir.support.errors import ArgumentError, CacheError, CompileError

__all__ = ["EMITTED", "EPILOG", "add_arguments", "report", "run"]

EMITTED = ("report", "schedule", "loops", "llvm", "asm", "ptx", "sass")
EPILOG = """\
examples:
  tensorir build matmul 1024 1024 1024 --target cuda:sm_90 --emit ptx
  tensorir build softmax 512 1024 --target cuda --emit report
  tensorir build conv2d 1 64 56 56 64 3 --emit asm --output conv.s
"""
_OF_CUDA = ("ptx", "sass")
_WIDTH = 96


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of the command."""
    parser.add_argument("op", metavar="OP", help="name of an operator, as bench --list names them")
    parser.add_argument("sizes", nargs="*", metavar="SIZE", help="its sizes")
    parser.add_argument("--dtype", help="type of the inputs; by default the operator's first")
    parser.add_argument("--target", help="such as x86-64-v3, cuda:sm_90; by default this processor")
    parser.add_argument("--emit", choices=EMITTED, default="report", help="what to print")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it there instead")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the kernel for tir.load")


def run(options: argparse.Namespace, out: TextIO) -> int:
    """Build, and print what was asked for."""
    op, sizes = operator_of(options.op), sizes_of(options.sizes)
    target = targets.resolve(options.target)
    if options.emit in _OF_CUDA and target.kind != "cuda":
        raise ArgumentError(
            f"build: there is no {options.emit} for {target}",
            details=f"  try  --target cuda:sm_90 --emit {options.emit}",
        )
    kernel = build_operator(op.name, *sizes, target=target, dtypes=options.dtype)
    text = report(kernel) if options.emit == "report" else _text(kernel, options.emit)
    if options.save is not None:
        kernel.save(options.save)
    if options.output is None:
        out.write(text.rstrip("\n") + "\n")
        return 0
    try:
        options.output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    except OSError as problem:
        name = str(options.output)
        raise CacheError(f"cannot write {name!r}: {problem.strerror or problem}") from None
    return 0


def _text(kernel: Any, what: str) -> str:
    if what == "schedule":
        return "\n".join(f"s = s.{step.text}" for step in kernel.schedule.trace.steps)
    return str(getattr(kernel, what))


def report(kernel: Any) -> str:
    """What a kernel is made of: arguments, launches, resources, notes."""
    lines = [repr(kernel).strip("<>"), f"  schedule  {len(kernel.schedule.trace.steps)} steps"]
    for x in kernel.source.launches:
        grid = " x ".join(f"{n:,}" for n in grid_of(x, {}))
        threads = " x ".join(map(str, x.threads))
        barriers = f"{len(x.barriers)} barrier{'s' * (len(x.barriers) != 1)}"
        lines.append(
            f"  launch    {x.name}: {grid} blocks of {threads} threads, {x.shared_bytes:,} B "
            f"shared, {barriers}"
        )
        for reason in x.barriers:
            lines += textwrap.wrap(
                f"barrier: {reason}", _WIDTH, initial_indent=12 * " ", subsequent_indent=14 * " "
            )
    if kernel.source.launches:
        lines += _resources(kernel)
    for a in kernel.source.scratch:
        shape = ", ".join(e.text() for e in a.shape)
        lines.append(f"  scratch   {a.name}: {a.dtype}[{shape}]")
    lines += [f"  note      {note}" for note in kernel.notes]
    return "\n".join(lines)


def _resources(kernel: Any) -> list[str]:
    try:
        return [f"  uses      {r}" for r in kernel.resources]
    except CompileError as problem:
        if "was not found" not in str(problem):
            raise
        return [f"  uses      not known: {tir.full_text(problem).splitlines()[0]}"]
