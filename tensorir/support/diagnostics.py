"""How an error is told: the place in the user's code, the loop nest, the reason, what to try.

`caller` finds the user's line. `Message` puts the parts of a refusal into one form::

    IllegalSchedule: reorder("j", "i") would run S[2, 0] before S[1, 1], which writes ...

      matmul.ipynb cell 5:  s = s.reorder("j", "i")

      for i in 1..N
        for j in 0..N-1                 <- asked to go outside i
          S: A[i, j] = A[i-1, j+1] * 0.5
                       ^^^^^^^^^^^^^ flow dependence, distance (i: +1, j: -1), at N = 3

      why  after the change the first distance is -1: the reader would come before the writer.
      try  s.skew("j", by="i")          then reorder: the distance becomes (+1, 0)
      more tir.help("illegal-schedule")

A suggestion may stand there only after it was applied and accepted; that is its maker's duty.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any, TypeVar

from tensorir.support.errors import TensorIRError

__all__ = ["CallSite", "Mark", "Message", "caller", "is_own", "user_depth"]

E = TypeVar("E", bound=TensorIRError)

MOST_LINES = 25
MOST_TRIES = 3
_WIDTH = 100
_ARROW_COLUMN = 32
_OWN = ("tensorir", "schedules", "autotune")
_PASSED = (contextlib.__file__, functools.__file__)


def is_own(frame: FrameType) -> bool:
    """Return whether a frame runs code of this library (a doctest in it is a user's)."""
    module = frame.f_globals.get("__name__")
    if not isinstance(module, str) or module.partition(".")[0] not in _OWN:
        return False
    return not frame.f_code.co_filename.startswith("<doctest")


@dataclass(frozen=True, slots=True)
class CallSite:
    """A place in the user's code.

    Attributes
    ----------
    file : str
        The file as Python names it; a notebook's cell has a name of its own.
    line, last_line : int
        First and last line of the call, from 1.
    """

    file: str
    line: int
    last_line: int

    @property
    def source(self) -> str:
        """The source of the call on one line, or "" where it is not to be had."""
        lines = [
            linecache.getline(self.file, number).strip()
            for number in range(self.line, self.last_line + 1)
        ]
        joined = " ".join(line for line in lines if line)
        return textwrap.shorten(joined, 80, placeholder=" ...") if len(joined) > 80 else joined

    @property
    def place(self) -> str:
        """Where it is: ``script.py:12``, ``matmul.ipynb cell 5``, ``cell 5``."""
        cell = _cell_of(self.file)
        if cell is not None:
            notebook = os.path.basename(os.environ.get("JPY_SESSION_NAME", ""))
            return f"{notebook} {cell}" if notebook.endswith(".ipynb") else cell
        return f"{os.path.basename(self.file)}:{self.line}"

    def __str__(self) -> str:
        source = self.source
        return f"{self.place}:  {source}" if source else self.place


def caller() -> CallSite | None:
    """Return the nearest place outside this library that led here, or None without one."""
    for frame in _frames(sys._getframe(1)):
        if is_own(frame) or frame.f_code.co_filename in _PASSED:
            continue
        first, last = _lines_of(frame)
        return CallSite(frame.f_code.co_filename, first, last)
    return None


def user_depth() -> int:
    """Return the ``stacklevel`` with which a warning of the caller's is on the user's line."""
    depth = 1
    for depth, frame in enumerate(_frames(sys._getframe(1)), start=1):  # noqa: B007
        if not is_own(frame) and frame.f_code.co_filename not in _PASSED:
            break
    return depth


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _lines_of(frame: FrameType) -> tuple[int, int]:
    positions = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if positions is None or positions[0] is None:
        return frame.f_lineno, frame.f_lineno
    return positions[0], positions[1] or positions[0]


def _cell_of(file: str) -> str | None:
    """Return ``"cell 5"`` for the name that IPython gave to the source of a cell."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()  # type: ignore[no-untyped-call,unused-ignore]
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})
    if file in numbers:
        return f"cell {numbers[file]}"
    return "cell" if "ipykernel_" in file or file.startswith("<ipython-input") else None


@dataclass(frozen=True, slots=True)
class Mark:
    """A remark on one line of a loop nest.

    With `start` and `end` (columns of the line, from 0) that part is underlined and the remark
    stands beneath it; without, an arrow at the end of the line carries the remark.
    """

    line: int
    text: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of an error; empty ones are left out.

    Attributes
    ----------
    headline : str
        One line, complete in itself.
    call_site : CallSite or str or None
        Where the user asked for it.
    nest_lines : sequence of str
        The loop nest, without common indentation. Lines far from any mark are elided where
        the message would pass 25 lines.
    marks : sequence of Mark
        Remarks on its lines.
    why : str
        The reason, in a sentence or two.
    tries : sequence of (str, str)
        At most three lines that can be pasted, each with what it does.
    more : str
        The call that tells more.

    Examples
    --------
    >>> message = Message(
    ...     'parallel("k") would let two instances race.',
    ...     nest_lines=["for k in 0..8", "  C[0] += A[k]"],
    ...     marks=[Mark(0, "asked to be parallel"), Mark(1, "both write it", 2, 6)],
    ...     why="the reduction is not declared as one that may be combined.",
    ...     tries=[('s.rfactor("k")', "keeps partial sums")],
    ... )
    >>> print(message.text())
    parallel("k") would let two instances race.
    <BLANKLINE>
      for k in 0..8                     <- asked to be parallel
        C[0] += A[k]
        ^^^^ both write it
    <BLANKLINE>
      why  the reduction is not declared as one that may be combined.
      try  s.rfactor("k")               keeps partial sums
    """

    headline: str
    call_site: CallSite | str | None = None
    nest_lines: Sequence[str] = ()
    marks: Sequence[Mark] = ()
    why: str = ""
    tries: Sequence[tuple[str, str]] = ()
    more: str = ""

    def text(self) -> str:
        """Return headline and details."""
        return "\n".join(line for line in (self.headline, self.details()) if line)

    def details(self) -> str:
        """Return what stands below the headline; begins with an empty line if it is not empty."""
        ending = self._ending()
        site = [f"  {self.call_site}"] if self.call_site is not None else []
        room = MOST_LINES - 1 - sum(len(part) + 1 for part in (site, ending, "") if part) - 1
        parts = [part for part in (site, self._nest(room), ending) if part]
        return "".join("\n" + "\n".join(part) + "\n" for part in parts).rstrip("\n")

    def error(self, cls: Callable[..., E], **fields: object) -> E:
        """Return an error with this message: ``raise message.error(IllegalSchedule)``."""
        return cls(self.headline, details=self.details(), **fields)

    def _nest(self, room: int) -> list[str]:
        shown = _elided(self.nest_lines, self.marks, max(room, 6))
        arrows = {mark.line: mark for mark in self.marks if mark.start is None}
        longest = max((len(self.nest_lines[line]) for line in arrows), default=0)
        column = max(_ARROW_COLUMN, longest + 2)
        lines = []
        for number, text in shown:
            arrow = arrows.get(number)
            lines.append(f"  {text:<{column}}  <- {arrow.text}" if arrow else f"  {text}".rstrip())
            lines += [_underline(mark, text) for mark in self.marks if _is_below(mark, number)]
        return lines

    def _ending(self) -> list[str]:
        lines = []
        if self.why:
            lines += textwrap.wrap(
                self.why,
                _WIDTH,
                initial_indent="  why  ",
                subsequent_indent="       ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        tries = list(self.tries)[:MOST_TRIES]
        column = max([_ARROW_COLUMN - 4, *(len(code) for code, _ in tries)])
        for label, (code, effect) in zip(("try", "", ""), tries, strict=False):
            lines.append(f"  {label:<4} {code:<{column}} {effect}".rstrip())
        if self.more:
            lines.append(f"  more {self.more}")
        return lines


def _is_below(mark: Mark, number: int) -> bool:
    return mark.line == number and mark.start is not None


def _underline(mark: Mark, text: str) -> str:
    start = mark.start or 0
    end = mark.end if mark.end is not None else len(text)
    return f"  {' ' * start}{'^' * max(1, end - start)} {mark.text}"


def _elided(lines: Sequence[str], marks: Sequence[Mark], room: int) -> list[tuple[int, str]]:
    """Return numbered lines; those far from a mark become one ``...`` where there is no room."""
    room -= sum(1 for mark in marks if mark.start is not None)
    if len(lines) <= room:
        return list(enumerate(lines))
    kept = _worth_keeping(lines, marks, max(2, room - 2))
    shown: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        if number in kept:
            shown.append((number, line))
        elif not shown or shown[-1][0] >= 0:
            shown.append((-1, " " * _indent(line) + "..."))
    return shown


def _worth_keeping(lines: Sequence[str], marks: Sequence[Mark], most: int) -> set[int]:
    """Return the marked lines, then the loops around them, then those nearest, up to a number."""
    marked = sorted({mark.line for mark in marks}) or [0]
    order = list(marked)
    for number in marked:
        order += _around(lines, number)
    order += sorted(range(len(lines)), key=lambda n: (min(abs(n - m) for m in marked), n))
    return set(list(dict.fromkeys(order))[:most])


def _around(lines: Sequence[str], number: int) -> list[int]:
    loops = []
    indent = _indent(lines[number])
    for above in range(number - 1, -1, -1):
        if _indent(lines[above]) < indent:
            indent = _indent(lines[above])
            loops.append(above)
    return loops


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
