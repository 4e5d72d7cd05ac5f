"""`tensorir bench`: what it prints, and what it says to a wrong command line."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir import cli
from tensorir.cli import bench, equivalents
from tensorir.ops import operator, operators


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in this process, and only a moment."""
    monkeypatch.setattr(bench, "environment", lambda threads: dict(bench.os.environ))
    monkeypatch.setattr(bench, "medians", lambda calls, clock: dict.fromkeys(calls, 0.001))


def said(words: str, capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    assert cli.main(["bench", *words.split()]) == status
    told = capsys.readouterr()
    assert (told.err if status == 0 else told.out) == ""
    return told.out if status == 0 else told.err


@pytest.mark.usefixtures("here")
def test_it_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    told = said("matmul 24 32x40", capsys)
    lines = told.splitlines()
    assert re.fullmatch(r"matmul m=24 n=32 k=40, float32, 1 thread, native \(.+\)", lines[0])
    assert re.fullmatch(r"  schedule  \S+, \d+ steps in \d+ ms", lines[1])
    assert re.fullmatch(r"  compiled  in \d+ ms, \d+ ms from the cache", lines[2])
    assert re.fullmatch(r"  checked   matmul: within .+ of the reference .+ elements", lines[3])
    assert lines[5].split() == ["time", "GFLOP/s", "GB/s", "of", "roof", "ours", "is"]
    assert re.fullmatch(r"  ours +1 ms +0\.1 +0\.0 +\d+\.\d%", lines[6])
    assert re.fullmatch(r"  numpy +1 ms +0\.1 +0\.0 +\d+\.\d%   1\.00x as fast", lines[7])
    assert re.search(r"^  roof: (arithmetic|memory); \d+ GFLOP/s of fused", told, re.MULTILINE)


@pytest.mark.usefixtures("here")
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said("softmax 8 16 --json --dtype float64 --target x86-64-v3", capsys))
    assert found["operator"] == "softmax"
    assert found["sizes"] == {"rows": 8, "columns": 16}
    assert found["dtype"] == "float64"
    assert found["target"].startswith("x86-64-v3")
    assert found["bound"] in ("arithmetic", "memory")
    assert [x["name"] for x in found["entrants"]][:2] == ["ours", "numpy (reference)"]
    assert set(found["entrants"][0]) == {"name", "seconds", "gflops", "gbytes", "roof"}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "words", ["exp 5", "exp", "divmod 7", "concatenate 3 4", "conv2d 0 3 5 5 2 3", "all 3 4"]
)
def test_any_operator(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(words, capsys)
    assert "  checked   " in told
    assert "\n  ours " in told


def test_numpy_has_its_threads_from_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    def call(command: list[str], env: dict[str, str]) -> int:
        seen.extend([command, env])
        return 5

    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setattr(bench.subprocess, "call", call)
    assert cli.main(["bench", "exp", "2x3", "--threads", "2", "--dtype", "float64"]) == 5
    assert seen[0][1:] == [
        "-m", "tensorir", "bench", "exp", "2", "3", "--threads", "2", "--dtype", "float64",
    ]  # fmt: skip
    assert seen[1]["OPENBLAS_NUM_THREADS"] == "2"
    assert "OPENBLAS_CORETYPE" not in seen[1]


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said("--list", capsys).splitlines()
    assert len(lines) == len(operators())
    assert "matmul m n k  (float32, float64, float16, int32, int8, uint8, int64)" in lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "matmull 8 8 8",
            "ArgumentError: bench: there is no operator 'matmull'; did you mean 'matmul'?\n\n"
            "  try  tensorir bench --list        names them all, with their sizes\n",
        ),
        (
            "matmul 8 8",
            "ArgumentError: bench: matmul takes the sizes m n k, not 2 of them\n\n"
            "  try  tensorir bench matmul 64 64 64 one integer for each\n",
        ),
        (
            "matmul",
            "ArgumentError: bench: matmul takes the sizes m n k, not none\n\n"
            "  try  tensorir bench matmul 64 64 64 one integer for each\n",
        ),
        (
            "matmul 8 8 b",
            "ArgumentError: bench: 'b' is no size\n\n"
            "  try  tensorir bench matmul 1024 1024 1024 sizes are integers\n",
        ),
        (
            "",
            "ArgumentError: bench: expected the name of an operator\n\n"
            "  try  tensorir bench --list                names them all, with their sizes\n"
            "       tensorir bench matmul 1024 1024 1024 a matrix product\n",
        ),
        (
            "matmul 8 8 8 --dtype bool",
            "ArgumentError: bench: matmul takes float32, float64, float16, int32, int8, uint8, "
            "int64, not bool\n",
        ),
        ("matmul 8 8 8 --threads 0", "ArgumentError: bench: --threads 0: expected at least 1\n"),
        (
            "exp 99999999999",
            "ArgumentError: bench: the inputs of exp at these sizes take 399,999,999,996 bytes\n\n"
            "  why  at most 4,294,967,296 are tried.\n",
        ),
    ],
)
def test_a_wrong_command_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(words, capsys, status=1) == message


