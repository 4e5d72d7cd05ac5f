"""Sums of products in integers: what a constant added to one factor does to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorir.ir.affine import Conj, Lin, subst_facts
from tensorir.ir.build import cast, const
from tensorir.ir.dtype import DType
from tensorir.ir.expr import Axis, Const, Expr, Op, Ref, Var
from tensorir.ir.numerics import limits
from tensorir.ir.statement import Access, Array, May, Statement
from tensorir.ir.visit import nodes, rewrite
from tensorir.poly.model import Program
from tensorir.schedule import partial
from tensorir.schedule.resolve import fail

__all__ = [
    "Product", "Split", "converted", "is_zero", "narrowed", "product", "require_range", "split",
    "sums", "vanishes",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A term that is summed: `(read + constant) * other`; `term` is it without the constant."""

    read: Expr
    constant: int
    other: Expr
    term: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """An update that sums `read * other`, and what is missing: `rest` times the sums of `other`.

    `kept` are the iterators on which `other` depends beside those that are summed over.
    """

    stmt: Statement
    other: Expr
    rest: int
    kept: tuple[Axis, ...]


def require_range(of: DType, to: DType, by: int, what: str, name: str) -> None:
    """Refuse a type that does not hold every number of another, moved by a constant."""
    if of == to and not by:
        return
    if of.is_integer and to.is_integer:
        low, high = limits(of)
        least, most = limits(to)
        if least <= low + by and high + by <= most:
            return
        moved = f" plus {by}" if by else ""
        fail(
            f"{what}: {to} does not hold every number of {name}{moved}",
            why=f"{of}{moved} goes from {low + by} to {high + by}, {to} from {least} to {most}.",
        )
    if by:
        fail(f"{what}: by= moves integers into integers, not {of} into {to}")
    wider = to.is_float and to.name in _HOLDS.get(of.name, ())
    if not wider:
        fail(f"{what}: {to} does not hold every number of {name}, which is {of}")


_HOLDS = {
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
    "int8": ("float16", "bfloat16", "float32", "float64"),
    "uint8": ("float16", "bfloat16", "float32", "float64"),
    "int16": ("float32", "float64"),
    "uint16": ("float32", "float64"),
    "int32": ("float64",),
    "uint32": ("float64",),
}


def converted(stmt: Statement, array: Array, to: Array, what: str) -> Statement:
    """`stmt` reading `to` where it read `array`, which it must convert at once."""
    slots = {k for k, r in enumerate(stmt.reads) if r.array is array}
    for access in (*stmt.reads, *stmt.writes):
        places = [i.value for i in access.index if isinstance(i, May)]
        if any(_reads(e, slots) for i in places for e in nodes(i)):
            fail(
                f"{what}: {stmt.name} takes a place in {access.array.name} from {array.name}",
                why="only a tensor whose values are converted may be read in another type.",
            )
    for body in stmt.bodies:
        for e in nodes(body):
            if not isinstance(e, Op) or not any(_reads(a, slots) for a in e.args):
                continue
            if e.name != "cast" or not _keeps(array.dtype, to.dtype, e.dtype):
                fail(
                    f"{what}: {stmt.name} computes with {array.name} as {array.dtype}",
                    why="only a tensor that is converted at once may be read in another type.",
                )
        if _reads(body, slots):
            fail(f"{what}: {stmt.name} copies {array.name} as it is")

    def turn(e: Expr) -> Expr | None:
        if isinstance(e, Op) and e.name == "cast" and _reads(e.args[0], slots):
            inner = e.args[0]
            assert isinstance(inner, Ref)
            return cast(Ref(inner.slot, to.dtype), e.dtype)
        return None

    reads = tuple(replace(r, array=to) if r.array is array else r for r in stmt.reads)
    return replace(stmt, reads=reads, bodies=tuple(rewrite(b, turn) for b in stmt.bodies))


def _reads(e: Expr, slots: set[int]) -> bool:
    return isinstance(e, Ref) and e.slot in slots


def _keeps(of: DType, through: DType, to: DType) -> bool:
    """Whether a conversion gives the same by way of a type that holds every number."""
    if of.is_integer and through.is_integer:
        return True  # wrapping, or rounding, the same number
    return of.is_float == to.is_float or not of.is_float


def split(stmt: Statement, slots: Sequence[int]) -> Split | None:
    """How an update sums products of a converted read; None where it does otherwise."""
    body = stmt.bodies[0]
    if stmt.role != "update" or stmt.combiner is None or stmt.combiner.name != "sum":
        return None
    if not isinstance(body, Op) or body.name != "add" or not body.dtype.is_integer:
        return None
    state, term = body.args
    if not (isinstance(state, Ref) and state.slot == 0):
        state, term = term, state
    if not (isinstance(state, Ref) and state.slot == 0):
        return None
    if not isinstance(term, Op) or term.name != "mul":
        return None
    one, two = term.args
    for factor, other in ((one, two), (two, one)):
        found = _read_plus(factor, set(slots))
        if found is not None and not _mentions(other, {0, *slots}):
            bare = found[0] * other if factor is one else other * found[0]
            return Split(found[0], found[1], other, bare)
    return None


