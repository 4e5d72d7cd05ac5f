"""The wrapper in machine code: what it accepts, and that it leaves all else to Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorir.runtime.kernel import make_kernel
from tests.runtime import handmade

Maker = Callable[[Any], Any]


def test_fresh_output(fast: Maker) -> None:
    k = fast(handmade.add())
    a, b = np.arange(8, dtype="f4"), np.ones(8, "f4")
    c = k(a, b)
    assert type(c) is np.ndarray and c.dtype == np.float32 and c.flags.owndata
    np.testing.assert_array_equal(c, a + b)


def test_given_output_by_position_and_by_name(fast: Maker) -> None:
    k = fast(handmade.add())
    a, b, c = np.arange(8, dtype="f4"), np.ones(8, "f4"), np.zeros(8, "f4")
    assert k(a, b, c) is c
    np.testing.assert_array_equal(c, a + b)
    d = np.zeros(8, "f4")
    assert k(a, b, out=d) is d
    np.testing.assert_array_equal(d, a + b)


def test_references_are_balanced(fast: Maker) -> None:
    k = fast(handmade.add())
    a, b, c = np.arange(8, dtype="f4"), np.ones(8, "f4"), np.zeros(8, "f4")
    things = (a, b, c, np.dtype("f4"), k)
    for call in (lambda: k(a, b, c), lambda: k(a, b, out=c), lambda: k(a, b)):
        call()
        before = [sys.getrefcount(x) for x in things]
        for _ in range(100):
            call()
        assert [sys.getrefcount(x) for x in things] == before


def test_sizes_are_read_off_dimensions(fast: Maker) -> None:
    k = fast(handmade.crop())
    for n, m in ((3, 2), (1, 5), (0, 1), (4, 0), (0, 0)):
        a = np.random.default_rng(0).random((n + 2, 2 * m + 2), np.float32)
        b = k(a)
        assert b.shape == (n, 2 * m)
        np.testing.assert_array_equal(b, a[1:-1, 1:-1])
        np.testing.assert_array_equal(k(a, out=np.empty((n, 2 * m), "f4")), b)


def test_size_of_the_output_alone(fast: Maker) -> None:
    k = fast(handmade.count_up())
    np.testing.assert_array_equal(k(np.empty(5, np.int64)), range(5))
    np.testing.assert_array_equal(k(out=np.empty(3, np.int64)), range(3))


def test_partial_output_starts_from_zero_or_keeps(fast: Maker) -> None:
    k = fast(handmade.first_cell())
    a = np.full(4, 9, "f4")
    np.testing.assert_array_equal(k(a), [9, 0, 0, 0])
    np.testing.assert_array_equal(k(a, out=np.full(4, 5, "f4")), [9, 5, 5, 5])


def test_several_outputs_in_any_order(fast: Maker) -> None:
    k = fast(handmade.both())
    a = np.array(3.0)
    d, s = k(a)
    assert (d.shape, s.shape, d[()], s[()]) == ((), (), 0.0, 6.0)
    x, y = np.array(1.0), np.array(1.0)
    result = k(a, out=(x, y))
    assert result[0] is x and result[1] is y and (x[()], y[()]) == (0.0, 6.0)
    result = k(y, a, x)
    assert result[0] is y and result[1] is x and (y[()], x[()]) == (0.0, 6.0)


def test_in_place(fast: Maker) -> None:
    k = fast(handmade.add())
    a, b = np.arange(8, dtype="f4"), np.ones(8, "f4")
    assert k(a, b, a) is a
    np.testing.assert_array_equal(a, np.arange(1, 9))


def test_inputs_may_overlap(fast: Maker) -> None:
    k = fast(handmade.add())
    a = np.arange(12, dtype="f4")
    np.testing.assert_array_equal(k(a[:8], a[2:10]), a[:8] + a[2:10])


def test_neighbours_in_one_buffer_are_apart(fast: Maker) -> None:
    k = fast(handmade.add())
    buffer = np.arange(24, dtype="f4")
    c = buffer[8:16]
    k(buffer[:8], buffer[16:], c)
    np.testing.assert_array_equal(c, np.arange(8) + np.arange(16, 24))


@pytest.mark.parametrize(
    "kind",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     "bfloat16", "float32", "float64"],
)  # fmt: skip
def test_every_element_type(fast: Maker, kind: str) -> None:
    k = fast(handmade.copy(kind, 3, 4))
    np_kind = ml_dtypes.bfloat16 if kind == "bfloat16" else kind
    a = (np.arange(12).reshape(3, 4) % 2).astype(np_kind)
    b = k(a)
    assert b.dtype == a.dtype and b.shape == (3, 4)
    assert b.tobytes() == a.tobytes()
    assert k(a, out=np.zeros((3, 4), np_kind)).tobytes() == a.tobytes()


def test_zero_size(fast: Maker) -> None:
    k = fast(handmade.scale())
    assert k(np.empty(0, "f4")).shape == (0,)


def test_shape_with_a_strange_stride_of_size_one(fast: Maker) -> None:
    k = fast(handmade.copy("float32", 1, 77))
    a = np.arange(154, dtype="f4").reshape(2, 77)[:1]
    a = np.lib.stride_tricks.as_strided(a, (1, 77), (1, 4))
    np.testing.assert_array_equal(k(a), a)


def test_failed_check_raises_and_releases(fast: Maker) -> None:
    import tensorir.support.errors as errors

    k = fast(handmade.positive())
    good, bad, out = np.array([5]), np.array([-3]), np.zeros(1, np.int64)
    assert k(good)[0] == 5
    before = sys.getrefcount(out)
    for call in (lambda: k(bad), lambda: k(bad, out), lambda: k(bad, out=out)):
        with pytest.raises(errors.KernelError) as caught:
            call()
        assert str(caught.value) == "B(): index -3 of A[7] is negative"
    assert sys.getrefcount(out) == before


@pytest.mark.parametrize(
    "call",
    [
        lambda k, a, b, c: k(a),
        lambda k, a, b, c: k(a, b, c, c),
        lambda k, a, b, c: k(a, b, c, out=c),
        lambda k, a, b, c: k(a, b, into=c),
        lambda k, a, b, c: k(a, b, out=c, more=c),
        lambda k, a, b, c: k(a, B=b),
        lambda k, a, b, c: k(a, b, out=None),
        lambda k, a, b, c: k(a, b, out=(c,)),
        lambda k, a, b, c: k(a, b, a[::-1]),
        lambda k, a, b, c: k(a, b.astype("f8")),
        lambda k, a, b, c: k(a, b.reshape(2, 4)),
        lambda k, a, b, c: k(a, b[:7]),
        lambda k, a, b, c: k(a, list(b)),
        lambda k, a, b, c: k(a, None),
        lambda k, a, b, c: k(a, b, b),
        lambda k, a, b, c: k(np.ma.masked_array(a), b),
        lambda k, a, b, c: k(a.view(np.matrix).A1.view(np.recarray), b),
        lambda k, a, b, c: k(np.zeros(12, "f4")[:8], b, np.zeros(12, "f4")[1:9].view(">f4")),
    ],
)
def test_everything_else_goes_to_python(fast: Maker, call: Any) -> None:
    k = fast(handmade.add())
    a, b, c = np.arange(8, dtype="f4"), np.ones(8, "f4"), np.zeros(8, "f4")
    before = [sys.getrefcount(x) for x in (a, b, c)]
    with pytest.raises(AssertionError, match="slow way"):
        call(k, a, b, c)
    assert [sys.getrefcount(x) for x in (a, b, c)] == before
    assert not c.any()


@pytest.mark.parametrize("n", [0, 1, 7, 64, 65])
def test_both_ways_agree(n: int) -> None:
    k = make_kernel(handmade.scale())
    a = np.random.default_rng(n).random(n, np.float32)
    wide = np.zeros(2 * n, "f4")
    wide[::2] = a
    np.testing.assert_array_equal(k(a), k(wide[::2]))


def test_a_long_call_lets_other_threads_run(fast: Maker) -> None:
    from tensorir.runtime import call

    text = call.wrapper_text(handmade.add(operations=((10**6, ()),)))
    assert "@PyEval_SaveThread()" in text.split("define")[1]
    assert "br i1 true, label %release" in text
    assert "call ptr @PyEval_SaveThread()" not in call.wrapper_text(handmade.add())
    k = fast(handmade.add(operations=((10**6, ()),)))
    np.testing.assert_array_equal(k(np.ones(8, "f4"), np.ones(8, "f4")), [2] * 8)


def test_wrapper_text_depends_on_the_signature_alone() -> None:
    from tensorir.runtime import call

    assert call.wrapper_text(handmade.scale()) == call.wrapper_text(handmade.scale())
    assert call.wrapper_text(handmade.add(8)) != call.wrapper_text(handmade.add(9))
