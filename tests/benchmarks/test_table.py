"""The table itself: its arithmetic and its text, and that everybody computes the same."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tests.benchmarks import __main__ as command
from tests.benchmarks import against, figures, measure, ours, roof, run, table, work, workloads
from tests.benchmarks.shapes import MOBILENETV2, RESNET18, Conv
from tests.benchmarks.table import Bound, Line
from tests.benchmarks.work import Reach, Traffic, Work
from tests.benchmarks.workloads import images, matrices, memory, rows

SMALL: dict[str, Callable[[], list[Work]]] = {
    "matmul": lambda: [matrices.product(18, 33, 7)],
    "f64": lambda: [matrices.product(16, 32, 16, dtype="float64")],
    "lowp": lambda: list(matrices.low_precision(32)),
    "conv": lambda: [images.convolution(Conv(3, 32, 14, 3, 2, 1), "conv")],
    "depthwise": lambda: [images.convolution(Conv(8, 8, 14, 3, 1, 1, 8), "depthwise")],
    "blur": lambda: list(images.blur(64)),
    "attention": lambda: list(rows.attention(2, 24, 8)),
    "softmax": lambda: list(rows.softmax(((5, 128, 1.0),))),
    "layernorm": lambda: list(rows.layernorm(5, 128)),
    "sums": lambda: list(memory.sums(128)),
    "transpose": lambda: list(memory.transpose(64)),
    "chain": lambda: list(memory.chain(1 << 10)),
}


@pytest.mark.parametrize("name", SMALL)
def test_we_are_right_at_a_small_size(name: str) -> None:
    for one in SMALL[name]():
        arrays = one.arrays()
        kernel, candidate = ours.ours(one, arrays)
        candidate.run()
        assert work.error(candidate.answer(), one.expected(*arrays)) <= one.tolerance
        assert kernel.schedule is not None


@pytest.mark.parametrize("library", ["numpy", "onnxruntime"])
def test_others_are_right_at_a_small_size(library: str) -> None:
    if isinstance(against.load(library), str):
        pytest.skip(f"{library} is not installed")
    for name in SMALL:
        for one in SMALL[name]():
            arrays = one.arrays()
            found = against.candidates(library, one, arrays, 1)
            assert isinstance(found, dict), found
            for candidate in found.values():
                candidate.run()
                assert work.error(candidate.answer(), one.expected(*arrays)) <= one.tolerance


def test_every_workload_of_the_issue_is_there() -> None:
    found = {name: list(make()) for name, make in workloads.FAMILIES.items()}
    assert len(found["matmul"]) == 9
    assert len(found["nets"]) == len(RESNET18) + len(MOBILENETV2)
    names = [w.name for family in found.values() for w in family]
    assert len(names) == len(set(names))
    assert all(w.reach for family in found.values() for w in family)
    assert not set(workloads.FAMILIES) & set(figures.FIGURES)


def _line(**changed: Any) -> Line:
    times = {"ours": 1e-3, "numpy": 2e-3, "torch": 1.1e-3}
    bounds = (Bound(1.05, "best", 1.1), Bound(3.0, "numpy", 2.0))
    made = Line("matmul 8", "matmul", 1, times, 0.9e-3, bounds, 1e6, 30.0, remarks={"tvm": "fails"})
    return dataclasses.replace(made, **changed)


def test_a_line_of_text() -> None:
    assert str(_line()) == (
        f"  NO  {'matmul 8':<44}      1 ms  90.0%   1.10x torch                    30 ms"
        "  1.10 of 1.05 best, !2.00 of 3 numpy"
    )
    assert _line().others() == "        torch 1.1 ms 81.8%, numpy 2 ms 45.0%, tvm: fails"
    assert len(table.HEADER.split("compiled")[0]) == len(str(_line()).split(" ms  1.10")[0]) - 5


def test_a_line_that_failed() -> None:
    made = _line(times={"numpy": 1e-3}, remarks={"ours": "KernelError: wrong"}, compile_ms=None)
    assert str(made) == f"  NO  {'matmul 8':<44} ours KernelError: wrong"
    assert made.ratio is None
    assert json.loads(json.dumps(made.as_dict()))["reached"] is False


def test_what_is_reached() -> None:
    good = (Bound(1.0, "best", 1.1),)
    assert _line(bounds=good).reached
    assert not _line(bounds=good, compile_ms=130.0).reached
    assert not _line(bounds=good, compile_ms=30.0, compile_bound=25.0).reached
    assert _line(bounds=good, compile_ms=None, threads=2).reached
    assert not _line(bounds=(Bound(1.0, "best", None),)).reached


def test_a_bound_counts_all_candidates_of_a_library() -> None:
    times = {"ours": 1.0, "torch": 3.0, "torch channels_last": 2.0, "numpy": 1.5}
    assert table.bound(Reach(1.1, ("torch",)), times) == Bound(1.1, "torch", 2.0)
    assert table.bound(Reach(1.0), times).value == 1.5
    assert table.bound(Reach(1.0, ("halide",)), times).value is None


def test_the_summary_is_a_geometric_mean() -> None:
    pair = [
        _line(family="nets", times={"ours": 1.0, "torch": 4.0}),
        _line(family="nets", times={"ours": 1.0, "torch": 1.0, "numpy": 0.5}),
    ]
    (made,) = table.summary([*pair, _line()])
    assert made.bounds[0].value == pytest.approx(2.0)
    assert made.name == "geometric mean of 2 convolutions"
    assert list(table.summary([_line()])) == []


def test_amounts() -> None:
    assert [table.amount(t) for t in (2.5, 0.0123, 4.56e-6, 32e-9)] == [
        "2.5 s", "12.3 ms", "4.56 us", "32 ns",
    ]  # fmt: skip


def test_errors_are_relative_to_the_largest_element() -> None:
    wanted = np.array([1.0, -100.0])
    assert work.error(np.array([2.0, -100.0]), wanted) == 0.01
    assert work.error(np.zeros(3), wanted) == float("inf")
    assert work.error(np.array([np.nan, -100.0]), wanted) == float("inf")
    assert work.error(np.zeros(0), np.zeros(0)) == 0.0


def test_inputs_begin_at_a_cache_line() -> None:
    for x in work.normal((3, 5), (7,), dtype="bfloat16")():
        assert x.ctypes.data % work.LINE == 0
        assert x.dtype.name == "bfloat16"


def test_the_roof_is_the_nearer_limit() -> None:
    one = matrices.product(10, 10, 10)
    times = {"fma": 1e-3, "stream": 4e-3, "stream nt": 2e-3}
    both = dataclasses.replace(one, traffic=Traffic(1 << 20, 1, 1))
    assert roof.least_time(one, {"fma": 1e-3}, roof.Roof(4e6, 1), 1) == pytest.approx(5e-7)
    assert roof.least_time(one, {"fma": 1e-3}, roof.Roof(4e6, 1), 2) == pytest.approx(2.5e-7)
    assert roof.least_time(both, times, roof.Roof(4e6, 4), 1) == pytest.approx(5e-4)


def test_a_wrong_answer_is_a_remark() -> None:
    one = matrices.product(4, 4, 4)
    bad = work.Candidate(lambda: None, lambda: np.zeros((4, 4)))
    remarks: dict[str, str] = {}
    assert not table._right("numpy", bad, np.ones((4, 4)), one, remarks)
    assert remarks == {"numpy": "wrong by 1.0e+00 of the largest element"}


def test_who_fails_does_not_stop_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    module = against.load("numpy")

    def broken(*_: object) -> dict[str, work.Candidate]:
        raise RuntimeError("no luck\nat all")

    monkeypatch.setitem(module.KINDS, "matmul", broken)
    one = matrices.product(4, 4, 4)
    assert against.candidates("numpy", one, one.arrays(), 1) == "failed: RuntimeError: no luck"
    monkeypatch.setattr(against, "_MODULES", {"tvm": "nowhere_"})
    assert str(against.load("tvm")).startswith("not installed")


def test_a_measured_line() -> None:
    def at_once(calls: dict[str, Any], **_: object) -> dict[str, float]:
        for call in calls.values():
            call()
        return dict.fromkeys(calls, 1e-3)

    (one,) = memory.chain(1 << 10)
    before = tir.num_threads()
    made = table.line(one, "chain", measure.QUICK, measure=at_once, libraries=("numpy",))
    assert made.times == {"ours": 1e-3, "numpy": 1e-3}
    assert made.ratio == 1.0
    assert made.compile_ms is not None
    assert tir.num_threads() == before


def test_a_kernel_of_ours_that_fails_is_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Any:
        raise tir.KernelError("C is wrong")

    monkeypatch.setattr(table.ours, "ours", fails)
    remarks: dict[str, str] = {}
    assert table._ours(matrices.product(4, 4, 4), (), remarks) == ({}, None)
    assert remarks == {"ours": "KernelError: C is wrong"}


def test_measuring_takes_turns_and_ends_in_time() -> None:
    seen: list[str] = []
    calls = {"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}
    found = measure.interleaved(calls, rounds=4, least=0.0, budget=None)
    assert list(found) == ["a", "b"]
    assert seen[:4] == ["a", "a", "b", "b"]
    turns = ["".join(seen[k : k + 2]) for k in range(4, len(seen), 2)]
    assert len(turns) == 4
    assert set(turns) == {"ab", "ba"}
    seen.clear()
    measure.interleaved(calls, rounds=50, least=0.0, budget=0.0)
    assert len(seen) == 4 + 2 * 3


def _options(folder: Path, **changed: Any) -> argparse.Namespace:
    usual = {"names": [], "only": None, "quick": True, "threads": 1, "without": [], "into": folder}
    return argparse.Namespace(**{**usual, **changed})


def test_the_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "_own_environment", lambda arguments, threads: None)
    monkeypatch.setattr(run, "FAMILIES", {"chain": lambda: memory.chain(1 << 10)})
    monkeypatch.setattr(figures, "FIGURES", {"call": lambda: iter([figures.Row("x", 1, "s", 2)])})
    monkeypatch.setattr(run.against, "LIBRARIES", ("numpy",))

    def call(words: list[str]) -> int:
        assert words[1:5] == ["-m", "tests.benchmarks", "chain", "--into"]
        run.family_of("chain", _options(Path(words[5])))
        return 0

    monkeypatch.setattr(run.subprocess, "call", call)
    path = tmp_path / "out.json"
    assert command.main(["--quick", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert set(found) == {"table", "figures", "missed"}
    (line,) = found["table"]
    assert set(line) == {
        "name", "family", "threads", "times", "least", "bounds", "operations", "compile_ms",
        "compile_bound", "remarks", "best", "ratio", "share", "reached",
    }  # fmt: skip
    assert set(line["times"]) == {"ours", "numpy"}
    assert "x" in found["missed"]


def test_a_library_that_ends_its_process_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen: list[list[str]] = []

    def call(words: list[str]) -> int:
        seen.append(words[10:])
        folder = Path(words[5])
        (folder / "who").write_text("halide" if len(seen) == 1 else "")
        (folder / "lines.json").write_text("[]")
        return -11 if len(seen) == 1 else 0

    monkeypatch.setattr(run.subprocess, "call", call)
    options = _options(tmp_path, quick=False, only="x", without=["tvm"])
    assert run._apart("chain", options) == []
    assert seen == [["--without=tvm"], ["--without=tvm", "--without=halide"]]
    assert "chain ended with status -11 in the hands of halide" in capsys.readouterr().out
    monkeypatch.setattr(run.subprocess, "call", lambda words: -9)
    assert run._apart("chain", options) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [(["matmull"], "no figure 'matmull'"), (["--threads", "0"], "--threads 0: at least 1")],
)
def test_a_wrong_command_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(words)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_only_what_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.family_of("chain", _options(tmp_path, only="nothing like it")) == []
    assert "-- chain" in capsys.readouterr().out
    assert json.loads((tmp_path / "lines.json").read_text()) == []
