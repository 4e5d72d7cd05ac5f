"""`tensorir emulate FILE.ptx`: a kernel of any PTX text, run and checked without a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tensorir.emulator.ptx import EmulationError
from tensorir.emulator.ptx import run as run_text
from tensorir.emulator.ptx.findings import Finding
from tensorir.ir import dtype as dtypes
from tensorir.support.errors import ArgumentError
from tensorir.support.names import hint

__all__ = ["EPILOG", "add_arguments", "argument", "run"]

EPILOG = """\
arguments, one --arg for each parameter, in order:
  f32:1024         an array of 1,024 elements, drawn at random
  f32:64x64=zeros  one of zeros; also ones, range, random, empty (never written)
  i32=5            a number
  data.npy         an array from a file
  types: f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool

example:
  tensorir emulate add.ptx --kernel add --grid 4 --block 256 \\
      --arg f32:1000 --arg f32:1000 --arg f32:1000=empty --arg i32=1000
"""
TYPES = {
    "f16": dtypes.FLOAT16, "bf16": dtypes.BFLOAT16, "f32": dtypes.FLOAT32, "f64": dtypes.FLOAT64,
    **{f"i{n}": d for n, d in dtypes.INTS.items()},
    **{f"u{n}": d for n, d in dtypes.UINTS.items()},
    "bool": dtypes.BOOL,
}  # fmt: skip
_FILLS = ("random", "zeros", "ones", "range", "empty")
_COLLECTED = 20
_LARGEST = 1 << 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of the command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the PTX; - reads standard input")
    parser.add_argument("--kernel", metavar="NAME", help="the entry; the only one by default")
    parser.add_argument("--grid", default="1", metavar="X,Y,Z", help="blocks (default: 1)")
    parser.add_argument("--block", default="1", metavar="X,Y,Z", help="threads (default: 1)")
    parser.add_argument("--arg", action="append", default=[], metavar="ARG", help="see below")
    parser.add_argument(
        "--shared", type=int, default=0, metavar="BYTES", help="dynamic, of a block"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws data and the interleaving")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="with so many seeds")
    parser.add_argument("--no-checks", action="store_true", help="only bounds and alignment")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write the arrays afterwards")


def run(options: argparse.Namespace, out: TextIO) -> int:
    """Run, print the reports; 1 where something was found."""
    text = _read(options.file)
    grid, block = _sizes(options.grid, "--grid"), _sizes(options.block, "--block")
    if options.runs < 1:
        raise ArgumentError(f"emulate: --runs {options.runs}: expected at least 1")
    found = 0
    args: list[Any] = []
    for seed in range(options.seed, options.seed + options.runs):
        rng = np.random.default_rng(options.seed)
        made = [argument(word, rng) for word in options.arg]
        args = [value for value, _ in made]
        unwritten = [k for k, (_, empty) in enumerate(made) if empty]
        try:
            report = run_text(
                text, options.kernel, grid, block, args, shared=options.shared, seed=seed,
                checks=not options.no_checks, collect=_COLLECTED, unwritten=unwritten,
            )  # fmt: skip
        except EmulationError as error:
            if error.finding is None:
                raise
            out.write(_told(error.finding) + "\n")
            found += 1
            break
        found += len(report.findings)
        if report.findings or seed == options.seed:
            for finding in report.findings:
                out.write(_told(finding) + "\n")
            report.findings = []
            out.write(f"{report}\n")
        if found:
            break
    if options.save is not None:
        _save(options.save, args)
    runs = f"{options.runs} run{'s' * (options.runs != 1)}"
    end = f"{found} finding{'s' * (found != 1)}" if found else f"nothing found in {runs}"
    out.write(f"{end}\n")
    return 1 if found else 0


def _read(file: Path) -> str:
    import sys

    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        raise ArgumentError(
            f"emulate: cannot read {str(file)!r}: {problem.strerror or problem}"
        ) from None


def _told(f: Finding) -> str:
    """A finding with the place that it was met at."""
    where = [f"line {f.line}"]
    if f.source:
        where.append(f"source line {f.source}")
    where.append(f"block {f.block}")
    if f.thread is not None:
        where.append(f"thread {f.thread}")
    return f"{f.kind}: {f.kernel}: {', '.join(where)}: {f.message}"


def _sizes(words: str, option: str) -> tuple[int, ...]:
    parts = words.split(",")
    if not 1 <= len(parts) <= 3 or not all(p.isascii() and p.isdigit() and int(p) for p in parts):
        raise ArgumentError(f"emulate: {option} {words!r:.60}: expected up to three sizes, as 4,2")
    return tuple(map(int, parts))


def argument(word: str, rng: np.random.Generator) -> tuple[Any, bool]:
    """The value of an `--arg`, and whether it counts as never written.

    Raises
    ------
    ArgumentError
        It is none.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> argument("i32=5", rng)[0], argument("f32:3=ones", rng)[0], argument("u8:2x2=empty", rng)[1]
    (np.int32(5), array([1., 1., 1.], dtype=float32), True)
    """
    if word.endswith(".npy"):
        return _loaded(word), False
    head, _, value = word.partition("=")
    name, is_array, extents = head.partition(":")
    if name not in TYPES:
        _fail(word, f"no type {name!r}{hint(name, TYPES)}; there are {' '.join(TYPES)}")
    element = TYPES[name].numpy
    if not is_array:
        return _number(word, name, value), False
    parts = extents.split("x")
    if not all(p.isascii() and p.isdigit() for p in parts):
        _fail(word, f"{extents!r} is no shape, as 64x64")
    shape = tuple(map(int, parts))
    if int(np.prod(shape, dtype=object)) > _LARGEST:
        _fail(word, "more than 4 GiB")
    fill = value or "random"
    if fill not in _FILLS:
        _fail(word, f"no filling {fill!r}{hint(fill, _FILLS)}; there are {' '.join(_FILLS)}")
    return _filled(shape, element, fill, rng), fill == "empty"


def _filled(shape: tuple[int, ...], element: Any, fill: str, rng: np.random.Generator) -> Any:
    if fill == "random":
        if np.dtype(element).kind in "iu":
            return rng.integers(0, 100, shape).astype(element)
        return rng.standard_normal(shape).astype(element)
    if fill == "range":
        return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(element)
    return np.full(shape, 1 if fill == "ones" else 0).astype(element)


def _number(word: str, name: str, value: str) -> Any:
    element = TYPES[name]
    try:
        number = float(value) if element.is_float else int(value, 0)
        return np.dtype(element.numpy).type(number)
    except (ValueError, OverflowError):
        _fail(word, f"{value!r} is no {name}")


def _loaded(word: str) -> Any:
    try:
        return np.ascontiguousarray(np.load(word, allow_pickle=False))
    except (OSError, ValueError) as problem:
        _fail(word, f"cannot be read: {str(problem).splitlines()[0]}")


def _save(folder: Path, args: Sequence[Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for k, value in enumerate(args):
            if isinstance(value, np.ndarray):
                np.save(folder / f"arg{k}.npy", value, allow_pickle=False)
    except OSError as problem:
        raise ArgumentError(
            f"emulate: cannot write to {str(folder)!r}: {problem.strerror or problem}"
        ) from None


def _fail(word: str, why: str) -> Any:
    raise ArgumentError(
        f"emulate: --arg {word!r:.60}: {why}",
        details="  try  --arg f32:1024, --arg i32=5 or --arg data.npy",
    )
