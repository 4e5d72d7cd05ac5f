"""Loops written by hand: what lowering makes only now and then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tensorir.codegen import cpu
from tensorir.codegen.emit import emit
from tensorir.codegen.source import KernelSource
from tensorir.ir.affine import Lin, lin
from tensorir.ir.build import binary, cast, select
from tensorir.ir.dtype import FLOAT32, INT32, INT64, DType
from tensorir.ir.expr import Axis, Const, Expr, Op, Ref, Var
from tensorir.ir.statement import Access, Array, May, Statement
from tensorir.ir.stmt import Alloc, Block, For, If, Node, Run, Storage
from tensorir.lower.boxes import ranges
from tensorir.lower.cells import Cells
from tensorir.lower.pipeline import Lowered
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import At, Loop, seq
from tests.codegen.machine import call

N = Var("N")


def array(name: str, role: str, *shape: Lin | int | Var, d: DType = FLOAT32) -> Array:
    return Array(name, d, tuple(lin(n) for n in shape), role)  # type: ignore[arg-type]


def statement(
    name: str,
    iters: Sequence[Axis],
    write: Access | tuple[Access, ...],
    reads: Sequence[Access],
    body: Expr | tuple[Expr, ...],
    role: str = "compute",
) -> Statement:
    writes = write if isinstance(write, tuple) else (write,)
    bodies = body if isinstance(body, tuple) else (body,)
    return Statement(name, name, tuple(iters), ((),), writes, tuple(reads), bodies, role)  # type: ignore[arg-type]


def loop(axis: Axis, extent: Lin | int | Var, body: Node, kind: str = "serial", width=None) -> For:
    top = lin(extent) - 1
    n = extent if isinstance(extent, int) else None
    return For(axis, ((1, Lin()),), ((1, top),), body, kind, n, width)  # type: ignore[arg-type]


def source_of(
    body: Node,
    arrays: Sequence[Array],
    storages: Sequence[Storage] = (),
    target="native",
    marks: dict[Axis, Loop] | None = None,
    **options,
) -> KernelSource:
    stmts: dict[str, Statement] = {}

    def look(n: Node) -> None:
        if isinstance(n, Run):
            stmts[n.statement.name] = n.statement
        elif isinstance(n, Block):
            for i in n.items:
                look(i)
        elif isinstance(n, If):
            look(n.body)
            if n.other is not None:
                look(n.other)
        else:
            look(n.body)

    look(body)
    box = ranges(body)
    held = {s.array: s for s in storages}
    sizes = tuple(dict.fromkeys(a for x in arrays for e in x.shape for a in e.atoms()))
    placements = {n: Placement(s, (), {}) for n, s in stmts.items()}
    tree = seq([At(n) for n in stmts])
    program = Program(tree, placements, {}, (*arrays, *held), sizes, ())  # type: ignore[arg-type]
    given = tuple(a for a in arrays if a.role != "temp")
    lowered = Lowered(body, tuple(storages), program, given, (), marks or {}, box, Cells(held, box))
    return emit(lowered, cpu.target(target), **options)


def storage(a: Array, shape: Sequence[Lin | int], **fields) -> Storage:
    extent = tuple(lin(n) for n in shape)
    dims = tuple((d, None, 1) for d in range(len(a.shape)))
    origin = tuple(Lin() for _ in a.shape)
    return Storage(a, origin, extent, dims, extent, (), **fields)


def add(a: Expr, b: Expr) -> Expr:
    return Op("add", (a, b), a.dtype)


def test_if_with_two_arms() -> None:
    i = Axis("i")
    A, B = array("A", "input", N), array("B", "output", N)
    at = Axis("x")
    one = statement("S", [at], Access(B, (lin(at),)), [Access(A, (lin(at),))], Ref(0, FLOAT32))
    two = statement("T", [at], Access(B, (lin(at),)), [], Const(7.0, FLOAT32))
    facts = (("ge", lin(i) - 3), ("ge", 8 - lin(i)))
    body = loop(i, N, If(facts, Run(one, (lin(i),)), Run(two, (lin(i),))))
    x = np.arange(12, dtype="float32")
    got = call(source_of(body, [A, B]), [x], (12,)).out
    k = np.arange(12)
    assert np.array_equal(got, np.where((k >= 3) & (k <= 8), x, 7))


def test_equality_condition() -> None:
    i, j = Axis("i"), Axis("j")
    B = array("B", "output", 5, 7)
    x, y = Axis("x"), Axis("y")
    cell = Access(B, (lin(x), lin(y)))
    one = statement("S", [x, y], cell, [], Const(1.0, FLOAT32))
    zero = statement("T", [x, y], cell, [], Const(0.0, FLOAT32))
    at = (lin(i), lin(j))
    inner = If((("eq", lin(i) * 2 - lin(j)),), Run(one, at), Run(zero, at))
    got = call(source_of(loop(i, 5, loop(j, 7, inner)), [B]), []).out
    a, b = np.mgrid[:5, :7]
    assert np.array_equal(got, (2 * a == b).astype("float32"))


@pytest.mark.parametrize("n", [0, 1, 5, 16, 23])
def test_hull_bounds(n: int) -> None:
    i = Axis("i")
    x = Axis("x")
    B = array("B", "output", N)
    s = statement("S", [x], Access(B, (lin(x),)), [], Const(2.0, FLOAT32))
    lower, upper = ((1, lin(4)), (1, Lin())), ((1, lin(N) - 1), (2, lin(N)))
    body = For(i, lower, upper, Run(s, (lin(i),), (lin(N) - 1 - lin(i),)), hull=True)
    got = call(source_of(body, [B]), [], (n,)).out
    assert (got == 2).all()


@pytest.mark.parametrize("falls", [True, False])
@pytest.mark.parametrize("n", [1, 5, 8, 13])
def test_conditions_of_loads_and_stores(n: int, falls: bool) -> None:
    """Rows are unrolled and lanes masked: B[r, l] where r + l reaches into the array."""
    t, r, v = Axis("t"), Axis("r"), Axis("v")
    x, y = Axis("x"), Axis("y")
    A, R, B = array("A", "input", N, N), array("R", "input", N), array("B", "output", N, N)
    s = statement(
        "S", [x, y], Access(B, (lin(x), lin(y))),
        [Access(A, (lin(x), lin(y))), Access(R, (lin(x),)), Access(R, (lin(y),))],
        add(add(Ref(0, FLOAT32), Ref(1, FLOAT32)), Ref(2, FLOAT32)),
    )  # fmt: skip
    row, column = Lin({t: 4, r: 1}), lin(v)
    conds = (lin(N) - 1 - row, lin(N) - 1 - column)
    run = Run(s, (row, column), conds, corner=falls)
    body = For(
        t, ((1, Lin()),), ((4, lin(N) - 1),),
        loop(r, 4, loop(v, 16, run, "vectorize", 8), "unroll"),
    )  # fmt: skip
    a, b = np.arange(n * n, dtype="float32").reshape(n, n), np.arange(n, dtype="float32")
    got = call(source_of(body, [A, R, B]), [a, b], (n,)).out
    assert np.array_equal(got, a + b[:, None] + b)


@pytest.mark.parametrize("scope", ["arena", "stack", "register"])
@pytest.mark.parametrize("d", [FLOAT32, INT32])
def test_private_buffers(scope: str, d: DType) -> None:
    """A buffer in each place, written in lanes, read in lanes and one cell at a time."""
    o, v, k = Axis("o"), Axis("v"), Axis("k")
    x, y = Axis("x"), Axis("y")
    A, B = array("A", "input", N, 8, d=d), array("B", "output", N, 8, d=d)
    T = array("T", "temp", 8, d=d)
    fill = statement("F", [x, y], Access(T, (lin(y),)), [Access(A, (lin(x), lin(y)))], Ref(0, d))
    use = statement(
        "U", [x, y], Access(B, (lin(x), lin(y))),
        [Access(T, (lin(y),)), Access(T, (lin(0),)), Access(T, (lin(5),))],
        add(add(Ref(0, d), Ref(1, d)), Ref(2, d)),
    )  # fmt: skip
    kept = storage(T, [8], scope=scope, register=4 if scope == "register" else None)
    inner = Block(
        (
            loop(v, 8, Run(fill, (lin(o), lin(v))), "vectorize", 4),
            loop(k, 8, Run(use, (lin(o), lin(k))), "vectorize", 4),
        )
    )
    body = Alloc(kept, loop(o, N, inner))
    a = np.arange(24).reshape(3, 8).astype(d.numpy)
    got = call(source_of(body, [A, B], [kept]), [a], (3,)).out
    assert np.array_equal(got, a + a[:, :1] + a[:, 5:6])


def test_a_buffer_whose_size_depends_on_a_loop() -> None:
    i, j, k = Axis("i"), Axis("j"), Axis("k")
    x, y = Axis("x"), Axis("y")
    A, B = array("A", "input", N), array("B", "output", N, N)
    T = array("T", "temp", N)
    fill = statement("F", [x, y], Access(T, (lin(y),)), [Access(A, (lin(y),))], Ref(0, FLOAT32))
    use = statement(
        "U", [x, y], Access(B, (lin(x), lin(y))), [Access(T, (lin(x) - lin(y),))], Ref(0, FLOAT32)
    )
    zero = statement("Z", [x, y], Access(B, (lin(x), lin(y))), [], Const(0.0, FLOAT32))
    kept = storage(T, [lin(i) + 1], scope="arena")
    body = loop(
        i,
        N,
        Block(
            (
                loop(k, N, Run(zero, (lin(i), lin(k)))),
                Alloc(
                    kept,
                    Block(
                        (
                            loop(j, lin(i) + 1, Run(fill, (lin(i), lin(j)))),
                            loop(k, lin(i) + 1, Run(use, (lin(i), lin(k)))),
                        )
                    ),
                ),
            )
        ),
    )
    a = np.arange(1, 8, dtype="float32")
    got = call(source_of(body, [A, B], [kept]), [a], (7,)).out
    want = np.array([[a[r - c] if c <= r else 0 for c in range(7)] for r in range(7)])
    assert np.array_equal(got, want.astype("float32"))


@pytest.mark.parametrize("name", ["fma", "add", "max", "sub"])
def test_lanes_that_write_one_cell(name: str) -> None:
    """In halves where the schedule asked for it and the operation allows it, else in order."""
    k = Axis("k")
    x = Axis("x")
    A, B = array("A", "input", 19), array("B", "output", 1)
    state, a = Ref(0, FLOAT32), Ref(1, FLOAT32)
    body: Expr
    if name == "fma":
        body = Op("fma", (a, a, state), FLOAT32)
    else:
        body = Op(name, (state, a), FLOAT32)
    cell = Access(B, (lin(0),))
    zero = statement("Z", [], cell, [], Const(0.0, FLOAT32), "init")
    s = statement("S", [x], cell, [cell, Access(A, (lin(x),))], body, "update")
    run = Run(s, (lin(k),), (18 - lin(k),))
    node = Block((Run(zero, ()), loop(k, 24, run, "vectorize", 8)))
    v = np.arange(-3, 16, dtype="float32")
    want = {"fma": (v * v).sum(), "add": v.sum(), "max": 15, "sub": -v.sum()}[name]
    asked = Loop(k, At("S"), "vectorize", 8, bind="reduce")
    source = source_of(node, [A, B], marks={k: asked})
    assert call(source, [v]).out[0] == want
    assert bool(source.notes) == (name == "sub")
    kept = source_of(node, [A, B])
    assert call(kept, [v]).out[0] == want
    assert kept.notes


def test_a_pair_across_lanes_keeps_the_first() -> None:
    k, x = Axis("k"), Axis("x")
    A = array("A", "input", 16)
    V, I = array("V", "output", 1), array("I", "output", 1, d=INT64)
    best, where, a = Ref(0, FLOAT32), Ref(1, INT64), Ref(2, FLOAT32)
    better = binary("gt", a, best)
    bodies = (select(better, a, best), select(better, x, where))
    cells = (Access(V, (lin(0),)), Access(I, (lin(0),)))
    start = statement("Z", [], cells, [], (Const(-np.inf, FLOAT32), Const(-1, INT64)), "init")
    s = statement("S", [x], cells, [*cells, Access(A, (lin(x),))], bodies, "update")
    node = Block((Run(start, ()), loop(k, 16, Run(s, (lin(k),)), "vectorize", 8)))
    v = np.array([1, 5, 3, 9, 2, 9, 9, 0] * 2, "float32")
    got = call(source_of(node, [A, V, I]), [v]).outputs
    assert (got[0][0], got[1][0]) == (9, 3)


@pytest.mark.parametrize("width", [0, 8])
@pytest.mark.parametrize("check", ["raise", "clamp"])
def test_scatter(width: int, check: str) -> None:
    """A computed index on the left: out of range it writes nothing, or the nearest cell."""
    i, x = Axis("i"), Axis("x")
    A, P = array("A", "input", N), array("P", "input", N, d=INT32)
    B = array("B", "output", 20)
    to = May(cast(Ref(1, INT32), INT64))
    s = statement(
        "S", [x], Access(B, (to,)), [Access(A, (lin(x),)), Access(P, (lin(x),))], Ref(0, FLOAT32)
    )
    inner = Run(s, (lin(i),), (lin(N) - 1 - lin(i),) if width else ())
    body = loop(i, 16, inner, "vectorize", 8) if width else loop(i, N, inner)
    a, p = (
        np.arange(1, 12, dtype="float32"),
        np.array([3, 7, 1, 0, 19, 4, 11, 2, 9, 18, 6], "int32"),
    )
    source = source_of(body, [A, P, B], index_check=check)
    found = call(source, [a, p], (11,), start=0)
    want = np.zeros(20, "float32")
    want[p] = a
    assert found.status == 0
    assert np.array_equal(found.out, want)
    p[4] = 50
    found = call(source, [a, p], (11,), start=0)
    if check == "raise":
        assert (found.status, found.info[:2]) == (1, [50, 20])
        want[19] = 0
    assert np.array_equal(found.out, want)


def test_a_load_waits_for_stores_of_its_array() -> None:
    """Strided vectors are held back; what reads their array must see them."""
    v, r, x, y = Axis("v"), Axis("r"), Axis("x"), Axis("y")
    A, B, C = array("A", "input", 2, 8), array("B", "output", 8, 2), array("C", "output", 2, 8)
    put = statement(
        "P", [x, y], Access(B, (lin(y), lin(x))), [Access(A, (lin(x), lin(y)))], Ref(0, FLOAT32)
    )
    get = statement(
        "G", [x, y], Access(C, (lin(x), lin(y))), [Access(B, (lin(y), lin(x)))],
        add(Ref(0, FLOAT32), Const(1.0, FLOAT32)),
    )  # fmt: skip
    at = (lin(r), lin(v))
    body = loop(r, 2, loop(v, 8, Block((Run(put, at), Run(get, at))), "vectorize", 8), "unroll")
    a = np.arange(16, dtype="float32").reshape(2, 8)
    b, c = call(source_of(body, [A, B, C]), [a]).outputs
    assert np.array_equal(b, a.T)
    assert np.array_equal(c, a + 1)


def test_later_stores_win() -> None:
    v, r, x, y = Axis("v"), Axis("r"), Axis("x"), Axis("y")
    B = array("B", "output", 8, 2)
    one = statement("P", [x, y], Access(B, (lin(y), lin(x))), [], Const(1.0, FLOAT32))
    two = statement("Q", [x, y], Access(B, (lin(y), lin(x))), [], Const(2.0, FLOAT32))
    at = (lin(r), lin(v))
    body = loop(r, 2, loop(v, 8, Block((Run(one, at), Run(two, at))), "vectorize", 8), "unroll")
    assert (call(source_of(body, [B]), []).out == 2).all()
