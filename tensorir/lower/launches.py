"""Loops of each launch of a GPU kernel, by the passes that serve the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Array
from tensorir.ir.stmt import Bound, For, Storage
from tensorir.ir.target import Target
from tensorir.lower import pipeline
from tensorir.lower.boxes import loops
from tensorir.lower.pipeline import Lowered
from tensorir.poly import launches as split
from tensorir.poly.model import Program
from tensorir.support.errors import UnsupportedError

MOST_SHARED = 227 * 1024
_ALIGN = 128


@dataclass(frozen=True, slots=True, eq=False)
class LoweredLaunch:
    """One launch, ready to become code.

    Parameters
    ----------
    lowered
        Its loops; bound ones keep kind "bind", and each runs in the threads or blocks whose
        number lies in its bounds. Statements of role "barrier" are barriers of the block.
    grid
        As in `codegen.source.LaunchSource`.
    threads
        Of a block, x first.
    shared
        Where each array in shared memory begins, in bytes.
    shared_bytes
        Of a block, in all.
    reasons
        What each barrier is for.
    """

    lowered: Lowered
    grid: tuple[tuple[tuple[Bound, ...], ...], ...]
    threads: tuple[int, int, int]
    shared: Mapping[Array, int]
    shared_bytes: int
    reasons: Mapping[str, str]


def lower_launches(
    program: Program, target: Target, arguments: tuple[Array, ...]
) -> tuple[tuple[LoweredLaunch, ...], tuple[Array, ...]]:
    """The launches of a program, and the arrays in global memory that they share.

    Raises
    ------
    UnsupportedError
        A statement in no bound loop; a buffer that does not fit where it is kept.
    """
    if program.specializations:
        raise UnsupportedError("specialize is not there yet for CUDA")
    found, scratch = split.launches(program, asynchronous=target.has("sm_80"))
    out = []
    for launch in found:
        used = launch.program.arrays
        own = tuple(a for a in (*arguments, *scratch) if a in used)
        lowered = pipeline.lower(launch.program, target, arguments=own)
        grid = tuple(tuple(_ranges(lowered, i)) for i in split.BLOCK_INDICES)
        offsets, size = _arena(lowered.storages)
        out.append(LoweredLaunch(lowered, grid, launch.threads, offsets, size, launch.reasons))
    return tuple(out), scratch


def _ranges(lowered: Lowered, index: str) -> Iterator[tuple[Bound, ...]]:
    """The upper bounds over sizes of each loop that is bound to an index of blocks."""
    seen: set[tuple[Bound, ...]] = set()
    for x in loops(lowered.body):
        if not isinstance(x, For) or x.bind != index:
            continue
        upper = tuple(b for b in x.upper if all(isinstance(a, Var) for a in b[1].atoms()))
        if not upper:
            raise UnsupportedError(
                f"the extent of a loop bound to {index} depends on other loops",
                details="  why  a grid is a box; bind loops of a rectangular nest",
            )
        # of a hull the largest bound counts, of a loop the least
        for one in ((b,) for b in upper) if x.hull else (upper,):
            if one not in seen:
                seen.add(one)
                yield one


def _arena(storages: tuple[Storage, ...]) -> tuple[dict[Array, int], int]:
    """Where each shared buffer begins, one after the other."""
    offsets: dict[Array, int] = {}
    at = 0
    for s in storages:
        if s.scope != "shared":
            continue
        count = 1
        for e in s.shape:
            if not e.is_const:
                raise UnsupportedError(
                    f"{s.array.name} in shared memory has no constant size: {_sizes(s.shape)}",
                    details="  try  copying it at a loop further in, where its extent is constant",
                )
            count *= max(e.const, 0)
        if s.swizzle is not None:
            count = -(-count // s.swizzle.span) * s.swizzle.span
        offsets[s.array] = at
        at += -(-count * s.array.dtype.bytes // _ALIGN) * _ALIGN
    if at > MOST_SHARED:
        parts = ", ".join(f"{a.name}" for a in offsets)
        raise UnsupportedError(
            f"{at:,} bytes of shared memory ({parts}); a block has at most {MOST_SHARED:,}"
        )
    return offsets, at


def _sizes(shape: tuple[Lin, ...]) -> str:
    return " by ".join(str(e) for e in shape)


def axes_of(lowered: Lowered) -> dict[Axis, str]:
    """The index that each bound axis stands for."""
    return {x.axis: x.bind for x in loops(lowered.body) if isinstance(x, For) and x.bind}
