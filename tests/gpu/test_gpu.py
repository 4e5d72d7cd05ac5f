"""On a GPU where there is one; and the command that proves all, against the driver of the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir.runtime import cuda_device
from tests.cuda.programs import doubled, staged
from tests.gpu import run
from tests.gpu.correct import cases

WHY = cuda_device.absence()
gpu = pytest.mark.skipif(bool(WHY), reason=WHY or "there is a device")


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("n", [1, 127, 1000])
def test_elementwise(n: int) -> None:
    kernel = tir.build(doubled(tir.var("n")), target="cuda")
    a = np.arange(n, dtype="float32")
    np.testing.assert_array_equal(kernel(a), 2 * a + 1)
    np.testing.assert_array_equal(kernel(tir.to_device(a)).numpy(), 2 * a + 1)


@pytest.mark.gpu
@gpu
def test_a_product() -> None:
    kernel = tir.build(staged(130, 70, 90), target="cuda")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((130, 90), (90, 70)))
    kernel.check(a, b, against=lambda a, b: a @ b)
    assert kernel.time(a, b, repeat=3).median > 0


def test_the_command_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cuda.bindings.driver")
    words = ["--fake", "doubled 127", "staged 33x65x17", "softmax 5x4", "take ", "concat"]
    status = run.main([*words, "--json", str(tmp_path / "found.json")])
    out = capsys.readouterr().out
    assert status == 0, out
    records = json.loads((tmp_path / "found.json").read_text())["records"]
    assert {r["status"] for r in records} == {"ok"}
    assert [r["name"] for r in records][:2] == ["doubled 127", "staged 33x65x17"]
    assert len(records) >= 5
    assert f"{len(records)} cases in " in out


def test_a_wrong_kernel_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cuda.bindings.driver")
    from tests.gpu import correct

    def broken(target: str) -> Any:
        return tir.build(doubled(64), target=target), (np.ones(64, "f4"),), lambda a: a

    monkeypatch.setattr(correct, "cases", lambda: [correct.Case("broken", broken)])
    assert run.main(["--fake"]) == 1
    assert (
        "wrong: broken: KernelError: B() gives B[0] = 3.0, the reference 1.0"
        in capsys.readouterr().out
    )


@pytest.mark.skipif(not WHY, reason="there is a device")
def test_the_command_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([]) == 1
    assert capsys.readouterr().out == f"nothing was run: {WHY}\n"


def test_every_operator_has_a_case() -> None:
    names = {c.name.split()[0] for c in cases()}
    assert set(tir.ops.operators()) <= names
