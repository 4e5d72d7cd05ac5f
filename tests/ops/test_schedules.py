"""The library's schedules of operators: the same answers, whatever is fused, tiled, in vectors."""

from __future__ import annotations

import numpy as np
import pytest

import schedules
import tensorir as tir
from tensorir.ops import operator
from tests.ops.harness import TOLERANCE, tuple_of

CASES = [
    ("add", (37,), None), ("gelu", (5, 33), None), ("cast", (100,), "int32"),
    ("sum", (9, 37), None), ("argmax", (4, 19), None), ("variance", (5, 65), None),
    ("logsumexp", (4, 40), None), ("cumsum", (3, 21), None),
    ("matmul", (17, 33, 9), None), ("matmul", (8, 16, 32), "float64"), ("gemv", (37, 50), None),
    ("einsum", (2, 3, 17, 5), None), ("transpose", (17, 33), None), ("reshape", (12, 20), None),
    ("concatenate", (3, 35), None), ("pad", (9, 33), None), ("tile", (3, 17), None),
    ("take", (7, 33, 5), None), ("scatter_add", (5, 9, 17), None),
    ("conv1d", (2, 3, 33, 4, 5), None), ("conv2d", (1, 3, 9, 17, 5, 3), None),
    ("conv2d_nhwc", (1, 5, 6, 3, 18, 3), None), ("depthwise_conv2d", (2, 5, 7, 19, 3), None),
    ("conv2d_transpose", (1, 3, 9, 2, 3), None),
    ("max_pool", (2, 3, 9, 33), None), ("avg_pool", (2, 3, 9, 33), None),
    ("adaptive_avg_pool", (2, 3, 9, 7), None), ("resize_cubic", (1, 2, 9, 7), None),
    ("softmax", (5, 33), None), ("log_softmax", (5, 33), None), ("layer_norm", (5, 33), None),
    ("group_norm", (2, 3, 4, 17), None), ("attention", (1, 2, 9, 16), None),
    ("causal_attention", (1, 2, 17, 8), None), ("rotary", (2, 5, 16), None),
    ("quantize", (100,), None), ("quantized_matmul", (5, 17, 33), None),
    ("blur", (9, 35), None), ("sobel", (9, 35), None), ("heat", (9, 35), None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sizes", "dtype"), CASES)
def test_scheduled(name: str, sizes: tuple[int, ...], dtype: str | None) -> None:
    op = operator(name)
    result, inputs = op.declare(*sizes, dtype=dtype)
    outputs = tuple_of(result)
    arrays = op.arrays(*sizes, dtype=dtype, seed=1)
    s = schedules.schedule_for(*outputs)
    got = tuple_of(tir.build(s, args=[*inputs, *outputs])(*arrays))
    for g, w in zip(got, tuple_of(op.expected(*arrays)), strict=True):
        tol = TOLERANCE.get(np.asarray(g).dtype.name, 0)
        np.testing.assert_allclose(g, w, rtol=tol, atol=tol, err_msg=f"{name}\n{s}")
