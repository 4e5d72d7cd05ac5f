"""NVIDIA's assembler: found, asked, believed; with programs of ours in its place, and the real."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir.codegen.source import LaunchSource
from tensorir.runtime import ptxas
from tests.cuda.programs import doubled, staged

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 16 bytes cumulative stack size, 512 bytes smem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 22 registers
"""


def _launch(name: str, threads: tuple[int, int, int], shared: int) -> LaunchSource:
    return LaunchSource(name, (), ((), (), ()), threads, shared, False)


def _program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole of PATH but for the shell's own programs."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(ptxas, "sys", SimpleNamespace(path=[], platform="linux"))
    return tmp_path


def test_what_the_assembler_says_is_read() -> None:
    made = ptxas.Assembled(b"", LOG)
    launches = (_launch("first", (16, 16, 1), 2048), _launch("second", (128, 1, 1), 100 << 10))
    first, second = ptxas.resources(made, launches, "sm_90")
    assert str(first) == (
        "first: 22 registers, 2,048 B shared, 0 B local, no spills; 8 blocks of 256 threads, "
        "occupancy 100% (by threads)"
    )
    assert str(second) == (
        "second: 128 registers, 102,912 B shared, 16 B local, spills 8 B, reads 12 B back; "
        "2 blocks of 128 threads, occupancy 12% (by shared memory)"
    )
    assert second.barriers == 1


def test_an_assembler_that_is_missing(folder: Path) -> None:
    del folder
    kernel: Any = tir.build(doubled(64), target="cuda:sm_80")
    for ask in (lambda: kernel.resources, lambda: kernel.sass):
        with pytest.raises(tir.CompileError) as refused:
            ask()
        assert tir.full_text(refused.value) == (
            "CompileError: ptxas was not found: not in CUDA_HOME, not on the PATH, not in a wheel\n"
            "  try  pip install 'tensorir[cuda]'"
        )


def test_it_is_found_in_cuda_home_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(folder, "ptxas", "true")
    assert ptxas.find("ptxas") == str(folder / "ptxas")
    home = folder / "cuda" / "bin"
    home.mkdir(parents=True)
    _program(home, "ptxas", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    monkeypatch.setenv("CUDA_HOME", str(folder / "cuda"))
    assert ptxas.find("ptxas") == str(home / "ptxas")
    assert ptxas.version(str(home / "ptxas")) == "13.0.88"
    wheel = folder / "site" / "nvidia" / "cu13" / "bin"
    wheel.mkdir(parents=True)
    _program(wheel, "nvdisasm", "true")
    monkeypatch.setattr(ptxas.sys, "path", [str(folder / "site")])
    assert ptxas.find("nvdisasm") == str(wheel / "nvdisasm")


def test_a_cubin_is_made_once(folder: Path) -> None:
    _program(
        folder, "ptxas",
        f'[ "$1" = --version ] && exit 0\necho run >>{folder}/runs\n'
        'for last; do :; done\nprintf cubin >"$last"\necho "Used 7 registers" >&2',
    )  # fmt: skip
    with tir.knobs.override(cache_dir=str(folder / "cache"), cache_enabled=True):
        made = [ptxas.assemble("// a text of its own", "sm_90") for _ in range(2)]
    assert made[0] == made[1] == ptxas.Assembled(b"cubin", "Used 7 registers\n")
    assert (folder / "runs").read_text() == "run\n"


def test_text_that_it_rejects(folder: Path) -> None:
    _program(
        folder, "ptxas",
        '[ "$1" = --version ] && exit 0\n'
        "echo \"ptxas kernel.ptx, line 2; error   : Unknown symbol 'oops'\" >&2\nexit 255",
    )  # fmt: skip
    with pytest.raises(tir.CompileError) as refused:
        ptxas.assemble("first\nsecond oops\nthird\nfourth", "sm_90")
    *lines, saved = tir.full_text(refused.value).splitlines()
    assert lines == [
        "CompileError: ptxas rejects the PTX for sm_90, line 2: Unknown symbol 'oops'",
        "        1  first",
        "  >     2  second oops",
        "        3  third",
    ]
    path = saved.removeprefix("  saved  ")
    assert "second oops" in Path(path).read_text()


def test_an_assembler_that_fails_without_a_word(folder: Path) -> None:
    _program(folder, "ptxas", "exit 1")
    with pytest.raises(tir.CompileError, match="rejects the PTX for sm_80: it says nothing"):
        ptxas.assemble("text", "sm_80")


def test_a_disassembler_that_fails(folder: Path) -> None:
    _program(folder, "cuobjdump", "echo no such format >&2; exit 1")
    with pytest.raises(tir.CompileError, match="cuobjdump cannot read the code: no such format"):
        ptxas.sass(b"rubbish")


real = pytest.mark.skipif(ptxas.find("ptxas") is None, reason="ptxas is not here")


@real
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_the_real_one(arch: str) -> None:
    kernel: Any = tir.build(staged(64, 64, 64), target=f"cuda:{arch}")
    (found,) = kernel.resources
    assert (found.shared, found.local, found.spill_stores, found.barriers) == (2048, 0, 0, 1)
    assert 16 <= found.registers <= 40
    assert found.occupancy == 1.0


@real
def test_the_real_one_rejects() -> None:
    kernel: Any = tir.build(doubled(64), target="cuda:sm_80")
    text = kernel.ptx.replace("cvta", "cvtb").replace("mov.u32", "mow.u32", 1)
    number = 1 + next(k for k, x in enumerate(text.splitlines()) if "mow.u32" in x)
    with pytest.raises(tir.CompileError, match=rf"for sm_80, line {number}: "):
        ptxas.assemble(text, "sm_80")


@real
def test_a_cubin_goes_to_the_device_first() -> None:
    pytest.importorskip("cuda.bindings.driver")
    from tests.cuda.fake_driver import FakeDriver, use

    kernel: Any = tir.build(doubled(64), target="cuda:sm_80")
    x = np.arange(64, dtype="float32")
    with use(FakeDriver(), ptxas=True) as fake:
        np.testing.assert_array_equal(kernel(x), 2 * x + 1)
        assert fake.calls["cuModuleLoadDataEx"] == 2  # the cubin, refused; then the text
