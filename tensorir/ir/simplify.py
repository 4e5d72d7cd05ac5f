"""Simplification that is exact: constants folded, integer index arithmetic gathered."""

from __future__ import annotations

from tensorir.ir.build import make
from tensorir.ir.dtype import INT64
from tensorir.ir.expr import Expr, Op
from tensorir.ir.index import from_lin, to_lin
from tensorir.ir.visit import rewrite


def simplify(e: Expr) -> Expr:
    """`e` with constants folded and affine integer parts in one canonical form.

    Floats are never reassociated: the result is the same, bit for bit.

    Examples
    --------
    >>> from tensorir.ir.expr import Axis, Var
    >>> n, i = Var("n"), Axis("i")
    >>> simplify((i + 2 * n) - n * 2 + (i - i)), simplify((4 * i + 8) // 4)
    (i, i + 2)
    """
    return rewrite(e, _step)


def _step(e: Expr) -> Expr | None:
    if not isinstance(e, Op):
        return None
    if e.dtype == INT64:
        affine = to_lin(e)
        if affine is not None:
            return from_lin(affine)
    return make(e.name, e.args, e.dtype)


def same(a: Expr, b: Expr) -> bool:
    """Whether two expressions are equal after simplification.

    Examples
    --------
    >>> from tensorir.ir.expr import Axis
    >>> i = Axis("i")
    >>> same(i + i, 2 * i), same(i + 1, i)
    (True, False)
    """
    return simplify(a) is simplify(b)
