"""The part of `tensorir demo` for GPUs: a product on blocks and threads, emulated, then broken."""

from __future__ import annotations

import re
import textwrap
from typing import Any, TextIO

import numpy as np

import tensorir as tir
from tensorir.emulator.ptx import EmulationError
from tensorir.emulator.ptx import run as emulate
from tensorir.inspect.text import nest
from tensorir.runtime import cuda_device
from tensorir.schedule.schedule import Schedule

__all__ = ["demo", "staged", "without_barrier"]

SIZE, TILE = 64, 16
_HEAD = 28
_WIDTH = 96
_BARRIER = re.compile(r"^\s*bar\.sync[^;]*;\n", re.MULTILINE)


def staged(s: Schedule, tile: int = TILE) -> Schedule:
    """A product by square tiles in shared memory, a thread for each element of C."""
    s = s.tile("i", "j", tile, tile, into=("by", "bx", "ty", "tx"))
    s = s.split("k", tile, into=("ko", "ki")).reorder("by", "bx", "ko", "ty", "tx", "ki")
    s = s.cache_write("C", "local", at="bx", name="acc")
    s = s.cache_read("A", "shared", at="ko", name="As")
    s = s.cache_read("B", "shared", at="ko", name="Bs")
    s = s.bind("by", "blockIdx.y").bind("bx", "blockIdx.x")
    for axis in ("ty", "As.i", "Bs.k", "acc.store.i"):
        s = s.bind(axis, "threadIdx.y")
    for axis in ("tx", "As.k", "Bs.j", "acc.store.j"):
        s = s.bind(axis, "threadIdx.x")
    return s


def demo(out: TextIO, first: Schedule) -> None:
    """Bind a product to blocks and threads, compile, emulate, check; then take a barrier out."""
    s = staged(first)
    out.write(
        f"\nThe same product for a GPU, {SIZE} x {SIZE}: tiles of {TILE} x {TILE} in shared\n"
    )
    out.write("memory, a thread for each element of a tile.\n\n")
    for step in s.trace.steps:
        line = f"s = s.{step.text}"
        out.write(
            textwrap.fill(line, _WIDTH, initial_indent="    ", subsequent_indent=12 * " ") + "\n"
        )
    out.write("\n" + textwrap.indent(nest(s), "    ") + "\n")
    kernel: Any = tir.build(s, target="emulator:sm_90")
    (launch,) = kernel.launches
    out.write(
        f"\nBarriers were placed where the threads of a block meet, {len(launch.barriers)}:\n\n"
    )
    for reason in launch.barriers:
        out.write(
            textwrap.fill(reason, _WIDTH, initial_indent="  - ", subsequent_indent="    ") + "\n"
        )
    lines = [x.expandtabs(8) for x in kernel.ptx.splitlines() if x.strip() and x[:2] != "//"]
    out.write(f"\nIts PTX, {len(lines)} lines, begins:\n\n")
    out.write("\n".join(f"    {x}".rstrip() for x in lines[:_HEAD]) + "\n    ...\n")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIZE, SIZE), np.float32) for _ in range(2))
    told = kernel.check(a, b, against=lambda a, b: a @ b)
    out.write("\nRun in the emulator, warps in an order drawn from a seed; no race, no access\n")
    out.write(f"outside an array:\n{told}.\n")
    out.write("What it counted, an instruction that touches memory on each line:\n\n")
    out.write(textwrap.indent(str(kernel.reports[0]), "    ") + "\n")
    out.write(f"\n{_broken(kernel.ptx, launch, a, b)}\n")
    why = cuda_device.absence()
    where = f"It was not run on a GPU: {why}." if why else _on_device(first, a, b)
    out.write(f"\n{where}\n")


def without_barrier(ptx: str, which: int) -> tuple[str, int]:
    """The text without one of its barriers, and the line at which that was."""
    found = list(_BARRIER.finditer(ptx))[which]
    return ptx[: found.start()] + ptx[found.end() :], ptx.count("\n", 0, found.start()) + 1


def _broken(ptx: str, launch: Any, a: Any, b: Any) -> str:
    text, line = without_barrier(ptx, 0)
    blocks = SIZE // TILE
    args = [a, b, np.zeros((SIZE, SIZE), np.float32)]
    head = f"With the barrier of line {line} taken out of the text by hand, the emulator says:\n\n"
    try:
        emulate(
            text, launch.name, (blocks, blocks), launch.threads, args, shared=launch.shared_bytes
        )
    except EmulationError as error:
        finding = error.finding
        kind = finding.kind if finding is not None else "fault"
        said = textwrap.fill(
            f"{kind}: {error}", _WIDTH, initial_indent="    ", subsequent_indent="      "
        )
        return head + said
    raise tir.KernelError("the emulator found nothing wrong without a barrier")


def _on_device(first: Schedule, a: Any, b: Any) -> str:
    device = cuda_device.device(0)
    kernel = tir.build(staged(first), target="cuda:sm_80")
    told = kernel.check(a, b, against=lambda a, b: a @ b)
    return f"Run on {device.name}: {told};\n{kernel.time(a, b)}."