def _read_plus(e: Expr, slots: set[int]) -> tuple[Expr, int] | None:
    """A converted read and the constant that is added to it."""
    if isinstance(e, Op) and e.name in ("add", "sub"):
        a, b = e.args
        if isinstance(b, Const) and isinstance(b.value, int):
            inner = _read_plus(a, slots)
            sign = 1 if e.name == "add" else -1
            return None if inner is None else (inner[0], inner[1] + sign * b.value)
        if e.name == "add" and isinstance(a, Const) and isinstance(a.value, int):
            inner = _read_plus(b, slots)
            return None if inner is None else (inner[0], inner[1] + a.value)
        return None
    plain = e.args[0] if isinstance(e, Op) and e.name == "cast" else e
    return (e, 0) if _reads(plain, slots) else None


def _mentions(e: Expr, slots: set[int]) -> bool:
    return any(_reads(x, slots) for x in nodes(e))


def product(stmt: Statement, slots: Sequence[int], by: int, what: str) -> Product:
    """The update with the bare read as a factor; `by` was added to what is read already."""
    found = split(stmt, slots)
    if found is None:
        fail(
            f"{what}: {stmt.name} is not a sum of products of integers with that tensor",
            why="a constant can be taken out of (x + c) * y, summed, alone.",
        )
    body = stmt.bodies[0]
    d = body.dtype
    made = replace(stmt, bodies=(Ref(0, d) + found.term,))
    summed = set(partial.reduction_iters(stmt))
    used = _iterators(stmt, found.other)
    kept = tuple(i for i in stmt.iters if i in used and i not in summed)
    return Product(made, found.other, found.constant - by, kept)


def _iterators(stmt: Statement, e: Expr) -> set[Axis]:
    """The iterators on which an expression depends."""
    out: set[Axis] = set()
    for x in nodes(e):
        if isinstance(x, Axis):
            out.add(x)
        elif isinstance(x, Ref):
            for i in stmt.reads[x.slot].index:
                if not isinstance(i, Lin):
                    fail(f"retype: {stmt.name} reads the other factor by a loaded index")
                out |= {a for a in i.atoms() if isinstance(a, Axis)}
    return out


def sums(program: Program, p: Product, name: str, dtype: DType) -> tuple[Array, list[Statement]]:
    """The array of the sums of the other factor, and the two statements that compute it."""
    stmt = p.stmt
    summed = [i for i in stmt.iters if i in set(partial.reduction_iters(stmt))]
    new = {i: Axis(i.name, i.lower, i.upper, reduce=i.reduce) for i in (*p.kept, *summed)}
    env: dict[Axis | Var, Lin] = {i: Lin({a: 1}) for i, a in new.items()}
    whole = _facts(stmt, set(new))
    shape = tuple(_extent(stmt, i) for i in p.kept)
    array = Array(name, dtype, shape, "temp")
    kept = tuple(new[i] for i in p.kept)
    cell = (Access(array, tuple(Lin({a: 1}) for a in kept)),)
    outer = tuple(f for f in whole if not any(a in set(summed) for a in f[1].atoms()))
    start = Statement(
        f"{name}.init", name, kept, (subst_facts(outer, env),), cell, (), (const(0, dtype),), "init"
    )
    slots = sorted({x.slot for x in nodes(p.other) if isinstance(x, Ref)})
    by = {old: Ref(k + 1, stmt.reads[old].array.dtype) for k, old in enumerate(slots)}

    def turn(e: Expr) -> Expr | None:
        if isinstance(e, Ref):
            return by.get(e.slot)
        return new.get(e) if isinstance(e, Axis) else None

    reads = tuple(
        replace(r, index=tuple(i.subst(env) if isinstance(i, Lin) else i for i in r.index))
        for r in (stmt.reads[k] for k in slots)
    )
    body = Ref(0, dtype) + rewrite(p.other, turn)
    update = Statement(
        name, name, (*kept, *(new[i] for i in summed)), (subst_facts(whole, env),), cell,
        (*cell, *reads), (body,), "update", stmt.combiner,
    )  # fmt: skip
    return array, [start, update]


def _facts(stmt: Statement, iters: set[Axis]) -> Conj:
    """What is said of some iterators; refuses a domain in which others say something of them."""
    if len(stmt.domain) != 1:
        fail(f"retype: the domain of {stmt.name} has several parts")
    out = []
    for f in stmt.domain[0]:
        axes = {a for a in f[1].atoms() if isinstance(a, Axis)}
        if axes <= iters:
            out.append(f)
        elif axes & iters:
            fail(f"retype: the domain of {stmt.name} is not a box")
    return tuple(out)


