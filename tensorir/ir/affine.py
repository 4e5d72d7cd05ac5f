"""Affine expressions with integer coefficients: what indices, bounds and guards are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, Union

if TYPE_CHECKING:
    from tensorir.ir.expr import Axis, Var

FloorAtom: TypeAlias = tuple[Literal["//", "%"], "Lin", int]
Atom: TypeAlias = Union["Axis", "Var", FloorAtom]


class Lin:
    """A sum of atoms with integer coefficients, plus a constant. Immutable; compares by value.

    An atom is an axis, a symbolic size, or `("//" | "%", Lin, int)`: floor division or its
    remainder by a positive constant. Atoms keep the order in which they came, so that printing
    is deterministic.
    """

    __slots__ = ("terms", "const", "_hash")

    def __init__(self, terms: Mapping[Atom, int] | None = None, const: int = 0) -> None:
        self.terms: dict[Atom, int] = {a: v for a, v in terms.items() if v} if terms else {}
        self.const = const
        self._hash = 0

    # -- arithmetic
    def __add__(self, other: LinLike) -> Lin:
        if isinstance(other, int):
            return _make(self.terms, self.const + other)
        o = lin(other)
        terms = dict(self.terms)
        for a, v in o.terms.items():
            s = terms.get(a, 0) + v
            if s:
                terms[a] = s
            else:
                del terms[a]
        return _make(terms, self.const + o.const)

    __radd__ = __add__

    def __mul__(self, k: int) -> Lin:
        if k == 0:
            return ZERO
        return _make({a: v * k for a, v in self.terms.items()}, self.const * k)

    __rmul__ = __mul__

    def __neg__(self) -> Lin:
        return self * -1

    def __sub__(self, other: LinLike) -> Lin:
        if isinstance(other, int):
            return _make(self.terms, self.const - other)
        o = lin(other)
        terms = dict(self.terms)
        for a, v in o.terms.items():
            s = terms.get(a, 0) - v
            if s:
                terms[a] = s
            else:
                del terms[a]
        return _make(terms, self.const - o.const)

    def __rsub__(self, other: LinLike) -> Lin:
        return lin(other) + self * -1

    def __floordiv__(self, n: int) -> Lin:
        return floordiv(self, n)

    def __mod__(self, n: int) -> Lin:
        return floormod(self, n)

    # -- comparison by value
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lin) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash((frozenset(self.terms.items()), self.const)) or 1
        return self._hash

    def __getstate__(self) -> tuple[dict[Atom, int], int]:
        return self.terms, self.const

    def __setstate__(self, state: tuple[dict[Atom, int], int]) -> None:
        self.terms, self.const = state
        self._hash = 0

    # -- questions
    @property
    def is_const(self) -> bool:
        return not self.terms

    def coef(self, atom: Atom) -> int:
        return self.terms.get(atom, 0)

    def without(self, atom: Atom) -> Lin:
        """The same sum less the term of `atom`."""
        terms = dict(self.terms)
        terms.pop(atom, None)
        return _make(terms, self.const)

    def atoms(self) -> Iterator[Axis | Var]:
        """Axes and sizes in it, those inside floors included; may repeat."""
        for a in self.terms:
            if isinstance(a, tuple):
                yield from a[1].atoms()
            else:
                yield a

    def involves(self, atom: Atom) -> bool:
        return any(a is atom for a in self.atoms())

    def subst(self, env: Mapping[Axis | Var, Lin]) -> Lin:
        """Every atom in `env` replaced by its expression, inside floors too."""
        for a in self.terms:
            if isinstance(a, tuple) or a in env:
                break
        else:
            return self
        terms: dict[Atom, int] = {}
        const = self.const
        for a, v in self.terms.items():
            if isinstance(a, tuple):
                inner = a[1].subst(env)
                new = floordiv(inner, a[2]) if a[0] == "//" else floormod(inner, a[2])
            elif a in env:
                new = env[a]
            else:
                _add(terms, a, v)
                continue
            const += new.const * v
            for b, w in new.terms.items():
                _add(terms, b, w * v)
        return _make(terms, const)

    def evaluate(self, env: Mapping[Axis | Var, int]) -> int:
        """Its value where `env` gives every axis and size."""
        total = self.const
        for a, v in self.terms.items():
            if isinstance(a, tuple):
                x = a[1].evaluate(env)
                total += v * (x // a[2] if a[0] == "//" else x % a[2])
            else:
                total += v * env[a]
        return total

    def text(self, name: Callable[[Axis | Var], str] | None = None) -> str:
        """As people read it: `96*ic + 6*ir + ii - 1`. `name` gives each atom its name."""
        parts: list[str] = []
        for a, v in self.terms.items():
            t = _atom_text(a, name)
            if v != 1 and isinstance(a, tuple):
                t = f"({t})"
            parts.append(t if v == 1 else f"-{t}" if v == -1 else f"{v}*{t}")
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts).replace("+ -", "- ")

    __str__ = text

    def __repr__(self) -> str:
        return f"Lin({self.text()})"


LinLike: TypeAlias = Union[Lin, int, "Axis", "Var"]


def _make(terms: dict[Atom, int], const: int) -> Lin:
    """Without the check for zero coefficients; the caller has none."""
    r = Lin.__new__(Lin)
    r.terms, r.const, r._hash = terms, const, 0
    return r


def _add(terms: dict[Atom, int], a: Atom, v: int) -> None:
    """Add a term to a sum."""
    total = terms.get(a, 0) + v
    if total:
        terms[a] = total
    else:
        terms.pop(a, None)


ZERO = _make({}, 0)


def lin(x: LinLike) -> Lin:
    """`x` as an affine expression."""
    if isinstance(x, Lin):
        return x
    if isinstance(x, int):
        return _make({}, x)
    return _make({x: 1}, 0)


def floordiv(e: Lin, n: int) -> Lin:
    """floor(e / n), n > 0; terms that divide come out of the floor."""
    if n == 1:
        return e
    out = _make({a: v // n for a, v in e.terms.items() if v % n == 0}, 0)
    rest = _make({a: v for a, v in e.terms.items() if v % n}, e.const)
    if not rest.terms:
        return out + rest.const // n
    whole = rest.const // n
    return out + _make({("//", rest - whole * n, n): 1}, whole)


def floormod(e: Lin, n: int) -> Lin:
    """e - n*floor(e / n), n > 0; terms that divide vanish."""
    if n == 1:
        return ZERO
    rest = _make({a: v % n for a, v in e.terms.items() if v % n}, e.const % n)
    return _make({("%", rest, n): 1}, 0) if rest.terms else rest


def rejoin(e: Lin) -> Lin:
    """`e` with each n*(x//n) + x%n as x, whatever both are multiplied by.

    Examples
    --------
    >>> from tensorir.ir.expr import Axis
    >>> x = lin(Axis("x"))
    >>> rejoin((x // 9) * 18 + ((x % 9) // 3) * 6 + (x % 3) * 2).text()
    '2*x'
    >>> rejoin((x // 20) * 20 + ((x // 5) % 4) * 5 + x % 5).text()
    'x'
    """
    while (found := _parts(e)) is not None:
        quotient, remainder, whole = found
        e = e.without(quotient).without(remainder) + whole
    return e


def _parts(e: Lin) -> tuple[FloorAtom, FloorAtom, Lin] | None:
    """A quotient and a remainder of one expression in `e`, and what they make up."""
    for r, k in e.terms.items():
        if not isinstance(r, tuple) or r[0] != "%":
            continue
        n = r[2]
        for q, v in e.terms.items():
            if not isinstance(q, tuple) or q[0] != "//" or v != k * n:
                continue
            if q[2] == n and _residue(q[1], n) == _residue(r[1], n):
                return q, r, q[1] * k
            # y // (m*n) is (y // m) // n
            m, rest = divmod(q[2], n)
            if not rest and floordiv(q[1], m) == r[1]:
                return q, r, r[1] * k
    return None


def _residue(e: Lin, n: int) -> Lin:
    """`e` modulo `n`, remainders by multiples of `n` opened."""
    for a, v in e.terms.items():
        if isinstance(a, tuple) and a[0] == "%" and a[2] % n == 0:
            return _residue(e.without(a) + a[1] * v, n)
    return _make({a: v % n for a, v in e.terms.items() if v % n}, e.const % n)


def _atom_text(a: Atom, name: Callable[[Axis | Var], str] | None) -> str:
    if not isinstance(a, tuple):
        return name(a) if name else a.name
    inner = a[1].text(name)
    if list(a[1].terms.values()) != [1] or a[1].const or isinstance(next(iter(a[1].terms)), tuple):
        inner = f"({inner})"
    return f"{inner}{a[0]}{a[2]}"


# A fact is ("ge", e): e >= 0, or ("eq", e): e == 0. A conjunction is a tuple of them; a region is
# a union of conjunctions.
Fact: TypeAlias = tuple[Literal["ge", "eq"], Lin]
Conj: TypeAlias = tuple[Fact, ...]
Region: TypeAlias = tuple[Conj, ...]


def subst_facts(facts: Iterable[Fact], env: Mapping[Axis | Var, Lin]) -> Conj:
    """Each fact with the atoms of `env` replaced."""
    return tuple((k, e.subst(env)) for k, e in facts)


def fact_text(fact: Fact, name: Callable[[Axis | Var], str] | None = None) -> str:
    """`i - 3 >= 0` or `i - 3 == 0`."""
    return f"{fact[1].text(name)} {'>=' if fact[0] == 'ge' else '=='} 0"
