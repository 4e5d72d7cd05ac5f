from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

FOREIGN = {
    "islpy": r"tensorir/poly/\w+\.py",
    "llvmlite": r"tensorir/codegen/llvm\.py",
    "cuda": r"tensorir/runtime/cuda_device\.py",
}


def test_floors_are_kept(root: Path) -> None:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_package_has_a_floor(root: Path) -> None:
    settings = configparser.ConfigParser()
    settings.read(root / "setup.cfg")
    layers = re.findall(r"\(([\w.]+)\)", settings["importlinter:contract:floors"]["layers"])
    packages = [f"tensorir.{path.parent.name}" for path in root.glob("tensorir/*/__init__.py")]
    assert sorted(set(packages) - set(layers)) == []


def test_foreign_libraries_have_one_owner(root: Path) -> None:
    found = []
    for folder in ("tensorir", "schedules", "autotune"):
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            for library, owner in FOREIGN.items():
                imports = re.search(rf"^\s*(?:import|from) {library}\b", text, re.MULTILINE)
                name = path.relative_to(root).as_posix()
                if imports and not re.fullmatch(owner, name):
                    found.append(f"{name} imports {library}")
    assert found == []
