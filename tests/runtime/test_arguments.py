"""Calls with arrays that are not plain, and with wrong ones: right answers, or whole messages."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorir as tir
from tensorir.runtime.kernel import make_kernel
from tensorir.support.errors import (
    CallTypeError,
    CallValueError,
    TensorIRError,
    TensorIRWarning,
    full_text,
)
from tests.runtime import handmade

A = np.arange(8, dtype="f4")
B = np.ones(8, "f4")


@pytest.fixture(scope="module")
def add() -> Any:
    return make_kernel(handmade.add())


@pytest.fixture(scope="module")
def crop() -> Any:
    return make_kernel(handmade.crop())


@pytest.fixture(scope="module")
def copy23() -> Any:
    return make_kernel(handmade.copy("float32", 2, 3))


def wrong(call: Callable[[], object]) -> str:
    with pytest.raises(TensorIRError) as caught:
        call()
    assert isinstance(caught.value, ValueError | TypeError)
    return full_text(caught.value)


# -- layouts: every one of them gives the right answer
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "every second": lambda x: np.repeat(x, 2, axis=0)[::2],
    "backwards": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "fortran": lambda x: np.asfortranarray(x),
    "big-endian": lambda x: x.astype(">f4"),
    "misaligned": lambda x: misaligned(x),
    "read-only": lambda x: readonly(x),
    "subclass": lambda x: x.view(np.recarray),
    "memory map": lambda x: x.view(np.memmap),
    "longer type number": lambda x: x,
    "dlpack": lambda x: Exporter(x),
    "dlpack, transposed": lambda x: Exporter(np.ascontiguousarray(x.T).T),
    "array method": lambda x: Converts(x),
}


def misaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    view = raw[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    assert not view.flags.aligned
    return view


def readonly(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


class Exporter:
    """An array of some other library, by DLPack alone."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __array_namespace__(self) -> Any:
        return Exporter

    @staticmethod
    def from_dlpack(array: np.ndarray) -> Exporter:
        return Exporter(np.from_dlpack(array))


