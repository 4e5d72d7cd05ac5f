"""`schedules.build`: from the name of an operator and shapes, or a function, to a kernel."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import schedules
import tensorir as tir
from schedules.build import declare
from tensorir import ops
from tensorir.support.errors import full_text

X = np.arange(12, dtype="float32").reshape(3, 4)


def test_by_name_and_shapes() -> None:
    kernel = schedules.build("matmul", (3, 4), (4, 5))
    y = np.ones((4, 5), np.float32)
    np.testing.assert_array_equal(kernel(X, y), X @ y)


def test_by_sizes_as_the_bench_takes_them() -> None:
    results, inputs = declare("matmul", 3, 5, 4)
    assert [str(t) for t in (*results, *inputs)] == [
        "matmul: float32[3, 5]", "a: float32[3, 4]", "b: float32[4, 5]"
    ]  # fmt: skip
    assert declare("softmax", 3, 4)[0][0].shape == (3, 4)
    assert declare("softmax", np.int64(3), np.int32(4))[0][0].shape == (3, 4)
    assert declare("relu", 3, 4, 5)[1][0].shape == (3, 4, 5)
    assert str(declare("take", 7, 5, 3)[1][1]) == "indices: int64[3]"


def test_by_arrays_whose_types_it_takes() -> None:
    kernel = schedules.build("add", X.astype("float64"), X.astype("float64"))
    assert kernel(X.astype("float64"), X.astype("float64")).dtype == np.float64
    taken = schedules.build("take", X, np.array([2, 0]), axis=0)
    np.testing.assert_array_equal(taken(X, np.array([2, 0])), X[[2, 0]])


def test_a_function_of_the_user() -> None:
    def scaled(a: tir.Tensor, b: tir.Tensor, by: float = 2.0) -> tir.Tensor:
        return tir.compute(a.shape, lambda i, j: a[i, j] * by + b[j], name="scaled")

    kernel = schedules.build(scaled, (3, 4), 4, by=3.0)
    np.testing.assert_array_equal(kernel(X, np.ones(4, np.float32)), X * 3 + 1)
    assert "a[i, j]" in str(kernel.loops)


def test_several_results() -> None:
    kernel = schedules.build("modf", X)
    for got, want in zip(kernel(X + 0.25), np.modf(X + 0.25), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_result_called_as_an_input() -> None:
    kernel = schedules.build(lambda a: tir.compute((4,), lambda i: a[i] + 1, name="a"), (4,))
    np.testing.assert_array_equal(kernel(np.zeros(4, np.float32)), np.ones(4))


def test_arrays_among_the_attributes_are_inputs() -> None:
    ones, twos = np.ones(4, np.float32), np.full(4, 2, np.float32)
    kernel = schedules.build("layer_norm", X, bias=twos, weight=ones, eps=0.0)
    centred = X - X.mean(1, keepdims=True)
    want = centred / X.std(1, keepdims=True) + 2
    np.testing.assert_allclose(kernel(X, twos, ones), want, rtol=1e-5)


def test_lists_and_subscripts() -> None:
    joined = schedules.build("concatenate", [(3, 4), (2, 4)], axis=0)
    np.testing.assert_array_equal(joined(X, X[:2]), np.concatenate([X, X[:2]]))
    for args, more in ((("ij,kj->ik",), {}), ((), {"subscripts": "ij,kj->ik"})):
        kernel = schedules.build("einsum", *args, X, X[:2], **more)
        np.testing.assert_array_equal(kernel(X, X[:2]), X @ X[:2].T)


def test_symbolic_extents_and_other_targets() -> None:
    n = tir.var("n")
    kernel = schedules.build("relu", (n, 4), target="x86-64-v3")
    assert "zmm" not in kernel.asm
    for rows in (0, 1, 3):
        np.testing.assert_array_equal(kernel(X[:rows] - 5), np.maximum(X[:rows] - 5, 0))


def test_dtypes() -> None:
    assert str(declare("relu", (3,), dtypes="float64")[1][0]) == "x: float64[3]"
    made = declare("matmul", (3, 4), (4, 5), dtypes=("float32", "float64"))[1]
    assert [t.dtype.name for t in made] == ["float32", "float64"]
    assert str(declare("matmul", 3, 5, 4, dtypes="float64")[0][0]) == "matmul: float64[3, 5]"


WRONG = [
    (lambda: schedules.build("sofmax", (3, 4)),
     "build: there is no operator 'sofmax'; did you mean 'softmax'?"),
    (lambda: schedules.build("register", (3, 4)),
     "build: there is no operator 'register'; did you mean 'greater'?"),
    (lambda: schedules.build("matmul", (3, 4), (5, 6)),
     "build: the inner extents of matmul of (3, 4) and (5, 6) must be equal, but they are 4 and 5"),
    (lambda: schedules.build("matmul", (3, 4)),
     "build: matmul(a, b, *, transpose_a=False, transpose_b=False, dtype=None, name='matmul'): "
     "missing a required argument: 'b'"),
    (lambda: schedules.build("softmax", (3, 4), axes=0),
     "build: softmax(x, axis=-1, *, name='softmax') has no argument 'axes'; did you mean 'axis'?"),
    (lambda: schedules.build("softmax", 4),
     "build: softmax takes the sizes rows columns, not 1 of them"),
    (lambda: schedules.build("softmax", (3, 4), taget="native"),
     "build: softmax(x, axis=-1, *, name='softmax') has no argument 'taget'; "
     "did you mean 'target'?"),
    (lambda: schedules.build("relu", (3, 4), target="CUDA"),
     "there is no target 'CUDA'; did you mean 'cuda'?"),
    (lambda: schedules.build("relu", (3, 4), target="zen4"),
     "there is no target 'zen4'; did you mean 'znver4'?"),
    (lambda: schedules.build(3, (4,)),
     "build: expected the name of an operator or a function of tensors, not 3"),
    (lambda: schedules.build("relu", None), "build: input 0 of relu is NoneType None"),
    (lambda: schedules.build("relu", True), "build: input 0 of relu is bool True"),
    (lambda: schedules.build("relu", (3,), dtypes=("float32", "int8")),
     "build: 2 dtypes for 1 input of relu"),
    (lambda: schedules.build(lambda a: a, (3,)),
     "build: <lambda> returned its input 'a': there is nothing to compute"),
    (lambda: schedules.build(lambda a: 3, (3,)), "build: <lambda> returned int 3, not a tensor"),
    (lambda: schedules.build(lambda a: (), (3,)), "build: <lambda> returned no tensor"),
    (lambda: schedules.build(lambda a, b: ops.relu(a), (3,), (4,)), "build: 'b' is not read"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(WRONG)))
def test_what_a_newcomer_gets_wrong(k: int) -> None:
    call, message = WRONG[k]
    with pytest.raises((tir.ArgumentError, tir.ArgumentTypeError)) as caught:
        call()
    assert str(caught.value) == message


def test_an_error_says_where_and_what_to_try() -> None:
    with pytest.raises(tir.ArgumentError) as caught:
        schedules.build("matmul", (3, 4), (5, 6))
    lines = full_text(caught.value).splitlines()
    where = f"test_build.py:{caught.traceback[0].lineno + 1}"
    assert lines[2].strip() == f'{where}:  schedules.build("matmul", (3, 4), (5, 6))'
    assert [x.strip() for x in lines[4:]] == [
        "try  schedules.build('matmul', (m, k), (k, n)) by shapes",
        "schedules.build('matmul', m, n, k)        by sizes",
    ]


def test_what_a_function_of_the_user_raises_is_theirs() -> None:
    with pytest.raises(ZeroDivisionError):
        schedules.build(lambda a: 1 // 0, (3,))


def test_the_library_imports_in_little_time() -> None:
    code = (
        "import sys, tensorir; before = len(sys.modules); import schedules\n"
        "heavy = {'torch', 'numba', 'scipy', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy; assert len(sys.modules) - before < 90, len(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_function_of_no_module() -> None:
    def twice(x: tir.Tensor) -> tir.Tensor:
        return ops.add(x, x)

    twice.__module__ = None  # type: ignore[assignment]
    np.testing.assert_array_equal(schedules.build(twice, X)(X), X + X)
