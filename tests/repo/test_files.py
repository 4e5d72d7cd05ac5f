from __future__ import annotations

import ast
import re
from pathlib import Path

MOST_LINES = 600
# Written in parts, so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join(["/wo" + "rk/", "/ro" + "ot/", "/tm" + "p/te" + "am", "/tm" + "p/ve" + "nv"])
)
HOSTS = re.compile("|".join(["pypi" + r"\.", "files\\." + "pythonhosted", "registry\\." + "npm"]))


def sources(texts: list[Path]) -> list[Path]:
    return [path for path in texts if path.suffix == ".py"]


def test_no_file_is_longer_than_six_hundred_lines(texts: list[Path]) -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in sources(texts)}
    assert {str(path): n for path, n in lengths.items() if n > MOST_LINES} == {}


def test_text_names_no_machine(texts: list[Path]) -> None:
    found = []
    for path in texts:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            if MACHINE_PATHS.search(line) or HOSTS.search(line):
                found.append(f"{path}:{number}: {line.strip()[:100]}")
    assert found == []


def test_every_module_of_the_library_says_what_it_is(root: Path, texts: list[Path]) -> None:
    library = [root / name for name in ("tensorir", "schedules", "autotune")]
    bare = [
        str(path)
        for path in sources(texts)
        if any(folder in path.parents for folder in library)
        and not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert bare == []


def test_every_package_has_an_init(root: Path, texts: list[Path]) -> None:
    folders = {
        path.parent
        for path in sources(texts)
        if path.relative_to(root).parts[0] in ("tensorir", "schedules", "autotune")
    }
    assert sorted(str(one) for one in folders if not (one / "__init__.py").exists()) == []


def test_no_work_is_left_marked(texts: list[Path]) -> None:
    marks = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
    found = [
        f"{path}:{number}"
        for path in sources(texts)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if marks.search(line)
    ]
    assert found == []
