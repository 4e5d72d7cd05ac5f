from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorir.support.knobs import knobs


@pytest.fixture(autouse=True)
def private_settings(tmp_path: Path) -> Iterator[None]:
    """Every test has knobs and a cache folder of its own."""
    with knobs.override(cache_dir=tmp_path / "tensorir-home", silenced=()):
        yield
