"""Primitives that say how a loop runs: unroll, vectorize, parallel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.expr import Axis
from tensorir.ir.stmt import LoopKind
from tensorir.poly import legality, ranges, tree
from tensorir.poly.model import Program
from tensorir.poly.tree import Loop, Seq, Tree
from tensorir.schedule import resolve
from tensorir.schedule.explain import Fix, accepted, fix, refuse
from tensorir.schedule.loop_ops import split_loop, start_of
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["parallel", "twins", "unroll", "vectorize"]

_WORDS: dict[LoopKind, str] = {
    "vectorize": "a vector loop",
    "parallel": "parallel",
    "unroll": "unrolled",
    "bind": "bound",
}
MOST_COPIES = 65_536
VECTOR_BYTES = 64
MOST_VECTORS = 16
"""A loop of constant extent becomes whole vectors up to that many of them."""


def mark(
    program: Program,
    axis: Axis,
    kind: LoopKind,
    width: int | None = None,
    *,
    index: str | None = None,
) -> Program:
    """The loop over `axis` with another kind, and where it is bound, its index."""
    changed = tree.rewrite(
        program.tree, axis, lambda x: replace(x, kind=kind, width=width, bind=index)
    )
    return program.change(tree=changed)


def twins(program: Program, loop: Loop) -> list[Loop]:
    """The copies of a loop that the init and the finish of its reductions got, and those of a stage
    that was cut into cases: the first iteration of sliding storage, an edge.

    They are those named after it that were made while it was there.
    """
    names = tree.stmts(loop)
    stage = program.stmt(names[-1]).stage
    own_name = loop.axis.name.removeprefix(f"{stage}.")
    parts = [f"{stage}{suffix}.{own_name}" for suffix in (".warm", ".edge")]
    staged = {program.stmt(n).stage for n in names if program.stmt(n).role == "update"}
    found = []
    for x in tree.loops(program.tree):
        if x.step < loop.step or "." not in x.axis.name:
            continue
        for n in tree.stmts(x):
            stmt = program.stmt(n)
            own = stmt.role in ("init", "finish") and stmt.stage in staged and n not in names
            named = x.axis.name.rstrip("_") in _own_names(n, loop.axis.name)
            part = n not in names and stmt.stage == stage and x.axis.name.rstrip("_") in parts
            if ((own and named) or part) and x not in found:
                found.append(x)
    return found


def _own_names(stmt: str, axis: str) -> tuple[str, ...]:
    """What a statement's own copy of a loop is called, in a piece of a cut loop too."""
    whole, _, piece = stmt.rpartition(".")
    names = (f"{stmt}.{axis}",)
    return (*names, f"{whole}.{axis}") if axis.endswith(f".{piece}") else names


@primitive
def unroll(s: Schedule, axis: str | Axis, factor: int | None = None) -> Draft:
    """The body of a loop once for each of its points, one after the other.

    Needs a constant extent, or a factor; at most 65,536 copies in all. In a partial block each
    copy is guarded. Applies to the init's own copy of the loop too. Others call it `unroll`
    (Halide, TVM).

    Parameters
    ----------
    axis : str or Axis
        The loop.
    factor : int
        Unroll blocks of that many points: the loop over blocks keeps the name, the points are
        `k.u`.

    Raises
    ------
    ScheduleError
        The extent is not constant and no factor is given; too many copies; marked already.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8,), name="A")
    >>> B = tir.compute((8,), lambda i: A[i] * 2.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..8
      B[i] = A[i] * 2.0
    >>> print(s.unroll("i", 4).loops())
    for i in 0..2
      for i.u in 0..4  # unroll
        B[4*i + i.u] = A[4*i + i.u] * 2.0
    """
    loop = resolve.axis(s, axis, primitive="unroll")
    program = s.program
    size = None if factor is None else resolve.positive(factor, "factor", primitive="unroll")
    for x in with_twins(s, loop):
        require_unmarked(s, x, "unroll")
        found = ranges.constant_range(program, x.axis)
        if size is None and ranges.constant_extent(program, x.axis) is None:
            name = resolve.reference(program, x.axis)
            blocks = fix("unrolls blocks of 4", ("unroll", (name, 4), {}))
            resolve.fail(
                f"unroll: the extent of {x.axis.name!r} is not a constant",
                why="only a constant number of copies can be written out.",
                tries=[(f.code, f.effect) for f in accepted(s, [blocks])],
            )
        if size is None or found == (0, size - 1):
            program = mark(program, x.axis, "unroll")
        else:
            program, inner = _blocks(s, program, x, size, "u")
            program = mark(program, inner, "unroll")
        _require_few(program, x.axis.name)
    return Draft(program, notes=also_marked(s, loop), idle=_idle(s, loop, size))


def _require_few(program: Program, name: str) -> None:
    for x in tree.loops(program.tree):
        if x.kind == "unroll":
            total = _copies(program, x)
            if total > MOST_COPIES:
                resolve.fail(
                    f"unroll: {name!r} would make {total:,} copies; the limit is {MOST_COPIES:,}",
                    why="each copy is code; unroll by a factor, or fewer loops.",
                )


