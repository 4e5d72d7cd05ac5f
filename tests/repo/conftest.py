from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def texts(root: Path) -> list[Path]:
    """The text files of the repository: what git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if listing.returncode:
        pytest.skip("git does not know this folder")
    paths = sorted(root / name for name in set(listing.stdout.split("\0")) if name)
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:1024]]
