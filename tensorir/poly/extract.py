"""From the expression of a declaration to a statement's body and the cells it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorir.ir.affine import Conj, Fact, Lin, Region
from tensorir.ir.build import compare, if_then_else, unary
from tensorir.ir.expr import Axis, Const, Expr, Load, Op, Ref
from tensorir.ir.index import conditions, to_lin
from tensorir.ir.statement import Access, Array, Index, May
from tensorir.ir.tensor import Tensor

ALWAYS: Region = ((),)
# An index that chooses among more cells than this is treated as reaching its whole range.
MAX_CHOICES = 8


def both(a: Region, b: Region) -> Region:
    """Where both regions hold."""
    return tuple((*x, *y) for x in a for y in b)


def implied(cond: Expr) -> Region:
    """What is sure about axes and sizes where `cond` holds: its affine part, at worst nothing."""
    exact = conditions(cond)
    if exact is not None:
        return exact
    if isinstance(cond, Op) and cond.name == "and":
        return both(implied(cond.args[0]), implied(cond.args[1]))
    if isinstance(cond, Op) and cond.name == "or":
        return implied(cond.args[0]) + implied(cond.args[1])
    if isinstance(cond, Op) and cond.name == "not" and isinstance(cond.args[0], Op):
        inner = cond.args[0]
        if inner.name in ("and", "or"):
            other = "or" if inner.name == "and" else "and"
            return implied(Op(other, tuple(unary("not", a) for a in inner.args), cond.dtype))
    return ALWAYS


class Extractor:
    """Turns loads into `Ref`s and collects what they read.

    An index that chooses between affine forms under affine conditions (`select`, `min`, `max`)
    is pulled out of the load, so that each access is exact and guarded: `A[max(i - 1, 0)]` reads
    `A[i - 1]` where `i >= 1` and `A[0]` elsewhere.
    """

    def __init__(self, arrays: Mapping[Tensor, Array]) -> None:
        self.arrays = arrays
        self.reads: list[Access] = []
        self._slots: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        self._keep: list[object] = []

    def read(self, array: Array, index: tuple[Index, ...], guard: Region = ALWAYS) -> Ref:
        """The value of a cell, as a new read."""
        self.reads.append(Access(array, index, guard))
        return Ref(len(self.reads) - 1, array.dtype)

    def body(self, e: Expr, guard: Region = ALWAYS, path: tuple[int, ...] = ()) -> Expr:
        """`e` with every load replaced by a `Ref`; `guard` holds wherever it is evaluated."""
        if isinstance(e, Load):
            chosen = _lift_choice(e)
            if chosen is not None:
                return self.body(chosen, guard, path)
            return self._load(e, guard, path)
        if not isinstance(e, Op):
            return e
        if e.name == "if_then_else":
            cond, yes, no = e.args
            c = self.body(cond, guard, path)
            self._keep.append(cond)
            a = self.body(yes, both(guard, implied(cond)), (*path, id(cond), 1))
            b = self.body(no, both(guard, implied(unary("not", cond))), (*path, id(cond), 0))
            return Op(e.name, (c, a, b), e.dtype)
        args = tuple(self.body(a, guard, path) for a in e.args)
        if all(x is y for x, y in zip(args, e.args, strict=True)):
            return e
        return Op(e.name, args, e.dtype)

    def _load(self, e: Load, guard: Region, path: tuple[int, ...]) -> Ref:
        # keyed by the cell and by the choices around it: one slot is never used in two places of
        # which only one may load
        key = (id(e.tensor), tuple(map(id, e.index)), path)
        if key not in self._slots:
            self._keep.append(e)
            index = tuple(self._index(i, guard, path) for i in e.index)
            self._slots[key] = self.read(self.arrays[e.tensor], index, guard).slot
        return Ref(self._slots[key], e.dtype)

    def _index(self, e: Expr, guard: Region, path: tuple[int, ...]) -> Index:
        affine = to_lin(e)
        if affine is not None:
            return affine
        low, high = value_range(e)
        return May(self.body(e, guard, path), low, high)


def _lift_choice(e: Load) -> Expr | None:
    """`A[choice]` as a choice between loads, or None where no index chooses affinely."""
    for k, i in enumerate(e.index):
        if to_lin(i) is not None:
            continue
        picked = _first_choice(i, 0)
        if picked is None or _choices(i) > MAX_CHOICES:
            continue
        cond, yes, no = picked

        def at(x: Expr, k: int = k) -> Expr:
            return Load(e.tensor, (*e.index[:k], x, *e.index[k + 1 :]))

        return if_then_else(cond, at(yes), at(no))
    return None


def _choices(e: Expr) -> int:
    """How many alternatives the choices in `e` multiply to."""
    if not isinstance(e, Op):
        return 1
    n = 2 if e.name in ("min", "max", "select", "if_then_else") else 1
    for a in e.args:
        n *= _choices(a)
    return n


def _first_choice(e: Expr, depth: int) -> tuple[Expr, Expr, Expr] | None:
    """(condition, value where it holds, value where not) of the innermost affine choice in `e`."""
    if not isinstance(e, Op) or depth > MAX_CHOICES:
        return None
    for k, a in enumerate(e.args):
        inner = _first_choice(a, depth + 1)
        if inner is not None:
            cond, yes, no = inner
            return cond, _with_arg(e, k, yes), _with_arg(e, k, no)
    if e.name in ("min", "max") and all(to_lin(a) is not None for a in e.args):
        a, b = e.args
        return compare("le" if e.name == "min" else "ge", a, b), a, b
    if e.name in ("select", "if_then_else") and conditions(e.args[0]) is not None:
        cond, yes, no = e.args
        return cond, yes, no
    return None


def _with_arg(e: Op, k: int, by: Expr) -> Expr:
    return Op(e.name, (*e.args[:k], by, *e.args[k + 1 :]), e.dtype)


def value_range(e: Expr) -> tuple[Lin | None, Lin | None]:
    """Bounds of an integer expression that its form proves, inclusive; None where none is known."""
    affine = to_lin(e)
    if affine is not None:
        return affine, affine
    if not isinstance(e, Op):
        return _dtype_range(e)
    ranges = [value_range(a) for a in e.args]
    if e.name in ("min", "max"):
        return _min_max_range(e.name, ranges)
    if e.name == "floormod" and isinstance(e.args[1], Const) and e.args[1].value > 0:
        return Lin(const=0), Lin(const=int(e.args[1].value) - 1)
    if e.name in ("select", "if_then_else"):
        return (
            _constants(min, ranges[1][0], ranges[2][0]),
            _constants(max, ranges[1][1], ranges[2][1]),
        )
    if e.name == "cast" and e.args[0].dtype.is_integer and e.dtype.bits >= e.args[0].dtype.bits:
        return ranges[0] if e.dtype.kind == e.args[0].dtype.kind else _dtype_range(e.args[0])
    return _dtype_range(e)


def _min_max_range(
    name: str, ranges: list[tuple[Lin | None, Lin | None]]
) -> tuple[Lin | None, Lin | None]:
    (alo, ahi), (blo, bhi) = ranges
    if name == "min":
        high = _constants(min, ahi, bhi) or ahi or bhi
        return _constants(min, alo, blo), high
    low = _constants(max, alo, blo) or alo or blo
    return low, _constants(max, ahi, bhi)


def _constants(pick: Callable[[int, int], int], a: Lin | None, b: Lin | None) -> Lin | None:
    if a is None or b is None:
        return None
    if a == b:
        return a
    return Lin(const=pick(a.const, b.const)) if a.is_const and b.is_const else None


def _dtype_range(e: Expr) -> tuple[Lin | None, Lin | None]:
    d = e.dtype
    if d.kind == "bool":
        return Lin(const=0), Lin(const=1)
    if d.bits > 16 or not d.is_integer:
        return (Lin(const=0), None) if d.kind == "uint" else (None, None)
    low = 0 if d.kind == "uint" else -(1 << (d.bits - 1))
    return Lin(const=low), Lin(const=low + (1 << d.bits) - 1)


def axis_facts(axes: tuple[Axis, ...]) -> Conj:
    """`lower <= axis < upper` for each axis that carries its bounds."""
    facts: list[Fact] = []
    for a in axes:
        assert a.lower is not None and a.upper is not None
        here = Lin({a: 1})
        facts += [("ge", here - a.lower), ("ge", a.upper - here - 1)]
    return tuple(facts)
