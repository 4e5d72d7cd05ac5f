"""Matrix multiplication: blocked for three cache levels, B packed, C tiled into registers.

The nest of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008): panels
of B stay in the last cache, blocks of A in the second, and a tile of C in registers.
"""

from __future__ import annotations

from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import cpu
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Op, Ref
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

MC = 48  # rows of A in the second cache: eight tiles of six


def params(target: Target, itemsize: int = 4) -> tuple[Param, ...]:
    """The parameters of :func:`matmul` for a target.

    `mr` rows by `nr` columns of C live in registers, `kc` is the depth of a panel, `mc` rows of A
    stay in the second cache, `nc` columns of B are packed at a time. With `pack_a` rows of A are
    packed too: six rows are read in place as fast, and copying them costs 2 to 4 % of the time.
    """
    lanes = target.vector_bytes // itemsize
    nr = (4 if target.vector_registers >= 32 else 2) * lanes
    depths = (128, 256, 384, 512, 768, 1024)
    # a block of A and a strip of B, of one depth, share three quarters of the second cache
    fit = [d for d in depths if (MC + nr) * d * itemsize <= 0.75 * target.l2]
    return (
        Param("mr", (4, 6, 8), 6),
        Param("nr", (2 * lanes, 3 * lanes, 4 * lanes), nr),
        Param("kc", depths, fit[-1] if fit else depths[0]),
        Param("mc", (24, MC, 66, 72, 96, 120, 144, 192), MC),
        Param("nc", (512, 1024, 2048, 4096), 1024),
        Param("pack_a", (0, 1), 0),
    )


def matmul(
    s: Schedule,
    target: str | Target | None = None,
    *,
    parallel: bool = True,
    **given: int,
) -> Schedule:
    """Schedule `C[i, j] = sum_k A[i, k] * B[k, j]` (both row-major).

    Parameters
    ----------
    s
        The schedule of the one matmul, as declared.
    target
        The processor; this one by default.
    parallel
        Whether blocks of rows run on all threads.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is not such a matmul.

    Examples
    --------
    >>> import tensorir as tir
    >>> n = 256
    >>> A, B = tir.placeholder((n, n), name="A"), tir.placeholder((n, n), name="B")
    >>> k = tir.reduce_axis(n, name="k")
    >>> C = tir.compute((n, n), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    >>> s = matmul(tir.schedule(C))
    >>> [step.primitive for step in s.trace.steps][:6]
    ['split', 'split', 'split', 'split', 'split', 'reorder']
    """
    update = _product(s)
    if update is None:
        raise ArgumentError("matmul: expected one stage, C[i, j] = sum over k of A[i, k] * B[k, j]")
    where = cpu.target("native" if target is None else target)
    a, b, c = (update.reads[1].array.name, update.reads[2].array.name, update.stage)
    p = resolve_params(params(where, update.writes[0].array.dtype.bytes), given)
    mr, nr, kc, mc, nc = p["mr"], p["nr"], p["kc"], p["mc"], p["nc"]
    lanes = where.lanes(update.writes[0].array.dtype)
    i, j, k = (x.name for x in update.iters)
    jc, jb, jr, ji, ic, ib, ir, ii, pc, kk = free_names(
        s, "jc", "jb", "jr", "ji", "ic", "ib", "ir", "ii", "pc", "kk"
    )
    tile, panel_a, panel_b = free_names(s, "tile", "panel_a", "panel_b")
    bj, bl, ai, al, ak, akl = free_names(s, "bj", "bl", "ai", "al", "ak", "akl")
    # blocks for the caches, tiles for the registers
    s = s.split(j, nc, into=(jc, jb)).split(jb, nr, into=(jr, ji))
    s = s.split(i, mc, into=(ic, ib)).split(ib, mr, into=(ir, ii))
    s = s.split(k, kc, into=(pc, kk))
    s = s.reorder(jc, pc, ic, jr, ir, kk, ii, ji)
    # the tile of C starts at zero in the first panel, and is loaded in the later ones
    s = s.init_at(c, pc)
    s = s.cache_write(c, "local", at=ir, name=tile)
    # panels of B, and of A, in the order in which the innermost loop reads them
    s = s.cache_read(b, at=pc, name=panel_b)
    s = s.transform_layout(panel_b, lambda k, j: (j // nr, k, j % nr))
    s = s.split(f"{panel_b}.{j}", nr, into=(bj, bl)).reorder(bj, f"{panel_b}.{k}", bl)
    s = s.vectorize(bl, width=lanes)
    if s.check("unroll", bl):  # it is the vector itself where one holds a row of B
        s = s.unroll(bl)
    if p["pack_a"]:
        s = s.cache_read(a, at=ic, name=panel_a)
        s = s.transform_layout(panel_a, lambda i, k: (i // mr, k, i % mr))
        s = s.split(f"{panel_a}.{i}", mr, into=(ai, al))
        s = s.split(f"{panel_a}.{k}", lanes, into=(ak, akl)).reorder(ai, ak, akl, al)
        s = s.vectorize(akl, width=lanes).unroll(al)
    s = s.vectorize(ji, width=lanes).unroll(ii)
    # where the depth is one panel, nothing is loaded back
    for copy in (f"{tile}.load.{j}", f"{tile}.store.{j}"):
        if any(a.name == copy for a in s.axes):
            s = s.vectorize(copy, width=lanes)
    if parallel:
        s = s.parallel(bj).parallel(ic)
    return s


def _product(s: Schedule) -> Statement | None:
    """The update of a lone row-major matmul, or None."""
    updates = [x for x in s.program.statements if x.role == "update"]
    if len(updates) != 1 or len(s.program.statements) != 2 or s.step is not None:
        return None
    u = updates[0]
    if len(u.iters) != 3 or len(u.reads) != 3 or len(u.domain) != 1:
        return None
    body = u.bodies[0]
    if not (isinstance(body, Op) and body.name == "fma" and isinstance(body.args[2], Ref)):
        return None
    i, j, k = (Lin({x: 1}) for x in u.iters)
    a, b = u.reads[1], u.reads[2]
    if not (a.exact and b.exact) or a.array is b.array:
        return None
    return u if a.index == (i, k) and b.index == (k, j) and u.writes[0].index == (i, j) else None


@register("matmul", lambda s: _product(s) is not None)
def _matmul_for(s: Schedule, target: Target) -> Schedule:
    return matmul(s, target)