def _extent(stmt: Statement, it: Axis) -> Lin:
    """How many cells an array needs along an iterator."""
    for kind, e in stmt.domain[0]:
        rest = e.without(it)
        if kind == "ge" and e.coef(it) == -1 and all(isinstance(a, Var) for a in rest.atoms()):
            return rest + 1
    fail(f"retype: {it.name!r} has no bound in sizes alone")


# -- how large a sum gets
def narrowed(stmt: Statement, to: DType, what: str) -> Expr:
    """The body of a sum of integers in a smaller type that holds every value it can have."""
    d, body = stmt.bodies[0].dtype, stmt.bodies[0]
    count = _instances(stmt)
    adds = isinstance(body, Op) and body.name == "add" and _is_state(body.args[0])
    sums = stmt.combiner is not None and stmt.combiner.name == "sum" and d.is_integer
    if not (sums and adds and isinstance(body, Op) and to.is_integer):
        fail(f"{what}: {stmt.name} is not a sum of integers")
    term = body.args[1]
    if isinstance(term, Op) and term.name == "cast" and term.args[0].dtype.is_integer:
        term = term.args[0]
    low, high = _range(term)
    least, most = limits(to)
    if count is None or low * count < least or high * count > most:
        many = "a number of terms that is not constant" if count is None else f"{count} terms"
        fail(
            f"{what}: {to} does not hold every sum of {stmt.name}",
            why=f"it has {many} from {low} to {high}; {to} goes from {least} to {most}.",
        )
    return Ref(0, to) + cast(term, to)


def _instances(stmt: Statement) -> int | None:
    """At most how many terms one cell sums; None where no constant bounds it."""
    count = 1
    for i in partial.reduction_iters(stmt):
        bounds = [e for conj in stmt.domain[:1] for k, e in conj if k == "ge" and e.coef(i)]
        tops = [e.const + 1 for e in bounds if e.coef(i) == -1 and e.without(i).is_const]
        if len(stmt.domain) != 1 or not tops or Lin({i: 1}) not in bounds:
            return None
        count *= max(0, min(tops))
    return count


def _range(e: Expr) -> tuple[int, int]:
    """The least and the greatest value of an integer expression, as far as its operands tell."""
    least, most = (int(x) for x in limits(e.dtype))
    if isinstance(e, Const) and isinstance(e.value, int):
        return e.value, e.value
    if isinstance(e, Op) and all(a.dtype.is_integer for a in e.args):
        known = [_range(a) for a in e.args]
        found: tuple[int, int] | None = None
        if e.name == "cast":
            found = known[0]
        elif e.name == "add":
            found = known[0][0] + known[1][0], known[0][1] + known[1][1]
        elif e.name == "sub":
            found = known[0][0] - known[1][1], known[0][1] - known[1][0]
        elif e.name == "mul":
            ends = [a * b for a in known[0] for b in known[1]]
            found = min(ends), max(ends)
        if found is not None and least <= found[0] and found[1] <= most:
            return found
    return least, most


# -- zeros
def is_zero(e: Expr) -> bool:
    """Whether an expression is the constant 0."""
    return isinstance(e, Const) and not isinstance(e.value, bool) and e.value == 0


def vanishes(stmt: Statement, slots: Sequence[int]) -> bool:
    """Whether an update adds nothing where the reads in `slots` are zero, whatever the others.

    A product of floats is zero for sure only where both factors are: 0 times infinity is not.
    """
    body, zero = stmt.bodies[0], set(slots)
    if not isinstance(body, Op):
        return False
    if body.name == "fma":
        a, b, c = body.args
        return _is_state(c) and _product_is_zero(a, b, zero)
    if body.name != "add":
        return False
    a, b = body.args
    return (_is_state(a) and _zero(b, zero)) or (_is_state(b) and _zero(a, zero))


def _is_state(e: Expr) -> bool:
    return isinstance(e, Ref) and e.slot == 0


def _zero(e: Expr, zero: set[int]) -> bool:
    if isinstance(e, Ref):
        return e.slot in zero
    if is_zero(e):
        return True
    if not isinstance(e, Op):
        return False
    if e.name == "cast":
        return _zero(e.args[0], zero)
    if e.name == "mul":
        return _product_is_zero(e.args[0], e.args[1], zero)
    if e.name in ("add", "sub"):
        return all(_zero(a, zero) for a in e.args)
    return False


def _product_is_zero(a: Expr, b: Expr, zero: set[int]) -> bool:
    found = (_zero(a, zero), _zero(b, zero))
    sure = all(found) or any(f and isinstance(x, Const) for f, x in zip(found, (b, a), strict=True))
    return sure if a.dtype.is_float else any(found)
