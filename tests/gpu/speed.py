"""How fast kernels are on a device, beside torch and the bandwidth of a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import schedules
import tensorir as tir
from tensorir.runtime import cuda_device
from tensorir.runtime.cuda_timer import Stopwatch
from tests.cuda.programs import mixed

ROUNDS, SHARE = 15, 5.0  # measurements, and milliseconds that one lasts


@dataclass(frozen=True)
class Race:
    """Our kernel against torch's, or against a copy of as many bytes.

    `against` is `copy` or `torch`; `want` the least ratio of speeds.
    """

    name: str
    op: str | Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    dtype: str
    theirs: Callable[..., Any]
    against: str
    want: float
    keywords: tuple[tuple[str, Any], ...] = ()
    operations: float = 0.0
    moved: float = 0.0


def races(torch: Any) -> list[Race]:
    """All of them, the shortest first."""
    f = torch.nn.functional
    big, rows, cols = 1 << 27, 16_384, 4096
    square = 4 * 2 * 8192 * 8192
    product = [(4096, 4096), (4096, 4096)]
    large = [(8192, 8192), (8192, 8192)]
    heads = [(4, 16, 4096, 128)] * 3
    flops = 4.0 * 4 * 16 * 4096 * 4096 * 128
    return [
        Race("relu, 2^27", "relu", [(big,)], "float32", torch.relu, "copy", 0.9,
             moved=8.0 * big),
        Race("transpose 8192 x 8192", "transpose", [(8192, 8192)], "float32",
             lambda x: x.t().contiguous(), "copy", 0.9, moved=square),
        Race("softmax 16384 x 4096", "softmax", [(rows, cols)], "float32",
             lambda x: torch.softmax(x, -1), "torch", 1.0, moved=8.0 * rows * cols),
        Race("layer_norm 16384 x 4096", "layer_norm", [(rows, cols), (cols,), (cols,)], "float32",
             lambda x, w, b: f.layer_norm(x, (cols,), w, b), "torch", 1.0,
             moved=8.0 * rows * cols),
        Race("rms_norm 16384 x 4096", "rms_norm", [(rows, cols), (cols,)], "float32",
             lambda x, w: f.rms_norm(x, (cols,), w), "torch", 1.0, moved=8.0 * rows * cols),
        Race("sum of rows 16384 x 4096", "sum", [(rows, cols)], "float32",
             lambda x: x.sum(-1), "torch", 1.0, (("axis", -1),), moved=4.0 * rows * cols),
        Race("matmul f32 4096^3", "matmul", product, "float32", torch.matmul, "torch", 0.85,
             operations=2.0 * 4096**3),
        Race("matmul f16 8192^3", mixed, large, "float16", torch.matmul, "torch", 0.55,
             operations=2.0 * 8192**3),
        Race("matmul bf16 8192^3", mixed, large, "bfloat16", torch.matmul, "torch", 0.55,
             operations=2.0 * 8192**3),
        Race("attention f16 d128", "attention", heads, "float16",
             lambda q, k, v: f.scaled_dot_product_attention(q, k, v), "torch", 1.0,
             operations=flops),
    ]  # fmt: skip


def built(race: Race, target: str) -> Any:
    """The kernel of the library's own schedule."""
    return schedules.build(
        race.op, *race.shapes, target=target, dtypes=race.dtype, **dict(race.keywords)
    )


def measure(race: Race, target: str) -> dict[str, Any]:
    """Times in milliseconds, rates, and the ratio that was wanted."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    element = getattr(torch, race.dtype)
    generator = torch.Generator("cuda").manual_seed(0)
    inputs = [
        torch.randn(s, generator=generator, device="cuda", dtype=torch.float32).to(element)
        for s in race.shapes
    ]
    kernel = built(race, target)
    made = kernel(*inputs)
    want = race.theirs(*inputs)
    error = (made.double() - want.double()).abs().max().item()
    scale = want.double().abs().max().item()
    allowed = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}[race.dtype] * max(scale, 1.0)
    assert error <= allowed, f"differs from torch's by {error:.3g}, allowed {allowed:.3g}"
    copied = _Copy(torch, race.moved) if race.moved else None
    calls: dict[str, Callable[[], object]] = {
        "ours": lambda: kernel(*inputs, made),
        "torch": lambda: race.theirs(*inputs),
    }
    if copied is not None:
        calls["copy"] = copied
    times = interleaved(calls)
    ratio = times[race.against] / times["ours"]
    seconds = times["ours"] / 1e3
    return {
        "ms": {k: round(v, 5) for k, v in times.items()},
        "tflops": round(race.operations / seconds / 1e12, 2),
        "gbytes": round(race.moved / seconds / 1e9, 1),
        "against": race.against, "ratio": round(ratio, 4), "want": race.want,
        "reached": ratio >= race.want, "error": error,
        "registers": [r.registers for r in _resources(kernel)],
    }  # fmt: skip


def _resources(kernel: Any) -> Sequence[Any]:
    try:
        found: Sequence[Any] = kernel.resources
    except tir.CompileError:
        return ()
    return found


class _Copy:
    """torch's copy of half as many bytes: it reads and writes each."""

    def __init__(self, torch: Any, moved: float) -> None:
        self.source = torch.empty(int(moved) // 2, dtype=torch.uint8, device="cuda")
        self.target = torch.empty_like(self.source)

    def __call__(self) -> object:
        return self.target.copy_(self.source)


def interleaved(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median milliseconds of each call, in rounds in which all take turns, on torch's stream."""
    import torch

    watch = Stopwatch(cuda_device.device(0), torch.cuda.current_stream().cuda_stream)
    counts = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        counts[name] = max(1, min(200, round(SHARE / max(watch(call), 1e-3))))

    def several(name: str) -> float:
        return watch(lambda: [calls[name]() for _ in range(counts[name])]) / counts[name]

    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in calls:
            times[name].append(several(name))
    watch.close()
    return {name: median(x) for name, x in times.items()}
