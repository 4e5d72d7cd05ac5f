"""Floor 12, the command line. An application over the rest.

`bench` builds, checks and times an operator; `build` prints its code, or what it is made of;
`emulate` runs PTX without a GPU; `demo` schedules a matrix product step by step and
shows a step that is refused; `doctor` tells what this machine has and lacks. Exit status: 0 if all
went well, 1 if something failed, 2 for a wrong command line, 130 for Ctrl-C. Start with
:func:`main`.
"""

from __future__ import annotations

from tensorir.cli.entry import main

__all__ = ["main"]
