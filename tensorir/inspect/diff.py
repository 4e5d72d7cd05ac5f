"""Two schedules beside each other: what went at the left, what came at the right."""

from __future__ import annotations

import difflib
from dataclasses import replace
from html import escape

from tensorir.inspect.html import STYLE, line
from tensorir.inspect.nest import Row, rows
from tensorir.inspect.text import colours
from tensorir.schedule import text as plain
from tensorir.schedule.schedule import Schedule

__all__ = ["html", "text"]

_HANGING = 6
_GONE, _COME, _RESET = "\x1b[31m", "\x1b[32m", "\x1b[0m"


def text(old: Schedule, new: Schedule, *, colour: bool | None = None) -> str:
    """The difference as one text, unified; coloured on a terminal."""
    shown = str(plain.diff(old, new))
    if not (colours() if colour is None else colour):
        return shown
    paint = {"-": _GONE, "+": _COME}
    return "\n".join(
        f"{paint[x[0]]}{x}{_RESET}" if x[:1] in paint else x for x in shown.splitlines()
    )


def html(old: Schedule, new: Schedule) -> str:
    """The difference as a table of two columns; changed lines are marked."""
    left, right = rows(old), rows(new)
    match = difflib.SequenceMatcher(None, [x.line for x in left], [x.line for x in right], False)
    cells: list[str] = []
    for how, a, b, c, d in match.get_opcodes():
        for k in range(max(b - a, d - c)):
            before = left[a + k] if a + k < b else None
            after = right[c + k] if c + k < d else None
            cells.append(_pair(before, after, changed=how != "equal"))
    names = "".join(f"<th>{escape(plain.title(s))}</th>" for s in (old, new))
    table = f"<table class=two><tr>{names}</tr>{''.join(cells)}</table>"
    return f'<div class="tir">{STYLE}{table}</div>'


def _pair(before: Row | None, after: Row | None, *, changed: bool) -> str:
    sides = ((before, "gone"), (after, "come"))
    return "<tr>" + "".join(_cell(x, mark if changed else "") for x, mark in sides) + "</tr>"


def _cell(row: Row | None, mark: str) -> str:
    """One side of a line. A long one goes on below, indented further than it begins."""
    if row is None:
        return "<td></td>"
    indent = f"padding-left:{2 * row.depth + _HANGING}ch;text-indent:-{_HANGING}ch"
    named = f" class={mark}" if mark else ""
    return f'<td{named} style="{indent}">{line(replace(row, depth=0))}</td>'
