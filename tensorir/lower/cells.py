"""Where a cell of an array lies in its storage, as affine expressions of loop axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorir.ir.affine import Lin, floordiv, floormod
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Array
from tensorir.ir.stmt import Run, Storage
from tensorir.lower.boxes import Box, simplify, span
from tensorir.poly.model import LayoutDim


@dataclass(frozen=True, slots=True)
class Cells:
    """Storage indices under known ranges of axes."""

    storages: Mapping[Array, Storage]
    box: Box

    def index(self, access: Access, run: Run) -> tuple[Lin, ...] | None:
        """The index of an access over loop axes; None where a part is not affine."""
        if not access.exact:
            return None
        env: dict[Axis | Var, Lin] = dict(zip(run.statement.iters, run.args, strict=True))
        return tuple(simplify(e.subst(env), self.box) for e in access.affine)

    def local(self, storage: Storage, index: tuple[Lin, ...]) -> tuple[Lin, ...]:
        """`index` less the origin of the storage."""
        pairs = zip(index, storage.origin, strict=True)
        return tuple(simplify(e - o, self.box) for e, o in pairs)

    def place(self, access: Access, run: Run) -> tuple[Lin, ...] | None:
        """The storage index of an access, lanes included; None where it is not affine."""
        index = self.index(access, run)
        storage = self.storages.get(access.array)
        if index is None or storage is None:
            return index
        local = self.local(storage, index)
        parts = (self._part(local[d], op, tile) for d, op, tile in storage.dims)
        return (*parts, *(Lin({a: 1}) for a in storage.lanes))

    def _part(self, e: Lin, op: str | None, tile: int) -> Lin:
        if op is None:
            return e
        return simplify(floordiv(e, tile) if op == "//" else floormod(e, tile), self.box)

    def inside(self, access: Access, run: Run) -> bool:
        """Whether every cell of the box of the axes around it lies in the allocation.

        That of an input is all of it, where its shape is constant.
        """
        array = access.array
        storage = self.storages.get(array)
        index = self.index(access, run)
        if index is not None and storage is None and array.role == "input":
            spans = [span(e, self.box) for e in index]
            return all(
                s is not None and s[0] >= 0 and m.is_const and s[1] < m.const
                for s, m in zip(spans, array.shape, strict=True)
            )
        if storage is None or index is None:
            return False
        for d, e in enumerate(self.local(storage, index)):
            s = span(e, self.box)
            room = rounded(storage, d)
            if s is None or room is None or s[0] < 0 or s[1] >= room:
                return False
        return True


def rounded(storage: Storage, d: int) -> int | None:
    """Cells that there is room for along index dimension `d`, tiles counted whole."""
    extent = storage.extent[d]
    if not extent.is_const:
        return None
    tile = max((t for k, op, t in storage.dims if k == d and op is not None), default=1)
    return -(-extent.const // tile) * tile


def shape_of(
    extent: tuple[Lin, ...], dims: tuple[LayoutDim, ...], lanes: Mapping[Axis, int]
) -> tuple[Lin, ...]:
    """The storage shape of a buffer: its layout dimensions, then one for each lane axis."""
    out: list[Lin] = []
    for d, op, tile in dims:
        whole = floordiv(extent[d] + (tile - 1), tile) if op == "//" else Lin({}, tile)
        out.append(extent[d] if op is None else whole)
    return (*out, *(Lin({}, n) for n in lanes.values()))
