"""Attention: a thread for each query, keys in tiles, softmax in one pass, all in registers.

FlashAttention's loops (Dao and others, 2022) without tensor cores: every thread has its query, its
maximum, sum and result; keys and values are the same for all threads of a block, so that a load
serves all of a warp.
"""

from __future__ import annotations

from schedules.cpu import structure
from schedules.cpu.attention import Stages, stages_of
from schedules.cuda import steps
from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import cuda
from tensorir.ir.target import Target
from tensorir.poly import tree
from tensorir.schedule.resolve import free_names, reference
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

DEEP = 32  # elements of a head up to which loops are written out, and all is in registers


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The parameters of :func:`attention`: queries of a block, and keys of a tile."""
    del target, itemsize
    return (Param("queries", (32, 64, 128), 64), Param("keys", (2, 4, 8, 16), 8))


def attention(s: Schedule, target: Target | None = None, **given: int) -> Schedule:
    """Schedule `softmax(Q K^T) V` as :func:`tensorir.ops.attention` declares it.

    Parameters
    ----------
    s
        The schedule of the one attention, as declared.
    target
        The GPU; the schedule is the same for all of them.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is not such an attention.

    Examples
    --------
    >>> import tensorir as tir
    >>> from tensorir import ops
    >>> q, k, v = (tir.placeholder((1, 8, 100, 64), name=n) for n in "qkv")
    >>> s = attention(tir.schedule(ops.attention(q, k, v, causal=True)))
    >>> next(step.text for step in s.trace.steps if step.primitive == "online")
    'online("jo", ("attention_max", "attention_sum", "attention"))'
    """
    a = _fits(s)
    if a is None:
        raise ArgumentError(
            "attention: expected scores, their max, the powers of the difference, their sum, and "
            "the sum of powers times values, as tensorir.ops.attention declares them"
        )
    where = cuda.target("cuda") if target is None else target
    p = resolve_params(params(where), given)
    s, io, ii, jo = _one_pass(s, a, p["queries"], p["keys"])
    lead = _loops(s, a.result.name)[: a.lead]
    s = steps.blocks(s.reorder(io, *lead) if lead else s, [io, *lead]).bind(ii, "threadIdx.x")
    depth = structure.extent(a.scores.iters[-1])
    if depth is None or depth > DEEP:
        return s
    thread = next(x for x in tree.loops(s.program.tree) if x.axis.name == ii)
    own = [reference(s.program, x.axis) for x in tree.loops(thread.body) if x.axis.name != jo]
    for name in own:
        s = structure.attempt(s, "unroll", name)
    return s


def _one_pass(s: Schedule, a: Stages, queries: int, keys: int) -> tuple[Schedule, str, str, str]:
    """All stages of a query in its thread, and in one loop over tiles of keys."""
    io, ii, jo, ji = free_names(s, "io", "ii", "jo", "ji")
    i, c, j = _loops(s, a.result.name)[-3:]
    s = s.split(i, queries, into=(io, ii))
    for x in (a.total, a.powers, a.top, a.scores):
        s = s.compute_at(x.stage, ii)
    s = s.split(j, keys, into=(jo, ji)).reorder(jo, c, ji)
    for x in (a.top, a.total):
        j = _loops(s, x.name)[-1]
        s = s.split(j, keys, into=free_names(s, f"{x.stage}_jo", f"{x.stage}_ji"))
    s = s.online(jo, (a.top.stage, a.total.stage, a.result.stage))
    s = s.compute_at(a.scores.stage, jo)
    s = s.cache_write(a.result.writes[0].array.name, "local", at=ii)
    for array, buffer in s.program.buffers.items():
        if buffer.outside and buffer.scope != "local":
            s = s.set_scope(array.name, "local")
    return s, io, ii, jo


def _loops(s: Schedule, statement: str) -> list[str]:
    return [reference(s.program, x) for x in tree.axes_of(s.program.tree, statement)]


def _fits(s: Schedule) -> Stages | None:
    a = stages_of(s)
    if a is None or a.lead > 2:
        return None
    lead = a.powers.iters[: a.lead]
    return a if all((structure.extent(x) or 1 << 30) <= steps.MOST_BLOCKS for x in lead) else None


def _shallow(s: Schedule) -> bool:
    """Whether a thread can keep a row of its result in registers."""
    a = _fits(s)
    depth = structure.extent(a.scores.iters[-1]) if a is not None else None
    return depth is not None and depth <= DEEP


@register("attention", _shallow, kind="cuda")
def _attention_for(s: Schedule, target: Target) -> Schedule:
    return attention(s, target)
