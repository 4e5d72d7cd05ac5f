from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorir.codegen.source import KernelSource
from tensorir.runtime import kernel as kernels
from tensorir.runtime import layout
from tensorir.support.knobs import knobs


@pytest.fixture(autouse=True, scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache folder of the session's own."""
    with knobs.override(cache_dir=tmp_path_factory.mktemp("home") / "tensorir"):
        yield


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[KernelSource], Any]]:
    """Makes kernels whose wrapper must do all: a call that takes the slow way fails the test."""
    if not layout.holds():
        pytest.skip("no machine-code wrapper on this interpreter")

    def slow(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("took the slow way")

    kernels._linked_wrapper.cache_clear()
    monkeypatch.setattr(kernels, "slow_call", slow)
    yield kernels.make_kernel
    kernels._linked_wrapper.cache_clear()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A fresh cache folder for one test."""
    with knobs.override(cache_dir=tmp_path / "tensorir"):
        yield tmp_path / "tensorir"
