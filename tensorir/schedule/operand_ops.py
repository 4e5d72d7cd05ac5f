"""The operands of a reduction made fit for instructions: other types, whole groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.affine import ZERO, Conj, Fact, Lin, Region, floordiv, subst_facts
from tensorir.ir.build import cast, compare, const, if_then_else
from tensorir.ir.dtype import DType
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import Axis, Expr, Ref, Var
from tensorir.ir.index import from_lin
from tensorir.ir.numerics import limits
from tensorir.ir.statement import Access, Array, Statement
from tensorir.poly import tree
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.tree import Tree
from tensorir.schedule import copies, factors, partial, resolve, rewrite
from tensorir.schedule.primitive import Draft, primitive
from tensorir.support.errors import ArgumentTypeError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["pad_reduction", "retype"]


# -- another type
@primitive
def retype(
    s: Schedule,
    stage: object,
    tensor: object,
    dtype: object,
    by: int = 0,
    *,
    name: str | None = None,
    sums: str | None = None,
) -> Draft:
    """A stage's tensor read in another type, moved by a constant.

    Needs a tensor that the stage's expression converts at once, and a type that holds all its
    numbers. It becomes a stage of its own, which `compute_at`, or `cache_read` and
    `compute_inline`, then place. With `by` the numbers move, `x + by`, so that int8 fits in uint8
    or a zero point is gone; what that adds to a sum of products is taken off the initial value,
    by one more stage, the sums of the other factor. Integers wrap, so that every bit stays.
    A stage's own result may be named too, a sum of integers that is wider than it can ever need:
    it is then summed in the smaller type, and converted at the end. Others do this by hand (the
    compensation of oneDNN and XNNPACK).

    Parameters
    ----------
    stage : str or Tensor
        What reads it.
    tensor : str or Tensor
        What is read.
    dtype : str or DType
        The new type.
    by : int
        What is added; other than 0 for integers in a sum of products alone.
    name : str
        What the new stage is called; by default `A_uint8` for `A`.
    sums : str
        What the stage with the sums is called, where there is one; by default `C_sums` for `C`.

    Raises
    ------
    ScheduleError
        A type that does not hold all numbers, another expression, or loops that were changed.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((2, 8), "int8", name="A")
    >>> B = tir.placeholder((8, 4), "int8", name="B")
    >>> k = tir.reduce_axis(8, name="k")
    >>> C = tir.compute((2, 4), lambda i, j: tir.sum(
    ...     tir.cast(A[i, k], "int32") * tir.cast(B[k, j], "int32"), axis=k, dtype="int32"),
    ...     name="C")
    >>> s = tir.schedule(C)
    >>> print(s.loops())
    for i in 0..2
      for j in 0..4
        C[i, j] = 0
        for k in 0..8
          C[i, j] = C[i, j] + int32(A[i, k]) * int32(B[k, j])
    >>> print(s.retype("C", "A", "uint8", 128).loops())
    for A_uint8.i in 0..2
      for A_uint8.k in 0..8
        A_uint8[A_uint8.i, A_uint8.k] = uint8(A[A_uint8.i, A_uint8.k]) + 128
    for C_sums.j in 0..4
      C_sums[C_sums.j] = 0
      for C_sums.k in 0..8
        C_sums[C_sums.j] = C_sums[C_sums.j] + int32(B[C_sums.k, C_sums.j])
    for i in 0..2
      for j in 0..4
        C[i, j] = C_sums[j] * -128
        for k in 0..8
          C[i, j] = C[i, j] + int32(A_uint8[i, k]) * int32(B[k, j])
    """
    what = "retype"
    reader = _reader(s, stage, what)
    array = resolve.array(s, tensor, primitive=what)
    to = as_dtype(dtype)
    if isinstance(by, bool) or not isinstance(by, int):
        resolve.fail(f"{what}: by is an integer, not {by!r:.60}", cls=ArgumentTypeError)
    if not by and any(w.array is array for w in reader.writes):
        return _narrowed(s, reader, array, to, _new_name(s, name, f"{array.name}_{to.name}", what))
    slots = [k for k, r in enumerate(reader.reads) if r.array is array]
    if not slots or any(w.array is array for w in reader.writes):
        resolve.fail(f"{what}: {reader.name} does not read {array.name}, or writes it")
    _require_whole(s, array, what)
    factors.require_range(array.dtype, to, by, what, array.name)
    if to == array.dtype and not by:
        turned, taken = reader, array
    else:
        made = _new_name(s, name, f"{array.name}_{to.name}", what)
        taken = replace(array, name=made, dtype=to, role="temp")
        turned = factors.converted(reader, array, taken, what)
    program = s.program
    if taken is not array:
        program = _with_stage(s, program, reader.name, taken, _moved(array, to, by), array)
    product = None
    if by or _offset_of(turned, slots):
        product = factors.product(turned, slots, by, what)
    done = turned if product is None else product.stmt
    program = _with_statement(program, reader.name, done)
    if product is None or not product.rest:
        idle = product is None and taken is array
        _require_there(s, program, what)
        return Draft(program, idle=f"{array.name} is {to} already" if idle else "")
    program = _compensated(s, program, product, _new_name(s, sums, f"{reader.stage}_sums", what))
    _require_there(s, program, what)
    return Draft(program)


def _narrowed(s: Schedule, update: Statement, array: Array, to: DType, name: str) -> Draft:
    """A sum of integers accumulated in a smaller type, and converted at the end."""
    program, what = s.program, "retype"
    start = program.placements.get(f"{update.stage}.init")
    names = resolve.statements(program, update.stage)
    if start is None or len(names) != 2 or not factors.is_zero(start.stmt.bodies[0]):
        resolve.fail(f"{what}: {update.stage} is not a sum as it was declared")
    around = tree.axes_of(program.tree, start.stmt.name)
    if tree.axes_of(program.tree, update.name)[: len(around)] != around or not around:
        resolve.fail(f"{what}: the initial value of {update.stage} is not where it was declared")
    body = factors.narrowed(update, to, what)
    kept = replace(array, name=name, dtype=to, role="temp")
    cell = Access(kept, start.stmt.writes[0].index)
    finish = replace(
        start.stmt, name=f"{update.stage}.finish", role="finish", reads=(cell,),
        bodies=(cast(Ref(0, to), array.dtype),),
    )  # fmt: skip
    started = replace(start.stmt, writes=(cell,), bodies=(const(0, to),))
    place = Access(kept, update.writes[0].index)
    summed = replace(update, writes=(place,), reads=(place, *update.reads[1:]), bodies=(body,))
    placements = {
        **program.placements,
        started.name: start.with_stmt(started),
        summed.name: program.placements[update.name].with_stmt(summed),
        finish.name: start.with_stmt(finish),
    }
    order = tree.insert(program.tree, around[-1], tree.At(finish.name), first=False)
    buffers = {**program.buffers, kept: Buffer()}
    changed = rewrite.assemble(program, order, placements, buffers, [kept])
    _require_there(s, changed, what)
    return Draft(changed)


def _require_there(s: Schedule, program: Program, what: str) -> None:
    """Refuse where a new stage would read what is not whole yet, or read it too late."""
    old = s.program.placements
    names = [n for n, p in program.placements.items() if n not in old or p.stmt is not old[n].stmt]
    rewrite.require_reach(s, program, names, what)
    rewrite.require_complete(s, program, names, what)


def _offset_of(stmt: Statement, slots: list[int]) -> bool:
    """Whether a constant is added to the tensor in a product that is summed."""
    found = factors.split(stmt, slots)
    return found is not None and found.constant != 0


def _reader(s: Schedule, stage: object, what: str) -> Statement:
    """The update of a stage, or the one statement that computes it."""
    name = resolve.stage(s, stage, primitive=what)
    stmts = [s.program.stmt(n) for n in resolve.statements(s.program, name)]
    found = [x for x in stmts if x.role in ("update", "compute")]
    if len(found) != 1 or len(found[0].bodies) != 1:
        resolve.fail(f"{what}: {name} is computed by several statements")
    return found[0]


def _require_whole(s: Schedule, array: Array, what: str) -> None:
    if rewrite.outside_of(s.program, array):
        resolve.fail(
            f"{what}: {array.name} exists only inside loops",
            why=f"{what} comes before compute_at and cache_read.",
        )


def _new_name(s: Schedule, name: object, default: str, what: str) -> str:
    if name is None:
        return resolve.free_name(s, default)
    return resolve.new_name(s, name, primitive=what, what="name")


def _moved(array: Array, to: DType, by: int) -> Expr:
    read = Ref(0, array.dtype)
    if not by:
        return cast(read, to)
    low, high = limits(to)
    wrapped = (int(by) - int(low)) % (int(high) - int(low) + 1) + int(low)
    return cast(read, to) + const(wrapped, to)  # both wrap, and the sum is in range


def _with_statement(program: Program, name: str, stmt: Statement) -> Program:
    placements = dict(program.placements)
    placements[name] = placements[name].with_stmt(stmt)
    return program.change(placements=placements)


def _with_stage(
    s: Schedule,
    program: Program,
    reader: str,
    to: Array,
    body: Expr,
    source: Array,
    dim: int | None = None,
    end: Lin | None = None,
) -> Program:
    """The program with a stage that computes `to` from `source`, cell by cell, before `reader`.

    From `end` on along dimension `dim` its cells are zero.
    """
    names = copies.dimension_names(program, source, [reader])
    iters = tuple(Axis(n, ZERO, e) for n, e in zip(names, to.shape, strict=True))
    index = tuple(Lin({a: 1}) for a in iters)
    domain: list[Fact] = []
    for i, e in zip(index, to.shape, strict=True):
        domain += (("ge", i), ("ge", e - i - 1))
    guard: Region = ((),)
    if dim is not None and end is not None:
        guard = ((("ge", end - index[dim] - 1),),)
        held = compare("lt", iters[dim], from_lin(end))
        body = if_then_else(held, body, const(0, to.dtype))
    stmt = Statement(
        to.name, to.name, iters, (tuple(domain),), (Access(to, index),),
        (Access(source, index, guard),), (body,), "compute",
    )  # fmt: skip
    return _placed(s, program, [stmt], to, reader)


def _placed(
    s: Schedule, program: Program, stmts: list[Statement], to: Array, reader: str
) -> Program:
    """A new stage in loops of its own, before everything else that the reader's nest does."""
    now = s.then(program, s.step) if s.step is not None else type(s)(program, s.outputs)
    axes = rewrite.fresh_axes(now, [i for x in stmts for i in x.iters], to.name)
    item = rewrite.nest_of(stmts, {**axes}, 0, s.next_number)
    users = [
        n for n in tree.stmts(program.tree) if program.stmt(n).stage == program.stmt(reader).stage
    ]
    order = rewrite.before(program.tree, None, users, item)
    placements = dict(program.placements)
    for x in stmts:
        placements[x.name] = Placement.fresh(x, tuple(axes[i] for i in x.iters))
    return rewrite.assemble(program, order, placements, {**program.buffers, to: Buffer()}, [to])