def _copies(program: Program, t: Tree) -> int:
    if isinstance(t, Seq):
        return sum(_copies(program, x) for x in t.items)
    if not isinstance(t, Loop):
        return 1
    inside = _copies(program, t.body)
    if t.kind != "unroll":
        return inside
    return inside * max(1, ranges.constant_extent(program, t.axis) or 1)


@primitive
def vectorize(s: Schedule, axis: str | Axis, width: int | None = None) -> Draft:
    """The points of a loop in the lanes of vectors, in lock step.

    Needs a loop that carries nothing, but a cell that a statement reads before a later lane of
    the same statement writes it. Where the extent is not the width it splits first: the loop over
    blocks keeps the name, the lanes are `j.v`; the lanes of a partial block are masked. Applies
    to the init's own copy of the loop too. Others call it `vectorize` (Halide, TVM), SIMD.

    Parameters
    ----------
    axis : str or Axis
        The loop.
    width : int
        How many lanes. By default the whole loop where its extent is a constant of at most 16
        vectors of 64 bytes, else one vector of 64 bytes of the widest element.

    Raises
    ------
    IllegalSchedule
        Two lanes would race; carries both.
    ScheduleError
        The loop is marked already, or there is a vector loop around or inside it.

    Examples
    --------
    >>> import tensorir as tir
    >>> n = tir.var("n")
    >>> A = tir.placeholder((n,), name="A")
    >>> B = tir.compute((n,), lambda i: A[i] * 2.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..n
      B[i] = A[i] * 2.0
    >>> print(s.vectorize("i", 8).loops())
    for i in 0..(n + 7)//8
      for i.v in 0..min(8, n - 8*i)  # vectorize 8
        B[8*i + i.v] = A[8*i + i.v] * 2.0
    """
    loop = resolve.axis(s, axis, primitive="vectorize")
    size = None if width is None else resolve.positive(width, "width", primitive="vectorize")
    program = s.program
    for x in with_twins(s, loop):
        require_unmarked(s, x, "vectorize")
        _require_outside(s, x, "vectorize")
        changed, lanes = _in_lanes(s, program, x, size)
        violation = legality.carried(changed, lanes, lanes=True)
        if violation is None:
            program = changed
        elif x is loop:
            refuse(
                s,
                "vectorize",
                None,
                violation,
                new=changed,
                asked=[(x, "asked to be vector lanes")],
                marked=tree.find(changed.tree, lanes),
                fixes=_lane_fixes(s, x, size),
            )
    return Draft(program, notes=also_marked(s, loop), idle=_idle(s, loop, size))


def _in_lanes(s: Schedule, program: Program, x: Loop, size: int | None) -> tuple[Program, Axis]:
    """The program with `x` in lanes, split first where the extent is not the width."""
    lanes = _lanes(program, x)
    found = ranges.constant_range(program, x.axis)
    if found is not None and found[0] == 0:
        extent = found[1] + 1
        fits = 0 < extent <= lanes * MOST_VECTORS if size is None else extent == size
        if fits:
            return mark(program, x.axis, "vectorize", _vector(extent, lanes)), x.axis
    want = lanes if size is None else size
    program, inner = _blocks(s, program, x, want, "v")
    return mark(program, inner, "vectorize", _vector(want, lanes)), inner


def _vector(extent: int, lanes: int) -> int:
    """The lanes of one vector for a loop of `extent`: a power of two, at most `lanes`."""
    return min(lanes, 1 << (extent - 1).bit_length())


