"""torch on the CPU: eager with `out=` where there is one, both layouts of images, and inductor.

Inductor needs a C++ compiler; where there is none, or its first call fails, it is left out.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.benchmarks.work import Array, Candidate, Work

torch.set_grad_enabled(False)


def use_threads(threads: int) -> None:
    torch.set_num_threads(threads)


def _tensors(arrays: tuple[Array, ...]) -> list[torch.Tensor]:
    return [_tensor(x) for x in arrays]


def _tensor(x: Array) -> torch.Tensor:
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def _array(x: torch.Tensor) -> Array:
    made: Array = x.contiguous().double().numpy()
    return made


def _into(out: torch.Tensor, run: Callable[[], object]) -> Candidate:
    return Candidate(run, lambda: _array(out))


def _returning(run: Callable[[], torch.Tensor]) -> Candidate:
    """What has no `out=`."""
    return Candidate(run, lambda: _array(run()))


def _compiled(
    fn: Callable[..., torch.Tensor], out: torch.Tensor, *inputs: torch.Tensor
) -> dict[str, Candidate]:
    if shutil.which("g++") is None:
        return {}

    def into(out: torch.Tensor, *inputs: torch.Tensor) -> None:
        out.copy_(fn(*inputs))

    made = torch.compile(into, fullgraph=True, dynamic=False)
    try:
        made(out, *inputs)
    except Exception:  # a broken tool chain is no result of theirs
        return {}
    return {"torch inductor": _into(out, lambda: made(out, *inputs))}


def _matmul(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    a, b = _tensors(arrays)
    out = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
    run = torch.bmm if a.ndim == 3 else torch.mm
    return {"torch": _into(out, lambda: run(a, b, out=out))}


def _int8(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    a, b = (torch.from_numpy(x.astype(np.int8)) for x in arrays)  # the same values
    out = torch.empty((a.shape[0], b.shape[1]), dtype=torch.int32)

    def multiply() -> None:
        # beside onnxruntime it takes all threads again
        torch.set_num_threads(threads)
        torch._int_mm(a, b, out=out)

    return {"torch": Candidate(multiply, out.numpy)}


def _conv(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    x, w = _tensors(arrays)
    keys = {k: work.options[k] for k in ("stride", "padding", "groups")}
    xl, wl = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
    return {
        "torch": _returning(lambda: F.conv2d(x, w, **keys)),
        "torch channels_last": _returning(lambda: F.conv2d(xl, wl, **keys)),
    }


def _attention(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    q, k, v = _tensors(arrays)
    causal = work.options["causal"]
    return {"torch": _returning(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))}


def _softmax(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    (x,) = _tensors(arrays)
    out = torch.empty_like(x)
    eager = {"torch": _into(out, lambda: torch.softmax(x, -1, out=out))}
    return eager | _compiled(lambda x: torch.softmax(x, -1), torch.empty_like(x), x)


def _layernorm(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    x, weight, bias = _tensors(arrays)

    def norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, w.shape, w, b)

    eager = {"torch": _returning(lambda: norm(x, weight, bias))}
    return eager | _compiled(norm, torch.empty_like(x), x, weight, bias)


def _transpose(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    (x,) = _tensors(arrays)
    out = torch.empty(x.T.shape)
    eager = {"torch": _into(out, lambda: out.copy_(x.T))}
    return eager | _compiled(lambda x: x.T, torch.empty(x.T.shape), x)


def _chain(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    x, z = _tensors(arrays)
    a, c, d = (work.options[n] for n in "acd")
    out = torch.empty_like(x)

    def eager() -> None:
        torch.add(z, x, alpha=a, out=out)
        out.relu_().mul_(c).add_(d)

    fused = _compiled(lambda x, z: torch.relu(a * x + z) * c + d, torch.empty_like(x), x, z)
    return {"torch": _into(out, eager)} | fused


def _sum(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    (x,) = _tensors(arrays)
    axis = work.options["axis"]
    out = torch.empty(x.shape[1 - axis])
    eager = {"torch": _into(out, lambda: torch.sum(x, axis, out=out))}
    return eager | _compiled(lambda x: x.sum(axis), torch.empty_like(out), x)


def _blur(work: Work, arrays: tuple[Array, ...], _threads: int) -> dict[str, Candidate]:
    (x,) = _tensors(arrays)
    mean = torch.full((1, 1, 3, 3), 1 / 9)
    image = x[None, None]

    def stages(x: torch.Tensor) -> torch.Tensor:
        along = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3
        return (along[:-2] + along[1:-1] + along[2:]) / 3

    eager = {"torch": _returning(lambda: F.conv2d(image, mean)[0, 0])}
    return eager | _compiled(stages, torch.empty(x.shape[0] - 2, x.shape[1] - 2), x)


KINDS: dict[str, Any] = {
    "matmul": _matmul,
    "int8": _int8,
    "conv": _conv,
    "depthwise": _conv,
    "attention": _attention,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "transpose": _transpose,
    "chain": _chain,
    "sum": _sum,
    "blur": _blur,
}
