"""One kernel, one grid: from text and arrays to results and a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorir.emulator.ptx.findings import Counts, Report
from tensorir.emulator.ptx.flow import flow
from tensorir.emulator.ptx.lanes import WARP
from tensorir.emulator.ptx.launch import Launch, granule_of, parameter_bytes
from tensorir.emulator.ptx.scheduler import Scheduler
from tensorir.emulator.ptx.spaces import BUFFER_BITS, Memory
from tensorir.emulator.ptx.text import Entry, Module, parse
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.names import hint
from tensorir.support.tracebacks import user_api

MOST_LANES = 1 << 15
"""How many lanes run at a time, so that their values stay in a cache of a megabyte."""
MOST_SHARED = 227 * 1024

Size = int | Sequence[int]


@user_api
def run(
    text: str,
    kernel: str | None = None,
    grid: Size = 1,
    block: Size = 1,
    args: Sequence[Any] = (),
    *,
    shared: int = 0,
    checks: bool = True,
    seed: int = 0,
    collect: int = 0,
    unwritten: Sequence[int] = (),
    limit: int | None = None,
) -> Report:
    """Run a kernel of a PTX text.

    Parameters
    ----------
    text
        The module.
    kernel
        The entry; the only one by default.
    grid, block
        Blocks and threads, up to three sizes.
    args
        For each parameter a numpy array (its memory is the buffer that the pointer means, and it is
        changed in place), a number, or the bytes of a structure.
    shared
        Bytes of dynamic shared memory.
    checks
        Without them only bounds and alignment are checked, nothing is counted, and all warps
        advance together.
    seed
        Draws the interleaving.
    collect
        How many faults are noted in the report before the next one is raised. Those after which
        nothing sensible can follow (bounds, barriers) are always raised.
    unwritten
        Positions of arguments whose contents count as never written.
    limit
        After how many instructions of warps a kernel that still runs counts as deadlocked.

    Returns
    -------
    Report
        Findings and counts.

    Raises
    ------
    EmulationError
        The kernel did what a GPU would not forgive.
    UnsupportedError
        The text has an instruction that the emulator does not run, named with its line.
    ArgumentError, ArgumentTypeError
        No such kernel, too many threads or too much shared memory, arguments that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> text = '''
    ... .version 7.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry double_it(.param .u64 a) {
    ...   .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ...   ld.param.u64 %rd1, [a];
    ...   mov.u32 %r1, %tid.x;
    ...   mul.wide.u32 %rd2, %r1, 4;
    ...   add.s64 %rd3, %rd1, %rd2;
    ...   ld.global.b32 %r2, [%rd3];
    ...   add.s32 %r2, %r2, %r2;
    ...   st.global.b32 [%rd3], %r2;
    ...   ret;
    ... }'''
    >>> a = np.arange(64, dtype=np.int32)
    >>> report = run(text, grid=1, block=64, args=[a])
    >>> a[:4].tolist(), report.instructions
    ([0, 2, 4, 6], 16)
    """
    module = parse(text)
    entry = _entry(module, kernel)
    sizes = _sizes(grid, "grid"), _sizes(block, "block")
    threads = sizes[1][0] * sizes[1][1] * sizes[1][2]
    _require_fit(entry, sizes[1], threads, shared, module)
    graph = flow(entry)
    buffers, values = _arguments(entry, args, set(unwritten) if checks else set())
    for v in module.variables:
        if v.space == "global":
            data = np.zeros(max(v.bytes, 1), np.uint8)
            data[: len(v.data)] = np.frombuffer(v.data, np.uint8)
            buffers.append(Memory(v.name, data))
    finest = granule_of(entry)
    for b in buffers:
        b.granule = finest
        if b.written is not None:
            b.written = np.zeros(-(-b.data.size // finest), np.bool_)
    parameters = parameter_bytes(entry, values)
    report = Report(entry.name)
    counts: dict[int, Counts] = {}
    total = sizes[0][0] * sizes[0][1] * sizes[0][2]
    most = max(1, MOST_LANES // (-(-threads // WARP) * WARP))
    with np.errstate(all="ignore"):
        for first in range(0, total, most):
            launch = Launch(
                module, entry, graph, buffers, parameters, sizes[0], sizes[1], first,
                min(most, total - first), shared, report, checks, collect, counts,
            )  # fmt: skip
            scheduler = Scheduler(launch, seed + first, limit)
            scheduler.run()
            limit = scheduler.left
    report.counts = [counts[id(x)] for x in entry.code if id(x) in counts and counts[id(x)].warps]
    return report


def _entry(module: Module, kernel: str | None) -> Entry:
    names = list(module.entries)
    if kernel is None:
        if len(names) != 1:
            listed = ", ".join(names) or "none"
            raise ArgumentError(f"the text has {len(names)} kernels ({listed}); say which")
        return module.entries[names[0]]
    if kernel not in module.entries:
        raise ArgumentError(f"no kernel {kernel!r} in the text{hint(kernel, names)}")
    return module.entries[kernel]


def _sizes(given: Size, what: str) -> tuple[int, int, int]:
    sizes = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(sizes) <= 3 or not all(
        isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 1 for n in sizes
    ):
        raise ArgumentError(f"{what}={given!r}: expected one to three positive integers")
    x, y, z = (*map(int, sizes), 1, 1)[:3]
    return x, y, z


def _require_fit(
    entry: Entry, block: tuple[int, int, int], threads: int, shared: int, module: Module
) -> None:
    if threads > 1024 or block[2] > 64:
        raise ArgumentError(f"a block of {threads} threads; at most 1024 fit, 64 of them along z")
    if entry.required_threads is not None and entry.required_threads != block:
        raise ArgumentError(
            f"{entry.name} was compiled for blocks of {entry.required_threads}, not {block}"
        )
    if entry.most_threads is not None and threads > entry.most_threads:
        raise ArgumentError(
            f"{entry.name} was compiled for at most {entry.most_threads} threads, not {threads}"
        )
    static = sum(v.bytes for v in (*module.variables, *entry.variables) if v.space == "shared")
    if static + shared > MOST_SHARED:
        raise ArgumentError(
            f"{static + shared:,} bytes of shared memory; a block has at most {MOST_SHARED:,}"
        )


def _arguments(
    entry: Entry, args: Sequence[Any], unwritten: set[int]
) -> tuple[list[Memory], list[Any]]:
    buffers: list[Memory] = []
    values: list[Any] = []
    for k, value in enumerate(args):
        if not isinstance(value, np.ndarray):
            values.append(value)
            continue
        if not value.flags.c_contiguous:
            raise ArgumentError(f"argument {k}: the array is not C contiguous; pass a copy")
        if value.size and not value.flags.writeable:
            raise ArgumentError(f"argument {k}: the array is read-only; pass a copy")
        if value.dtype.hasobject:
            raise ArgumentTypeError(f"argument {k}: an array of Python objects")
        flat = value.reshape(-1).view(np.uint8) if value.size else np.zeros(0, np.uint8)
        name = entry.params[k].name if k < len(entry.params) else f"argument {k}"
        buffers.append(Memory(name, flat))
        if k in unwritten:
            buffers[-1].written = np.zeros(1, np.bool_)
        values.append(len(buffers) << BUFFER_BITS)
    return buffers, values
