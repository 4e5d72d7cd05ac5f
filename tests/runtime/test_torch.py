"""torch tensors in and out, where torch is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorir.runtime.kernel import make_kernel
from tensorir.support.errors import TensorIRError, full_text
from tests.runtime import handmade

torch: Any = pytest.importorskip("torch")


def wrong(call: Any) -> str:
    with pytest.raises(TensorIRError) as caught:
        call()
    return full_text(caught.value)


@pytest.mark.parametrize(
    "kind",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     "bfloat16", "float32", "float64"],
)  # fmt: skip
def test_every_element_type(kind: str) -> None:
    k = make_kernel(handmade.copy(kind, 2, 3))
    a = torch.tensor([[1, 0, 1], [0, 1, 1]]).to(getattr(torch, kind))
    b = k(a)
    assert type(b) is torch.Tensor and b.dtype == a.dtype and torch.equal(b, a)
    out = torch.zeros_like(a)
    assert k(a, out=out) is out and torch.equal(out, a)


def test_layouts() -> None:
    k = make_kernel(handmade.copy("float32", 2, 3))
    a = torch.arange(6, dtype=torch.float32).reshape(3, 2).T
    assert torch.equal(k(a), a)
    row = torch.arange(3, dtype=torch.float32)
    assert torch.equal(k(row.expand(2, 3)), row.expand(2, 3))
    out = torch.zeros(3, 2).T
    k(a, out=out)
    assert torch.equal(out, a)


def test_mixed_with_numpy() -> None:
    k = make_kernel(handmade.add())
    a, b = torch.arange(8, dtype=torch.float32), np.ones(8, "f4")
    assert type(k(a, b)) is torch.Tensor and type(k(b, a)) is np.ndarray
    out = np.zeros(8, "f4")
    assert k(a, b, out=out) is out
    np.testing.assert_array_equal(out, np.arange(1, 9))


def test_in_place_and_shared_memory() -> None:
    k = make_kernel(handmade.add())
    a, b = torch.arange(8, dtype=torch.float32), torch.ones(8)
    assert k(a, b, a) is a and a[7] == 8
    assert "output C shares memory with argument B" in wrong(lambda: k(a, b, b))
    assert "output C shares memory with argument A" in wrong(lambda: k(a, b, a.numpy()[::-1]))


def test_no_elements() -> None:
    assert make_kernel(handmade.scale())(torch.empty(0)).shape == (0,)


def test_refused_with_the_line_that_helps() -> None:
    k = make_kernel(handmade.add())
    a, b = torch.zeros(8), torch.zeros(8)
    assert wrong(lambda: k(a.requires_grad_(), b)) == (
        "CallValueError: C(): argument A requires grad, and kernels are not differentiated\n"
        "  try  x.detach()"
    )
    a = a.detach()
    assert wrong(lambda: k(a, b.to_sparse())) == (
        "CallTypeError: C(): argument B is a torch.sparse_coo tensor\n  try  x.to_dense()"
    )
    assert wrong(lambda: k(a, torch.empty(8, device="meta"))) == (
        "CallValueError: C(): argument B is on meta, expected cpu\n  try  x.cpu()"
    )
    assert wrong(lambda: k(a, b.to(torch.complex64))) == (
        'CallTypeError: C(): argument B is complex64, expected float32\n  try  x.astype("float32")'
    )
    assert wrong(lambda: k(a, torch.zeros(8, dtype=torch.float8_e4m3fn))) == (
        "CallTypeError: C(): argument B is float8_e4m3fn, a type that there is not here"
    )
    assert wrong(lambda: k(a, b.double())) == (
        'CallTypeError: C(): argument B is float64, expected float32\n  try  x.astype("float32")'
    )
    lazy = torch._neg_view(b)
    assert lazy.is_neg()
    assert wrong(lambda: k(a, lazy)) == (
        "CallValueError: C(): argument B is lazily conjugated or negated\n"
        "  try  x.resolve_conj().resolve_neg()"
    )


def test_check_and_time() -> None:
    k = make_kernel(handmade.add())
    a, b = torch.arange(8, dtype=torch.float32), torch.ones(8)
    assert k.check(a, b, against=lambda a, b: a + b).outputs[0].relative == 0
    assert k.time(a, b, repeat=1).operations == 8
