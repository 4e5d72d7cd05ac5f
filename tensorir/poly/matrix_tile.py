"""Which parts a statement's accesses play in a product of matrix tiles that a warp makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorir.ir.affine import Atom, Lin
from tensorir.ir.expr import Axis, Expr, Op, Ref
from tensorir.ir.matrix import MatrixIntrinsic
from tensorir.ir.statement import Access, Statement


@dataclass(frozen=True, slots=True)
class TileAxes:
    """The loops of a tile: lanes of the warp, row and column of a lane's cells, the sum."""

    lane: Axis
    row: Axis
    column: Axis
    depth: Axis


@dataclass(frozen=True, slots=True)
class TileReads:
    """The reads of a statement that are the left and the right tile."""

    left: int
    right: int


def reads_of(
    what: MatrixIntrinsic, stmt: Statement, index: Mapping[Axis, Lin], axes: TileAxes
) -> TileReads | str:
    """The operands of a tile; or why the instances of these loops are none.

    `index` gives the statement's iterators over loop axes.
    """
    slots = _factors(stmt)
    if slots is None or len(stmt.writes) != 1:
        return "the statement does not add a product of two reads"
    if stmt.writes[0].array.dtype.name != what.result:
        return f"{stmt.writes[0].array.name} is {stmt.writes[0].array.dtype}, not {what.result}"
    for k in slots:
        array = stmt.reads[k].array
        if array.dtype.name != what.operand:
            return f"{array.name} is {array.dtype}, not {what.operand}"
    parts = _parts(stmt, index, axes)
    if isinstance(parts, str):
        return parts
    row, column, depth = parts
    write = stmt.writes[0]
    if not (_uses(write, row) and _uses(write, column)) or _uses(write, depth):
        return f"{write.array.name} is not written along rows and columns"
    for left, right in (slots, slots[::-1]):
        a, b = stmt.reads[left], stmt.reads[right]
        if (
            all(_uses(a, x) for x in (row, depth)) and not _uses(a, column)
            and all(_uses(b, x) for x in (column, depth)) and not _uses(b, row)
        ):  # fmt: skip
            return TileReads(left, right)
    return "one factor has rows and the sum, the other the sum and columns"


def _parts(
    stmt: Statement, index: Mapping[Axis, Lin], axes: TileAxes
) -> tuple[Axis, Axis, Axis] | str:
    """The iterators that run over rows, columns and the sum of the tile."""
    lane = Lin({axes.lane: 1})
    forms: tuple[dict[Atom, int], ...] = (
        {axes.row: 8, ("//", lane, 4): 1},
        {axes.column: 1, ("%", lane, 4): 2},
        {axes.depth: 1},
    )
    wanted = [Lin(f) for f in forms]
    mine = (axes.lane, axes.row, axes.column, axes.depth)
    found: dict[int, Axis] = {}
    for it in stmt.iters:
        e = index[it]
        inside = Lin(
            {a: v for a, v in e.terms.items() if any(Lin({a: 1}).involves(x) for x in mine)}
        )
        if not inside.terms:
            continue
        k = next((k for k, w in enumerate(wanted) if inside == w), None)
        if k is None or k in found:
            return f"{it.name} moves by {inside} in the tile"
        found[k] = it
    if len(found) < 3:
        kinds = ("rows", "columns", "the sum")
        return f"no iterator runs over {kinds[next(k for k in range(3) if k not in found)]}"
    return found[0], found[1], found[2]


def _uses(access: Access, it: Axis) -> bool:
    return access.exact and any(e.involves(it) for e in access.affine)


def _factors(stmt: Statement) -> tuple[int, int] | None:
    """The reads whose product an update adds to its cell."""
    if stmt.role != "update" or len(stmt.bodies) != 1:
        return None
    body = stmt.bodies[0]
    if not isinstance(body, Op):
        return None
    if body.name == "fma":
        x, y, rest = body.args
    elif body.name == "add":
        rest, product = body.args if _slot(body.args[0]) == 0 else body.args[::-1]
        if not isinstance(product, Op) or product.name != "mul":
            return None
        x, y = product.args
    else:
        return None
    first, second = _slot(x), _slot(y)
    if _slot(rest) != 0 or not first or not second or first == second:
        return None
    return first, second


def _slot(e: Expr) -> int | None:
    inner = e.args[0] if isinstance(e, Op) and e.name == "cast" else e
    return inner.slot if isinstance(inner, Ref) else None
