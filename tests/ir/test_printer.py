"""Text of expressions, statements and loops; the rules of loops."""

from __future__ import annotations

import pytest

from tensorir.ir.affine import Fact, Lin, lin
from tensorir.ir.build import cast, const, if_then_else, reinterpret, select
from tensorir.ir.dtype import FLOAT32, INT64
from tensorir.ir.expr import Axis, Expr, Op, Ref, Var
from tensorir.ir.language import compute, placeholder, reduce_axis
from tensorir.ir.maths import exp, maximum, truncdiv
from tensorir.ir.printer import condition_text, expr_text, loops_text, statement_text
from tensorir.ir.reducers import FLOAT_SUM
from tensorir.ir.reductions import argmax
from tensorir.ir.statement import Access, Array, May, Statement
from tensorir.ir.stmt import Alloc, Block, Bound, For, If, Run, Storage
from tensorir.ir.verify import verify_loops, verify_statement
from tensorir.support.errors import InternalError

i, j, k, n = Axis("i"), Axis("j"), Axis("k"), Var("n")
A = placeholder((8, 8), name="A")
X = A[i, j]


@pytest.mark.parametrize(
    ("e", "text"),
    [
        ((X + 1) * 2, "(A[i, j] + 1.0) * 2.0"),
        (X - (X - 1), "A[i, j] - (A[i, j] - 1.0)"),
        (X / (X * 2) / 3, "A[i, j] / (A[i, j] * 2.0) / 3.0"),
        (-(X + 1), "-(A[i, j] + 1.0)"),
        (-X + 1, "-A[i, j] + 1.0"),
        (2**X, "2.0 ** A[i, j]"),
        ((-X) ** 3, "(-A[i, j]) ** 3.0"),
        ((X**3) ** 0.5, "(A[i, j] ** 3.0) ** 0.5"),
        ((i < 3) & (j >= i) | ~(i == j), "(i < 3) & (j >= i) | ~(i == j)"),
        ((i & 3) | (j << 2), "i & 3 | j << 2"),
        ((i + 1) << (j + 2), "i + 1 << j + 2"),
        (cast(X, "int8") + 1, "int8(A[i, j]) + 1"),
        (select(i > 0, X, 0), "select(i > 0, A[i, j], 0.0)"),
        (if_then_else(i > 0, A[i - 1, j], 0), "if_then_else(i > 0, A[i - 1, j], 0.0)"),
        (exp(maximum(X, 0.1)), "exp(max(A[i, j], 0.1))"),
        (truncdiv(i, 2) // 3 % n, "truncdiv(i, 2) // 3 % n"),
        (reinterpret(X, "int32"), "reinterpret(A[i, j], int32)"),
        (const(1e30, "float32"), "1e+30"),
        (const(float("-inf")), "-inf"),
        (const(0.1, "float16"), "0.1"),
        (X - const(-1.5, "float32"), "A[i, j] - -1.5"),
        (placeholder((), "bool", name="B")[()], "B[()]"),
    ],
)
def test_expressions(e: Expr, text: str) -> None:
    assert str(e) == text
    assert repr(e) == text


def test_names_and_reads() -> None:
    e = Op("mul", (Ref(0, INT64), i + 1), INT64)
    assert expr_text(e) == "$0 * (i + 1)"
    assert expr_text(e, lambda a: "2*io + ii", ["A[i]"]) == "A[i] * (2*io + ii + 1)"


def test_a_computation() -> None:
    r = reduce_axis(8, name="r")
    c = compute((8,), lambda i: argmax(A[i, r], axis=r, with_value=True), name=("v", "at"))
    assert str(c[0].op) == (
        "v[i] = argmax(A[i, r], r, axis=r)[0]\nat[i] = argmax(A[i, r], r, axis=r)[1]"
    )


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (("ge", Lin({i: 1}, -3)), "i >= 3"),
        (("ge", Lin({i: 1})), "i >= 0"),
        (("ge", Lin({n: 1, i: -1}, -1)), "i < n"),
        (("ge", Lin({n: 1, i: -1})), "i <= n"),
        (("ge", Lin({n: 1, i: -1}, 2)), "i <= n + 2"),
        (("ge", Lin({i: -1}, 7)), "i <= 7"),
        (("eq", Lin({i: 1, j: -2}, 1)), "i == 2*j - 1"),
        (("eq", Lin({i: -1}, 4)), "i == 4"),
        (("ge", Lin(const=-1)), "False"),
    ],
)
def test_facts(fact: Fact, text: str) -> None:
    assert condition_text(fact) == text


def matmul() -> Statement:
    arrays = [Array(x, FLOAT32, (lin(n), lin(n)), "input") for x in "AB"]
    out = Array("C", FLOAT32, (lin(n), lin(n)), "output")
    cell = (lin(i), lin(j))
    reads = (
        Access(out, cell), Access(arrays[0], (lin(i), lin(k))), Access(arrays[1], (lin(k), lin(j))),
    )  # fmt: skip
    refs = [Ref(x, FLOAT32) for x in range(3)]
    body = Op("fma", (refs[1], refs[2], refs[0]), FLOAT32)
    inside: list[Fact] = []
    for a in (i, j, k):
        inside += [("ge", lin(a)), ("ge", lin(n) - lin(a) - 1)]
    domain = tuple(inside)
    return Statement(
        "C", "C", (i, j, k), (domain,), (Access(out, cell),), reads, (body,), "update", FLOAT_SUM
    )  # type: ignore[arg-type]