class Converts:
    """Something with nothing but `__array__`."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


@pytest.mark.parametrize("layout", LAYOUTS)
def test_input_layouts(copy23: Any, layout: str) -> None:
    plain = np.arange(6, dtype="f4").reshape(2, 3)
    result = copy23(LAYOUTS[layout](plain))
    if layout.startswith("dlpack"):
        assert type(result) is Exporter
        result = result.array
    np.testing.assert_array_equal(result, plain)
    out = np.zeros((2, 3), "f4")
    assert copy23(LAYOUTS[layout](plain), out=out) is out
    np.testing.assert_array_equal(out, plain)


def test_broadcast_input(copy23: Any) -> None:
    row = np.arange(3, dtype="f4")
    np.testing.assert_array_equal(copy23(np.broadcast_to(row, (2, 3))), [row, row])


def test_another_dtype_object_of_the_same_type() -> None:
    k = make_kernel(handmade.copy("int64", 4))
    a = np.arange(4, dtype=np.longlong)
    np.testing.assert_array_equal(k(a), a)
    assert k.copies.calls == {}


@pytest.mark.parametrize("layout", ["transposed", "every second", "backwards", "fortran"])
def test_output_layouts(copy23: Any, layout: str) -> None:
    plain = np.arange(6, dtype="f4").reshape(2, 3)
    out = LAYOUTS[layout](np.zeros((2, 3), "f4"))
    assert copy23(plain, out=out) is out
    np.testing.assert_array_equal(out, plain)


def test_strided_partial_output_keeps_what_is_not_written() -> None:
    k = make_kernel(handmade.first_cell())
    wide = np.full(8, 5, "f4")
    k(np.full(4, 9, "f4"), out=wide[::2])
    np.testing.assert_array_equal(wide, [9, 5, 5, 5, 5, 5, 5, 5])


def test_dlpack_output_is_written_in_place(copy23: Any) -> None:
    plain, out = np.arange(6, dtype="f4").reshape(2, 3), np.zeros((2, 3), "f4")
    other = Exporter(out)
    assert copy23(plain, out=other) is other
    np.testing.assert_array_equal(out, plain)


def test_strided_in_place(add: Any) -> None:
    wide = np.arange(16, dtype="f4")
    view = wide[::2]
    add(view, B, view)
    np.testing.assert_array_equal(wide[::2], np.arange(0, 16, 2) + 1)
    np.testing.assert_array_equal(wide[1::2], np.arange(1, 16, 2))


def test_zero_dimensions() -> None:
    k = make_kernel(handmade.both())
    d, s = k(np.float64(2.0))
    assert d.shape == s.shape == () and s[()] == 4.0


def test_bfloat16_through_array_method() -> None:
    k = make_kernel(handmade.copy("bfloat16", 3))
    a = np.array([1, 2, 3], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(k(Converts(a)), a)
    np.testing.assert_array_equal(k(np.repeat(a, 2)[::2]), a)


# -- copies are counted, and big ones warned of, once
def test_copies_are_counted() -> None:
    k = make_kernel(handmade.copy("float32", 2, 3))
    for _ in range(3):
        k(np.zeros((3, 2), "f4").T)
    assert k.copies.calls == {"A": 3} and k.copies.bytes == {"A": 72}
    assert repr(k.copies) == "Copies(A: 3 times, 72 B)"


def test_big_copies_warn_once() -> None:
    k = make_kernel(handmade.scale())
    wide = np.ones(600_000, "f4")
    with pytest.warns(TensorIRWarning) as caught:
        k(wide[::2])
    assert [w.filename for w in caught] == [__file__]
    assert str(caught[0].message) == (
        "B(): argument A is not laid out in C order, aligned and native-endian, so each call "
        'copies 1.2 MB; np.ascontiguousarray once is faster [silence("copy")]'
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        k(wide[::2])


# -- the wrong number or names of arguments
def test_too_few(add: Any) -> None:
    assert wrong(lambda: add(A)) == (
        "CallTypeError: C() takes 2 inputs, or with outputs 3 arrays; 1 came\n"
        "  call  C(A: float32[8], B: float32[8], out=C: float32[8])"
    )


def test_unknown_keyword(add: Any) -> None:
    assert wrong(lambda: add(A, B, into=A)) == (
        "CallTypeError: C() got an unexpected keyword argument 'into'; arrays are given by "
        "position, outputs also as out=\n"
        "  call  C(A: float32[8], B: float32[8], out=C: float32[8])"
    )


def test_outputs_twice(add: Any) -> None:
    assert wrong(lambda: add(A, B, A, out=A)) == (
        "CallTypeError: C() got its outputs twice: by position and as out="
    )


def test_too_many_outputs(add: Any) -> None:
    assert wrong(lambda: add(A, B, out=(A, B))) == (
        "CallTypeError: C() has 1 output (C), out= has 2 arrays"
    )


# -- one wrong array
def test_dtype(add: Any) -> None:
    assert wrong(lambda: add(A, B.astype("f8"))) == (
        'CallTypeError: C(): argument B is float64, expected float32\n  try  x.astype("float32")'
    )


def test_dtype_of_the_output(add: Any) -> None:
    assert wrong(lambda: add(A, B, np.zeros(8))) == (
        "CallTypeError: C(): output C is float64, expected float32"
    )


def test_rank(add: Any) -> None:
    assert wrong(lambda: add(A.reshape(2, 4), B)) == (
        "CallValueError: C(): argument A has 2 dimensions, shape (2, 4), expected (8,)"
    )


def test_constant_shape(add: Any) -> None:
    assert wrong(lambda: add(A, B[:7])) == (
        "CallValueError: C(): argument B has shape (7,), expected (8,)"
    )


def test_symbolic_shape_that_has_no_size(crop: Any) -> None:
    assert wrong(lambda: crop(np.zeros((4, 5), "f4"))) == (
        "CallValueError: B(): argument A has shape (4, 5), expected (n + 2, 2*m + 2): no m gives 5"
    )


def test_symbolic_shape_that_has_a_negative_size(crop: Any) -> None:
    assert wrong(lambda: crop(np.zeros((1, 4), "f4"))) == (
        "CallValueError: B(): argument A has shape (1, 4), expected (n + 2, 2*m + 2): n would be -1"
    )


def test_symbolic_shape_that_disagrees(crop: Any) -> None:
    assert wrong(lambda: crop(np.zeros((4, 6), "f4"), np.zeros((2, 6), "f4"))) == (
        "CallValueError: B(): output B has shape (2, 6), expected (n, 2*m) = (2, 4), "
        "where n = 2 (from A), m = 2 (from A)"
    )


def test_size_of_a_fresh_output_unknown() -> None:
    k = make_kernel(handmade.count_up())
    assert wrong(lambda: k()) == (
        "CallValueError: C(): size n cannot be read off a dimension of the arrays given\n"
        "  call  C(out=C: int64[n])"
    )


def test_a_size_that_no_array_tells() -> None:
    n, m = tir.var("n"), tir.var("m")
    P, Q = tir.placeholder((n + m,), name="P"), tir.placeholder((n,), name="Q")
    k = tir.build(tir.compute((n,), lambda i: P[i + m] + Q[i], name="R"))
    p, q = np.zeros(2, "f4"), np.zeros(30, "f4")
    for call in (lambda: k(p, q), lambda: k(p, q, out=np.zeros(30, "f4"))):
        assert wrong(call) == (
            "CallValueError: R(): size m cannot be read off a dimension of the arrays given\n"
            "  call  R(P: float32[n + m], Q: float32[n], out=R: float32[n])"
        )
    s = tir.build(tir.compute((n,), lambda i: Q[i] * m, name="S"))
    assert "size m cannot be read off" in wrong(lambda: s(q))


def test_list(add: Any) -> None:
    assert wrong(lambda: add([1.0] * 8, B)) == (
        "CallTypeError: C(): argument A is a list, not an array\n"
        '  try  np.asarray(x, dtype="float32") once, before the call'
    )


def test_none(add: Any) -> None:
    assert wrong(lambda: add(A, B, None)) == "CallTypeError: C(): output C is None, not an array"
    assert wrong(lambda: add(A, None)) == "CallTypeError: C(): argument B is None, not an array"
    assert wrong(lambda: add(A, B, out=(None,))) == (
        "CallTypeError: C(): output C is None, not an array"
    )


def test_class_instead_of_an_instance(add: Any) -> None:
    assert wrong(lambda: add(np.ndarray, B)) == (
        "CallTypeError: C(): argument A is the class ndarray, not an array"
    )


def test_masked(add: Any) -> None:
    assert wrong(lambda: add(np.ma.masked_array(A, A > 3), B)) == (
        "CallTypeError: C(): argument A is a masked array, whose mask would be lost\n"
        "  try  x.filled(0), or x.data"
    )


def test_device(add: Any) -> None:
    assert wrong(lambda: add(Exporter(A, (2, 1)), B)) == (
        "CallValueError: C(): argument A is on cuda:1, expected cpu"
    )


def test_dlpack_that_fails(add: Any) -> None:
    class Broken(Exporter):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("lazy tensors have no memory")

    assert wrong(lambda: add(Broken(A), B)) == (
        "CallTypeError: C(): argument A, a Broken, cannot be read through DLPack: "
        "lazy tensors have no memory"
    )


def test_array_method_that_fails(add: Any) -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise RuntimeError("no data")

    assert wrong(lambda: add(Broken(), B)) == (
        "CallTypeError: C(): argument A, a Broken, cannot be made an array: no data"
    )


# -- outputs that cannot be written
def test_read_only_output(add: Any) -> None:
    assert wrong(lambda: add(A, B, readonly(A))) == "CallValueError: C(): output C is read-only"


def test_big_endian_output(add: Any) -> None:
    assert wrong(lambda: add(A, B, A.astype(">f4"))) == (
        "CallTypeError: C(): output C is not in this machine's byte order\n"
        '  try  np.empty(shape, "float32")'
    )


def test_misaligned_output(add: Any) -> None:
    assert wrong(lambda: add(A, B, misaligned(A))) == (
        "CallValueError: C(): output C is not aligned to its 4-byte elements\n"
        '  try  np.empty(shape, "float32")'
    )


def test_output_whose_cells_share_memory(add: Any) -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(8, "f4"), (8,), (0,))
    assert wrong(lambda: add(A, B, out)) == (
        "CallValueError: C(): output C is a view in which several cells share memory"
    )


def test_output_by_array_method(add: Any) -> None:
    assert wrong(lambda: add(A, B, Converts(A.copy()))) == (
        "CallTypeError: C(): output C is a Converts, not an array"
    )


# -- memory that is shared
SHARED = (
    "CallValueError: C(): output C shares memory with argument {}\n"
    "  try  a copy of one of them: x.copy()"
)


def test_output_on_an_input(add: Any) -> None:
    assert wrong(lambda: add(A, B, B)) == SHARED.format("B")


def test_output_shifted_on_an_input(add: Any) -> None:
    wide = np.zeros(12, "f4")
    assert wrong(lambda: add(wide[:8], B, wide[2:10])) == SHARED.format("A")
    assert wrong(lambda: add(wide[2:10], B, wide[:8])) == SHARED.format("A")


def test_interleaved_views(add: Any) -> None:
    wide = np.zeros(16, "f4")
    assert wrong(lambda: add(wide[::2], B, wide[1::2])) == SHARED.format("A")


def test_reversed_in_place(add: Any) -> None:
    a = A.copy()
    assert wrong(lambda: add(a, B, a[::-1])) == SHARED.format("A")


def test_outputs_on_each_other() -> None:
    k = make_kernel(handmade.both())
    x = np.array(1.0)
    assert wrong(lambda: k(np.array(2.0), out=(x, x))) == (
        "CallValueError: S(): output D shares memory with output S\n"
        "  try  a copy of one of them: x.copy()"
    )


def test_inputs_are_unchanged_by_refused_calls(add: Any) -> None:
    a, c = A.copy(), np.full(8, 7, "f4")
    for call in (lambda: add(a, B[:7], c), lambda: add(a, [1], c), lambda: add(a, a, a[::-1])):
        wrong(call)
    np.testing.assert_array_equal(a, A)
    np.testing.assert_array_equal(c, 7)


# -- memory that there is not
def test_output_that_does_not_fit() -> None:
    from tensorir.ir.affine import lin
    from tensorir.ir.dtype import dtype
    from tensorir.ir.expr import Var

    n, kind = Var("n"), dtype("float32")
    text = "define i32 @tir_C(ptr %a, ptr %c, i64 %n, ptr %info) #0 { ret i32 0 }"
    big = handmade.made("C", kind, lin(n) * (1 << 50), lin(n) * (1 << 10))
    k = make_kernel(handmade.source("tir_C", text, [handmade.given("A", kind, n), big], (n,)))
    assert wrong(lambda: k(np.zeros(3, "f4"))) == (
        "CallValueError: C(): output C of shape (3377699720527872, 3072) does not fit in memory"
    )


def test_negative_extent() -> None:
    from tensorir.ir.affine import lin
    from tensorir.ir.dtype import dtype
    from tensorir.ir.expr import Var

    n, kind = Var("n"), dtype("float32")
    text = "define i32 @tir_C(ptr %a, ptr %c, i64 %n, ptr %info) #0 { ret i32 0 }"
    arguments = [handmade.given("A", kind, n), handmade.made("C", kind, lin(n) - 2)]
    k = make_kernel(handmade.source("tir_C", text, arguments, (n,)))
    assert k(np.zeros(2, "f4")).shape == (0,)
    assert wrong(lambda: k(np.zeros(1, "f4"))) == (
        "CallValueError: C(): output C would have shape (-1,), where n = 1 (from A)"
    )


def test_errors_are_value_or_type_errors() -> None:
    assert issubclass(CallTypeError, TypeError) and issubclass(CallValueError, ValueError)


def test_sizes_with_floors() -> None:
    """Extents like n//2 are compared, by the wrapper and by Python alike."""
    from tensorir.ir.affine import lin
    from tensorir.ir.dtype import dtype
    from tensorir.ir.expr import Var

    n, kind = Var("n"), dtype("float32")
    text = "define i32 @tir_C(ptr %a, ptr %c, i64 %n, ptr %info) #0 { ret i32 0 }"
    c = handmade.made("C", kind, (lin(n) - 3) // 2, (lin(n) - 3) % 2)
    k = make_kernel(handmade.source("tir_C", text, [handmade.given("A", kind, n), c], (n,)))
    for size in (3, 4, 5, 8):
        expected = ((size - 3) // 2, (size - 3) % 2)
        assert k(np.zeros(size, "f4")).shape == expected
        assert k(np.zeros(2 * size, "f4")[::2]).shape == expected
    assert wrong(lambda: k(np.zeros(2, "f4"))) == (
        "CallValueError: C(): output C would have shape (-1, 1), where n = 2 (from A)"
    )


def test_large_outputs_begin_at_a_cache_line() -> None:
    n = tir.var("n")
    A = tir.placeholder((n, 512), name="A")
    kernel = tir.build(tir.compute((n, 512), lambda i, j: A[i, j] + 1.0, name="B"))
    for rows in (512, 513, 1000):
        made = kernel(np.ones((rows, 512), np.float32))
        assert made.ctypes.data % 64 == 0 and made.flags.c_contiguous and made.flags.writeable
        assert made.shape == (rows, 512) and made[-1, -1] == 2.0
