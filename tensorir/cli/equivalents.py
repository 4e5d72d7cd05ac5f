"""What numpy and torch have for an operator: one call each, in the operator's own type.

Operators that are called the same there need no line here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorir.ops import Operator

Call = Callable[..., Any]

# What shares a name with something else there.
_OTHERS = {
    "split",
    "round",
    "clip",
    "cast",
    "where",
    "divmod",
    "modf",
    "norm",
    "prod",
    "max",
    "min",
}
_NUMPY: Mapping[str, Call] = {
    "batch_matmul": np.matmul,
    "gemv": np.matmul,
    "round": np.rint,
    "norm": lambda x, axis: np.linalg.norm(x, axis=axis),
    "variance": np.var,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "relu": lambda x: np.maximum(x, 0),
    "where": np.where,
}
_AXIS = ("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "all", "any", "logsumexp")


def numpy_call(op: Operator) -> tuple[str, Call]:
    """What to call it, and the call: numpy's own function, else the operator's reference.

    See :func:`into` for `out=`.
    """
    own = _NUMPY.get(op.name)
    if own is None and op.name not in _OTHERS and isinstance(getattr(np, op.name, None), np.ufunc):
        own = getattr(np, op.name)
    if own is None and op.name in ("matmul", "sum", "mean", "std", "argmax", "argmin", "outer"):
        own = getattr(np, op.name)
    if own is None:
        return "numpy (reference)", lambda *arrays: op.expected(*arrays)  # takes no out=
    fixed, call = dict(op.parameters), own
    return "numpy", lambda *arrays, **out: call(*arrays, **fixed, **out)


def into(call: Call, arrays: Sequence[Any]) -> Callable[[], Any]:
    """A call without arguments, into a result made before where the function takes `out=`.

    What only gives another view of its input is copied: we write the result.
    """
    made = call(*arrays)
    if isinstance(made, np.ndarray) and any(np.may_share_memory(made, x) for x in arrays):
        return partial(_copied, made.copy(), call, arrays)
    try:
        call(*arrays, out=made)
    except TypeError:
        return lambda: call(*arrays)
    return lambda: call(*arrays, out=made)


def _copied(kept: Any, call: Call, arrays: Sequence[Any]) -> Any:
    np.copyto(kept, call(*arrays))
    return kept


def torch_call(op: Operator, arrays: Sequence[Any], threads: int) -> Callable[[], Any] | None:
    """A call of torch on the same memory, see :func:`into`; None where it has none.

    Raises whatever torch says of these types and shapes.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(threads)
    made = _torch(torch, op)
    if made is None:
        return None
    try:
        tensors = [torch.from_numpy(x) for x in arrays]
    except TypeError:  # a type that numpy has by way of ml_dtypes
        return None

    with torch.no_grad():
        return into(made, tensors)


def _turned(torch: Any, x: Any, out: Any = None) -> Any:
    turned = x.permute(*reversed(range(x.ndim)))
    return turned.contiguous() if out is None else out.copy_(turned)


def _torch(torch: Any, op: Operator) -> Call | None:
    f, given = torch.nn.functional, dict(op.parameters)
    axis = given.get("axis")
    table: dict[str, Call] = {
        "matmul": torch.mm,
        "batch_matmul": torch.bmm,
        "gemv": torch.mv,
        "dot": torch.dot,
        "outer": torch.outer,
        "conv1d": lambda x, w: f.conv1d(x, w, padding="same"),
        "conv2d": lambda x, w: f.conv2d(x, w, padding="same"),
        "conv3d": lambda x, w: f.conv3d(x, w, padding="same"),
        "depthwise_conv2d": lambda x, w: f.conv2d(x, w, padding="same", groups=x.shape[1]),
        "softmax": lambda x, **out: torch.softmax(x, -1, **out),
        "log_softmax": lambda x, **out: torch.log_softmax(x, -1, **out),
        "layer_norm": lambda x, w, b: f.layer_norm(x, w.shape, w, b),
        "rms_norm": lambda x, w: f.rms_norm(x, w.shape, w, 1e-5),
        "attention": f.scaled_dot_product_attention,
        "causal_attention": lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True),
        "max_pool": lambda x: f.max_pool2d(x, 3, 2, 1),
        "global_avg_pool": lambda x: f.adaptive_avg_pool2d(x, 1),
        "global_max_pool": lambda x: f.adaptive_max_pool2d(x, 1),
        "transpose": lambda x, **out: _turned(torch, x, **out),
        "max": lambda x, **out: torch.amax(x, axis, **out),
        "min": lambda x, **out: torch.amin(x, axis, **out),
        "variance": lambda x: torch.var(x, axis, correction=0),
        "std": lambda x: torch.std(x, axis, correction=0),
        "norm": lambda x: torch.linalg.vector_norm(x, dim=axis),
        "cumsum": lambda x, **out: torch.cumsum(x, axis, **out),
    }
    if op.name in table:
        return table[op.name]
    if op.name in _AXIS:
        reduce = getattr(torch, op.name)
        return lambda x, **out: reduce(x, axis, **out)
    if op.sizes != ("*shape",) or given or op.name in _OTHERS - {"round"}:
        return None
    for place in (torch, f):
        found: Call | None = getattr(place, op.name, None)
        if found is not None:
            return found
    return None
