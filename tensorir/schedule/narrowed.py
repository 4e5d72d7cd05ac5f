"""Statements of which fewer instances are left: choices that are settled there are taken."""

from __future__ import annotations

from dataclasses import replace

from tensorir.ir.affine import Fact
from tensorir.ir.expr import Expr, Op, Ref
from tensorir.ir.index import conditions
from tensorir.ir.statement import Access, May, Statement
from tensorir.ir.visit import nodes, rewrite
from tensorir.poly import isl
from tensorir.poly.isl import Set
from tensorir.poly.model import Program
from tensorir.poly.relation import context_set, domain_set

__all__ = ["narrowed"]

_CHOICES = ("if_then_else", "select")


def narrowed(stmt: Statement, program: Program) -> Statement:
    """The statement with each choice of its bodies taken that its domain settles.

    Guards of reads that always hold are dropped, and reads that nothing uses any more.
    """
    chooses = any(isinstance(e, Op) and e.name in _CHOICES for e in nodes(*stmt.bodies))
    guarded = any(a.guard != ((),) for a in stmt.reads)
    if not chooses and not guarded:
        return stmt
    domain = domain_set(stmt, program.sizes).intersect_params(context_set(program))
    known: dict[int, tuple[Expr, bool | None]] = {}  # the expression keeps its identity alive

    def settled(test: Expr) -> bool | None:
        if id(test) not in known:
            known[id(test)] = test, _settled(stmt, domain, test, program)
        return known[id(test)][1]

    def shorter(test: Expr) -> Expr:
        """A conjunction less the parts that always hold."""
        if not isinstance(test, Op) or test.name != "and":
            return test
        left = [shorter(x) for x in test.args if settled(x) is not True]
        return Op("and", tuple(left), test.dtype) if len(left) == len(test.args) else left[0]

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Op) or e.name not in _CHOICES:
            return None
        test, yes, no = e.args
        holds = settled(test)
        if holds is not None:
            return yes if holds else no
        left = shorter(test)
        return None if left is test else Op(e.name, (left, yes, no), e.dtype)

    bodies = tuple(rewrite(b, change) for b in stmt.bodies)
    reads = tuple(_unguarded(stmt, domain, r, program) for r in stmt.reads)
    return _without_unused(replace(stmt, bodies=bodies, reads=reads))


def _settled(stmt: Statement, domain: Set, test: Expr, program: Program) -> bool | None:
    """Whether a condition holds in all instances (True), in none (False), or only in some."""
    region = conditions(test)
    if region is None:
        return None
    there = isl.to_set(stmt.iters, program.sizes, region)
    if domain.is_subset(there):
        return True
    return False if domain.intersect(there).is_empty() else None


def _unguarded(stmt: Statement, domain: Set, read: Access, program: Program) -> Access:
    if read.guard == ((),):
        return read
    if domain.is_subset(isl.to_set(stmt.iters, program.sizes, read.guard)):
        return replace(read, guard=((),))

    def news(fact: Fact) -> bool:
        return not domain.is_subset(isl.to_set(stmt.iters, program.sizes, ((fact,),)))

    return replace(read, guard=tuple(tuple(filter(news, conj)) for conj in read.guard))


def _without_unused(stmt: Statement) -> Statement:
    """The statement less reads to which neither a body nor an index refers."""
    values = [i.value for a in (*stmt.writes, *stmt.reads) for i in a.index if isinstance(i, May)]
    used = {e.slot for e in nodes(*stmt.bodies, *values) if isinstance(e, Ref)}
    if stmt.role == "update":
        used |= set(range(len(stmt.writes)))
    slots = sorted(used)
    if len(slots) == len(stmt.reads):
        return stmt
    place = {old: new for new, old in enumerate(slots)}

    def renumbered(e: Expr) -> Expr:
        return rewrite(e, lambda x: Ref(place[x.slot], x.dtype) if isinstance(x, Ref) else None)

    def moved(a: Access) -> Access:
        index = tuple(
            replace(i, value=renumbered(i.value)) if isinstance(i, May) else i for i in a.index
        )
        return replace(a, index=index) if any(isinstance(i, May) for i in index) else a

    return replace(
        stmt,
        writes=tuple(map(moved, stmt.writes)),
        reads=tuple(moved(stmt.reads[k]) for k in slots),
        bodies=tuple(map(renumbered, stmt.bodies)),
    )
