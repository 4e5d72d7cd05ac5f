"""A correct schedule for anything on a GPU: a thread for each point of the output.

Elementwise stages that are read once are fused into their reader; each other stage is a launch of
its own. Its points are dealt out to threads and blocks; a reduction runs inside its thread.
"""

from __future__ import annotations

from schedules.fusion import inline_elementwise
from tensorir.ir.expr import Axis
from tensorir.ir.target import Target
from tensorir.poly import tree
from tensorir.schedule.resolve import free_names, reference
from tensorir.schedule.schedule import Schedule

THREADS = 128
ROWS, COLUMNS = 4, 32
MOST_BLOCKS = 65_536
PARTIALS = 256  # threads of a reduction that has one result


def default_schedule(s: Schedule, target: Target) -> Schedule:
    """The default schedule of a fresh schedule `s` for a GPU."""
    del target  # what is correct is so on all of them
    s = inline_elementwise(s)
    for stage in s.stages:
        s = _stage(s, stage)
    return s


def _stage(s: Schedule, stage: str) -> Schedule:
    main = s.program.stmt(stage)
    loops = [x.axis for x in tree.loops_of(s.program.tree, main.name)]
    spatial = [a for a in loops if not a.reduce]
    if spatial:
        return _points(s, spatial)
    return _partials(s, stage, loops[-1]) if loops else s


def _points(s: Schedule, spatial: list[Axis]) -> Schedule:
    """Threads over the last two axes, blocks over the same and the first, the others serial."""
    names = [reference(s.program, a) for a in spatial]
    if len(names) == 1:
        b, t = _named(s, spatial[0], "b", "t")
        s = s.split(names[0], THREADS, into=(b, t))
        return s.bind(b, "blockIdx.x").bind(t, "threadIdx.x")
    yb, yt = _named(s, spatial[-2], "b", "t")
    s = s.split(names[-2], ROWS, into=(yb, yt))
    xb, xt = _named(s, spatial[-1], "b", "t")
    s = s.split(names[-1], COLUMNS, into=(xb, xt))
    first = names[:1] if len(names) > 2 and _few(spatial[0]) else []
    s = s.reorder(*first, yb, xb, yt, xt, *names[len(first) : -2])
    if first:
        s = s.bind(first[0], "blockIdx.z")
    # of rows there may be any number, of the other blocks 65,535
    s = s.bind(yb, "blockIdx.x").bind(xb, "blockIdx.y")
    return s.bind(yt, "threadIdx.y").bind(xt, "threadIdx.x")


def _named(s: Schedule, axis: Axis, *ends: str) -> tuple[str, ...]:
    base = axis.name.replace(".", "_")
    return free_names(s, *(f"{base}_{e}" for e in ends))


def _few(a: Axis) -> bool:
    if a.lower is None or a.upper is None:
        return False
    n = a.upper - a.lower
    return n.is_const and n.const < MOST_BLOCKS


def _partials(s: Schedule, stage: str, axis: Axis) -> Schedule:
    """One result: partial ones by threads of a block, then their combination by one thread."""
    name = reference(s.program, axis)
    outer, inner = free_names(s, f"{axis.name}_o", f"{axis.name}_t")
    split = s.split(name, PARTIALS, into=(outer, inner))
    if not split.check("rfactor", inner):
        return s
    s = split.rfactor(inner)
    others = [x.axis for x in tree.loops_of(s.program.tree, f"{stage}_rf")]
    names = [n for n in (reference(s.program, a) for a in others) if n != inner]
    return s.reorder(inner, *names).bind(inner, "threadIdx.x")
