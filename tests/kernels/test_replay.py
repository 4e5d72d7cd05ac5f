"""Every schedule of the library is a trace of public steps: replayed, it gives the same kernel."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import schedules
import tensorir as tir
from schedules.default import default_schedule
from schedules.registry import entries, entry_for
from tensorir.codegen import cpu
from tensorir.lower.pipeline import lower
from tensorir.ops import operator
from tensorir.runtime.build import source_of
from tensorir.schedule.primitive import PRIMITIVES

ROOT = Path(schedules.__file__).parent
Outputs = tuple[tir.Tensor, ...]


def op(name: str, *sizes: int, dtype: str | None = None) -> Callable[[], Outputs]:
    """A declaration of an operator, anew at each call."""

    def declare() -> Outputs:
        made, _ = operator(name).declare(*sizes, dtype=dtype)
        return made if isinstance(made, tuple) else (made,)

    return declare


def blur() -> Outputs:
    A = tir.placeholder((66, 66), name="A")
    X = tir.compute((66, 64), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="X")
    return (tir.compute((64, 64), lambda y, x: X[y, x] + X[y + 1, x] + X[y + 2, x], name="Y"),)


def epilogue() -> Outputs:
    A, B = tir.placeholder((30, 40), name="A"), tir.placeholder((40, 50), name="B")
    k = tir.reduce_axis(40, name="k")
    C = tir.compute((30, 50), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    return (tir.compute((30, 50), lambda i, j: tir.maximum(C[i, j], 0.0), name="D"),)


# For each hand schedule, computations that it is for.
KNOWN: dict[str, list[Callable[[], Outputs]]] = {
    "matmul": [
        op("matmul", 7, 40, 9), op("matmul", 300, 600, 300), op("gemv", 30, 50),
        op("batch_matmul", 3, 7, 9, 11), op("einsum", 2, 30, 20, 10),
        op("matmul", 20, 30, 40, dtype="float16"),
    ],
    "matmul_lowp": [op("quantized_matmul", 20, 30, 40)],
    "attention": [op("attention", 1, 2, 20, 16), op("causal_attention", 1, 2, 20, 16)],
    "blur": [blur],
    "conv": [op("conv2d", 1, 3, 9, 17, 5, 3), op("conv2d_nhwc", 1, 3, 9, 17, 5, 3)],
    "depthwise": [op("depthwise_conv2d", 1, 5, 9, 17, 3)],
    "elementwise": [op("gelu", 1000), op("add", 30, 40)],
    "pool": [op("max_pool", 1, 3, 9, 33)],
    "reduce": [op("sum", 30, 40), op("argmax", 30, 40)],
    "rows": [op("softmax", 20, 100), op("layer_norm", 20, 100)],
    "scatter": [op("scatter_add", 5, 9, 17)],
    "transpose": [op("transpose", 40, 50)],
}  # fmt: skip
DEFAULTS = [
    op("concatenate", 5, 33), op("resize_cubic", 1, 2, 9, 7), op("heat", 9, 35),
    op("rotary", 2, 5, 16), op("logsumexp", 9, 70), epilogue,
]  # fmt: skip
CASES = [(name, k) for name, cases in KNOWN.items() for k in range(len(cases))]


def replayed(make: Callable[[tir.Schedule], tir.Schedule], declare: Callable[[], Outputs]) -> None:
    """The steps of a schedule, as text, on another declaration: the same nest and kernel."""
    target = cpu.target("znver4")
    s = make(tir.schedule(*declare()))
    assert s.step is not None
    assert all(x.primitive in PRIMITIVES for x in s.trace)
    again = tir.replay(tir.schedule(*declare()), tir.Trace.from_json(s.trace.to_json()))
    assert str(again.loops()) == str(s.loops())
    first, second = (source_of(lower(x.program, target), target).llvm for x in (s, again))
    assert first == second


@pytest.mark.parametrize(("name", "k"), CASES, ids=[f"{n}-{k}" for n, k in CASES])
def test_hand_schedules(name: str, k: int) -> None:
    declare = KNOWN[name][k]
    found = entry_for(tir.schedule(*declare()))
    assert found is not None
    assert found.name == name
    replayed(lambda s: found.apply(s, cpu.target("znver4")), declare)


@pytest.mark.parametrize("k", range(len(DEFAULTS)))
def test_the_default(k: int) -> None:
    replayed(lambda s: default_schedule(s, cpu.target("znver4")), DEFAULTS[k])


def test_every_hand_schedule_is_here() -> None:
    assert {e.name for e in entries()} == set(KNOWN)


# -- what a schedule may use
READ = {  # modules that tell what a computation and a target are
    "tensorir", "tensorir.codegen", "tensorir.codegen.cpu", "tensorir.codegen.maths",
    "tensorir.codegen.targets", "tensorir.ops", "tensorir.ops.registry", "tensorir.poly",
    "tensorir.poly.model", "tensorir.poly.ranges", "tensorir.poly.tree", "tensorir.runtime.build",
    "tensorir.runtime.kernel", "tensorir.schedule.resolve", "tensorir.schedule.schedule",
}  # fmt: skip
FLOORS = ("schedules", "tensorir.ir", "tensorir.support")
READERS = {"axes_of", "find", "loops", "loops_of", "stmts"}  # of `poly.tree`
SURGERY = {"change", "then", "program_with"}  # of programs and schedules
FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(ROOT)) for p in FILES])
def test_no_schedule_goes_past_the_primitives(path: Path) -> None:
    own = (*FLOORS, *sorted(READ))
    for node in ast.walk(ast.parse(path.read_text())):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
            assert node.level == 0
            private = [x.name for x in node.names if x.name.startswith("_")]
            assert not private, f"line {node.lineno}: {private}"
        elif isinstance(node, ast.Import):
            modules = [x.name for x in node.names]
        for module in modules:
            inside = module.partition(".")[0] in ("schedules", "tensorir")
            allowed = module in own or module.startswith(tuple(f"{f}." for f in FLOORS))
            assert not inside or allowed, f"line {node.lineno} imports {module}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in SURGERY, f"line {node.lineno}: .{node.attr}"
            of_tree = isinstance(node.value, ast.Name) and node.value.id == "tree"
            assert not of_tree or node.attr in READERS, f"line {node.lineno}: tree.{node.attr}"


def test_the_rule_sees_surgery(tmp_path: Path) -> None:
    for text in ("from tensorir.lower import pipeline", "s.program.change(tree=1)",
                 "from tensorir.schedule.schedule import _between",
                 "from tensorir.poly import tree\ntree.rewrite(1)"):  # fmt: skip
        path = tmp_path / "planted.py"
        path.write_text(text + "\n")
        with pytest.raises(AssertionError):
            test_no_schedule_goes_past_the_primitives(path)
