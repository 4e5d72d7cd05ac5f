"""Floor 8: what a person sees. Loop nests in colour and in HTML, differences, and `tir.help`.

Importing it makes `repr` of a schedule coloured in a terminal, and gives schedules, kernels and
differences their HTML; the module that writes HTML is loaded when a notebook first asks for some.
"""

from __future__ import annotations

from typing import Any

from tensorir.inspect import text
from tensorir.runtime.kernel import Kernel
from tensorir.schedule.schedule import Schedule
from tensorir.schedule.text import Difference
from tensorir.support import display

__all__ = ["register"]


def register() -> None:
    """Make the functions of this package the renderers of schedules, kernels and differences."""
    display.register(Schedule, text=text.shown, html=_schedule)
    display.register(Kernel, html=_kernel)
    display.register(Difference, html=_difference)


def _schedule(s: Any) -> str:
    from tensorir.inspect import html

    return html.schedule(s)


def _kernel(k: Any) -> str:
    from tensorir.inspect import html

    return html.kernel(k)


def _difference(d: Any) -> str:
    from tensorir.inspect import diff

    return diff.html(d.old, d.new)


register()
