"""Affine forms: from expressions to `Lin`, and from conditions to regions of facts."""

from __future__ import annotations

from tensorir.ir.affine import Conj, Lin, Region, floordiv, floormod, lin
from tensorir.ir.dtype import INT64
from tensorir.ir.expr import Axis, Const, Expr, Op, Var

# A condition that takes more conjunctions than this counts as not affine.
MAX_CONJUNCTIONS = 64


def to_lin(e: Expr) -> Lin | None:
    """The affine form of an integer expression, or None where it has none.

    Axes, sizes and constants; sums, products with constants, `//` and `%` by positive constants.

    Examples
    --------
    >>> n = Var("n")
    >>> to_lin(2 * n - 1), to_lin((n + 5) // 2), to_lin(n * n)
    (Lin(2*n - 1), Lin((n + 1)//2 + 2), None)
    """
    if isinstance(e, Axis | Var):
        return lin(e)
    if isinstance(e, Const):
        return lin(int(e.value)) if e.dtype.is_integer else None
    if not isinstance(e, Op) or e.dtype != INT64:
        return None
    if e.name == "neg":
        inner = to_lin(e.args[0])
        return None if inner is None else -inner
    if e.name not in ("add", "sub", "mul", "floordiv", "floormod", "shl"):
        return None
    a, b = to_lin(e.args[0]), to_lin(e.args[1])
    if a is None or b is None:
        return None
    if e.name == "add":
        return a + b
    if e.name == "sub":
        return a - b
    if e.name == "mul":
        return a * b.const if b.is_const else b * a.const if a.is_const else None
    if not b.is_const:
        return None
    if e.name == "shl":
        return a * (1 << b.const) if 0 <= b.const < 62 else None
    if b.const <= 0:
        return None
    return floordiv(a, b.const) if e.name == "floordiv" else floormod(a, b.const)


def from_lin(e: Lin) -> Expr:
    """The expression of an affine form.

    Examples
    --------
    >>> from_lin(Lin({Var("n"): 2}, 3))
    n * 2 + 3
    """
    from tensorir.ir.build import binary

    total: Expr | None = None
    for atom, factor in e.terms.items():
        if isinstance(atom, tuple):
            name = "floordiv" if atom[0] == "//" else "floormod"
            term: Expr = binary(name, from_lin(atom[1]), atom[2])
        else:
            term = atom
        if total is not None and factor < 0:
            total = binary("sub", total, binary("mul", term, -factor))
            continue
        term = binary("mul", term, factor)
        total = term if total is None else binary("add", total, term)
    if total is None:
        return Const(e.const, INT64)
    return binary("add", total, e.const) if e.const >= 0 else binary("sub", total, -e.const)


def conditions(e: Expr) -> Region | None:
    """The region in which a condition holds, or None where a part of it is not affine.

    Comparisons of affine integers, also of their `min` and `max`; `&`, `|`, `^`, `~`, constants.

    Examples
    --------
    >>> n = Var("n")
    >>> conditions((n > 2) & (n != 5))
    ((('ge', Lin(n - 3)), ('ge', Lin(n - 6))), (('ge', Lin(n - 3)), ('ge', Lin(-n + 4))))
    """
    return _region(e, holds=True)


_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_MIRROR = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def _region(e: Expr, *, holds: bool) -> Region | None:
    if isinstance(e, Const):
        return ((),) if bool(e.value) == holds else ()
    if not isinstance(e, Op):
        return None
    if e.name == "not":
        return _region(e.args[0], holds=not holds)
    if e.name in ("and", "or"):
        parts = [_region(a, holds=holds) for a in e.args]
        return _meet(*parts) if (e.name == "and") == holds else _join(*parts)
    if e.name in ("xor", "select", "if_then_else"):
        cond, yes, no = e.args if len(e.args) == 3 else (e.args[0], e.args[1], e.args[1])
        on, off = _region(cond, holds=True), _region(cond, holds=False)
        flip = e.name == "xor"
        yes_holds = _region(yes, holds=holds != flip)
        return _join(_meet(on, yes_holds), _meet(off, _region(no, holds=holds)))
    if e.name in _NEGATED and e.args[0].dtype == INT64:
        return _compare(e.name if holds else _NEGATED[e.name], *e.args)
    return None


def _meet(a: Region | None, b: Region | None) -> Region | None:
    if a is None or b is None:
        return () if a == () or b == () else None
    if len(a) * len(b) > MAX_CONJUNCTIONS:
        return None
    return tuple((*x, *y) for x in a for y in b)


def _join(a: Region | None, b: Region | None) -> Region | None:
    if a is None or b is None or len(a) + len(b) > MAX_CONJUNCTIONS:
        return None
    return a + b


def _compare(name: str, a: Expr, b: Expr) -> Region | None:
    left, right = to_lin(a), to_lin(b)
    if left is not None and right is not None:
        return _facts(name, left - right)
    if name in ("eq", "ne"):
        both = [_compare(n, a, b) for n in (("le", "ge") if name == "eq" else ("lt", "gt"))]
        return _meet(*both) if name == "eq" else _join(*both)
    if left is not None:
        return _compare(_MIRROR[name], b, a)
    if not isinstance(a, Op) or a.name not in ("min", "max"):
        return None
    parts = [_compare(name, x, b) for x in a.args]
    # max(x, y) < b needs both, min(x, y) < b needs one
    return _meet(*parts) if (a.name == "max") == (name in ("lt", "le")) else _join(*parts)


def _facts(name: str, d: Lin) -> Region:
    """Where `d <name> 0`."""
    if d.is_const:
        truth = {
            "lt": d.const < 0, "le": d.const <= 0, "gt": d.const > 0,
            "ge": d.const >= 0, "eq": d.const == 0, "ne": d.const != 0,
        }[name]  # fmt: skip
        return ((),) if truth else ()
    below: Conj = (("ge", -d - 1),)
    above: Conj = (("ge", d - 1),)
    if name == "ne":
        return (above, below)
    if name == "eq":
        return ((("eq", d),),)
    return ({"lt": below, "gt": above, "le": (("ge", -d),), "ge": (("ge", d),)}[name],)