def _lanes(program: Program, x: Loop) -> int:
    """How many of the widest element that is written under a loop are 64 bytes."""
    widest = max(a.array.dtype.bytes for n in tree.stmts(x) for a in program.stmt(n).writes)
    return max(1, VECTOR_BYTES // widest)


def _lane_fixes(s: Schedule, x: Loop, size: int | None) -> list[Fix]:
    name = resolve.reference(s.program, x.axis)
    width = size or _lanes(s.program, x)
    reduced = fix(
        f"reduces in lanes, combined at the end{rounding(s, x)}",
        ("vector_reduce", (name, width), {}),
    )
    return [reduced, *_others(s, x, "vectorize", "carries nothing")]


@primitive
def parallel(s: Schedule, axis: str | Axis) -> Draft:
    """The points of a loop shared out among worker threads.

    Needs a loop that carries no dependence. Applies to the init's own copy of the loop too.
    Others call it `parallel` (Halide, TVM), `prange` (Numba), `omp parallel for`.

    Parameters
    ----------
    axis : str or Axis
        The loop.

    Raises
    ------
    IllegalSchedule
        Two points would race; carries both.
    ScheduleError
        The loop is marked already, or inside a vector or unrolled loop.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((8, 8), name="A")
    >>> B = tir.compute((8, 8), lambda i, j: A[i, j] * 2.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..8
      for j in 0..8
        B[i, j] = A[i, j] * 2.0
    >>> print(s.parallel("i").loops())
    for i in 0..8  # parallel
      for j in 0..8
        B[i, j] = A[i, j] * 2.0
    """
    loop = resolve.axis(s, axis, primitive="parallel")
    program = s.program
    for x in with_twins(s, loop):
        require_unmarked(s, x, "parallel")
        violation = legality.carried(program, x.axis)
        if violation is None:
            _require_outside(s, x, "parallel")
            program = mark(program, x.axis, "parallel")
        elif x is loop:
            refuse(
                s,
                "parallel",
                None,
                violation,
                asked=[(x, "asked to be parallel")],
                marked=x,
                fixes=_thread_fixes(s, x),
            )
    return Draft(program, notes=also_marked(s, loop), idle=_idle(s, loop, None))


def _thread_fixes(s: Schedule, x: Loop) -> list[Fix]:
    name = resolve.reference(s.program, x.axis)
    partial = fix(
        f"partial results, combined at the end{rounding(s, x)}",
        ("rfactor", (name,), {}),
        ("parallel", (name,), {}),
    )
    stage = s.program.stmt(tree.stmts(x)[-1]).stage
    atomic = fix(
        f"updates one after the other{rounding(s, x)}",
        ("atomic", (stage,), {}),
        ("parallel", (name,), {}),
    )
    return [partial, *_others(s, x, "parallel", "carries nothing"), atomic]


def rounding(s: Schedule, x: Loop) -> str:
    """What regrouping the reductions under a loop does to their results."""
    reducers = [s.program.stmt(n).combiner for n in tree.stmts(x)]
    inexact = any(r is not None and not r.exact for r in reducers)
    return " (changes rounding)" if inexact else ""


def _others(s: Schedule, x: Loop, primitive: str, effect: str) -> list[Fix]:
    """The same for other loops around the statements under `x`; outer ones first for threads."""
    name = tree.stmts(x)[-1]
    axes = [a for a in tree.axes_of(s.program.tree, name) if a is not x.axis]
    if primitive == "vectorize":
        axes = axes[::-1]
    return [fix(effect, (primitive, (resolve.reference(s.program, a),), {})) for a in axes]


# -- for all of them


def with_twins(s: Schedule, loop: Loop) -> Sequence[Loop]:
    """The loop, and the copies of it that are not marked yet."""
    return [loop, *(x for x in twins(s.program, loop) if x.kind == "serial")]


def also_marked(s: Schedule, loop: Loop) -> tuple[str, ...]:
    names = [x.axis.name for x in with_twins(s, loop)[1:]]
    return (f"and {', '.join(names)}",) if names else ()


def _idle(s: Schedule, loop: Loop, size: int | None) -> str:
    """Why a mark on a loop does nothing: it has one point, or its blocks do."""
    if size == 1:
        return "a block of one point is the point itself"
    if ranges.constant_extent(s.program, loop.axis) == 1:
        return f"{loop.axis.name!r} has one point"
    return ""


def _blocks(s: Schedule, program: Program, x: Loop, size: int, letter: str) -> tuple[Program, Axis]:
    """Blocks of `size` points: the loop over them keeps the name, the points add `.letter`."""
    name = x.axis.name
    program, _, inner = split_loop(
        program, x.axis, size, (name, resolve.free_name(s, f"{name}.{letter}")),
        number=s.next_number, base=start_of(x.axis),
    )  # fmt: skip
    return program, inner


def require_unmarked(s: Schedule, x: Loop, primitive: str) -> None:
    if x.kind == "serial":
        return
    now: Schedule = s
    while now.parent is not None:
        before = tree.find(now.parent.program.tree, x.axis)
        if before is None or before.kind == "serial":
            break
        now = now.parent
    step = f", since step {now.step.number}, {now.step.text}" if now.step is not None else ""
    resolve.fail(f"{primitive}: {x.axis.name!r} is {_WORDS[x.kind]} already{step}")


def _require_outside(s: Schedule, x: Loop, primitive: str) -> None:
    """Vector loops do not nest, and threads do not start inside lanes or copies."""
    name = tree.stmts(x)[0]
    for y in tree.loops_of(s.program.tree, name):
        if y.axis is x.axis:
            break
        if y.kind == "vectorize" or (primitive == "parallel" and y.kind in ("unroll", "parallel")):
            outer = f"{y.axis.name!r}, which is {_WORDS[y.kind]}"
            resolve.fail(f"{primitive}: {x.axis.name!r} is inside {outer}", cls=UnsupportedError)
    for y in tree.loops(x.body):
        if y.kind == "parallel" or (primitive == "vectorize" and y.kind == "vectorize"):
            resolve.fail(
                f"{primitive}: {y.axis.name!r} inside {x.axis.name!r} is {_WORDS[y.kind]} already",
                cls=UnsupportedError,
            )