@pytest.mark.usefixtures("here")
def test_a_target_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert said("exp 3 --target z80", capsys, 1).startswith("ArgumentError: there is no target")


@pytest.mark.usefixtures("here")
def test_a_wrong_result_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong(bench.Operator):
        def expected(self, *arrays: Any, **_: Any) -> Any:
            return np.zeros(3, np.float32)

    op = operator("exp")
    wrong = Wrong(op.name, op.function, op.reference, op.sizes, op.inputs, op.dtypes)
    with pytest.raises(tir.KernelError):
        bench.bench(wrong, (3,))


@pytest.mark.parametrize("name", operators())
def test_numpy_computes_the_same(name: str) -> None:
    """What is called numpy's own function gives what the reference gives."""
    op = operator(name)
    label, call = equivalents.numpy_call(op)
    if label != "numpy":
        return
    arrays = op.arrays(*(4, 6, 5, 3, 2, 2)[: 2 if op.sizes == ("*shape",) else len(op.sizes)])
    with np.errstate(all="ignore"):
        got, wanted = equivalents.into(call, arrays)(), op.expected(*arrays)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_view_is_no_result() -> None:
    x = np.arange(6.0).reshape(2, 3)
    got = equivalents.into(operator("transpose").expected, (x,))()
    assert not np.may_share_memory(got, x)
    np.testing.assert_array_equal(got, x.T)


def test_what_takes_an_output_gets_one() -> None:
    x = np.ones(3)
    call = equivalents.into(np.exp, (x,))
    assert call() is call()


def test_the_report_is_text_for_people() -> None:
    entrants = (
        bench.Entrant("ours", 2e-3, 1.0, 10.0, 0.9),
        bench.Entrant("numpy", 4e-6, 0.0, 5.0, 0.45),
    )
    report = bench.Report(
        "op", {"m": 3}, "int8", "x86-64-v3", 2, "rows", 7, 3.2, 20.4, 1.1, "op: equal", "memory",
        266.0, 41.0, entrants, ("torch: not installed",),
    )  # fmt: skip
    assert str(report).splitlines() == [
        "op m=3, int8, 2 threads, x86-64-v3",
        "  schedule  rows, 7 steps in 3 ms",
        "  compiled  in 20 ms, 1 ms from the cache",
        "  checked   op: equal",
        "",
        "                          time   GFLOP/s    GB/s  of roof   ours is",
        "  ours                    2 ms       1.0    10.0    90.0%",
        "  numpy                   4 us               5.0    45.0%   0.00x as fast",
        "  roof: memory; 266 GFLOP/s of fused multiply-adds, 41 GB/s for as many bytes",
        "  torch: not installed",
    ]
