"""Declaring: shapes, names, axes, types of reductions, and every refusal with its whole text."""

# ruff: noqa: E501  (whole messages, one a line)

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from tensorir.ir.affine import lin
from tensorir.ir.build import cast, const, if_then_else, select
from tensorir.ir.expr import Axis, Expr, Op, Reduce, Ref
from tensorir.ir.language import compute, placeholder, reduce_axis, var
from tensorir.ir.maths import exp
from tensorir.ir.reducers import init_values, update_bodies
from tensorir.ir.reductions import all as all_of
from tensorir.ir.reductions import any as any_of
from tensorir.ir.reductions import argmax, prod, reducer
from tensorir.ir.reductions import max as max_of
from tensorir.ir.reductions import min as min_of
from tensorir.ir.reductions import sum as sum_of
from tensorir.ir.tensor import Compute, Tensor
from tensorir.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    BoundsError,
    TensorIRError,
    UnsupportedError,
)

n = var("n")
A = placeholder((4, 8), name="A")
B = placeholder((8,), name="B")
k = reduce_axis(8, name="k")


def op(t: Tensor) -> Compute:
    assert t.op is not None
    return t.op


def test_shapes() -> None:
    t = placeholder((n, 2 * n + 1, np.int64(3)), "int8", name="T")
    assert repr(t) == "T: int8[n, 2*n + 1, 3]"
    assert t.shape[0] is n
    assert str(t.shape[1]) == "n * 2 + 1"
    assert t.shape[2] == 3
    assert t.ndim == 3
    assert placeholder(5, name="S").shape == (5,)
    assert placeholder((), name="S").shape == ()
    assert placeholder((0, 4), name="S").shape == (0, 4)
    assert compute(n, lambda i: i).shape == (n,)


def test_names_of_axes_come_from_the_parameters() -> None:
    assert [a.name for a in op(compute((4, 8), lambda row, col: A[row, col])).axes] == [
        "row",
        "col",
    ]
    assert [a.name for a in op(compute((4, 8), lambda *at: A[at])).axes] == ["i0", "i1"]
    assert [a.name for a in op(compute((4, 8), lambda i, *at: A[i, at[0]])).axes] == ["i", "i1"]
    assert [a.name for a in op(compute((4,), lambda _: 1.0)).axes] == ["i0"]
    assert [a.name for a in op(compute((4, 8), lambda *at: A[at], axes=("y", "x"))).axes] == [
        "y",
        "x",
    ]
    first = op(compute((4,), lambda i, scale=2.0: A[i, 0] * scale))
    assert [a.name for a in first.axes] == ["i"]
    assert first.axes[0].lower == lin(0)
    assert first.axes[0].upper == lin(4)


def test_outputs() -> None:
    one = compute((4,), lambda i: (A[i, 0],), name="one")
    assert repr(one) == "(one: float32[4],)"
    many = compute((4,), lambda i: (A[i, 0], i), name="T")
    assert repr(many) == "(T_0: float32[4], T_1: int64[4])"
    assert many[0].op is many[1].op
    assert [t.component for t in many] == [0, 1]
    assert compute((4,), lambda i: i, dtype="int8").dtype.name == "int8"
    assert compute((), lambda: 1).dtype.name == "int64"


@pytest.mark.parametrize(
    ("source", "total", "state"),
    [
        ("bool", "int64", "int64"), ("int8", "int64", "int64"), ("uint8", "uint64", "uint64"),
        ("int32", "int64", "int64"), ("uint64", "uint64", "uint64"),
        ("float16", "float16", "float32"), ("bfloat16", "bfloat16", "float32"),
        ("float32", "float32", "float32"), ("float64", "float64", "float64"),
    ],
)  # fmt: skip
def test_accumulators_widen_as_numpys(source: str, total: str, state: str) -> None:
    t = placeholder((8,), source, name="T")
    for reduce in (sum_of, prod):
        r = reduce(t[k], axis=k)
        assert isinstance(r, Reduce)
        assert (r.dtype.name, r.state[0].name) == (total, state)
        if source != "bfloat16":
            assert np.sum(np.ones(2, source)).dtype == total
    if source != "bool":
        named = sum_of(t[k], axis=k, dtype=source)
        assert isinstance(named, Reduce)
        assert (named.dtype.name, named.state[0].name) == (source, source)


def test_products_of_halves_are_widened_before_they_multiply() -> None:
    h = placeholder((8,), "float16", name="H")
    r = sum_of(h[k] * h[k], axis=k)
    assert str(r) == "sum(float32(H[k]) * float32(H[k]), axis=k)"
    assert str(sum_of(h[k] * h[k], axis=k, dtype="float16")) == "sum(H[k] * H[k], axis=k)"


