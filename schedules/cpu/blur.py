"""The two-stage blur: rows of the first stage are computed where the second needs them."""

from __future__ import annotations

from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.affine import Lin
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """`rows` by `columns` of the output are computed from one tile of the first stage."""
    lanes = target.vector_bytes // itemsize
    return (
        Param("rows", (1, 2, 4, 8, 16), 8),
        Param("columns", (lanes, 2 * lanes, 4 * lanes), 4 * lanes),
    )


@by_hand
def blur(
    s: Schedule, target: str | Target | None = None, *, parallel: bool = True, **given: int
) -> Schedule:
    """Schedule a plain stage that reads a plain stage at shifted cells, both two-dimensional.

    The first stage is computed at each tile of the second, with the overlap recomputed, and stays
    in registers; both run in vectors along the rows.

    Raises
    ------
    ArgumentError
        If `s` is not two such stages.
    """
    if not _two_stencils(s):
        raise ArgumentError("blur: expected two plain stages over two axes, one reading the other")
    where = cpu.target("native" if target is None else target)
    first, second = s.program.statements
    p = resolve_params(params(where, first.writes[0].array.dtype.bytes), given)
    lanes = where.lanes(first.writes[0].array.dtype)
    f, g = first.stage, second.stage
    y, x = (f"{g}.{a.name}" for a in second.iters)
    fy, fx = (f"{f}.{a.name}" for a in first.iters)
    yo, xo, yi, xi = free_names(s, "yo", "xo", "yi", "xi")
    s = s.tile(y, x, p["rows"], p["columns"], into=(yo, xo, yi, xi))
    s = s.compute_at(f, xo).set_scope(f, "local")
    s = s.vectorize(xi, width=lanes).unroll(yi).vectorize(fx, width=lanes).unroll(fy)
    return s.parallel(yo) if parallel else s


def _two_stencils(s: Schedule) -> bool:
    stages = s.program.statements
    if s.step is not None or len(stages) != 2 or any(x.role != "compute" for x in stages):
        return False
    first, second = stages
    if any(len(x.iters) != 2 or len(x.domain) != 1 for x in stages):
        return False
    if first.writes[0].array.role != "temp" or len(second.writes) != 1:
        return False
    y, x = (Lin({a: 1}) for a in second.iters)
    for r in second.reads:
        if r.array is not first.writes[0].array or not r.exact:
            return False
        dy, dx = r.affine[0] - y, r.affine[1] - x
        if not (dy.is_const and dx.is_const and abs(dy.const) <= 8 and abs(dx.const) <= 8):
            return False
    return len(second.reads) > 1


@register("blur", _two_stencils)
def _blur_for(s: Schedule, target: Target) -> Schedule:
    return blur(s, target)
