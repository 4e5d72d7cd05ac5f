"""An operator against its numpy reference: as declared, as scheduled, and evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import schedules
import tensorir as tir
from tensorir.ops import operator

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-11}


def compare(got: Any, want: Any, what: object, scale: float = 1.0) -> None:
    """Equal types and shapes; integers equal, floats near, for results of about `scale`."""
    g, w = np.asarray(got), np.asarray(want)
    assert g.dtype == w.dtype, f"{what}: {g.dtype} instead of {w.dtype}"
    assert g.shape == w.shape, f"{what}: {g.shape} instead of {w.shape}"
    tol = TOLERANCE.get(g.dtype.name)
    if tol is None:
        np.testing.assert_array_equal(g, w, str(what))
        return
    np.testing.assert_allclose(
        g.astype(np.float64), w.astype(np.float64), rtol=tol, atol=tol * scale, err_msg=str(what)
    )


def filled(outputs: Sequence[tir.Tensor]) -> list[np.ndarray]:
    """Arrays for results, full of 0xCD, so that what is not written shows."""
    made = []
    for t in outputs:
        shape = tuple(int(e) for e in t.shape)
        a = np.empty(shape, t.dtype.numpy)
        a.view(np.uint8 if a.ndim else a.dtype).fill(0xCD if a.ndim else 1)
        made.append(a)
    return made


def tuple_of(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def run(
    result: Any, inputs: Sequence[tir.Tensor], arrays: Sequence[Any], *, scheduled: bool = False
) -> tuple[Any, ...]:
    """The results of the kernel of the declaration's own order, or of the library's."""
    outputs = tuple_of(result)
    s = schedules.schedule_for(*outputs) if scheduled else tir.schedule(*outputs)
    kernel = tir.build(s, args=[*inputs, *outputs])
    results = filled(outputs)
    kernel(*arrays, *results)
    return tuple(results)


def agree(
    result: Any, inputs: Sequence[tir.Tensor], arrays: Sequence[Any], want: Any,
    *, what: object = "", evaluated: bool = True,
) -> None:  # fmt: skip
    """A declaration gives what numpy gives, as declared, as scheduled, and evaluated."""
    outputs = tuple_of(result)
    wanted = tuple_of(want)
    for g, w in zip(run(result, inputs, arrays), wanted, strict=True):
        compare(g, w, what)
    for g, w in zip(run(result, inputs, arrays, scheduled=True), wanted, strict=True):
        compare(g, w, f"scheduled {what}")
    if not evaluated:
        return
    first = _appearing(outputs)
    by = dict(zip(inputs, arrays, strict=True))
    for g, w in zip(tir.evaluate(outputs, *(by[t] for t in first)), wanted, strict=True):
        compare(g, w, f"evaluate of {what}")


def _appearing(outputs: Sequence[tir.Tensor]) -> list[tir.Tensor]:
    from tensorir.emulator.reference import stages

    return stages(outputs)[1]


def check(
    name: str,
    sizes: Sequence[int],
    dtype: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    *,
    evaluated: bool = True,
) -> None:
    """An operator of the registry at these sizes."""
    op = operator(name)
    result, inputs = op.declare(*sizes, dtype=dtype, parameters=parameters)
    arrays = op.arrays(*sizes, dtype=dtype, seed=len(sizes))
    want = op.expected(*arrays, parameters=parameters)
    what = (name, tuple(sizes), dtype, parameters)
    agree(result, inputs, arrays, want, what=what, evaluated=evaluated)