def test_a_floating_sum_of_products_is_one_fma() -> None:
    r = sum_of(A[0, k] * B[k], axis=k)
    assert isinstance(r, Reduce)
    assert str(update_bodies(r, (Ref(0, r.dtype),))[0]) == "fma(A[0, k], B[k], $0)"
    i = placeholder((8,), "int64", name="I")
    whole = sum_of(i[k] * i[k], axis=k)
    assert isinstance(whole, Reduce)
    assert str(update_bodies(whole, (Ref(0, whole.dtype),))[0]) == "$0 + I[k] * I[k]"
    assert not r.reducer.exact
    assert whole.reducer.exact


def test_a_condition_guards_the_update() -> None:
    r = sum_of(B[k], axis=k, where=B[k] > 0, init=5)
    assert isinstance(r, Reduce)
    acc = (Ref(0, r.dtype),)
    assert str(update_bodies(r, acc)[0]) == "if_then_else(B[k] > 0.0, $0 + B[k], $0)"
    assert str(update_bodies(r, acc, masked=False)[0]) == "$0 + B[k]"
    assert str(init_values(r)[0]) == "5.0"


def test_identities() -> None:
    i8 = placeholder((8,), "int8", name="T")
    starts = [
        (max_of(B[k], axis=k), "-inf"), (min_of(B[k], axis=k), "inf"),
        (max_of(i8[k], axis=k), "-128"), (min_of(i8[k], axis=k), "127"),
        (any_of(B[k], axis=k), "False"), (all_of(B[k], axis=k), "True"),
        (prod(i8[k], axis=k), "1"), (max_of(B[k] > 0, axis=k), "False"),
    ]  # fmt: skip
    for r, text in starts:
        assert isinstance(r, Reduce)
        assert str(init_values(r)[0]) == text


def test_reductions_of_bools_and_numbers() -> None:
    assert any_of(B[k], axis=k).dtype.name == "bool"
    assert str(all_of(B[k] > 1, axis=k)) == "all(B[k] > 1.0, axis=k)"
    assert max_of(B[k] > 0, axis=k).dtype.name == "bool"


def test_a_tensor_never_changes() -> None:
    tensor = placeholder((3,), name="A")
    for change, text in (
        (
            lambda: setattr(tensor, "dtype", 3),
            "tensor A cannot be changed: 'dtype' was assigned to",
        ),
        (lambda: delattr(tensor, "name"), "tensor A cannot be changed: 'name' was deleted"),
        (
            lambda: tensor.__setitem__(0, 1),
            "elements of A are not assigned: tir.compute declares a tensor by what each element is",
        ),
    ):
        with pytest.raises((ArgumentError, ArgumentTypeError)) as caught:
            change()
        assert str(caught.value) == text
    made = compute((3,), lambda i: tensor[i] + 1, name="B")
    again = pickle.loads(pickle.dumps(made))
    assert str(again) == str(made) and str(again.op) == str(made.op)


def test_reducers_of_the_users() -> None:
    pair = reducer(
        lambda a, b: (a[0] + b[0], a[1] * b[1]), (0, 1), name="pair", arity=2, associative=True
    )
    s, p = pair(B[k], B[k] + 1, axis=k)
    assert isinstance(s, Reduce)
    assert s.reducer.associative
    assert not s.reducer.commutative
    assert [str(v) for v in init_values(s)] == ["0.0", "1.0"]
    acc = (Ref(0, s.dtype), Ref(1, p.dtype))
    assert [str(b) for b in update_bodies(s, acc)] == ["$0 + B[k]", "$1 * (B[k] + 1.0)"]
    made = compute((), lambda: pair(B[k], B[k], axis=k), name=("S", "P"))
    assert repr(made) == "(S: float32[], P: float32[])"


def test_dependent_bounds() -> None:
    def row(i: Expr) -> Expr:
        j = reduce_axis(i + 1, name="j")
        return sum_of(A[i, j], axis=j)

    assert str(op(compute((4,), row, name="T"))) == "T[i] = sum(A[i, j], axis=j)"


def test_domains() -> None:
    t = compute((4, 4), lambda i, j: A[i, j], where=lambda i, j: (j <= i) & (i < n), name="L")
    assert str(op(t)) == "L[i, j] = A[i, j]  where (j <= i) & (i < n)"


def other_axis() -> Axis:
    return op(compute((4,), lambda x: A[x, 0], name="O")).axes[0]


