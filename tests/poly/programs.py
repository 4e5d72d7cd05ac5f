"""Programs built by hand, without the language: what the tests of `tensorir.poly` are about."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from tensorir.ir.affine import Conj, Fact, Lin, lin
from tensorir.ir.dtype import FLOAT32, DType
from tensorir.ir.expr import Axis, Const, Ref, Var
from tensorir.ir.reducer import Reducer
from tensorir.ir.statement import Access, Array, Index, Statement
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.tree import At, Loop, Seq, Tree

SUM = Reducer("sum", 1, lambda a, b: a, None, True, True, False)
EXACT_SUM = Reducer("sum", 1, lambda a, b: a, None, True, True, True)
LAST = Reducer("last", 1, lambda a, b: b, None, True, False, True)


class Maker:
    """Statements and arrays from short text: `m.stmt("U", "i j k", "0<=i<M, ...", ...)`."""

    def __init__(self, sizes: str, temps: str = "", dtype: DType = FLOAT32) -> None:
        self.sizes = {n: Var(n) for n in sizes.split()}
        self.arrays: dict[str, Array] = {}
        self.shapes: dict[str, str] = {}
        self.temps = temps.split()
        self.dtype = dtype
        self.stmts: dict[str, Statement] = {}

    def shape(self, **shapes: str) -> Maker:
        for name, text in shapes.items():
            dims = tuple(self.lin(t, {}) for t in text.split(",")) if text else ()
            role = "temp" if name in self.temps else "input"
            self.arrays[name] = Array(name, self.dtype, dims, role)
        return self

    def lin(self, text: str, axes: dict[str, Axis]) -> Lin:
        return _lin(ast.parse(text.strip(), mode="eval").body, {**self.sizes, **axes})

    def facts(self, text: str, axes: dict[str, Axis]) -> Conj:
        """`0<=i<N, i<j` as facts."""
        out: list[Fact] = []
        for part in filter(None, (p.strip() for p in text.split(","))):
            node = ast.parse(part, mode="eval").body
            assert isinstance(node, ast.Compare)
            items = [_lin(x, {**self.sizes, **axes}) for x in (node.left, *node.comparators)]
            for op, a, b in zip(node.ops, items, items[1:]):
                out.append(_fact(op, a, b))
        return tuple(out)

    def access(self, text: str, axes: dict[str, Axis]) -> Access:
        name, _, rest = text.partition("[")
        indices = [t for t in rest.rstrip("]").split(",") if t.strip()]
        index: tuple[Index, ...] = tuple(self.lin(t, axes) for t in indices)
        return Access(self.arrays[name], index)

    def stmt(
        self, name: str, iters: str, domain: str, write: str, reads: str = "",
        role: str = "compute", combiner: Reducer | None = None, stage: str | None = None,
    ) -> Statement:  # fmt: skip
        axes = {n: Axis(n) for n in iters.split()}
        region = tuple(self.facts(d, axes) for d in domain.split("|"))
        w = self.access(write, axes)
        rs = tuple(self.access(r, axes) for r in reads.split())
        body = Ref(0, self.dtype) if rs else Const(0.0, self.dtype)
        stage = stage or w.array.name
        s = Statement(name, stage, tuple(axes.values()), region, (w,), rs, (body,), role, combiner)  # type: ignore[arg-type]
        self.stmts[name] = s
        return s

    def program(self, shape: Tree, placements: dict[str, tuple[Axis, ...]]) -> Program:
        ps = {n: Placement.fresh(self.stmts[n], a) for n, a in placements.items()}
        temps = {self.arrays[t]: Buffer() for t in self.temps}
        context = tuple(("ge", Lin({v: 1})) for v in self.sizes.values())
        arrays = tuple(self.arrays.values())
        return Program(shape, ps, temps, arrays, tuple(self.sizes.values()), context)


def _lin(e: ast.expr, names: dict[str, Axis | Var]) -> Lin:
    if isinstance(e, ast.Constant):
        return lin(e.value)
    if isinstance(e, ast.Name):
        return lin(names[e.id])
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
        return -_lin(e.operand, names)
    assert isinstance(e, ast.BinOp), ast.dump(e)
    a, b = _lin(e.left, names), _lin(e.right, names)
    if isinstance(e.op, ast.Add):
        return a + b
    if isinstance(e.op, ast.Sub):
        return a - b
    if isinstance(e.op, ast.Mult):
        return b * a.const if a.is_const else a * b.const
    return a // b.const if isinstance(e.op, ast.FloorDiv) else a % b.const


def _fact(op: ast.cmpop, a: Lin, b: Lin) -> Fact:
    if isinstance(op, ast.Eq):
        return "eq", a - b
    if isinstance(op, ast.LtE):
        return "ge", b - a
    if isinstance(op, ast.Lt):
        return "ge", b - a - 1
    return ("ge", a - b) if isinstance(op, ast.GtE) else ("ge", a - b - 1)


def axes(names: str) -> tuple[Axis, ...]:
    return tuple(Axis(n) for n in names.split())


def nest(axes_: Iterable[Axis], inner: Tree) -> Tree:
    for a in reversed(tuple(axes_)):
        inner = Loop(a, inner)
    return inner


def matmul(dtype: DType = FLOAT32, reducer: Reducer = SUM) -> tuple[Program, dict[str, Axis]]:
    m = Maker("M N K", dtype=dtype).shape(A="M,K", B="K,N", C="M,N")
    m.stmt("C.init", "i j", "0<=i<M, 0<=j<N", "C[i,j]", "", "init", reducer)
    m.stmt(
        "C", "i j k", "0<=i<M, 0<=j<N, 0<=k<K", "C[i,j]", "C[i,j] A[i,k] B[k,j]", "update", reducer
    )
    i, j, k = axes("i j k")
    t = Loop(i, Loop(j, Seq((At("C.init"), Loop(k, At("C"))))))
    return m.program(t, {"C.init": (i, j), "C": (i, j, k)}), {"i": i, "j": j, "k": k}


def split_matmul() -> tuple[Program, dict[str, Axis]]:
    """The init in a nest of its own, as after `decompose_reduction`."""
    p, a = matmul()
    a = {**a, "i0": Axis("i0"), "j0": Axis("j0")}
    init = Placement.fresh(p.stmt("C.init"), (a["i0"], a["j0"]))
    t = Seq((
        nest((a["i0"], a["j0"]), At("C.init")),
        nest((a["i"], a["j"], a["k"]), At("C")),
    ))  # fmt: skip
    return p.change(tree=t, placements={"C.init": init, "C": p.placements["C"]}), a


def matmul_bias_relu() -> tuple[Program, dict[str, Axis]]:
    m = Maker("M N K", temps="C").shape(A="M,K", B="K,N", C="M,N", b="N", D="M,N")
    m.stmt("C.init", "i j", "0<=i<M, 0<=j<N", "C[i,j]", "", "init", SUM)
    m.stmt("C", "i j k", "0<=i<M, 0<=j<N, 0<=k<K", "C[i,j]", "C[i,j] A[i,k] B[k,j]", "update", SUM)
    m.stmt("D", "i j", "0<=i<M, 0<=j<N", "D[i,j]", "C[i,j] b[j]")
    i, j, k, y, x = axes("i j k y x")
    t = Seq((Loop(i, Loop(j, Seq((At("C.init"), Loop(k, At("C")))))), nest((y, x), At("D"))))
    p = m.program(t, {"C.init": (i, j), "C": (i, j, k), "D": (y, x)})
    return p, {"i": i, "j": j, "k": k, "y": y, "x": x}


def blur(extra: int = 2) -> tuple[Program, dict[str, Axis]]:
    m = Maker("M N", temps="bx").shape(inp="M+2,N+2", bx="M+2,N", out="M,N")
    m.stmt("bx", "y x", f"0<=y<M+{extra}, 0<=x<N", "bx[y,x]", "inp[y,x] inp[y,x+1] inp[y,x+2]")
    m.stmt("out", "y x", "0<=y<M, 0<=x<N", "out[y,x]", "bx[y,x] bx[y+1,x] bx[y+2,x]")
    by, bx, y, x = axes("by bx y x")
    t = Seq((nest((by, bx), At("bx")), nest((y, x), At("out"))))
    return m.program(t, {"bx": (by, bx), "out": (y, x)}), {"by": by, "bx": bx, "y": y, "x": x}


def syrk() -> tuple[Program, dict[str, Axis]]:
    m = Maker("N K").shape(A="N,K", C="N,N")
    m.stmt("C", "i j k", "0<=i<N, 0<=j<=i, 0<=k<K", "C[i,j]", "C[i,j] A[i,k] A[j,k]", "update", SUM)
    i, j, k = axes("i j k")
    return m.program(nest((i, j, k), At("C")), {"C": (i, j, k)}), {"i": i, "j": j, "k": k}


def trmm() -> tuple[Program, dict[str, Axis]]:
    """`B[i,j] += A[k,i]*B[k,j]` for k > i, in place: no declared reduction."""
    m = Maker("M N").shape(A="M,M", B="M,N")
    m.stmt(
        "B", "i j k", "0<=i<M, 0<=j<N, i<k, k<M", "B[i,j]", "B[i,j] A[k,i] B[k,j]", "update", SUM
    )
    i, j, k = axes("i j k")
    return m.program(nest((i, j, k), At("B")), {"B": (i, j, k)}), {"i": i, "j": j, "k": k}


def jacobi() -> tuple[Program, dict[str, Axis]]:
    m = Maker("T N").shape(a="T+1,N")
    m.stmt("J", "t i", "0<=t<T, 1<=i<N-1", "a[t+1,i]", "a[t,i-1] a[t,i] a[t,i+1]")
    t, i = axes("t i")
    return m.program(nest((t, i), At("J")), {"J": (t, i)}), {"t": t, "i": i}


def cholesky() -> tuple[Program, dict[str, Axis]]:
    m = Maker("N").shape(A="N,N")
    m.stmt("U1", "i j k", "0<=i<N, 0<=j<i, 0<=k<j", "A[i,j]", "A[i,j] A[i,k] A[j,k]")
    m.stmt("D1", "i j", "0<=i<N, 0<=j<i", "A[i,j]", "A[i,j] A[j,j]")
    m.stmt("U2", "i k", "0<=i<N, 0<=k<i", "A[i,i]", "A[i,i] A[i,k]")
    m.stmt("D2", "i", "0<=i<N", "A[i,i]", "A[i,i]")
    i, j, k, k2 = axes("i j k k2")
    t = Loop(i, Seq((Loop(j, Seq((Loop(k, At("U1")), At("D1")))), Loop(k2, At("U2")), At("D2"))))
    p = m.program(t, {"U1": (i, j, k), "D1": (i, j), "U2": (i, k2), "D2": (i,)})
    return p, {"i": i, "j": j, "k": k, "k2": k2}


def scan() -> tuple[Program, dict[str, Axis]]:
    m = Maker("M N", temps="p").shape(x="M,N", p="M,N", q="M,N")
    m.stmt("p.init", "x0", "0<=x0<N", "p[0,x0]", "x[0,x0]")
    m.stmt("p", "y x0", "1<=y<M, 0<=x0<N", "p[y,x0]", "p[y-1,x0] x[y,x0]")
    m.stmt("q", "y x0", "0<=y<M, 0<=x0<N", "q[y,x0]", "p[y,x0]")
    a, y, x, u, v = axes("a y x u v")
    t = Seq((Loop(a, At("p.init")), nest((y, x), At("p")), nest((u, v), At("q"))))
    p = m.program(t, {"p.init": (a,), "p": (y, x), "q": (u, v)})
    return p, {"a": a, "y": y, "x": x, "u": u, "v": v}


# -- rewrites of trees by hand, as primitives make them
def reordered(p: Program, name: str, order: Iterable[Axis]) -> Program:
    """A program of one perfect nest with its loops in `order`."""
    return p.change(tree=nest(order, At(name)))


def split(p: Program, axis: Axis, factor: int, into: str) -> tuple[Program, tuple[Axis, Axis]]:
    o, i = axes(into)
    value = Lin({o: factor, i: 1})
    known: Conj = (
        ("eq", lin(axis) - value), ("ge", lin(i)), ("ge", Lin({i: -1}, factor - 1)),
    )  # fmt: skip
    ps = {
        n: pl.replace_axis(axis, (o, i), value, known) if any(a is axis for a in pl.axes) else pl
        for n, pl in p.placements.items()
    }

    def change(t: Tree) -> Tree:
        if isinstance(t, At):
            return t
        if isinstance(t, Seq):
            return Seq(tuple(change(x) for x in t.items))
        if t.axis is axis:
            return Loop(o, Loop(i, t.body))
        return replace(t, body=change(t.body))

    return p.change(tree=change(p.tree), placements=ps), (o, i)


def replaced(p: Program, axis: Axis, new: Axis, value: Lin) -> Program:
    """`axis == value`, an expression of `new` and axes outside: skew, shift, reverse."""
    ps = {
        n: pl.replace_axis(axis, (new,), value, (("eq", lin(axis) - value),))
        if any(a is axis for a in pl.axes)
        else pl
        for n, pl in p.placements.items()
    }

    def change(t: Tree) -> Tree:
        if isinstance(t, At):
            return t
        if isinstance(t, Seq):
            return Seq(tuple(change(x) for x in t.items))
        return replace(t, axis=new if t.axis is axis else t.axis, body=change(t.body))

    return p.change(tree=change(p.tree), placements=ps)
