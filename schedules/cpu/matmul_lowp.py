"""Matmul of bytes and of bfloat16: dot products of groups of neighbours along the sum.

The nest of `matmul`, with the sum in groups of four bytes (or two 16-bit numbers), the width of
one 32-bit lane. B is packed so that a vector holds a group for each column; A is read a group at
a time, repeated in every lane. A last group that is not full is filled with zeros in both copies.

`vpdpbusd` takes unsigned by signed bytes. Where A is signed it is moved by 128, and B by -128
where it is unsigned; zero points are taken out of the product alike. What that adds is a multiple
of the sums of columns (or rows), and goes into the initial value: int32 wraps, every bit stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.default import default_schedule
from schedules.params import Param, resolve_params
from schedules.registry import by_hand, register
from tensorir.codegen import cpu
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Const, Expr, Op, Ref
from tensorir.ir.statement import Statement
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

BYTES = ("int8", "uint8")


@dataclass(frozen=True, slots=True)
class Dot:
    """An instruction, the types that its operands are copied to, and how many it groups.

    Without an instruction lanes multiply and add one number at a time.
    """

    intrinsic: str | None
    left: str
    right: str
    group: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Product:
    """`C[i, j] = sum over k of (A[i, k] + a) * (B[k, j] + b)`; B may be transposed."""

    update: Statement
    left: int
    right: int
    add_left: int
    add_right: int
    transposed: bool


def dot_for(target: Target, dtype: str, *, dot: int = 1) -> Dot | None:
    """The best instruction of a target for `int8` or `bfloat16`; None where nothing fits."""
    wide = target.vector_bytes >= 64
    lanes, bits = target.vector_bytes // 4, 8 * target.vector_bytes
    if target.vector_bytes < 32:
        return None
    if dtype == "bfloat16":
        if dot and wide and target.has("avx512bf16"):
            return Dot(f"avx512bf16.vdpbf16ps.{bits}", "bfloat16", "bfloat16", 2, lanes)
        return Dot(None, "float32", "float32", 1, lanes)
    if (wide and target.has("avx512vnni")) or (not wide and target.has("avxvnni")):
        return Dot(f"avx512vnni.vpdpbusd.{bits}", "uint8", "int8", 4, lanes)
    name = f"avx512bw.vpmaddwd.{bits}" if wide else f"avx2.vpmaddwd.{bits}"
    return Dot(name, "int16", "int16", 2, lanes)


def params(target: Target, itemsize: int = 1) -> tuple[Param, ...]:
    """The parameters of :func:`matmul_lowp` for a target.

    `mr` rows by `nr` columns of C live in registers, `mc` rows of A are packed at a time and `nc`
    columns of B; the sum is not cut where it is at most `kc` long. `dot` is 0 to do without the
    instructions that round otherwise than one multiplication and addition after the other.
    """
    lanes = target.vector_bytes // 4
    rich = target.vector_registers >= 32
    depth = 4096 // itemsize
    return (
        Param("mr", (4, 6, 8), 6),
        Param("nr", (2 * lanes, 3 * lanes, 4 * lanes), (4 if rich else 2) * lanes),
        Param("kc", (256, 512, 1024, 2048, 4096), max(depth, 256)),
        Param("mc", (24, 48, 96, 192), 192),
        Param("nc", (256, 512, 1024, 2048), 1024),
        Param("dot", (0, 1), 1),
    )


@by_hand
def matmul_lowp(
    s: Schedule,
    target: str | Target | None = None,
    *,
    parallel: bool = True,
    **given: int,
) -> Schedule:
    """Schedule a product of int8 or uint8 matrices summed in int32, or of bfloat16 in float32.

    Parameters
    ----------
    s
        The schedule of the one product, as declared: `tensorir.ops.quantized_matmul` and
        `tensorir.ops.matmul` give it, or a sum of products of casts.
    target
        The processor; this one by default.
    parallel
        Whether blocks of rows run on all threads.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is not such a product, or the target has vectors of less than 32 bytes.

    Examples
    --------
    >>> import tensorir as tir
    >>> from tensorir import ops
    >>> A = tir.placeholder((64, 256), "int8", name="A")
    >>> B = tir.placeholder((256, 64), "int8", name="B")
    >>> s = matmul_lowp(tir.schedule(ops.quantized_matmul(A, B)), "znver4")
    >>> [step.primitive for step in s.trace.steps][:3]
    ['retype', 'split', 'reorder']
    """
    found = _product(s)
    where = cpu.target("native" if target is None else target)
    if found is None:
        raise ArgumentError(
            "matmul_lowp: expected one stage, the sum over k of A[i, k] * B[k, j] of int8, uint8 "
            "or bfloat16, converted to int32 or float32"
        )
    u = found.update
    a, b, c = u.reads[found.left].array, u.reads[found.right].array, u.stage
    p = resolve_params(params(where, a.dtype.bytes), given)
    kind = "bfloat16" if a.dtype.name == "bfloat16" else "int8"
    dot = dot_for(where, kind, dot=p["dot"])
    if dot is None:
        raise ArgumentError(f"matmul_lowp: target {where} has no vectors of 32 bytes")
    group = dot.group
    depth = max(p["kc"] // 4 * 4, 4)
    i, j, k = (x.name for x in u.iters)
    rows, end = a.shape
    if parallel and "mc" not in given and rows.is_const:
        p["mc"] = _shares(rows.const, p["mc"], p["mr"], where.threads)
    if u.bodies[0].dtype.name == "int64":
        s = s.retype(c, c, "int32")  # wide enough for every sum there can be
    # what the instruction takes
    s, left, sums_j = _typed(s, c, a.name, a.dtype.name, dot.left, found.add_left)
    s, right, sums_i = _typed(s, c, b.name, b.dtype.name, dot.right, found.add_right)
    if not (end.is_const and end.const % group == 0):
        s = s.pad_reduction(k, group)
        s, left = _padded(s, left, a.name)
        s, right = _padded(s, right, b.name)
    for name in (sums_j, sums_i):
        if name is not None:
            s = _summed(s, name, dot.lanes, where.vector_registers // 2)
    return _nest(s, found, dot, p, (left, right), (i, j, k), depth, parallel=parallel)


def _shares(rows: int, most: int, tile: int, threads: int) -> int:
    """Rows of a block, at most about `most`, so that every thread gets as many whole tiles."""
    blocks = threads * max(1, -(-rows // (most * threads)))
    return max(tile, -(-rows // (blocks * tile)) * tile)


def _typed(
    s: Schedule, stage: str, name: str, of: str, to: str, plus: int
) -> tuple[Schedule, str, str | None]:
    """An operand in the type that is wanted; its name then, and the stage of sums, if any."""
    by = 0
    if to == "int16":
        by = plus  # there is room for the zero point itself
    elif of != to and to in BYTES:
        by = 128 if to == "uint8" else -128
    if of == to and not plus:
        return s, name, None
    typed, sums = free_names(s, f"{name}_{to}", f"{stage}_sums")
    s = s.retype(stage, name, to, by, name=typed, sums=sums)
    there = s.stages
    return s, typed if typed in there else name, sums if sums in there else None


def _padded(s: Schedule, name: str, source: str) -> tuple[Schedule, str]:
    """The padded copy of an operand, with its conversion inside it."""
    padded = next(x for x in reversed(s.stages) if x.startswith(f"{name}_pad"))
    return (s.compute_inline(name) if name != source else s), padded


def _summed(s: Schedule, sums: str, lanes: int, vectors: int) -> Schedule:
    """The sums of one operand in lanes, rows of `vectors` of them side by side where rows are."""
    axis = next(x.name for x in s.axes if x.name.startswith(f"{sums}.") and not x.reduce)
    summed = next(x.name for x in s.axes if x.name.startswith(f"{sums}.") and x.reduce)
    if not _along(s, sums):
        return s.vector_reduce(summed, lanes)
    block, lane, kept = free_names(s, "sb", "sl", f"{sums}_tile")
    s = s.split(axis, vectors * lanes, into=(block, lane)).reorder(block, summed, lane)
    s = s.cache_write(sums, "local", at=block, name=kept)
    s = s.vectorize(lane, width=lanes)
    store = next(x.name for x in s.axes if x.name.startswith(f"{kept}.store."))
    return s.vectorize(store, width=lanes)


def _along(s: Schedule, sums: str) -> bool:
    """Whether neighbours in memory belong to neighbouring sums."""
    u = next(x for x in s.program.statements if x.stage == sums and x.role == "update")
    return not any(x.reduce for x in u.reads[1].affine[-1].atoms() if isinstance(x, Axis))


def _nest(
    s: Schedule,
    found: Product,
    dot: Dot,
    p: dict[str, int],
    operands: tuple[str, str],
    axes: tuple[str, str, str],
    depth: int,
    *,
    parallel: bool,
) -> Schedule:
    left, right = operands
    i, j, k = axes
    c, group, lanes = found.update.stage, dot.group, dot.lanes
    mr, nr, mc, nc = p["mr"], max(p["nr"] // lanes, 1) * lanes, p["mc"], p["nc"]
    jc, jb, jr, ji, jv, jl, ic, ib, ir, ii = free_names(
        s, "jc", "jb", "jr", "ji", "jv", "jl", "ic", "ib", "ir", "ii"
    )
    pc, kk, ko, kg, tile = free_names(s, "pc", "kk", "ko", "kg", "tile")
    end = s.program.stmt(c).reads[found.left].array.shape[1]
    whole = end.is_const and end.const <= depth  # the sum in one piece: nothing is loaded back
    s = s.split(j, nc, into=(jc, jb)).split(jb, nr, into=(jr, ji))
    s = s.split(ji, lanes, into=(jv, jl))
    s = s.split(i, mc, into=(ic, ib)).split(ib, mr, into=(ir, ii))
    outer, inner = jc, k
    if not whole:
        s = s.split(k, depth, into=(pc, kk))
        outer, inner = pc, kk
    points = [ii, jv, jl]
    if group > 1:
        s = s.split(inner, group, into=(ko, kg))
        inner, points = ko, [*points, kg]
    if whole:
        # tiles first: the initial values of one, and its end, stay inside it
        s = s.reorder(jc, ic, jr, ir, ii, jv, jl).reorder(inner, *points)
    else:
        s = s.reorder(jc, pc, ic, jr, ir, inner, *points).init_at(c, pc)
    kept = s.program.stmt(c).writes[0].array
    if whole and kept.role == "temp":
        s = s.cache_write(kept.name, "local", at=ir)  # one tile of the accumulator is all there is
    else:
        s = s.cache_write(kept.name, "local", at=ir, name=tile)
    s, panel_b = _copied(s, right, outer, "panel_b", found.update.reads[found.right].array.name)
    s, panel_a = _copied(s, left, ic, "panel_a", found.update.reads[found.left].array.name)
    s, bj = _packed(s, panel_b, dot, nr, (j, k), transposed=found.transposed)
    # whole tiles of rows, so that the last one reads cells that are there
    ai, al = free_names(s, "ai", "al")
    s = s.split(f"{panel_a}.{i}", mr, into=(ai, al)).unroll(al)
    s = s.vectorize(f"{panel_a}.{k}", width=4 * lanes // _bytes(dot.left))
    if dot.intrinsic is not None:
        s = s.tensorize(jl, dot.intrinsic)
    else:
        s = s.vectorize(jl, width=lanes)
    s = s.unroll(jv).unroll(ii)
    for copy in (f"{tile}.load.{j}", f"{tile}.store.{j}"):
        if any(x.name == copy for x in s.axes):
            s = s.vectorize(copy, width=lanes)
    return s.parallel(bj).parallel(ic) if parallel else s


def _bytes(dtype: str) -> int:
    return {"int8": 1, "uint8": 1, "int16": 2, "bfloat16": 2}.get(dtype, 4)


def _copied(s: Schedule, name: str, at: str, default: str, source: str) -> tuple[Schedule, str]:
    """An operand's copy inside a loop, converted and padded on the way."""
    (panel,) = free_names(s, default)
    s = s.cache_read(name, at=at, name=panel)
    return (s.compute_inline(name) if name != source else s), panel


