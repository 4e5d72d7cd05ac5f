"""Types of operations, Python's weak scalars, folding, and what is refused."""

# ruff: noqa: E501  (whole messages, one a line)

from __future__ import annotations

import copy
import itertools
import math
import operator
import pickle

import numpy as np
import pytest

import tensorir.ir.maths as m
from tensorir.ir.build import (
    as_expr,
    binary,
    cast,
    compare,
    const,
    fma,
    if_then_else,
    reinterpret,
    select,
    unary,
)
from tensorir.ir.dtype import ALL, INT64, dtype, promote
from tensorir.ir.expr import FALSE, TRUE, Axis, Const, Expr, Op, Var
from tensorir.ir.language import placeholder
from tensorir.ir.verify import verify_expression
from tensorir.support.errors import ArgumentError, ArgumentTypeError

NUMPY = [d for d in ALL if d.name not in ("bfloat16",)]


def load(kind: str, name: str = "A") -> Expr:
    return placeholder((), kind, name=name)[()]


@pytest.mark.parametrize(
    ("a", "b"), list(itertools.combinations_with_replacement([d.name for d in NUMPY], 2))
)
def test_promotion_is_numpys(a: str, b: str) -> None:
    x, y = load(a), load(b, "B")
    both_bool = x.dtype.kind == y.dtype.kind == "bool"
    if not both_bool:
        expected = np.promote_types(x.dtype.numpy, y.dtype.numpy)
        assert (x + y).dtype.numpy == expected
        assert (x * y).dtype.numpy == expected
        assert select(TRUE & (load("bool", "C")), x, y).dtype.numpy == expected
    one = np.ones((), x.dtype.numpy), np.ones((), y.dtype.numpy)
    quotient = np.true_divide(*one).dtype
    if quotient != np.float16:  # halves stay halves
        assert (x / y).dtype.numpy == (quotient if not both_bool else np.float64)
    assert (x < y).dtype.name == "bool"


@pytest.mark.parametrize("d", NUMPY, ids=str)
@pytest.mark.parametrize("scalar", [True, 2, 2.5])
def test_python_scalars_are_weak_as_in_numpy(d: object, scalar: bool | int | float) -> None:
    x = load(str(d))
    if x.dtype.kind == "bool" and isinstance(scalar, bool):
        return
    expected = (np.ones(1, x.dtype.numpy) * scalar).dtype
    assert (x * scalar).dtype.numpy == expected
    assert (scalar * x).dtype.numpy == expected


def test_numpy_scalars_are_strong() -> None:
    x = load("float32")
    assert (x * np.float64(2)).dtype.name == "float64"
    assert (x * np.float32(2)).dtype.name == "float32"
    assert (load("int8") + np.int32(1)).dtype.name == "int32"


