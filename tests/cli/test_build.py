"""`tensorir build` and `tensorir emulate`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorir as tir
from tensorir import cli
from tensorir.runtime import ptxas
from tests.cuda.programs import doubled, staged


def run(capsys: pytest.CaptureFixture[str], words: str) -> tuple[int, str, str]:
    status = cli.main(words.split())
    told = capsys.readouterr()
    return status, told.out, told.err


# -- build


def test_a_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "find", lambda tool: None)
    status, out, _ = run(capsys, "build softmax 5 300 --target cuda:sm_90 --emit report")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "kernel softmax(x: float32[5, 300], out=softmax: float32[5, 300]) for " + (
        "cuda:sm_90"
    )
    assert any(x.startswith("  launch    tir_softmax") for x in lines)
    assert any(x.startswith("  uses      not known: CompileError: ptxas was not") for x in lines)


@pytest.mark.parametrize(
    ("what", "word"),
    [("ptx", ".visible .entry tir_matmul"), ("llvm", "ptx_kernel void @tir_matmul"),
     ("loops", "bind blockIdx.x"), ("schedule", "s = s.")],
)  # fmt: skip
def test_what_is_emitted(what: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, f"build matmul 16 16 16 --target cuda --emit {what}")
    assert status == 0
    assert word in out


def test_for_a_processor(capsys: pytest.CaptureFixture[str]) -> None:
    assert ".globl\ttir_add" in run(capsys, "build add 64 --target x86-64-v3 --emit asm")[1]
    assert run(capsys, "build add 64")[1].startswith("kernel add(")
    status, _, err = run(capsys, "build add 64 --target x86-64-v3 --emit ptx")
    assert (status, err) == (
        1,
        "ArgumentError: build: there is no ptx for x86-64-v3 (generic)\n"
        "  try  --target cuda:sm_90 --emit ptx\n",
    )


def test_into_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = f"build add 64 --target cuda --emit ptx --output {tmp_path}/a.ptx --save {tmp_path}/a"
    assert run(capsys, words) == (0, "", "")
    assert ".entry tir_add" in (tmp_path / "a.ptx").read_text()
    assert tir.load(tmp_path / "a").name == "add"
    status, _, err = run(capsys, f"build add 64 --output {tmp_path}/none/a.ptx")
    assert (status, err.split(":")[0]) == (1, "CacheError")


def test_no_such_operator(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "build matmull 4 4 4")
    assert status == 1
    assert "there is no operator 'matmull'; did you mean 'matmul'?" in err


# -- emulate


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "double.ptx"
    path.write_text(tir.build(doubled(100, 32), target="cuda").ptx)  # type: ignore[attr-defined]
    return path


def test_a_run(text: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = f"emulate {text} --kernel tir_B --grid 4 --block 32 --arg f32:100=range --runs 2 "
    status, out, _ = run(capsys, words + f"--arg f32:100=empty --save {tmp_path}/out")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("tir_B: ")
    assert any("ld.global" in x and " 400 " in x for x in lines)
    assert lines[-1] == "nothing found in 2 runs"
    got = np.load(tmp_path / "out" / "arg1.npy")
    np.testing.assert_array_equal(got, 2 * np.arange(100, dtype="float32") + 1)


def test_a_finding(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"emulate {text} --grid 4 --block 32 --arg f32:100 --arg f32:99=empty"
    status, out, _ = run(capsys, words)
    assert status == 1
    lines = out.splitlines()
    assert lines[0].startswith("bounds: tir_B: line ")
    assert "block (3, 0, 0), thread (3, 0, 0): an access of 4 bytes at byte 396" in lines[0]
    assert lines[-1] == "1 finding"


def test_races_are_collected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kernel = tir.build(staged(32, 32, 32), target="cuda")
    ptx = kernel.ptx.replace("bar.sync \t0;", "")  # type: ignore[attr-defined]
    (tmp_path / "m.ptx").write_text(ptx)
    words = f"emulate {tmp_path}/m.ptx --grid 2,2 --block 16,16 --shared 2048 "
    status, out, _ = run(capsys, words + "--arg f32:32x32 " * 2 + "--arg f32:32x32=empty")
    assert status == 1
    assert out.startswith("race: tir_C: line ")
    assert int(out.splitlines()[-1].split()[0]) > 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--arg f31:5", "--arg 'f31:5': no type 'f31'; did you mean 'f32'?"),
        ("--arg f32:5.5", "--arg 'f32:5.5': '5.5' is no shape, as 64x64"),
        ("--arg f32:5=one", "--arg 'f32:5=one': no filling 'one'; did you mean 'ones'?"),
        ("--arg i32=x", "--arg 'i32=x': 'x' is no i32"),
        ("--arg u8=300", "--arg 'u8=300': '300' is no u8"),
        ("--arg none.npy", "--arg 'none.npy': cannot be read: "),
        ("--grid 0", "--grid '0': expected up to three sizes, as 4,2"),
        ("--runs 0", "--runs 0: expected at least 1"),
    ],
)
def test_wrong_words(
    words: str, message: str, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, f"emulate {text} {words}")
    assert status == 1
    assert err.startswith(f"ArgumentError: emulate: {message}")


def test_no_such_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, _, err = run(capsys, f"emulate {tmp_path}/none.ptx")
    assert (status, err) == (
        1,
        f"ArgumentError: emulate: cannot read '{tmp_path}/none.ptx': No such file or directory\n",
    )
