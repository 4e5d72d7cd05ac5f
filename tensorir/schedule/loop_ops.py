"""Primitives on one loop, or on loops that become one: split, fuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tensorir.ir.affine import ZERO, Fact, Lin, floordiv, floormod
from tensorir.ir.expr import Axis
from tensorir.ir.statement import Array
from tensorir.poly import legality, ranges, tree
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.tree import Loop, Tree
from tensorir.schedule import resolve
from tensorir.schedule.explain import accepted, fix, refuse
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.errors import UnsupportedError
from tensorir.support.names import hint

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = [
    "follow",
    "fuse",
    "fuse_loops",
    "require_exact",
    "require_tail",
    "split",
    "split_loop",
    "substitute",
]

TAILS = ("auto", "cut", "guard", "exact")


# -- on programs, for primitives that are made of these


def substitute(
    program: Program,
    axis: Axis,
    new: tuple[Axis, ...],
    value: Lin,
    facts: tuple[Fact, ...],
    names: Iterable[str],
) -> dict[str, Placement]:
    """The placements where `axis == value` is retired in favour of `new` in statements `names`."""
    placements = dict(program.placements)
    for n in names:
        placements[n] = placements[n].replace_axis(axis, new, value, facts)
    return placements


def follow(
    buffers: Mapping[Array, Buffer], axis: Axis, new: tuple[Axis, ...]
) -> Mapping[Array, Buffer]:
    """Buffers kept inside the loop over `axis` are kept inside those over `new`."""
    if not any(x is axis for b in buffers.values() for x in (*b.outside, *b.turns)):
        return buffers
    out = {}
    for array, b in buffers.items():
        outside, turns = (
            tuple(dict.fromkeys(y for x in axes for y in (new if x is axis else (x,))))
            for axes in (b.outside, b.turns)
        )
        out[array] = replace(b, outside=outside, turns=turns)
    return out


def start_of(axis: Axis) -> Lin:
    """Where its blocks begin: a declared constant lower bound, else 0."""
    return axis.lower if axis.lower is not None and axis.lower.is_const else ZERO


def split_loop(
    program: Program,
    axis: Axis,
    factor: int,
    names: tuple[str, str],
    *,
    tail: str = "auto",
    number: int = 0,
    base: Lin | None = None,
) -> tuple[Program, Axis, Axis]:
    """The loop over `axis` as blocks of `factor`: the program, and the outer and inner axes.

    `base` is where block 0 begins (affine in axes outside it); a parallel or bound loop stays
    so on the outer loop, a vector loop on the inner, an unrolled one on both.
    """
    loop = tree.find(program.tree, axis)
    assert loop is not None, axis.name
    outer, inner = (Axis(n, reduce=axis.reduce) for n in names)
    start = start_of(axis) if base is None else base
    value = Lin({outer: factor, inner: 1}) + start
    facts: tuple[Fact, ...] = (
        ("eq", Lin({axis: 1}) - value),
        ("ge", Lin({inner: 1})),
        ("ge", Lin({inner: -1}, factor - 1)),
    )
    under = tree.stmts(loop)
    placements = substitute(program, axis, (outer, inner), value, facts, under)

    def change(x: Loop) -> Tree:
        serial = replace(
            x, axis=inner, kind="serial", width=None, bind=None, intrinsic=None, step=number
        )
        point, block = (
            replace(serial, like=None),
            replace(serial, axis=outer, tail="auto", cut=None),
        )
        if x.kind in ("parallel", "bind"):
            block = replace(block, kind=x.kind, bind=x.bind)
        elif x.kind == "vectorize":
            lanes = 1 << (factor - 1).bit_length()
            width = min(x.width or lanes, lanes)
            point = replace(point, kind="vectorize", width=width, bind=x.bind)
        elif x.kind == "unroll":
            point, block = replace(point, kind="unroll"), replace(block, kind="unroll")
        shown = "auto" if tail == "exact" else tail
        return replace(block, body=point, tail=shown, cut=(inner, factor))

    changed = recut(tree.rewrite(program.tree, axis, change), axis, outer)
    buffers = follow(program.buffers, axis, (outer, inner))
    return program.change(tree=changed, placements=placements, buffers=buffers), outer, inner


def recut(t: Tree, gone: Axis, by: Axis) -> Tree:
    """The tree in which what was cut at the loop over `gone` is cut at the one over `by`.

    What was a copy of that loop is one of this.
    """

    def change(x: Loop) -> Loop:
        cut = (by, x.cut[1]) if x.cut is not None and x.cut[0] is gone else x.cut
        return replace(x, cut=cut, like=by if x.like is gone else x.like)

    for x in tree.loops(t):
        if x.like is gone or (x.cut is not None and x.cut[0] is gone):
            t = tree.rewrite(t, x.axis, change)
    return t


def fuse_loops(
    program: Program,
    outer: Axis,
    inner: Axis,
    first: tuple[int, int],
    extent: int,
    name: str,
    number: int,
) -> tuple[Program, Axis]:
    """Two nested loops as one; `first` are their lowest values, `extent` that of the inner."""
    loop = tree.find(program.tree, outer)
    assert loop is not None and isinstance(loop.body, Loop) and loop.body.axis is inner
    fused = Axis(name, reduce=outer.reduce or inner.reduce)
    flat = Lin({fused: 1})
    facts: tuple[Fact, ...] = (
        ("eq", flat - (Lin({outer: extent, inner: 1}) - first[0] * extent - first[1])),
        ("ge", Lin({inner: 1}) - first[1]),
        ("ge", Lin({inner: -1}, extent - 1) + first[1]),
    )
    placements = dict(program.placements)
    for n in tree.stmts(loop):
        p = placements[n].replace_axis(outer, (fused,), floordiv(flat, extent) + first[0], facts)
        placements[n] = p.replace_axis(inner, (), floormod(flat, extent) + first[1], ())

    def change(x: Loop) -> Tree:
        assert isinstance(x.body, Loop)
        return replace(x, axis=fused, body=x.body.body, tail="auto", cut=None, step=number)

    changed = recut(tree.rewrite(program.tree, outer, change), outer, fused)
    changed = recut(changed, inner, fused)
    buffers = follow(follow(program.buffers, outer, (fused,)), inner, (fused,))
    return program.change(tree=changed, placements=placements, buffers=buffers), fused


# -- primitives


@primitive
def split(
    s: Schedule,
    axis: str | Axis,
    factor: int | None = None,
    *,
    parts: int | None = None,
    into: tuple[str, ...] | None = None,
    tail: str = "auto",
) -> Draft:
    """One loop to two: blocks outside, the points of a block inside. Never changes the order.

    Needs a positive constant. Others call it `split`, `strip-mining` (Halide, TVM, loopy; Halide's
    factor, too, is the inner extent).

    Parameters
    ----------
    axis : str or Axis
        The loop to split.
    factor : int
        The inner extent. Give this or `parts`.
    parts : int
        The outer extent; the loop's extent must then be a constant.
    into : tuple of str
        Names of the outer and the inner loop; by default `io` and `ii` for `i`.
    tail : {"auto", "cut", "guard", "exact"}
        What happens where the extent is no multiple of the factor. `auto`: marked loops keep
        their extent under guards or masks, and the smallest guarded nest gets a second, unguarded
        version. `cut`: the partial block becomes a loop of its own. `guard`: guards, never a
        second version. `exact`: refused unless it is proved to be a multiple.

    Raises
    ------
    ScheduleError
        No such axis, a factor that is not positive, a name in use, `exact` that does not divide.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((10,), name="A")
    >>> B = tir.compute((10,), lambda i: A[i] + 1.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..10
      B[i] = A[i] + 1.0
    >>> print(s.split("i", 4, into=("io", "ii")).loops())
    for io in 0..3
      for ii in 0..min(4, 10 - 4*io)
        B[4*io + ii] = A[4*io + ii] + 1.0
    """
    loop = resolve.axis(s, axis, primitive="split")
    if (factor is None) == (parts is None):
        resolve.fail("split: give either factor=, the inner extent, or parts=, the outer extent")
    require_tail(tail, "split")
    if factor is not None:
        size = resolve.positive(factor, "factor", primitive="split")
    else:
        size = _from_parts(s, loop, resolve.positive(parts, "parts", primitive="split"))
    name = loop.axis.name
    names = resolve.new_names(s, into, (f"{name}o", f"{name}i"), primitive="split", gone=(name,))
    if tail == "exact":
        require_exact(s, loop, size, "split")
    new, _, _ = split_loop(
        s.program, loop.axis, size, (names[0], names[1]), tail=tail, number=s.next_number
    )
    return Draft(new)


def _from_parts(s: Schedule, loop: Loop, parts: int) -> int:
    found = ranges.constant_range(s.program, loop.axis)
    name = loop.axis.name
    if found is None:
        resolve.fail(
            f"split: parts={parts} needs a constant extent, and that of {name!r} is not",
            why="it depends on a symbolic size; give factor=, the inner extent.",
        )
    extent = found[1] + 1 - start_of(loop.axis).const
    return max(1, -(-extent // parts))


def require_tail(tail: object, primitive: str) -> None:
    """Refuse what is not the name of a tail."""
    if not isinstance(tail, str) or tail not in TAILS:
        wanted = ", ".join(repr(t) for t in TAILS)
        given = hint(tail, TAILS) if isinstance(tail, str) else ""
        resolve.fail(f"{primitive}: tail is one of {wanted}, not {tail!r:.60}{given}")


def require_exact(s: Schedule, loop: Loop, factor: int, primitive: str) -> None:
    """Refuse a loop whose extent is not proved to be a multiple of `factor`."""
    name = loop.axis.name
    missing = ranges.incomplete_block(s.program, loop.axis, factor, start_of(loop.axis))
    if missing is None:
        return
    at = "".join(f"{n} = {v}, " for n, v in missing.sizes.items())
    resolve.fail(
        f'{primitive}: tail="exact", but {name!r} is not always a multiple of {factor}: {at}block '
        f"{missing.block} holds {missing.points} of {factor} points",
        why="an exact split has no partial block; the others guard, mask or cut it.",
    )


@primitive
def fuse(s: Schedule, *axes: str | Axis, into: str | None = None) -> Draft:
    """Nested loops to one that runs over all their points in the same order.

    Needs loops directly inside one another, with extents that do not depend on each other, the
    inner ones constant, and no buffer of an outer one that lasts over an inner one. Others call it
    `fuse` (Halide, TVM), `coalesce`, `collapse` (OpenMP).

    Parameters
    ----------
    *axes : str or Axis
        At least two loops, outer to inner.
    into : str
        The name of the new loop; by default theirs joined.

    Raises
    ------
    ScheduleError
        They are not directly nested, are marked differently, or one range depends on another.
    UnsupportedError
        An inner extent is a symbolic size.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((6, 8), name="A")
    >>> B = tir.compute((6, 8), lambda i, j: A[i, j] + 1.0, name="B")
    >>> s = tir.schedule(B)
    >>> print(s.loops())
    for i in 0..6
      for j in 0..8
        B[i, j] = A[i, j] + 1.0
    >>> print(s.fuse("i", "j", into="f").loops())
    for f in 0..48
      B[f//8, f%8] = A[f//8, f%8] + 1.0
    """
    if len(axes) < 2:
        resolve.fail(f"fuse: at least two axes are needed, not {len(axes)}")
    loops = [resolve.axis(s, a, primitive="fuse") for a in axes]
    _require_nested(s, loops)
    default = "".join(x.axis.name for x in loops)
    default = default if default.isidentifier() else loops[0].axis.name + "_fused"
    gone = tuple(x.axis.name for x in loops)
    name = resolve.new_names(s, into, (default,), primitive="fuse", gone=gone)[0]
    _require_one_kind(s, loops)
    spans = [_span(s, loops, k) for k in range(len(loops))]
    program, inner, low = s.program, loops[-1].axis, spans[-1][0]
    extent = spans[-1][1]
    for x, (first, size) in zip(loops[-2::-1], spans[-2::-1], strict=True):
        assert extent is not None
        program, inner = fuse_loops(
            program, x.axis, inner, (first, low), extent, name, s.next_number
        )
        low, extent = 0, None if size is None else size * extent
    _require_kept(s, program, loops)
    return Draft(program)


def _require_kept(s: Schedule, new: Program, loops: list[Loop]) -> None:
    """Refuse where a buffer that lives for an iteration of an outer loop hands something from one
    iteration of an inner one to the next: it would live for one iteration of both."""
    fused = {x.axis for x in loops}
    if not any(0 < len(fused & set(b.outside)) < len(fused) for b in s.program.buffers.values()):
        return
    violation = legality.turned(s.program, new, tree.stmts(loops[0]))
    if violation is not None:
        array, inner = violation.array.name, loops[-1].axis.name
        refuse(
            s,
            "fuse",
            None,
            violation,
            new=new,
            headline=f"fuse: {array}, kept for one iteration of {loops[0].axis.name!r}, hands "
            f"values from one iteration of {inner!r} to another",
            why="in one loop it would be kept for a single iteration of both.",
        )


def _span(s: Schedule, loops: list[Loop], k: int) -> tuple[int, int | None]:
    """First value and extent of one loop; the extent of the outermost may be unknown."""
    x = loops[k]
    found = ranges.constant_range(s.program, x.axis)
    if k == 0:
        return (found[0], None) if found else (start_of(x.axis).const, None)
    other = ranges.depends(s.program, x.axis, [y.axis for y in loops[:k]])
    if other is not None:
        resolve.fail(
            f"fuse: the range of {x.axis.name!r} depends on {other.name!r}",
            why="only loops whose extents do not depend on each other become one.",
        )
    if found is None:
        resolve.fail(
            f"fuse: the extent of the inner loop {x.axis.name!r} is symbolic; a flat loop over "
            "symbolic extents is not supported",
            why="only constant inner extents make affine indices; split the loop and fuse blocks.",
            cls=UnsupportedError,
        )
    return found[0], max(1, found[1] - found[0] + 1)


def _require_nested(s: Schedule, loops: list[Loop]) -> None:
    for out, inn in pairwise(loops):
        if out.body is inn:
            continue
        a, b = out.axis.name, inn.axis.name
        if inn is out:
            resolve.fail(f"fuse: {a!r} is given twice")
        if tree.find(out.body, inn.axis) is None:
            if tree.find(inn.body, out.axis) is not None:
                resolve.fail(f"fuse: {a!r} is inside {b!r}; name the outer loop first")
            resolve.fail(f"fuse: {a!r} and {b!r} are not in one nest")
        if isinstance(out.body, Loop):
            resolve.fail(f"fuse: {out.body.axis.name!r} is between {a!r} and {b!r}")
        beside = [n for n in tree.stmts(out) if n not in tree.stmts(inn)]
        stage = s.program.stmt(beside[0]).stage
        apart = fix(
            "gives the init loops of its own",
            ("decompose_reduction", (stage, a), {}),
            ("fuse", tuple(x.axis.name for x in loops), {}),
        )
        resolve.fail(
            f"fuse: {beside[0]} runs in {a!r} beside {b!r}; they are not perfectly nested",
            tries=[(f.code, f.effect) for f in accepted(s, [apart])],
        )


def _require_one_kind(s: Schedule, loops: list[Loop]) -> None:
    first = loops[0]
    for x in loops[1:]:
        if x.kind != first.kind or x.kind in ("vectorize", "bind"):
            marked = x if x.kind != "serial" else first
            resolve.fail(
                f"fuse: {marked.axis.name!r} is marked {marked.kind}; fuse first, then mark"
            )
