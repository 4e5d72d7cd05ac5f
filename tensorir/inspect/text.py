"""The loop nest of a schedule in a terminal: coloured by kind of loop, with the steps behind it.

Colour is used on a terminal only: never in a pipe, in a file, where ``NO_COLOR`` is set
(https://no-color.org), or where ``TERM`` is ``dumb``.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from tensorir.inspect.nest import Row, rows
from tensorir.schedule.schedule import Schedule

__all__ = ["colours", "nest", "shown"]

_RESET = "\x1b[0m"
_DIM = "\x1b[2m"
# Of the sixteen colours that every terminal maps to its own theme.
_COLOURS = {
    "serial": "",
    "reduce": "\x1b[35m",
    "parallel": "\x1b[1;32m",
    "vectorize": "\x1b[1;36m",
    "unroll": "\x1b[33m",
    "bind": "\x1b[1;34m",
    "guard": "\x1b[31m",
    "buffer": "\x1b[34m",
}
_NOTE_GAP = 3


def colours(stream: TextIO | None = None) -> bool:
    """Whether colour may be written to a stream, by default standard output."""
    out = sys.stdout if stream is None else stream
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return out.isatty()
    except (AttributeError, ValueError):
        return False


def nest(s: Schedule, *, colour: bool | None = None, steps: bool = False) -> str:
    """The loop nest of a schedule.

    Parameters
    ----------
    s
        The schedule.
    colour
        Whether to colour it; None does so on a terminal.
    steps
        Whether a column at the right tells which step made each loop.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((64,), name="A")
    >>> B = tir.compute((64,), lambda i: A[i] * 2.0, name="B")
    >>> s = tir.schedule(B).split("i", 16, into=("io", "ii")).parallel("io")
    >>> print(nest(s, steps=True))
    for io in 0..4  # parallel   1 split
      for ii in 0..16            1 split
        B[16*io + ii] = A[16*io + ii] * 2.0
    """
    painted = colours() if colour is None else colour
    lines = rows(s)
    notes = [_note(x) if steps else "" for x in lines]
    plain = [x.line if steps else _tagged(x) for x in lines]
    column = max((len(p) for p, n in zip(plain, notes, strict=True) if n), default=0) + _NOTE_GAP
    out = []
    for row, line, note in zip(lines, plain, notes, strict=True):
        body = _painted(row, line) if painted else line
        tail = f"{_DIM}{note}{_RESET}" if painted else note
        out.append(f"{body}{' ' * (column - len(line))}{tail}" if note else body)
    return "\n".join(out)


def shown(s: Schedule) -> str:
    """What `repr` and `print` show of a schedule."""
    return nest(s)


def _note(row: Row) -> str:
    return "" if row.step is None else f"{row.step.number} {row.step.primitive}"


def _tagged(row: Row) -> str:
    """The line; a guard says which step it comes from."""
    if row.what != "guard" or row.step is None:
        return row.line
    return f"{row.line}  # since step {row.step.number}, {row.step.primitive}"


def _painted(row: Row, line: str) -> str:
    """Colour for the words of the loop and for its comment; the bounds stay as they are."""
    colour = _COLOURS.get(row.kind or row.what, "")
    if not colour:
        return line
    indent = "  " * row.depth
    bare = line[len(indent) :]
    if row.what != "loop":
        return f"{indent}{colour}{bare}{_RESET}"
    head, _, rest = bare.partition(" in ")
    bounds, mark, comment = rest.partition("  # ")
    painted = f"{indent}{colour}{head}{_RESET} in {bounds}"
    return f"{painted}  {colour}# {comment}{_RESET}" if mark else painted
