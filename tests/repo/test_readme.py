from __future__ import annotations

import re
from pathlib import Path

import pytest

DEMO = "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/tensorir demo"
TESTS = (
    "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev]' "
    "&& .venv/bin/python -m pytest -n 2"
)


def block_after(text: str, marker: str) -> str:
    """Return what stands in the fenced block below ``<!-- marker -->``."""
    found = re.search(rf"<!-- {marker} -->\n```\w*\n(.*?)```\n", text, re.DOTALL)
    assert found is not None, marker
    return found[1]


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    return (root / "README.md").read_text("utf-8")


def test_commands_are_there(readme: str) -> None:
    assert block_after(readme, "command: demo") == DEMO + "\n"
    assert block_after(readme, "command: tests") == TESTS + "\n"


def test_ci_runs_the_command_of_the_readme(root: Path) -> None:
    script = (root / ".ci" / "run").read_text("utf-8")
    assert "/^<!-- command: tests -->$/" in script
    assert 'bash -euo pipefail -c "$command"' in script
    assert "pytest" not in script, "the command has one place, README.md"
    assert (root / ".ci" / "run").stat().st_mode & 0o111


def test_example_prints_the_nest_that_is_shown(
    readme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"```python\n(.*?)```\n", readme, re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) <= 22
    shown = block_after(readme, "nest")
    exec(compile(found[1], "README.md", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert printed.startswith(shown)
    assert len(shown.splitlines()) >= 6


def test_folders_of_the_map_exist(root: Path, readme: str) -> None:
    folders = re.findall(r"^\| `([\w/]+/)` \|", readme, re.MULTILINE)
    assert len(folders) >= 10
    assert [one for one in folders if not (root / one).is_dir()] == []
    packages = {f"tensorir/{path.parent.name}/" for path in root.glob("tensorir/*/__init__.py")}
    assert packages - set(folders) == set()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(root: Path, name: str) -> None:
    text = (root / name).read_text("utf-8")
    links = re.findall(r"\]\(([^)#\s]+)\)", text)
    links += re.findall(r"`((?:tensorir|schedules|tests|notebooks|\.ci)/[\w./-]*)`", text)
    links += re.findall(r"`([\w-]+\.(?:md|cfg|toml))`", text)
    local = [link for link in links if not link.startswith("http")]
    assert [link for link in local if not (root / link).exists()] == []
