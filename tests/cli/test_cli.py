from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from typing import Any

import pytest

import tensorir as tir
from tensorir import cli
from tensorir.cli import demo as demonstration
from tensorir.cli import doctor
from tensorir.codegen import cpu
from tensorir.inspect import machine


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tensorir", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=dict(os.environ) | environment,
    )


# -- the command line


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"tensorir {tir.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dmeo"], "invalid choice: 'dmeo'"),
        ([], "the following arguments are required: COMMAND"),
        (["demo", "--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_a_wrong_command_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: tensorir")
    assert message in told


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    told = capsys.readouterr().out
    assert re.findall(r"^    (\w+) +", told, re.MULTILINE) == [
        "bench", "build", "emulate", "demo", "doctor",
    ]  # fmt: skip


def test_an_error_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(out: object) -> int:
        raise tir.KernelError("C is wrong")

    monkeypatch.setattr(doctor, "doctor", fails)
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == "KernelError: C is wrong\n"


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(out: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "doctor", interrupted)
    assert cli.main(["doctor"]) == 130


def test_a_reader_that_leaves_is_no_error() -> None:
    code = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-m', 'tensorir', 'doctor'],"
        " stdout=subprocess.PIPE, stderr=subprocess.PIPE)\n"
        "p.stdout.close()\n"
        "print(p.stderr.read().decode(), p.wait())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == " 1\n"


# -- doctor


@pytest.fixture(scope="module")
def told() -> subprocess.CompletedProcess[str]:
    return run("doctor", LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")


def test_doctor_finds_that_kernels_run(told: subprocess.CompletedProcess[str]) -> None:
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stderr == ""
    assert "\x1b" not in told.stdout
    assert told.stdout.isascii()
    assert re.search(r"^  test +compiled and right, \d+ ms$", told.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    "word",
    ["python", "libraries", "numpy", "islpy", "llvmlite", "LLVM", "processor", "features",
     "vector registers", "caches", "cache", "folder", "kernels"],
)  # fmt: skip
def test_doctor_tells_about(word: str, told: subprocess.CompletedProcess[str]) -> None:
    assert re.search(rf"^ *{word}\b", told.stdout, re.MULTILINE)


def test_doctor_tells_of_cuda_whether_it_is_there_or_not(
    told: subprocess.CompletedProcess[str],
) -> None:
    assert re.search(r"the CUDA driver: kernels run on the CPU only|driver  +for CUDA", told.stdout)
    assert "ptxas" in told.stdout
    assert "nvdisasm" in told.stdout
    assert re.search(r"^  emulator +compiled, run and right, \d+ ms$", told.stdout, re.MULTILINE)


def test_doctor_tells_what_a_missing_openmp_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorir.runtime.threads import Runtime

    monkeypatch.setattr(machine.threads, "runtime", lambda: Runtime("none", "", "", {}))
    (found,) = machine._openmp()
    assert isinstance(found, machine.Missing)
    assert (found.name, found.cost) == ("OpenMP", "parallel loops run in one thread")
    assert "tensorir[openmp]" in found.remedy


def test_doctor_tells_of_an_unusable_cache(tmp_path: Any) -> None:
    (tmp_path / "objects").mkdir(mode=0o755)
    (tmp_path / "objects").chmod(0o755)
    with tir.knobs.override(cache_dir=str(tmp_path)):
        found = list(machine._cache())
    assert isinstance(found[-1], machine.Missing)
    assert "chmod 700" in found[-1].cost


def test_doctor_tells_of_a_cache_that_is_off() -> None:
    with tir.knobs.override(cache_enabled=False):
        found = list(machine._cache())
    assert isinstance(found[-1], machine.Missing)


def test_a_driver_that_does_not_answer_is_missing() -> None:
    assert [x.name for x in machine._driver(None)] == ["the CUDA driver"]
    assert [x.name for x in machine._driver("rubbish")] == ["a CUDA driver that answers"]


def test_a_driver_without_a_device() -> None:
    fact, missing = machine._driver('{"version": 12080, "error": 100, "devices": []}')
    assert fact == machine.Fact("CUDA", "driver", "for CUDA 12.8")
    assert missing == machine.Missing("a CUDA device", "the driver does not start (error 100)")


def test_a_device_is_told() -> None:
    said = '{"version": 13000, "error": 0, "devices": [["H200", 9, 0]]}'
    found = list(machine._driver(said))
    assert found[1] == machine.Fact("CUDA", "device", "H200, compute capability 9.0")


def test_a_program_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_PATIENCE", 0.2)
    assert machine._run([sys.executable, "-c", "import time; time.sleep(60)"]) is None
    assert machine._run(["a-program-that-is-not-there"]) is None


def test_doctor_fails_where_no_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **kwargs: object) -> object:
        raise tir.InternalError("no code")

    monkeypatch.setattr(machine, "build", fails)
    monkeypatch.setattr(machine, "_cuda", list)
    out = io.StringIO()
    assert doctor.doctor(out) == 1
    assert "a kernel that runs: InternalError: no code" in out.getvalue()


# -- demo


@pytest.fixture(scope="module")
def demo() -> str:
    out = io.StringIO()
    assert demonstration.demo(out, size=160) == 0
    return out.getvalue()


def test_demo_shows_the_nest_grow(demo: str) -> None:
    depths = [len(x) for x in demo.split("\n") if x.lstrip().startswith("for ")]
    assert len(depths) > 40
    assert "As declared:" in demo
    assert "    for i in 0..160\n      for j in 0..160\n" in demo


def test_demo_shows_a_refusal_with_its_witness(demo: str) -> None:
    assert re.search(
        r'IllegalSchedule: parallel\("k"\) would let C\[\d+, \d+, (\d+)\] and C\[\d+, \d+, (\d+)\]',
        demo,
    )
    assert "  why  " in demo
    assert "  try  " in demo


def test_demo_prints_the_table(demo: str) -> None:
    rows = re.findall(r"^  (\S.*?)  +(\d+) +([\d.]+) +([\d.]+)% +([\d.]+)x$", demo, re.MULTILINE)
    names = [row[0] for row in rows]
    assert names[0] == "as declared"
    assert "numpy" in names
    assert len(rows) >= 6
    assert all(float(row[2]) > 0 for row in rows)
    assert "peak measured of one thread" in demo
    assert re.search(r"compiling the last stage: \d+ ms, \d+ ms with a cached object", demo)
    assert re.search(r"a call of a kernel, three arrays of 8 checked: \d+ ns", demo)


def test_demo_has_a_part_for_gpus(demo: str) -> None:
    assert 's = s.bind("by", "blockIdx.y")' in demo
    assert "Barriers were placed where the threads of a block meet, 2:" in demo
    assert ".visible .entry tir_C(" in demo
    assert "C: within " in demo.partition("Run in the emulator")[2]
    rows = re.findall(r"^ +(\d+)  (\S+) +([\d,]+) +([\d,]+)", demo, re.MULTILINE)
    assert {opcode.split(".")[1] for _, opcode, *_ in rows} == {"global", "shared"}
    line = re.search(r"With the barrier of line (\d+) taken out", demo)
    assert line is not None
    assert re.search(r"race: race in tir_C, PTX line \d+, block", demo.partition(line[0])[2])


def test_demo_is_plain_ascii(demo: str) -> None:
    assert "\x1b" not in demo
    assert demo.isascii()


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4"])
def test_the_stages_suit_every_processor(name: str) -> None:
    found = demonstration.stages(demonstration.product(1024), cpu.target(name))
    assert len(found) >= 4
    assert len({x.name for x in found}) == len(found)
    assert found[-1].schedule.loops() != found[0].schedule.loops()


def test_numpy_chooses_its_own_kernels_in_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "1")
    seen: dict[str, Any] = {}

    def call(command: list[str], env: dict[str, str]) -> int:
        seen.update(env)
        return 7

    monkeypatch.setattr(demonstration.subprocess, "call", call)
    assert cli.main(["demo"]) == 7
    assert seen["OPENBLAS_NUM_THREADS"] == "1"
    assert not {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} & set(seen)


def test_the_table_of_results() -> None:
    results = [
        demonstration.Result("a", 2e-3),
        demonstration.Result("numpy", 1e-3),
        demonstration.Result("b", 1e-3, 2),
    ]
    assert demonstration.table(results, 1e8, 2e11).splitlines() == [
        "         threads   GFLOP/s   of peak   against numpy",
        "  a            1      50.0    25.0%          0.500x",
        "  numpy        1     100.0    50.0%          1.000x",
        "  b            2     100.0    25.0%",
        "  peak measured of one thread: 200.0 GFLOP/s",
    ]