def test_numpy_scalars_on_the_left() -> None:
    x = load("float32")
    assert str(np.float32(2) * x) == "2.0 * A[()]"
    assert str(np.int64(7) // Axis("i")) == "7 // i"
    assert str(np.float32(1) < x) == "1.0 < A[()]"
    with pytest.raises(ArgumentTypeError) as raised:
        np.exp(x)
    assert str(raised.value) == (
        "np.exp does not take tensor expressions: use the functions of tensorir, such as tir.exp"
    )
    with pytest.raises(ArgumentTypeError) as raised:
        np.ones(2) * x
    assert str(raised.value) == (
        "expected a scalar expression or a number, not ndarray array([1., 1.])"
    )


def test_bfloat16_promotes() -> None:
    x = load("bfloat16")
    assert [
        (x + load(k, "B")).dtype.name for k in ("int32", "bool", "float16", "float32", "float64")
    ] == ["bfloat16", "bfloat16", "float32", "float32", "float64"]
    assert promote(dtype("bfloat16"), dtype("uint8")).name == "bfloat16"


@pytest.mark.parametrize(
    ("kind", "result"),
    [("bool", "float16"), ("int8", "float16"), ("int16", "float32"), ("int32", "float64")],
)
def test_maths_of_integers_give_numpys_floats(kind: str, result: str) -> None:
    assert m.exp(load(kind)).dtype.name == result
    assert np.exp(np.ones((), kind)).dtype == result


def test_equal_nodes_are_one_object() -> None:
    x = load("float32")
    assert x + 1 is x + 1
    assert x + 1 is not 1 + x
    assert const(0.0) is not const(-0.0)
    assert const(math.nan) is const(math.nan)
    assert const(1, "int8") is not const(1, "int16")
    assert const(True) is TRUE


def test_nodes_survive_pickling() -> None:
    n = Var("n")
    e = pickle.loads(pickle.dumps((n + 1) // 2))
    assert str(e) == "(n + 1) // 2"
    assert pickle.loads(pickle.dumps(const(0.5, "float32"))) is const(0.5, "float32")


def test_copies_of_nodes_and_tensors_are_themselves() -> None:
    n = Var("n")
    tensor = placeholder((n, 3), name="A")
    for x in (n, n + 1, Axis("i"), tensor, tensor[0, 0]):
        assert copy.copy(x) is x
        assert copy.deepcopy([x])[0] is x


BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "floormod": operator.mod,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_folding_int8_is_the_operation_at_run_time(name: str) -> None:
    for a, b in itertools.product([-128, -127, -7, -1, 0, 1, 7, 127], repeat=2):
        got = binary(name, const(a, "int8"), const(b, "int8"))
        if b == 0 and name.startswith("floor"):
            assert isinstance(got, Op)  # left to the kernel, which may be a checked one
            continue
        assert isinstance(got, Const)
        assert got.value == (BINARY[name](a, b) + 128) % 256 - 128


def test_folding_rounds_in_the_type() -> None:
    tenth = const(0.1, "float32")
    assert (tenth + const(0.2, "float32")).value == float(np.float32(0.1) + np.float32(0.2))
    assert (const(1, "float16") + const(2**-11, "float16")).value == 1.0
    assert (const(1.0, "bfloat16") + const(2**-8, "bfloat16")).value == 1.0
    assert cast(257, "bfloat16").value == 256.0
    assert (const(1.0) / 0.0).value == math.inf
    assert m.sqrt(const(2.0, "float32")).value == float(np.sqrt(np.float32(2)))
    assert m.round(const(2.5)).value == 2.0
    assert fma(const(2.0**-30), 2.0**-30, 1.0).value == 1.0


def test_folding_leaves_to_the_kernel_what_may_differ_there() -> None:
    for e in (
        m.exp(const(1.0)),
        const(1) // 0,
        const(1) % 0,
        const(1) << 64,
        const(-1) >> 64,
        const(1) << -1,
        m.maximum(const(0.0), -0.0),
    ):
        assert isinstance(e, Op)


def test_casts_fold() -> None:
    assert cast(-1, "uint8").value == 255
    assert cast(1e20, "int32").value == 2**31 - 1
    assert cast(math.nan, "int64").value == 0
    assert cast(0.5, "bool").value is True
    assert cast(True, "float32").value == 1.0
    assert reinterpret(const(-1, "int32"), "uint32").value == 2**32 - 1
    assert math.isnan(float(reinterpret(const(0x7FC00000, "int32"), "float32").value))
    assert 0.1 == cast(const(0.1), "float64").value


def test_integer_identities() -> None:
    i, n = Axis("i"), Var("n")
    assert i + 0 is i
    assert 0 + i is i
    assert i * 1 is i
    assert (i * 0) is const(0)
    assert i // 1 is i
    assert (i % 1) is const(0)
    assert str(1 + i) == "i + 1"
    assert str((i + 3) - 5) == "i - 2"
    assert (i + 3) - 3 is i
    assert str((i - 2) + n + 0) == "i - 2 + n"
    assert str(i + (1 << 62)) == f"i + {1 << 62}"
    x = load("int8")
    assert str((x + 100) + 100) == "A[()] - 56"  # wraps


def test_floats_keep_their_operations() -> None:
    x = load("float32")
    for e in (x + 0.0, x * 1.0, x - x, x * 0.0, (x + 1.0) + 2.0):
        assert isinstance(e, Op)
    assert len((x + 1.0 + 2.0).args) == 2  # type: ignore[attr-defined]


def test_logic_identities() -> None:
    i = Axis("i")
    c = i < 3
    assert (c & True) is c
    assert (c | False) is c
    assert (c & False) is FALSE
    assert (c | True) is TRUE
    assert ~~c is c
    assert select(True, i, 5) is i
    assert if_then_else(False, i, 5) is const(5)


def test_comparisons_between_signed_and_unsigned_are_exact() -> None:
    values = [(-1, 0), (-1, 2**64 - 1), (2**63 - 1, 2**63), (5, 5), (2**63 - 1, 2**63 - 1)]
    for name, op in (("lt", operator.lt), ("le", operator.le), ("eq", operator.eq),
                     ("ne", operator.ne), ("gt", operator.gt), ("ge", operator.ge)):  # fmt: skip
        for a, b in values:
            x, y = const(a, "int64"), const(b, "uint64")
            assert compare(name, x, y).value is op(a, b)  # type: ignore[attr-defined]
            assert compare(name, y, x).value is op(b, a)  # type: ignore[attr-defined]


def test_comparisons_of_bools() -> None:
    x, y = load("bool"), load("bool", "B")
    for e in (x == y, x != y, x < y, x >= y):
        verify_expression(e)
        assert e.dtype.name == "bool"


def test_powers() -> None:
    x, i = load("float32"), load("int16")
    assert str(x**2) == "A[()] * A[()]"
    assert str(x**3) == "A[()] ** 3.0"
    assert str(x**-1) == "A[()] ** (-1.0)"
    assert (i**3).dtype.name == "int16"
    assert (const(3, "int8") ** 5).value == 243 - 256
    assert (const(3) ** 0).value == 1
    with pytest.raises(ArgumentTypeError) as error:
        i**i
    assert str(error.value) == (
        "** of integers needs a constant exponent of at least 0; for others convert the base: "
        "tir.cast(x, 'float64') ** y"
    )


def test_every_operation_makes_nodes_that_keep_the_rules() -> None:
    kinds = [d.name for d in ALL]
    functions = [getattr(m, n) for n in m.__all__]
    made = 0
    for f, a, b in itertools.product(functions, kinds, kinds):
        x, y = load(a), load(b, "B")
        try:
            e = f(x, y) if f.__code__.co_argcount == 2 else f(x)
        except ArgumentTypeError:
            continue
        verify_expression(e)
        made += 1
    assert made > 3000


@pytest.mark.parametrize("op", ["and", "or", "xor", "shl", "shr", "floordiv", "min", "fmin"])
def test_operators_make_nodes_that_keep_the_rules(op: str) -> None:
    for a, b in itertools.product(ALL, repeat=2):
        try:
            e = binary(op, load(a.name), load(b.name, "B"))
        except ArgumentTypeError:
            continue
        verify_expression(e)


X = load("float32", "X")
I = Axis("i")


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: const(300, "uint8"), ArgumentError, "300 does not fit in uint8, which holds 0 to 255"),
        (lambda: load("int8") + 200, ArgumentError, "200 does not fit in int8, which holds -128 to 127"),
        (lambda: load("uint8") - (-1), ArgumentError, "-1 does not fit in uint8, which holds 0 to 255"),
        (lambda: const(2**70), ArgumentError, f"{2**70} does not fit in int64, which holds {-2**63} to {2**63 - 1}"),
        (lambda: const(2, "bool"), ArgumentError, "2 does not fit in bool, which holds 0 and 1"),
        (lambda: const(0.5, "int32"), ArgumentTypeError, "0.5 is a float and int32 holds none: convert with tir.cast(0.5, 'int32')"),
        (lambda: const("a"), ArgumentTypeError, "expected a number, not str 'a'"),
        (lambda: as_expr([1]), ArgumentTypeError, "expected a scalar expression or a number, not list [1]"),
        (lambda: X + None, ArgumentTypeError, "expected a scalar expression or a number, not NoneType None"),
        (lambda: X + np.zeros(3), ArgumentTypeError, "expected a scalar expression or a number, not ndarray array([0., 0., 0.])"),
        (lambda: X // 2, ArgumentTypeError, "// needs integers, not float32 and float32: write tir.floor(a / b)"),
        (lambda: X % 2, ArgumentTypeError, "% needs integers, not float32 and float32: write a - tir.floor(a / b) * b"),
        (lambda: X & 1, ArgumentTypeError, "& needs integers or conditions, not float32 and float32"),
        (lambda: X << 1, ArgumentTypeError, "<< needs integers, not float32 and float32"),
        (lambda: ~X, ArgumentTypeError, "~ needs an integer or a condition, not float32"),
        (lambda: (I < 3) + (I > 1), ArgumentTypeError, "+ needs numbers, not bool: convert a condition with tir.cast(cond, 'int32'), or combine conditions with & | ^"),
        (lambda: -(I < 3), ArgumentTypeError, "- needs numbers, not bool: convert a condition with tir.cast(cond, 'int32'), or combine conditions with & | ^"),
        (lambda: m.popcount(X), ArgumentTypeError, "popcount needs an integer, not float32"),
        (lambda: m.ldexp(X, X), ArgumentTypeError, "the exponent of ldexp is an integer, not float32"),
        (lambda: select(X, 1, 0), ArgumentTypeError, "the condition of select must be bool, not float32: write X[()] != 0"),
        (lambda: reinterpret(X, "int16"), ArgumentTypeError, "reinterpret needs types of equal size: float32 has 32 bits, int16 has 16"),
        (lambda: X == None, ArgumentTypeError, "an expression cannot be compared to None: test it with `is None`"),  # noqa: E711
        (lambda: cast(X, "float8"), ArgumentError, "no element type 'float8'; there are bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64"),
        (lambda: math.exp(X), ArgumentTypeError, "the value of X[()] is not known while it is declared: functions of numbers such as math.exp do not take it, use tir.exp and its kin"),
        (lambda: range(I), ArgumentTypeError, "the value of i is not known while it is declared: range() and lists do not take it; loops over it are written as axes"),
        (lambda: list(X), ArgumentTypeError, "a scalar expression cannot be iterated over"),
        (lambda: 1 if X > 0 else 2, ArgumentTypeError, "the truth of a tensor expression is not known while it is declared: use tir.select(cond, a, b) or tir.if_then_else(cond, a, b) instead of `if`, `and`, `or`, `not`; and & | ~ between conditions"),
    ],
)  # fmt: skip
def test_refusals(make: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        make()  # type: ignore[operator]
    assert str(raised.value) == text


def test_sizes_and_axes_are_int64() -> None:
    assert Var("n").dtype is INT64
    assert (Axis("i") + 1).dtype is INT64
    assert unary("neg", Axis("i")).dtype is INT64
