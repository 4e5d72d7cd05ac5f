"""What operators say to wrong arguments, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir import ops
from tests.errors.saying import said


def f(*shape: int, name: str = "x", dtype: str = "float32") -> tir.Tensor:
    return tir.placeholder(shape, dtype, name=name)


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "not_a_tensor": (
        lambda: ops.relu(np.zeros(3)),
        "ArgumentTypeError: x of relu must be a tensor, not ndarray array([0., 0., 0.])",
    ),
    "not_an_operand": (
        lambda: ops.add(f(3), "1"),
        "ArgumentTypeError: y of add must be a tensor or a number, not str '1'",
    ),
    "only_numbers": (
        lambda: ops.add(1, 2),
        "ArgumentTypeError: add needs a tensor among its operands; all are numbers",
    ),
    "shapes_do_not_broadcast": (
        lambda: ops.multiply(f(3, 4), f(3)),
        "ArgumentError: shapes of multiply do not broadcast: (3, 4) and (3,) "
        "(dimension -1: 4 and 3)",
    ),
    "arithmetic_on_bools": (
        lambda: ops.add(f(3, dtype="bool"), f(3, dtype="bool")),
        "ArgumentTypeError: + needs numbers, not bool: convert a condition with "
        "tir.cast(cond, 'int32'), or combine conditions with & | ^",
    ),
    "integers_where_floats_are": (
        lambda: ops.softmax(f(3, dtype="int32")),
        "ArgumentTypeError: x of softmax must hold floats, not int32: convert it with ops.cast",
    ),
    "clip_to_nothing": (
        lambda: ops.clip(f(3)),
        "ArgumentTypeError: clip needs low=, high= or both",
    ),
    "no_such_axis": (
        lambda: ops.sum(f(3, 4), axis=2),
        "ArgumentError: axis of sum is 2, but there are 2 dimensions: -2 to 1",
    ),
    "an_axis_of_a_scalar": (
        lambda: ops.softmax(f()),
        "ArgumentError: axis of softmax is -1, but there is none",
    ),
    "an_axis_twice": (
        lambda: ops.mean(f(3, 4), axis=(0, -2)),
        "ArgumentError: axis of mean names a dimension twice: (0, -2)",
    ),
    "maximum_of_nothing": (
        lambda: ops.max(f(3, 0), axis=1),
        "ArgumentError: max over r has no elements: r runs over 0..0; give init= the value it "
        "should have",
    ),
    "norm_of_order_zero": (
        lambda: ops.norm(f(3), order=0),
        "ArgumentError: order of norm is 0: count with ops.sum(ops.not_equal(x, 0)) instead",
    ),
    "inner_extents": (
        lambda: ops.matmul(f(3, 4), f(5, 6)),
        "ArgumentError: the inner extents of matmul of (3, 4) and (5, 6) must be equal, but they "
        "are 4 and 5",
    ),
    "matmul_of_a_scalar": (
        lambda: ops.matmul(f(), f(3)),
        "ArgumentError: a of matmul is a scalar: use ops.multiply",
    ),
    "wrong_rank": (
        lambda: ops.gemv(f(3), f(3)),
        "ArgumentError: a of gemv must have 2 dimensions, but its shape is (3,)",
    ),
    "einsum_operands": (
        lambda: ops.einsum("ij,jk->ik", f(3, 4)),
        "ArgumentError: einsum 'ij,jk->ik' names 2 operands, but 1 is given",
    ),
    "einsum_rank": (
        lambda: ops.einsum("ijk->k", f(3, 4)),
        "ArgumentError: einsum 'ijk->k': 'ijk' names 3 dimensions, but x has the shape (3, 4)",
    ),
    "einsum_extents": (
        lambda: ops.einsum("ij,jk->ik", f(3, 4, name="a"), f(5, 6, name="b")),
        "ArgumentError: einsum 'ij,jk->ik': 'j' is 4 in one place and 5 in b",
    ),
    "einsum_output": (
        lambda: ops.einsum("ij->iq", f(3, 4)),
        "ArgumentError: einsum 'ij->iq': 'q' of the result is in no operand",
    ),
    "einsum_output_twice": (
        lambda: ops.einsum("ij->ii", f(3, 4)),
        "ArgumentError: einsum 'ij->ii': the result names a letter twice",
    ),
    "einsum_letters": (
        lambda: ops.einsum("i1->i", f(3, 4)),
        "ArgumentError: einsum 'i1->i': subscripts are letters, not '1'",
    ),
    "reshape_of_another_size": (
        lambda: ops.reshape(f(3, 4), (5, 2)),
        "ArgumentError: reshape from (3, 4) to (5, 2): 12 elements are not 10",
    ),
    "reshape_of_a_symbolic_extent": (
        lambda: ops.reshape(tir.placeholder((tir.var("n"), 4), name="x"), (-1,)),
        "UnsupportedError: reshape needs a constant extent in dimension 0 of x, not n: only the "
        "others may be sizes made by tir.var",
    ),
    "transpose_axes": (
        lambda: ops.transpose(f(3, 4), (0, 0)),
        "ArgumentError: axes of transpose must name each of the 2 dimensions once, not (0, 0)",
    ),
    "concatenate_extents": (
        lambda: ops.concatenate([f(3, 4, name="a"), f(3, 5, name="b")]),
        "ArgumentError: extents 1 of a and b in concatenate must be equal, but they are 4 and 5",
    ),
    "concatenate_one_tensor": (
        lambda: ops.concatenate(f(3)),  # type: ignore[arg-type]
        "ArgumentTypeError: concatenate takes a list of tensors, not x: float32[3]",
    ),
    "split_that_does_not_divide": (
        lambda: ops.split(f(7), 2),
        "ArgumentError: split into 2 parts: they do not divide the extent 7",
    ),
    "slice_outside": (
        lambda: ops.slice(f(3, 4), np.s_[0, 4]),
        "BoundsError: index 4 of slice is outside dimension 1 of x, whose extent is 4",
    ),
    "pad_by_reflection_of_too_much": (
        lambda: ops.pad(f(3), 3, mode="reflect"),
        "ArgumentError: pad by reflect of dimension 0 with 3 and 3: its extent is 3",
    ),
    "pad_mode": (
        lambda: ops.pad(f(3), 1, mode="wrap"),
        "ArgumentError: mode of pad must be one of constant, edge, reflect, not 'wrap'",
    ),
    "float_indices": (
        lambda: ops.take(f(3), f(2, name="i")),
        "ArgumentTypeError: indices of take must hold integers, not float32: convert it with "
        "ops.cast",
    ),
    "conv_channels": (
        lambda: ops.conv2d(f(1, 4, 8, 8), f(6, 3, 3, 3, name="w"), groups=2),
        "ArgumentError: conv2d of 4 channels in 2 groups needs a weight of 2 channels and a "
        "multiple of 2 filters; its shape (6, 3, 3, 3) has 3 and 6",
    ),
    "conv_window": (
        lambda: ops.conv2d(f(1, 1, 4, 8), f(1, 1, 5, 5, name="w")),
        "ArgumentError: conv2d: a window of 5 does not fit into 4 elements padded by 0 and 0",
    ),
    "conv_stride": (
        lambda: ops.conv1d(f(1, 1, 8), f(1, 1, 3, name="w"), stride=0),
        "ArgumentError: stride of conv1d must be at least 1, not 0",
    ),
    "conv_padding": (
        lambda: ops.conv2d(f(1, 1, 8, 8), f(1, 1, 3, 3, name="w"), padding="SAME"),
        "ArgumentError: padding of conv2d must be one of valid, same, same_lower, not 'SAME'",
    ),
    "conv_layout": (
        lambda: ops.conv1d(f(1, 1, 8), f(1, 1, 3, name="w"), layout="NHWC"),
        "ArgumentError: layout of conv1d must be one of NCW, NWC, not 'NHWC'",
    ),
    "pool_of_padding": (
        lambda: ops.max_pool(f(1, 1, 4), 2, stride=1, padding=2),
        "ArgumentError: max_pool: window 0 of 2 elements lies wholly in the padding of 2 and 2 "
        "around 4 elements",
    ),
    "pool_of_a_matrix": (
        lambda: ops.max_pool(f(3, 4), 2),
        "ArgumentError: x of max_pool must have 1 to 3 dimensions beside batch and channels; it "
        "has 2 dimensions in all",
    ),
    "norm_weight": (
        lambda: ops.layer_norm(f(3, 4), f(3, name="w")),
        "ArgumentError: weight of layer_norm must have the shape (4,), not (3,)",
    ),
    "groups_that_do_not_divide": (
        lambda: ops.group_norm(f(1, 5, 2), 2),
        "ArgumentError: group_norm: 2 groups do not divide 5 channels",
    ),
    "attention_heads": (
        lambda: ops.attention(f(5, 2, 4), f(2, 3, 4), f(2, 3, 4)),
        "ArgumentError: 5 heads of the query of attention are no multiple of 2 of the key",
    ),
    "attention_mask": (
        lambda: ops.attention(f(2, 4), f(3, 4), f(3, 4), f(2, 3, name="m", dtype="int32")),
        "ArgumentTypeError: mask of attention is int32: it must be bool (which keys take part) or "
        "float (what is added)",
    ),
    "rotary_of_odd_width": (
        lambda: ops.rotary(f(2, 5), f(2, 2, name="c"), f(2, 2, name="s")),
        "ArgumentError: rotary turns pairs: the last extent is 5, which is odd",
    ),
    "zero_point": (
        lambda: ops.quantize(f(3), 0.5, 200),
        "ArgumentError: zero_point of quantize is 200, which int8 does not hold: -128 to 127",
    ),
    "not_bytes": (
        lambda: ops.quantized_matmul(f(3, 4), f(4, 5)),
        "ArgumentTypeError: a of quantized_matmul must be int8 or uint8, not float32",
    ),
    "no_steps": (
        lambda: ops.jacobi(f(3, 4), steps=0),
        "ArgumentError: steps of jacobi must be at least 1, not 0",
    ),
    "a_bad_name": (
        lambda: ops.relu(f(3), name="a b"),
        "ArgumentError: name of a tensor 'a b' is not an identifier, such as 'io' or 'A_packed'",
    ),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_says(case: str) -> None:
    call, text = CASES[case]
    with pytest.raises(tir.TensorIRError) as refused:
        call()
    assert said(refused.value) == f"{text}\n"


def test_no_frame_of_the_library_is_left_in_the_traceback() -> None:
    with pytest.raises(tir.ArgumentError) as refused:
        ops.sum(f(3), axis=5)
    files = {entry.path.name for entry in refused.traceback}
    assert files == {"test_errors.py"}
