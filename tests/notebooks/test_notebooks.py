"""Every notebook runs from top to bottom, keeps no outputs, and shows what it promises."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import steps

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("**/*.ipynb"))
SECONDS = 120


def cells_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    return found


def test_there_are_notebooks() -> None:
    assert FOLDER / "00_quickstart.ipynb" in NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_no_outputs_are_stored(path: Path) -> None:
    code = [c for c in cells_of(path) if c["cell_type"] == "code"]
    assert [c for c in code if c["outputs"] or c["execution_count"] is not None] == []


def test_quickstart_has_ten_cells_of_code() -> None:
    cells = cells_of(FOLDER / "00_quickstart.ipynb")
    assert sum(c["cell_type"] == "code" for c in cells) == 10
    assert cells[0]["cell_type"] == "markdown"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The quickstart with its outputs."""
    return run("00_quickstart", tmp_path_factory.mktemp("notebook"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The page of schedules with its outputs."""
    return run("01_schedules_for_this_cpu", tmp_path_factory.mktemp("notebook"))


def run(name: str, folder: Path) -> dict[str, Any]:
    """A notebook with its outputs, run in an empty folder."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is missing: pip install nbmake")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is missing: pip install nbmake")
    pytest.importorskip("ipykernel", reason="ipykernel is missing: pip install ipykernel")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    start = time.perf_counter()
    client.execute()
    assert time.perf_counter() - start < SECONDS
    found: dict[str, Any] = notebook
    return found


def shown(notebook: dict[str, Any], number: int, kind: str) -> str:
    """What the code cell of that number, from 1, shows as `kind`."""
    code = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    outputs = code[number - 1]["outputs"]
    texts = [o["text"] for o in outputs if o["output_type"] == "stream" and kind == "text/plain"]
    texts += [o["data"].get(kind, "") for o in outputs if "data" in o]
    return "\n".join(texts)


def test_schedules_are_drawn(executed: dict[str, Any]) -> None:
    assert "for <b>" not in shown(executed, 3, "text/html")
    assert '<div class="tir">' in shown(executed, 3, "text/html")
    assert "<b>for ji</b> in 0..64" in shown(executed, 4, "text/html")
    assert "1&thinsp;tile" in shown(executed, 4, "text/html")


def test_the_refusal_has_a_witness(executed: dict[str, Any]) -> None:
    told = shown(executed, 5, "text/plain")
    assert told.startswith('IllegalSchedule: parallel("k")')
    assert re.search(r"C\[\d+, \d+, \d+\]", told)
    assert "  why  " in told
    assert "  try  " in told
    assert not told.startswith("'")


def test_the_difference_is_in_two_columns(executed: dict[str, Any]) -> None:
    page = shown(executed, 6, "text/html")
    assert "class=gone" in page
    assert "class=come" in page


def test_the_result_is_checked(executed: dict[str, Any]) -> None:
    assert shown(executed, 7, "text/plain").startswith("C: within")
    assert "kernel <b>C</b>" in shown(executed, 8, "text/html")


def test_times_are_told(executed: dict[str, Any]) -> None:
    told = shown(executed, 9, "text/plain")
    found = re.findall(r"^(\S.*?) +([\d.]+) ms +([\d.]+) GFLOP/s$", told, re.MULTILINE)
    assert [name for name, _, _ in found] == ["as declared", "tiled", "the library's", "numpy"]


def test_the_assembly_has_vectors(executed: dict[str, Any]) -> None:
    assert re.search(r"^\d+ vector multiply-adds", shown(executed, 10, "text/plain"))


def said(notebook: dict[str, Any]) -> str:
    """All that the cells print and show, as text."""
    count = sum(c["cell_type"] == "code" for c in notebook["cells"])
    return "\n".join(shown(notebook, k + 1, "text/plain") for k in range(count))


ROW = re.compile(r"^ +(as declared|on \d+ threads|\d+  \w+\(.*?) +[\d.]+ ms", re.MULTILINE)
WALKS = (
    "matmul (512, 512)", "matmul (64, 64)", "gemv (", "conv2d (", "depthwise_conv2d (",
    "softmax (", "layer_norm (", "sum (4096, 2048)", "transpose (", "relu (", "attention (",
    "quantized_matmul (", "blur (", "wave (",
)  # fmt: skip


def test_every_schedule_is_walked_along(page: dict[str, Any]) -> None:
    told = said(page)
    assert [w for w in WALKS if f"\n{w}" not in f"\n{told}"] == []
    rows = [m.group(1) for m in ROW.finditer(told)]
    assert rows.count("as declared") == len(WALKS) + 1  # there are two sums
    assert sum(r.endswith("threads") for r in rows) == len(WALKS) + 1


def test_what_a_wrong_order_is_told(page: dict[str, Any]) -> None:
    told = said(page)
    assert "ScheduleError: init_at: 'jr' is not a reduction loop of matmul" in told
    assert 'IllegalSchedule: vectorize("k", width=16) would run' in told
    assert "ScheduleError: compute_at: nothing inside 'softmax.i' reads softmax_max" in told
    assert "IllegalSchedule: online: attention_exp depends on attention_max" in told


def test_online_keeps_the_scores_of_a_tile(page: dict[str, Any]) -> None:
    before, after = (x for x in re.split(r"online\(\"jo\"", said(page), maxsplit=1))
    tile = re.compile(r"for jo in .*\n +alloc attention_scores: ")
    assert not tile.search(before)
    assert tile.search(after)


def test_steps_run_the_same_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# One\n", "text"]},
        {"cell_type": "code", "source": ["x = 3\n", "x"]},
        {"cell_type": "markdown", "source": ["## Two"]},
        {"cell_type": "code", "source": ["print(x)"]},
    ]
    path = tmp_path / "page.ipynb"
    path.write_text(json.dumps({"cells": cells}), "utf-8")
    assert list(steps.tables(path)) == ["# One", "## Two"]
    assert capsys.readouterr().out == "3\n"
    assert steps.NOTEBOOK in NOTEBOOKS


@pytest.mark.parametrize("which", ["executed", "page"])
def test_nothing_warns(which: str, request: pytest.FixtureRequest) -> None:
    notebook: dict[str, Any] = request.getfixturevalue(which)
    errors = [
        o
        for c in notebook["cells"]
        for o in c.get("outputs", ())
        if o["output_type"] == "stream" and o["name"] == "stderr"
    ]
    assert errors == []


def test_every_decision_is_listed() -> None:
    pages = sorted(p.name for p in (FOLDER / "design").glob("[0-9]*.md"))
    listed = re.findall(
        r"\]\(([\w.-]+\.md)\)", (FOLDER / "design" / "README.md").read_text("utf-8")
    )
    assert listed == pages