def _packed(
    s: Schedule, panel: str, dot: Dot, nr: int, axes: tuple[str, str], *, transposed: bool
) -> tuple[Schedule, str]:
    """The copy of B in panels of `nr` columns, groups of the sum innermost."""
    j, k = (f"{panel}.{x}" for x in axes)
    group = dot.group
    bj, bl, bk, bg = free_names(s, "bj", "bl", "bk", "bg")
    if transposed:
        s = s.transform_layout(panel, lambda j, k: (j // nr, k // group, j % nr, k % group))
    elif group > 1:
        s = s.transform_layout(panel, lambda k, j: (j // nr, k // group, j % nr, k % group))
    else:
        s = s.transform_layout(panel, lambda k, j: (j // nr, k, j % nr))
    s = s.split(j, nr, into=(bj, bl))
    if group == 1:
        s = s.reorder(bj, k, bl) if not transposed else s
        return (s.vectorize(bl, width=dot.lanes) if not transposed else s), bj
    s = s.split(k, group, into=(bk, bg)).reorder(bj, bk, bl, bg)
    s = s.unroll(bg)
    if not transposed:
        s = s.vectorize(bl, width=min(nr, 4 * dot.lanes // _bytes(dot.right)))
    return s, bj


# -- what is recognised
def _product(s: Schedule) -> Product | None:
    """The product that a schedule computes and nothing else, or None."""
    updates = [x for x in s.program.statements if x.role == "update"]
    others = [x for x in s.program.statements if x.role not in ("update", "init", "finish")]
    if len(updates) != 1 or others or s.step is not None:
        return None
    u = updates[0]
    if len(u.iters) != 3 or len(u.reads) != 3 or len(u.domain) != 1 or len(u.bodies) != 1:
        return None
    factors = _factors(u.bodies[0])
    if factors is None or not all(r.exact and r.guard == ((),) for r in u.reads):
        return None
    shapes = [e for r in u.reads for e in r.array.shape]
    if any(e.is_const and e.const == 0 for e in shapes):
        return None  # nothing to compute: the default schedule's
    i, j, k = (Lin({x: 1}) for x in u.iters)
    if u.writes[0].index != (i, j):
        return None
    for one, two in (factors, factors[::-1]):
        left, right = u.reads[one[0]], u.reads[two[0]]
        if left.index != (i, k) or right.index not in ((k, j), (j, k)):
            continue
        types = (left.array.dtype.name, right.array.dtype.name)
        fits = all(t in BYTES for t in types) or types == ("bfloat16", "bfloat16")
        same = left.array is right.array or left.array.role != "input"
        if u.bodies[0].dtype.name == "int64" and not _in_int32(u, one[1], two[1]):
            continue
        if fits and not same and right.array.role == "input":
            return Product(u, one[0], two[0], one[1], two[1], right.index == (j, k))
    return None


def _in_int32(u: Statement, *plus: int) -> bool:
    """Whether int32 holds every sum of products of bytes with those constants added."""
    end = next((r.array.shape[1] for r in u.reads[1:] if r.index[0] == u.writes[0].index[0]), None)
    if end is None or not end.is_const:
        return False
    return end.const * (255 + abs(plus[0])) * (255 + abs(plus[1])) < 2**31


def _factors(body: Expr) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The two reads that an update multiplies, converted, and what is added to each."""
    if not isinstance(body, Op) or body.dtype.name not in ("int32", "int64", "float32"):
        return None
    if body.name == "fma" and body.dtype.is_float:
        a, b, state = body.args
        parts: tuple[Expr, ...] = (a, b)
    elif body.name == "add" and not body.dtype.is_float and isinstance(body.args[1], Op):
        state, term = body.args
        if body.dtype.name == "int64" and isinstance(term, Op) and term.name == "cast":
            term = term.args[0]
        if term.dtype.name != "int32":
            return None
        parts = term.args if isinstance(term, Op) and term.name == "mul" else ()
    else:
        return None
    if not (isinstance(state, Ref) and state.slot == 0) or len(parts) != 2:
        return None
    found = [_read(x) for x in parts]
    one, two = found
    if one is None or two is None or one[0] == two[0]:
        return None
    if body.dtype.is_float and (one[1] or two[1]):
        return None
    return one, two


def _read(e: Expr) -> tuple[int, int] | None:
    """The slot of a converted read, and the constant that is added to it."""
    if isinstance(e, Op) and e.name in ("add", "sub") and isinstance(e.args[1], Const):
        inner, by = _read(e.args[0]), e.args[1].value
        if inner is None or not isinstance(by, int):
            return None
        return inner[0], inner[1] + (by if e.name == "add" else -by)
    if isinstance(e, Op) and e.name == "cast" and isinstance(e.args[0], Ref):
        return e.args[0].slot, 0
    return None


def _found(s: Schedule) -> bool:
    return _product(s) is not None


@register("matmul_lowp", _found)
def _matmul_for(s: Schedule, target: Target) -> Schedule:
    if target.vector_bytes < 32:
        return default_schedule(s, target)
    return matmul_lowp(s, target)
