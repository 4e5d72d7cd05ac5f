"""Computations that the tests of lowering schedule, and the sizes at which they run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from tensorir.codegen.cpu import target
from tensorir.ir import reductions
from tensorir.ir.expr import Var
from tensorir.ir.language import compute, placeholder, reduce_axis, var
from tensorir.ir.target import Target
from tensorir.lower.pipeline import Lowered, lower
from tensorir.schedule.schedule import Schedule, schedule
from tests.lower.interpret import Machine, check

Sizes = tuple[int, ...]


@cache
def machine() -> Target:
    return target("znver4")


def matmul(*given: int) -> Schedule:
    m, n, k = given or tuple(var(x) for x in "MNK")
    a = placeholder((m, k), name="A")
    b = placeholder((k, n), name="B")
    r = reduce_axis((0, k), name="k")
    c = compute((m, n), lambda i, j: reductions.sum(a[i, r] * b[r, j], r), name="C")
    return schedule(c)


def elementwise(*given: int) -> Schedule:
    (n,) = given or (var("N"),)
    a = placeholder((n,), name="A")
    return schedule(compute((n,), lambda i: a[i] * 2.0 + 1.0, name="B"))


def blur(*given: int) -> Schedule:
    m, n = given or (var("M"), var("N"))
    a = placeholder((m + 2, n + 2), name="A")
    b = compute((m + 2, n), lambda y, x: a[y, x] + a[y, x + 1] + a[y, x + 2], name="X")
    return schedule(compute((m, n), lambda y, x: b[y, x] + b[y + 1, x] + b[y + 2, x], name="Y"))


def triangle(*given: int) -> Schedule:
    """A sum over `k <= i`, for cells with `j <= i` alone."""
    (n,) = given or (var("N"),)
    a = placeholder((n, n), name="A")

    def body(i, j):  # type: ignore[no-untyped-def]
        k = reduce_axis((0, i + 1), name="k")
        return reductions.sum(a[i, k] * a[j, k], k)

    return schedule(compute((n, n), body, where=lambda i, j: j <= i, name="C"))


def rows(*given: int) -> Schedule:
    m, n = given or (var("M"), var("N"))
    a = placeholder((m, n), name="A")
    k = reduce_axis((0, n), name="k")
    return schedule(compute((m,), lambda i: reductions.sum(a[i, k], k), name="S"))


def sizes_of(s: Schedule, values: Sizes) -> dict[Var, int]:
    return dict(zip(s.program.sizes, values, strict=True))


def run(before: Schedule, s: Schedule, *values: Sizes) -> tuple[Lowered, list[Machine]]:
    """Lower `s` once and check it at all sizes against `before`."""
    lowered = lower(s.program, machine())
    ran = [check(before.program, lowered, sizes_of(s, v)) for v in values or ((),)]
    return lowered, ran


def packed(
    s: Schedule, *, nc: int = 16, kc: int = 6, mc: int = 6, nr: int = 8, mr: int = 3, w: int = 4,
    layout: bool = True, init_at: bool = False,
) -> Schedule:  # fmt: skip
    """The matmul of the books: blocked, packed, with a register tile of `mr` by `nr`."""
    s = s.split("j", nc, into=("jc", "j1")).split("j1", nr, into=("jr", "ji"))
    s = s.split("i", mc, into=("ic", "i1")).split("i1", mr, into=("ir", "ii"))
    s = s.split("k", kc, into=("pc", "kk"))
    s = s.reorder("jc", "pc", "ic", "jr", "ir", "kk", "ii", "ji")
    if init_at:
        s = s.init_at("C", "pc")
    s = s.cache_read("B", at="pc").split("B_cache.j", nr, into=("bj", "bl"))
    s = s.reorder("bj", "B_cache.k", "bl")
    s = s.cache_read("A", at="ic").split("A_cache.i", mr, into=("ai", "al"))
    s = s.reorder("ai", "A_cache.k", "al")
    if layout:
        s = s.transform_layout("B_cache", lambda k, j: (j // nr, k, j % nr))
        s = s.transform_layout("A_cache", lambda i, k: (i // mr, k, i % mr))
    s = s.cache_write("C", at="ir")
    s = s.vectorize("ji", nr).unroll("ii").vectorize("bl", nr).unroll("al")
    return widths(s, w)


def widths(s: Schedule, w: int) -> Schedule:
    """The same with vectors of `w` lanes, so that small loops hold several."""
    from dataclasses import replace

    from tensorir.poly import tree

    t = s.program.tree
    for x in tree.loops(t):
        if x.kind == "vectorize":
            t = tree.rewrite(t, x.axis, lambda y: replace(y, width=w))
    return Schedule(s.program.change(tree=t), s.outputs, s.parent, s.step)


def small(n: int) -> Iterator[Sizes]:
    """Sizes that do not divide, ones, and a zero in each place."""
    yield (1,) * n
    yield tuple(7 + 2 * k for k in range(n))
    yield tuple(13 - k for k in range(n))
    yield (8,) * n
    for k in range(n):
        yield tuple(0 if i == k else 3 for i in range(n))


def chain(*given: int) -> Schedule:
    """Three stages, the last reading the first two at shifts."""
    (n,) = given or (var("N"),)
    a = placeholder((n + 4,), name="A")
    b = compute((n + 4,), lambda i: a[i] * 2.0, name="B")
    c = compute((n + 2,), lambda i: b[i] + b[i + 2], name="C")
    return schedule(compute((n,), lambda i: c[i] * b[i + 1] + c[i + 2], name="D"))


def half(*given: int) -> Schedule:
    """A sum that accumulates in a wider type: init, update and finish."""
    m, n = given or (var("M"), var("N"))
    a = placeholder((m, n), "float16", name="A")
    k = reduce_axis((0, n), name="k")
    return schedule(compute((m,), lambda i: reductions.sum(a[i, k], k), name="S"))


def largest(*given: int) -> Schedule:
    """Two components of one state."""
    m, n = given or (var("M"), var("N"))
    a = placeholder((m, n + 1), name="A")
    k = reduce_axis((0, n + 1), name="k")
    found = compute((m,), lambda i: reductions.argmax(a[i, k], k), name="S")
    return schedule(*(found if isinstance(found, tuple) else (found,)))


def total(*given: int) -> Schedule:
    """A result without axes."""
    m, n = given or (var("M"), var("N"))
    a = placeholder((m, n), name="A")
    i, k = reduce_axis((0, m), name="i"), reduce_axis((0, n), name="k")
    return schedule(compute((), lambda: reductions.sum(a[i, k] * 2.0, (i, k)), name="S"))


def ring(*given: int) -> Schedule:
    """A domain that is no convex set."""
    (n,) = given or (var("N"),)
    a = placeholder((n, n), name="A")

    def edge(i, j):  # type: ignore[no-untyped-def]
        return (i < 2) | (j < 1) | (i + j >= n + 3)

    return schedule(compute((n, n), lambda i, j: a[i, j] + 1.0, where=edge, name="B"))