def _compensated(s: Schedule, program: Program, found: factors.Product, name: str) -> Program:
    """The sums of the other factor as a stage, and its multiple in the initial value."""
    stmt = found.stmt
    start = program.placements.get(f"{stmt.stage}.init")
    n = 0 if start is None else len(start.stmt.iters)
    if start is None or any(
        a is not b for a, b in zip(start.stmt.iters, stmt.iters[:n], strict=True)
    ):
        resolve.fail(
            f"retype: the initial value of {stmt.stage} is not where it was declared",
            why="by= comes before steps that change how the reduction is made.",
        )
    dtype = stmt.writes[0].array.dtype
    sums, made = factors.sums(program, found, name, dtype)
    program = _placed(s, program, made, sums, stmt.name)
    index = tuple(Lin({a: 1}) for a in found.kept)
    first = start.stmt
    more = Ref(len(first.reads), dtype) * const(found.rest, dtype)
    body = first.bodies[0]
    body = more if factors.is_zero(body) else body + more
    first = replace(first, reads=(*first.reads, Access(sums, index)), bodies=(body,))
    return _with_statement(program, first.name, first)


# -- whole groups
@primitive
def pad_reduction(s: Schedule, axis: str | Axis, multiple: int) -> Draft:
    """A reduction loop made longer, up to a multiple, over operands that are zero beyond.

    Needs a sum of products that are zero there, over a loop that no step changed. Each operand
    along the loop becomes a stage of its own, `A_pad`, with zeros past the end, which `compute_at`
    places and `transform_layout` packs; a stage that computes the operand is best inlined into it.
    Others call it `pad_einsum` and `decompose_padding` (TVM).

    Parameters
    ----------
    axis : str or Axis
        The loop.
    multiple : int
        What its extent becomes a multiple of.

    Raises
    ------
    ScheduleError
        Another reducer, a loop that was split or does not run from 0, or an expression that is
        not zero where the operands are.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((6,), "int8", name="A")
    >>> k = tir.reduce_axis(6, name="k")
    >>> C = tir.compute((1,), lambda i: tir.sum(
    ...     tir.cast(A[k], "int32") * 3, axis=k, dtype="int32"), name="C")
    >>> s = tir.schedule(C)
    >>> print(s.loops())
    for i in 0..1
      C[i] = 0
      for k in 0..6
        C[i] = C[i] + int32(A[k]) * 3
    >>> print(s.pad_reduction("k", 4).loops())
    for A_pad.k in 0..8
      A_pad[A_pad.k] = if_then_else(A_pad.k < 6, A[A_pad.k], 0)
    for i in 0..1
      C[i] = 0
      for k in 0..8
        C[i] = C[i] + int32(A_pad[k]) * 3
    """
    what = "pad_reduction"
    loop = resolve.axis(s, axis, primitive=what)
    size = resolve.positive(multiple, "multiple", primitive=what)
    p = _summed(s, loop, what)
    stmt, program = p.stmt, s.program
    it = next(i for i in partial.reduction_iters(stmt) if p.index[i] == Lin({loop.axis: 1}))
    end = _end(stmt, it, what)
    padded = floordiv(end + (size - 1), size) * size
    if padded == end:
        return Draft(program, idle=f"{loop.axis.name!r} is a multiple of {size} already")
    slots = [k for k, r in enumerate(stmt.reads) if any(_uses(i, it) for i in r.index)]
    if not factors.vanishes(stmt, slots):
        resolve.fail(
            f"{what}: {stmt.name} is not a sum of what is zero where its operands are",
            why="instances past the end must add nothing.",
        )
    longer = Axis(it.name, ZERO, padded, reduce=True)
    env: dict[Axis | Var, Lin] = {it: Lin({longer: 1})}
    reads = list(stmt.reads)
    made: dict[tuple[Array, int], Array] = {}
    for k in slots:
        array, d = reads[k].array, _dimension(stmt, reads[k], it, what)
        _require_whole(s, array, what)
        key = (array, d)
        if key not in made:
            shape = tuple(padded if n == d else e for n, e in enumerate(array.shape))
            name = resolve.free_name(s, f"{array.name}_pad", [a.name for a in made.values()])
            made[key] = replace(array, name=name, shape=shape, role="temp")
            body = Ref(0, array.dtype)
            program = _with_stage(s, program, stmt.name, made[key], body, array, d, end)
        reads[k] = replace(reads[k], array=made[key])
    domain: Conj = (
        *_rest(stmt, it),
        ("ge", Lin({longer: 1})),
        ("ge", padded - Lin({longer: 1}) - 1),
    )
    turned = replace(
        stmt,
        iters=tuple(longer if a is it else a for a in stmt.iters),
        domain=(domain,),
        reads=tuple(
            replace(r, index=tuple(i.subst(env) if isinstance(i, Lin) else i for i in r.index))
            for r in reads
        ),
    )
    new = Axis(loop.axis.name, ZERO, padded, reduce=True)
    order: Tree = tree.rewrite(program.tree, loop.axis, lambda x: replace(x, axis=new))
    placements = dict(program.placements)
    placements[stmt.name] = _renamed(p, turned, it, longer, loop.axis, new)
    changed = program.change(tree=order, placements=placements)
    changed = rewrite.assemble(changed, order, placements, program.buffers)
    _require_there(s, changed, what)
    return Draft(changed, stmt.writes[0].array.dtype.is_float)


