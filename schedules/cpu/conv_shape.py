"""What a schedule of a convolution must know of it, read from the structure of its statements."""

from __future__ import annotations

from dataclasses import dataclass

from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Const, Expr, Op, Ref
from tensorir.ir.statement import Access, Statement
from tensorir.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Convolution:
    """`out[n, f, y, x] = sum over c, r of data[n, c, s*y + r] * weight[f, c, r]`, and around it.

    Attributes
    ----------
    update
        The statement that adds a product.
    padding
        The stage that surrounds the input with a constant, if there is one.
    finish
        Whether a last step follows the sum (a bias, a cast).
    tail
        Elementwise stages after it, the last first to be computed: none, or the one that is left
        once those before it are inlined.
    inlined
        Stages to be inlined into the tail, in order.
    data, weight
        The reads of the product.
    batch
        Iterators of images, which neither a window nor the weight knows.
    filters
        The iterator that only the weight knows, or that chooses a group too.
    pixels
        Iterators of places, outer to inner; the last has the longest rows.
    reduce
        Iterators of the sum, in order.
    per_group
        Filters of a group, 0 without groups.
    """

    update: Statement
    padding: str | None
    finish: bool
    tail: str | None
    inlined: tuple[str, ...]
    data: Access
    weight: Access
    batch: tuple[Axis, ...]
    filters: Axis
    pixels: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    per_group: int

    @property
    def stage(self) -> str:
        return self.update.stage

    @property
    def channels_last(self) -> bool:
        """Whether neighbours in memory are filters, not places."""
        return self.update.writes[0].affine[-1] == Lin({self.filters: 1})

    @property
    def guarded(self) -> bool:
        """Whether some products are left out: those of a transposed convolution that fall on no
        input."""
        return not is_box(self.update)

    @property
    def spread(self) -> int:
        """How many places in a row share a place of the input, each with taps of its own."""
        index = self.data.affine[-1]
        x = self.pixels[-1]
        found = [a[2] for a in index.terms if isinstance(a, tuple) and a[1].involves(x)]
        return found[0] if found and self.guarded else 1

    @property
    def stride(self) -> int:
        """How far neighbours of a row of places are apart in the input; 0 where that varies."""
        x = self.pixels[-1]
        index = self.data.affine[-1]
        if any(isinstance(a, tuple) and a[0] == "%" and a[1] == Lin({x: 1}) for a in index.terms):
            return 1
        return abs(index.coef(x))

    @property
    def taps(self) -> int:
        """Products in one sum."""
        total = 1
        for a in self.reduce:
            total *= extent(a)
        return total


def extent(a: Axis) -> int:
    """The extent of an axis between constants; 0 where it is not constant."""
    if a.lower is None or a.upper is None or not (a.upper - a.lower).is_const:
        return 0
    return max((a.upper - a.lower).const, 0)


def convolution_of(s: Schedule) -> Convolution | None:
    """The convolution that a fresh schedule holds, or None."""
    if s.step is not None:
        return None
    updates = [x for x in s.program.statements if x.role == "update"]
    if len(updates) != 1:
        return None
    u = updates[0]
    around = around_of(s, u)
    product = product_of(u)
    if around is None or product is None or len(u.domain) != 1 or len(u.writes) != 1:
        return None
    if len(product[0].index) < 3:
        return None  # a product of matrices
    found = _roles(u, *product)
    if found is None or (len(found[2]) > 2 and not is_box(u)):
        return None
    batch, filters, pixels, reduce, per_group = found
    padding, finish, tail, inlined = around
    return Convolution(
        u, padding, finish, tail, inlined, *product, batch, filters, pixels, reduce, per_group
    )


def product_of(u: Statement) -> tuple[Access, Access] | None:
    """Data and weight of `sum + data * weight`, either perhaps converted."""
    body = u.bodies[0]
    if not isinstance(body, Op):
        return None
    if body.name == "fma":
        factors = body.args[:2]
        rest = body.args[2]
    elif body.name == "add" and isinstance(body.args[1], Op) and body.args[1].name == "mul":
        rest, factors = body.args[0], body.args[1].args
    else:
        return None
    slots = [_slot(f) for f in factors]
    if not isinstance(rest, Ref) or rest.slot != 0 or None in slots or slots[0] == slots[1]:
        return None
    a, b = (u.reads[k] for k in slots if k is not None)
    if not (a.exact and b.exact) or a.array is b.array or a.guard != ((),) or b.guard != ((),):
        return None
    return a, b


def _slot(e: Expr) -> int | None:
    """Which read a factor is, a conversion aside."""
    if isinstance(e, Op) and e.name == "cast":
        e = e.args[0]
    return e.slot if isinstance(e, Ref) and e.slot > 0 else None