def nested_bounds() -> Tensor:
    j = reduce_axis(k + 1, name="j")
    return compute((), lambda: sum_of(B[j], axis=(j, k)), name="C")


def deep() -> Tensor:
    def body(i: Expr) -> Expr:
        e = A[i, 0] + 0.0
        for _ in range(400):
            e = e + A[i, 1]
        return e

    return compute((4,), body, name="C")


REFUSALS: list[tuple[Callable[[], object], type[TensorIRError], str]] = [
    (lambda: placeholder((-1,), name="P"), ArgumentError, "extent 0 of P is -1: extents are at least 0"),
    (lambda: placeholder((2.5,), name="P"), ArgumentTypeError, "extent 0 of P must be an integer or a size made by tir.var, not float 2.5"),
    (lambda: placeholder((True,), name="P"), ArgumentTypeError, "extent 0 of P must be an integer or a size made by tir.var, not bool True"),
    (lambda: placeholder(("n",), name="P"), ArgumentTypeError, "extent 0 of P must be an integer or a size made by tir.var, not str 'n'"),
    (lambda: placeholder((2**70,), name="P"), ArgumentError, f"extent 0 of P is {2**70}: too large"),
    (lambda: placeholder((2**40, 2**40), name="P"), ArgumentError, f"P ({2**40}, {2**40}) of float32 takes {2**82} bytes: too large"),
    (lambda: compute((2**40, 2**40), lambda i, j: 1.0, name="P"), ArgumentError, f"P ({2**40}, {2**40}) has {2**80} elements: too large"),
    (lambda: compute((2**31, 2**30), lambda i, j: 1.0, name="P"), ArgumentError, f"P ({2**31}, {2**30}) of float64 takes {2**64} bytes: too large"),
    (lambda: placeholder((n * n,), name="P"), ArgumentError, "extent 0 of P is n * n, which is not affine: only sums of sizes and axes, their products with integers, and // and % by positive integers are"),
    (lambda: placeholder((k,), name="P"), ArgumentError, "extent 0 of P is k: extents depend on sizes only, not on axes"),
    (lambda: placeholder((4,), "float8", name="P"), ArgumentError, "no element type 'float8'; there are bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64"),
    (lambda: placeholder((4,), name="for"), ArgumentError, "name of a tensor 'for' is a Python keyword"),
    (lambda: placeholder((4,), name="2d"), ArgumentError, "name of a tensor '2d' is not an identifier, such as 'io' or 'A_packed'"),
    (lambda: var("_n"), ArgumentError, "name of a size '_n' begins with an underscore; those are the library's"),
    (lambda: var(3), ArgumentTypeError, "name of a size must be a string, not int 3"),  # type: ignore[arg-type]
    (lambda: A[1], ArgumentError, "A has 2 dimensions (4, 8), but is indexed with 1: A[1]"),
    (lambda: A[k, k, k], ArgumentError, "A has 2 dimensions (4, 8), but is indexed with 3: A[k, k, k]"),
    (lambda: B[0.5], ArgumentTypeError, "index 0 of B must be an integer, not float64 0.5: convert it with tir.cast(index, 'int64')"),
    (lambda: B[B[0]], ArgumentTypeError, "index 0 of B must be an integer, not float32 B[0]: convert it with tir.cast(index, 'int64')"),
    (lambda: B[k < 3], ArgumentTypeError, "index 0 of B must be an integer, not bool k < 3: convert it with tir.cast(index, 'int64')"),
    (lambda: B[1:3], ArgumentTypeError, "B is indexed with 1:3 in dimension 0: each index is one integer expression; slices are written as the range of an axis"),
    (lambda: B[-1], BoundsError, "index 0 of B is -1: indices start at 0 and do not count from the end; the last one is 7"),
    (lambda: B[8], BoundsError, "index 0 of B is 8, outside 0..8 (the end excluded)"),
    (lambda: placeholder((n,), name="P")[n + 1], BoundsError, "index 0 of P is n + 1, outside 0..n (the end excluded)"),
    (lambda: A * 2, ArgumentTypeError, "A is a whole tensor: operators take one element at a time, A[i, j], inside tir.compute(shape, lambda i, j: ...)"),
    (lambda: B[0] + B, ArgumentTypeError, "B is a whole tensor: operators take one element at a time, B[i], inside tir.compute(shape, lambda i: ...)"),
    (lambda: bool(B), ArgumentTypeError, "the truth of the tensor B is not known while it is declared"),
    (lambda: len(B), ArgumentTypeError, "B has no len(): see B.shape"),
    (lambda: list(B), ArgumentTypeError, "B cannot be iterated over: use it in tir.compute"),
    (lambda: reduce_axis((7, 0), name="r"), ArgumentError, "axis r runs from 7 to 0: the end lies before the first; an axis runs upwards, its end excluded"),
    (lambda: reduce_axis(-1, name="r"), ArgumentError, "axis r runs from 0 to -1: the end lies before the first; an axis runs upwards, its end excluded"),
    (lambda: reduce_axis((0, 1, 2), name="r"), ArgumentError, "the bounds of r are a pair (first, end), not 3 values"),
    (lambda: reduce_axis(1.5, name="r"), ArgumentTypeError, "end of r must be an integer or a size made by tir.var, not float 1.5"),
    (lambda: compute((4,), lambda i, j: A[i, j], name="C"), ArgumentError, "C has shape (4,), so its function takes 1 axis, but it has 2 parameters: (i, j)"),
    (lambda: compute((4, 8), lambda i: A[i, 0], name="C"), ArgumentError, "C has shape (4, 8), so its function takes 2 axes, but it has 1 parameters: (i)"),
    (lambda: compute((4,), lambda: 1.0, name="C"), ArgumentError, "C has shape (4,), so its function takes 1 axis, but it has no parameters"),
    (lambda: compute((4,), 5, name="C"), ArgumentTypeError, "fn of C must be a function of its axes, not 5"),  # type: ignore[arg-type]
    (lambda: compute((4,), lambda i: None, name="C"), ArgumentTypeError, "fn of C returned None: it must return the element"),
    (lambda: compute((4,), lambda i: (), name="C"), ArgumentError, "fn of C returned an empty tuple: there is nothing to compute"),
    (lambda: compute((4,), lambda i: "x", name="C"), ArgumentTypeError, "fn of C returned str 'x'"),
    (lambda: compute((4,), lambda i: (i, i), name=("a", "b", "c")), ArgumentError, "3 names for 2 outputs of a"),
    (lambda: compute((4,), lambda i: (i, i), name=("a", "a")), ArgumentError, "outputs need different names, not a, a"),
    (lambda: compute((4, 8), lambda i, j: A[i, j], axes=("i",), name="C"), ArgumentError, "axes of C must be 2 different names, not ['i']"),
    (lambda: compute((4,), lambda i: A[i, k], name="C"), ArgumentError, "C uses the reduce axis k where nothing reduces over it: a reduce axis has a meaning only inside tir.sum(..., axis=k) and its kin"),
    (lambda: compute((4,), lambda i: sum_of(A[i, k], axis=k) + k, name="C"), ArgumentError, "C uses the reduce axis k where nothing reduces over it and sum reduces over it elsewhere: a reduce axis has a meaning only inside tir.sum(..., axis=k) and its kin"),
    (lambda: compute((4,), lambda i: A[other_axis(), 0], name="C"), ArgumentError, "C uses the axis x, which belongs to another computation: use the axes that the function is given"),
    (lambda: compute((4,), lambda i: sum_of(A[i, k], axis=i), name="C"), ArgumentError, "axis= of sum is i, an axis of the computation: reduce over an axis made by tir.reduce_axis"),
    (lambda: sum_of(B[k], axis="k"), ArgumentTypeError, "axis= of sum must be made by tir.reduce_axis, not str 'k'"),  # type: ignore[arg-type]
    (lambda: sum_of(B[k], axis=()), ArgumentError, "axis= of sum is empty: name at least one reduce axis"),
    (lambda: sum_of(B[k], axis=(k, k)), ArgumentError, "axis= of sum names k twice"),
    (lambda: sum_of(sum_of(B[k], axis=k), axis=k), ArgumentError, "sum of an expression that holds a reduction: compute the inner one in a tensor of its own with tir.compute, and reduce that"),
    (lambda: sum_of(B[k], axis=k, where=B[k]), ArgumentTypeError, "where= of sum must be bool, not float32: write B[k] != 0"),
    (lambda: sum_of(B[k], axis=k, dtype="bool"), ArgumentTypeError, "sum needs a number type, not bool: use tir.any or tir.all"),
    (lambda: argmax(B[k], axis=k, init=0), ArgumentError, "init= of argmax needs 2 values, not 1"),
    (lambda: compute((4,), lambda i: sum_of(A[i, k], axis=k) / max_of(A[i, k], axis=k), name="C"), ArgumentError, "C holds two different reductions, sum(A[i, k], axis=k) and max(A[i, k], axis=k): compute one of them in a tensor of its own with tir.compute, and read it here"),
    (nested_bounds, ArgumentError, "the bounds of j in C, 0..k + 1, use k, which is no axis of this computation nor a reduce axis outside it: make the reduce axis inside the function, and list axes outer to inner"),
    (lambda: max_of(B[k], axis=reduce_axis(0, name="z")), ArgumentError, "max over z has no elements: z runs over 0..0; give init= the value it should have"),
    (lambda: argmax(B[k], axis=reduce_axis((3, 3), name="z")), ArgumentError, "argmax over z has no elements: z runs over 3..3; give init= the value it should have"),
    (lambda: compute((4,), lambda i: B[i], where=lambda i: B[i] > 0, name="C"), UnsupportedError, "where= of C is B[i] > 0.0, which is not affine: only comparisons of sums of axes, sizes and constants shape a domain; for a condition on data use tir.select or tir.if_then_else in the body"),
    (lambda: compute((4,), lambda i: B[i], where=lambda i: i, name="C"), ArgumentTypeError, "where= of C must be bool, not int64: write i != 0"),
    (lambda: compute((4,), lambda i: B[i], where=lambda i, j: i < j, name="C"), ArgumentError, "where= of C is called with 1 argument, but its parameters are (i, j)"),
    (lambda: reducer(lambda a: a, name="r"), ArgumentError, "combine of r is called with 2 arguments, but its parameters are (a)"),
    (lambda: reducer(lambda a, b: a, lambda: 0, name="r")(B[k], axis=k), ArgumentError, "identity of r is called with 1 argument, but its parameters are ()"),
    (lambda: reducer(3), ArgumentTypeError, "combine of reducer must be a function, not 3"),  # type: ignore[arg-type]
    (lambda: reducer(lambda a, b: a, arity=0), ArgumentError, "arity of reducer must be an integer of at least 1, not 0"),
    (lambda: reducer(lambda a, b: a + b)(B[k], axis=k), ArgumentError, "reducer reducer has no identity: give it one, or give the reduction init="),
    (lambda: reducer(lambda a, b: a + b, 0, name="r")(B[k], B[k], axis=k), ArgumentError, "r has a state of 1, but reduces 2 expressions"),
    (lambda: reducer(lambda a, b: (a, b), 0, name="r")(B[k], axis=k), ArgumentError, "combine of r gives 2 values for a state of 1"),
    (lambda: reducer(lambda a, b: a + b * B[0], 0, name="r")(B[k], axis=k), ArgumentError, "combine of r uses B[0]: it may use its arguments, numbers and sizes only; put B[0] into what is reduced"),
    (lambda: reducer(lambda a, b: a + b, lambda d: B[0], name="r")(B[k], axis=k), ArgumentError, "identity of r uses B[0]: it may use its arguments, numbers and sizes only; put B[0] into what is reduced"),
    (lambda: reducer(lambda a, b: a + b, 0, name="r", associative="no"), ArgumentTypeError, "associative= of r must be True or False, not 'no'"),  # type: ignore[arg-type]
    (lambda: reducer(lambda a, b: cast(a + b, "float64"), 0, name="r")(B[k], axis=k), ArgumentTypeError, "combine of r gives float64 where the state is float32: cast it, or name the state's type with dtype="),
    (deep, UnsupportedError, "the expression of C is 403 operations deep, and at most 150 are supported: group a long sum as a tree, or make a part of it a tensor of its own"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "text"), REFUSALS, ids=[r[2][:50] for r in REFUSALS])
def test_refusals(make: Callable[[], object], error: type[TensorIRError], text: str) -> None:
    with pytest.raises(error) as raised:
        make()
    assert type(raised.value) is error
    assert str(raised.value) == text


def test_an_empty_max_with_init_is_allowed() -> None:
    z = reduce_axis(0, name="z")
    assert str(max_of(B[z], axis=z, init=0)) == "max(B[z], axis=z, init=0.0)"


def test_shared_parts_do_not_explode() -> None:
    e: Expr = B[k]
    for _ in range(100):
        e = e * e
    assert len(str(e)) < 100_000
    made = compute((8,), lambda i: exp(const(1.0)) * i, name="C")
    assert isinstance(op(made).bodies[0], Op)
    assert select(k > 1, e, e) is e
    assert if_then_else(k > 1, e, e) is e


@pytest.mark.parametrize(
    "call", [round, lambda x: divmod(x, 2), lambda x: divmod(2, x), math.floor]
)
def test_functions_of_python_that_want_numbers_are_refused(call: object) -> None:
    with pytest.raises(ArgumentTypeError, match="use tir.round, tir.floor"):
        call(var("n"))  # type: ignore[operator]