def _summed(s: Schedule, loop: tree.Loop, what: str) -> Placement:
    """The placement of the one sum under a loop that is still as it was declared."""
    under = tree.stmts(loop)
    p = s.program.placements[under[0]]
    stmt = p.stmt
    name = loop.axis.name
    if len(under) != 1 or stmt.role != "update" or len(stmt.bodies) != 1:
        resolve.fail(f"{what}: {name!r} is not around one reduction alone")
    if stmt.combiner is None or stmt.combiner.name != "sum":
        resolve.fail(f"{what}: {stmt.name} is not a sum", why="zeros change no other reduction.")
    fresh = loop.kind == "serial" and any(
        p.index[i] == Lin({loop.axis: 1}) for i in partial.reduction_iters(stmt)
    )
    if not fresh:
        resolve.fail(
            f"{what}: {name!r} is not a reduction loop as it was declared",
            why="it comes before split and other steps on that loop.",
        )
    return p


def _uses(i: object, it: Axis) -> bool:
    return isinstance(i, Lin) and i.involves(it)


def _end(stmt: Statement, it: Axis, what: str) -> Lin:
    """Where the iterator ends, in sizes alone."""
    if len(stmt.domain) == 1:
        mine = [e for _, e in stmt.domain[0] if e.involves(it)]
        lows = [e for e in mine if e == Lin({it: 1})]
        highs = [e for e in mine if e.coef(it) == -1]
        if len(mine) == 2 and lows and highs:
            end = highs[0].without(it) + 1
            if all(isinstance(a, Var) for a in end.atoms()):
                return end
    resolve.fail(f"{what}: {it.name!r} does not run from 0 to a size")


def _rest(stmt: Statement, it: Axis) -> Conj:
    return tuple(f for f in stmt.domain[0] if not f[1].involves(it))


def _dimension(stmt: Statement, access: Access, it: Axis, what: str) -> int:
    """The dimension that the iterator alone indexes."""
    found = [d for d, i in enumerate(access.index) if _uses(i, it)]
    alone = access.exact and len(found) == 1 and access.index[found[0]] == Lin({it: 1})
    if not alone or access.guard != ((),):
        resolve.fail(
            f"{what}: {stmt.name} reads {access.array.name} otherwise than by {it.name!r} alone"
        )
    return found[0]


def _renamed(
    p: Placement, stmt: Statement, it: Axis, longer: Axis, axis: Axis, new: Axis
) -> Placement:
    """The same enumeration, with another axis and iterator for one loop."""
    env: dict[Axis | Var, Lin] = {axis: Lin({new: 1})}
    index = {longer if i is it else i: e.subst(env) for i, e in p.index.items()}
    roots = {longer if i is it else i: new if r is axis else r for i, r in p.roots.items()}
    axes = tuple(new if a is axis else a for a in p.axes)
    return Placement(stmt, axes, index, subst_facts(p.facts, env), p.retired, roots)
