"""Attention: tiles of queries against tiles of keys, softmax in one pass, nothing kept but tiles.

FlashAttention's loops (Dao and others, 2022) on vectors of queries: a lane is a query, so that the
maximum, the sum and the rescaling are one instruction for a vector, K and V are read in place, and
only the queries of a tile and its result are transposed.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis
from tensorir.ir.reducers import FLOAT_SUM, MAX
from tensorir.ir.statement import Access, Array, Statement
from tensorir.ir.target import Target
from tensorir.poly import tree
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

ENOUGH = 8  # iterations that are worth sharing out among threads
FEW = 3  # queries that do not fill lanes: the default schedule, along the keys, is quicker


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The parameters of :func:`attention` for a target.

    A tile has `vectors` vectors of queries and `keys` keys. `kr` keys of the scores, and `cr`
    columns of the result, times the vectors are in registers. Scores and powers of a tile take
    two thirds of the first cache.
    """
    wide = target.vector_registers >= 32
    row = 2 * 2 * target.vector_bytes
    depths = (32, 64, 128, 256, 512)
    fit = [d for d in depths if d * row <= 0.7 * target.l1]
    few = 8 if wide else 4
    return (
        Param("vectors", (1, 2, 4), 2),
        Param("keys", depths, fit[-1] if fit else depths[0]),
        Param("kr", (2, 4, 6, 8), few),
        Param("cr", (2, 4, 6, 8), few),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """The stages of an attention, by their statements; the tensor of queries; masks by both."""

    scores: Statement
    top: Statement
    powers: Statement
    total: Statement
    result: Statement
    query: Array
    masks: tuple[Array, ...]
    finished: bool

    @property
    def lead(self) -> int:
        """How many axes come before the queries: batch, head."""
        return len(self.powers.iters) - 2


@by_hand
def attention(
    s: Schedule,
    target: str | Target | None = None,
    *,
    parallel: bool = True,
    **given: int,
) -> Schedule:
    """Schedule `softmax(Q K^T) V` as :func:`tensorir.ops.attention` declares it.

    Parameters
    ----------
    s
        The schedule of the one attention, as declared.
    target
        The processor; this one by default.
    parallel
        Whether heads (or tiles of queries, where there are few heads) run on all threads.
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
    found = stages_of(s)
    if found is None:
        raise ArgumentError(
            "attention: expected scores, their max, the powers of the difference, their sum, and "
            "the sum of powers times values, as tensorir.ops.attention declares them"
        )
    where = cpu.target("native" if target is None else target)
    dtype = found.powers.writes[0].array.dtype
    p = resolve_params(params(where, dtype.bytes), given)
    lanes = where.lanes(dtype)
    rows, keys = p["vectors"] * lanes, _keys(found, p["keys"])
    s, io, jo = _one_pass(s, found, rows, keys)
    s = _scores(s, found, jo, rows, p["kr"])
    s = _result(s, found, io, rows, p["cr"], lanes)
    s = _softmax(s, found, jo, rows)
    s = _queries(s, found, io, lanes)
    for mask in found.masks:
        s = _mask(s, mask, jo, lanes)
    s = _layouts(s, found)
    if parallel:
        s = _parallel(s, found, io)
    return s


def _axes(s: Schedule, statement: str) -> tuple[Axis, ...]:
    """The loops around a statement, outer to inner."""
    return tree.axes_of(s.program.tree, statement)


# -- steps
def _one_pass(s: Schedule, a: Stages, rows: int, keys: int) -> tuple[Schedule, str, str]:
    """All stages under a tile of queries, and in one loop over tiles of keys."""
    io, ii, jo, ji = free_names(s, "io", "ii", "jo", "ji")
    i, c, j = _axes(s, a.result.name)[a.lead :]
    s = s.split(i, rows, into=(io, ii))
    for stage in (a.total, a.powers, a.top, a.scores):
        s = s.compute_at(stage.stage, io)
    s = s.split(j, keys, into=(jo, ji)).reorder(jo, ii, c, ji)
    for stage in (a.top, a.total):
        i, j = _axes(s, stage.name)[-2:]
        outer, inner = free_names(s, f"{stage.stage}_jo", f"{stage.stage}_ji")
        s = s.split(j, keys, into=(outer, inner)).reorder(outer, inner, i)
    s = s.online(jo, (a.top.stage, a.total.stage, a.result.stage))
    return s.compute_at(a.scores.stage, jo), io, jo


def _scores(s: Schedule, a: Stages, jo: str, rows: int, kr: int) -> Schedule:
    """A tile of scores: a few keys by all queries of the tile in registers."""
    kb, ki = free_names(s, "kb", "ki")
    i, j, r = _axes(s, a.scores.name)[-3:]
    s = s.split(j, kr, into=(kb, ki)).reorder(kb, ki, i).reorder(r, ki, i)
    acc = a.scores.writes[0].array.name
    if a.finished:
        s = s.cache_write(acc, "local", at=kb)
        return s.vectorize(i, width=rows).unroll(ki)
    (tile,) = free_names(s, "scores_tile")
    s = s.cache_write(acc, "local", at=kb, name=tile)
    s = s.vectorize(i, width=rows).unroll(ki)
    return _copied(s, tile, rows)


def _result(s: Schedule, a: Stages, io: str, rows: int, cr: int, lanes: int) -> Schedule:
    """A few columns of the result by all queries in registers; its store is a transpose."""
    ib, il, cb, cl, co, ci = free_names(s, "ib", "il", "cb", "cl", "co", "ci")
    acc = a.result.writes[0].array.name
    s = s.cache_write(acc, "local", at=io)
    i, c = _axes(s, f"{a.result.stage}.finish")[-2:]
    s = s.split(i, lanes, into=(ib, il)).split(c, lanes, into=(cb, cl)).reorder(ib, cb, cl, il)
    s = s.vectorize(il, width=lanes).unroll(cl)
    i, c, j = _axes(s, a.result.name)[-3:]
    s = s.split(c, cr, into=(co, ci)).reorder(co, j, ci, i)
    (tile,) = free_names(s, "tile")
    s = s.cache_write(acc, "local", at=co, name=tile)
    s = s.vectorize(i, width=rows).unroll(ci)
    s = s.vectorize(_axes(s, f"{a.result.stage}.rescale")[-2], width=rows)
    return _copied(s, tile, rows)


def _copied(s: Schedule, tile: str, rows: int) -> Schedule:
    """The load and the store of a tile of registers, queries in lanes."""
    for statement in (f"{tile}.load", f"{tile}.store"):
        if statement in s.program.placements:
            s = s.vectorize(_axes(s, statement)[-2], width=rows)
    return s


def _softmax(s: Schedule, a: Stages, jo: str, rows: int) -> Schedule:
    """Maxima, powers and sums of a tile: a vector of queries after the other, key by key.

    Sums are in registers while a tile is added, and in memory after: the store of the result then
    is one piece of code for all vectors of queries.
    """
    top, total = (x.writes[0].array.name for x in (a.top, a.total))
    old, factor = f"{top}_old", f"{top}_factor"
    (adding,) = free_names(s, "total")
    s = s.cache_write(total, "local", at=jo, name=adding)
    copies = (f"{adding}.load", f"{adding}.store", f"{old}.copy")
    for statement in (a.top.name, a.total.name, *copies, factor, f"{total}.rescale"):
        s = s.vectorize(_axes(s, statement)[-1], width=rows)
    for array in (top, old, factor):
        s = s.set_scope(array, "local")
    i, j = _axes(s, a.powers.name)[-2:]
    return s.reorder(j, i).vectorize(i, width=rows)


def _queries(s: Schedule, a: Stages, io: str, lanes: int) -> Schedule:
    """The queries of a tile transposed, so that lanes are queries."""
    (copy,) = free_names(s, "queries")
    s = s.cache_read(a.query.name, at=io, name=copy)
    return _transposed(s, copy, lanes)


def _mask(s: Schedule, mask: Array, jo: str, lanes: int) -> Schedule:
    """A tile of a mask transposed, like the queries."""
    (copy,) = free_names(s, f"{mask.name}_tile")
    s = s.cache_read(mask.name, at=jo, name=copy)
    return _transposed(s, copy, lanes)


def _transposed(s: Schedule, copy: str, lanes: int) -> Schedule:
    """A copy whose last two dimensions change places: squares that are turned in registers."""
    names = (f"{copy}_{x}" for x in ("ib", "il", "jb", "jl"))
    ib, il, jb, jl = free_names(s, *names)
    i, j = _axes(s, f"{copy}.copy")[-2:]
    s = s.split(i, lanes, into=(ib, il)).split(j, lanes, into=(jb, jl)).reorder(jb, ib, il, jl)
    s = s.vectorize(jl, width=lanes).unroll(il)
    return s.transform_layout(copy, lambda *index: (index[-1], index[-2], *index[:-2]))


def _layouts(s: Schedule, a: Stages) -> Schedule:
    """Queries innermost in every buffer."""
    acc = (a.scores.writes[0].array.name, a.result.writes[0].array.name)
    mine = (a.scores.stage, a.powers.stage, *acc, "tile")
    for array in dict.fromkeys(mine):
        s = s.transform_layout(array, lambda *index: (index[-1], index[-2], *index[:-2]))
    return s


def _parallel(s: Schedule, a: Stages, io: str) -> Schedule:
    """The outermost loop with enough iterations on all threads."""
    around: list[str | Axis] = [*_axes(s, a.result.name)[: a.lead], io]
    extents = [*(_extent(x) for x in a.result.iters[: a.lead]), ENOUGH]
    best = next(k for k, n in enumerate(extents) if n is None or n >= ENOUGH)
    return s.parallel(around[best])


def _extent(a: Axis) -> int | None:
    """The extent of a declared axis where it is constant."""
    if a.lower is None or a.upper is None:
        return None
    n = a.upper - a.lower
    return max(n.const, 0) if n.is_const else None


def _keys(a: Stages, most: int) -> int:
    """The keys of a tile: no more than there are."""
    have = a.powers.writes[0].array.shape[-1]
    return max(1, min(most, have.const)) if have.is_const else most


# -- what it is for
def stages_of(s: Schedule) -> Stages | None:
    """The stages of a lone attention, or None."""
    if s.step is not None or len(s.outputs) != 1:
        return None
    program = s.program
    by_role: dict[str, list[Statement]] = {}
    for x in program.statements:
        by_role.setdefault(x.role, []).append(x)
    updates, powers = by_role.get("update", []), by_role.get("compute", [])
    finished = [x.stage for x in by_role.get("finish", [])]
    known = set(by_role) <= {"init", "update", "compute", "finish"}
    if len(updates) != 4 or len(powers) != 1 or not known:
        return None
    scores, top, total, result = updates
    power = powers[0]
    if result.stage not in finished or not set(finished) <= {scores.stage, result.stage}:
        return None
    combiners = [x.combiner for x in updates]
    n = len(power.iters)
    if combiners != [FLOAT_SUM, MAX, FLOAT_SUM, FLOAT_SUM] or n < 2:
        return None
    made = {a.name: a for a in program.arrays}
    fine = (
        len(scores.iters) == n + 1
        and len(top.iters) == len(total.iters) == n
        and len(result.iters) == n + 1
        and _reads(top, made[scores.stage], top.iters)
        and _reads(power, made[scores.stage], power.iters)
        and _reads(power, made[top.stage], power.iters[:-1])
        and _reads(total, made[power.stage], total.iters)
        and _reads(result, made[power.stage], (*result.iters[: n - 1], result.iters[-1]))
    )
    query = _query(scores)
    if not fine or query is None:
        return None
    last = [x for x in by_role["finish"] if x.stage == scores.stage]
    masks = [r.array for x in last for r in x.reads if _turns(r, x.iters)]
    distinct = tuple(dict.fromkeys(masks))
    return Stages(scores, top, power, total, result, query, distinct, bool(last))


def _reads(x: Statement, array: Array, iters: tuple[Axis, ...]) -> bool:
    """Whether a statement reads an array, everywhere by these iterators."""
    found = [r for r in x.reads if r.array is array]
    return bool(found) and all(_plain(r, iters) for r in found)


def _turns(access: Access, iters: tuple[Axis, ...]) -> bool:
    """Whether an input is read by query and key, so that queries in lanes are far apart."""
    last = tuple(Lin({a: 1}) for a in iters[-2:])
    return access.array.role == "input" and access.exact and access.affine[-2:] == last


def _plain(access: Access, iters: tuple[Axis, ...]) -> bool:
    return access.exact and access.affine == tuple(Lin({a: 1}) for a in iters)


def _query(scores: Statement) -> Array | None:
    """The tensor that the scores read by the query's index and the reduction's."""
    iters = (*scores.iters[:-2], scores.iters[-1])
    found = [r.array for r in scores.reads[1:] if _plain(r, iters)]
    if len(scores.reads) != 3 or len(found) != 1 or found[0].role != "input":
        return None
    return found[0]


def _recognised(s: Schedule) -> bool:
    found = stages_of(s)
    rows = found.powers.writes[0].array.shape[-2] if found is not None else None
    return rows is not None and (not rows.is_const or rows.const >= FEW)


@register("attention", _recognised)
def _attention_for(s: Schedule, target: Target) -> Schedule:
    return attention(s, target)
