"""Products of matrices on a GPU: tiles in shared memory, copied ahead of the work on them.

With 16-bit operands and a 32-bit sum, warps multiply on the tensor cores (`mma.m16n8k16`), their
operands by `ldmatrix` from turned rows of shared memory; else each thread keeps a tile of the
result in registers. Copies are asynchronous where the target has them.
"""

from __future__ import annotations

from schedules.cpu.contraction import Contraction, Operand, contraction
from schedules.params import Param, resolve_params
from schedules.registry import register
from tensorir.codegen import targets
from tensorir.ir.target import Target
from tensorir.schedule.resolve import free_names
from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import ArgumentError

TILES = (128, 64, 32, 16)
LANES = 32
THREAD = 8  # rows and columns of a thread's tile
LEAST = 32  # rows and columns of the smallest product that the tensor cores get
MATRIX = {"float16": "mma.m16n8k16.f16", "bfloat16": "mma.m16n8k16.bf16"}


def params(
    target: Target, itemsize: int = 4, rows: int | None = None, columns: int | None = None
) -> tuple[Param, ...]:
    """The parameters of :func:`matmul` for a target, a size of operands' elements, and a result.

    A block makes `bm` by `bn` of the result, `bk` of the sum at a time, with `stages` tiles of the
    operands at once. On the tensor cores its warps make half of the rows and at least 32 columns.
    """
    bm, bn = (_tile(128, n) for n in (rows, columns))
    deep = (32, 64) if itemsize == 2 else (8, 16, 32)
    return (
        Param("bm", TILES, bm),
        Param("bn", TILES, bn),
        Param("bk", deep, 64 if itemsize == 2 else 16),
        Param("stages", (2, 3, 4), 3),
    )


def _tile(most: int, size: int | None) -> int:
    """The largest tile that the result has one of."""
    return next((t for t in TILES if t <= most and (size is None or t <= size)), TILES[-1])


def matmul(s: Schedule, target: str | Target | None = None, **given: int) -> Schedule:
    """Schedule a sum of products, `C[..., i, j] = sum over k of A * B`, for a GPU.

    Either operand may be transposed; there may be one axis of batches.

    Parameters
    ----------
    s
        The schedule of the one product, as declared.
    target
        The GPU; `"cuda"` by default.
    **given
        Values for the parameters of :func:`params`.

    Raises
    ------
    ArgumentError
        If `s` is not such a product.

    Examples
    --------
    >>> import tensorir as tir
    >>> n = 256
    >>> A, B = tir.placeholder((n, n), name="A"), tir.placeholder((n, n), name="B")
    >>> k = tir.reduce_axis(n, name="k")
    >>> C = tir.compute((n, n), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    >>> s = matmul(tir.schedule(C), "cuda:sm_80")
    >>> [step.primitive for step in s.trace.steps if step.primitive in ("pipeline", "swizzle")]
    ['pipeline', 'swizzle']
    """
    c = _product(s)
    if c is None:
        raise ArgumentError(
            "matmul: expected one stage of constant size, C[..., i, j] = sum over k of A * B"
        )
    where = targets.resolve("cuda" if target is None else target)
    rows, columns = c.sizes[c.rows[0]], c.sizes[c.columns[0]]
    size = c.left.dtype.bytes if _on_tensor_cores(c, where) else 4
    p = resolve_params(params(where, size, rows, columns), given)
    plan = _Plan(s, c, p)
    return plan.on_tensor_cores() if size == 2 else plan.in_threads()


def _on_tensor_cores(c: Contraction, target: Target) -> bool:
    types = {c.left.dtype.name, c.right.dtype.name}
    large = all((c.sizes[x] or 0) >= LEAST for x in (*c.rows, *c.columns))
    known = len(types) == 1 and types <= set(MATRIX) and c.dtype.name == "float32"
    return known and large and target.has("sm_80")


