"""The door to isl: sets and relations from rows of integers, and back to affine facts.

Nothing else in the library imports islpy; other modules use the objects that come from here and
their methods. All live in one private context. Every question is asked inside `budget`, which
limits what isl may spend on it; past that the answer is "could not prove it".
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import islpy

from tensorir.ir.affine import Atom, Conj, Fact, Lin, Region, floordiv
from tensorir.ir.expr import Axis, Var
from tensorir.support.errors import TensorIRError, internal
from tensorir.support.knobs import knobs

dt = islpy.dim_type
Set: TypeAlias = islpy.Set
Map: TypeAlias = islpy.Map
BasicSet: TypeAlias = islpy.BasicSet
Space: TypeAlias = islpy.Space
Sizes: TypeAlias = tuple[Var, ...]
Row: TypeAlias = dict[int, int]

_CONTEXT = islpy.Context()
_LOCK = threading.RLock()
_nested = 0
_SMALL = {i: islpy.Val.int_from_si(_CONTEXT, i) for i in range(-64, 65)}


class BudgetExceeded(TensorIRError):
    """isl spent its operations on one question: nothing was proved. Callers refuse."""


@contextmanager
def budget() -> Iterator[None]:
    """Limit the isl operations of the block to `knobs.isl_operations`; nested blocks share it.

    Raises
    ------
    BudgetExceeded
        The limit was reached. The context is usable again afterwards.
    """
    global _nested
    with _LOCK:
        if not _nested:
            _CONTEXT.set_max_operations(knobs.isl_operations)
            _CONTEXT.reset_operations()
        _nested += 1
        try:
            yield
        except islpy.Error as e:
            if "maximal number of operations" not in str(e):
                raise internal(f"isl: {e}", cause=e) from e
            spent = f"{knobs.isl_operations:,} isl operations were not enough to decide this"
            raise BudgetExceeded(
                spent, details="  try  a larger tensorir.knobs.isl_operations"
            ) from None
        finally:
            _nested -= 1
            if not _nested:
                _CONTEXT.set_max_operations(0)
                _CONTEXT.reset_operations()


# -- numbers, matrices, spaces
def val(i: int) -> Any:
    """`i` as an isl value."""
    v = _SMALL.get(i)
    if v is not None:
        return v
    if -(1 << 62) < i < 1 << 62:
        return islpy.Val.int_from_si(_CONTEXT, i)
    return islpy.Val.read_from_str(_CONTEXT, str(i))


def number(v: Any) -> int:
    """The value of an isl integer. What islpy has for that goes through text."""
    n: int = v.get_num_si()  # 0 for what 64 bits do not hold
    return n if n or v.is_zero() else int(v.to_python())


def matrix(rows: Sequence[Row], width: int) -> Any:
    """A matrix from sparse rows."""
    m = islpy.Mat.alloc(_CONTEXT, 0, width).add_zero_rows(len(rows))
    for r, row in enumerate(rows):
        for c, v in row.items():
            m = m.set_element_val(r, c, val(v))
    return m


@lru_cache(maxsize=512)
def set_space(sizes: Sizes, n: int) -> Space:
    """The space of sets with `n` dimensions over `sizes`."""
    space = islpy.Space.set_alloc(_CONTEXT, len(sizes), n)
    for k, s in enumerate(sizes):
        space = space.set_dim_name(dt.param, k, s.name)
    return space


@lru_cache(maxsize=512)
def map_space(sizes: Sizes, n_in: int, n_out: int) -> Space:
    """The space of maps from `n_in` to `n_out` dimensions over `sizes`."""
    space = islpy.Space.alloc(_CONTEXT, len(sizes), n_in, n_out)
    for k, s in enumerate(sizes):
        space = space.set_dim_name(dt.param, k, s.name)
    return space


def universe(sizes: Sizes, n: int) -> Set:
    """All points of `n` dimensions."""
    return islpy.Set.universe(set_space(sizes, n))


def empty(sizes: Sizes, n: int) -> Set:
    """No point of `n` dimensions."""
    return islpy.Set.empty(set_space(sizes, n))


def empty_map(sizes: Sizes, n_in: int, n_out: int) -> Map:
    """No pair."""
    return islpy.Map.empty(map_space(sizes, n_in, n_out))


def identity(sizes: Sizes, n: int) -> Map:
    """Each point of `n` dimensions with itself."""
    return islpy.Map.identity(map_space(sizes, n, n))


# -- from facts to isl
class Rows:
    """Constraint rows over columns: 0 the constant, then sizes, dimensions, existentials.

    Floors become existentials `q` with `n*q <= e <= n*q + n - 1`, one for each distinct floor.
    """

    __slots__ = ("column", "width", "eq", "ge", "_floors")

    def __init__(self, column: dict[Axis | Var, int], width: int) -> None:
        self.column, self.width = column, width
        self.eq: list[Row] = []
        self.ge: list[Row] = []
        self._floors: dict[tuple[Lin, int], int] = {}

    def row(self, e: Lin) -> Row:
        """The coefficients of `e`; may add existentials."""
        row: Row = {}
        const = e.const
        for a, v in e.terms.items():
            if isinstance(a, tuple):
                _, inner, n = a
                q = self._floor(inner, n)
                if a[0] == "//":
                    row[q] = row.get(q, 0) + v
                    continue
                row[q] = row.get(q, 0) - n * v
                for c, w in self.row(inner).items():
                    if c:
                        row[c] = row.get(c, 0) + v * w
                    else:
                        const += v * w
            else:
                c = self.column[a]
                row[c] = row.get(c, 0) + v
        if const:
            row[0] = const
        return row

    def fact(self, kind: Literal["eq", "ge"], e: Lin) -> None:
        (self.eq if kind == "eq" else self.ge).append(self.row(e))

    def equal(self, column: int, e: Lin) -> None:
        """The dimension in `column` equals `e`."""
        row = self.row(e)
        row[column] = row.get(column, 0) - 1
        self.eq.append(row)

    def existential(self) -> int:
        """A new column that is there for some integer."""
        self.width += 1
        return self.width - 1

    def _floor(self, e: Lin, n: int) -> int:
        q = self._floors.get((e, n))
        if q is None:
            row = self.row(e)
            q = self._floors[e, n] = self.existential()
            low, high = dict(row), {c: -v for c, v in row.items()}
            low[q], high[q] = -n, n
            high[0] = high.get(0, 0) + n - 1
            self.ge += [low, high]
        return q

    def to_set(self, space: Space) -> Set:
        eq, ge = matrix(self.eq, self.width), matrix(self.ge, self.width)
        return islpy.BasicSet.from_constraint_matrices(
            space, eq, ge, dt.cst, dt.param, dt.set, dt.div
        ).to_set()

    def to_map(self, space: Space) -> Map:
        eq, ge = matrix(self.eq, self.width), matrix(self.ge, self.width)
        return islpy.BasicMap.from_constraint_matrices(
            space, eq, ge, dt.cst, dt.param, dt.in_, dt.out, dt.div
        ).to_map()


def columns(sizes: Sizes, dims: Iterable[Axis | Var]) -> dict[Axis | Var, int]:
    """The column of each size and dimension."""
    column: dict[Axis | Var, int] = {s: 1 + k for k, s in enumerate(sizes)}
    for k, d in enumerate(dims, 1 + len(sizes)):
        column[d] = k
    return column


def to_set(dims: Sequence[Axis], sizes: Sizes, region: Region) -> Set:
    """The points of `dims` where one of the conjunctions of `region` holds.

    Examples
    --------
    >>> from tensorir.ir.expr import Axis, Var
    >>> from tensorir.ir.affine import Lin
    >>> i, n = Axis("i"), Var("N")
    >>> to_set((i,), (n,), ((("ge", Lin({i: 1})), ("ge", Lin({n: 1, i: -1}, -1))),))
    Set("[N] -> { [i0] : 0 <= i0 < N }")
    """
    space = set_space(sizes, len(dims))
    out: Set | None = None
    for conj in region:
        rows = Rows(columns(sizes, dims), 1 + len(sizes) + len(dims))
        for kind, e in conj:
            rows.fact(kind, e)
        piece = rows.to_set(space)
        out = piece if out is None else out.union(piece)
    return islpy.Set.empty(space) if out is None else out


def to_map(
    source: Sequence[Axis], target: Sequence[Axis], sizes: Sizes, region: Region,
    *, exists: Sequence[Axis] = (),
) -> Map:  # fmt: skip
    """Pairs of points of `source` and `target` where `region` holds for some values of `exists`.

    An axis that is in both means the target's dimension.
    """
    space = map_space(sizes, len(source), len(target))
    dims = (*source, *target, *exists)
    out: Map | None = None
    for conj in region:
        rows = Rows(columns(sizes, dims), 1 + len(sizes) + len(dims))
        for kind, e in conj:
            rows.fact(kind, e)
        piece = rows.to_map(space)
        out = piece if out is None else out.union(piece)
    return islpy.Map.empty(space) if out is None else out


def params(sizes: Sizes, conj: Conj) -> Set:
    """The sizes for which `conj` holds, as a parameter set for `intersect_params`."""
    return to_set((), sizes, (conj,)).params()


def equal_dims(sizes: Sizes, pairs: Iterable[tuple[int, int]], n_in: int, n_out: int) -> Map:
    """Pairs with input dimension `a` equal to output dimension `b` for each of `pairs`."""
    rows = Rows({}, 1 + len(sizes) + n_in + n_out)
    for a, b in pairs:
        rows.eq.append({1 + len(sizes) + a: 1, 1 + len(sizes) + n_in + b: -1})
    return rows.to_map(map_space(sizes, n_in, n_out))


def select(m: Map, order: Sequence[int]) -> Map:
    """`m` with the output dimensions in `order`; those left out are projected away."""
    n = m.dim(dt.out)
    if list(order) == list(range(n)):
        return m
    return m.apply_range(_equal_dims(tuple((p, k) for k, p in enumerate(order)), n, len(order)))


@lru_cache(maxsize=1024)
def _equal_dims(pairs: tuple[tuple[int, int], ...], n_in: int, n_out: int) -> Map:
    return equal_dims((), pairs, n_in, n_out)


def select_set(s: Set, places: Sequence[int], n: int) -> Set:
    """The points of `n` dimensions whose dimensions in `places` are a point of `s`."""
    return s.apply(_equal_dims(tuple(enumerate(places)), len(places), n))


def difference(s: Set, a: int, b: int) -> Set:
    """The values of dimension `a` less dimension `b` over a set."""
    return s.apply(_difference(s.dim(dt.set), a, b))


@lru_cache(maxsize=256)
def _difference(n: int, a: int, b: int) -> Map:
    rows = Rows({}, 2 + n)
    rows.eq.append({1 + a: 1, 1 + b: -1, 1 + n: -1})
    return rows.to_map(map_space((), n, 1))


# -- from isl to facts
def from_set(s: Set, dims: Sequence[Axis], sizes: Sizes, *, disjoint: bool = False) -> Region:
    """`s` as a union of conjunctions; its divs become floor atoms. Empty: no conjunction.

    Parameters
    ----------
    disjoint
        Whether no point may be in two of the conjunctions.
    """
    s = s.compute_divs()
    if disjoint and s.n_basic_set() > 1:
        s = s.make_disjoint().compute_divs()
    out: list[Conj] = []
    for piece in s.get_basic_sets():
        if piece.plain_is_empty():
            continue
        conj = facts(piece, dims, sizes)
        if conj is None:
            raise internal("a set whose divs were computed has an unknown one", state=str(s))
        out.append(conj)
    return tuple(out)


def facts(piece: BasicSet, dims: Sequence[Axis], sizes: Sizes) -> Conj | None:
    """The constraints of a basic set. None where it has an existential that is no floor.

    `sizes` and `dims` name its parameters and dimensions; parameters are matched by name.
    """
    named = {s.name: s for s in sizes}
    params_ = [named[_name(piece, k)] for k in range(piece.dim(dt.param))]
    atoms: list[Atom] = [*params_, *dims]
    divs = _divs(piece, atoms)
    if divs is None:
        return None
    atoms += [("//", e, n) for e, n in divs]
    if not divs:
        return tuple(_rows(piece, atoms))
    implied = _implied(divs)
    out: list[Fact] = []
    for kind, e in _rows(piece, atoms):
        e = _tidy(e)
        if kind == "eq" and next(iter(e.terms.values()), 0) < 0:
            e = -e
        if e.is_const and (e.const >= 0 if kind == "ge" else e.const == 0):
            continue
        if (kind, e) not in implied:
            out.append((kind, e))
    return tuple(out)


def _rows(piece: BasicSet, atoms: list[Atom]) -> Iterator[Fact]:
    order = (dt.cst, dt.param, dt.set, dt.div)
    width = 1 + len(atoms)
    both: tuple[tuple[Literal["eq", "ge"], Any], ...] = (
        ("eq", piece.equalities_matrix(*order)),
        ("ge", piece.inequalities_matrix(*order)),
    )
    for kind, m in both:
        for r in range(m.rows()):
            row = [number(m.get_element_val(r, c)) for c in range(width)]
            terms: Mapping[Atom, int] = {atoms[c - 1]: row[c] for c in range(1, width) if row[c]}
            yield kind, Lin(terms, row[0])


def _divs(piece: BasicSet, atoms: Sequence[Atom]) -> list[tuple[Lin, int]] | None:
    """Numerator and denominator of each div; earlier divs stand as floor atoms in later ones."""
    n = piece.dim(dt.div)
    n_params = piece.dim(dt.param)
    out: list[tuple[Lin, int]] = []
    for k in range(n):
        try:
            div = piece.get_div(k)
        except islpy.Error as error:
            if "maximal number of operations" in str(error):
                raise
            return None
        if div.is_nan():
            return None
        den = div.get_denominator_val()
        terms: dict[Atom, int] = {}
        for c, a in enumerate(atoms):
            where = (dt.param, c) if c < n_params else (dt.in_, c - n_params)
            v = number(div.get_coefficient_val(*where).mul(den))
            if v:
                terms[a] = v
        e = Lin(terms, number(div.get_constant_val().mul(den)))
        for c in range(k):
            v = number(div.get_coefficient_val(dt.div, c).mul(den))
            if v:
                e = e + floordiv(*out[c]) * v
        out.append((e, number(den)))
    return out


def _implied(divs: list[tuple[Lin, int]]) -> set[Fact]:
    """What holds of a floor by its meaning; isl keeps these among the constraints."""
    out: set[Fact] = set()
    for e, n in divs:
        q = Lin({("//", e, n): 1})
        for fact in (e - q * n, q * n + (n - 1) - e):
            out.add(("ge", fact))
            out.add(("ge", _tidy(fact)))
    return out


def _tidy(e: Lin) -> Lin:
    """`x - n*(x//n)` written as `x % n`, and floors in their normal form."""
    for a, v in tuple(e.terms.items()):
        if not isinstance(a, tuple) or a[0] != "//":
            continue
        _, inner, n = a
        m = -v // n if v % n == 0 else 0
        if m and all(e.coef(x) == m * w for x, w in inner.terms.items()):
            e = e.without(a) - inner * m + (inner % n) * m
        else:
            e = e.without(a) + floordiv(inner, n) * v
    return e


# -- points
def first_point(
    s: Set, sizes: Sizes, context: Conj = ()
) -> tuple[dict[str, int], list[int]] | None:
    """Smallest sizes, then the first point in lexicographic order; None where there is none.

    Returns
    -------
    tuple of dict and list, or None
        The value of each size by name, and the coordinates.
    """
    if context:
        s = s.intersect_params(params(sizes, context))
    s = s.align_params(set_space(sizes, 0).params())
    n = len(sizes)
    # Sizes become the first dimensions, so that lexmin makes them small before anything else.
    values = least(s.move_dims(dt.set, 0, dt.param, 0, n))
    if values is None:
        return None
    return {v.name: values[k] for k, v in enumerate(sizes)}, values[n:]


def least(s: Set) -> list[int] | None:
    """The first point of a set without sizes in lexicographic order; None where it is empty.

    Every dimension must have a least value.
    """
    if s.is_empty():
        return None
    out: list[int] = []
    for k in range(s.dim(dt.set)):
        value = _least_value(s, k)
        out.append(value)
        s = s.fix_val(dt.set, k, val(value))
    return out


def _least_value(s: Set, k: int) -> int:
    """The least value of dimension `k` of a set that is not empty.

    isl's `lexmin` finds nothing in some sets with floors that do have points, and `dim_min_val`
    is sometimes too small; only tests for emptiness are relied on, of which a good guess takes two.
    """
    guess = s.dim_min_val(k)
    if (
        guess.is_int()
        and not s.fix_val(dt.set, k, guess).is_empty()
        and s.upper_bound_val(dt.set, k, guess.sub(val(1))).is_empty()
    ):
        return number(guess)
    least_known = coordinates(s.sample_point())[k]
    step = 1
    while True:
        below = s.upper_bound_val(dt.set, k, val(least_known - step))
        if not below.is_empty():
            least_known = coordinates(below.sample_point())[k]
            step *= 2
        elif step == 1:
            return least_known
        else:
            step = 1


def coordinates(point: Any) -> list[int]:
    """The coordinates of an isl point."""
    n = point.get_space().dim(dt.set)
    return [number(point.get_coordinate_val(dt.set, k)) for k in range(n)]


def _name(s: Any, k: int) -> str:
    return str(s.get_dim_name(dt.param, k))


def at_sizes(s: Set | Map, sizes: Sizes, values: Mapping[str, int]) -> Any:
    """A set or map with its sizes given."""
    for k in range(s.dim(dt.param)):
        name = _name(s, k)
        if name in values:
            s = s.fix_val(dt.param, k, val(values[name]))
    return s.project_out(dt.param, 0, s.dim(dt.param))
