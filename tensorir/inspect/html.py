"""Schedules and kernels as HTML for notebooks: inline CSS, no script, nothing from the network.

Text takes the colour of its surroundings and no background is painted, so that light and dark
themes both work; labels bring a background and a colour that fit each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from tensorir.inspect.nest import Row, rows, rows_of_text
from tensorir.ir.statement import Array
from tensorir.poly.model import Program
from tensorir.runtime.kernel import Kernel
from tensorir.schedule.schedule import Schedule

__all__ = ["STYLE", "kernel", "line", "schedule"]

_HEAD = re.compile(r"^(for .+?)(?= in )")
_MOST_ROWS = 400
_MOST_STEPS = 200
_LONGEST = 400

# background and colour of each kind's label; contrast at least 7 to 1
_LABELS = {
    "reduce": ("#ead7f7", "#4a1669"),
    "parallel": ("#cdebd0", "#0c4416"),
    "vectorize": ("#cbe5fb", "#083a63"),
    "unroll": ("#fbe3bd", "#5c3500"),
    "bind": ("#dcdcfa", "#262673"),
    "guard": ("#fbd5d3", "#6b120d"),
    "buffer": ("#dfe3e8", "#2b3440"),
}
# Notebooks style tables of their own accord; what must differ is marked important.
STYLE = (
    "<style>"
    ".tir{font-size:13px;line-height:1.45;color:inherit;margin:2px 0;overflow-x:auto}"
    ".tir pre,.tir td,.tir th,.tir code{font-family:ui-monospace,Menlo,Consolas,monospace;"
    "font-size:12.5px;color:inherit}"
    ".tir pre{margin:4px 0;padding:0;white-space:pre;background:none;line-height:1.55}"
    ".tir table{border-collapse:collapse;margin:4px 0;color:inherit;font-size:inherit}"
    ".tir tr{background:none!important}"
    ".tir td,.tir th{text-align:left!important;padding:0 14px 0 0;white-space:pre;"
    "vertical-align:top;border:0;max-width:none}"
    ".tir table.two{table-layout:fixed;width:100%}"
    ".tir .two td{white-space:pre-wrap;overflow-wrap:anywhere}"
    ".tir .q{opacity:.65}"
    ".tir b{font-weight:600}"
    ".tir i{font-style:normal;border-radius:3px;padding:0 5px;font-size:11px}"
    ".tir summary{cursor:pointer}"
    ".tir .gone{background:rgba(220,70,60,.22)}.tir .come{background:rgba(50,160,80,.24)}"
    + "".join(f".tir i.{k}{{background:{b};color:{c}}}" for k, (b, c) in _LABELS.items())
    + "</style>"
)


def schedule(s: Schedule) -> str:
    """The loop nest, the arrays, and the trace of a schedule."""
    names = ", ".join(t.name for t in s.outputs)
    count = len(s.trace.steps)
    after = f" after step {escape(_short(str(s.step)))}" if s.step is not None else ""
    head = f"<div>schedule of <b>{escape(_short(names))}</b><span class=q>{after}</span></div>"
    parts = [head, _nest(rows(s)), _arrays(s.program)]
    if count:
        parts.append(_details(f"{count} step{'s' * (count > 1)}", _trace(s)))
    return _page(parts)


def kernel(k: Kernel) -> str:
    """The signature, the loops, and what the compiler had to say of a kernel."""
    total = sum(k.timings.values())
    phases = ", ".join(f"{n} {ms:.1f}" for n, ms in k.timings.items())
    took = f", made in {total:.1f} ms" if total else ""
    head = (
        f'<div title="{escape(phases)}">kernel <b>{escape(_short(k.name))}</b>'
        f"<span class=q> for {escape(str(k.target))}{took}</span></div>"
    )
    cells = [
        (a.role, a.name, f"{a.dtype}[{', '.join(n.text() for n in a.shape)}]") for a in k.arguments
    ]
    parts = [head, _table(cells), _nest(rows_of_text(k.loops))]
    parts += [f"<div><i class=guard>note</i> {escape(_short(n))}</div>" for n in k.notes]
    parts.append("<div class=q>.loops .llvm .asm hold the code; .check and .time run it</div>")
    return _page(parts)


def line(row: Row) -> str:
    """One row: the words of a loop, its bounds, labels for its kind and the step behind it."""
    indent = "  " * min(row.depth, 60)
    body = escape(_short(row.text), quote=False)
    if row.what == "statement":
        return f"{indent}{body}{_comment(row)}"
    label = row.kind if row.what == "loop" else row.what
    words = indent + (_HEAD.sub(r"<b>\1</b>", body) if row.what == "loop" else body)
    told = row.comment or (row.what if row.what == "guard" else "")
    told = "reduce" if label == "reduce" else told
    if label in _LABELS and told:
        words += f"  <i class={label}>{escape(_short(told), quote=False)}</i>"
    elif row.comment:
        words += _comment(row)
    return words + _step(row)


def _comment(row: Row) -> str:
    if not row.comment:
        return ""
    return f"  <span class=q># {escape(_short(row.comment), quote=False)}</span>"


def _step(row: Row) -> str:
    """The number of the step, and all of it on hovering."""
    if row.step is None:
        return ""
    whole = escape(_short(row.step.text))
    return f'  <span class=q title="{whole}">{row.step.number}&thinsp;{row.step.primitive}</span>'


def _nest(lines: Sequence[Row]) -> str:
    out = [line(x) for x in lines[:_MOST_ROWS]]
    if len(lines) > _MOST_ROWS:
        out.append(f"<span class=q>and {len(lines) - _MOST_ROWS} more lines</span>")
    return "<pre>" + "\n".join(out) + "</pre>"


def _arrays(program: Program) -> str:
    """Where each array lives."""
    cells = [(_place(program, a), a.name, _shape(a)) for a in program.arrays]
    return _details(f"{len(cells)} array{'s' * (len(cells) > 1)}", _table(cells))


def _place(program: Program, a: Array) -> str:
    buffer = program.buffers.get(a)
    if buffer is None or a.role != "temp":
        return a.role
    inside = f" in each {buffer.outside[-1].name}" if buffer.outside else ""
    return f"{buffer.scope}{inside}"


def _shape(a: Array) -> str:
    return f"{a.dtype}[{', '.join(n.text() for n in a.shape)}]"


def _table(cells: Iterable[tuple[str, ...]]) -> str:
    found = [
        "<tr>" + "".join(f"<td>{escape(_short(c), quote=False)}</td>" for c in row) + "</tr>"
        for row in cells
    ]
    return f"<table>{''.join(found[:_MOST_ROWS])}</table>"


def _trace(s: Schedule) -> str:
    steps = s.trace.steps
    cells: list[tuple[str, ...]] = []
    for x in steps[-_MOST_STEPS:]:
        rounding = "may change rounding" if x.reassociates else ""
        notes = "; ".join((*x.notes, *([rounding] if rounding else [])))
        cells.append((str(x.number), x.text, x.site.place if x.site is not None else "", notes))
    left = len(steps) - len(cells)
    earlier = f"<div class=q>{left} earlier steps, in s.trace</div>" if left > 0 else ""
    return earlier + _table(cells)


def _details(summary: str, body: str) -> str:
    return f"<details><summary class=q>{summary}</summary>{body}</details>"


def _page(parts: Iterable[str]) -> str:
    return f'<div class="tir">{STYLE}{"".join(parts)}</div>'


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
