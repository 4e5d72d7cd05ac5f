"""Affine numbers that a user gives: a whole number, sizes and loops around, or the text of that."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, NoReturn

from tensorir.ir.affine import Lin, lin
from tensorir.ir.expr import Axis, Expr, Var
from tensorir.ir.index import to_lin
from tensorir.poly import tree
from tensorir.poly.tree import Loop
from tensorir.schedule import resolve
from tensorir.support.errors import ArgumentTypeError, UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["parse", "text", "whole"]

_LONGEST = 400


def parse(s: Schedule, given: object, loop: Loop, what: str, name: str) -> Lin:
    """What `given` is, over sizes and the axes of the loops around `loop`.

    Parameters
    ----------
    given
        A whole number, a size, an affine expression, or the text of one as a trace holds it.
    name
        Of the argument, for messages.
    """
    if isinstance(given, str):
        found = _from_text(s, given, what, name)
    elif isinstance(given, Expr):
        affine = to_lin(given)
        if affine is None:
            _not_affine(f"{given!r:.60}", what, name)
        found = affine
    else:
        found = lin(whole(given, what, name))
    return _over_loops(s, found, loop, what, name)


def text(s: Schedule, e: Lin) -> int | str:
    """An affine number as a trace records it."""
    if e.is_const:
        return e.const
    return e.text(lambda a: resolve.reference(s.program, a) if isinstance(a, Axis) else a.name)


def whole(given: object, what: str, name: str) -> int:
    """A whole number of any integer type but bool."""
    try:
        if isinstance(given, bool):
            raise TypeError
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        resolve.fail(
            f"{what}: {name} is a whole number or an affine expression of sizes and outer loops, "
            f"not {given!r:.60}",
            cls=ArgumentTypeError,
        )
    if abs(number) > resolve.MOST:
        resolve.fail(f"{what}: {name} is {number}; the largest is {resolve.MOST}")
    return number


def _not_affine(shown: str, what: str, name: str) -> NoReturn:
    resolve.fail(
        f"{what}: {name}={shown} is not affine",
        why="it is a sum of sizes, outer loops and whole numbers, times whole numbers, also with "
        "// and % by one.",
        cls=UnsupportedError,
    )


def _over_loops(s: Schedule, e: Lin, loop: Loop, what: str, name: str) -> Lin:
    """The same over loop axes; refuses what is not known where the loop begins."""
    around = tree.axes_of(s.program.tree, tree.stmts(loop)[0])
    known = around[: next(k for k, a in enumerate(around) if a is loop.axis)]
    env: dict[Axis | Var, Lin] = {}
    for a in e.atoms():
        if isinstance(a, Var):
            if not any(a is v for v in s.program.sizes):
                resolve.fail(f"{what}: {name} names {a.name!r}, which is no size of this schedule")
            continue
        found = resolve.meant(s.program, a)
        if found is None or not any(found.axis is x for x in known):
            inside = resolve.reference(s.program, loop.axis)
            resolve.fail(
                f"{what}: {name} names {a.name!r}, which is not a loop around {inside!r}",
                why="where a range is cut must be known before the loop begins.",
            )
        env[a] = Lin({found.axis: 1})
    return e.subst(env)


def _from_text(s: Schedule, source: str, what: str, name: str) -> Lin:
    try:
        if len(source) > _LONGEST:
            raise ValueError("it is too long")
        parsed = ast.parse(source.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        resolve.fail(f"{what}: cannot read {name}={source!r:.80}: {why}")
    found = _node(s, parsed.body, what)
    if found is None:
        _not_affine(repr(source), what, name)
    return found


def _node(s: Schedule, x: ast.expr, what: str) -> Lin | None:
    if isinstance(x, ast.Name | ast.Attribute):
        return _named(s, ast.unparse(x), what)
    if isinstance(x, ast.Constant) and type(x.value) is int:
        return lin(x.value)
    if isinstance(x, ast.UnaryOp) and isinstance(x.op, ast.USub):
        inner = _node(s, x.operand, what)
        return None if inner is None else -inner
    if not isinstance(x, ast.BinOp):
        return None
    a, b = _node(s, x.left, what), _node(s, x.right, what)
    if a is None or b is None:
        return None
    if isinstance(x.op, ast.Add):
        return a + b
    if isinstance(x.op, ast.Sub):
        return a - b
    if isinstance(x.op, ast.Mult) and (a.is_const or b.is_const):
        return a * b.const if b.is_const else b * a.const
    if isinstance(x.op, ast.FloorDiv | ast.Mod) and b.is_const and b.const > 0:
        return a // b.const if isinstance(x.op, ast.FloorDiv) else a % b.const
    return None


def _named(s: Schedule, name: str, what: str) -> Lin:
    size = next((v for v in s.program.sizes if v.name == name), None)
    if size is not None:
        return lin(size)
    return lin(resolve.axis(s, name, primitive=what).axis)
