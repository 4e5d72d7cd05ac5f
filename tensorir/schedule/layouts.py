"""Maps from the index of a buffer to its storage: their form, and that no two cells meet."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensorir.ir.build import as_expr
from tensorir.ir.expr import Axis
from tensorir.ir.index import to_lin
from tensorir.ir.statement import Array
from tensorir.poly import access, regions
from tensorir.poly.model import LayoutDim
from tensorir.schedule import resolve, rewrite
from tensorir.schedule.text import storage_text
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import IllegalSchedule, TensorIRError, UnsupportedError

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

_FORM = "each storage index is an index i, i // c or i % c, with one c for each index"


def parse(map: Callable[..., Any] | str, array: Array, what: str) -> tuple[LayoutDim, ...]:
    """The layout that `map` (a callable, or the text of one that a trace holds) describes."""
    n = len(array.shape)
    if isinstance(map, str):
        return _from_text(map, n, what)
    if not callable(map):
        resolve.fail(f"{what}: the map is a callable of the indices, not {map!r:.60}")
    axes = tuple(Axis(f"i{d}") for d in range(n))
    if not _takes(map, n):
        plural = "index" if n == 1 else "indices"
        resolve.fail(f"{what}: {array.name} has {n} {plural}; the map takes another number")
    try:
        result = map(*axes)
    except TensorIRError:
        raise
    except Exception as error:
        resolve.fail(f"{what}: the map raised {type(error).__name__}: {error}")
    items = result if isinstance(result, tuple | list) else (result,)
    if not items:
        resolve.fail(f"{what}: the map returns no storage index")
    return _checked(tuple(_dim(x, axes, what) for x in items), what)


def _takes(map: Callable[..., Any], n: int) -> bool:
    try:
        inspect.signature(map).bind(*range(n))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _dim(x: object, axes: tuple[Axis, ...], what: str) -> LayoutDim:
    e = to_lin(as_expr(x))
    place = {a: k for k, a in enumerate(axes)}
    if e is not None and not e.const and len(e.terms) == 1:
        atom, factor = next(iter(e.terms.items()))
        if factor == 1 and isinstance(atom, Axis):
            return place[atom], None, 1
        if factor == 1 and isinstance(atom, tuple):
            kind, inner, c = atom
            only = next(iter(inner.terms)) if len(inner.terms) == 1 and not inner.const else None
            if isinstance(only, Axis) and inner.coef(only) == 1:
                return place[only], kind, c
    shown = e.text() if e is not None else repr(x)
    resolve.fail(
        f"{what}: the storage index {shown:.60} is not of a supported form",
        why=f"{_FORM}, as in (i // 6, k, i % 6).",
        cls=UnsupportedError,
    )


def _place(axes: tuple[Axis, ...], a: Axis) -> int:
    return next(k for k, x in enumerate(axes) if x is a)


def _checked(layout: tuple[LayoutDim, ...], what: str) -> tuple[LayoutDim, ...]:
    tiles: dict[int, int] = {}
    seen: list[tuple[int, str | None]] = []
    for dim, kind, c in layout:
        if kind is not None and tiles.setdefault(dim, c) != c:
            resolve.fail(
                f"{what}: index {dim} is taken by {tiles[dim]} and by {c}",
                why=f"{_FORM}.",
                cls=UnsupportedError,
            )
        if (dim, kind) in seen or (kind is None and any(d == dim for d, _ in seen)):
            resolve.fail(
                f"{what}: index {dim} is stored twice", why=f"{_FORM}.", cls=UnsupportedError
            )
        if kind is not None and (dim, None) in seen:
            resolve.fail(
                f"{what}: index {dim} is stored twice", why=f"{_FORM}.", cls=UnsupportedError
            )
        seen.append((dim, kind))
    return layout


def require_injective(s: Schedule, array: Array, layout: tuple[LayoutDim, ...], what: str) -> None:
    """Refuse a layout that puts two cells of one buffer in one place; tells both."""
    program = s.program
    outside = rewrite.outside_of(program, array)
    at = outside[-1] if outside else None
    writers = rewrite.writers(program, array)
    cells = access.footprint(program, array, at, writers, "writes")[0]
    for d in range(len(array.shape)):
        kinds = {kind: c for dim, kind, c in layout if dim == d}
        if None in kinds or len(kinds) == 2:
            continue
        if "%" in kinds:
            apart, allowed = kinds["%"], kinds["%"]
        else:
            apart, allowed = 1, 1
        extent = regions.hull_extent(cells, d, program)
        if extent is not None and extent <= allowed:
            continue
        found = regions.clash(cells, d, apart, program)
        if found is None:
            continue
        sizes, point = found
        n = len(outside)
        k = len(array.shape)
        first, second = point[n : n + k], point[n + k :]
        at_sizes = "".join(f" with {v} = {x}" for v, x in sizes.items())
        raise Message(
            f"{what} would put {array.name}{first} and {array.name}{second} in one place{at_sizes}",
            caller(),
            why="a layout must send no two cells to one place.",
        ).error(
            IllegalSchedule,
            primitive=what,
            witness={"sizes": sizes, "cells": (tuple(first), tuple(second))},
        )


def text(layout: tuple[LayoutDim, ...], n: int) -> str:
    """A layout as the source of a map, which a trace holds: ``lambda i0, i1: (i1 // 16, i0)``."""
    return f"lambda {', '.join(f'i{d}' for d in range(n))}: {storage_text(layout, n)}"


def _from_text(source: str, n: int, what: str) -> tuple[LayoutDim, ...]:
    names = [f"i{d}" for d in range(n)]
    head = f"lambda {', '.join(names)}: ("
    if not (source.startswith(head) and source.endswith(")")):
        resolve.fail(f"{what}: cannot read the map {source!r:.60}", why=f"it begins {head!r}.")
    out: list[LayoutDim] = []
    for part in source[len(head) : -1].split(","):
        words = part.split()
        if not words:
            continue
        known = words[0] in names
        if known and len(words) == 1:
            out.append((names.index(words[0]), None, 1))
        elif known and len(words) == 3 and words[1] in ("//", "%") and words[2].isdigit():
            at, tile = names.index(words[0]), int(words[2])
            out.append((at, "//", tile) if words[1] == "//" else (at, "%", tile))
        else:
            resolve.fail(f"{what}: cannot read {part.strip()!r:.60} in a map")
    return _checked(tuple(out), what)