class _Plan:
    """The steps, with the names of all loops."""

    def __init__(self, s: Schedule, c: Contraction, p: dict[str, int]) -> None:
        self.s, self.c, self.p = s, c, p
        self.i, self.j, self.k = c.rows[0], c.columns[0], c.sums[0]
        self.by, self.bx, self.ko = free_names(s, "by", "bx", "ko")
        self.left, self.right, self.acc = free_names(s, "left", "right", "acc")
        self.blocks = (*c.batch, self.by, self.bx)

    # -- the tensor cores
    def on_tensor_cores(self) -> Schedule:
        s, c, p = self.s, self.c, self.p
        high, wide = max(p["bm"] // 2, 16), max(p["bn"] // 4, min(p["bn"], 32))
        warps = (p["bm"] // high) * (p["bn"] // wide)
        padded = (c.sizes[self.k] or 0) % p["bk"] != 0
        if padded:
            s = s.pad_reduction(self.k, p["bk"])
        kk, kq, k1 = free_names(s, "kk", "kq", "k1")
        s = self._lanes(s, self.i, self.j, (self.by, self.bx), high, wide, "")
        s = s.split(self.k, p["bk"], into=(self.ko, k1)).split(k1, 16, into=(kq, kk))
        inner = ("mi", "ni", "r", "c")
        s = s.reorder(*self.blocks, self.ko, "warp", "lane", kq, *inner, kk)
        s = s.cache_write(c.stage, "local", at=self.bx, name=self.acc)
        n = len(c.batch)
        s = s.transform_layout(
            self.acc, lambda *d: (*d[:n], d[n] // 8, d[n + 1] // 8, d[n] % 8, d[n + 1] % 8)
        )
        s = self._shared(s, padded)
        for name, of in ((self.left, c.left), (self.right, c.right)):
            row = p["bk"] if of.last == self.k else p["bm"] if of.last == self.i else p["bn"]
            s = _turned(s, name, row * of.dtype.bytes // 16)
        s = self._bound(s).bind("warp", "threadIdx.y").bind("lane", "threadIdx.x")
        s = s.tensorize("r", MATRIX[c.left.dtype.name])
        for loop in ("mi", "ni", kq, f"{c.stage}.init.r", f"{c.stage}.init.c"):
            s = s.unroll(loop)
        store = tuple(f"{self.acc}.store.{x.rpartition('.')[2]}" for x in (self.i, self.j))
        s = self._lanes(s, store[0], store[1], ("", ""), high, wide, "s_")
        s = s.bind("s_warp", "threadIdx.y").bind("s_lane", "threadIdx.x")
        for loop in inner:
            s = s.unroll(f"s_{loop}")
        return self._copies(s, warps, LANES)

    def _lanes(
        self,
        s: Schedule,
        i: str,
        j: str,
        blocks: tuple[str, str],
        high: int,
        wide: int,
        mark: str,
    ) -> Schedule:
        """Loops over warps and lanes around those of what a lane has of a tile."""
        by, bx = blocks
        rows, columns = (self.p["bm"], self.p["bn"])
        n = {x: f"{mark}{x}" for x in ("i1", "wi", "i2", "mi", "i3", "r", "li")}
        m = {x: f"{mark}{x}" for x in ("j1", "wj", "j2", "ni", "j3", "c", "lj")}
        if by:
            s = s.split(i, rows, into=(by, n["i1"])).split(j, columns, into=(bx, m["j1"]))
            i, j = n["i1"], m["j1"]
        s = s.split(i, high, into=(n["wi"], n["i2"])).split(n["i2"], 16, into=(n["mi"], n["i3"]))
        s = s.split(n["i3"], 8, into=(n["r"], n["li"]))
        s = s.split(j, wide, into=(m["wj"], m["j2"])).split(m["j2"], 8, into=(m["ni"], m["j3"]))
        s = s.split(m["j3"], 2, into=(m["lj"], m["c"]))
        around = self.blocks if by else ()
        own = (n["wi"], m["wj"], n["li"], m["lj"], n["mi"], m["ni"], n["r"], m["c"])
        s = s.reorder(*around, *own)
        s = s.fuse(n["wi"], m["wj"], into=f"{mark}warp")
        return s.fuse(n["li"], m["lj"], into=f"{mark}lane")

    # -- tiles of threads
    def in_threads(self) -> Schedule:
        s, c, p = self.s, self.c, self.p
        tall, wide = p["bm"] // THREAD, p["bn"] // THREAD
        i1, ty, ii, j1, tx, ji, ki = free_names(s, "i1", "ty", "ii", "j1", "tx", "ji", "ki")
        s = s.split(self.i, p["bm"], into=(self.by, i1)).split(i1, THREAD, into=(ty, ii))
        s = s.split(self.j, p["bn"], into=(self.bx, j1)).split(j1, THREAD, into=(tx, ji))
        s = s.reorder(*self.blocks, ty, tx, ii, ji)
        s = s.split(self.k, p["bk"], into=(self.ko, ki))
        s = s.reorder(*self.blocks, self.ko, ty, tx, ki, ii, ji)
        s = s.cache_write(c.stage, "local", at=self.bx, name=self.acc)
        s = self._shared(s, False)
        if c.right.last == self.j and c.right.dtype.bytes == 4:
            # eight neighbours of a thread in two pieces: the second ones in the other's banks
            s = s.swizzle(self.right, 1, 2, 3)
        s = self._bound(s).bind(ty, "threadIdx.y").bind(tx, "threadIdx.x")
        s = s.vectorize(ji, 4).unroll(ji).unroll(ii).unroll(ki)
        sy, si, sx, sj = free_names(s, "sy", "si", "sx", "sj")
        store = [f"{self.acc}.store.{x.rpartition('.')[2]}" for x in (self.i, self.j)]
        s = s.split(store[0], THREAD, into=(sy, si)).split(store[1], THREAD, into=(sx, sj))
        s = s.reorder(sy, sx, si, sj).bind(sy, "threadIdx.y").bind(sx, "threadIdx.x")
        s = s.vectorize(sj, 4).unroll(sj).unroll(si)
        return self._copies(s, tall, wide)

    # -- what both share
    def _shared(self, s: Schedule, padded: bool) -> Schedule:
        """Tiles of both operands in shared memory, some iterations ahead."""
        c, p = self.c, self.p
        if padded:
            self.left, self.right = f"{c.left.name}_pad", f"{c.right.name}_pad"
            for name in (self.left, self.right):
                s = s.compute_at(name, self.ko).set_scope(name, "shared")
        else:
            s = s.cache_read(c.left.name, "shared", at=self.ko, name=self.left)
            s = s.cache_read(c.right.name, "shared", at=self.ko, name=self.right)
        tiles = -(-(c.sizes[self.k] or 1) // p["bk"])
        stages = min(p["stages"], tiles)
        return s.pipeline(self.ko, stages) if stages > 1 else s

    def _bound(self, s: Schedule) -> Schedule:
        for loop, index in zip(self.blocks, "zyx"[-len(self.blocks) :], strict=True):
            s = s.bind(loop, f"blockIdx.{index}")
        return s

    def _copies(self, s: Schedule, tall: int, wide: int) -> Schedule:
        """Both copies on all threads, 16 bytes at a time."""
        for name, of in ((self.left, self.c.left), (self.right, self.c.right)):
            s = _copy(s, name, of, tall, wide)
        return s


def _turned(s: Schedule, name: str, pieces: int) -> Schedule:
    """Pieces of 16 bytes of a row turned by its number, so that a column lies in all banks."""
    bits = min(3, pieces.bit_length() - 1)
    return s.swizzle(name, bits, shift=max(3, pieces.bit_length() - 1)) if bits else s


def _copy(s: Schedule, name: str, of: Operand, tall: int, wide: int) -> Schedule:
    width = 16 // of.dtype.bytes
    *_, a, b = (f"{name}.{x.rpartition('.')[2]}" for x in of.index if x is not None)
    f, o, t, y, x, p, v = (f"{name}_{n}" for n in ("f", "o", "t", "y", "x", "p", "v"))
    s = s.split(b, width, into=(p, v)).fuse(a, p, into=f)
    s = s.split(f, tall * wide, into=(o, t)).split(t, wide, into=(y, x))
    s = s.bind(y, "threadIdx.y").bind(x, "threadIdx.x")
    return s.unroll(o).vectorize(v, width)


def _product(s: Schedule) -> Contraction | None:
    c = contraction(s)
    if c is None or c.finished or any(n is None for n in c.sizes.values()):
        return None
    one = len(c.rows) == len(c.columns) == len(c.sums) == 1 and len(c.batch) <= 1
    if not one or c.dtype.name != "float32" or any(not n for n in c.sizes.values()):
        return None
    for of in (c.left, c.right):
        # batches outermost, so that a tile is a matrix
        if len(of.index) != 2 + len(c.batch) or of.index[: len(c.batch)] != c.batch:
            return None
        if of.dtype.name not in ("float32", *MATRIX):
            return None
    return c


def _recognise(s: Schedule) -> bool:
    c = _product(s)
    return c is not None and all((c.sizes[x] or 0) >= TILES[-1] for x in (*c.rows, *c.columns))


@register("cuda-matmul", _recognise, kind="cuda")
def _apply(s: Schedule, target: Target) -> Schedule:
    return matmul(s, target)