def test_statements() -> None:
    s = matmul()
    verify_statement(s)
    assert statement_text(s) == "C[i, j] = fma(A[i, k], B[k, j], C[i, j])"
    io, ii = Axis("io"), Axis("ii")
    split = {i: Lin({io: 8, ii: 1})}
    assert statement_text(s, split) == (
        "C[8*io + ii, j] = fma(A[8*io + ii, k], B[k, j], C[8*io + ii, j])"
    )
    assert statement_text(s, (lin(j), lin(i), lin(2))) == "C[j, i] = fma(A[j, 2], B[2, i], C[j, i])"


def test_a_statement_with_two_writes() -> None:
    out = [Array(x, INT64, (lin(n),), "output") for x in "CD"]
    writes = tuple(Access(o, (lin(i),)) for o in out)
    s = Statement("C", "C", (i,), ((),), writes, (), (i + 1, i * 2), "compute")
    verify_statement(s)
    assert statement_text(s) == "C[i], D[i] = i + 1, i * 2"


def test_statements_with_loaded_indices() -> None:
    at = Array("P", INT64, (lin(n),), "input")
    src, out = (Array(x, FLOAT32, (lin(n),), r) for x, r in (("A", "input"), ("C", "output")))  # type: ignore[arg-type]
    reads = (Access(at, (lin(i),)), Access(src, (May(Ref(0, INT64) + 1),)))
    s = Statement(
        "C", "C", (i,), ((),), (Access(out, (lin(i),)),), reads, (Ref(1, FLOAT32),), "compute"
    )
    verify_statement(s)
    assert statement_text(s, (lin(j) + 1,)) == "C[j + 1] = A[P[j + 1] + 1]"


def bounds(low: Lin, high: Lin) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
    return ((1, low),), ((1, high),)


def test_loops() -> None:
    s = matmul()
    io, ii = Axis("i"), Axis("i")
    run = Run(s, (Lin({io: 4, ii: 1}), lin(j), lin(k)), conds=(Lin({n: 1, io: -4, ii: -1}, -1),))
    ks = For(k, ((1, lin(0)), (2, lin(j) - 1)), ((1, lin(n) - 1), (3, lin(j) + 7)), run)
    js = For(j, *bounds(lin(0), lin(15)), ks, "vectorize", 16, 8)
    acc = Storage(
        s.writes[0].array, (lin(0), lin(0)), (), ((0, None, 1),), (lin(4),), (), (), "register", 0
    )
    iis = For(ii, *bounds(lin(0), lin(3)), Alloc(acc, js), "unroll", 4)
    top = For(io, ((1, lin(0)),), ((4, lin(n) - 1),), iis, "parallel")
    other = If((("ge", lin(n) - 3), ("eq", Lin({n: 1}, -8))), top, Block(()))
    assert (
        loops_text(other)
        == """\
if n >= 3 and n == 8:
  for i in 0..(n+3)//4:  # parallel
    for i_1 in 0..4:  # unroll
      alloc C: float32[4]  # registers
      for j in 0..16:  # vectorize 8
        for k in max(0, j//2)..min(n, (j+1)//3+3):
          if 4*i + i_1 < n:
            C[4*i + i_1, j] = fma(A[4*i + i_1, k], B[k, j], C[4*i + i_1, j])
else:
  pass"""
    )
    verify_loops(top)


def test_a_hull_and_padding() -> None:
    s = matmul()
    run = Run(s, (lin(i), lin(0), lin(0)), read_conds=(lin(n) - lin(i) - 1,))
    two = ((1, lin(0)), (1, lin(n))), ((1, lin(n)), (1, lin(3)))
    assert (
        loops_text(For(i, *two, run, "bind", None, None, True, "blockIdx.x"))
        == """\
for i in min(0, n)..max(n+1, 4):  # bind blockIdx.x
  C[i, 0] = fma(A[i, 0], B[0, 0], C[i, 0])  # loads if i < n"""
    )


def test_broken_rules_are_faults_of_ours(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORIR_CACHE_DIR", str(tmp_path))
    s = matmul()
    escaped = For(i, *bounds(lin(0), lin(j)), Run(s, (lin(i), lin(i), lin(i))))
    short = For(i, *bounds(lin(0), lin(3)), Run(s, (lin(i),)))
    ragged = For(i, *bounds(lin(0), lin(3)), Block(()), "vectorize", 4, 3)
    for broken, text in (
        (escaped, "j is used outside its loop, in j >= 0"),
        (short, "broken rule: an instance gives each iterator"),
        (ragged, "broken rule: the extent of a vector loop is a multiple of its lanes"),
    ):
        with pytest.raises(InternalError) as raised:
            verify_loops(broken)
        assert str(raised.value) == text
