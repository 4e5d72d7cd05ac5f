"""Halide, scheduled by hand for vectors of 16 floats, compiled before it is timed.

Sizes and strides are constants, as ours are. Images are `(x, y, channel)`, the innermost first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

from tests.benchmarks.work import Array, Candidate, Work, empty

LANES = 16
TARGET = hl.Target(f"{hl.get_host_target()}-no_asserts-no_bounds_query-no_runtime").without_feature(
    hl.TargetFeature.NoRuntime
)
_x, _y, _c, _b = (hl.Var(n) for n in "xycb")
_xi, _yi, _xo, _yo, _ci, _co, _v = (hl.Var(n) for n in ("xi", "yi", "xo", "yo", "ci", "co", "v"))


def _param(name: str, array: Array) -> Any:
    """An input whose extents and strides are those of a dense array."""
    kind = {"float32": hl.Float(32), "float64": hl.Float(64)}[array.dtype.name]
    p = hl.ImageParam(kind, array.ndim, name)
    _fix(p, array)
    return p


def _fix(p: Any, array: Array) -> None:
    stride = 1
    for k, extent in enumerate(reversed(array.shape)):
        p.dim(k).set_bounds(0, extent).set_stride(stride)
        stride *= extent


def _made(
    out: Any, params: Sequence[Any], arrays: Sequence[Array], shape: tuple[int, ...], threads: int
) -> dict[str, Candidate]:
    result = empty(shape, arrays[0].dtype)
    _fix(out.output_buffer(), result)
    call = out.compile_to_callable(list(params), TARGET)
    buffers = [hl.Buffer(x) for x in (*arrays, result)]
    return {"halide": Candidate(lambda _keep=(arrays, result): call(*buffers), lambda: result)}


def _tile(columns: int, rows: int, lanes: int) -> tuple[int, int]:
    """Columns and rows of a register tile: four vectors by six, or what fits into less."""
    wide = min(4 * lanes, max(lanes, columns // lanes * lanes))
    return wide, {1: 16, 2: 12, 3: 8}.get(wide // lanes, 6) if rows >= 12 else rows


def _matmul(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    a, b = arrays
    if a.dtype.name not in ("float32", "float64"):
        return {}
    if a.ndim == 3:
        return _batched(arrays, threads)
    (m, k), n = a.shape, b.shape[1]
    lanes = 64 // a.itemsize
    nr, mr = _tile(n, m, lanes)
    A, B = _param("A", a), _param("B", b)
    panel, prod, out = hl.Func("panel"), hl.Func("prod"), hl.Func("out")
    r = hl.RDom([(0, k)])
    ragged, packs = n % nr != 0, n > nr or k > 512
    source = hl.BoundaryConditions.constant_exterior(B, 0, [(0, n), (0, k)]) if ragged else B
    panel[_xi, _y, _xo] = source[_xo * nr + _xi, _y]
    prod[_x, _y] = hl.cast(A.type(), 0)
    read = panel[_x % nr, r, _x // nr] if packs else source[_x, r]
    prod[_x, _y] += read * A[r, _y]
    out[_x, _y] = prod[_x, _y]
    tail = hl.TailStrategy.GuardWithIf if ragged else hl.TailStrategy.RoundUp
    shift = hl.TailStrategy.ShiftInwards if m % mr else hl.TailStrategy.RoundUp
    out.split(_x, _xo, _xi, nr, tail).split(_y, _yo, _yi, mr, shift)
    rows = max(1, min(m // mr, 192 // mr)) * mr  # of A that stay in the second cache
    blocked = m > 2 * rows and k > 512
    out.reorder(_xi, _yi, _yo, _xo)
    if blocked:
        yb = hl.Var("yb")
        out.split(_yo, yb, _yo, rows // mr, hl.TailStrategy.GuardWithIf)
        out.reorder(_xi, _yi, _yo, _xo, yb)
    out.vectorize(_xi, lanes).unroll(_yi)
    if threads > 1:
        out.parallel(_xo)
    prod.compute_at(out, _yo).bound_extent(_x, nr).bound_extent(_y, mr)
    if packs:
        prod.align_bounds(_x, nr)
    prod.vectorize(_x, lanes).unroll(_x).unroll(_y)
    prod.update(0).reorder(_x, _y, r).vectorize(_x, lanes).unroll(_x).unroll(_y)
    if packs:
        at = panel.compute_root() if blocked else panel.compute_at(out, _xo)
        at.bound_extent(_xi, nr).vectorize(_xi, lanes).unroll(_xi)
    return _made(out, [A, B], arrays, (m, n), threads)


def _batched(arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    a, b = arrays
    (count, m, k), n = a.shape, b.shape[2]
    A, B = _param("A", a), _param("B", b)
    prod, out = hl.Func("prod"), hl.Func("out")
    r = hl.RDom([(0, k)])
    prod[_x, _y, _b] = hl.f32(0)
    prod[_x, _y, _b] += B[_x, r, _b] * A[r, _y, _b]
    out[_x, _y, _b] = prod[_x, _y, _b]
    rows = 8
    out.split(_y, _yo, _yi, rows).vectorize(_x, LANES).unroll(_x).unroll(_yi)
    if threads > 1:
        out.parallel(_b)
    prod.compute_at(out, _yo).vectorize(_x, LANES).unroll(_x).unroll(_y)
    prod.update(0).reorder(_x, _y, r).vectorize(_x, LANES).unroll(_x).unroll(_y)
    return _made(out, [A, B], arrays, (count, m, n), threads)


def _conv(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    """Filters in vectors, a row of pixels in registers; weights and image packed in the call."""
    image, weight = arrays
    o = work.options
    _, c, h, w = image.shape
    f, _, kernel, _ = weight.shape
    stride, pad = o["stride"], o["padding"]
    size = (h + 2 * pad - kernel) // stride + 1
    block = 2 * LANES
    if f % block:
        return {}
    pixels = next(p for p in (14, 12, 8, 7, 4, 2, 1) if size % p == 0)
    X, W = _param("X", image), _param("W", weight)
    padded, packed, acc, out = (hl.Func(x) for x in ("padded", "packed", "acc", "out"))
    edge = hl.BoundaryConditions.constant_exterior(X, 0, [(0, w), (0, h), (0, c), (0, 1)])
    padded[_x, _y, _c] = edge[_x - pad, _y - pad, _c, 0]
    kx, ky, n = hl.Var("kx"), hl.Var("ky"), hl.Var("n")
    packed[_ci, kx, ky, _c, _co] = W[kx, ky, _c, _co * block + _ci]
    r = hl.RDom([(0, kernel), (0, kernel), (0, c)])
    acc[_c, _x, _y] = hl.f32(0)
    acc[_c, _x, _y] += (
        packed[_c % block, r[0], r[1], r[2], _c // block]
        * padded[_x * stride + r[0], _y * stride + r[1], r[2]]
    )
    out[_x, _y, _c, n] = acc[_c, _x, _y]
    out.split(_c, _co, _ci, block).split(_x, _xo, _xi, pixels)
    out.reorder(_xi, _ci, _xo, _y, _co, n).vectorize(_xi).unroll(_ci)
    acc.compute_at(out, _xo).bound_extent(_c, block).align_bounds(_c, block)
    acc.vectorize(_c, LANES).unroll(_c).unroll(_x)
    acc.update(0).reorder(_c, _x, r[0], r[1], r[2]).vectorize(_c, LANES).unroll(_c).unroll(_x)
    padded.compute_root().vectorize(_x, LANES, hl.TailStrategy.RoundUp)
    packed.compute_root().bound_extent(_ci, block).reorder(_ci, kx, ky, _c, _co)
    packed.vectorize(_ci, LANES)
    if threads > 1:
        out.parallel(_co)
    return _made(out, [X, W], arrays, (1, f, size, size), threads)


def _depthwise(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    """Pixels in vectors, several rows at once, the padded image of a channel in the first cache."""
    image, weight = arrays
    o = work.options
    _, c, h, w = image.shape
    kernel, stride, pad = weight.shape[2], o["stride"], o["padding"]
    size = (h + 2 * pad - kernel) // stride + 1
    X, W = _param("X", image), _param("W", weight)
    padded, out, n = hl.Func("padded"), hl.Func("out"), hl.Var("n")
    edge = hl.BoundaryConditions.constant_exterior(X, 0, [(0, w), (0, h), (0, c), (0, 1)])
    padded[_x, _y, _c] = edge[_x - pad, _y - pad, _c, 0]
    out[_x, _y, _c, n] = sum(
        padded[_x * stride + i, _y * stride + j, _c] * W[i, j, 0, _c]
        for j in range(kernel)
        for i in range(kernel)
    )
    shift = hl.TailStrategy.ShiftInwards
    lanes = next((v for v in (16, 8, 4) if size >= v), 1)
    rows = next(r for r in (4, 2, 1) if size >= r)
    out.split(_y, _yo, _yi, rows, shift).vectorize(_x, lanes, shift)
    out.reorder(_yi, _x, _yo, _c, n).unroll(_yi)
    padded.compute_at(out, _c).vectorize(_x, LANES, hl.TailStrategy.RoundUp)
    if threads > 1:
        out.parallel(_c)
    return _made(out, [X, W], arrays, (1, c, size, size), threads)


def _over_row(x: Any, width: int, combine: Any, start: float, name: str) -> tuple[Any, Any]:
    """A reduction of each row in 4 vectors of partial results."""
    lanes = 4 * LANES
    part, whole = hl.Func(f"{name}_part"), hl.Func(name)
    r = hl.RDom([(0, width // lanes)])
    q = hl.RDom([(0, lanes)])
    part[_v, _y] = hl.f32(start)
    part[_v, _y] = combine(part[_v, _y], x(r * lanes + _v))
    whole[_y] = hl.f32(start)
    whole[_y] = combine(whole[_y], part[q, _y])
    return part, whole


def _place(part: Any, whole: Any, out: Any) -> None:
    for f in (part, whole):
        f.compute_at(out, _y)
    lanes = 4 * LANES
    part.bound(_v, 0, lanes).vectorize(_v, LANES).unroll(_v)
    r = part.rvars(0)[0]
    part.update(0).reorder(_v, r).vectorize(_v, LANES).unroll(_v)


def _softmax(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    m, n = arrays[0].shape
    X = _param("X", arrays[0])
    top, most = _over_row(lambda i: X[i, _y], n, hl.max, -3e38, "top")
    powers, out = hl.Func("powers"), hl.Func("out")
    powers[_x, _y] = hl.fast_exp(X[_x, _y] - most[_y])
    part, total = _over_row(lambda i: powers[i, _y], n, lambda a, b: a + b, 0.0, "total")
    share = hl.Func("share")
    share[_y] = hl.f32(1) / total[_y]
    out[_x, _y] = powers[_x, _y] * share[_y]
    out.vectorize(_x, 4 * LANES)
    share.compute_at(out, _y)
    powers.compute_at(out, _y).vectorize(_x, 2 * LANES)
    _place(top, most, out)
    _place(part, total, out)
    if threads > 1:
        out.parallel(_y)
    return _made(out, [X], arrays, (m, n), threads)


def _layernorm(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    m, n = arrays[0].shape
    X, W, B = (_param(p, x) for p, x in zip("XWB", arrays, strict=True))
    plus = lambda a, b: a + b  # noqa: E731
    part, total = _over_row(lambda i: X[i, _y], n, plus, 0.0, "total")
    mean, factor, out = hl.Func("mean"), hl.Func("factor"), hl.Func("out")
    mean[_y] = total[_y] * hl.f32(1 / n)

    def square(i: Any) -> Any:
        d = X[i, _y] - mean[_y]
        return d * d

    part2, total2 = _over_row(square, n, plus, 0.0, "spread")
    factor[_y] = hl.f32(1) / hl.sqrt(total2[_y] * hl.f32(1 / n) + hl.f32(1e-5))
    out[_x, _y] = (X[_x, _y] - mean[_y]) * factor[_y] * W[_x] + B[_x]
    out.vectorize(_x, 4 * LANES)
    mean.compute_at(out, _y)
    factor.compute_at(out, _y)
    _place(part, total, out)
    _place(part2, total2, out)
    if threads > 1:
        out.parallel(_y)
    return _made(out, [X, W, B], arrays, (m, n), threads)


def _chain(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    X, Z = (_param(p, x) for p, x in zip("XZ", arrays, strict=True))
    a, c, d = (hl.f32(work.options[n]) for n in "acd")
    out = hl.Func("out")
    out[_x] = hl.max(X[_x] * a + Z[_x], hl.f32(0)) * c + d
    out.vectorize(_x, 4 * LANES)
    if threads > 1:
        vectors = len(arrays[0]) // (4 * LANES)
        out.split(_x, _xo, _xi, max(1, vectors // (4 * threads))).parallel(_xo)
    return _made(out, [X, Z], arrays, arrays[0].shape, threads)


def _sum(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    m, n = arrays[0].shape
    X, out = _param("X", arrays[0]), hl.Func("out")
    if work.options["axis"] == 1:
        part, total = _over_row(lambda i: X[i, _y], n, lambda a, b: a + b, 0.0, "total")
        out[_y] = total[_y]
        _place(part, total, out)
        if threads > 1:
            out.split(_y, _yo, _y, m // (4 * threads)).parallel(_yo)
        return _made(out, [X], arrays, (m,), threads)
    total = hl.Func("total")
    r = hl.RDom([(0, m)])
    total[_x] = hl.f32(0)
    total[_x] += X[_x, r]
    out[_x] = total[_x]
    out.split(_x, _xo, _xi, min(n, 1024)).vectorize(_xi, LANES)
    total.compute_at(out, _xo).vectorize(_x, LANES)
    wide = hl.Var("wide")
    total.update(0).split(_x, wide, _x, 4 * LANES).reorder(_x, wide, r)
    total.update(0).vectorize(_x, LANES).unroll(_x)
    if threads > 1:
        out.parallel(_xo)
    return _made(out, [X], arrays, (n,), threads)


def _blur(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    h, w = arrays[0].shape
    X, along, out = _param("X", arrays[0]), hl.Func("along"), hl.Func("out")
    third = hl.f32(1 / 3)
    along[_x, _y] = (X[_x, _y] + X[_x + 1, _y] + X[_x + 2, _y]) * third
    out[_x, _y] = (along[_x, _y] + along[_x, _y + 1] + along[_x, _y + 2]) * third
    out.split(_y, _yo, _yi, 32, hl.TailStrategy.GuardWithIf).vectorize(_x, LANES)
    along.store_at(out, _yo).compute_at(out, _yi).vectorize(_x, LANES)
    if threads > 1:
        out.parallel(_yo)
    return _made(out, [X], arrays, (h - 2, w - 2), threads)


def _transpose(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    m, n = arrays[0].shape
    X, out = _param("X", arrays[0]), hl.Func("out")
    block = hl.Func("block")
    block[_x, _y] = X[_x, _y]
    out[_x, _y] = block[_y, _x]
    out.split(_x, _xo, _xi, LANES).split(_y, _yo, _yi, LANES).reorder(_xi, _yi, _yo, _xo)
    out.vectorize(_xi).unroll(_yi)
    block.compute_at(out, _yo).vectorize(_x).unroll(_y)
    if threads > 1:
        out.parallel(_xo)
    return _made(out, [X], arrays, (n, m), threads)


KINDS: dict[str, Any] = {
    "matmul": _matmul,
    "conv": _conv,
    "depthwise": _depthwise,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "chain": _chain,
    "sum": _sum,
    "blur": _blur,
    "transpose": _transpose,
}
