"""Conditions on sizes that a user gives, as facts, and as text from which a trace reads them back.

The text is Python's own syntax for sizes, whole numbers, ``+ - * // %``, comparisons and ``& ~``.
It is parsed, never evaluated: a trace may come from a file.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from tensorir.ir.affine import Conj, Region
from tensorir.ir.build import as_expr, binary, compare, unary
from tensorir.ir.expr import Axis, Expr, Var
from tensorir.ir.index import conditions
from tensorir.ir.printer import condition_text, expr_text
from tensorir.ir.visit import nodes
from tensorir.schedule import resolve
from tensorir.schedule.explain import accepted, fix
from tensorir.support.errors import ArgumentTypeError, TensorIRError, UnsupportedError
from tensorir.support.names import hint

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

_LONGEST = 400
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv",
    ast.Mod: "floormod", ast.BitAnd: "and",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip


def parse(s: Schedule, given: object, what: str) -> tuple[Conj | bool, str | bool]:
    """What a condition says, and what a trace records of it.

    Parameters
    ----------
    given
        A comparison of sizes, the text of one, or a bool, which is what a comparison of constant
        sizes is.

    Returns
    -------
    tuple
        Facts that hold together, or a bool where no size decides; and text (or that bool).
    """
    if isinstance(given, bool | np.bool_):
        return bool(given), bool(given)
    if isinstance(given, str):
        condition = from_text(s, given, what)
    elif isinstance(given, Expr):
        condition = given
    else:
        resolve.fail(
            f"{what}: a condition compares sizes, as in n % 16 == 0, and is not {given!r:.60}",
            cls=ArgumentTypeError,
        )
    _require_sizes(s, condition, what)
    region = conditions(condition)
    shown = expr_text(condition)
    if region is None:
        resolve.fail(
            f"{what}: the condition {shown:.80} is not affine",
            why="it must compare sums of sizes and constants, also with // and % by a constant, "
            "joined by &.",
            cls=UnsupportedError,
        )
    if len(region) > 1:
        cases = fix("names the cases", (what, tuple(map(_conj_text, region)), {}))
        resolve.fail(
            f"{what}: the condition {shown:.80} holds in {len(region)} separate cases",
            why="each condition is one copy of the nest, for one case.",
            tries=[(f.code, f.effect) for f in accepted(s, [cases])],
            cls=UnsupportedError,
        )
    if not region or not region[0]:
        return bool(region), bool(region)
    return region[0], _recorded(s, shown, region, what)


def _conj_text(conj: Conj) -> str:
    parts = [condition_text(f) for f in conj]
    return parts[0] if len(parts) == 1 else " & ".join(f"({p})" for p in parts)


def _recorded(s: Schedule, shown: str, region: Region, what: str) -> str:
    """The text of a condition that reads back as the same facts: as it was written, if it does."""
    try:
        if conditions(from_text(s, shown, what)) == region:
            return shown
    except TensorIRError:
        pass  # written with functions that the text does not have, such as min
    return _conj_text(region[0])


def _require_sizes(s: Schedule, condition: Expr, what: str) -> None:
    sizes = s.program.sizes
    for e in nodes(condition):
        if isinstance(e, Var) and not any(e is v for v in sizes):
            if any(e.name == v.name for v in sizes):
                resolve.fail(
                    f"{what}: this size {e.name!r} is another one than the schedule's",
                    why="two calls of tir.var make two sizes, whatever their names; use the one "
                    "that the computation was declared with, or the text of the condition.",
                )
            _unknown(s, e.name, what)
        if isinstance(e, Axis):
            resolve.fail(
                f"{what}: the condition names the axis {e.name!r}",
                why="a version of the nest is chosen once for a call, by its sizes alone.",
            )


def _unknown(s: Schedule, name: str, what: str) -> NoReturn:
    names = [v.name for v in s.program.sizes]
    listed = ", ".join(names)
    why = f"the symbolic sizes are {listed}." if names else "this schedule has no symbolic size."
    resolve.fail(f"{what}: {name!r:.60} is no size of this schedule{hint(name, names)}", why=why)


def from_text(s: Schedule, source: str, what: str) -> Expr:
    """The expression of a condition that is text."""
    try:
        if len(source) > _LONGEST:
            raise ValueError("it is too long")
        tree = ast.parse(source.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        resolve.fail(f"{what}: cannot read the condition {source!r:.80}: {why}")
    return as_expr(_node(s, tree.body, source, what))


def _node(s: Schedule, x: ast.expr, source: str, what: str) -> Expr | int:
    if isinstance(x, ast.Name):
        found = next((v for v in s.program.sizes if v.name == x.id), None)
        return found if found is not None else _unknown(s, x.id, what)
    if isinstance(x, ast.Constant) and type(x.value) is int:
        return x.value
    if isinstance(x, ast.UnaryOp) and isinstance(x.op, ast.USub | ast.Invert):
        inner = _node(s, x.operand, source, what)
        if isinstance(x.op, ast.USub):
            return -inner if isinstance(inner, int) else unary("neg", inner)
        return unary("not", as_expr(inner))
    if isinstance(x, ast.BinOp) and type(x.op) in _BINARY:
        left, right = (as_expr(_node(s, y, source, what)) for y in (x.left, x.right))
        return binary(_BINARY[type(x.op)], left, right)
    if isinstance(x, ast.Compare) and all(type(o) in _COMPARE for o in x.ops):
        terms = [as_expr(_node(s, y, source, what)) for y in (x.left, *x.comparators)]
        parts = [
            compare(_COMPARE[type(o)], a, b)
            for o, a, b in zip(x.ops, terms[:-1], terms[1:], strict=True)
        ]
        whole = parts[0]
        for p in parts[1:]:
            whole = binary("and", whole, p)
        return whole
    shown = ast.get_source_segment(source.strip(), x) or source
    resolve.fail(
        f"{what}: cannot read {shown!r:.60} in a condition",
        why="it is written with sizes, whole numbers, + - * // %, comparisons and &.",
    )


__all__ = ["parse"]