def around_of(
    s: Schedule, u: Statement
) -> tuple[str | None, bool, str | None, tuple[str, ...]] | None:
    """Padding, whether a step finishes the sum, and what follows; None for other stages."""
    padding, tails, finish, seen = None, [], False, False
    for x in s.program.statements:
        if x.stage == u.stage:
            finish, seen = finish or x.role == "finish", True
        elif x.role != "compute" or len(x.writes) != 1 or len(x.domain) != 1:
            return None
        elif not seen:
            if padding is not None or not is_padding(x):
                return None
            padding = x.stage
        else:
            tails.append(x)
    for k, x in enumerate(tails):
        before = tails[k - 1].stage if k else u.stage
        reads = [r for r in x.reads if r.array.role == "temp"]
        if not reads or any(r.array.name != before or not r.exact for r in reads):
            return None
        if {r.index for r in reads} != {reads[0].index} or x.writes[0].array.role == "input":
            return None
        if k and not in_place(reads[0], x.iters):
            return None
        if k < len(tails) - 1 and x.writes[0].array.role != "temp":
            return None
    names = [x.stage for x in tails]
    return padding, finish, names[-1] if names else None, tuple(names[:-1])


def is_box(x: Statement) -> bool:
    """Whether each iterator has a range of its own."""
    atoms = [list(e.atoms()) for conj in x.domain for _, e in conj]
    alone = all(sum(isinstance(a, Axis) for a in found) < 2 for found in atoms)
    return len(x.domain) == 1 and alone


def in_place(access: Access, iters: tuple[Axis, ...]) -> bool:
    """Whether an access is to the cell that the iterators name; one of a single value may be 0."""
    if not access.exact or len(access.index) != len(iters):
        return False
    return all(
        e == Lin({a: 1}) or (extent(a) == 1 and e == Lin({}, 0))
        for e, a in zip(access.affine, iters, strict=True)
    )


def is_padding(x: Statement) -> bool:
    """Whether a stage copies an input into the middle of a constant."""
    body = x.bodies[0]
    return (
        len(x.reads) == 1
        and isinstance(body, Op)
        and body.name == "if_then_else"
        and isinstance(body.args[1], Ref)
        and isinstance(body.args[2], Const)
        and x.writes[0].array.role == "temp"
    )


def _roles(
    u: Statement, data: Access, weight: Access
) -> tuple[tuple[Axis, ...], Axis, tuple[Axis, ...], tuple[Axis, ...], int] | None:
    """Batch, filters, places, sums and filters of a group."""
    out = u.writes[0]
    if not out.exact or any(len(e.terms) != 1 or e.const for e in out.affine):
        return None
    order = [next(iter(e.terms)) for e in out.affine]
    if any(isinstance(a, tuple) or e.coef(a) != 1 for a, e in zip(order, out.affine, strict=True)):
        return None
    kept = [a for a in order if isinstance(a, Axis)]
    reduce = tuple(a for a in u.iters if not _among(a, kept))
    of_data, of_weight = _axes(data), _axes(weight)
    if not reduce or any(not _among(a, of_data) or not _among(a, of_weight) for a in reduce):
        return None
    filters = [a for a in kept if _among(a, of_weight)]
    places = [a for a in kept if not _among(a, of_weight)]
    if len(filters) != 1 or not places or any(not _among(a, of_data) for a in places):
        return None
    if any(not extent(a) for a in (*filters, *reduce)) or not _plain(weight, filters[0]):
        return None
    per_group = _per_group(data, filters[0])
    if per_group is None:
        return None
    alone = [a for a in places if any(e == Lin({a: 1}) for e in data.affine)]
    batch = tuple(alone[:1]) if len(places) > 1 and places[0] in alone[:1] else ()
    pixels = tuple(places[len(batch) :])
    if any(not extent(a) for a in pixels):
        return None
    return batch, filters[0], pixels, reduce, per_group


def _plain(weight: Access, filters: Axis) -> bool:
    """Whether each index of the weight is one iterator, or constant."""
    singles = all(len(e.terms) <= 1 for e in weight.affine)
    return singles and any(e == Lin({filters: 1}) for e in weight.affine)


def _per_group(data: Access, filters: Axis) -> int | None:
    """Filters that share their channels: 0 where all do; None where the index is another."""
    if not _among(filters, _axes(data)):
        return 0
    found = {
        a[2]
        for e in data.affine
        for a in e.terms
        if isinstance(a, tuple) and a[0] == "//" and a[1] == Lin({filters: 1})
    }
    direct = any(a is filters for e in data.affine for a in e.terms)
    return found.pop() if len(found) == 1 and not direct else None


def _axes(access: Access) -> list[Axis]:
    return [a for e in access.affine for a in e.atoms() if isinstance(a, Axis)]


def _among(a: Axis, axes: list[Axis]) -> bool:
    return any(x is a for x in axes)


__all__ = [
    "Convolution",
    "around_of",
    "convolution_of",
    "extent",
    "in_place",
    "is_box",
    "is_padding",
    "product_of",
]
