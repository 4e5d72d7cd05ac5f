"""Whether a reduction may go on while an earlier one still changes: each body as h(x) * g(m).

With g(m) = exp(-m) a sum of h * g(m) that was made with an old m is the sum for a new one after
it is multiplied by g(new) / g(old) = exp(old - new) (Milakov and Gimelshein, 2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from tensorir.ir.expr import Const, Expr, Op, Ref, Var
from tensorir.ir.printer import expr_text
from tensorir.ir.reducers import FLOAT_SUM, MAX, MIN
from tensorir.ir.statement import Access, Array, Statement
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import IllegalSchedule

_POWERS = ("exp", "exp2")


@dataclass(frozen=True, slots=True, eq=False)
class First:
    """The reduction that the others follow: a max (or min) of `source`, one cell for each row."""

    stmt: Statement
    array: Array
    source: Expr
    lowest: float

    @property
    def is_max(self) -> bool:
        return self.stmt.combiner is MAX


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """What of a body depends on m: a power of x - m (of a min, of m - x).

    Parameters
    ----------
    stmt
        The statement that computes the power; its reads are what `pairs` and `m` are of.
    node
        The power itself.
    power
        `exp` or `exp2`.
    scale
        What x - m is multiplied by, if anything.
    m
        The read of the first reduction's cell.
    pairs
        Reads of x, each with the read of it in the first reduction.
    guarded
        Whether it is 0 where m is still what a max of nothing is.
    via
        The read of `stmt`'s result in the later reduction; None where that computes it itself.
    """

    stmt: Statement
    node: Expr
    power: str
    scale: Const | None
    m: Access
    pairs: tuple[tuple[Access, Access], ...]
    guarded: bool = False
    via: Access | None = None


def first_of(stmt: Statement, init: Statement) -> First:
    """The first reduction, or a refusal."""
    if stmt.combiner not in (MAX, MIN):
        name = stmt.combiner.name if stmt.combiner is not None else "no reducer"
        _no(
            f"online: {stmt.stage} is the first stage, and its reducer is {name}",
            "later stages follow a max or a min: then no power of the difference overflows.",
        )
    e = stmt.bodies[0]
    array = stmt.writes[0].array
    named = "max" if stmt.combiner is MAX else "min"
    if not (isinstance(e, Op) and e.name == named and e.args[0] is Ref(0, array.dtype)):
        _no(
            f"online: {stmt.name} is {said(stmt)}",
            f"what is compared must be a {named} of its value and an expression, under no "
            "condition but affine ones.",
        )
    if not array.dtype.is_float:
        _no(f"online: {array.name} is {array.dtype}", "the first reduction is of floats.")
    start = init.bodies[0]
    lowest = float(start.value) if isinstance(start, Const) else float("nan")
    return First(stmt, array, e.args[1], lowest)


def terms_of(stmt: Statement, init: Statement) -> tuple[Expr, ...]:
    """The factors that a later reduction sums the products of."""
    if stmt.combiner is not FLOAT_SUM:
        name = stmt.combiner.name if stmt.combiner is not None else "no reducer"
        _no(
            f"online: {stmt.stage} is not a sum of floats; its reducer is {name}",
            "earlier partial results are rescaled by a factor, which only a sum takes out.",
        )
    start = init.bodies[0]
    if not (isinstance(start, Const) and start.value == 0):
        _no(
            f"online: {stmt.stage} starts at {expr_text(start, refs=refs(init))}",
            "what a sum starts from would be rescaled as well; it must be 0.",
        )
    e, acc = stmt.bodies[0], Ref(0, stmt.writes[0].array.dtype)
    if isinstance(e, Op) and e.name == "add" and e.args[0] is acc:
        return (e.args[1],)
    if isinstance(e, Op) and e.name == "fma" and e.args[2] is acc:
        return e.args[:2]
    _no(
        f"online: {stmt.name} is {said(stmt)}",
        "what is added must stand under no condition but affine ones.",
    )


class Finder:
    """The factor of a later reduction that depends on the first."""

    def __init__(self, first: First, links: Mapping[Array, Statement]) -> None:
        self.first, self.links = first, links

    def factor(self, stmt: Statement, terms: tuple[Expr, ...]) -> Factor:
        self.later = stmt
        found = self._product(stmt, terms)
        if found is None:
            _no(
                f"online: {stmt.stage} does not depend on {self.first.array.name}",
                f"{said(stmt)}: it needs no rescaling, and may run by itself.",
            )
        return found

    def _product(self, stmt: Statement, terms: tuple[Expr, ...]) -> Factor | None:
        found = [f for t in terms if (f := self._find(stmt, t)) is not None]
        if len(found) > 1:
            self._fail(stmt, "two factors of it depend on {m}, and only one may.")
        return found[0] if found else None

    def _depends(self, stmt: Statement, e: Expr) -> bool:
        return any(
            stmt.reads[r.slot].array is self.first.array or stmt.reads[r.slot].array in self.links
            for r in _refs(e)
        )

    def _find(self, stmt: Statement, e: Expr) -> Factor | None:
        if not self._depends(stmt, e):
            return None
        if isinstance(e, Ref):
            access = stmt.reads[e.slot]
            link = self.links.get(access.array)
            if link is None or stmt is not self.later:
                self._fail(stmt, "{m} itself is used, not a power of a difference from it.")
            found = self._find(link, link.bodies[0])
            assert found is not None
            return replace(found, via=access)
        assert isinstance(e, Op)
        if e.name == "mul":
            return self._product(stmt, e.args)
        if e.name == "div" and not self._depends(stmt, e.args[1]):
            return self._find(stmt, e.args[0])
        wider = e.name == "cast" and e.dtype.is_float and e.dtype.bits >= e.args[0].dtype.bits
        if e.name == "neg" or wider:
            return self._find(stmt, e.args[0])
        if e.name in ("select", "if_then_else"):
            return self._choice(stmt, e)
        if e.name in _POWERS:
            return self._power(stmt, e)
        self._fail(
            stmt, f"{self._said(stmt, e)} is no product of a part without {{m}} and a power."
        )

    def _choice(self, stmt: Statement, e: Op) -> Factor | None:
        """A choice between 0 and a product; by whether m is still the value of nothing, or not."""
        test, yes, no = e.args
        if not self._depends(stmt, test):
            if _is_zero(no):
                return self._find(stmt, yes)
            if _is_zero(yes):
                return self._find(stmt, no)
        elif isinstance(test, Op) and test.name in ("eq", "ne") and self._of_nothing(stmt, test):
            zero, rest = (yes, no) if test.name == "eq" else (no, yes)
            if _is_zero(zero) and isinstance(rest, Op) and rest.name in _POWERS:
                return replace(self._power(stmt, rest), guarded=True)
        self._fail(stmt, f"{self._said(stmt, e)} is no choice between 0 and a power.")

    def _of_nothing(self, stmt: Statement, test: Op) -> bool:
        nothing = float("-inf") if self.first.is_max else float("inf")
        a, b = test.args
        if isinstance(a, Const):
            a, b = b, a
        return self._is_m(stmt, a) and isinstance(b, Const) and b.value == nothing

    def _is_m(self, stmt: Statement, e: Expr) -> bool:
        return isinstance(e, Ref) and stmt.reads[e.slot].array is self.first.array

    def _power(self, stmt: Statement, e: Op) -> Factor:
        arg, scale = e.args[0], None
        if isinstance(arg, Op) and arg.name == "mul":
            a, b = arg.args
            if isinstance(a, Const):
                a, b = b, a
            if isinstance(b, Const) and b.value > 0:
                arg, scale = a, b
        sides = arg.args if isinstance(arg, Op) and arg.name == "sub" else None
        x, m = (sides if self.first.is_max else sides[::-1]) if sides is not None else (None, None)
        if x is None or m is None or not self._is_m(stmt, m) or self._depends(stmt, x):
            form = "x - {m}" if self.first.is_max else "{m} - x"
            self._fail(stmt, f"the power of {self._said(stmt, arg)} is not one of {form}.")
        assert isinstance(m, Ref)
        pairs = same(x, stmt, self.first.source, self.first.stmt)
        if pairs is None:
            compared = self._said(self.first.stmt, self.first.source)
            self._fail(
                stmt,
                f"{self._said(stmt, x)} is not what {{m}} compares, {compared}; a power of their "
                "difference might overflow before {m} has grown.",
            )
        return Factor(stmt, e, e.name, scale, stmt.reads[m.slot], pairs)

    def _said(self, stmt: Statement, e: Expr) -> str:
        return expr_text(e, refs=refs(stmt))

    def _fail(self, stmt: Statement, why: str) -> NoReturn:
        m = self.first.array.name
        where = said(stmt) if stmt is self.later else f"{stmt.name} = {said(stmt)}"
        _no(
            f"online: {self.later.stage} does not factor as h(x) * g({m}): {where}",
            why.replace("{m}", m),
        )


def same(
    a: Expr, of_a: Statement, b: Expr, of_b: Statement
) -> tuple[tuple[Access, Access], ...] | None:
    """The reads of two expressions that are alike but for which cells they read; None: not."""
    pairs: dict[tuple[int, int], tuple[Access, Access]] = {}

    def walk(x: Expr, y: Expr) -> bool:
        if isinstance(x, Ref) and isinstance(y, Ref):
            r, q = of_a.reads[x.slot], of_b.reads[y.slot]
            plain = r.exact and q.exact and r.guard == q.guard == ((),)
            pairs[x.slot, y.slot] = (r, q)
            return r.array is q.array and plain
        if isinstance(x, Op) and isinstance(y, Op):
            alike = x.name == y.name and x.dtype == y.dtype and len(x.args) == len(y.args)
            return alike and all(map(walk, x.args, y.args))
        return x is y and isinstance(x, Const | Var)

    return tuple(pairs.values()) if walk(a, b) and pairs else None


def said(stmt: Statement) -> str:
    """The body of a statement as text."""
    return expr_text(stmt.bodies[0], refs=refs(stmt))


def refs(stmt: Statement) -> list[str]:
    """The reads of a statement as text."""
    return [
        f"{a.array.name}[{', '.join(map(str, a.affine))}]" if a.exact else a.array.name
        for a in stmt.reads
    ]


def _refs(e: Expr) -> Iterator[Ref]:
    if isinstance(e, Ref):
        yield e
    elif isinstance(e, Op):
        for a in e.args:
            yield from _refs(a)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _no(headline: str, why: str) -> NoReturn:
    raise Message(headline, caller(), why=why).error(IllegalSchedule, primitive="online")


__all__ = ["Factor", "Finder", "First", "first_of", "said", "same", "terms_of"]
