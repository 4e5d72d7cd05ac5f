"""The rules of expressions, statements and loops, as tables of (node, condition, message).

Builders keep them by construction; tests and `validate=True` check them after each pass. A rule
that fails is a fault of the library: an `InternalError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorir.ir import numerics
from tensorir.ir.affine import Lin
from tensorir.ir.dtype import BOOL, INT64
from tensorir.ir.expr import Axis, Const, Expr, Load, Op, Reduce, Ref
from tensorir.ir.ops import OPS
from tensorir.ir.printer import condition_text, loops_text, statement_text
from tensorir.ir.statement import May, Statement
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run
from tensorir.ir.visit import nodes
from tensorir.support.errors import internal

Rule = tuple[type, Callable[[Any], bool], str]


def _const_fits(e: Const) -> bool:
    if e.dtype.kind == "bool":
        return isinstance(e.value, bool)
    if e.dtype.is_float:
        return isinstance(e.value, float) and (
            e.value != e.value or numerics.round_to(e.value, e.dtype) == e.value
        )
    low, high = numerics.limits(e.dtype)
    return isinstance(e.value, int) and low <= e.value <= high


def _types_agree(e: Op) -> bool:
    info = OPS[e.name]
    types = [a.dtype for a in e.args]
    if info.rule == "compare":
        return e.dtype == BOOL and types[0] == types[1]
    if info.rule == "test":
        return e.dtype == BOOL and types[0].is_float
    if info.rule == "choice":
        return types[0] == BOOL and types[1] == types[2] == e.dtype
    if e.name == "reinterpret":
        return types[0].bits == e.dtype.bits
    if e.name == "cast":
        return types[0] != e.dtype
    if e.name == "ldexp":
        return types[0] == e.dtype and types[1].is_integer
    same = all(t == e.dtype for t in types)
    if info.rule in ("integer", "count"):
        return same and e.dtype.is_integer
    if info.rule == "bits":
        return same and not e.dtype.is_float
    if info.rule in ("float", "divide") or e.name == "fma":
        return same and e.dtype.is_float
    return same and e.dtype.kind != "bool"


EXPRESSION_RULES: tuple[Rule, ...] = (
    (Const, _const_fits, "a constant is a value of its type"),
    (Op, lambda e: e.name in OPS, "an operation is in the table"),
    (Op, lambda e: len(e.args) == OPS[e.name].arity, "an operation has as many arguments"),
    (Op, _types_agree, "the types of arguments and result follow the operation's rule"),
    (Load, lambda e: len(e.index) == e.tensor.ndim, "a load has an index for each dimension"),
    (Load, lambda e: all(i.dtype == INT64 for i in e.index), "an index is an int64"),
    (Ref, lambda e: e.slot >= 0, "a read has a number"),
    (Reduce, lambda e: len(e.sources) == len(e.state), "a reduction has a source for each state"),
    (
        Reduce,
        lambda e: all(s.dtype == d for s, d in zip(e.sources, e.state, strict=True)),
        "a source has the type of its state",
    ),
    (Reduce, lambda e: all(a.reduce for a in e.axes), "a reduction runs over reduce axes"),
    (Reduce, lambda e: e.where is None or e.where.dtype == BOOL, "a condition is bool"),
)


def _reads_exist(s: Statement) -> bool:
    return all(
        x.slot < len(s.reads) and x.dtype == s.reads[x.slot].array.dtype
        for x in nodes(*s.bodies, *_may_values(s))
        if isinstance(x, Ref)
    )


def _reads_in_order(s: Statement) -> bool:
    return all(
        x.slot < k
        for k, r in enumerate(s.reads)
        for i in r.index
        if isinstance(i, May)
        for x in nodes(i.value)
        if isinstance(x, Ref)
    )


def _may_values(s: Statement) -> list[Expr]:
    accesses = (*s.writes, *s.reads)
    return [i.value for a in accesses for i in a.index if isinstance(i, May)]


def _iterators_closed(s: Statement) -> bool:
    used = [x for x in nodes(*s.bodies, *_may_values(s)) if isinstance(x, Axis)]
    for a in (*s.writes, *s.reads):
        for i in a.index:
            used += [x for x in (i.atoms() if isinstance(i, Lin) else ()) if isinstance(x, Axis)]
    for conj in s.domain:
        used += [x for _, e in conj for x in e.atoms() if isinstance(x, Axis)]
    return all(any(x is i for i in s.iters) for x in used)


def _reads_its_cell(s: Statement) -> bool:
    if s.role != "update":
        return True
    return s.combiner is not None and all(
        w.array is r.array and w.index == r.index
        for w, r in zip(s.writes, s.reads[: len(s.writes)], strict=True)
    )


STATEMENT_RULES: tuple[Rule, ...] = (
    (
        Statement,
        lambda s: len(s.writes) == len(s.bodies) and (s.bodies or s.synchronises),
        "a body for each write",
    ),
    (
        Statement,
        lambda s: all(b.dtype == w.array.dtype for w, b in zip(s.writes, s.bodies, strict=True)),
        "a body has the type of the array it writes",
    ),
    (
        Statement,
        lambda s: all(len(a.index) == len(a.array.shape) for a in (*s.writes, *s.reads)),
        "an access has an index for each dimension",
    ),
    (
        Statement,
        lambda s: not any(isinstance(x, Load | Reduce) for x in nodes(*s.bodies)),
        "a body reads through its statement, and reduces nothing",
    ),
    (Statement, _reads_exist, "a Ref names a read of its type"),
    (Statement, _reads_in_order, "an index refers to earlier reads only"),
    (Statement, _iterators_closed, "only the statement's own iterators occur in it"),
    (Statement, _reads_its_cell, "an update has a combiner and reads the cells it writes first"),
)

LOOP_RULES: tuple[Rule, ...] = (
    (For, lambda n: len(n.lower) > 0 and len(n.upper) > 0, "a loop has a lower and an upper bound"),
    (For, lambda n: all(c > 0 for c, _ in (*n.lower, *n.upper)), "divisors of bounds are positive"),
    (For, lambda n: (n.kind == "bind") == (n.bind is not None), "a bound loop names its index"),
    (
        For,
        lambda n: n.width is None or n.kind in ("vectorize", "bind"),
        "only a vector loop has lanes",
    ),
    (
        For,
        lambda n: n.width is None or n.extent is None or n.extent % n.width == 0,
        "the extent of a vector loop is a multiple of its lanes",
    ),
    (If, lambda n: len(n.conds) > 0, "a guard has a condition"),
    (Run, lambda n: len(n.args) == len(n.statement.iters), "an instance gives each iterator"),
    (
        Alloc,
        lambda n: len(n.buffer.shape) == len(n.buffer.dims) + len(n.buffer.lanes),
        "a buffer has an extent for each dimension of its layout and for each lane axis",
    ),
    (
        Alloc,
        lambda n: len(n.buffer.origin) == len(n.buffer.array.shape),
        "a buffer has an origin for each dimension of its array",
    ),
)


def _check(rules: Iterable[Rule], node: object, text: Callable[[], str]) -> None:
    for kind, holds, message in rules:
        if isinstance(node, kind) and not holds(node):
            raise internal(f"broken rule: {message}", state=text())


def verify_expression(e: Expr) -> None:
    """Check every node of an expression.

    Examples
    --------
    >>> from tensorir.ir.expr import Var
    >>> verify_expression(Var("n") + 1)
    """
    for x in nodes(e):
        _check(EXPRESSION_RULES, x, lambda: str(e))


def verify_statement(s: Statement) -> None:
    """Check a statement, and its bodies."""
    _check(STATEMENT_RULES, s, lambda: f"{s.name}: {statement_text(s)}")
    for b in (*s.bodies, *_may_values(s)):
        verify_expression(b)


def verify_loops(node: Node) -> None:
    """Check a loop nest: its nodes, and that every bound uses only axes of loops around it."""
    _walk(node, (), node)


def _walk(node: Node, outer: tuple[Axis, ...], root: Node) -> None:
    _check(LOOP_RULES, node, lambda: loops_text(root))
    if isinstance(node, Block):
        for i in node.items:
            _walk(i, outer, root)
    elif isinstance(node, For):
        _closed([e for _, e in (*node.lower, *node.upper)], outer, root)
        if any(node.axis is a for a in outer):
            raise internal(f"loop {node.axis.name} stands inside itself", state=loops_text(root))
        _walk(node.body, (*outer, node.axis), root)
    elif isinstance(node, If):
        _closed([e for _, e in node.conds], outer, root)
        _walk(node.body, outer, root)
        if node.other is not None:
            _walk(node.other, outer, root)
    elif isinstance(node, Alloc):
        _closed([*node.buffer.origin, *node.buffer.shape], outer, root)
        _walk(node.body, outer, root)
    else:
        _closed([*node.args, *node.conds, *node.read_conds], outer, root)
        verify_statement(node.statement)


def _closed(es: list[Lin], outer: tuple[Axis, ...], root: Node) -> None:
    for e in es:
        for a in e.atoms():
            if isinstance(a, Axis) and not any(a is o for o in outer):
                text = condition_text(("ge", e))
                raise internal(
                    f"{a.name} is used outside its loop, in {text}", state=loops_text(root)
                )


__all__ = [
    "EXPRESSION_RULES",
    "LOOP_RULES",
    "STATEMENT_RULES",
    "verify_expression",
    "verify_loops",
    "verify_statement",
]
