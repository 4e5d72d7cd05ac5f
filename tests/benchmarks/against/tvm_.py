"""TVM, scheduled by hand for vectors of 16 floats with its own primitives, compiled beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import te
from tvm.s_tir import Schedule

from tests.benchmarks.work import Array, Candidate, Work, empty

LANES = 16


def _target() -> Any:
    from tensorir.codegen import cpu

    return tvm.target.Target({"kind": "llvm", "mcpu": cpu.target("native").cpu})


def _made(s: Schedule, arrays: Sequence[Array], shape: tuple[int, ...]) -> dict[str, Candidate]:
    result = empty(shape, arrays[0].dtype)
    call = tvm.tirx.build(s.mod, _target())["main"]
    given = [tvm.runtime.from_dlpack(x) for x in (*arrays, result)]
    return {"tvm": Candidate(lambda _keep=(arrays, result): call(*given), lambda: result)}


def _schedule(*tensors: Any) -> Schedule:
    return Schedule(te.create_prim_func(list(tensors)))


def _inputs(arrays: Sequence[Array]) -> list[Any]:
    return [te.placeholder(x.shape, x.dtype.name, name=n) for n, x in zip("ABD", arrays)]  # noqa: B905


def _matmul(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    """Panels of B packed with zeros behind them, a tile of 6 rows by 4 vectors in registers."""
    a, b = arrays
    if a.dtype.name not in ("float32", "float64"):
        return {}
    if a.ndim == 3:
        return _batched(arrays, threads)
    (m, k), n = a.shape, b.shape[1]
    lanes = 64 // a.itemsize
    nr = min(4 * lanes, -(-n // lanes) * lanes)
    mr = {1: 16, 2: 12, 3: 8}.get(nr // lanes, 6) if m >= 12 else 4
    A, B = _inputs(arrays)
    panels = -(-n // nr)
    zero = tvm.tirx.const(0, a.dtype.name)

    def packed(p: Any, i: Any, j: Any) -> Any:
        if n % nr == 0:
            return B[i, p * nr + j]
        return te.if_then_else(p * nr + j < n, B[i, p * nr + j], zero)

    P = te.compute((panels, k, nr), packed, name="P")
    r = te.reduce_axis((0, k), "k")
    last = m - 1
    T = te.compute(
        (-(-m // mr), panels, mr, nr),
        lambda io, p, ii, ji: te.sum(A[te.min(io * mr + ii, last), r] * P[p, r, ji], axis=r),
        name="T",
    )
    C = te.compute((m, n), lambda i, j: T[i // mr, j // nr, i % mr, j % nr], name="C")
    s = _schedule(A, B, C)
    block, out = s.get_sblock("T"), s.get_sblock("C")
    s.set_scope(block, 0, "local")
    i, j = s.get_loops(out)
    io, ii = s.split(i, [None, mr])
    jo, ji = s.split(j, [None, nr])
    rows = max(1, min(-(-m // mr), 192 // mr))  # tiles of A that stay in the second cache
    ib, io = s.split(io, [None, rows])
    s.reorder(ib, jo, io, ii, ji)
    s.compute_at(block, io)
    _vectors(s, out, lanes)
    *_, ti, tj, kk = s.get_loops(block)
    s.reorder(kk, ti, tj)
    _vectors(s, block, lanes)
    if threads > 1:
        s.parallel(jo)
    _unroll_inner(s, s.decompose_reduction(block, kk))
    p0 = s.get_loops(s.get_sblock("P"))[0]
    if n % nr and panels > 1:  # so that only the last panel asks where B ends
        p0, _ = s.loop_partition(p0, [panels - 1, None])
        whole = s.get_child_blocks(p0)[0]
        p0 = s.get_loops(whole)[0]
    else:
        whole = s.get_sblock("P")
    pj = s.get_loops(whole)[-1]
    pv, pl = s.split(pj, [None, lanes])
    s.vectorize(pl)
    s.unroll(pv)
    if threads > 1:
        s.parallel(p0)
    return _made(s, arrays, (m, n))


def _vectors(s: Schedule, block: Any, lanes: int) -> None:
    """The last two loops written out, the last one in vectors."""
    i, j = s.get_loops(block)[-2:]
    v, inner = s.split(j, [None, lanes])
    s.unroll(i)
    s.unroll(v)
    s.vectorize(inner)


def _unroll_inner(s: Schedule, block: Any, loops: int = 3) -> None:
    """The loops of an initial value like those of its tile: rows, vectors, lanes."""
    for loop in s.get_loops(block)[-loops:-1]:
        s.unroll(loop)
    s.vectorize(s.get_loops(block)[-1])


def _batched(arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    a, b = arrays
    (count, m, k), n = a.shape, b.shape[2]
    A, B = _inputs(arrays)
    r = te.reduce_axis((0, k), "k")
    C = te.compute(
        (count, m, n), lambda q, i, j: te.sum(A[q, i, r] * B[q, r, j], axis=r), name="C"
    )  # fmt: skip
    s = _schedule(A, B, C)
    block = s.get_sblock("C")
    tile = s.cache_write(block, 0, "local")
    q, i, j, kk = s.get_loops(block)
    io, ii = s.split(i, [None, 8])
    jv, jl = s.split(j, [None, LANES])
    s.reorder(q, io, kk, ii, jv, jl)
    s.unroll(ii)
    s.unroll(jv)
    s.vectorize(jl)
    s.reverse_compute_at(tile, io)
    ti, tj = s.get_loops(tile)[-2:]
    tv, tl = s.split(tj, [None, LANES])
    s.vectorize(tl)
    s.unroll(tv)
    s.unroll(ti)
    if threads > 1:
        s.parallel(q)
    _unroll_inner(s, s.decompose_reduction(block, kk))
    return _made(s, arrays, (count, m, n))


def _conv(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    """Filters in vectors, a row of pixels in registers; weights and image packed in the call."""
    image, weight = arrays
    o = work.options
    _, c, h, w = image.shape
    f, _, kernel, _ = weight.shape
    stride, pad = o["stride"], o["padding"]
    size = (h + 2 * pad - kernel) // stride + 1
    wide = 2 * LANES
    if f % wide:
        return {}
    pixels = next(p for p in (14, 12, 8, 7, 4, 2, 1) if size % p == 0)
    X, W = _inputs(arrays)
    zero = tvm.tirx.const(0, "float32")

    def padded(ch: Any, y: Any, x: Any) -> Any:
        inside = te.all(y >= pad, y < h + pad, x >= pad, x < w + pad)
        return te.if_then_else(inside, X[0, ch, y - pad, x - pad], zero) if pad else X[0, ch, y, x]

    Q = te.compute((c, h + 2 * pad, w + 2 * pad), padded, name="Q")
    P = te.compute(
        (f // wide, kernel, kernel, c, wide),
        lambda fo, ky, kx, ch, fi: W[fo * wide + fi, ch, ky, kx], name="P",
    )  # fmt: skip
    rc, ry, rx = (te.reduce_axis((0, e), n) for e, n in ((c, "rc"), (kernel, "ry"), (kernel, "rx")))
    T = te.compute(
        (f // wide, size, size, wide),
        lambda fo, y, x, fi: te.sum(
            P[fo, ry, rx, rc, fi] * Q[rc, y * stride + ry, x * stride + rx], axis=[ry, rx, rc]
        ), name="T",
    )  # fmt: skip
    C = te.compute(
        (1, f, size, size), lambda n, ch, y, x: T[ch // wide, y, x, ch % wide], name="C"
    )  # fmt: skip
    s = _schedule(X, W, C)
    block, last = s.get_sblock("T"), s.get_sblock("C")
    s.set_scope(block, 0, "local")
    _, ch, y, x = s.get_loops(last)
    co, ci = s.split(ch, [None, wide])
    xo, xi = s.split(x, [None, pixels])
    s.reorder(co, y, xo, ci, xi)
    s.compute_at(block, xo, preserve_unit_loops=True)
    *_, bx, bf, k0, k1, k2 = s.get_loops(block)
    fv, fl = s.split(bf, [None, LANES])
    s.reorder(k0, k1, k2, bx, fv, fl)
    s.unroll(bx)
    s.unroll(fv)
    s.vectorize(fl)
    s.unroll(ci)
    s.vectorize(xi)
    if threads > 1:
        s.parallel(co)
    _unroll_inner(s, s.decompose_reduction(block, k0))
    s.vectorize(s.get_loops(s.get_sblock("Q"))[-1])
    s.vectorize(s.get_loops(s.get_sblock("P"))[-1])
    return _made(s, arrays, (1, f, size, size))


def _depthwise(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    image, weight = arrays
    o = work.options
    _, c, h, w = image.shape
    kernel, stride, pad = weight.shape[2], o["stride"], o["padding"]
    size = (h + 2 * pad - kernel) // stride + 1
    X, W = _inputs(arrays)
    zero = tvm.tirx.const(0, "float32")

    def padded(ch: Any, y: Any, x: Any) -> Any:
        inside = te.all(y >= pad, y < h + pad, x >= pad, x < w + pad)
        return te.if_then_else(inside, X[0, ch, y - pad, x - pad], zero)

    Q = te.compute((c, h + 2 * pad, w + 2 * pad), padded, name="Q")
    taps = [(j, i) for j in range(kernel) for i in range(kernel)]

    def windows(_n: Any, ch: Any, y: Any, x: Any) -> Any:
        total = zero
        for j, i in taps:
            total = Q[ch, y * stride + j, x * stride + i] * W[ch, 0, j, i] + total
        return total

    C = te.compute((1, c, size, size), windows, name="C")
    s = _schedule(X, W, C)
    _, ch, y, x = s.get_loops(s.get_sblock("C"))
    s.compute_at(s.get_sblock("Q"), ch)
    rows = next(r for r in (4, 2, 1) if size % r == 0)
    lanes = next(v for v in (14, 16, 12, 8, 7, 4, 2, 1) if size % v == 0)
    yo, yi = s.split(y, [None, rows])
    xo, xi = s.split(x, [None, lanes])
    s.reorder(yo, xo, yi, xi)
    s.unroll(yi)
    s.vectorize(xi)
    s.vectorize(s.get_loops(s.get_sblock("Q"))[-1])
    if threads > 1:
        s.parallel(ch)
    return _made(s, arrays, (1, c, size, size))


def _reduced(s: Schedule, name: str) -> None:
    """The four vectors of partial results of `_over_row`."""
    block = s.get_sblock(f"{name}_part")
    lane, outer = s.get_loops(block)[-2:]
    vector, lanes = s.split(lane, [None, LANES])
    s.reorder(outer, vector, lanes)
    s.unroll(vector)
    s.vectorize(lanes)
    _unroll_inner(s, s.decompose_reduction(block, outer), 2)


def _over_row(combine: Any, read: Any, m: int, n: int, name: str) -> Any:
    """A reduction of each row by way of four vectors of partial results."""
    wide = 4 * LANES
    r, q = te.reduce_axis((0, n // wide), "r"), te.reduce_axis((0, wide), "q")
    part = te.compute(
        (m, wide), lambda i, v: combine(read(i, r * wide + v), axis=r), name=f"{name}_part"
    )
    return te.compute((m,), lambda i: combine(part[i, q], axis=q), name=name)


def _softmax(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    m, n = arrays[0].shape
    (X,) = _inputs(arrays)
    M = _over_row(te.max, lambda i, j: X[i, j], m, n, "M")
    E = te.compute((m, n), lambda i, j: _exp(X[i, j] - M[i]), name="E")
    S = _over_row(te.sum, lambda i, j: E[i, j], m, n, "S")
    V = te.compute((m,), lambda i: tvm.tirx.const(1, "float32") / S[i], name="V")
    Y = te.compute((m, n), lambda i, j: E[i, j] * V[i], name="Y")
    s = _schedule(X, Y)
    return _rows(
        s, arrays, ("V", "S", "S_part", "E", "M", "M_part"), ("M", "S"), ("E", "Y"), threads
    )


def _exp(x: Any) -> Any:
    """The polynomial of Cephes: TVM's own exp is a call for each lane."""
    f = lambda v: tvm.tirx.const(v, "float32")  # noqa: E731
    x = te.max(x, f(-87.0))
    n = tvm.tirx.floor(x * f(1.4426950408889634) + f(0.5))
    r = x - n * f(0.693359375) + n * f(2.12194440e-4)
    p = f(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + f(c)
    p = p * r * r + r + f(1.0)
    power = (n.astype("int32") + tvm.tirx.const(127, "int32")) << tvm.tirx.const(23, "int32")
    return p * tvm.tirx.reinterpret("float32", power)


def _layernorm(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    m, n = arrays[0].shape
    X, W, B = _inputs(arrays)
    f = lambda v: tvm.tirx.const(v, "float32")  # noqa: E731
    M = _over_row(te.sum, lambda i, j: X[i, j], m, n, "M")
    U = te.compute((m,), lambda i: M[i] * f(1 / n), name="U")
    S = _over_row(te.sum, lambda i, j: (X[i, j] - U[i]) * (X[i, j] - U[i]), m, n, "S")
    V = te.compute((m,), lambda i: f(1) / te.sqrt(S[i] * f(1 / n) + f(1e-5)), name="V")
    Y = te.compute((m, n), lambda i, j: (X[i, j] - U[i]) * V[i] * W[j] + B[j], name="Y")
    s = _schedule(X, W, B, Y)
    return _rows(s, arrays, ("V", "S", "S_part", "U", "M", "M_part"), ("M", "S"), ("Y",), threads)


def _rows(
    s: Schedule,
    arrays: tuple[Array, ...],
    stages: tuple[str, ...],
    reduced: tuple[str, ...],
    wide: tuple[str, ...],
    threads: int,
) -> dict[str, Candidate]:
    """Everything of a row together, row after row."""
    row, _ = s.get_loops(s.get_sblock("Y"))
    for name in stages:
        s.compute_at(s.get_sblock(name), row)
    for name in wide:
        block = s.get_sblock(name)
        _, v, lanes = s.split(s.get_loops(block)[-1], [None, 2, LANES])
        s.unroll(v)
        s.vectorize(lanes)
    if threads > 1:
        s.parallel(row)
    for name in reduced:
        _reduced(s, name)
    return _made(s, arrays, arrays[0].shape)


def _chain(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    X, Z = _inputs(arrays)
    a, c, d = (tvm.tirx.const(work.options[n], "float32") for n in "acd")
    zero = tvm.tirx.const(0, "float32")
    Y = te.compute(X.shape, lambda i: te.max(X[i] * a + Z[i], zero) * c + d, name="Y")
    s = _schedule(X, Z, Y)
    outer, v, lanes = s.split(s.get_loops(s.get_sblock("Y"))[0], [None, 4, LANES])
    s.unroll(v)
    s.vectorize(lanes)
    if threads > 1:
        s.parallel(outer)
    return _made(s, arrays, arrays[0].shape)


def _blur(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    h, w = arrays[0].shape
    (X,) = _inputs(arrays)
    third = tvm.tirx.const(1 / 3, "float32")
    T = te.compute((h, w - 2), lambda y, x: (X[y, x] + X[y, x + 1] + X[y, x + 2]) * third, name="T")
    Y = te.compute(
        (h - 2, w - 2), lambda y, x: (T[y, x] + T[y + 1, x] + T[y + 2, x]) * third, name="Y"
    )
    s = _schedule(X, Y)
    y, x = s.get_loops(s.get_sblock("Y"))
    strip = next(v for v in (32, 16, 8, 4, 2, 1) if (h - 2) % v == 0)
    yo, yi = s.split(y, [None, strip])
    xo, xi = s.split(x, [None, 4 * LANES])
    s.reorder(yo, xo, yi, xi)
    s.vectorize(xi)
    s.compute_at(s.get_sblock("T"), xo)
    along = s.get_loops(s.get_sblock("T"))[-1]
    s.vectorize(along)
    if threads > 1:
        s.parallel(yo)
    return _made(s, arrays, (h - 2, w - 2))


KINDS: dict[str, Any] = {
    "matmul": _matmul,
    "conv": _conv,
    "depthwise": _depthwise,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "chain": _chain,
    "blur": _blur,
}
