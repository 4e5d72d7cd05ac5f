"""`python -m tests.benchmarks.steps`: what each step of the hand schedules gains.

The tables of `notebooks/01_schedules_for_this_cpu.ipynb`, from its own cells, without Jupyter: the
figures in its text are those that this prints. Half a minute, on a quiet machine.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_schedules_for_this_cpu.ipynb"


def tables(notebook: Path) -> Iterator[str]:
    """Run the cells in order; yield each heading as it comes, while cells print what they print."""
    names: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(json.loads(notebook.read_text("utf-8"))["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield from (x for x in text.splitlines() if x.startswith("#"))
            continue
        # what a notebook would show of the last expression is no table
        exec(compile(ast.parse(text), f"cell {number}", "exec"), names)


def main() -> int:
    """Print the tables under the headings of the page."""
    for heading in tables(NOTEBOOK):
        print(f"\n{heading}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
