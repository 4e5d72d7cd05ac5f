"""Random expressions: stages that read each other through shifts, choices, loads and reductions.

Where `programs` draws from known kinds of computation, this builds declarations term by term.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

import tensorir as tir
from tests.properties.programs import Case, Sizes

_TYPES = ["float32"] * 4 + ["int32", "float64", "int8", "uint8", "float16", "int64"]
_FOLDS = ["sum", "sum", "max", "min", "prod", "argmax"]


class Wild:
    """A declaration in the making: stages of one shape family, newest last."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.symbolic = rng.random() < 0.4
        self.dtype = rng.choice(_TYPES)
        self.rank = rng.choice([1, 2, 2, 2, 3])
        names = "MNP"[: self.rank]
        fixed = {n: rng.choice([1, 2, 3, 5, 7, 8, 9, 12, 17]) for n in names}
        self.extents = {n: tir.var(n) if self.symbolic else fixed[n] for n in names}
        self.sizes: list[Sizes] = [fixed]
        if self.symbolic:
            self.sizes.append({n: rng.randint(1, 12) for n in names})
        self.inputs: list[tuple[tir.Tensor, str, Callable[[Sizes], tuple[int, ...]]]] = []
        self.stages: list[tir.Tensor] = []
        self.count = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def shape(self) -> tuple[object, ...]:
        return tuple(self.extents.values())

    def input(self) -> tir.Tensor:
        names = list(self.extents)
        T = tir.placeholder(self.shape(), self.dtype, name=self.fresh("A"))
        self.inputs.append((T, self.dtype, lambda s: tuple(s[n] for n in names)))
        return T

    def index(self) -> tir.Tensor:
        """Positions along the first axis, some of them used twice."""
        first = next(iter(self.extents))
        T = tir.placeholder((self.extents[first],), "int32", name=self.fresh("I"))
        self.inputs.append((T, "index", lambda s: (s[first],)))
        return T

    def source(self) -> tir.Tensor:
        if not self.inputs or (len(self.inputs) < 3 and self.rng.random() < 0.3):
            return self.input()
        known = [t for t, d, _ in self.inputs if d != "index"] + self.stages * 2
        return self.rng.choice(known)

    def read(self, axes: tuple[tir.Expr, ...]) -> tir.Expr:
        """A load at or near `axes`, never outside."""
        rng, T = self.rng, self.source()
        at = list(axes)
        extents = list(self.extents.values())
        d = rng.randrange(self.rank)
        i, n = at[d], extents[d]
        kind = rng.randrange(9)
        if kind == 0:
            at[d] = n - 1 - i
        elif kind == 1:
            at[d] = tir.maximum(i - rng.randint(1, 3), 0)
        elif kind == 2:
            at[d] = tir.minimum(i + rng.randint(1, 3), n - 1)
        elif kind == 3:
            at[d] = i // rng.randint(2, 4)
        elif kind == 4:
            k = rng.randint(1, 3)
            at[d] = i - k
            return tir.if_then_else(i >= k, T[tuple(at)], self.number())
        elif kind == 5:
            k = rng.randint(1, 2)
            at[d] = i + k
            return tir.if_then_else(i + k < n, T[tuple(at)], self.number())
        elif kind == 6:
            at[d] = tir.select(i % 2 == 0, i, i - 1)
        elif kind == 7 and rng.random() < 0.3:
            at[0] = tir.cast(self.index()[axes[0]], "int64")
        return T[tuple(at)]

    def number(self) -> tir.Expr:
        return tir.const(self.rng.choice([0, 1, 2, 3]), self.dtype)

    def term(self, axes: tuple[tir.Expr, ...], depth: int = 2) -> tir.Expr:
        rng = self.rng
        if depth == 0 or rng.random() < 0.25:
            e = self.read(axes)
            return e if e.dtype.name == self.dtype else tir.cast(e, self.dtype)
        a = self.term(axes, depth - 1)
        kind = rng.randrange(10)
        if kind < 3:
            return a + self.term(axes, depth - 1)
        if kind < 4:
            return a - self.term(axes, depth - 1)
        if kind < 6:
            return a * self.term(axes, depth - 1)
        if kind == 6:
            return tir.maximum(a, self.term(axes, depth - 1))
        if kind == 7:
            return tir.select(a > self.number(), a, self.term(axes, depth - 1))
        if kind == 8:
            x = rng.choice(axes)
            cond = rng.choice([x % 3 != 1, x >= 2, axes[0] <= axes[-1], a > self.number()])
            return tir.if_then_else(cond, a, self.term(axes, depth - 1))
        return a + tir.cast(rng.choice(axes), self.dtype)

    def pointwise(self) -> None:
        T = tir.compute(
            self.shape(), lambda *i: self.term(i), name=self.fresh("P"), axes=self.axes()
        )
        self.stages.append(T)

    def axes(self) -> list[str]:
        return [f"{x}{self.count}" for x in "ijl"[: self.rank]]

    def reduction(self) -> None:
        """Along one axis, read back at every point of it."""
        rng = self.rng
        d = rng.randrange(self.rank)
        names = list(self.extents)
        kept = tuple(self.extents[n] for k, n in enumerate(names) if k != d)
        how = rng.choice(_FOLDS)
        extent = self.extents[names[d]]
        label = self.fresh("R")
        bound = rng.random()

        def body(*rest: tir.Expr) -> tir.Expr:
            triangular = bound < 0.25 and len(rest) > 0
            high = rest[0] + 1 if triangular else extent
            where = None
            k = tir.reduce_axis((0, extent), name=f"k{self.count}")
            if triangular or bound > 0.75:
                where = (k < high) if triangular else (k % 2 == 0)
            at = [*rest[:d], k, *rest[d:]]
            e = self.term(tuple(at), 1)
            if how == "argmax":
                return tir.argmax(e, axis=k)
            if how in ("max", "min"):
                return getattr(tir, how)(e, axis=k, where=where, init=0)
            return getattr(tir, how)(e, axis=k, where=where)

        names_ = [f"{x}{self.count}" for x in "ijl"[: len(kept)]]
        R = tir.compute(kept, body, name=label, axes=names_)

        def spread(*i: tir.Expr) -> tir.Expr:
            rest = tuple(x for k, x in enumerate(i) if k != d)
            return tir.cast(R[rest], self.dtype) + self.term(i, 1)

        T = tir.compute(self.shape(), spread, name=self.fresh("Q"), axes=self.axes())
        self.stages.append(T)

    def case(self) -> Case:
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            (self.reduction if rng.random() < 0.4 else self.pointwise)()
        last = self.stages[-1]
        outputs = (last,)
        if len(self.stages) > 1 and rng.random() < 0.25:
            outputs = (last, rng.choice(self.stages[:-1]))
        order = [a.name for a in tir.schedule(*outputs).program.arrays if a.role == "input"]
        by_name = {t.name: (d, shape) for t, d, shape in self.inputs}
        return WildCase(
            f"wild-{self.dtype}", outputs, [by_name[n] for n in order], self.sizes, low=-3
        )


class WildCase(Case):
    """A case with inputs that are positions."""

    def arrays(self, sizes: Sizes, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        made = []
        for dtype, shape in self.inputs:
            if dtype == "index":
                n = shape(sizes)[0]
                made.append(rng.integers(0, max(n, 1), n).astype("i4"))
                continue
            values = rng.integers(self.low, 4, shape(sizes))
            if dtype.startswith("uint"):
                values = np.abs(values)
            made.append(values.astype(tir.dtype(dtype).numpy))
        return made


def draw(rng: Random) -> Case:
    """A random declaration, term by term."""
    return Wild(rng).case()
