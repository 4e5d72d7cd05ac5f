"""Options of the suite, and golden files.

`--update-golden` writes the files of `tests/golden` anew; read the difference before it is kept.
`--full` runs the long versions of properties, marked `full`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
    parser.addoption("--full", action="store_true", help="run the long versions of properties too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="a long version of a property; --full runs it")
    for item in items:
        if item.get_closest_marker("full") is not None:
            item.add_marker(skip)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares with `tests/golden/<name>.txt`, whole."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        shown = text.rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(shown, encoding="utf-8", newline="\n")
            return
        assert path.exists(), f"{path} is missing; pytest --update-golden writes it"
        assert shown == path.read_text(encoding="utf-8"), f"{path} says something else"

    return check
