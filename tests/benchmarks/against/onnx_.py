"""onnxruntime: a graph of one or a few nodes, outputs bound before the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (bfloat16 for onnx)
import numpy as np
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.benchmarks.work import Array, Candidate, Work, empty

OPSET = 23
_TYPES = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int32": TensorProto.INT32,
    "uint8": TensorProto.UINT8, "int8": TensorProto.INT8,
}  # fmt: skip


def _session(
    nodes: Sequence[NodeProto],
    arrays: Sequence[Array],
    shape: tuple[int, ...],
    dtype: str,
    threads: int,
    constants: dict[str, Array] | None = None,
) -> Candidate:
    """Inputs are x0, x1, …, the output is y."""
    inputs = [
        helper.make_tensor_value_info(f"x{k}", _TYPES[x.dtype.name], x.shape)
        for k, x in enumerate(arrays)
    ]
    graph = helper.make_graph(
        list(nodes), "g", inputs, [helper.make_tensor_value_info("y", _TYPES[dtype], shape)],
        initializer=[numpy_helper.from_array(v, k) for k, v in (constants or {}).items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    out = empty(shape, dtype)
    binding = session.io_binding()
    for k, x in enumerate(arrays):
        binding.bind_input(f"x{k}", "cpu", 0, x.dtype, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    return Candidate(lambda _keep=arrays: session.run_with_iobinding(binding), lambda: out)


def _node(kind: str, inputs: str, output: str = "y", domain: str = "", **options: Any) -> NodeProto:
    return helper.make_node(kind, inputs.split(), [output], domain=domain, **options)


def _matmul(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    a, b = arrays
    if a.dtype.name not in _TYPES:
        return {}
    shape = (*a.shape[:-1], b.shape[-1])
    return {
        "onnxruntime": _session([_node("MatMul", "x0 x1")], arrays, shape, a.dtype.name, threads)
    }


def _int8(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    shape = (arrays[0].shape[0], arrays[1].shape[1])
    nodes = [_node("MatMulInteger", "x0 x1")]
    return {"onnxruntime": _session(nodes, arrays, shape, "int32", threads)}


def _conv(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    x, w = arrays
    o = work.options
    stride, padding = o["stride"], o["padding"]
    size = (x.shape[2] + 2 * padding - w.shape[2]) // stride + 1
    node = _node(
        "Conv", "x0 x1", strides=[stride] * 2, pads=[padding] * 4, group=o["groups"]
    )  # fmt: skip
    shape = (x.shape[0], w.shape[0], size, size)
    return {"onnxruntime": _session([node], arrays, shape, "float32", threads)}


def _attention(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    """The operator, and the graph that exporters write."""
    q = arrays[0]
    causal, scale = work.options["causal"], q.shape[-1] ** -0.5
    whole = [_node("Attention", "x0 x1 x2", is_causal=int(causal))]
    parts = [
        _node("Transpose", "x1", "kt", perm=[0, 1, 3, 2]),
        _node("MatMul", "x0 kt", "raw"),
        _node("Mul", "raw scale", "s"),
        *([_node("Add", "s hidden", "m")] if causal else []),
        _node("Softmax", "m" if causal else "s", "p", axis=-1),
        _node("MatMul", "p x2"),
    ]
    constants = {"scale": np.array(scale, np.float32)}
    if causal:
        constants["hidden"] = np.triu(np.full((q.shape[-2],) * 2, -1e30, np.float32), 1)
    return {
        "onnxruntime": _session(whole, arrays, q.shape, "float32", threads),
        "onnxruntime parts": _session(parts, arrays, q.shape, "float32", threads, constants),
    }


def _softmax(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    nodes = [_node("Softmax", "x0", axis=-1)]
    return {"onnxruntime": _session(nodes, arrays, arrays[0].shape, "float32", threads)}


def _layernorm(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    nodes = [_node("LayerNormalization", "x0 x1 x2", axis=-1, epsilon=1e-5)]
    return {"onnxruntime": _session(nodes, arrays, arrays[0].shape, "float32", threads)}


def _transpose(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    nodes = [_node("Transpose", "x0", perm=[1, 0])]
    return {"onnxruntime": _session(nodes, arrays, arrays[0].shape[::-1], "float32", threads)}


def _chain(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    constants = {n: np.array(work.options[n], np.float32) for n in "acd"}
    nodes = [
        _node("Mul", "x0 a", "t"),
        _node("Add", "t x1", "u"),
        _node("Relu", "u", "v"),
        _node("Mul", "v c", "w"),
        _node("Add", "w d"),
    ]
    made = _session(nodes, arrays, arrays[0].shape, "float32", threads, constants)
    return {"onnxruntime": made}


def _sum(work: Work, arrays: tuple[Array, ...], threads: int) -> dict[str, Candidate]:
    axis = work.options["axis"]
    constants = {"axes": np.array([axis], np.int64)}
    nodes = [_node("ReduceSum", "x0 axes", keepdims=0)]
    shape = (arrays[0].shape[1 - axis],)
    return {"onnxruntime": _session(nodes, arrays, shape, "float32", threads, constants)}


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
}
