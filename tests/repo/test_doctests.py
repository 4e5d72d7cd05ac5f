from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator

import pytest

OPTIONS = doctest.ELLIPSIS  # and white space as it stands: loop nests are indented


def modules() -> Iterator[str]:
    for package in ("tensorir", "schedules", "autotune"):
        found = importlib.util.find_spec(package)
        if found is None or found.submodule_search_locations is None:
            continue
        yield package
        for module in pkgutil.walk_packages(found.submodule_search_locations, f"{package}."):
            if not module.name.endswith("__main__"):
                yield module.name


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_of_the_module(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=OPTIONS)
    assert failed == 0, capsys.readouterr().out
