from __future__ import annotations

from pathlib import Path

import tensorir


def test_public_names_are_the_pinned_ones() -> None:
    """A name that comes or goes is meant: then ``public_names.txt`` changes with it."""
    pinned = Path(__file__).with_name("public_names.txt").read_text("utf-8").split()
    assert sorted(tensorir.__all__) == pinned
    assert len(set(tensorir.__all__)) == len(tensorir.__all__)


def test_every_public_name_is_there() -> None:
    assert [name for name in tensorir.__all__ if not hasattr(tensorir, name)] == []
    assert set(tensorir.__all__) <= set(dir(tensorir))


def test_package_is_typed() -> None:
    assert Path(tensorir.__file__).with_name("py.typed").exists()
