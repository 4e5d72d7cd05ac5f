"""Programs that no declaration gives: recurrences in place, statement by statement."""

from __future__ import annotations

import tensorir as tir
from tensorir.ir.affine import Conj, Lin
from tensorir.ir.build import const
from tensorir.ir.dtype import dtype
from tensorir.ir.expr import Axis, Op, Ref, Var
from tensorir.ir.statement import Access, Array, Statement
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import At, nest


def diagonal(rank: int = 2) -> tir.Schedule:
    """A stencil in place: `S` reads the cell up and to the right, which an earlier `i` wrote."""
    n = Var("N")
    i, j, b = (Axis(x, Lin(), Lin({n: 1})) for x in "ijb")
    A = Array("A", dtype("float32"), (Lin({n: 1}),) * rank, "output")
    iters = (i, j, b)[:rank]
    domain = (*bounds(i, Lin(const=1), n), *bounds(j, Lin(), n, -1))
    if rank == 3:
        domain = (*domain, *bounds(b, Lin(), n))
    rest = tuple(Lin({x: 1}) for x in iters[2:])
    read = Access(A, (Lin({i: 1}, -1), Lin({j: 1}, 1), *rest))
    write = Access(A, (Lin({i: 1}), Lin({j: 1}), *rest))
    body = Op("mul", (Ref(0, A.dtype), const(0.5, "float32")), A.dtype)
    return of_statement(
        Statement("S", "A", iters, (domain,), (write,), (read,), (body,), "compute"), n
    )


def recurrence() -> tir.Schedule:
    """`A[i] = A[i - 1] * 0.5` in place."""
    n = Var("N")
    i = Axis("i")
    A = Array("A", dtype("float32"), (Lin({n: 1}),), "output")
    read, write = Access(A, (Lin({i: 1}, -1),)), Access(A, (Lin({i: 1}),))
    body = Op("mul", (Ref(0, A.dtype), const(0.5, "float32")), A.dtype)
    domain = bounds(i, Lin(const=1), n)
    return of_statement(
        Statement("S", "A", (i,), (domain,), (write,), (read,), (body,), "compute"), n
    )


def bounds(axis: Axis, low: Lin, size: Var, less: int = 0) -> Conj:
    """`low <= axis < size + less`."""
    return (("ge", Lin({axis: 1}) - low), ("ge", Lin({size: 1, axis: -1}, less - 1)))


def of_statement(stmt: Statement, size: Var) -> tir.Schedule:
    """A program of one statement, in the order of its iterators."""
    loops = tuple(Axis(a.name) for a in stmt.iters)
    placements = {stmt.name: Placement.fresh(stmt, loops)}
    tree = nest(loops, At(stmt.name))
    arrays = (stmt.writes[0].array,)
    program = Program(tree, placements, {}, arrays, (size,), (("ge", Lin({size: 1})),))
    return tir.Schedule(program, ())


def rows() -> tir.Schedule:
    """`A[i, j] = A[i - 1, j - 1] * 0.5` in place: rows in order, the cells of one in any."""
    n = Var("N")
    i, j = Axis("i"), Axis("j")
    A = Array("A", dtype("float32"), (Lin({n: 1}),) * 2, "output")
    read = Access(A, (Lin({i: 1}, -1), Lin({j: 1}, -1)))
    write = Access(A, (Lin({i: 1}), Lin({j: 1})))
    body = Op("mul", (Ref(0, A.dtype), const(0.5, "float32")), A.dtype)
    domain = (*bounds(i, Lin(const=1), n), *bounds(j, Lin(const=1), n))
    return of_statement(
        Statement("S", "A", (i, j), (domain,), (write,), (read,), (body,), "compute"), n
    )
