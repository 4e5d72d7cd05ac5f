"""Where a statement reads outside an array: which instances, for which sizes."""

from __future__ import annotations

from typing import TypedDict

from tensorir.ir.affine import Conj, Lin, Region
from tensorir.ir.expr import Axis, Var
from tensorir.ir.statement import Access, Statement
from tensorir.poly import isl
from tensorir.poly.isl import Set, Sizes
from tensorir.poly.relation import access_map


class OutOfBounds(TypedDict):
    """The first access outside: where, at which sizes, which index, and what would be allowed.

    `index` has None for an index that is known only when it runs. `allowed` has the least and
    greatest index of each dimension at these sizes; `dim` is the first dimension that is outside.
    """

    instance: dict[str, int]
    sizes: dict[str, int]
    index: tuple[int | None, ...]
    allowed: tuple[tuple[int, int], ...]
    dim: int


def out_of_bounds(
    stmt: Statement, access: Access, sizes: Sizes, context: Conj
) -> OutOfBounds | None:
    """The first instance, at the smallest sizes, whose access is outside the array.

    Domain and guard of the access take part. An index that is not affine is checked when it runs
    and is not judged here.

    Examples
    --------
    `B[i] = A[i + 1]` over `0 <= i < N` with both of shape `N` gives instance `{"i": 0}` at
    `{"N": 1}` with index `(1,)` and allowed `((0, 0),)`.
    """
    with isl.budget():
        bad = outside(stmt, access, sizes)
        found = isl.first_point(bad, sizes, context)
    if found is None:
        return None
    size, point = found
    env: dict[Axis | Var, int] = {s: size[s.name] for s in sizes}
    shape = [e.evaluate(env) for e in access.array.shape]
    env.update(zip(stmt.iters, point, strict=True))
    index = tuple(i.evaluate(env) if isinstance(i, Lin) else None for i in access.index)
    wrong = next(
        k for k, (i, n) in enumerate(zip(index, shape, strict=True))
        if i is not None and not 0 <= i < n
    )  # fmt: skip
    return {
        "instance": {a.name: v for a, v in zip(stmt.iters, point, strict=True)},
        "sizes": size,
        "index": index,
        "allowed": tuple((0, n - 1) for n in shape),
        "dim": wrong,
    }


def outside(stmt: Statement, access: Access, sizes: Sizes) -> Set:
    """Instances whose access is outside the array in an affine dimension."""
    instances = access_map(stmt, access, sizes).domain()
    bad = isl.empty(sizes, len(stmt.iters))
    region: Region = ()
    for index, extent in zip(access.index, access.array.shape, strict=True):
        if isinstance(index, Lin):
            region = (*region, (("ge", -index - 1),), (("ge", index - extent),))
    if region:
        bad = instances.intersect(isl.to_set(stmt.iters, sizes, region))
    return bad
